"""Scans of splits, searches in them, and what a task's failures are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.reading import read_segments
from support.store_builder import ROLLBACK, LogBuilder, Message

from storeformat.errors import DamagedLog, RecordDefect, WriteFailed
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, Split, plan_splits
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.survey import Broken
from udfs import failures
from udfs.failures import Failure, FailuresAsRows
from udfs.log import scan as scanning
from udfs.log.log_copies import MadeSegment, SharedRange, compare_copies, make_segment, ranges_by_segment
from udfs.log.scan import Dispatched, ScanTask, SplitScan, StoreTimes
from udfs.log.staged_runs import times_path
from udfs.log.survey import SurveyTask


# ---------------------------------------------------------------------------------------------------------- scan
def a_log() -> LogBuilder:
    log = LogBuilder()
    log.message(topic="A", queue_id=1, keys="x y", store_timestamp=1_700_000_000_500)
    log.message(topic="B", body=b"half", sys_flag=ROLLBACK)
    log.message(topic="A", queue_id=1, store_timestamp=1_700_000_000_100)
    return log


def scan(log: LogBuilder, **task: object) -> SplitScan:
    (found,) = read_segments(log.segments, 1 << 30, **{"with_entries": True, **task}).scans
    return found


def test_the_totals_of_a_split() -> None:
    log = a_log()
    found, sizes = scan(log), [record.size for record in log.records]
    assert (found.records, found.record_bytes, found.units.count, found.entries.count) == (3, sum(sizes), 2, 2)
    assert found.dispatched == Dispatched(sizes[0] + sizes[1], sizes[0] + sizes[1], 0)
    assert (found.units.offset_sum, found.entries.offset_sum) == (sizes[0] + sizes[1], 0)
    times = (1_700_000_000_500, 1_700_000_000_501, 1_700_000_000_100)
    assert found.times == StoreTimes(first=times[0], last=times[2], recent=times, latest=times[1])
    assert (found.report.start, found.report.end, found.head_bytes) == (0, sum(sizes), 0)


@pytest.mark.parametrize("split_size", [pytest.param(1, marks=pytest.mark.thorough), 100, 1000])
def test_each_record_is_in_one_split(split_size: int) -> None:
    log = a_log()
    scans = read_segments(log.segments, split_size, with_entries=True).scans
    assert sum(one.records for one in scans) == 3
    for one in scans:
        split = one.report.split
        inside = [record for record in log.records if split.start <= record.offset < split.stop]
        assert (one.records, one.record_bytes) == (len(inside), sum(record.size for record in inside))


def test_a_foreign_record_is_stepped_over_and_told() -> None:
    log = a_log()
    offset = log.foreign_record(log.records[0])
    found = scan(log)
    assert found.foreign_records == ((offset, log.records[0].size),)
    (ref,) = found.foreign_refs
    assert (ref.offset, ref.topic, ref.queue_id, ref.queue_offset) == (offset, b"A", 1, 0)
    assert found.records == 3
    assert (found.dispatched.last, found.dispatched.last_unit) == (offset, log.records[2].offset)


def test_a_cluster_must_see_the_staging_directory(tmp_path: object) -> None:
    task = ScanTask(f"{tmp_path}/gone", DecodeRules(), DispatchRules(()))
    with pytest.raises(WriteFailed, match="not every machine"):
        list(task(iter([])))


@pytest.mark.parametrize(("data", "zero"), [(bytes(300), True), (b"x" * 300, False)])
def test_a_split_without_any_record(tmp_path: Path, data: bytes, zero: bool) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(200) + data + bytes(524))
    split = Split(3, Segment(str(path), 0, 1024), 200, 500, 1024)
    (found,) = ScanTask("", DecodeRules(), DispatchRules(()))(iter([split]))
    report = found.report
    assert (report.split, report.start, report.end, report.rest_is_zero) == (split, None, 200, zero)
    assert (report.ended, report.defect) == (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)


def test_staged_files_have_names_of_their_own(tmp_path: Path) -> None:
    """Of each split, however often it is read."""
    log = a_log()
    (tmp_path / "staging").mkdir()
    (segment,) = (log.write(tmp_path) / "commitlog").iterdir()
    task = ScanTask(str(tmp_path / "staging"), DecodeRules(), DispatchRules(()), with_times=True)
    splits = plan_splits([Segment(str(segment), 0, segment.stat().st_size)], 150)
    names = []
    for found in task(iter([*splits, *splits])):
        times = times_path(found.units.path) if found.units.path else ""
        for path in (found.units.path, times, found.entries.path):
            names.append(Path(path).name)
            assert not path or names[-1].startswith(f"split-{found.report.split.number:06d}-")
    names = [name for name in names if name]
    assert len(set(names)) == len(names) == len(list((tmp_path / "staging").iterdir())) > 6


def test_queues_of_all_kinds_are_told() -> None:
    """Two messages at 5 and one at 7 of a batch queue, which is cut out by a filter; and what is no batch queue."""
    log = LogBuilder()
    log.queue_offsets["B", 4] = 5
    log.inner_batch(Message(topic="B", queue_id=4), 2)
    single = log.message(topic="B", queue_id=4)
    log.message(topic="B", queue_id=1)
    log.message(topic="A", queue_id=2)
    rules = DispatchRules((), batch_topics=frozenset({b"B"}))
    everything = scan(log, dispatch_rules=rules)
    assert everything.queues() == {("B", 4), ("B", 1), ("A", 2)}
    assert (everything.batches.count, everything.units.count) == (3, 1)
    assert everything.dispatched.last_unit == log.records[-1].offset
    some = scan(log, dispatch_rules=rules, topics=(TopicFilter("B", 4),))
    assert (some.queues(), some.topics, some.batches.count) == ({("B", 4)}, (b"B", b"A"), 2)
    assert some.batch_runs.messages.tolist() == [3]
    assert some.batches.offset_sum == log.records[0].offset + single.offset
    assert some.dispatched.last_unit == log.records[-1].offset
    last = log.message(topic="B")
    assert scan(log, dispatch_rules=rules).dispatched == Dispatched(last.offset, last.offset, -1)


def test_what_a_repair_put_in_the_place_of_lost_records_is_told() -> None:
    """Their topic is as long as there was room for it; they are rolled back, which a producer's own message is not."""
    log = LogBuilder()
    log.message(topic="A")
    fillers = [log.message(topic="rmq_sys_lost"[:length], sys_flag=ROLLBACK) for length in (12, 1)]
    log.message(topic="rmq_sys_lost")
    log.message(topic="other", sys_flag=ROLLBACK)
    assert scan(log).fillers == tuple((filler.offset, filler.size) for filler in fillers)


