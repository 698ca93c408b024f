"""What the scan of one split says: a split has the records whose first byte lies in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.reading import read_segments
from support.store_builder import ROLLBACK, LogBuilder, Message

from storeformat.errors import RecordDefect, WriteFailed
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, Split, plan_splits
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from udfs.log import scan as scanning
from udfs.log.scan import Dispatched, ScanTask, SplitScan, StoreTimes


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


def test_queues_that_are_not_wanted_have_no_units() -> None:
    log = a_log()
    log.message(topic="A", queue_id=2)
    found = scan(log, topics=(TopicFilter("A", 2),))
    queues = zip(found.runs.topic_codes, found.runs.queue_ids, strict=True)
    assert [(found.topics[code], queue_id) for code, queue_id in queues] == [(b"A", 2)]
    assert found.records == 4


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


def test_runs_are_packed_as_they_are() -> None:
    found = scan(a_log())
    assert np.array_equal(found.runs.counts, [2])


def test_the_report_of_a_sound_split() -> None:
    report = read_segments(a_log().segments, 50).scans[0].report
    assert (report.ended, report.defect) == (ChainEnd.STOP, RecordDefect.OK)
    assert (report.rest_is_zero, report.plausible) == (True, False)


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
        for path in (found.units.path, found.units.times_path, found.entries.path):
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
    assert some.batches.runs.messages.tolist() == [3]
    assert some.batches.offset_sum == log.records[0].offset + single.offset
    assert some.dispatched.last_unit == log.records[-1].offset


def test_the_last_unit_may_be_of_a_batch_queue() -> None:
    log = LogBuilder()
    log.message(topic="A")
    last = log.message(topic="B")
    found = scan(log, dispatch_rules=DispatchRules((), batch_topics=frozenset({b"B"})))
    assert found.dispatched == Dispatched(last.offset, last.offset, -1)


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
