"""Staged files, and rows of tables."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from support import broker_model, golden, messages_model, strategies
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.reading import read, read_segments
from support.store_builder import LogBuilder, Message
from support.uniform_log import uniform_log

from jobs.log.log_scan import sharing
from storeformat.errors import MissingInput, TotalsDisagree, WriteFailed
from storeformat.kernels import UnitColumns
from storeformat.log.chain import ChainReport
from storeformat.log.chain_walk import BlockWindow, ChainWalk
from storeformat.log.segments import ChainEnd, LogPart, Segment, Split, plan_splits
from storeformat.queues.batch_consume_queue import UNIT, parse_units
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules, RecordBlock
from storeformat.record.dispatch import BatchUnits, DispatchRules, IndexEntries, parse_delay_levels
from storeformat.storage import files
from storeformat.store.broker_rules import rules_of
from udfs.log import batch_queues
from udfs.log.batch_queues import BATCH_RUN, BatchRunWriter
from udfs.log.scan import ScanTask, SplitScan, StagedRuns, scan_split
from udfs.log.staged_files import NOTHING_STAGED, Readers, Slices, Staged, StagedFile
from udfs.log.staged_runs import EntryWriter, RunWriter
from udfs.log.subscriptions import SUBSCRIPTION_PROPERTIES, Subscription
from udfs.log.timers import MOST_QUEUES, REAL_PROPERTIES, TIMER_PROPERTIES, TimerEvent
from udfs.table import ordered_rows, schemas
from udfs.table.ordered_rows import OrderedRows
from udfs.table.proven_ranges import ProvenRange, ReadRanges, proven_blocks, proven_ranges
from udfs.table.rows import RowRules, record_batch


# -------------------------------------------------------------------------------------------------- batch queues
def units_of(*rows: tuple[int, int, int, int, int]) -> BatchUnits:
    """Units given as topic code, queue id, commit-log offset, base and messages."""
    units = np.zeros(len(rows), UNIT)
    for unit, (_, _, offset, base, messages) in zip(units, rows, strict=True):
        unit["phy_offset"], unit["msg_base_offset"], unit["batch_size"] = offset, base, messages
    topics, queues = (np.array([row[column] for row in rows], np.int32) for column in (0, 1))
    return BatchUnits(topics, queues, units)


@pytest.mark.parametrize("flush_units", [1, 1 << 18])
def test_units_are_grouped_by_queue_and_cut_where_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_units: int
) -> None:
    monkeypatch.setattr(batch_queues, "_FLUSH_UNITS", flush_units)
    writer = BatchRunWriter(str(tmp_path), "s")
    writer.add(units_of((1, 0, 10, 5, 2), (0, 3, 20, 0, 4), (1, 0, 30, 7, 1), (1, 0, 40, 0, 3)))
    writer.flush()
    writer.close(None, None)
    staged = writer.staged()
    runs = np.frombuffer(staged.runs, BATCH_RUN).view(np.recarray)
    assert parse_units(Path(writer.path).read_bytes())["phy_offset"].tolist() == [20, 10, 30, 40]
    assert (runs.topic_codes.tolist(), runs.queue_ids.tolist()) == ([0, 1, 1], [3, 0, 0])
    assert (runs.begins.tolist(), runs.counts.tolist()) == ([0, 1, 3], [1, 2, 1])
    assert (runs.births.tolist(), runs.messages.tolist()) == ([1, 0, 1], [4, 3, 3])
    assert (staged.count, staged.offset_sum) == (4, 100)


def test_nothing_is_written_where_nothing_is_staged() -> None:
    writer = BatchRunWriter("", "s")
    assert writer.staged() == NOTHING_STAGED
    writer.add(units_of((0, 0, 10, 0, 1)))
    writer.flush()
    writer.close(None, None)
    staged = writer.staged()
    assert (staged.path, staged.count, len(staged.runs)) == ("", 1, BATCH_RUN.itemsize)


# -------------------------------------------------------------------------------------------------- staged files
NUMBER = np.dtype("<i8")
slices_of = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(1, 40)), max_size=6)


def rows_of(slices: Slices) -> list[tuple[str, int]]:
    return [(source, row) for source, begin, count in slices for row in range(begin, begin + count)]


@given(slices_of, st.integers(1, 15), st.integers(0, 40))
def test_files_take_all_rows_in_their_order(given_slices: list[tuple[str, int, int]], every: int, first: int) -> None:
    slices = Slices.of(*given_slices)
    assert list(slices) == given_slices
    cut = list(slices.cut(every, first))
    assert [row for _, part in cut for row in rows_of(part)] == rows_of(slices)
    ends = [(number + 1) * every for number, _ in cut]
    assert all(number + 1 == following for (number, _), (following, _) in pairwise(cut))
    place = first
    for (number, part), end in zip(cut, ends, strict=True):
        assert place // every == number
        place += part.rows
        assert place == min(end, first + slices.rows)
        assert set(part.sources) == {source for source, _ in rows_of(part)}
        assert (part.first, part.last) == (rows_of(part)[0], rows_of(part)[-1])


@given(slices_of, st.integers(1, 15))
def test_steps_are_short_and_all(given_slices: list[tuple[str, int, int]], most: int) -> None:
    steps = list(Slices.of(*given_slices).steps(most))
    assert all(count <= most for _, _, count in steps)
    assert rows_of(Slices.of(*steps)) == rows_of(Slices.of(*given_slices))


def test_no_slices() -> None:
    nothing = Slices.of()
    assert (len(nothing), nothing.rows, list(nothing.cut(5)), nothing.sources) == (0, 0, [], ())
    part = Slices.of(("a", 0, 1), ("b", 5, 2))[1:]
    assert (list(part), part.sources) == ([("b", 5, 2)], ("b",))
    assert b"a.units" not in pickle.dumps(Slices.of(("a.units", 0, 1), ("b.units", 5, 2))[1:])


def test_a_file_appears_with_its_first_rows(tmp_path: Path) -> None:
    file = StagedFile(str(tmp_path / "staging"), "s.units")
    assert (file.wanted, file.path) == (True, "")
    assert list(tmp_path.iterdir()) == []
    file.write(np.arange(3, dtype=NUMBER))
    file.write(np.arange(3, 5, dtype=NUMBER))
    file.close(None, None)
    assert np.frombuffer(Path(file.path).read_bytes(), NUMBER).tolist() == [0, 1, 2, 3, 4]
    assert not StagedFile("", "s.units").wanted
    failed = StagedFile(str(tmp_path / "other"), "s.units")
    failed.write(np.arange(3, dtype=NUMBER))
    failed.close(ValueError, ValueError())
    assert list((tmp_path / "other").iterdir()) == []


def test_rows_are_read_from_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Readers, "_MOST", 2)
    paths = [tmp_path / f"{number}" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(np.arange(10 * number, 10 * number + 10, dtype=NUMBER).tobytes())
    buffer = bytearray(4 * NUMBER.itemsize)
    with Readers() as readers:
        for number in (0, 1, 2, 3, 0):
            assert readers.rows(str(paths[number]), NUMBER, 2, 3).tolist() == [10 * number + row for row in (2, 3, 4)]
            assert readers.rows(str(paths[number]), NUMBER, 9, 1, buffer).tolist() == [10 * number + 9]
        assert len(readers._open) == 2
        with pytest.raises(MissingInput):
            readers.rows(str(paths[0]), NUMBER, 9, 2)


# --------------------------------------------------------------------------------------------------- staged runs
def test_scans_share_what_they_have_in_common() -> None:
    splits = plan_splits([Segment("/log/0", 0, 300)], 100)
    topics = [(b"a" * 200, b"b" * 200), (b"a" * 200, b"b" * 200), (b"b" * 200,)]
    scans = [
        SplitScan(
            ChainReport(replace(split), split.start, split.stop, ChainEnd.STOP),
            staged=StagedRuns(tuple(map(bytes, names))),
        )
        for split, names in zip(splits, topics, strict=True)
    ]
    shared = sharing(scans, splits)
    first, second, third = (scan.staged.topics for scan in shared)
    assert [first, second, third] == topics
    assert first is second
    assert third[0] is first[1]
    assert [scan.report.split for scan in shared] == splits
    assert all(scan.report.split is split for scan, split in zip(shared, splits, strict=True))
    for wrong in (scans[:2], [scans[0], scans[2], scans[1]]):
        with pytest.raises(TotalsDisagree, match="scans were lost"):
            sharing(wrong, splits)


def test_nothing_is_written_where_nothing_is_staged_for_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = uniform_log(1 << 20)
    path = tmp_path / "log" / f"{0:020d}"
    path.parent.mkdir()
    path.write_bytes(log.data)
    monkeypatch.chdir(tmp_path)
    (split,) = plan_splits([Segment(str(path), 0, len(log.data))], 1 << 30)
    task = ScanTask("", DecodeRules(), DispatchRules(()))
    here = scan_split(split, task)
    assert (here.staged.units.count, here.staged.entries.count) == (log.messages, 3 * log.messages)
    assert (here.staged.units.path, here.staged.entries.path) == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]
    (tmp_path / "staging").mkdir()
    there = scan_split(split, replace(task, staging=str(tmp_path / "staging")))
    assert replace(there.staged.units, path="") == here.staged.units
    assert replace(there.staged.entries, path="") == here.staged.entries
    assert {entry.suffix for entry in (tmp_path / "staging").iterdir()} == {".units", ".entries"}


def test_sums_of_offsets_have_64_bits() -> None:
    writer, entries = RunWriter("", "s", with_times=False), EntryWriter("", "s.entries")
    for count in (3, 2):
        units = UnitColumns.of(count)
        for column in units:
            column[:] = 0
        units.offsets[:] = 1 << 62
        writer.add(units, np.zeros(count, bool))
        writer.flush()
        entries.add(IndexEntries(np.zeros(count, np.int32), units.offsets, units.store_timestamps), None)
    assert (writer.staged().count, writer.staged().offset_sum) == (5, 1 << 62)
    assert entries.totals() == Staged(5, 1 << 62)


def test_entries_of_tags_have_a_mark(tmp_path: Path) -> None:
    entries = EntryWriter(str(tmp_path), "s.entries")
    entries.add(IndexEntries(np.array([5, 6], np.int32), np.array([10, 20]), np.array([7, 8])), np.array([False, True]))
    entries.close(None, None)
    rows = np.frombuffer(Path(entries.path).read_bytes(), "<i4,<i8,<i8").tolist()
    assert rows == [(5, 10, 7), (6 - (1 << 31), 20, 8)]


# ------------------------------------------------------------------------------------------------- subscriptions
STAGING_RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *SUBSCRIPTION_PROPERTIES))


def found_in(log: LogBuilder, split_size: int = 1 << 30) -> set[Subscription]:
    scans = read_segments(log.segments, split_size, decode_rules=STAGING_RULES).scans
    return {found for scan in scans for found in scan.properties.subscriptions}


@pytest.mark.parametrize(
    ("topic", "properties", "found"),
    [
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, {("T", "g"), ("%RETRY%g", "g")}),
        ("%RETRY%g", {}, set()),
        ("%RETRY%g+T", {}, {("T", "g"), ("%RETRY%g+T", "g")}),
        ("%DLQ%g", {"DLQ_ORIGIN_TOPIC": "T"}, {("T", "g")}),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "T"}, {("T", "g"), ("%RETRY%g", "g")}),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "T"}, set()),
        ("T", {"RETRY_TOPIC": "U"}, set()),
    ],
)
def test_a_retried_message_names_group_and_topic(topic: str, properties: dict[str, str], found: set[Any]) -> None:
    log = LogBuilder(4096)
    log.message(topic="T")
    log.message(topic=topic, properties=properties)
    log.message(topic=topic)
    for split_size in (50, 1 << 30):
        assert found_in(log, split_size) == found
    assert read_segments(log.segments, 1 << 30).scans[0].properties.subscriptions == frozenset()


# -------------------------------------------------------------------------------------------------------- timers
TIMER_RULES = DecodeRules(properties=tuple(dict.fromkeys((*DISPATCH_PROPERTIES, *TIMER_PROPERTIES))))
TIMER = "rmq_sys_wheel_timer"
WAITS = {"TIMER_OUT_MS": "5000", "UNIQ_KEY": "k", "REAL_TOPIC": "Sold"}


def events(log: LogBuilder, split_size: int = 1 << 30) -> list[TimerEvent]:
    scans = read_segments(log.segments, split_size, decode_rules=TIMER_RULES).scans
    return [event for scan in scans for event in scan.properties.timers]


@pytest.mark.parametrize("split_size", [pytest.param(1, marks=pytest.mark.thorough), 50, 1 << 30])
def test_what_waits_and_what_ended(split_size: int) -> None:
    log = LogBuilder()
    log.message(topic="Other")
    waits = log.message(topic=TIMER, properties=WAITS)
    log.message(topic=TIMER, properties={**WAITS, "TIMER_DEQUEUE_MS": "7"})
    log.message(topic="Sold", properties={**WAITS, "TIMER_DEQUEUE_MS": "7"})
    log.message(topic=TIMER, properties={**WAITS, "TIMER_DEL_UNIQKEY": "Sold+k"})
    found = events(log, split_size)
    told = [(event.ends, event.waiting is not None) for event in found]
    assert told == [(False, True), (True, True), (True, False), (False, True)]
    first = found[0].waiting
    assert first is not None
    assert (first.offset, first.size, first.queue_offset, first.due) == (waits.offset, waits.size, 0, 5000)
    assert len({event.identity for event in found}) == 1
    assert [event.waiting.recalls for event in found if event.waiting] == [False, False, True]
    assert not read_segments(log.segments, 1 << 30).scans[0].properties.timers


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX"])
def test_a_copy_for_a_retry_ends_no_wait(topic: str) -> None:
    log = LogBuilder()
    log.message(topic=topic, properties={**WAITS, "TIMER_DEQUEUE_MS": "7"})
    assert events(log) == []


@pytest.mark.parametrize("due", ["", "x", "-5", "9" * 19])
def test_a_time_that_is_none(due: str) -> None:
    log = LogBuilder()
    log.message(topic=TIMER, properties={**WAITS, "TIMER_OUT_MS": due})
    log.message(topic="Sold", properties={**WAITS, "TIMER_OUT_MS": due, "TIMER_DEQUEUE_MS": "7"})
    assert [event.waiting and event.waiting.due for event in events(log)] == [-1]


REAL_RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *REAL_PROPERTIES))


@pytest.mark.parametrize(
    ("topic", "number", "found"),
    [
        ("SCHEDULE_TOPIC_XXXX", "5", True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "0", True),
        ("rmq_sys_wheel_timer", str(MOST_QUEUES - 1), True),
        ("rmq_sys_wheel_timer", str(MOST_QUEUES), False),
        ("rmq_sys_wheel_timer", "-1", False),
        ("rmq_sys_wheel_timer", "x", False),
        ("Ordinary", "5", False),
    ],
)
def test_a_message_that_waits_tells_its_queue(topic: str, number: str, found: bool) -> None:
    log = LogBuilder(4096)
    log.message(topic="Ordinary")
    log.message(topic=topic, properties={"REAL_TOPIC": "Sold", "REAL_QID": number})
    log.message(topic=topic, properties={"REAL_TOPIC": "Sold"})
    log.message(topic=topic, properties={"REAL_QID": "1"})
    for split_size in (50, 1 << 30):
        scans = read_segments(log.segments, split_size, decode_rules=REAL_RULES).scans
        queues = {queue for scan in scans for queue in scan.properties.real_queues}
        assert queues == ({("Sold", int(number))} if found else set())
    assert not any(scan.properties.real_queues for scan in read_segments(log.segments, 1 << 30).scans)


# ---------------------------------------------------------------------------------------------------------- rows
ALL = tuple(schemas.MESSAGES_WITH_BODY.names)
DELAYS = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


def batches(
    root: Path, rules: RowRules, *, until: int | None = None, block_size: int = 4096
) -> Iterator[pa.RecordBatch]:
    paths = sorted((root / "commitlog").iterdir())
    segments = [Segment(str(path), int(path.name), path.stat().st_size) for path in paths]
    for split in plan_splits(segments, 1 << 40, LogPart(until=until)):
        with files.RangeReader(split.segment.path) as reader:
            decode = DecodeRules(check_crc=False, split_parser=rules.split_parser, properties=rules.properties)
            for block in ChainWalk(BlockWindow(reader, split.segment), split, split.start, decode, block_size):
                yield record_batch(block, rules)


def rows(root: Path, rules: RowRules, **more: Any) -> list[dict[str, Any]]:
    found = [batch for batch in batches(root, rules, **more) if len(batch)]
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(schemas.select(rules.columns))
    return [_with_dicts(row) for batch in found for row in batch.to_pylist()]


def _with_dicts(row: dict[str, Any]) -> dict[str, Any]:
    if "properties" in row:
        pairs = row["properties"]
        row["properties"] = dict(pairs)
        assert len(row["properties"]) == len(pairs), "a name occurs twice in a map"
    return row


def rules_for(version: tuple[int, ...], delays: Sequence[int] = DELAYS, **more: Any) -> RowRules:
    name = ".".join(map(str, version[:2]))
    rules = rules_of("5.5" if version >= (5, 4) else name if name in ("4.6", "4.9", "5.1", "5.3") else "5.3")
    return RowRules(DispatchRules(tuple(delays), index_tags=rules.index_tags), rules.split_parser, **more)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("store", "zone"),
    [
        pytest.param(store, zone, id=f"{store}-{zone}", marks=() if store in some[at::2] else pytest.mark.slow)
        for some in [golden.newest_of_each_scenario()]
        for store in golden.stores()
        for at, zone in enumerate(("UTC", "Asia/Shanghai"))
    ],
)
def test_every_record_of_a_real_store(store: GoldenStore, zone: str) -> None:
    root = golden.unpack(store)
    broker = BrokerSettings.of(store.version, store.settings)
    rules = rules_for(
        store.version_tuple, tuple(broker.delays.values()), columns=ALL, time_zone=zone, cluster="c", broker="b"
    )
    expected = messages_model.rows(broker_model.read_segments(root), broker, until=store.end_offset, zone=zone)
    found = rows(root, rules, until=store.end_offset)
    assert found == [{"cluster": "c", "broker": "b", **row} for row in expected]
    assert len(found) == store.entry["counts"]["messages"]


@given(
    log=strategies.logs(strategies.LogShape(stale=False, odd_blanks=False)),
    split_parser=st.booleans(),
    block_size=st.integers(1, 9000),
)
@settings(max_examples=min(60, settings.default.max_examples))
def test_every_record_of_drawn_logs(
    tmp_path_factory: pytest.TempPathFactory, log: LogBuilder, split_parser: bool, block_size: int
) -> None:
    """Odd properties, malformed text and every time of 64 bits."""
    root = log.write(tmp_path_factory.mktemp("store"))
    version = (4, 9, 0) if split_parser else (5, 3, 3)
    broker = BrokerSettings(
        version=(4, 6, 1) if split_parser else version, mapped_file_size_commit_log=log.segment_size
    )
    rules = RowRules(DispatchRules(DELAYS), split_parser, columns=ALL)
    magic = {placed.offset for placed in log.records if len(placed.message.topic_bytes) > 127}
    if split_parser and magic:
        return
    expected = [{"cluster": None, "broker": None, **row} for row in messages_model.rows(log.segments, broker)]
    assert rows(root, rules, block_size=block_size) == expected


def one_log(tmp_path: Path, **fields: Any) -> Path:
    log = LogBuilder(1 << 16)
    log.message(topic="A")
    log.message(topic="A", **fields)
    return log.write(tmp_path)


def test_only_the_columns_asked_for_in_their_order(tmp_path: Path) -> None:
    root = one_log(tmp_path, tags="t", keys="a b", uniq_key="u")
    assert rows(root, rules_for((5, 3), columns=("tags", "keys")))[1] == {"tags": "t", "keys": ["a", "b"]}
    columns = ("size", "topic", "store_timestamp", "store_host", "offset_msg_id", "body", "dispatched")
    assert [row["topic"] for row in rows(root, rules_for((5, 3), columns=columns))] == ["A", "A"]


def test_each_column_alone_reads_its_properties() -> None:
    """``PROPERTIES_OF`` says which: with all of them a column is the same."""
    store = next(store for store in golden.stores() if store.name.startswith("base-clean-5.5"))
    root, names = golden.unpack(store), [name for name in schemas.MESSAGES.names if name != "properties"]
    whole = rows(root, rules_for((5, 5)))
    for name in names:
        assert rows(root, rules_for((5, 5), columns=(name,))) == [{name: row[name]} for row in whole]


@pytest.mark.parametrize("time", [-(1 << 63), (1 << 63) - 1, 253_402_300_800_000, -62_135_596_800_001])
def test_times_that_no_calendar_has(tmp_path: Path, time: int) -> None:
    root = one_log(tmp_path, store_timestamp=time, born_timestamp=time)
    row = rows(root, rules_for((5, 3), time_zone="Pacific/Kiritimati"))[1]
    assert (row["store_timestamp"], row["born_timestamp"], row["store_date"]) == (None, None, None)


@pytest.mark.parametrize(
    ("zone", "time", "day"),
    [
        ("Europe/Berlin", "2024-06-30T22:30", "2024-07-01"),
        ("Europe/Berlin", "2040-06-30T22:30", "2040-07-01"),  # after the last change that the zone's file lists
        ("Europe/Paris", "1911-03-10T23:55", "1911-03-10"),  # at 23:50:39 the clock went back by 9 min 21 s
        ("America/St_Johns", "1919-05-06T02:31", "1919-05-06"),  # at 02:30:52 it became midnight: summer time
        ("America/New_York", "2200-07-02T04:30", "2200-07-02"),
        ("Africa/Monrovia", "1972-01-07T00:44:29", "1972-01-06"),  # at 00:44:30 clocks were set to UTC
        ("Africa/Monrovia", "1972-01-07T00:44:30", "1972-01-07"),
    ],
)
def test_the_date_in_a_time_zone(tmp_path: Path, zone: str, time: str, day: str) -> None:
    milliseconds = int(datetime.fromisoformat(time + "+00:00").timestamp()) * 1000
    root = one_log(tmp_path, store_timestamp=milliseconds)
    assert rows(root, rules_for((5, 3), time_zone=zone))[1]["store_date"] == date.fromisoformat(day)


def test_a_property_that_occurs_twice_has_its_last_value(tmp_path: Path) -> None:
    properties = b"a\x01first\x02TAGS\x01x\x02a\x01last\x02TAGS\x01y\x02b\xff\x011\x02b\xfe\x012\x02"
    row = rows(one_log(tmp_path, properties=properties), rules_for((5, 3)))[1]
    assert row["properties"] == {"a": "last", "TAGS": "y", "b\ufffd": "2"}
    assert row["tags"] == "y"


def test_columns_and_their_order() -> None:
    """The contract with everybody who reads the table."""
    assert ", ".join(schemas.MESSAGES.names) == (
        "cluster, broker, store_date, commit_log_offset, size, topic, queue_id, queue_offset, tags, tags_code, keys, "
        "uniq_key, offset_msg_id, flag, sys_flag, transaction_type, reconsume_times, prepared_transaction_offset, "
        "born_timestamp, born_host, store_timestamp, store_host, body_crc, body_size, properties, magic_code, "
        "dispatched, salvaged, delay_level, timer_due, real_topic, inner_num, queue_run, log_run"
    )
    made = schemas.to_spark(schemas.MESSAGES_WITH_BODY)
    assert made.names == [*schemas.MESSAGES.names, "body"]
    assert all(field.nullable and len(field.metadata["comment"]) > 10 for field in made)
    assert made["keys"].dataType == spark.ArrayType(spark.StringType())
    assert made["properties"].dataType == spark.MapType(spark.StringType(), spark.StringType())
    assert {made[name].dataType for name in ("born_timestamp", "store_timestamp")} == {spark.TimestampType()}
    assert set(schemas.STATISTICS_COLUMNS) | set(schemas.PARTITION_COLUMNS) <= set(schemas.MESSAGES.names)


# -------------------------------------------------------------------------------------------------- ordered rows
DAY = 86_400_000
COLUMNS = ("store_date", "topic", "body", "queue_id", "commit_log_offset", "keys", "uniq_key", "born_host",
           "store_host", "offset_msg_id", "properties")  # fmt: skip
RULES = RowRules(DispatchRules(()), columns=COLUMNS)
HOSTS = (("10.0.0.1", 1), ("fe80::2", 70000))


def blocks(log: LogBuilder, tmp_path: Path, rules: RowRules, block_size: int) -> Iterator[RecordBlock]:
    (path,) = (log.write(tmp_path / "store") / "commitlog").iterdir()
    segment = Segment(str(path), 0, path.stat().st_size)
    proven = ProvenRange(Split(0, segment, 0, log.end_offset, log.end_offset, 0), len(log.records))
    yield from proven_blocks(proven, DecodeRules(properties=rules.properties), block_size)


def a_log(*rows: tuple[str, int, int]) -> LogBuilder:
    """Records of topic, queue id and day, each with keys, hosts and a body of its own; day 99 is no date."""
    log = LogBuilder(1 << 16)
    for number, (topic, queue_id, day) in enumerate(rows):
        time = 1 << 62 if day == 99 else day * DAY
        log.message(
            Message(topic=topic, queue_id=queue_id, store_timestamp=time, body=b"body %d" % number),
            keys=f"k{number}", uniq_key=None if number % 3 else f"u{number}",
            born_host=HOSTS[number % 2], store_host=HOSTS[number // 2 % 2],
        )  # fmt: skip
    return log


ROWS = [("B", 1, 1), ("A", 2, 0), ("B", 0, 99), ("A", 1, 1), ("B", 1, 0), ("A", 2, 0), ("AA", 0, 0), ("A", 10, 1)]


def said(table: pa.Table) -> list[dict[str, Any]]:
    return [{**row, "properties": dict(row["properties"])} for row in table.to_pylist()]


def in_order(log: LogBuilder, *sorted_by: str) -> list[dict[str, Any]]:
    """The rows as they should be, made from what was written."""
    rows = []
    for number, placed in enumerate(log.records):
        message = placed.message
        (born, born_port), (stored, store_port) = message.born_host, message.store_host
        keys = {"KEYS": f"k{number}"} | ({} if number % 3 else {"UNIQ_KEY": f"u{number}"})
        day = None if message.store_timestamp == 1 << 62 else (message.store_timestamp or 0) // DAY
        address = "FE800000000000000000000000000002" if ":" in stored else "0A000001"
        rows.append({
            "store_date": None if day is None else date(1970, 1, 1 + day),
            "topic": message.topic, "body": b"body %d" % number, "queue_id": message.queue_id,
            "commit_log_offset": placed.offset,
            "keys": [f"k{number}"], "uniq_key": keys.get("UNIQ_KEY"),
            "born_host": f"[{born}]:{born_port}" if ":" in born else f"{born}:{born_port}",
            "store_host": f"[{stored}]:{store_port}" if ":" in stored else f"{stored}:{store_port}",
            "offset_msg_id": f"{address}{store_port:08X}{placed.offset:016X}",
            "properties": keys,
        })  # fmt: skip
    order = {"store_date": lambda row: (row["store_date"] is None, row["store_date"] or date.min)}
    return sorted(rows, key=lambda row: [order.get(name, lambda row, name=name: row[name])(row) for name in sorted_by])


@pytest.mark.parametrize("drawn", [ROWS, [("A", 0, 0), ("A", 1, 0), ("B", 0, 0)], [("A", 0, 0)] * 3, [("A", 3, 2)]])
@pytest.mark.parametrize("block_size", [200, 700, 1 << 20])
@pytest.mark.parametrize("encoded", [False, True])
def test_rows_are_in_order_and_whole(
    tmp_path: Path, block_size: int, encoded: bool, drawn: list[tuple[str, int, int]]
) -> None:
    log, rules = a_log(*drawn), replace(RULES, encoded=encoded)
    rows = OrderedRows(rules)
    for block in blocks(log, tmp_path, rules, block_size):
        rows.add(block)
    assert rows.rows == len(drawn)
    table = rows.chunk()
    assert table.schema.names == list(COLUMNS)
    assert said(table) == in_order(log, "store_date", "topic", "queue_id", "commit_log_offset")
    assert (rows.rows, rows.size) == (0, 0)


@pytest.mark.parametrize(
    ("without", "sorted_by"),
    [
        ("store_date", ("topic", "queue_id", "commit_log_offset")),
        ("topic", ("store_date", "commit_log_offset")),
        ("queue_id", ("store_date", "commit_log_offset")),
    ],
)
def test_what_is_no_column_is_no_order(tmp_path: Path, without: str, sorted_by: tuple[str, ...]) -> None:
    log = a_log(*ROWS)
    rows = OrderedRows(replace(RULES, columns=tuple(name for name in COLUMNS if name != without)))
    for block in blocks(log, tmp_path, rows.rules, 700):
        rows.add(block)
    expected = [{name: value for name, value in row.items() if name != without} for row in in_order(log, *sorted_by)]
    assert said(rows.chunk()) == expected


def test_a_second_chunk_has_nothing_of_the_first(tmp_path: Path) -> None:
    log, rows, chunks = a_log(*ROWS), OrderedRows(RULES), []
    for block in blocks(log, tmp_path, RULES, 700):
        rows.add(block)
        chunks += said(rows.chunk())
    assert sorted(row["commit_log_offset"] for row in chunks) == [placed.offset for placed in log.records]
    assert sorted(chunks, key=lambda row: int(row["commit_log_offset"])) == in_order(log, "commit_log_offset")


def test_foreign_records_are_no_rows(tmp_path: Path) -> None:
    log = a_log(("A", 0, 0), ("B", 0, 0))
    log.foreign_record(log.records[0])
    rows = OrderedRows(RULES)
    (block,) = blocks(log, tmp_path, RULES, 1 << 20)
    assert len(block) == 3
    rows.add(block)
    rows.add(block.take(np.array([2])))
    assert rows.rows == 2
    assert len(rows._blocks) == 1
    assert said(rows.chunk()) == in_order(log, "commit_log_offset")


def test_a_chunk_is_full_by_its_rows_or_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks(a_log(*ROWS), tmp_path, RULES, 1 << 20)
    rows = OrderedRows(RULES)
    rows.add(block)
    alone = record_batch(block, RULES)["body"]
    # Fixed fields, hosts and properties, and bodies, each with offsets of four bytes.
    assert rows.size >= len(ROWS) * 120 + alone.nbytes
    assert not rows.is_full
    for name, most in (("_CHUNK_ROWS", rows.rows), ("_CHUNK_BYTES", rows.size)):
        with monkeypatch.context() as patch:
            patch.setattr(ordered_rows, name, most + 1)
            assert not rows.is_full
            patch.setattr(ordered_rows, name, most)
            assert rows.is_full


def by_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["commit_log_offset"]))


@pytest.mark.parametrize("seed", range(12))
def test_the_ends_of_runs(tmp_path: Path, seed: int) -> None:
    """Over days; some messages go to no queue, some have many numbers of theirs, some no time."""
    random = Random(seed)
    log, number = LogBuilder(1 << 16), {queue: random.choice((0, 5)) for queue in "ABC"}
    for _ in range(120):
        topic = random.choice("ABC" if seed % 2 else "A")
        batch = random.choice((0, 0, 0, 3))
        given = {"INNER_NUM": str(batch), "INNER_BASE": str(number[topic])} if batch else {}
        log.message(
            topic=topic, queue_id=0, queue_offset=number[topic], properties=given,
            sys_flag=4 if random.random() < 0.1 else 0,
            store_timestamp=1 << 62 if random.random() < 0.05 else random.randint(0, seed) * DAY // 4,
        )  # fmt: skip
        number[topic] += (batch or 1) + random.choice((0, 0, 0, 0, 0, 0, 1, -2))
    rules = RowRules(DispatchRules(()))
    rows, plain = OrderedRows(rules), []
    for block in blocks(log, tmp_path, rules, 700):
        plain += record_batch(block, rules).to_pylist()
        rows.add(block)
    assert {row[name] for row in plain for name in schemas.RUNS} == {None}
    messages_model.mark_runs(plain)
    found = rows.chunk().to_pylist()
    assert by_offset(found) == plain
    assert [row["queue_run"] for row in by_offset(found)].count(1) > 2


# ------------------------------------------------------------------------------------------------- proven ranges
RANGE_RULES = RowRules(DispatchRules(()), columns=("topic", "queue_id", "commit_log_offset"))


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(4096)
    for topic, queue_id in (("B", 1), ("A", 1), ("B", 0), ("A", 0), ("B", 1)):
        log.message(topic=topic, queue_id=queue_id)
    log.foreign_record(log.records[0])
    return log


@pytest.fixture
def ranges(log: LogBuilder, tmp_path: Path) -> tuple[ProvenRange, ...]:
    reading = read(log.write(tmp_path / "store"))
    return tuple(ProvenRange.of(scan.report, scan.records) for scan in reading.scans if scan.records)


def test_rows_of_a_range_by_queue_and_in_log_order(log: LogBuilder, ranges: tuple[ProvenRange, ...]) -> None:
    (batch,) = ReadRanges(ranges, RANGE_RULES).chunks(ranges[0])
    at = [record.offset for record in log.records]
    found = [tuple(row.values()) for row in batch.to_pylist()]
    assert found == [("A", 0, at[3]), ("A", 1, at[1]), ("B", 0, at[2]), ("B", 1, at[0]), ("B", 1, at[4])]


def test_rows_from_an_offset_on_and_of_a_queue(log: LogBuilder, ranges: tuple[ProvenRange, ...]) -> None:
    wanted = ReadRanges(ranges, RANGE_RULES, from_offset=log.records[1].offset, topics=(TopicFilter("B", 1),))
    (table,) = wanted.chunks(ranges[0])
    assert table["commit_log_offset"].to_pylist() == [log.records[4].offset]


def test_another_number_of_records_is_a_log_that_changed(ranges: tuple[ProvenRange, ...]) -> None:
    (proven,) = ranges
    assert sum(len(block.offsets) for block in proven_blocks(proven, DecodeRules())) == 6
    with pytest.raises(WriteFailed, match="changed while it was read"):
        list(proven_blocks(ProvenRange(proven.split, proven.records + 1), DecodeRules()))


def test_ranges_with_records_from_an_offset_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProvenRange, "of", lambda report, records: (report.end, records))
    scans: Any = [
        SimpleNamespace(report=SimpleNamespace(start=start, end=end), records=records)
        for start, end, records in ((0, 10, 1), (None, 20, 2), (20, 30, 0), (30, 40, 4), (40, 50, 5))
    ]
    assert proven_ranges(scans) == ((10, 1), (40, 4), (50, 5))
    assert proven_ranges(scans, 39) == ((40, 4), (50, 5))
    assert proven_ranges(scans, 40) == ((50, 5),)
