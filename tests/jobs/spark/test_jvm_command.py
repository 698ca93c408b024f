"""The command of Spark's JVM: kept from start to start, asked for again when something differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in

from jobs.spark import isolation, jvm_command
from jobs.spark.execution import Execution
from jobs.spark.launch import Launch, plan, spark_home
from storeformat.errors import DependencyMissing


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands are kept."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for name in ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_TESTING"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "launcher"


def launch(*arguments: str, directory: Path | None = None, **environment: str) -> Launch:
    given = {**os.environ, "SPARK_HOME": str(spark_home()), **environment}
    return Launch(arguments, ("--conf", "own=1"), given, None, directory, sys.executable, True, False)


@pytest.mark.spark
def test_it_is_the_launchers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word what bin/spark-submit would run."""
    planned = launch("--conf", "spark.a=b c", "--driver-memory", "3g", "--driver-java-options", "-Dx='1 2'")
    shown = {**planned.environment, "SPARK_PRINT_LAUNCH_COMMAND": "1", "PATH": os.environ["PATH"]}
    words = jvm_command.command_of(planned)
    assert words[-4:] == ["org.apache.spark.deploy.SparkSubmit", *words[-3:]] or words[-3:] == [
        "--conf",
        "own=1",
        "pyspark-shell",
    ]
    program = str(spark_home() / "bin" / "spark-submit")
    said = subprocess.run(
        [program, *planned.arguments, "--version"], env=shown, capture_output=True, text=True, check=False
    ).stderr
    command = next(line for line in said.splitlines() if line.startswith("Spark Command: "))
    theirs = command.removeprefix("Spark Command: ").removesuffix("--version").strip()
    assert " ".join(words[:-3]) == theirs


class TestKept:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
        """The times that the launcher was asked."""
        times: list[Launch] = []

        def ask(planned: Launch, java: str, home: Path) -> list[str]:
            times.append(planned)
            return [java, "-cp", "x", *planned.arguments, "pyspark-shell"]

        monkeypatch.setattr(jvm_command, "_asked_for", ask)
        return times

    def test_the_launcher_is_asked_once(self, asked: list[Launch], tmp_path: Path) -> None:
        first = jvm_command.command_of(launch("a"))
        assert jvm_command.command_of(launch("a")) == first
        assert first[1:] == ["-cp", "x", "a", "--conf", "own=1", "pyspark-shell"]
        assert jvm_command.command_of(launch("a", directory=tmp_path))[1:3] == [f"-Djava.io.tmpdir={tmp_path}", "-cp"]
        assert len(asked) == 1

    @pytest.mark.parametrize(
        ("arguments", "environment"),
        [
            (["b"], {}), (["a", "b"], {}), (["a"], {"SPARK_SUBMIT_OPTS": "-Dx=1"}),
            (["a"], {"JDK_JAVA_OPTIONS": "-Dx=1"}), (["a"], {"HADOOP_CONF_DIR": "/h"}),
        ],
    )  # fmt: skip
    def test_and_again_when_what_it_reads_differs(
        self, arguments: list[str], environment: dict[str, str], asked: list[Launch]
    ) -> None:
        jvm_command.command_of(launch("a"))
        jvm_command.command_of(launch(*arguments, **environment))
        assert len(asked) == 2

    def test_and_again_when_a_file_that_it_reads_differs(self, asked: list[Launch], tmp_path: Path) -> None:
        mine = tmp_path / "mine.conf"
        for number, text in enumerate(("spark.driver.memory 1g", "spark.driver.memory 10g"), start=1):
            mine.write_text(text)
            for _ in range(2):
                jvm_command.command_of(launch("--properties-file", str(mine)))
            assert len(asked) == number

    def test_the_oldest_go(self, asked: list[Launch], kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jvm_command, "_KEPT", 3)
        for number in range(7):
            jvm_command.command_of(launch(str(number)))
        assert len(list(kept.iterdir())) == 3

    def test_an_environment_that_may_not_be_written_is_no_error(self, asked: list[Launch], kept: Path) -> None:
        kept.touch()  # a file in the directory's place: root may write anywhere else
        for _ in range(2):
            assert jvm_command.command_of(launch("a"))[-1] == "pyspark-shell"
        assert len(asked) == 2

    def test_one_that_the_launcher_refuses_is_sparks_to_say(self, monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
        monkeypatch.setattr(jvm_command, "_asked_for", lambda *_: [])
        words = jvm_command.command_of(launch("a"))
        assert words == [str(spark_home() / "bin" / "spark-submit"), "a", "--conf", "own=1", "pyspark-shell"]
        assert not kept.exists()

    def test_where_a_program_of_the_user_decides_it_runs(self, asked: list[Launch], tmp_path: Path) -> None:
        (tmp_path / "spark-env.sh").touch()
        words = jvm_command.command_of(launch("a", SPARK_CONF_DIR=str(tmp_path)))
        assert words[0].endswith("bin/spark-submit")
        assert asked == []


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


def test_a_local_spark_has_one_command_for_all_its_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_made", [])  # those of the tests' own session stay
    keys = {jvm_command._key(plan(Execution("rebuild")), sys.executable) for _ in range(2)}
    isolation.remove_private_directories()
    assert len(keys) == 1


def test_a_user_id_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have them: Hadoop's login would end the JVM after a second with a trace."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    stand_in(monkeypatch, jvm_command, "pwd", getpwuid=unknown)
    with pytest.raises(
        DependencyMissing, match=r"^Spark needs a user with a name, and user id \d+ has no passwd entry$"
    ):
        jvm_command.command_of(launch())
