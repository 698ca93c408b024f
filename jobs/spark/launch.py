"""How Spark is started: what goes to spark-submit, into which environment, with which defaults.

The driver is this Python process and starts Spark's JVM itself, with the spark-submit options of the user. The other
way round (spark-submit starts Python) would merge the driver's stderr into stdout, and stdout belongs to the report.
Only ``--deploy-mode cluster`` needs the other way, because there the driver runs elsewhere.

This module imports neither pyspark nor anything else that costs time.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from jobs.contract.commands import command
from jobs.contract.report import PACKAGES
from jobs.spark import isolation
from jobs.spark.execution import STARTED_BY_SPARK, Execution
from jobs.spark.spark_options import CONF, ROOT, is_local, values_of
from storeformat import __version__
from storeformat.errors import DependencyMissing, UsageError
from storeformat.storage.locations import without_secrets
from udfs.worker_daemon import ROWS

WORKER_DAEMON = "udfs.worker_daemon"
SOCKETS = "spark.python.unix.domain.socket"
LONGEST_SOCKET_PATH = 103
"""Bytes of a Unix socket's path that every system takes (Linux 107, others 103)."""
_MAKES_ROWS = {"rebuild": False, "verify": False, "inspect": False, "query": False, "load": True, "demo": True}
"""Jobs with tasks in Python, whose workers can import while the JVM starts; and whether these make rows."""
_HARMLESS = {"spark.master", "spark.driver.memory", "spark.executor.memory", "spark.local.dir"}
"""Settings with which the JVM has nothing to write at its end, as it has with an event log."""


@dataclass(frozen=True)
class Launch:
    """What one Spark is started with.

    ``arguments`` are those of spark-submit, without the program. ``environment`` is all of the JVM's. ``directory`` is
    private to this start (None: Spark runs on other machines). ``python`` runs the workers. The JVM ``may_be_killed``
    where it has nothing to write at its end. ``worker_environment`` is what Spark adds for Python workers, None where
    they come from elsewhere.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path | None
    python: str | None
    may_be_killed: bool
    worker_environment: Mapping[str, str] | None


def socket_settings(directory: str | None, chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns where Spark and its Python processes meet: sockets in a directory, or TCP where their paths would be too
    long. On other machines nobody knows how long paths are (``directory`` is None). What the user chose stands.
    """
    if any(name.startswith(SOCKETS) for name in chosen):
        return {}
    name = "/.00000000-0000-0000-0000-000000000000.sock"
    if directory is None or len(os.fsencode(directory)) + len(name) > LONGEST_SOCKET_PATH:
        return {f"{SOCKETS}.enabled": "false"}
    return {f"{SOCKETS}.dir": directory}


