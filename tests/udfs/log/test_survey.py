"""The task that surveys a damaged segment: survivors after the break, by the framing of the segment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.store_builder import LogBuilder

from storeformat.errors import RecordDefect
from storeformat.log.dledger import EntryFraming
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.survey import Broken
from udfs.log import survey
from udfs.log.survey import SurveyTask


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
        monkeypatch.setattr(survey, name, lambda *_, name=name, keep_crc_failures: (name, keep_crc_failures))
    assert list(SurveyTask(DecodeRules())(iter([broken]))) == [(looks, False)]
    assert list(SurveyTask(DecodeRules(), keep_crc_failures=True)(iter([broken]))) == [(looks, True)]
