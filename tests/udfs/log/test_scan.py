"""What the scan of one split says: a split has the records whose first byte lies in it."""

from __future__ import annotations

import numpy as np
import pytest
from support.reading import read_segments
from support.store_builder import ROLLBACK, LogBuilder

from storeformat.errors import WriteFailed
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
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


@pytest.mark.parametrize("split_size", [1, 100, 1000])
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
    assert found.kernels in ("numba", "numpy")
