"""Loads that are killed, overtaken by a repair, or lose an executor leave each record in the table once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.store_builder import LogBuilder

from jobs.contract.options import LoadOptions
from jobs.contract.report import Reporter
from jobs.table import load, messages_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    log = LogBuilder(1 << 20)
    append(log, 6000)
    log.write(tmp_path / "store")
    return log


def append(log: LogBuilder, count: int) -> None:
    for number in range(count):
        log.clock += 60_000
        log.message(topic=f"T{number % 5}", queue_id=number % 3, body=bytes(number % 700), keys=f"k{number}")


def command(work: Path, *more: str, spark: Sequence[str] = ()) -> list[str]:
    return [
        sys.executable, "-m", "jobs", "--master", "local[2]", *spark, "load", "--store", str(work / "store"),
        "--table", str(work / "messages"), "--cluster", "c", "--broker", "b", "--json", "--quiet", *more,
    ]  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts loads in sessions of their own, of which nothing is left when the test is over."""
    started: list[subprocess.Popen[str]] = []

    def start(*more: str, spark: Sequence[str] = ()) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(tmp_path, *more, spark=spark), cwd=ROOT, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


Start = Callable[..., subprocess.Popen[str]]


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the report of a load that has ended well; one that does not end says how far it got."""
    try:
        out, err = process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        pytest.fail(f"the load did not end; it said:\n{err}")
    assert process.returncode == 0, err
    report: dict[str, Any] = json.loads(out)
    return report


def offsets(spark: SparkSession, work: Path) -> list[int]:
    rows = spark.read.format("delta").load(str(work / "messages")).select("commit_log_offset")
    return sorted(row[0] for row in rows.collect())


def load_here(work: Path, **more: Any) -> dict[str, Any]:
    options = LoadOptions(store=str(work / "store"), table=str(work / "messages"), cluster="c", broker="b", **more)
    return load.run(options, Reporter(quiet=True))


@pytest.mark.parametrize("moment", ["started", "created", "rows written", "committed"])
def test_killed_at_any_moment(spark: SparkSession, start: Start, log: LogBuilder, tmp_path: Path, moment: str) -> None:
    """SIGKILL for driver, JVM and workers; the next load brings the table to exactly one row a record."""
    table = tmp_path / "messages"
    signs = {
        "created": table / "_delta_log" / f"{0:020d}.json",
        "rows written": table / "store_date=2023-11-14",
        "committed": table / "_delta_log" / f"{1:020d}.json",
    }
    process = start("--split-size", "100000")

    def has_come() -> bool:
        if moment == "started":
            return any(b"java" in command_line(pid) for pid in children(process.pid))
        return signs[moment].exists()

    end = time.monotonic() + 300
    while not has_come() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    committed = signs["committed"].exists()
    report = load_here(tmp_path)
    expected = [placed.offset for placed in log.records]
    assert offsets(spark, tmp_path) == expected
    assert report["skipped"] == committed
    append(log, 100)
    log.write(tmp_path / "store")
    assert load_here(tmp_path)["rows"] == 100
    assert offsets(spark, tmp_path) == [placed.offset for placed in log.records]


def test_overtaken_by_a_repair(
    spark: SparkSession, log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_here(tmp_path, until_offset=log.records[3000].offset)
    report = load_beside(
        tmp_path, monkeypatch, "append", lambda: load_here(tmp_path, repair_from=log.records[2000].offset)
    )
    assert report["skipped"]
    assert offsets(spark, tmp_path) == [placed.offset for placed in log.records]


def test_a_repair_is_overtaken(
    spark: SparkSession, log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta looks for conflicts when the repair commits: the other load comes while its rows are being written."""
    load_here(tmp_path, until_offset=log.records[3000].offset)
    mapper = load.row_reader
    with monkeypatch.context() as patch:
        others: list[int] = []

        def reader(*given: Any) -> Any:
            if not others:
                others.append(1)
                load_here(tmp_path)
            return mapper(*given)

        patch.setattr(load, "row_reader", reader)
        report = load_here(tmp_path, repair_from=log.records[2000].offset)
    assert others
    assert report["rows"] == 4000
    assert offsets(spark, tmp_path) == [placed.offset for placed in log.records]


def load_beside(work: Path, monkeypatch: pytest.MonkeyPatch, step: str, other: Callable[[], object]) -> dict[str, Any]:
    """Returns the report of a load that another one overtakes just before a step of its table's."""
    original, others = getattr(messages_table.MessagesTable, step), []

    def after_the_other(self: messages_table.MessagesTable, *given: Any, **named: Any) -> Any:
        if not others:
            others.append(step)
            other()
        return original(self, *given, **named)

    monkeypatch.setattr(messages_table.MessagesTable, step, after_the_other)
    report = load_here(work)
    assert others
    return report


def test_an_executor_is_lost(spark: SparkSession, start: Start, log: LogBuilder, tmp_path: Path) -> None:
    """Two executors in processes of their own; one is killed while it writes rows."""
    cluster = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=1g"]
    process = start("--split-size", "300000", spark=cluster)
    table, killed = tmp_path / "messages", 0
    end = time.monotonic() + 300
    while not killed and process.poll() is None and time.monotonic() < end:
        if any(table.glob("store_date=*/*.parquet")):
            executors = [pid for pid in children(process.pid) if b"CoarseGrainedExecutorBackend" in command_line(pid)]
            if executors:
                killed = executors[0]
                os.kill(killed, signal.SIGKILL)
        time.sleep(0.02)
    assert killed
    assert finish(process)["rows"] == 6000
    assert offsets(spark, tmp_path) == [placed.offset for placed in log.records]


def children(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == group:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