def local_settings(chosen: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Returns the settings of a Spark that lives in one JVM, where the user made no choice."""
    settings = {"spark.authenticate": "true", "spark.python.daemon.module": WORKER_DAEMON}
    if "SPARK_LOCAL_IP" not in os.environ:
        # No name of this machine needs to resolve, no interface needs to be up, and nobody else can connect.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= socket_settings(str(directory), chosen)
    return {name: value for name, value in settings.items() if name not in chosen}


def check(execution: Execution) -> None:
    """Raises what can be known of a command line before anything is started: UsageError, MissingInput for a properties
    file, DependencyMissing for a YARN that is not configured. With ``--deploy-mode cluster`` there is no driver here:
    the process becomes spark-submit, and this does not return.
    """
    if STARTED_BY_SPARK:
        return
    if execution.master == "yarn":
        require_yarn(execution.chosen, execution.arguments)
    if execution.chosen.get("spark.submit.deployMode") == "cluster":
        if execution.master.startswith("local"):
            raise UsageError(f"--deploy-mode cluster needs a cluster, and the master is {execution.master}")
        become_spark_submit(plan(execution).arguments, execution.arguments)


def plan(execution: Execution) -> Launch:
    """Returns what Spark is started with; makes the private directories of this start, and the zip for executors.

    Raises as ``check``, and DependencyMissing if Delta's jars are missing.
    """
    chosen, settings = execution.chosen, dict(execution.settings)
    environment = dict(os.environ)
    extra: list[str] = []
    directory = ours = None
    if execution.delta or "io.delta" in " ".join(chosen.values()):
        extra += delta_options(chosen, settings)
    if is_local(execution.master):
        private = isolation.private_directories(chosen)
        directory, ours = private[0], isolation.worker_python(private[0])
        places = ",".join(map(str, private))
        extra += ["--conf", f"spark.local.dir={places}"]
        if isolation.LOCAL_DIRS in environment:
            environment[isolation.LOCAL_DIRS] = places
        settings |= local_settings(chosen, directory)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH"))))
    else:
        settings |= socket_settings(None, chosen)
        extra += ["--py-files", ",".join([*values_of(execution.options, "--py-files"), str(application_zip())])]
    # What spark-submit does with a Python program; it does not know that there is one.
    if execution.master.startswith("local-cluster"):  # everything runs on this machine
        ours = sys.executable
    # On this machine workers have the Python of the driver, whatever the machine's PYSPARK_PYTHON is made for.
    python = chosen.get("spark.pyspark.python") or ours or environment.get("PYSPARK_PYTHON")
    if python is not None:
        environment["PYSPARK_PYTHON"] = python
    flags = [*jvm_flags(execution), *filter(None, [environment.get("SPARK_SUBMIT_OPTS")])]
    if directory is not None:  # what a JVM leaves that is killed, its libraries above all, goes with it
        flags.insert(0, f'"-Djava.io.tmpdir={directory}"')
    environment |= {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_HOME": str(spark_home()),
        "SPARK_SUBMIT_OPTS": " ".join(flags),
    }
    runs_python = execution.job in _MAKES_ROWS
    if runs_python:
        environment[ROWS] = "1" if _MAKES_ROWS[execution.job] else "0"
    early = runs_python and python == ours and settings.get("spark.python.daemon.module") == WORKER_DAEMON
    ours_first = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return Launch(
        (*ours_first, *execution.options, *extra),
        environment,
        directory,
        python,
        _has_nothing_to_write(execution),
        worker_environment(settings | chosen) if early else None,
    )


def _has_nothing_to_write(execution: Execution) -> bool:
    """Returns whether the user said nothing with which a JVM could have something to write at its end."""
    of_java = values_of(execution.options, "--driver-java-options") or os.environ.get("SPARK_SUBMIT_OPTS")
    return is_local(execution.master) and not of_java and execution.chosen.keys() <= _HARMLESS


def prepare(options: Sequence[str] = (), *, delta: bool = False) -> None:
    """Gives pyspark's own start what this program would start Spark with: for a program that makes its SparkSession
    itself. ``options`` are those of spark-submit. Raises as ``plan``.
    """
    if STARTED_BY_SPARK:
        return
    planned = plan(Execution(options=tuple(options), delta=delta))
    os.environ.update(planned.environment)
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*planned.arguments, "pyspark-shell"])


def require_yarn(chosen: Mapping[str, str], job_arguments: Sequence[str]) -> None:
    """Raises DependencyMissing for what YARN would miss after a minute, or in another machine's log."""
    named = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if name in os.environ]
    if not any(Path(directory, "yarn-site.xml").is_file() for directory in named):
        where = " and ".join(named) or "HADOOP_CONF_DIR, which is not set,"
        raise DependencyMissing(f"{where} has no yarn-site.xml: no YARN is known", advice="name Hadoop's configuration")
    for archive in chosen.get("spark.archives", "").split(","):
        path = archive.strip().partition("#")[0]
        if path and ":" not in path and not Path(path).is_file():
            raise DependencyMissing(
                f"there is no {path} for executors",
                advice=f"{command('./spark-submit.sh', '--pack', path)} makes it",
            )
    if any(word.startswith("hdfs://") for word in job_arguments) and importlib.util.find_spec("hdfs_native") is None:
        install = "./spark-submit.sh --setup --with hdfs"
        raise DependencyMissing("hdfs:// needs hdfs-native", advice=f"`{install}`, then --pack again")


def worker_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that Spark will add to the environment of Python workers."""
    prefix = "spark.executorEnv."
    asked = {name[len(prefix) :]: value for name, value in settings.items() if name.startswith(prefix)}
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1"), **asked}


def spark_home() -> Path:
    """Returns the directory of this environment's pyspark, or the one that SPARK_HOME names if it has the same version.
    Raises DependencyMissing for another version, and where there is no pyspark.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise DependencyMissing("pyspark is not installed", advice="./spark-submit.sh installs what is needed")
    ours = Path(next(iter(found.submodule_search_locations)))
    if not os.environ.get("SPARK_HOME"):
        return ours
    named = Path(os.environ["SPARK_HOME"])
    if (there := _version_in(named)) != (here := _version_in(ours)):
        raise DependencyMissing(
            f"SPARK_HOME={named} is {f'Spark {there}' if there else 'no Spark'}, and the pyspark here is {here}",
            advice="unset it, or start this program with its own bin/spark-submit: README, `A Spark of your own`",
        )
    return named


