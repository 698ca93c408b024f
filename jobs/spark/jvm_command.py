"""The command of Spark's JVM, as Spark's own launcher puts it together.

``bin/spark-submit`` starts a JVM that does nothing but print this command: 0.3 s. The command is the same as long as
Java, pyspark, the options and what they name are the same, so it is kept in the environment, a file a command::

    .venv/launcher/SHA-256 of all that the launcher reads      the words of the command, a NUL after each

Where a ``spark-env.sh`` decides, which is a program, ``bin/spark-submit`` runs.

Mirrors ``bin/spark-class`` and ``org.apache.spark.launcher.Main`` (4.2.0).
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jobs.spark.launch import Launch
from jobs.spark.spark_options import values_of
from storeformat.errors import DependencyMissing

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_SHELL = "pyspark-shell"
_READ = ("CLASSPATH", "HADOOP_", "JAVA_", "JDK_", "PATH", "SPARK_", "YARN_", "_JAVA", "_SPARK")
"""How the variables begin that the launcher reads."""
_KEPT = 20
"""Commands that are kept; the oldest go."""
_OLDEST = 17
_WITHOUT_JAVA = "install it, or set JAVA_HOME"
_LAUNCHER = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def command_of(launch: Launch) -> list[str]:
    """Returns the words of the command that becomes Spark's JVM; raises DependencyMissing without a Java."""
    _require_account()
    java = java_of(launch.environment)
    home = Path(launch.environment["SPARK_HOME"])
    if not _is_the_launchers(launch.environment, home):
        return [str(home / "bin" / "spark-submit"), *launch.arguments, *launch.own, _SHELL]
    kept = Path(sys.prefix, "launcher", _key(launch, java))
    try:
        words = kept.read_bytes().decode().split("\0")[:-1]
    except OSError:
        words = _asked_for(launch, java, home)
        _keep(kept, words)
    if not words:  # Spark will say itself what it does not like
        return [str(home / "bin" / "spark-submit"), *launch.arguments, *launch.own, _SHELL]
    if launch.directory is not None:
        # What a JVM leaves that is killed, its libraries above all, goes with the private directory.
        words.insert(words.index("-cp"), f"-Djava.io.tmpdir={launch.directory}")
    return [*words[:-1], *launch.own, words[-1]]


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


def _is_the_launchers(environment: Mapping[str, str], home: Path) -> bool:
    """Returns whether nothing but the launcher decides what the command is."""
    conf = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    testing = {"SPARK_PREPEND_CLASSES", "SPARK_TESTING", "SPARK_SQL_TESTING", "SPARK_PRINT_LAUNCH_COMMAND"}
    return not ((conf / "spark-env.sh").exists() or testing & environment.keys())


def _key(launch: Launch, java: str) -> str:
    """Returns what tells apart all that the launcher reads."""
    conf = Path(launch.environment.get("SPARK_CONF_DIR") or Path(launch.environment["SPARK_HOME"], "conf"))
    files = [java, str(conf / "spark-defaults.conf"), *values_of(launch.arguments, "--properties-file")]
    stamps = []
    for file in files:
        found = Path(file).stat() if Path(file).exists() else None
        stamps.append((str(Path(file).resolve()), found and (found.st_size, found.st_mtime_ns)))
    read = {name: value for name, value in sorted(launch.environment.items()) if name.startswith(_READ)}
    return hashlib.sha256(json.dumps([launch.arguments, read, stamps]).encode()).hexdigest()


def _asked_for(launch: Launch, java: str, home: Path) -> list[str]:
    """Returns what the launcher prints: an empty line after a NUL, then the words; nothing if it fails."""
    asked = subprocess.run(
        [
            java,
            *_LAUNCHER,
            "-cp",
            f"{home}/jars/*",
            "org.apache.spark.launcher.Main",
            _SUBMIT,
            *launch.arguments,
            _SHELL,
        ],
        env={"SPARK_SCALA_VERSION": "2.13", "SPARK_CONF_DIR": str(home / "conf"), **launch.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    words = asked.stdout.partition(b"\0\n")[2].decode().split("\0")[:-1]
    return words if asked.returncode == 0 and words[-1:] == [_SHELL] and "-cp" in words else []


def _keep(file: Path, words: Sequence[str]) -> None:
    """Writes a command for the next start, unless the environment may not be written."""
    if not words:
        return
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        draft = file.with_name(f"draft.{os.getpid()}")
        draft.write_text("".join(word + "\0" for word in words), encoding="utf-8")
        draft.replace(file)
        for old in sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)[:-_KEPT]:
            old.unlink()
