"""The command of Spark's JVM.

``bin/spark-submit`` starts a JVM that does nothing but print this command, which takes 0.15 s. Where the user says
nothing that concerns the JVM, only memory and flags differ from start to start. The set-up asks for the rest once,
and leaves out a module with which each JVM writes a warning to stderr::

    .venv/jvm-options      the words between ``java`` and the main class, a NUL after each

Mirrors ``org.apache.spark.launcher.Main`` (4.2.0).
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jobs.spark.launch import Launch, spark_home
from storeformat.errors import DependencyMissing

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_SHELL = "pyspark-shell"
_OLDEST = 17
_WITHOUT_JAVA = "install it, or set JAVA_HOME"
_LEFT_OUT = ("-Xmx", "--add-modules=")
"""Memory is the user's; and of the module for vectors, which needs no job of ours, each JVM warns on stderr."""


def command_of(launch: Launch) -> list[str]:
    """Returns the words of the command that becomes Spark's JVM; raises DependencyMissing without a Java."""
    _require_account()
    java = java_of(launch.environment)
    home = Path(launch.environment["SPARK_HOME"])
    rest = [*launch.arguments, _SHELL]
    if launch.memory is None or not (options := _kept(home)):
        return [str(home / "bin" / "spark-submit"), *rest]
    flags = shlex.split(launch.environment["SPARK_SUBMIT_OPTS"])
    # What a JVM leaves that is killed, its libraries above all, goes with the private directory.
    return [java, *options, *flags, f"-Xmx{launch.memory}", f"-Djava.io.tmpdir={launch.directory}", _SUBMIT, *rest]


def keep() -> None:
    """Writes what Spark's launcher adds to a command, for all later starts."""
    home = spark_home()
    asked = subprocess.run(
        [java_of(os.environ), "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", _SUBMIT, _SHELL],
        env={"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_CONF_DIR": f"{home}/conf"},
        stdout=subprocess.PIPE,
        check=True,
    )
    words = asked.stdout.decode().partition("\0\n")[2].split("\0")
    options = [word for word in words[1 : words.index(_SUBMIT)] if not word.startswith(_LEFT_OUT)]
    Path(sys.prefix, "jvm-options").write_text("".join(word + "\0" for word in options), encoding="utf-8")


def _kept(home: Path) -> list[str]:
    """Returns what ``keep`` has written, nothing where it was for another Spark."""
    file = Path(sys.prefix, "jvm-options")
    words = file.read_text(encoding="utf-8").split("\0")[:-1] if file.is_file() else []
    return words if f"{home}/jars/*" in ":".join(words).split(":") else []


def _require_account() -> None:
    """Raises DependencyMissing for a user id without a name, with which Hadoop's login fails in the JVM."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise DependencyMissing(
            f"Spark needs a user with a name, and user id {os.geteuid()} has no passwd entry",
            advice="add a line to /etc/passwd, or use nss_wrapper; preflight, publish, restore and query need none",
        ) from None


def java_of(environment: Mapping[str, str]) -> str:
    """The java program that Spark starts: that of JAVA_HOME, else the first on PATH; raises DependencyMissing."""
    home = environment.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java", path=environment.get("PATH"))
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH"
        raise DependencyMissing(f"Spark needs Java {_OLDEST} or later: {where}", advice=_WITHOUT_JAVA)
    return java


def require_java(environment: Mapping[str, str]) -> None:
    """Raises DependencyMissing where there is no Java that Spark takes."""
    java = java_of(environment)
    version = version_of(java)
    if version < _OLDEST:
        raise DependencyMissing(
            f"Spark needs Java {_OLDEST} or later: {java} is {version or 'no Java'}", advice=_WITHOUT_JAVA
        )


def version_of(java: str) -> int:
    """Returns the major version that ``java -version`` prints; 0 if the program is missing or prints none."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(version[1]) if version else 0
