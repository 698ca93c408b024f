"""The environment with which PySpark starts Spark's JVM. Needs no pyspark.

This Python process starts the JVM: spark-submit would merge the driver's stderr into stdout, which belongs to the
report. Only ``--deploy-mode cluster`` goes through spark-submit, as the driver runs elsewhere.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from jobs.contract.report import PACKAGES
from storeformat.errors import DependencyMissing
from storeformat.store.broker_rules import parse_properties

ROOT = Path(__file__).resolve().parents[2]
_OF_WHEEL = Path(__file__).with_name("conf")
CONF = _OF_WHEEL if _OF_WHEEL.is_dir() else ROOT / "conf"
STARTED_BY_SPARK = "PYSPARK_GATEWAY_PORT" in os.environ
"""True in cluster mode: spark-submit started this program, with its options."""

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def environment(
    directory: str, options: Sequence[str] = (), *, delta: bool = False, lasts: bool = True, debug: bool = False
) -> dict[str, str]:
    """Variables for a JVM with temporary files in ``directory``; a short one has Java's first compiler."""
    require_java()
    log4j, archive = CONF / "log4j2.properties", Path(sys.prefix, "spark.jsa")
    flags = [f"-Drocketmq.store.spark.log.level={'info' if debug else 'off'}", f'"-Djava.io.tmpdir={directory}"']
    if log4j.is_file():
        flags.append(f'"-Dlog4j2.configurationFile={log4j.as_uri()}"')
    if archive.is_file():  # made by the set-up; a JVM that it does not fit goes on without it
        flags += [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if not lasts:  # by itself Java then reserves 48 MB for code, and compiles nothing more when they are full
        flags += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    settings = ["--conf", "spark.ui.showConsoleProgress=false", *(delta_options(options) if delta else ())]
    return {
        "PYSPARK_SUBMIT_ARGS": shlex.join([*settings, *options, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,  # for Python that the driver starts; executors use the context's
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SPARK_DRIVER_MEMORY": os.environ.get("SPARK_DRIVER_MEMORY", "2g"),
        "SPARK_SUBMIT_OPTS": " ".join([*flags, os.environ.get("SPARK_SUBMIT_OPTS", "")]),
    }


def prepare(options: Sequence[str] = (), *, delta: bool = False) -> None:
    """Set the environment for a program that makes its own SparkSession."""
    if not STARTED_BY_SPARK:
        os.environ.update(environment(tempfile.gettempdir(), options, delta=delta))


def defaults(directory: str, *, local: bool) -> dict[str, str]:
    """Settings of Spark unless the user sets them; ``directory`` is for this Spark alone."""
    settings = {"spark.sql.warehouse.dir": f"{directory}/warehouse"}  # unused
    for file in ("spark-defaults.conf", "spark-local.conf")[: 1 + local]:
        if (CONF / file).is_file():
            settings |= parse_properties((CONF / file).read_text(encoding="utf-8"))
    if local:
        settings["spark.local.dir"] = directory
        if len(os.fsencode(directory)) <= 60:  # the path of a Unix socket in it has 43 bytes more, and at most 103
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = directory
    return settings


def require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        raise DependencyMissing("Spark needs Java 17 or later: there is none", advice="install it, or set JAVA_HOME")


def delta_options(options: Sequence[str]) -> list[str]:
    """spark-submit options for Delta."""
    settings = [word for name, value in _DELTA.items() for word in ("--conf", f"{name}={value}")]
    if any("delta-spark" in word for word in options):
        return settings
    if jars := sorted(map(str, Path(sys.prefix, "jars").glob("*.jar"))):
        return [*settings, "--jars", ",".join([*jars, *values_of(options, "--jars")])]
    raise DependencyMissing(
        "Delta's jars are not there",
        advice="`./spark-submit.sh --setup` fetches them; elsewhere: --packages io.delta:delta-spark_4.2_2.13:4.4.0",
    )


def application_zip(directory: str) -> str:
    target = Path(directory, "rocketmq-store-spark.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*"))):
            if path.is_file() and path.parent.name != "__pycache__":
                archive.write(path, path.relative_to(ROOT).as_posix())
    return str(target)


def spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    return Path(os.environ.get("SPARK_HOME") or Path((found and found.origin) or "").parent)


def become_spark_submit(options: Sequence[str], job_arguments: Sequence[str]) -> NoReturn:
    """Replace this process by spark-submit, for cluster mode."""
    ours = application_zip(tempfile.mkdtemp(prefix="rocketmq-store-spark-"))
    packages = ("--py-files", ",".join([*values_of(options, "--py-files"), ours]))
    sys.stdout.flush()
    program, job = str(spark_home() / "bin" / "spark-submit"), str(ROOT / "jobs" / "__main__.py")
    os.execv(program, [program, *options, *packages, job, *job_arguments])


def values_of(options: Sequence[str], name: str) -> list[str]:
    following = [value for word, value in pairwise(options) if word == name]
    return following + [word.partition("=")[2] for word in options if word.startswith(f"{name}=")]


def is_local(master: str) -> bool:
    """True if executors are threads of the driver's JVM (``local-cluster`` has processes)."""
    return master == "local" or master.startswith("local[")
