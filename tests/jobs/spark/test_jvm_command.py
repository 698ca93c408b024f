"""The command of Spark's JVM: what its launcher would run, where the user says nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in

from jobs.spark import jvm_command
from jobs.spark.launch import Launch, spark_home
from storeformat.errors import DependencyMissing

SUBMIT = str(spark_home() / "bin" / "spark-submit")
MAIN = "org.apache.spark.deploy.SparkSubmit"


def launch(memory: str | None = "3g", **environment: str) -> Launch:
    given = {**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_SUBMIT_OPTS": '-Da=1 "-Db=2 3"', **environment}
    return Launch(("--conf", "spark.a=b c"), given, Path("/private"), sys.executable, memory, None)


@pytest.mark.spark
def test_it_is_the_launchers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word what bin/spark-submit would run, but for the module of vectors and the place of libraries."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    rest = ["--conf", "spark.a=b c", "pyspark-shell"]
    assert jvm_command.command_of(launch()) == [SUBMIT, *rest], "nothing is kept yet"
    jvm_command.keep()
    words = jvm_command.command_of(launch())
    at = words.index(MAIN)
    assert words[at:] == [MAIN, *rest]
    for name in ("SPARK_CONF_DIR", "SPARK_TESTING"):
        monkeypatch.delenv(name, raising=False)
    said = subprocess.run(
        [SUBMIT, "--driver-memory", "3g", "--version"],
        env={**launch().environment, "SPARK_PRINT_LAUNCH_COMMAND": "1"}, capture_output=True, text=True, check=False,
    ).stderr  # fmt: skip
    command = next(line for line in said.splitlines() if line.startswith("Spark Command: ")).split()
    theirs = {*command[3 : command.index(MAIN)], "-Djava.io.tmpdir=/private"}
    ours = {part for word in words[1:at] for part in word.split()}
    assert theirs - ours == {"--add-modules=jdk.incubator.vector"}
    assert ours <= theirs
    assert jvm_command.command_of(launch(SPARK_HOME="/opt/spark"))[0] == "/opt/spark/bin/spark-submit"
    assert jvm_command.command_of(launch(memory=None))[0] == SUBMIT, "the user decides"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({"JAVA_HOME": "/nowhere"}, "JAVA_HOME=/nowhere has no bin/java"), ({"PATH": ""}, "there is no java on the PATH")],
)
def test_without_java(environment: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    with pytest.raises(DependencyMissing) as error:
        jvm_command.java_of({**given, **environment})
    assert str(error.value) == f"Spark needs Java 17 or later: {reason}"
    assert error.value.advice == ("install it, or set JAVA_HOME")
    assert error.value.exit_code == 69


def test_a_user_id_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have them: Hadoop's login would end the JVM after a second with a trace."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    stand_in(monkeypatch, jvm_command, "pwd", getpwuid=unknown)
    with pytest.raises(
        DependencyMissing, match=r"^Spark needs a user with a name, and user id \d+ has no passwd entry$"
    ):
        jvm_command.command_of(launch())
