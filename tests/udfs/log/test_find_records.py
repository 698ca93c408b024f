"""Which offsets are those of records: only those to which the sizes lead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.store_builder import LogBuilder

from storeformat.errors import RecordDefect
from storeformat.log.dledger import EntryFraming
from storeformat.log.segments import Segment, Split
from storeformat.record.decode import DecodeRules
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.survey import Broken
from udfs.log import find_records
from udfs.log.find_records import FindRecords, RecordFound, RecordsAsked, SurveyTask


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


@pytest.mark.parametrize(("framing", "looks"), [(None, "survey"), (EntryFraming(), "survey_entries")])
def test_a_log_of_entries_is_surveyed_by_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framing: EntryFraming | None, looks: str
) -> None:
    broken, _ = a_break(tmp_path)
    if framing is not None:
        broken = replace(broken, segment=replace(broken.segment, framing=framing))
    for name in ("survey", "survey_entries"):
        monkeypatch.setattr(find_records, name, lambda *_, name=name, keep_crc_failures: (name, keep_crc_failures))
    assert list(SurveyTask(DecodeRules())(iter([broken]))) == [(looks, False)]
    assert list(SurveyTask(DecodeRules(), keep_crc_failures=True)(iter([broken]))) == [(looks, True)]