def _version_in(home: Path) -> str:
    """Returns the version of the Spark installed in a directory; empty if there is none."""
    return next((jar.stem.rpartition("-")[2] for jar in Path(home, "jars").glob("spark-core_*.jar")), "")


_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def jvm_flags(execution: Execution) -> list[str]:
    """Returns the options of the driver's JVM that must be there before any setting of Spark is read."""
    flags = [f"-Drocketmq.store.spark.log.level={'info' if execution.debug else 'off'}", "-XX:-UsePerfData"]
    if (CONF / "log4j2.properties").is_file():
        flags.append(f'"-Dlog4j2.configurationFile={(CONF / "log4j2.properties").as_uri()}"')
    archive = Path(sys.prefix, "spark.jsa")
    if archive.is_file():
        # Made by the set-up; a JVM that it does not fit goes on without it.
        flags += [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if execution.is_short:
        # Without the second compiler Java reserves 48 MB for code, and compiles nothing more when they are full.
        flags += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
        said = *execution.options, *execution.chosen.values(), *map(os.environ.get, _JAVA_OPTIONS)
        if not any(word and "GC" in word for word in said):  # Java starts with one collector only
            flags.append("-XX:+UseParallelGC")
    return flags


def delta_coordinate() -> str:
    """Returns the Maven coordinate of the Delta jar for the installed pair of pyspark and delta-spark."""
    from importlib.metadata import version  # noqa: PLC0415  (10 ms, for an error alone)

    spark = version("pyspark").split(".")
    return f"io.delta:delta-spark_{spark[0]}.{spark[1]}_2.13:{version('delta-spark')}"


def delta_options(chosen: dict[str, str], settings: dict[str, str]) -> list[str]:
    """Returns spark-submit options that bring Delta's jars; adds Delta's own settings where the user made none. Raises
    DependencyMissing if the jars were not fetched.
    """
    extensions = chosen.get("spark.sql.extensions", "")
    ours = "io.delta.sql.DeltaSparkSessionExtension"
    extra = []
    if ours not in extensions:
        extra = ["--conf", "spark.sql.extensions=" + ",".join(filter(None, (extensions, ours)))]
    if "spark.sql.catalog.spark_catalog" not in chosen:
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if any("delta-spark" in chosen.get(name, "") for name in ("spark.jars", "spark.jars.packages")):
        return extra
    if jars := sorted(Path(sys.prefix, "jars").glob("*.jar")):
        return [*extra, "--jars", ",".join(filter(None, (chosen.get("spark.jars"), *map(str, jars))))]
    raise DependencyMissing(
        "Delta's jars are not there",
        advice="`./spark-submit.sh --setup` fetches them and knows their bytes; "
        f"elsewhere: --packages {delta_coordinate()}",
    )


def application_zip() -> Path:
    """Returns the zip of our packages for executors; its name tells what is in it, for checkouts may share a .venv."""
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    sources = sorted(path for path in found if path.parent.name != "__pycache__")
    digest = 0
    for path in sources:
        digest = zlib.crc32(path.read_bytes(), zlib.crc32(path.relative_to(ROOT).as_posix().encode(), digest))
    name = f"rocketmq-store-spark-{__version__}-{digest:08x}.zip"
    target = Path(sys.prefix, "build", name)
    if target.is_file():
        return target
    if not os.access(sys.prefix, os.W_OK):  # a .venv that another user set up
        target = isolation.private_directories({})[0] / name
    target.parent.mkdir(exist_ok=True)
    draft = target.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sources:
            archive.write(path, path.relative_to(ROOT).as_posix())
    draft.replace(target)
    return target


def become_spark_submit(options: Sequence[str], job_arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by spark-submit: in cluster mode the driver runs on the cluster. Command lines, here and
    there, show the job's arguments: UsageError for those that hold a secret.
    """
    if any(without_secrets(argument) != argument for argument in job_arguments):
        raise UsageError(
            "an argument of the job holds a secret, and in cluster mode it can be read in command lines",
            advice="give it to the cluster in a --properties-file: spark.yarn.appMasterEnv.* and spark.executorEnv.*",
        )
    sys.stdout.flush()
    program = str(spark_home() / "bin" / "spark-submit")
    os.execv(program, [program, *options, str(ROOT / "jobs" / "__main__.py"), *job_arguments])
