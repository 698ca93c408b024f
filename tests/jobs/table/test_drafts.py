"""Loads in one pass: which files that tasks wrote while they read become rows, and what becomes of the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support import loading
from support.loading import load_here
from support.store_builder import LogBuilder

from storeformat.errors import DamagedLog, Refused

SEGMENT = 1 << 18
PROGRAM = Path(loading.__file__)


class Bench:
    """A log of several splits, a table, and what the table has."""

    def __init__(self, work: Path) -> None:
        self.log = LogBuilder(SEGMENT)
        self.store, self.table = work / "store", work / "messages"
        self.append(2000)

    def append(self, count: int) -> None:
        for number in range(count):
            self.log.clock += 1_000
            self.log.message(topic=f"T{number % 3}", queue_id=number % 2, body=b"x" * (number % 700), keys=f"k{number}")

    def load(self, **options: Any) -> Any:
        self.log.write(self.store)
        return load_here(self.store, self.table, **{"split_size": 100_000, **options})

    @property
    def expected(self) -> list[int]:
        return [placed.offset for placed in self.log.records]

    @property
    def rows(self) -> list[int]:
        return sorted(DeltaTable(str(self.table)).to_pyarrow_dataset().to_table()["commit_log_offset"].to_pylist())

    @property
    def strays(self) -> set[str]:
        """Files of no version of the table: those that VACUUM removes, once they are old enough."""
        table = DeltaTable(str(self.table))
        found = set(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True))
        known = {Path(uri).name for uri in table.file_uris()}
        files = {path.relative_to(self.table).as_posix() for path in self.table.rglob("*.parquet")}
        assert found == {name for name in files if Path(name).name not in known and "_delta_log" not in name}
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_loads_of_a_healthy_log_leave_no_drafts(bench: Bench) -> None:
    bench.load(until_offset=bench.expected[700])
    assert bench.rows == bench.expected[:700]
    assert bench.load()["rows"] == 1300
    assert (bench.rows, bench.strays) == (bench.expected, set())
    assert bench.load()["skipped"]


def test_rows_lie_in_the_order_of_their_queues(bench: Bench) -> None:
    bench.load(split_size=1 << 20)
    names = ["store_date", "topic", "queue_id", "commit_log_offset"]
    for uri in DeltaTable(str(bench.table)).file_uris():
        rows = pq.read_table(uri, columns=names[1:]).to_pylist()
        assert rows == sorted(rows, key=lambda row: tuple(row.values()))


def damage(bench: Bench, number: int) -> None:
    bench.log.write(bench.store)
    place = bench.log.records[number].offset
    with Path(bench.store, "commitlog", f"{place // SEGMENT * SEGMENT:020d}").open("r+b") as file:
        file.seek(place % SEGMENT + 4)
        file.write(b"oops")


def test_what_was_drafted_of_a_damaged_log_is_removed(bench: Bench) -> None:
    damage(bench, 900)
    with pytest.raises(DamagedLog):
        load_here(bench.store, bench.table, split_size=100_000)
    assert (bench.rows, bench.strays) == ([], set())
    assert load_here(bench.store, bench.table, split_size=100_000, on_damage="stop")["rows"] == 900
    assert (bench.rows, bench.strays) == (bench.expected[:900], set())


def test_what_a_salvage_saves_is_loaded(bench: Bench) -> None:
    damage(bench, 900)
    assert load_here(bench.store, bench.table, split_size=100_000, on_damage="salvage")["rows"] == 1999
    assert bench.rows == [*bench.expected[:900], *bench.expected[901:]]
    assert not bench.strays


def test_a_log_that_is_not_the_continuation_leaves_no_drafts(bench: Bench) -> None:
    bench.load()
    loaded = bench.rows
    bench.log.truncate(bench.log.records[1500].offset)
    bench.append(1500)
    with pytest.raises(Refused, match="truncated"):
        bench.load()
    assert (bench.rows, bench.strays) == (loaded, set())


def test_a_dry_run_drafts_nothing(bench: Bench) -> None:
    bench.load(until_offset=bench.expected[10])
    files = set(bench.table.rglob("*"))
    assert bench.load(dry_run=True)["messages"] == 2000
    assert set(bench.table.rglob("*")) == files


@pytest.mark.thorough
@pytest.mark.parametrize("step", loading.STEPS)
def test_killed(bench: Bench, step: str) -> None:
    """What a killed load leaves is in no version of the table, and VACUUM knows it."""
    bench.log.write(bench.store)
    died = subprocess.run([sys.executable, str(PROGRAM), step, str(bench.store), str(bench.table)], check=False)
    assert died.returncode == -9
    assert bool(bench.strays) == (step != "committed")
    assert bench.rows == (bench.expected if step == "committed" else [])
    assert bench.load()["skipped"] == (step == "committed")
    assert bench.rows == bench.expected
    bench.append(100)
    assert bench.load()["rows"] == 100
    assert bench.rows == bench.expected


@pytest.mark.thorough
def test_a_race(bench: Bench) -> None:
    """All end well: one brings the rows, the others find them there."""
    bench.log.write(bench.store)
    command = [sys.executable, str(PROGRAM), "", str(bench.store), str(bench.table)]
    loads = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(process.communicate(timeout=300)[0].strip() for process in loads)
    assert said == ["0 True", "0 True", "2000 False"]
    assert bench.rows == bench.expected


def test_another_load_comes_before_the_commit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It commits less than was drafted: the rest is written in a pass of its own."""
    from jobs.table.messages_table import MessagesTable

    original = MessagesTable.append

    def append(self: MessagesTable, *given: Any) -> Any:
        monkeypatch.setattr(MessagesTable, "append", original)
        bench.load(until_offset=bench.expected[800])
        return original(self, *given)

    monkeypatch.setattr(MessagesTable, "append", append)
    assert bench.load()["rows"] == 1200
    assert bench.rows == bench.expected
