"""Spark of a process: when it starts and ends, who shares it, and the rows of its tasks. Few starts are real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.spark import launch, session
from jobs.spark import runner as runners
from jobs.spark.runner import Runner, SparkRunner
from jobs.spark.spark_errors import SparkError
from storeformat.errors import DamagedLog, DependencyMissing, MissingInput, WriteFailed


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


# ---------------------------------------------------------------------------------------------------------------- tasks
ROOT = Path(__file__).resolve().parents[3]


def squares(items: Iterator[int]) -> Iterable[tuple[int, bool]]:
    for item in items:
        yield item * item, os.getpid() == DRIVER


DRIVER = os.getpid()


def test_stages_of_one_name_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.25, 20.0, 20.5004])
    monkeypatch.setattr(runners, "time", SimpleNamespace(monotonic=lambda: next(times)))
    runner = Runner()
    assert runner.map("none", squares, []) == []
    for _ in range(2):
        assert runner.map("squares", squares, [2]) == [(4, True)]
    assert runner.stages == {"squares": 1.75}
    assert (runner.setting("a", "b"), runner.parallelism) == ("b", 1)


class ContextThatLosesRows:
    """What a SparkRunner needs of a Spark context: runs tasks here and hands over all rows but those of the last ones,
    as PySpark does when the JVM dies meanwhile.
    """

    defaultParallelism = 3  # noqa: N815
    master = "local[3]"

    def __init__(self, lost: int) -> None:
        self._lost, self.tasks, self.description = lost, 0, ""

    def setJobDescription(self, what: str) -> None:  # noqa: N802
        self.description = what

    def parallelize(self, items: Any, tasks: int) -> ContextThatLosesRows:
        self.tasks = tasks
        self._parts = [items[len(items) * n // tasks : len(items) * (n + 1) // tasks] for n in range(tasks)]
        return self

    def mapPartitions(self, task: Any) -> ContextThatLosesRows:  # noqa: N802
        self._parts = [list(task(iter(part))) for part in self._parts]
        return self

    def glom(self) -> ContextThatLosesRows:
        return self

    def collect(self) -> list[Any]:
        return self._parts[: len(self._parts) - self._lost]


def failing(items: Iterator[int]) -> Iterable[int]:
    for item in items:
        if item:
            yield item
        else:
            raise DamagedLog("bad size", path="/log", offset=7, advice="salvage")


def test_a_failure_is_raised_whole_and_the_first_counts(spark: SparkSession) -> None:
    with pytest.raises(DamagedLog) as raised:
        SparkRunner(spark.sparkContext).map("fail", failing, [1, 0, 2, 0])
    assert (str(raised.value), raised.value.advice) == ("bad size (/log, offset 7)", "salvage")


@pytest.mark.parametrize("most", [10_000, 5, 2])
def test_all_rows_of_all_tasks_of_spark(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "MOST_TASKS", most)
    context: Any = ContextThatLosesRows(0)
    runner = SparkRunner(context)
    assert [square for square, _ in runner.map("squares", squares, range(5))] == [0, 1, 4, 9, 16]
    assert (context.description, context.tasks, runner.parallelism) == ("squares", min(most, 5), 3)


@pytest.mark.parametrize("lost", [1, 5])
def test_rows_that_spark_did_not_hand_over(lost: int) -> None:
    context: Any = ContextThatLosesRows(lost)
    with pytest.raises(WriteFailed, match="did not hand over") as ended:
        SparkRunner(context).map("squares", squares, range(5))
    assert ended.value.exit_code == 74
    assert (ended.value.found, ended.value.expected) == (5 - lost, 5)
