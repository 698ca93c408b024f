"""How Spark is started: what goes to spark-submit, into which environment, with which defaults.

The driver is this Python process and starts Spark's JVM itself, by the spark-submit of the installed pyspark and with
all options the user gave. The other way round (spark-submit starts Python) would merge the driver's stderr into stdout,
and stdout belongs to the report. Only ``--deploy-mode cluster`` needs the other way, because there the driver runs
elsewhere.

This module imports neither pyspark nor anything else that costs time.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shlex
import sys
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from jobs.setup import s3_jars
from jobs.spark import isolation
from storeformat import __version__
from storeformat.errors import DependencyMissing, MissingInput, UsageError
from storeformat.javaproperties import parse_properties
from storeformat.storage.locations import without_secrets

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
DEBUG = "ROCKETMQ_STORE_SPARK_DEBUG"  # tells jobs.spark.session to show all that Spark says
ONE_MACHINE = "ROCKETMQ_STORE_SPARK_ONE_MACHINE"
OPTIONAL = "ROCKETMQ_STORE_SPARK_OPTIONAL"  # the user said nothing of Spark, so that a small job may do without it
WORKER_ENVIRONMENT = "ROCKETMQ_STORE_SPARK_WORKER_ENVIRONMENT"  # JSON; there where workers can be started early
WORKER_DAEMON = "udfs.worker_daemon"
WORKER_ROWS = "ROCKETMQ_STORE_SPARK_ROWS"  # 1 where workers import what rows need, before they are forked
SOCKETS = "spark.python.unix.domain.socket"
LONGEST_SOCKET_PATH = 103
"""Bytes of a Unix socket's path that every system takes (Linux 107, others 103)."""
PACKAGES = ("jobs", "storeformat", "udfs")

# org.apache.spark.launcher.SparkSubmitOptionParser (4.2.0): options that take a value, and switches.
VALUED = frozenset({
    "--archives", "--class", "--conf", "-c", "--deploy-mode", "--driver-class-path", "--driver-cores",
    "--driver-java-options", "--driver-library-path", "--driver-memory", "--exclude-packages", "--executor-cores",
    "--executor-memory", "--files", "--jars", "--keytab", "--kill", "--master", "--name", "--num-executors",
    "--packages", "--principal", "--properties-file", "--proxy-user", "--py-files", "--queue", "--remote",
    "--repositories", "--status", "--total-executor-cores",
})  # fmt: skip
SWITCHES = frozenset({"--load-spark-defaults", "--supervise", "--usage-error", "--verbose", "-v"})

SETTING_OF_OPTION = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-memory": "spark.driver.memory",
    "--archives": "spark.archives",
    "--packages": "spark.jars.packages",
    "--jars": "spark.jars",
}

# Jobs that run tasks in Python.
WITH_WORKERS = frozenset({"rebuild", "verify", "load", "demo", "inspect", "query"})

# Jobs whose tasks make rows of the table.
WITH_ROWS = frozenset({"load", "demo"})

BUSY_JVM = frozenset({"report", ""})
"""Jobs whose work is the JVM's, and sessions of no job. In all others it is Python's: a JVM that never leaves its fast
compiler starts sooner and leaves the cores to it.
"""