def test_of_many_foreign_records_some_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "LISTED", 2)
    log = a_log()
    offsets = [log.foreign_record(log.records[0]) for _ in range(3)]
    for block_size in (200, 1 << 20):
        found = scan(log, block_size=block_size)
        assert [offset for offset, _ in found.foreign_records] == offsets
        assert [ref.offset for ref in found.foreign_refs] == offsets[:2]


# -------------------------------------------------------------------------------------------------- find records
@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(4096, base=8192)
    log.message(topic="A", queue_id=3, body=b"first")
    log.message(topic="B", queue_id=5, body=b"the second")
    log.foreign_record(log.records[0])
    log.message(topic="A", queue_id=7)
    return log


def split_of(log: LogBuilder, tmp_path: Path, first: int | None, stop: int) -> Split:
    path = tmp_path / f"{8192:020d}"
    path.write_bytes(log.segments[8192])
    return Split(0, Segment(str(path), 8192, 4096), 8192, stop, stop, first)


def a_break(tmp_path: Path) -> tuple[Broken, int]:
    """Returns a segment whose second record has lost its head, and where the third begins."""
    log = LogBuilder(4096)
    for _ in range(4):
        log.message(topic="T", body=b"b" * 50)
    content = bytearray(log.segments[0])
    begin, end = log.records[1].offset, log.records[1].end
    content[begin : begin + 40] = b"\xff" * 40
    path = tmp_path / f"{0:020d}"
    path.write_bytes(content)
    near = Neighbours(ends={(b"T", 0): 1}, firsts={}, before=1_700_000_000_001, after=None, room=0, room_after=0)
    return Broken(Segment(str(path), 0, 4096), begin, RecordDefect.ILLEGAL_MAGIC, 4096, near), end


