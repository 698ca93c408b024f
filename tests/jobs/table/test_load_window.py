"""Loads of a window of a log, and of committed offsets."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable
from support.loading import SEGMENT, Bench
from support.patching import stand_in
from support.store_builder import LogBuilder, overwrite_log
from support.store_to_start import StoreToStart

from jobs.contract.options import LoadOptions
from jobs.contract.report import Reporter
from jobs.log.opening import open_store, read_log
from jobs.report import views
from jobs.spark.runner import Runner
from jobs.table import load, messages_table
from jobs.table.commits import BrokerState
from jobs.table.load import SCHEMA, Load, Window, add_snapshot, nothing_follows, plan_window, split_size_for, too_early
from storeformat.errors import NotAStore, Refused, UsageError, WriteFailed
from storeformat.log.segments import Segment
from udfs.table.proven_ranges import ReadRanges, proven_ranges
from udfs.table.rows import RowRules

# --------------------------------------------------------------------------------------------------- load window
SEGMENTS = [Segment("a", 1000, 1000), Segment("b", 2000, 1000), Segment("c", 3000, 1000)]
LAST = {"commit_log_offset": 2400, "size": 100}


def plan(end: int | None, last: dict[str, Any] | None = None, **options: Any) -> Window:
    state = None if end is None else BrokerState(end, 3)
    return plan_window(LoadOptions(store="", table="", cluster="", broker="", **options), SEGMENTS, state, last)


def test_a_first_load_takes_the_whole_log() -> None:
    assert plan(None) == Window(1000, 1000)
    with pytest.raises(UsageError, match=r"^--repair-from: nothing of this broker was loaded yet$"):
        plan(None, repair_from=1000)


def test_the_scan_begins_with_the_segment_of_the_newest_row() -> None:
    assert plan(2500, LAST) == Window(2000, 2500, 3, LAST)
    assert plan(3000, LAST) == Window(2000, 3000, 3, LAST)
    assert plan(3000) == Window(3000, 3000, 3)
    assert plan(4000) == Window(3000, 4000, 3)
    assert plan(1000, {"commit_log_offset": 999, "size": 1}) == Window(1000, 1000, 3)


def test_a_repair_begins_an_epoch() -> None:
    assert plan(2500, repair_from=2500) == Window(2000, 2500, 4, repair=True)
    with pytest.raises(UsageError, match=r"^--repair-from 2501: the loaded range ends at 2500$"):
        plan(2500, repair_from=2501)


def test_a_gap_must_be_allowed() -> None:
    with pytest.raises(Refused) as caught:
        plan(999)
    assert str(caught.value) == (
        "the log begins after the end of the last load: retention deleted records that were never loaded: found 1000, "
        "expected 999"
    )
    assert caught.value.advice == "--allow-gap continues and records the gap"
    assert plan(999, allow_gap=True) == Window(1000, 1000, 3, gap=(999, 1000))
    assert plan(500, repair_from=0, allow_gap=True) == Window(1000, 1000, 4, gap=(500, 1000), repair=True)


def test_a_repair_leaves_rows_alone_that_the_log_does_not_have() -> None:
    with pytest.raises(Refused, match="the rows before are in the table alone") as caught:
        plan(2500, repair_from=999, allow_gap=True)
    assert caught.value.advice == "--repair-from 1000 replaces what the log still has"


@pytest.mark.parametrize(
    ("size", "cores", "split"),
    [(0, 2, 64 << 20), (1 << 30, 2, 128 << 20), (1 << 40, 2, 1 << 30), (1 << 30, 64, 64 << 20)],
)
def test_splits_keep_all_cores_at_work(size: int, cores: int, split: int) -> None:
    assert split_size_for(size, cores) == split


def test_the_history_holds_no_secret_of_the_stores_location(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    log.message(topic="T")
    options = LoadOptions(store=str(log.write(tmp_path)), table="", cluster="c", broker="b")
    store = open_store(options)
    reading = read_log(store, options, Runner())
    elsewhere = replace(store, root="s3://KEY:SECRET@bucket/store?secret_key=SECRET&region=eu")
    one = Load(elsewhere, options, "", Reporter(quiet=True))
    said = json.dumps(one._metadata(Window(0, 0), reading.end, reading.damaged))
    assert "s3://***@bucket/store" in said
    assert "SECRET" not in said


@pytest.mark.parametrize(
    ("size", "rows_from", "byte_at", "follows"),
    [
        (1000, 1500, None, False),
        (1000, 1500, 1499, False),  # the end of what was loaded
        (1000, 1500, 1500, True),
        (1000, 1500, 1507, True),  # the last byte of a head
        (1000, 1500, 1508, False),
        (1000, 1995, None, False),  # less than a head is left
        (1000, 1995, 1999, True),
        (1000, 2000, None, False),  # the end of the log
        (1000, 2001, None, True),  # and beyond it
        (1000, 1000, 1000, True),
    ],
)
def test_a_log_seems_to_end_where_no_byte_of_a_head_is(
    tmp_path: Path, size: int, rows_from: int, byte_at: int | None, *, follows: bool
) -> None:
    content = bytearray(size)
    if byte_at is not None:
        content[byte_at - 1000] = 1
    path = tmp_path / "segment"
    path.write_bytes(content)
    segments = [Segment(str(path), 1000, size)]
    assert nothing_follows(segments, Window(0, rows_from, last=LAST)) is not follows


def test_of_several_segments_that_one_is_looked_at_which_the_last_load_ended_in(tmp_path: Path) -> None:
    for name, content in (("a", bytes(1000)), ("b", bytes(500) + b"x" + bytes(499)), ("c", bytes(1000))):
        (tmp_path / name).write_bytes(content)
    segments = [replace(segment, path=str(tmp_path / segment.path)) for segment in SEGMENTS]
    ends = (1500, 2000, 2500, 2501, 3000, 4000, 4001)
    assert [nothing_follows(segments, Window(0, end, last=LAST)) for end in ends] == [
        True, True, False, True, True, True, False,
    ]  # fmt: skip


def test_a_repair_a_log_elsewhere_and_a_first_load_are_read_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    segments = [Segment(str(tmp_path / "a"), 1000, 1000)]
    assert nothing_follows(segments, Window(0, 1500, last=LAST))
    assert not nothing_follows(segments, Window(0, 1500))
    assert not nothing_follows(segments, Window(0, 1500, last=LAST, repair=True))
    elsewhere = [*segments, Segment("s3://bucket/b", 2000, 1000)]
    assert not nothing_follows(elsewhere, Window(0, 1500, last=LAST))


# -------------------------------------------------------------------------------------------------- continuation
@pytest.mark.parametrize(
    ("place", "last_ends", "inside"),
    [(0, None, False), (1, None, True), (0, 10, False), (1, 10, True), (1, 0, True), (1, -1, False)],
)
def test_rows_begin_where_a_record_does(tmp_path: Path, place: int, last_ends: int | None, inside: bool) -> None:
    """``place`` is relative to a record, ``last_ends`` how far before the rows' first offset the newest row ends."""
    log = LogBuilder(4096)
    for _ in range(5):
        log.message(topic="T")
    options = LoadOptions(store=str(log.write(tmp_path)), table="", cluster="", broker="")
    store = open_store(options)
    begin = log.records[3].offset + place
    last = None if last_ends is None else {"commit_log_offset": begin - 100, "size": 100 - last_ends - place}
    window = Window(0, begin, last=last)
    reading = read_log(store, options, Runner())
    assert load.begins_inside_a_record(store, window, reading) is inside


