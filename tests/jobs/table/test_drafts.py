"""Loads that faults and hostile tables meet."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from support import loading
from support.drilling import run_job
from support.hostile import KINDS, at_once, plant
from support.killing import Ended, Killer
from support.loading import load_here
from support.store_builder import LogBuilder, overwrite_log
from support.system_calls import Fault

from storeformat.errors import DamagedLog, Refused

# --------------------------------------------------------------------------------------------------------------- drafts
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
    overwrite_log(bench.store / "commitlog", bench.log.records[number].offset + 4, b"oops")


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


# ---------------------------------------------------------------------------------------------------------- load faults
# A load that a signal or a failing disk ends anywhere: one line, the right exit code, all of its rows
# or none, and no file that is of no version of the table.
SOME = pytest.mark.parametrize("step", [280, pytest.param(3, marks=pytest.mark.slow)])
"""A fault before each 280th change of the disk, and before some of the last, which commit; in the slow run before
every third (there are some 1,100 changes, each takes a load: two minutes a fault on an idle core).
"""
MESSAGES, COMMIT = 60, 12


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments, whose messages are of three days."""
    log = LogBuilder(8192)
    for number in range(MESSAGES):
        log.clock += 3_000_000
        log.message(topic=f"T{number % 2}", queue_id=number % 3, keys=f"k{number}", body=bytes(100))
    return log.write(tmp_path_factory.mktemp("faults") / "store")


def load_new(killer: Killer, store: Path, place: Path, fault: Fault) -> Ended:
    """A load into a new table, after which nothing is there that is of no version of it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    words = ["load", "--store", str(store), "--table", str(place / "new" / "table"), "--cluster", "c", "--broker", "b"]
    ended = killer.command([*words, "--split-size", "3000", "--quiet"], fault)
    assert (fault.before, strays(place)) == (fault.before, [])
    return ended


def runs(killer: Killer, store: Path, place: Path, fault: str, step: int) -> Iterator[tuple[int, Ended]]:
    """What became of loads to which the fault came at another place each."""
    undisturbed = load_new(killer, store, place, Fault(fault, 1 << 30, str(place)))
    assert (undisturbed.exit_code, undisturbed.trace, rows_of_new(place)) == (0, "", MESSAGES)
    last = undisturbed.changes - COMMIT
    for number in sorted({*range(0, undisturbed.changes, step), *range(last, undisturbed.changes, min(step, 4))}):
        ended = load_new(killer, store, place, Fault(fault, number, str(place)))
        if ended.came:
            yield number, ended


def rows_of_new(place: Path) -> int:
    try:
        return len(DeltaTable(place / "new" / "table").to_pyarrow_table())
    except TableNotFoundError:
        return 0


def strays(place: Path) -> list[str]:
    try:
        known = {Path(uri).name for uri in DeltaTable(place / "new" / "table").file_uris()}
    except TableNotFoundError:
        known = set()
    found = [path for path in place.rglob("*") if path.is_file() and path.name not in known]
    return [str(path) for path in found if path.parent.name != "_delta_log" or path.suffix != ".json"]


@SOME
@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_a_signal(killer: Killer, store: Path, tmp_path: Path, name: str, step: int) -> None:
    place, ends = tmp_path / "place", []
    for number, ended in runs(killer, store, place, name, step):
        said = "interrupted; the table has all of this load or nothing of it\n"
        assert (number, ended.exit_code, ended.trace) == (number, 128 + signal.Signals[name], said)
        ends.append(rows_of_new(place))
    assert set(ends) <= {0, MESSAGES}
    assert ends == sorted(ends)
    assert ends.count(0) > 3


@SOME
@pytest.mark.parametrize("name", ["ENOSPC", pytest.param("EIO", marks=pytest.mark.slow)])
def test_a_change_that_fails(killer: Killer, store: Path, tmp_path: Path, name: str, step: int) -> None:
    """Some a load can do without: then it goes on."""
    place, failed = tmp_path / "place", 0
    for number, ended in runs(killer, store, place, name, step):
        if ended.exit_code == 0:
            assert (number, ended.trace, rows_of_new(place)) == (number, "", MESSAGES)
            continue
        said = ended.trace.splitlines()
        assert (number, ended.exit_code, said[0][:7], len(said) < 3) == (number, 74, "error: ", True), ended.trace
        assert (number, rows_of_new(place)) == (number, 0)
        failed += 1
    assert failed > 3


# -------------------------------------------------------------------------------------------------------- hostile table
LOG = "_delta_log"
LAST = f"{LOG}/_last_checkpoint"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a table of its first messages with a checkpoint, and the next load in no checkpoint."""
    place, log = tmp_path_factory.mktemp("hostile"), LogBuilder(4096)
    for number in range(20):
        log.message(topic=f"T{number % 2}", body=b"x" * 100)
    log.write(place / "store")
    load_here(place / "store", place / "table", until_offset=log.records[5].offset)
    DeltaTable(str(place / "table")).create_checkpoint()
    load_here(place / "store", place / "table", until_offset=log.records[10].offset)
    return place


