"""Spark of a process: when it starts, who shares it, and when it ends. The starts here are not real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.spark import launch, session
from jobs.spark.spark_errors import SparkError
from storeformat.errors import DependencyMissing, MissingInput


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in place of a start."""
    steps: list[str] = []

    class Context:
        master = "local[2]"

        def getConf(self) -> dict[str, str]:  # noqa: N802  (Spark's)
            return {}

        def stop(self) -> None:
            steps.append("stop")

    def start(spark: session.Spark, variables: dict[str, str]) -> Any:
        steps.append(
            f"start {spark._name}{' with Delta' if 'Delta' in variables.get('PYSPARK_SUBMIT_ARGS', '') else ''}"
        )
        ended = SimpleNamespace(kill=lambda: steps.append("kill"), stdin=SimpleNamespace(close=int), wait=int)
        spark._gateway = SimpleNamespace(proc=ended)
        return Context()

    monkeypatch.setattr(session.Spark, "_start", start)
    monkeypatch.setattr(session, "_forget", lambda: None)
    monkeypatch.setattr(session, "active_context", lambda: None)
    monkeypatch.setattr(launch, "require_java", lambda: None)
    monkeypatch.setattr(launch, "delta_options", lambda options: ["--conf", "Delta"])
    return steps


def use() -> Any:
    with session.shared_spark() as spark:
        return spark.context


def fail_with(error: BaseException) -> None:
    with session.shared_spark() as spark:
        assert spark.context
        raise error


def test_it_starts_once_when_it_is_asked_for_and_ends_with_the_outermost_block(done: list[str]) -> None:
    with session.shared_spark("verify") as spark:
        assert done == []
        assert use() is use() is spark.context
        assert Path(spark._directory).is_dir()
    assert done == ["start verify", "kill"]
    assert not Path(spark._directory).exists()
    with pytest.raises(DependencyMissing, match=r"^Spark has ended$"):
        spark.context  # noqa: B018


def test_alone_it_ends_with_its_own_block(done: list[str]) -> None:
    for _ in range(2):
        use()
    assert done == ["start ", "kill"] * 2


def test_delta_comes_with_the_jvm_if_the_job_needs_it(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.Spark, "session", property(lambda spark: spark.context))
    for delta in (False, True):
        with session.spark_session(delta=delta):
            pass
    assert done == ["start ", "kill", "start  with Delta", "kill"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SparkError("given up")])
def test_one_that_was_given_up_ends_at_once(error: BaseException, done: list[str]) -> None:
    """The job removes what tasks have staged, and they must not go on."""
    with session.shared_spark("load"):
        with pytest.raises(type(error)):
            fail_with(error)
        assert done == ["start load", "stop", "kill"]
        with pytest.raises(DependencyMissing, match="has ended"):
            use()


def test_a_refusal_does_not_end_it(done: list[str]) -> None:
    with session.shared_spark("load"):
        with pytest.raises(MissingInput):
            fail_with(MissingInput("no log"))
        assert done == ["start load"]
    assert done == ["start load", "kill"]


def test_one_that_fails_is_not_tried_again(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def start(spark: session.Spark, variables: dict[str, str]) -> Any:
        done.append("try")
        raise DependencyMissing("no cluster")

    monkeypatch.setattr(session.Spark, "_start", start)
    with session.shared_spark("load"):
        for _ in range(2):
            with pytest.raises(DependencyMissing, match="no cluster"):
                use()
    assert done == ["try"]


TWO_SESSIONS = """
import sys
sys.path.insert(0, {root!r})
from jobs.spark import session

for number in range(2):
    with session.spark_session() as spark:
        strings = spark.sparkContext.parallelize(range(4), 2).map(str).collect()
        print(spark.range(number + 3).count(), strings, flush=True)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_two_sessions_one_after_the_other() -> None:
    """PySpark keeps the last session in a class: that of a JVM that has gone would be taken again."""
    program = TWO_SESSIONS.format(root=str(Path(__file__).resolve().parents[3]))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    strings = "['0', '1', '2', '3']"
    assert (ran.returncode, ran.stdout) == (0, f"3 {strings}\n4 {strings}\n"), ran.stderr
