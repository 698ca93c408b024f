"""What scans leave for later stages."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reading import read_segments
from support.store_builder import LogBuilder
from support.uniform_log import uniform_log

from jobs.log.log_scan import sharing
from storeformat.errors import MissingInput, TotalsDisagree
from storeformat.kernels import UnitColumns
from storeformat.log.chain import ChainReport
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, plan_splits
from storeformat.queues.batch_consume_queue import UNIT, parse_units
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import BatchUnits, DispatchRules, IndexEntries
from udfs.log import batch_queues
from udfs.log.batch_queues import BATCH_RUN, BatchRunWriter
from udfs.log.scan import ScanTask, SplitScan, scan_split
from udfs.log.staged_files import NOTHING_STAGED, Readers, Slices, Staged, StagedFile
from udfs.log.staged_runs import EntryWriter, RunWriter
from udfs.log.subscriptions import SUBSCRIPTION_PROPERTIES, Subscription
from udfs.log.timers import MOST_QUEUES, REAL_PROPERTIES, TIMER_PROPERTIES, TimerEvent


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
        SplitScan(ChainReport(replace(split), split.start, split.stop, ChainEnd.STOP), topics=tuple(map(bytes, names)))
        for split, names in zip(splits, topics, strict=True)
    ]
    first, second, third = sharing(scans, splits)
    assert [first.topics, second.topics, third.topics] == topics
    assert first.topics is second.topics
    assert third.topics[0] is first.topics[1]
    assert [scan.report.split for scan in (first, second, third)] == splits
    assert all(scan.report.split is split for scan, split in zip((first, second, third), splits, strict=True))
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
    assert (here.units.count, here.entries.count) == (log.messages, 3 * log.messages)
    assert (here.units.path, here.entries.path) == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]
    (tmp_path / "staging").mkdir()
    there = scan_split(split, replace(task, staging=str(tmp_path / "staging")))
    assert replace(there.units, path="") == here.units
    assert replace(there.entries, path="") == here.entries
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
RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *SUBSCRIPTION_PROPERTIES))


def found_in(log: LogBuilder, split_size: int = 1 << 30) -> set[Subscription]:
    scans = read_segments(log.segments, split_size, decode_rules=RULES).scans
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
