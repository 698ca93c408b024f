"""What a survey calls each range in which nothing survived."""

from __future__ import annotations

import struct

import pytest
from support.store_builder import Embedded, LogBuilder, Message, Placed, encode_record
from support.surveying import RULES, SIZE, a_log, a_log_of, changed, surveyed, walk

from storeformat.errors import RecordDefect
from storeformat.log.segments import Segment
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.findings import Broken, Finding, Survey
from storeformat.salvage.survey import survey


@pytest.mark.parametrize(
    ("field", "new"),
    [
        pytest.param(0, struct.pack(">i", 17), id="size too small"),
        pytest.param(0, struct.pack(">i", 1 << 30), id="size too large"),
        pytest.param(0, struct.pack(">i", 700), id="size wrong"),
        pytest.param(4, b"\0\0\0\0", id="magic"),
        pytest.param(8, b"\xff\xff\xff\xff", id="crc"),
        pytest.param(84, struct.pack(">i", 3), id="body length"),
        pytest.param(84, struct.pack(">i", -3), id="body length negative"),
        pytest.param(90, b"\xee", id="body"),
    ],
)
def test_one_damaged_field_costs_just_its_record(field: int, new: bytes) -> None:
    log, records = a_log()
    lost = records[7]
    found = surveyed(changed(log.segments[0], lost.offset + field, new))
    assert found.gaps[0].begin == lost.offset
    assert found.gaps[0].end == lost.end
    assert found.gaps[0].finding == Finding.RECORD
    assert found.pieces == ((lost.end, records[-1].end),)
    assert [gap.finding for gap in found.gaps[1:]] == [Finding.ZEROS]


def test_a_lost_record_with_a_sound_head_is_named() -> None:
    log, records = a_log()
    found = surveyed(changed(log.segments[0], records[5].offset + 89, b"\xee"))
    record = found.gaps[0].record
    assert record is not None
    assert (record.topic, record.queue_id, record.queue_offset) == (b"T", 2, 1)
    assert found.gaps[0].defect == RecordDefect.BODY_CRC


def test_a_destroyed_stretch_costs_the_records_in_it() -> None:
    log, records = a_log()
    begin, end = records[4].offset + 3, records[6].offset + 40
    found = surveyed(changed(log.segments[0], begin, b"\xa5" * (end - begin)))
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps[:1]] == [
        (records[4].offset, records[7].offset, Finding.BYTES)
    ]
    assert found.pieces == ((records[7].offset, records[-1].end),)


def test_a_record_that_claims_the_rest_of_its_segment_is_no_blank() -> None:
    """Magic and own offset say that it is one, with a damaged TOTALSIZE."""
    data, records = a_log_of(0, 1, 0, 1)
    lost, follower = records[1], records[2]
    gap = surveyed(changed(data, lost.offset, struct.pack(">i", len(data) - lost.offset))).gaps[0]
    assert (gap.begin, gap.end, gap.finding) == (lost.offset, follower.offset, Finding.RECORD)


def test_old_records_after_a_damaged_blank_stay_out() -> None:
    log = LogBuilder(SIZE)
    for _ in range(30):
        log.message(topic="T", body=bytes(60))
    log.truncate(log.records[10].offset)
    log.clock += 1000
    for _ in range(5):
        log.message(topic="T", body=bytes(61))
    end = log.end_offset
    log.blank()
    data = changed(log.segments[0], end + 4, b"\0")
    near = Neighbours({(b"T", 0): 15}, {(b"T", 0): 15}, log.clock, log.clock + 5, whole=True)
    found = surveyed(data, near)
    assert found.pieces == ()
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [(end, SIZE, Finding.BLANK)]


def test_old_records_after_the_end_are_stale() -> None:
    log = LogBuilder(SIZE)
    for _ in range(30):
        log.message(topic="T", body=bytes(60))
    log.truncate(log.records[10].offset)
    log.clock += 1000
    log.message(topic="T", body=bytes(61))
    found = surveyed(log.segments[0], Neighbours({(b"T", 0): 11}, {}, log.clock, whole=True))
    assert found.pieces == ()
    assert [gap.finding for gap in found.gaps] == [Finding.BYTES, Finding.STALE, Finding.ZEROS]


