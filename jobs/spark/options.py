"""Options of spark-submit before the job, and the directory of this program's own configuration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from storeformat.errors import UsageError

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


def split_command_line(arguments: Sequence[str], jobs: Collection[str]) -> tuple[list[str], list[str]]:
    """Options for spark-submit, and the rest from the job's name on."""
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


def values_of(options: Sequence[str], name: str) -> list[str]:
    following = [value for word, value in pairwise(options) if word == name]
    return following + [word.partition("=")[2] for word in options if word.startswith(f"{name}=")]


def is_local(master: str) -> bool:
    """True if executors are threads of the driver's JVM (``local-cluster`` has processes)."""
    return master == "local" or master.startswith("local[")
