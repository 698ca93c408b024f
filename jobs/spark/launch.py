"""What Spark's JVM is started with, which PySpark's own start reads from the environment. Needs no pyspark.

The driver is this Python process, which starts the JVM. The other way round (spark-submit starts Python) would merge
the driver's stderr into stdout, and stdout belongs to the report. Only ``--deploy-mode cluster`` needs the other way,
because there the driver runs elsewhere.
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
from pathlib import Path
from typing import NoReturn

from jobs.contract.report import PACKAGES
from jobs.spark.options import CONF, ROOT, values_of
from storeformat.errors import DependencyMissing
from storeformat.javaproperties import parse_properties

STARTED_BY_SPARK = "PYSPARK_GATEWAY_PORT" in os.environ
"""Whether spark-submit started this program, as it does with ``--deploy-mode cluster``: all has been decided then."""

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_QUIET = ("--conf", "spark.ui.showConsoleProgress=false")
_LONGEST_PLACE = 103 - len("/.00000000-0000-0000-0000-000000000000.sock")
"""Bytes of a directory in which every system takes a Unix socket of Spark's."""


def environment(
    directory: str, options: Sequence[str] = (), *, delta: bool = False, lasts: bool = True, debug: bool = False
) -> dict[str, str]:
    """Returns the variables for PySpark's start of a JVM whose temporary files go to ``directory``; ``options`` are
    those of spark-submit. One that does not last has Java's first compiler alone. Raises DependencyMissing without Java
    or Delta's jars.
    """
    require_java()
    log4j, archive = CONF / "log4j2.properties", Path(sys.prefix, "spark.jsa")
    flags = [f"-Drocketmq.store.spark.log.level={'info' if debug else 'off'}", f'"-Djava.io.tmpdir={directory}"']
    if log4j.is_file():
        flags.append(f'"-Dlog4j2.configurationFile={log4j.as_uri()}"')
    if archive.is_file():  # made by the set-up; a JVM that it does not fit goes on without it
        flags += [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if not lasts:  # by itself Java then reserves 48 MB for code, and compiles nothing more when they are full
        flags += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    known = os.environ
    return {
        "PYSPARK_SUBMIT_ARGS": shlex.join(
            [*_QUIET, *(delta_options(options) if delta else ()), *options, "pyspark-shell"]
        ),
        "PYSPARK_PYTHON": sys.executable,  # for Python that the driver starts; executors use the context's
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [known.get("PYTHONPATH")])]),
        "SPARK_DRIVER_MEMORY": known.get("SPARK_DRIVER_MEMORY", "2g"),
        "SPARK_SUBMIT_OPTS": " ".join([*flags, known.get("SPARK_SUBMIT_OPTS", "")]),
    }


def prepare(options: Sequence[str] = (), *, delta: bool = False) -> None:
    """Lets a program that makes its SparkSession itself start Spark with what this program would start it with."""
    if not STARTED_BY_SPARK:
        os.environ.update(environment(tempfile.gettempdir(), options, delta=delta))


def defaults(directory: str, *, local: bool) -> dict[str, str]:
    """Returns the settings of Spark where the user makes no choice; ``directory`` is for this Spark alone."""
    settings = {"spark.sql.warehouse.dir": f"{directory}/warehouse"}  # which nobody uses
    for file in ("spark-defaults.conf", "spark-local.conf")[: 1 + local]:
        if (CONF / file).is_file():
            settings |= parse_properties((CONF / file).read_text(encoding="utf-8"))
    if local:
        settings["spark.local.dir"] = directory
        if len(os.fsencode(directory)) <= _LONGEST_PLACE:
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = directory
    return settings


def require_java() -> None:
    """Raises DependencyMissing where there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        raise DependencyMissing("Spark needs Java 17 or later: there is none", advice="install it, or set JAVA_HOME")


def delta_options(options: Sequence[str]) -> list[str]:
    """Returns spark-submit options that bring Delta; raises DependencyMissing if its jars were not fetched."""
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
    """Returns a zip of our packages for executors."""
    target = Path(directory, "rocketmq-store-spark.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*"))):
            if path.is_file() and path.parent.name != "__pycache__":
                archive.write(path, path.relative_to(ROOT).as_posix())
    return str(target)


def spark_home() -> Path:
    """Returns the directory that SPARK_HOME names, else that of this environment's pyspark."""
    found = importlib.util.find_spec("pyspark")
    return Path(os.environ.get("SPARK_HOME") or Path((found and found.origin) or "").parent)


def become_spark_submit(options: Sequence[str], job_arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by spark-submit: in cluster mode the driver runs on the cluster."""
    ours = application_zip(tempfile.mkdtemp(prefix="rocketmq-store-spark-"))
    packages = ("--py-files", ",".join([*values_of(options, "--py-files"), ours]))
    sys.stdout.flush()
    program = str(spark_home() / "bin" / "spark-submit")
    os.execv(program, [program, *options, *packages, str(ROOT / "jobs" / "__main__.py"), *job_arguments])