def commit(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020d}.json"


def load(made: Path, work: Path, change: Callable[[Path], object]) -> tuple[int, str]:
    """Exit code and error of a load into a table that was changed."""
    table = work / "table"
    shutil.copytree(made / "table", table)
    change(table)
    with at_once():
        done = run_job(
            "load", "--store", made / "store", "--table", table, "--cluster", "c", "--broker", "b", "--quiet"
        )
    return done.code, str(done.report.get("error", ""))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes devices")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [LOG, f"{LOG}/{1:020d}.json", f"{LOG}/{2:020d}.json", LAST, "store_date=*/*.parquet"])
def test_what_is_no_regular_file_is_named_at_once(made: Path, tmp_path: Path, place: str, kind: str) -> None:
    code, said = load(made, tmp_path, lambda table: plant(table, place, kind))
    assert (code in (65, 66) and said.count("\n") == 0 and str(tmp_path) in said) or code == 0, (code, said)
    assert code or (place, kind) in [(LAST, "loop"), ("store_date=*/*.parquet", "giant")]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\x00", b'{"add":{"pa', b"1", b"[]", b'"x"', b"null", b'{"txn":1}', b'{"add":{}}',
        b'{"txn":{"appId":"a"}}', b'{"txn":{"appId":"a","version":"x"}}', b'{"metaData":{"id":"x"}}',
        b'{"protocol":{"minReaderVersion":"x"}}', b'{"commitInfo":' + b"9" * 5_000 + b"}",
        b'{"txn":{"appId":"rocketmq-store-spark/c/b/' + b"9" * 5_000 + b'","version":5}}', b'{"commitInfo":[]}',
        b'{"commitInfo":{"operation":"RESTORE","operationParameters":{"version":[]}}}', b'{"metaData":1}',
        b'{"add":{"path":1}}', b'{"add":{"path":"x","size":"y"}}', b'{"remove":[]}', b'{"txn":null}', b"{}",
        b'{"add":{"path":"x","partitionValues":{},"size":-1,"modificationTime":1,"dataChange":true}}',
        b'{"txn":{"appId":1,"version":2}}', b'{"txn":{"appId":"a","version":true}}',
    ],
    ids=lambda line: repr(line[:24]),
)  # fmt: skip
def test_a_line_that_delta_does_not_write_is_one_line(made: Path, tmp_path: Path, line: bytes) -> None:
    def add(table: Path) -> None:
        with commit(table, 2).open("ab") as file:
            file.write(b"\n" + line + b"\n")  # delta-rs ends a commit without one

    code, said = load(made, tmp_path, add)
    assert code in (0, 65, 66), said
    assert "\n" not in said


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 5_000, b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7fPAR1"])
def test_a_checkpoint_that_is_no_parquet_is_one_line(made: Path, tmp_path: Path, content: bytes) -> None:
    def spoil(table: Path) -> None:
        (path,) = (table / LOG).glob("*.checkpoint.parquet")
        path.write_bytes(content)
        for version in (0, 1):
            commit(table, version).unlink()

    code, said = load(made, tmp_path, spoil)
    assert code in (65, 66), said
    assert "\n" not in said


@pytest.mark.parametrize("zone", ["Mars/x", "../../etc/passwd", ""])
def test_a_time_zone_that_nobody_knows_is_the_tables_fault(made: Path, tmp_path: Path, zone: str) -> None:
    def change(table: Path) -> None:
        DeltaTable(str(table)).alter.set_table_properties({"rocketmq.timeZone": zone}, raise_if_not_exists=False)

    code, said = load(made, tmp_path, change)
    assert (code, said.partition(" (")[0]) == (65, f"the table's property rocketmq.timeZone: {zone}: no such time zone")