def split_command_line(arguments: Sequence[str], jobs: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns (options for spark-submit, the rest): the rest begins with the job's name, if one is named. Raises
    UsageError for another option before the name.
    """
    at = 0
    while at < len(arguments) and arguments[at] not in jobs:
        word = arguments[at]
        name, equals, _ = word.partition("=")
        if word in VALUED:
            at += 2
        elif word in SWITCHES or (equals and name in VALUED):
            at += 1
        elif word.startswith("-") and any(argument in jobs for argument in arguments[at:]):
            raise UsageError(f"{word} is not an option of spark-submit", advice="options of a job come after its name")
        else:
            break
    return list(arguments[:at]), list(arguments[at:])


def values_of(options: Sequence[str], *names: str) -> list[str]:
    """Returns the values that ``options`` give under any of the names, in order."""
    found = []
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        if word in names and at + 1 < len(options):
            found.append(options[at + 1])
        elif equals and name in names:
            found.append(value)
    return found


def read_properties(path: Path) -> dict[str, str]:
    """Returns the settings of a spark-defaults.conf; those without a value are none."""
    settings = parse_properties(path.read_text(encoding="utf-8", errors="replace"))
    return {name: value for name, value in settings.items() if value}


def user_settings(options: Sequence[str]) -> dict[str, str]:
    """Returns every ``spark.*`` setting that the user made, in options or in the files that spark-submit reads; raises
    UsageError and MissingInput for what spark-submit would end with a trace of Java's.
    """
    settings = {"spark.master": os.environ["MASTER"]} if os.environ.get("MASTER") else {}
    conf_dir = os.environ.get("SPARK_CONF_DIR")
    named = values_of(options, "--properties-file")
    files = [Path(path) for path in named]
    for path in files:
        if not path.is_file():
            raise MissingInput("there is no such properties file", path=str(path))
    if conf_dir and (not named or "--load-spark-defaults" in options):
        files.insert(0, Path(conf_dir, "spark-defaults.conf"))
    for path in files:
        if path.is_file():
            settings |= read_properties(path)
    for pair in values_of(options, "--conf", "-c"):
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"--conf {pair}: this is not name=value")
        settings[name] = value
    for option, name in SETTING_OF_OPTION.items():
        for value in values_of(options, option):
            if not value.strip():
                raise UsageError(f"{option} has an empty value")
            settings[name] = value
    return settings


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


def prepare(
    options: Sequence[str] = (),
    job_arguments: Sequence[str] = (),
    job: str = "",
    *,
    delta: bool = False,
    debug: bool = False,
) -> None:
    """Sets the environment from which ``jobs.spark.session`` starts Spark.

    With ``--deploy-mode cluster`` there is no driver here: the process becomes spark-submit and this does not return.
    Where a driver has been started by spark-submit already (PYSPARK_GATEWAY_PORT), everything has been decided and this
    does nothing.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    chosen = user_settings(options)
    defaults = read_properties(CONF / "spark-defaults.conf") if CONF.is_dir() else {"spark.master": "local[*]"}
    settings = {name: value for name, value in defaults.items() if name not in chosen}
    master = chosen.get("spark.master") or settings["spark.master"]
    if master == "yarn":
        require_yarn(chosen, job_arguments)
    extra: list[str] = []
    if delta or "io.delta" in " ".join(chosen.values()):
        extra += delta_options(chosen, settings, on_s3=_reads_s3(job, options, job_arguments))
    worker_python = sys.executable
    if is_local(master):
        private = isolation.private_directories(chosen)
        worker_python = isolation.worker_python(private[0])
        settings |= local_settings(chosen, private[0])
        places = ",".join(map(str, private))
        if "spark.local.dir" in chosen:
            extra += ["--conf", f"spark.local.dir={places}"]
        else:
            settings["spark.local.dir"] = places
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    else:
        settings |= socket_settings(None, chosen)
        extra += ["--py-files", ",".join([*values_of(options, "--py-files"), str(application_zip())])]
    # What spark-submit does with a Python program; it does not know that there is one.
    if "spark.pyspark.python" in chosen:
        os.environ["PYSPARK_PYTHON"] = chosen["spark.pyspark.python"]
    if master.startswith("local"):  # local-cluster, too: everything runs on this machine
        if isolation.is_private(os.environ.get("PYSPARK_PYTHON", "")):  # an earlier session's, which has gone
            del os.environ["PYSPARK_PYTHON"]
        os.environ.setdefault("PYSPARK_PYTHON", worker_python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["SPARK_HOME"] = str(spark_home())
    os.environ[DEBUG] = "1" if debug else "0"
    os.environ[WORKER_ROWS] = "1" if job in WITH_ROWS else "0"
    os.environ.pop(WORKER_ENVIRONMENT, None)
    if job in WITH_WORKERS and settings.get("spark.python.daemon.module") == WORKER_DAEMON:
        os.environ[WORKER_ENVIRONMENT] = json.dumps(worker_environment(settings | chosen))
    os.environ[ONE_MACHINE] = "1" if master.startswith("local") else "0"
    os.environ[OPTIONAL] = "0" if chosen or options or not is_local(master) else "1"
    command = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")] + [*options, *extra]
    if chosen.get("spark.submit.deployMode") == "cluster":
        become_spark_submit(command, job_arguments)
    # The short-lived JVM that puts the command together, then the driver's.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
        filter(None, (*jvm_flags(job, debug), os.environ.get("SPARK_SUBMIT_OPTS")))
    )
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*command, "pyspark-shell"])


def _reads_s3(job: str, options: Sequence[str], job_arguments: Sequence[str]) -> bool:
    """Returns whether Spark itself reads a table on S3; raises UsageError for a URI that only we understand."""
    named = [uri for uri in values_of(job_arguments, "--table") if uri.startswith(("s3://", "s3a://"))]
    wanted = bool(options) or any(word.startswith(("--checks", "--html")) for word in job_arguments)
    if not (job == "report" and named and wanted):
        return False
    if any(mark in uri for uri in named for mark in "?@"):
        raise UsageError(
            "Spark itself reads this table, and knows S3 from the environment alone",
            advice="AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION instead of ?... and ...@",
        )
    return True


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
                f"there is no {path} for executors", advice=f"`./spark-submit.sh --pack {path}` makes it"
            )
    if any(word.startswith("hdfs://") for word in job_arguments) and importlib.util.find_spec("hdfs_native") is None:
        install = "python jobs/setup/environment.py --extra hdfs"
        raise DependencyMissing("hdfs:// needs hdfs-native", advice=f"`{install}` in .venv/bin, then --pack again")