def test_rows_that_were_loaded_are_found_after_damage(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    while log.end_offset < 6000:
        log.message(topic="T", body=b"a body of some bytes")
    root, damaged = log.write(tmp_path), log.records[2]
    overwrite_log(root / "commitlog", damaged.offset + 4, b"oops")
    options = LoadOptions(store=str(root), on_damage="salvage", table="", cluster="", broker="")
    store = open_store(options)
    whole = read_log(store, options, Runner())
    rules = RowRules(store.dispatch_rules(), columns=messages_table.IDENTITY)
    read = ReadRanges(proven_ranges(whole.scans), rules)
    rows = [row for proven in read.ranges for batch in read.chunks(proven) for row in batch.to_pylist()]
    rows.sort(key=lambda row: -row["commit_log_offset"])
    assert len(rows) == len(log.records) - 1
    for row in rows:
        assert load.newest_row_in_log(store, [row], whole) == row
    assert load.newest_row_in_log(store, rows, whole) == rows[0]
    other = [{**row, "body_crc": 1} for row in rows]
    assert load.newest_row_in_log(store, other, whole) is None
    assert load.newest_row_in_log(store, [*other[:3], *rows[3:]], whole) == rows[3]
    # Of segments that were not read again, only what the sizes lead to is sure.
    later = read_log(store, options, Runner(), begin=4096)
    assert load.newest_row_in_log(store, rows, later) == rows[0]
    first = [row for row in rows if row["commit_log_offset"] < 4096]
    assert load.newest_row_in_log(store, first, later) == first[-2]


# ---------------------------------------------------------------------------------------------------- deliveries
def test_levels_of_which_a_message_came_too_early() -> None:
    delays = (1_000, 5_000, 10_000)
    assert too_early({3: 2_000, 1: 1_000, 2: 4_999}, delays) == [2, 3]
    assert too_early({1: 1_000, 2: 5_001, 19: 0}, delays) == []
    assert too_early({}, delays) == []


# ------------------------------------------------------------------------------------------------ load continues
def test_retention_took_what_was_never_loaded(bench: Bench) -> None:
    bench.messages(500)
    bench.load()
    loaded = bench.expected
    while len(bench.log.segments) < 4:
        bench.messages(100)
    end = bench.load(dry_run=True)["from_offset"]
    bench.log.remove_head(2)
    with pytest.raises(Refused, match="never loaded") as refused:
        bench.load("later")
    assert "--allow-gap" in (refused.value.advice or "")
    report = bench.load("later", allow_gap=True)
    begin = min(bench.log.segments)
    assert report["gap"] == {"begin": end, "end": begin}
    assert bench.metadata()["gap"] == [end, begin]
    assert bench.rows() == loaded + bench.expected
    assert bench.load("later")["skipped"]


def test_retention_took_only_what_was_loaded(bench: Bench) -> None:
    while len(bench.log.segments) < 3:
        bench.messages(100)
    bench.load()
    loaded = bench.expected
    bench.messages(30)
    bench.log.remove_head(1)
    bench.load("later")
    assert bench.rows() == sorted(set(loaded) | set(bench.expected))


def test_a_log_that_was_truncated_and_rewritten(bench: Bench) -> None:
    """What was truncated away still lies after the new end, the newest loaded record whole and at its place."""
    bench.messages(200)
    bench.load()
    newest = bench.log.records[-1]
    cut = bench.log.records[150].offset
    bench.log.truncate(cut)
    bench.messages(20, flag=7)
    bench.log.settle()
    assert newest in bench.log.stale_records
    with pytest.raises(Refused, match="truncated") as refused:
        bench.load()
    assert f"--repair-from {cut}" in (refused.value.advice or "")
    report = bench.load(repair_from=cut)
    assert (report["from_offset"], report["rows"]) == (cut, len(bench.log.records) - 150)
    assert bench.rows() == bench.expected
    assert bench.metadata()["repair"] is True
    bench.messages(100)
    bench.load()
    assert bench.rows() == bench.expected


def test_a_shorter_log(bench: Bench) -> None:
    bench.messages(150)
    bench.log.write(bench.work / "shorter")
    shorter, end = bench.expected, bench.log.end_offset
    bench.messages(500)
    bench.load()
    with pytest.raises(Refused, match="truncated") as refused:
        bench.load_of(bench.work / "shorter")
    assert f"--repair-from {end}" in (refused.value.advice or "")
    bench.load_of(bench.work / "shorter", repair_from=bench.log.records[149].offset - 5)
    assert bench.rows() == shorter
    assert bench.load_of(bench.work / "shorter")["skipped"]


def test_repair_leaves_other_brokers_alone(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    bench.load(broker="other")
    bench.load(repair_from=0)
    assert bench.rows() == bench.rows("other") == bench.expected


def test_a_repair_leaves_rows_alone_whose_bytes_are_no_more(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    before = bench.rows()
    bench.log = LogBuilder(SEGMENT, clock=1_800_000_000_000)
    while len(bench.log.segments) < 3:
        bench.messages(90, flag=3)
    bench.log.remove_head(1)
    report = bench.load("other", repair_from=0, allow_gap=True)
    assert (report["rows"], bench.rows()) == (len(bench.expected), before + bench.expected)


@pytest.mark.parametrize(
    "to", [pytest.param("first by Spark", marks=[pytest.mark.slow, pytest.mark.spark]), "first", "nothing"]
)
def test_a_table_that_was_restored_to_an_older_version(bench: Bench, to: str, request: pytest.FixtureRequest) -> None:
    """RESTORE takes rows away and leaves the transactions: these still say that all was loaded."""
    bench.messages(40)
    bench.load(broker="other")
    before = DeltaTable(bench.table).version()
    first = bench.load()
    bench.messages(50)
    second = bench.load()
    reached = 0 if to == "nothing" else first["to_offset"]
    if to == "first by Spark":
        spark = request.getfixturevalue("spark")
        spark.sql(f"RESTORE TABLE delta.`{bench.table}` TO VERSION AS OF {first['version']}")
    else:
        DeltaTable(bench.table).restore(before if to == "nothing" else first["version"])
    for _ in range(2):
        with pytest.raises(Refused, match="RESTORE of the table") as refused:
            bench.load()
        assert (refused.value.found, refused.value.expected) == (reached, second["to_offset"])
        bench.messages(10)
    assert f"--repair-from {reached} " in (refused.value.advice or "")
    with pytest.raises(Refused, match="RESTORE"):
        bench.load(repair_from=reached + 1)
    bench.load(broker="other")
    bench.load(repair_from=reached)
    assert bench.rows() == bench.expected
    bench.messages(10)
    bench.load()
    bench.load(broker="other")
    assert bench.rows() == bench.rows("other") == bench.expected


def test_rows_that_a_person_deleted_stay_deleted(bench: Bench) -> None:
    bench.messages(40)
    bench.load()
    DeltaTable(bench.table).delete(f"commit_log_offset > {bench.expected[9]}")
    kept = bench.expected[:10]
    bench.messages(5)
    assert bench.load()["rows"] == 5
    assert bench.rows() == kept + bench.expected[-5:]


# ----------------------------------------------------------------------------------------------------- consumer offsets


def add(store: StoreToStart, table: Path, broker: str = "a") -> tuple[int, list[str]]:
    options = LoadOptions(
        store=str(store.root), table=str(table), cluster="c", broker=broker, settings=tuple(store.conf.items())
    )
    return add_snapshot(open_store(options, needs_index_sizes=False), options, str(table))


def rows(table: Path) -> list[dict[str, Any]]:
    return list(deltalake.DeltaTable(f"{table}_consumer_offsets").to_pyarrow_table().to_pylist())


def test_each_load_adds_a_snapshot(store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    assert add(store, table) == (4, [])
    store.commit({"Orders@readers": {0: 2, 1: 99}})
    assert add(store, table) == (2, [])
    found = rows(table)
    assert list(found[0]) == SCHEMA.names
    newest = max(row["loaded_at"] for row in found)
    assert [
        (row["group"], row["topic"], row["queue_id"], row["committed"], row["queue_end"], row["lag"])
        for row in sorted(found, key=lambda row: row["queue_id"])
        if row["loaded_at"] == newest
    ] == [("readers", "Orders", 0, 2, 10, 8), ("readers", "Orders", 1, 99, 10, 0)]


def test_loads_of_several_brokers_may_make_the_table_at_once(store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    together = threading.Barrier(4, timeout=120)

    def one(number: int) -> tuple[int, list[str]]:
        together.wait()
        return add(store, table, f"broker-{number}")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [(4, [])] * 4
    assert len(rows(table)) == 16


def test_without_offsets_there_is_no_table(store: StoreToStart, tmp_path: Path) -> None:
    store.config("consumerOffset.json").unlink()
    assert add(store, tmp_path / "messages") == (0, [])
    assert not (tmp_path / "messages_consumer_offsets").exists()


def test_torn_offsets_are_a_note(store: StoreToStart, tmp_path: Path) -> None:
    store.config("consumerOffset.json").write_text("{")
    count, (note,) = add(store, tmp_path / "messages")
    assert count == 0
    assert note.startswith("committed offsets are not in messages_consumer_offsets: ")
    assert "consumerOffset.json is torn" in note


def test_a_whole_snapshot(store: StoreToStart, tmp_path: Path) -> None:
    """Of a group that lags behind the log's begin, what was deleted counts apart."""
    begun = datetime.now(timezone.utc)
    store.segment(0).unlink()
    store.commit({"Orders@readers": {0: 2}})
    assert add(store, tmp_path / "messages") == (1, [])
    (row,) = rows(tmp_path / "messages")
    assert begun <= row.pop("loaded_at") <= datetime.now(timezone.utc)
    assert row == {
        "cluster": "c", "broker": "a", "group": "readers", "topic": "Orders", "queue_id": 0, "committed": 2,
        "queue_begin": 6, "queue_end": 10, "lag": 4, "deleted": 4,
    }  # fmt: skip


def test_stores_and_tables_elsewhere_have_none(store: StoreToStart, tmp_path: Path) -> None:
    options = LoadOptions(store=str(store.root), table="s3://b/t", cluster="c", broker="b")
    opened = open_store(options, needs_index_sizes=False)
    assert add_snapshot(opened, options, "s3://b/t") == (0, [])
    assert add_snapshot(replace(opened, root="s3://b/s"), options, str(tmp_path / "t")) == (0, [])


@pytest.mark.parametrize(
    ("errors", "tries", "fails"),
    [([], 1, False), (["race"] * 4, 5, False), (["race"] * 5, 5, True), (["disk"], 1, True)],
)
def test_a_snapshot_that_others_hinder(
    monkeypatch: pytest.MonkeyPatch, errors: list[str], tries: int, fails: bool
) -> None:
    """Another load that makes the table is waited for, longer and longer; a disk is not."""
    calls: list[tuple[str, Any, dict[str, Any]]] = []
    slept: list[float] = []

    def write(path: str, table: Any, **more: Any) -> None:
        calls.append((path, table, more))
        if len(calls) <= len(errors):
            kind = deltalake.exceptions.DeltaError if errors[len(calls) - 1] == "race" else OSError
            raise kind("what it says\nand more")

    monkeypatch.setattr(load.deltalake, "write_deltalake", write)
    stand_in(monkeypatch, load, "time", sleep=slept.append)
    table = SCHEMA.empty_table()
    if fails:
        with pytest.raises(WriteFailed) as caught:
            load._append("/t", table)
        assert str(caught.value) == "a snapshot of committed offsets was not added: what it says (/t)"
    else:
        load._append("/t", table)
    assert calls == [("/t", table, {"mode": "append", "name": "consumer_offsets"})] * tries
    assert slept == pytest.approx([0.1, 0.2, 0.3, 0.4][: tries - 1])


@pytest.mark.spark
def test_the_view_lag_has_the_newest_snapshot_of_each_broker(spark: Any, store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    for broker in ("a", "a", "b"):
        add(store, table, broker)
    session = spark.newSession()
    found = session.createDataFrame(deltalake.DeltaTable(f"{table}_consumer_offsets").to_pyarrow_table())
    found.createOrReplaceTempView("consumer_offsets")
    (statement,) = views.statements(views.sql_text("views", "lag.sql"))
    session.sql(statement)
    counted = session.sql("SELECT broker, count(*) AS queues, sum(lag) AS lag FROM lag GROUP BY broker ORDER BY broker")
    assert [tuple(row) for row in counted.collect()] == [("a", 4, 4), ("b", 4, 4)]


def test_a_pipe_in_its_log_is_refused(store: StoreToStart, tmp_path: Path) -> None:
    """delta-rs would wait for somebody who writes into it."""
    log = tmp_path / "table_consumer_offsets" / "_delta_log"
    log.mkdir(parents=True)
    os.mkfifo(log / f"{0:020d}.json")
    with pytest.raises(NotAStore, match="this is not a file of Delta's log"):
        add(store, tmp_path / "table")