def test_what_follows_the_damage_survives(tmp_path: Path) -> None:
    broken, survivor = a_break(tmp_path)
    (found,) = SurveyTask(DecodeRules())(iter([broken]))
    assert found.pieces[0][0] == survivor
    assert found.gaps[0].begin == broken.start
    assert found.broken == broken


# ---------------------------------------------------------------------------------------------------- log copies
def segment(path: Path, content: bytes) -> Segment:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return Segment(str(path), 0, len(content))


def test_bodies_that_differ_belong_to_two_logs(tmp_path: Path) -> None:
    log, other = LogBuilder(1024), LogBuilder(1024)
    for number in range(2):
        log.message(body=b"mine")
        other.message(body=b"mine" if number == 0 else b"mink")
    one, two = segment(tmp_path / "one", log.segments[0]), segment(tmp_path / "two", other.segments[0])
    first = next(at for at in range(1024) if log.segments[0][at] != other.segments[0][at])
    (difference,) = compare_copies(iter([SharedRange(one, two, 0, log.end_offset)]))
    assert difference == first


def test_a_segment_of_its_own_bytes_and_those_of_a_copy(tmp_path: Path) -> None:
    own, copy = segment(tmp_path / "own", b"a" * 60), segment(tmp_path / "copy", b"b" * 100)
    short = replace(own, size=100, missing=40)
    path = tmp_path / "made" / "0"
    make_segment(MadeSegment(short, str(path), ((10, 20, copy), (70, 80, copy))))
    assert path.read_bytes() == b"a" * 10 + b"b" * 10 + b"a" * 40 + bytes(10) + b"b" * 10 + bytes(20)


def test_ranges_are_cut_at_the_ends_of_a_segment() -> None:
    assert ranges_by_segment([(0, 5), (8, 12), (15, 30), (20, 21)], Segment("x", 10, 10)) == [(10, 12), (15, 20)]


def test_properties_that_differ_without_a_crc_show_no_side_that_is_right(tmp_path: Path) -> None:
    log = LogBuilder(1024)
    record = log.message(body=b"body", keys="k")
    other = bytearray(log.segments[0])
    other[record.end - 2] ^= 1
    sides = segment(tmp_path / "one", log.segments[0]), segment(tmp_path / "other", bytes(other))
    (difference,) = compare_copies(iter([SharedRange(*sides, 0, log.end_offset)]))
    assert difference == record.end - 2


# ------------------------------------------------------------------------------------------------------------- failures
def task(items: Iterator[int | Exception]) -> Iterator[int]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


FULL = OSError(28, "No space left on device", "/full/x")
DAMAGED = DamagedLog("bad size", offset=7, advice="salvage")


@pytest.mark.parametrize("error", [FULL, DAMAGED, WriteFailed("changed")])
def test_a_failure_is_the_last_row_and_survives_the_way(error: Exception) -> None:
    one, failure = pickle.loads(pickle.dumps(list(FailuresAsRows(task, attempts=1)(iter([1, error, 2])))))
    assert (one, type(failure), type(failure.error)) == (1, Failure, type(error))
    assert (str(failure.error), vars(failure.error)) == (str(error), vars(error))


def test_a_defect_stays_an_exception() -> None:
    with pytest.raises(KeyError):
        list(FailuresAsRows(task, attempts=1)(iter([KeyError("x")])))


@pytest.mark.parametrize("error", [FULL, WriteFailed("changed")])
def test_what_could_be_read_elsewhere_is_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        list(FailuresAsRows(task, attempts=4)(iter([error])))
    monkeypatch.setattr(failures, "_attempt", lambda: 4)
    assert list(FailuresAsRows(task, attempts=4)(iter([error]))) == [Failure(error)]  # type: ignore[arg-type]
    assert [type(row) for row in FailuresAsRows(task, attempts=9)(iter([DAMAGED]))] == [Failure]