def test_whole_records_that_may_be_copies_are_named() -> None:
    log = LogBuilder(SIZE)
    for number in range(5):
        log.clock += 1
        copy = Message(topic="T", queue_offset=40, body=b"copy", store_timestamp=log.clock)
        log.message(topic="T", body=Embedded((copy,), lead=b"lead") if number == 2 else bytes(30))
    records = list(log.records)
    holder, size = records[2], len(encode_record(Message(topic="T", body=b"copy"), 0))
    inside = holder.offset + 88 + len(b"lead")
    near = Neighbours({(b"T", 0): 2}, whole=True, before=records[1].message.store_timestamp)
    found = surveyed(changed(log.segments[0], holder.offset, b"\xa5" * 88), near)
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [
        (holder.offset, inside, Finding.BYTES),
        (inside, inside + size, Finding.AMBIGUOUS),
        (inside + size, holder.end, Finding.BYTES),
        (log.end_offset, SIZE, Finding.ZEROS),
    ]
    assert found.pieces == ((holder.end, log.end_offset),)


# ------------------------------------------------------------------------------------------------- an unfinished record
def half_written(written: int, **changes: int) -> tuple[bytes, Placed, Survey]:
    """A log whose last record ends after so many bytes, with zeros after them; its fields are as told."""
    log = LogBuilder(SIZE)
    log.message(topic="T", body=b"first")
    log.message(topic="T", body=b"x" * 40, tags="t", queue_id=0x01010101, **changes)
    last = log.records[-1]
    data = log.segments[0][: last.offset + written].ljust(SIZE, b"\0")
    return data, last, surveyed(data)


WHOLE = 88 + 40 + 2 + 2 + 7
"""Bytes of that record."""


@pytest.mark.parametrize("written", [4, 6, 8, 9, 16, 36, 47, 56, 60, 89, 127, 129, 130])
def test_the_head_of_a_longer_record_and_zeros_are_an_unfinished_one(written: int) -> None:
    """A broker that dies while it writes leaves it; each of these lengths ends with a byte that is not zero."""
    data, last, found = half_written(written)
    assert last.size == WHOLE
    assert data[last.offset + written - 1]
    end = last.offset + written
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [
        (last.offset, end, Finding.UNFINISHED),
        (end, SIZE, Finding.ZEROS),
    ]
    assert (found.pieces, found.blank) == ((), None)


@pytest.mark.parametrize(
    ("written", "at", "new"),
    [
        pytest.param(60, 4, b"\xda\xa3\x20\xa8", id="another magic"),
        pytest.param(60, 28, struct.pack(">q", 7), id="another place"),
        pytest.param(60, 0, struct.pack(">i", 60), id="no longer than what is there"),
        pytest.param(60, 0, struct.pack(">i", 90), id="too small for a record"),
        pytest.param(60, 0, struct.pack(">i", 8192 - 97 + 1), id="longer than its segment"),
        pytest.param(60, 0, struct.pack(">i", -5), id="negative"),
        pytest.param(WHOLE, 0, struct.pack(">i", WHOLE + 10), id="whole, but for its size"),
    ],
)
def test_what_no_dying_broker_leaves_is_damage(written: int, at: int, new: bytes) -> None:
    data, last, _ = half_written(written)
    assert last.offset == 97
    found = surveyed(changed(data, last.offset + at, new))
    assert [gap.finding for gap in found.gaps] == [Finding.BYTES, Finding.ZEROS]


@pytest.mark.parametrize(("noise", "finding"), [(8, Finding.UNFINISHED), (9, Finding.BYTES)])
def test_a_few_bytes_before_zeros_tell_nothing(noise: int, finding: Finding) -> None:
    """As many as a size and a magic have may be the first of a page that did not reach the disk whole."""
    log = LogBuilder(SIZE)
    log.message(topic="T", body=b"first")
    found = surveyed(changed(log.segments[0], log.end_offset, b"\xa5" * noise))
    assert [gap.finding for gap in found.gaps] == [finding, Finding.ZEROS]


def test_a_size_that_just_fits_the_segment_may_be_of_an_unfinished_record() -> None:
    data, last, _ = half_written(60)
    found = surveyed(changed(data, last.offset, struct.pack(">i", SIZE - last.offset)))
    assert [gap.finding for gap in found.gaps] == [Finding.UNFINISHED, Finding.ZEROS]
    data, last, _ = half_written(30)
    found = surveyed(changed(data, last.offset, struct.pack(">i", 92)))
    assert [gap.finding for gap in found.gaps] == [Finding.UNFINISHED, Finding.ZEROS]


@pytest.mark.parametrize("written", [4, 60])
def test_nothing_is_unfinished_before_the_end_of_a_segment(written: int) -> None:
    data, last, _ = half_written(written)
    window, chain, _ = walk(data)
    limit = SIZE - 100
    near = Neighbours(whole=True, before=1_700_000_000_000)
    found = survey(window, Broken(Segment("x", 0, SIZE), chain.position, chain.defect, limit, near), RULES)
    assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [
        (last.offset, last.offset + written, Finding.BYTES),
        (last.offset + written, limit, Finding.ZEROS),
    ]
