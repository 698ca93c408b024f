"""What a user tells Spark: the options before the job's name, and the files and variables that spark-submit reads.

Imports neither pyspark nor anything else that costs time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from storeformat.errors import MissingInput, UsageError
from storeformat.javaproperties import parse_properties

ROOT = Path(__file__).resolve().parents[2]
_OF_WHEEL = Path(__file__).with_name("conf")
CONF = _OF_WHEEL if _OF_WHEEL.is_dir() else ROOT / "conf"

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
    """Settings of a spark-defaults.conf; a name without a value is left out."""
    settings = parse_properties(path.read_text(encoding="utf-8", errors="replace"))
    return {name: value.strip() for name, value in settings.items() if value.strip()}


def user_settings(options: Sequence[str]) -> dict[str, str]:
    """Returns every ``spark.*`` setting that the user made, in options or in the files that spark-submit reads; raises
    UsageError and MissingInput where spark-submit would print a Java stack trace.
    """
    settings = {"spark.master": os.environ["MASTER"]} if os.environ.get("MASTER") else {}
    home = os.environ.get("SPARK_HOME")
    conf_dir = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
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


def is_local(master: str) -> bool:
    """Returns whether executors are threads of the driver's JVM (``local-cluster`` has processes of its own)."""
    return master == "local" or master.startswith("local[")
