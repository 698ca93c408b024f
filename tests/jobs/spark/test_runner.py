"""Runners give the same rows in the same order, and no forked worker outlives its task or its driver."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import golden
from support.patching import stand_in
from support.publishing import snapshot
from support.rebuilding import rebuild_here

from jobs.rebuild import build_store
from jobs.spark import runner as runners
from jobs.spark.runner import LocalRunner, ProcessRunner, SparkRunner, usable_cores
from storeformat.errors import Refused, WriteFailed

ROOT = Path(__file__).resolve().parents[3]
linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def two_processes(progress: Any = lambda share: None) -> ProcessRunner:
    runner = ProcessRunner(progress)
    runner.parallelism = 2
    return runner


def squares(items: Iterator[int]) -> Iterable[tuple[int, bool]]:
    for item in items:
        yield item * item, os.getpid() == DRIVER


DRIVER = os.getpid()


@linux
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_rows_come_in_the_order_of_the_items(count: int) -> None:
    runner, shares = two_processes(), []
    runner._progress = shares.append
    rows = runner.map("squares", squares, range(count))
    assert [square for square, _ in rows] == [number * number for number in range(count)]
    assert {here for _, here in rows} == ({True} if count == 1 else {False} if count else set())
    assert shares == sorted(shares)
    if count > 1:
        assert shares[-1] == 1
        assert runner.costs["squares"].tasks == min(count, 200)
    assert multiprocessing.active_children() == []


@linux
def test_what_a_task_raises_arrives_whole_and_the_others_end(tmp_path: Path) -> None:
    def task(items: Iterator[int]) -> Iterable[int]:
        for item in items:
            if item == 1:
                raise Refused("no", path="/a", advice="do that")
            time.sleep(120)
            (tmp_path / "lived on").touch()
            yield item

    with pytest.raises(Refused) as ended:
        two_processes().map("refuses", task, [1, 0])
    assert (ended.value.path, ended.value.advice) == ("/a", "do that")
    assert not (tmp_path / "lived on").exists()
    assert multiprocessing.active_children() == []


@linux
def test_a_killed_worker_is_an_error_of_one_line() -> None:
    def task(items: Iterator[int]) -> Iterable[int]:
        for item in items:
            if item == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            yield item

    with pytest.raises(WriteFailed, match="was killed") as ended:
        two_processes().map("dies", task, range(10))
    assert ended.value.exit_code == 74
    assert multiprocessing.active_children() == []


@linux
def test_an_interruption_ends_workers_at_once(tmp_path: Path) -> None:
    def task(items: Iterator[int]) -> Iterable[int]:
        for item in items:
            if item:
                time.sleep(120)
                (tmp_path / "lived on").touch()
            yield item

    def interrupted(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        two_processes(interrupted).map("sleeps", task, [0, 1, 2, 3])
    assert not (tmp_path / "lived on").exists()
    assert multiprocessing.active_children() == []


DRIVER_PROGRAM = """
import os, sys, time
from jobs.spark.runner import ProcessRunner

def task(items):
    for item in items:
        os.write(1, b"begun\\n")
        time.sleep(600)
        yield item

