"""The whole survey: survivors, a BLANK, zeros, and how they share a range."""

from __future__ import annotations

from typing import Any

import pytest
from support.in_memory import Bytes
from support.store_builder import LogBuilder
from support.surveying import SIZE, a_log, changed, surveyed, without

from storeformat.errors import RecordDefect
from storeformat.log import chain_walk
from storeformat.log.block_window import BlockWindow
from storeformat.log.segments import Segment
from storeformat.record.decode import RecordBlock, decode
from storeformat.salvage import survey as survey_module
from storeformat.salvage.evidence import Neighbours, SurvivorJudge
from storeformat.salvage.findings import DeadRange, Finding
from storeformat.salvage.survey import _carved, zeros_from


def test_a_record_of_a_rejected_chain_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains are rejected at first."""
    log, records = a_log()
    judged: list[int] = []

    def none_survives(_: SurvivorJudge, block: RecordBlock, strict_below: int) -> None:
        judged.extend(block.offsets.tolist())

    monkeypatch.setattr(SurvivorJudge, "first_survivor", none_survives)
    surveyed(without(log.segments[0], records[4], records[7]))
    assert judged == [placed.offset for placed in (*records[5:7], *records[8:])]


def test_of_many_damaged_records_each_is_decoded_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(1 << 17)
    for _ in range(1000):
        log.message(body=b"abc", body_crc=1)
    rows = 0

    def counting(buffer: Any, offset: int, positions: Any, rules: Any) -> Any:
        nonlocal rows
        rows += len(positions)
        return decode(buffer, offset, positions, rules)

    monkeypatch.setattr(chain_walk, "decode", counting)
    assert len(surveyed(log.segments[0]).gaps) > 0
    assert rows < 100 * 1000


def test_a_blank_closes_what_survived() -> None:
    log, records = a_log()
    log.blank()
    found = surveyed(changed(log.segments[0], records[5].offset + 90, b"\xee"))
    assert found.blank == (records[-1].end, SIZE)
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [
        (records[5].offset, records[5].end, Finding.RECORD)
    ]
    assert found.pieces == ((records[5].end, records[-1].end),)


def test_a_blank_after_what_a_second_look_lets_out() -> None:
    log = LogBuilder(SIZE)
    for queue in (0, 0, 1, 0, 1, 0, 1):
        log.clock += 1
        log.message(topic="T", queue_id=queue, body=b"body %15d" % len(log.records))
    log.blank()
    records = list(log.records)
    data = without(log.segments[0], records[1], records[2], records[4])
    proven = records[0].message
    found = surveyed(data, Neighbours({(b"T", 0): 1}, whole=True, before=proven.store_timestamp))
    assert found.pieces == ((records[3].offset, records[3].end), (records[5].offset, records[6].end))
    assert found.blank == (records[6].end, SIZE)
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [
        (records[1].offset, records[2].end, Finding.BYTES),
        (records[4].offset, records[4].end, Finding.BYTES),
    ]


def test_zeros_from_somewhere_on() -> None:
    for data, begin, first in ((b"ab\0\0", 0, 2), (b"ab\0\0", 3, 3), (b"\0\0", 0, 0), (b"ab", 0, 2), (b"a\0b\0", 0, 3)):
        window = BlockWindow(Bytes(data), Segment("x", 0, len(data)))  # type: ignore[arg-type]
        assert zeros_from(window, begin, len(data)) == first, data


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1 << 20])
def test_zeros_are_looked_for_block_by_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "SURVEY_BLOCK", block)
    data = b"abc\0d" + bytes(9)
    window = BlockWindow(Bytes(data), Segment("x", 0, len(data)))  # type: ignore[arg-type]
    assert [zeros_from(window, begin, len(data)) for begin in (0, 4, 5, 9)] == [5, 5, 5, 9]
    assert zeros_from(window, 0, 4) == 3


def test_pieces_are_cut_out_of_gaps() -> None:
    def gap(begin: int, end: int) -> DeadRange:
        return DeadRange(begin, end, Finding.AMBIGUOUS, RecordDefect.OK)

    gaps = [gap(0, 10), gap(10, 20), gap(30, 40)]
    assert list(_carved(gaps, [])) == gaps
    assert list(_carved(gaps, [(20, 30), (0, 0)])) == gaps
    assert list(_carved(gaps, [(33, 35), (2, 4), (6, 7)])) == [
        gap(0, 2), gap(4, 6), gap(7, 10), gap(10, 20), gap(30, 33), gap(35, 40),
    ]  # fmt: skip
    assert list(_carved(gaps, [(5, 15), (30, 40)])) == [gap(0, 5), gap(15, 20)]
