"""Which offsets are those of records: only those to which the sizes lead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.store_builder import LogBuilder

from storeformat.log.segments import Segment, Split
from storeformat.record.decode import DecodeRules
from udfs.log.find_records import FindRecords, RecordFound, RecordsAsked


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


def test_records_that_were_asked_for(log: LogBuilder, tmp_path: Path) -> None:
    first, second, last = log.records
    foreign = second.end
    asked = np.array([first.offset, first.offset + 1, second.offset, foreign, last.offset])
    split = split_of(log, tmp_path, first.offset, log.end_offset)
    found = list(FindRecords(DecodeRules())(iter([RecordsAsked(split, asked), RecordsAsked(split, asked[2:3])])))
    assert found == [
        RecordFound(8192, first.size, b"A", 3),
        RecordFound(second.offset, second.size, b"B", 5),
        RecordFound(last.offset, last.size, b"A", 7),
        RecordFound(second.offset, second.size, b"B", 5),
    ]


def test_a_split_without_a_record_has_none(log: LogBuilder, tmp_path: Path) -> None:
    offsets = np.array([record.offset for record in log.records])
    nothing = RecordsAsked(split_of(log, tmp_path, None, log.end_offset), offsets)
    some = RecordsAsked(split_of(log, tmp_path, log.records[1].offset, log.records[1].end), offsets)
    found = list(FindRecords(DecodeRules())(iter([nothing, some])))
    assert [one.offset for one in found] == [log.records[1].offset]