runner = ProcessRunner(lambda share: None)
runner.parallelism = 2
runner.map("sleeps", task, [1, 2])
"""


@linux
@pytest.mark.thorough
def test_workers_end_when_their_driver_is_killed() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER_PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    try:
        assert [driver.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
    finally:
        driver.kill()
        driver.communicate(timeout=120)  # their output ends when the workers do


@linux
@pytest.mark.parametrize(
    ("said", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("6400000 100000", 8), ("", 8), (None, 8)],
)
def test_a_containers_share_of_the_cores(
    said: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, runners, "os", sched_getaffinity=lambda _: set(range(8)))
    if said is not None:
        (tmp_path / "cpu.max").write_text(said)
    assert usable_cores(str(tmp_path / "cpu.max")) == cores


@linux
def test_cores_where_no_affinity_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(runners, "os", SimpleNamespace(cpu_count=lambda count=count: count))
        assert usable_cores("/absent") == cores


def test_signals_are_for_the_driver_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored, threads = [], []
    monkeypatch.setattr(runners, "_task", None)
    stand_in(monkeypatch, runners, "signal", signal=lambda *given: ignored.append(given))
    started = SimpleNamespace(start=lambda: threads.append("started"))
    stand_in(monkeypatch, runners, "threading", Thread=lambda **given: threads.append(given) or started)
    runners._start_worker("a task", 17)
    assert sorted(ignored) == [(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)]
    assert threads == [{"target": runners._end_with, "args": (17,), "daemon": True}, "started"]
    assert runners._task == "a task"


def test_stages_of_one_name_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.25, 20.0, 20.5004])
    monkeypatch.setattr(runners, "time", SimpleNamespace(monotonic=lambda: next(times)))
    runner = LocalRunner()
    assert runner.map("none", squares, []) == []
    for _ in range(2):
        assert runner.map("squares", squares, [2]) == [(4, True)]
    assert runner.stages == {"squares": 1.75}
    assert runner.costs["squares"].tasks == 2
    assert (runner.setting("a", "b"), runner.parallelism) == ("b", 1)


def test_a_setting_of_spark_is_text() -> None:
    context: Any = ContextThatLosesRows(0)
    context.getConf = lambda: {"spark.a": 5}
    assert (SparkRunner(context).setting("spark.a", "7"), SparkRunner(context).setting("spark.b", "7")) == ("5", "7")


@linux
@pytest.mark.golden
def test_the_same_files_as_in_one_process(tmp_path: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    root = golden.unpack(store)
    made: list[build_store.Built] = [
        rebuild_here(root, tmp_path / type(runner).__name__, store.settings, split_size=64 << 10, runner=runner)
        for runner in (LocalRunner(), two_processes())
    ]
    assert snapshot(Path(made[0].directory)) == snapshot(Path(made[1].directory))


class ContextThatLosesRows:
    """What a SparkRunner needs of a Spark context: runs tasks here and hands over all rows but the last ones, as
    PySpark does when the JVM dies meanwhile.
    """

    defaultParallelism = 3  # noqa: N815

    def __init__(self, lost: int) -> None:
        self._lost, self.tasks, self.description = lost, 0, ""

    def setJobDescription(self, what: str) -> None:  # noqa: N802
        self.description = what

    def parallelize(self, items: Any, tasks: int) -> ContextThatLosesRows:
        self.tasks = tasks
        self._parts = [items[len(items) * n // tasks : len(items) * (n + 1) // tasks] for n in range(tasks)]
        return self

    def mapPartitions(self, task: Any) -> ContextThatLosesRows:  # noqa: N802
        self._rows = [row for part in self._parts for row in task(iter(part))]
        return self

    def collect(self) -> list[Any]:
        return self._rows[: len(self._rows) - self._lost]


@pytest.mark.parametrize("most", [10_000, 5, 2])
def test_all_rows_of_all_tasks_of_spark(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "MOST_TASKS", most)
    context: Any = ContextThatLosesRows(0)
    runner = SparkRunner(context)
    assert [square for square, _ in runner.map("squares", squares, range(5))] == [0, 1, 4, 9, 16]
    assert (context.description, context.tasks, runner.parallelism) == ("squares", min(most, 5), 3)
    assert runner.costs["squares"].tasks == min(most, 5)


@pytest.mark.parametrize(("lost", "tasks_left"), [(1, 4), (2, 4), (3, 3), (9, 0), (10, 0)])
def test_rows_that_spark_did_not_hand_over(lost: int, tasks_left: int) -> None:
    """Five tasks yield one row and one cost each; whatever is lost at the end, the job fails."""
    context: Any = ContextThatLosesRows(lost)
    with pytest.raises(WriteFailed, match="did not hand over") as ended:
        SparkRunner(context).map("squares", squares, range(5))
    assert ended.value.exit_code == 74
    assert (ended.value.found, ended.value.expected) == (tasks_left, 5)
