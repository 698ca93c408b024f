"""Proven ranges become rows: only those records that a scan proved, sorted by queue in chunks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.reading import read
from support.store_builder import LogBuilder

from storeformat.errors import WriteFailed
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from udfs.table.proven_ranges import ProvenRange, ReadRanges, proven_blocks, proven_ranges
from udfs.table.rows import RowRules

RULES = RowRules(DispatchRules(()), columns=("topic", "queue_id", "commit_log_offset"))


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
    (batch,) = ReadRanges(ranges, RULES).chunks(ranges[0])
    at = [record.offset for record in log.records]
    found = [tuple(row.values()) for row in batch.to_pylist()]
    assert found == [("A", 0, at[3]), ("A", 1, at[1]), ("B", 0, at[2]), ("B", 1, at[0]), ("B", 1, at[4])]


def test_rows_from_an_offset_on_and_of_a_queue(log: LogBuilder, ranges: tuple[ProvenRange, ...]) -> None:
    wanted = ReadRanges(ranges, RULES, from_offset=log.records[1].offset, topics=(TopicFilter("B", 1),))
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