def worker_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that Spark will add to the environment of Python workers."""
    prefix = "spark.executorEnv."
    asked = {name[len(prefix) :]: value for name, value in settings.items() if name.startswith(prefix)}
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1"), **asked}


def is_local(master: str) -> bool:
    """Returns whether executors are threads of the driver's JVM (``local-cluster`` has processes of its own)."""
    return master == "local" or master.startswith("local[")


def on_one_machine() -> bool:
    """Returns whether all tasks run on the driver's machine, as far as ``prepare`` saw."""
    return os.environ.get(ONE_MACHINE) == "1"


def spark_is_optional() -> bool:
    """Returns whether the command line leaves it to the job where it runs, as far as ``prepare`` saw."""
    return os.environ.get(OPTIONAL) == "1"


def spark_home() -> Path:
    """Returns the directory of this environment's pyspark: no other Spark fits. Raises DependencyMissing without it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise DependencyMissing("pyspark is not installed", advice="./spark-submit.sh installs what is needed")
    return Path(next(iter(found.submodule_search_locations)))


def jvm_flags(job: str, debug: bool) -> list[str]:
    """Returns the options of the driver's JVM that must be there before any setting of Spark is read."""
    flags = [f"-Drocketmq.store.spark.log.level={'info' if debug else 'off'}"]
    if (CONF / "log4j2.properties").is_file():
        flags.append(f'"-Dlog4j2.configurationFile={(CONF / "log4j2.properties").as_uri()}"')
    archive = Path(sys.prefix, "spark.jsa")
    if archive.is_file():
        # Made by jobs.setup.environment; a JVM that it does not fit goes on without it.
        flags += [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if job not in BUSY_JVM:
        # Without the second compiler Java reserves 48 MB for code, and compiles nothing more when they are full.
        flags += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    return flags


def delta_coordinate() -> str:
    """Returns the Maven coordinate of the Delta jar for the installed pair of pyspark and delta-spark."""
    spark = importlib.metadata.version("pyspark").split(".")
    return f"io.delta:delta-spark_{spark[0]}.{spark[1]}_2.13:{importlib.metadata.version('delta-spark')}"


def s3_connector(present: str, settings: dict[str, str], chosen: Mapping[str, str]) -> list[Path]:
    """Returns the jars with which Spark reads S3, none where the user names some; adds their settings. Raises
    DependencyMissing if they were not fetched.
    """
    settings |= {name: value for name, value in s3_jars.settings().items() if name not in chosen}
    jars = sorted(Path(sys.prefix, s3_jars.DIRECTORY).glob("*.jar"))
    if "hadoop-aws" in present:
        return []
    if not jars:
        raise DependencyMissing(
            "Spark has no S3 connector", advice="`./spark-submit.sh --setup --with s3` fetches it, 700 MB"
        )
    return jars


def delta_options(chosen: dict[str, str], settings: dict[str, str], *, on_s3: bool = False) -> list[str]:
    """Returns spark-submit options that bring Delta's jars; adds Delta's own settings where the user made none. With
    ``on_s3`` also what Spark needs for a table there. Raises DependencyMissing if the jars were not fetched.
    """
    extensions = chosen.get("spark.sql.extensions", "")
    ours = "io.delta.sql.DeltaSparkSessionExtension"
    extra = []
    if ours not in extensions:
        extra = ["--conf", "spark.sql.extensions=" + ",".join(filter(None, (extensions, ours)))]
    if "spark.sql.catalog.spark_catalog" not in chosen:
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    present = " ".join((chosen.get("spark.jars", ""), chosen.get("spark.jars.packages", "")))
    more = s3_connector(present, settings, chosen) if on_s3 else []
    ours_there = "delta-spark" in present
    jars = [] if ours_there else sorted(Path(sys.prefix, "jars").glob("*.jar"))
    if jars or ours_there:
        named = ",".join(filter(None, (chosen.get("spark.jars"), *map(str, [*jars, *more]))))
        return [*extra, "--jars", named] if jars or more else extra
    raise DependencyMissing(
        "Delta's jars are not there",
        advice="`./spark-submit.sh --setup` fetches them and knows their bytes; "
        f"elsewhere: --packages {delta_coordinate()}",
    )


def application_zip() -> Path:
    """Returns the zip of our packages for executors, made again when a source is newer than it."""
    sources = sorted(
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    )
    target = Path(sys.prefix, "build", f"rocketmq-store-spark-{__version__}.zip")
    if target.is_file() and target.stat().st_mtime >= max(path.stat().st_mtime for path in sources):
        return target
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
