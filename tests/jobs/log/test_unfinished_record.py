"""A last record that was not written to its end: no damage, but where the log ends."""

from __future__ import annotations

import struct

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder, Message

from jobs.log.log_scan import LogReading
from storeformat.errors import DamagedLog

SIZE = 4096
POLICIES = ("fail", "stop", "salvage")


def a_log(count: int = 5, **fields: object) -> LogBuilder:
    log = LogBuilder(SIZE)
    for number in range(count):
        log.message(Message("Topic", number % 2, body=b"body" * 10, tags="t", **fields))  # type: ignore[arg-type]
    return log


def torn(log: LogBuilder, written: int, policy: str, *changes: tuple[int, bytes], split_size: int = SIZE) -> LogReading:
    """The log with no more than the first bytes of its last record, and some changes."""
    last = log.records[-1]
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    base = last.offset - last.offset % SIZE
    segments[base][last.offset - base + written :] = bytes(SIZE - (last.offset - base) - written)
    for offset, data in changes:
        base = offset - offset % SIZE
        segments[base][offset - base : offset - base + len(data)] = data
    return read_segments(segments, split_size, policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("written", [4, 7, 9, 30, 36, 88, 100, 127, 130])
@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize("split_size", [100, SIZE])
def test_the_log_ends_before_it_under_every_policy(
    policy: str, written: int, property_crc: bool, split_size: int
) -> None:
    log = a_log(property_crc=property_crc)
    last = log.records[-1]
    reading = torn(log, written, policy, split_size=split_size)
    assert (reading.records, reading.end, reading.damaged, reading.losses.rows) == (4, last.offset, [], [])
    assert reading.unfinished is not None
    assert reading.unfinished.begin == last.offset < reading.unfinished.end <= last.offset + written
    assert (reading.is_damaged, len(reading.notes)) == (False, 1)
    assert reading.facts()["unfinished_record"]["begin"] == last.offset
    assert reading.unwritten_bytes == SIZE - last.offset


def test_segments_made_ahead_do_not_matter() -> None:
    log = a_log()
    log.preallocate()
    assert torn(log, 60, "fail").unfinished is not None


def test_a_sound_log_has_none() -> None:
    log = a_log()
    reading = read_segments(log.segments, SIZE)
    assert (reading.unfinished, reading.notes, reading.facts()["unfinished_record"]) == (None, [], None)


OTHER = Message("Topic", 0, body=b"next", tags="t")


@pytest.mark.parametrize("what", ["a body", "a size", "a magic code", "an own offset", "bytes after", "a break before"])
def test_anything_else_is_damage(what: str) -> None:
    log = a_log()
    last = log.records[-1]
    size, body = last.size, last.offset + 90
    if what == "a body":
        change, written = (body, b"\xff"), size
    elif what == "a size":
        change, written = (last.offset, struct.pack(">i", size + 7)), size
    elif what == "an own offset":
        change, written = (last.offset + 28, struct.pack(">q", 1)), 60
    elif what == "bytes after":
        change, written = (last.end + 500, b"\1"), 60
    else:
        change, written = (log.records[1].offset + 90, b"\xff"), 60
    with pytest.raises(DamagedLog):
        torn(log, written, "fail", change)
    reading = torn(log, written, "salvage", change)
    assert reading.unfinished is None
    assert reading.damaged


def test_it_is_damage_where_the_log_goes_on_in_the_next_segment() -> None:
    log = a_log(40)
    inner = max(placed.offset for placed in log.records if placed.offset < SIZE - 300)
    data = {base: bytearray(content) for base, content in log.segments.items()}
    data[0][inner + 60 :] = bytes(SIZE - inner - 60)
    with pytest.raises(DamagedLog):
        read_segments(data, SIZE)
    assert read_segments(data, SIZE, "salvage").losses.messages > 0
