"""What lies after the last sound record: a damaged message, or what an older log left there."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from support.reading import read_segments
from support.store_builder import Embedded, LogBuilder, Message

from jobs.log import log_scan
from jobs.log.log_scan import LogRange, LogReading
from storeformat.errors import DamagedLog, TotalsDisagree

SEGMENT = 4096
TIME = 1_700_000_000_000


@pytest.mark.parametrize(("later", "is_loss"), [(1, True), (0, True), (-1, False)])
@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_a_damaged_last_record_is_a_loss_unless_it_is_older_than_the_one_before(
    split_size: int, later: int, *, is_loss: bool
) -> None:
    """A broker stores many messages in one millisecond: the same time is no sign of an older log."""
    log = LogBuilder(SEGMENT)
    log.message(topic="A", body=b"sound", store_timestamp=TIME)
    last = log.message(topic="B", body=b"damaged", store_timestamp=TIME + later)
    data = bytearray(log.segments[0])
    data[data.index(b"damaged", last.offset)] ^= 1
    reading = read_segments({0: data}, split_size, "salvage")
    assert bool(reading.damaged) is is_loss
    assert reading.records == 1


def claims(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.message(topic="A", queue_offset=number)


def spoiled(log: LogBuilder, *offsets: int) -> dict[int, bytes]:
    """The segments with the heads of some records gone."""
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    for offset in offsets:
        at = offset % SEGMENT
        segments[offset - at][at : at + 88] = b"\xff" * 88
    return {base: bytes(data) for base, data in segments.items()}


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
@pytest.mark.parametrize("lie", [4, 19])
def test_one_wrong_queue_offset_before_damage_costs_no_survivor(split_size: int, lie: int) -> None:
    """Or a record of an older log that lies just where one must begin: the queue goes on from the record before it."""
    log = LogBuilder(SEGMENT)
    claims(log, 0, 1, 2, 3, 4, 5, lie)
    lost = log.message(topic="A", queue_offset=6)
    claims(log, 7, 8)
    reading = read_segments(spoiled(log, lost.offset), split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert reading.records == len(log.records) - 1


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
@pytest.mark.parametrize("lie", [3, 40])
def test_one_wrong_queue_offset_after_damage_costs_no_survivor(split_size: int, lie: int) -> None:
    log = LogBuilder(SEGMENT)
    claims(log, 0, 1, 2, 3, 4, 5)
    lost = log.message(topic="A", queue_offset=6)
    claims(log, 7, 8)
    log.blank()
    claims(log, lie, 9, 10)
    reading = read_segments(spoiled(log, lost.offset), split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert reading.records == len(log.records) - 1


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_survivors_of_one_damaged_segment_say_how_late_it_is_in_the_next(split_size: int) -> None:
    """Nothing is proven before either of the two: a record years older that lies in the lost body is no survivor."""
    log = LogBuilder(SEGMENT)
    first = log.message(topic="B")
    claims(log, 0, 1, 2)
    log.blank()
    old = Message(topic="B", queue_offset=1, store_timestamp=TIME - 100_000_000_000)
    holder = log.message(topic="B", body=Embedded((old,), rejoins=True))
    claims(log, 3)
    log.blank()
    log.message(topic="B")
    reading = read_segments(spoiled(log, first.offset, holder.offset), split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [
        (first.offset, first.end), (holder.offset, holder.end),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------- nothing is left out
def test_a_split_without_its_scan_is_not_passed_over() -> None:
    scans: Any = [SimpleNamespace(report=SimpleNamespace(split=SimpleNamespace(number=number))) for number in (0, 2)]
    splits: Any = [SimpleNamespace(number=number) for number in range(3)]
    with pytest.raises(TotalsDisagree) as error:
        log_scan.sharing(scans, splits)
    assert str(error.value) == "scans were lost: found 2, expected 3"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, None),
        ({"blank_bytes": 9}, "the records of the log leave gaps or overlap: found 99, expected 100"),
        ({"stale": [LogRange(99, 101, "")]}, "the records of the log leave gaps or overlap: found 102, expected 100"),
        ({"stale": [LogRange(100, 120, "")]}, None),
        ({"damaged": [LogRange(90, 90, "")]}, "the records of the log leave gaps or overlap: found 85, expected 100"),
        ({"record_bytes": 61}, "the records of a split leave gaps or overlap: found 71, expected 80 (offset 10)"),
    ],
)
def test_every_byte_is_counted_once(change: dict[str, Any], text: str | None) -> None:
    """Of a log [0, 100): 60 bytes of records, 7 of heads, 3 foreign, 10 of a BLANK, 15 damaged, 5 more of records."""

    def scan(begin: int, end: int, record_bytes: int, head_bytes: int, foreign: list[tuple[int, int]]) -> Any:
        return SimpleNamespace(
            report=SimpleNamespace(start=begin, end=end), record_bytes=record_bytes, head_bytes=head_bytes,
            foreign_records=foreign,
        )  # fmt: skip

    own = change.pop("record_bytes", 60)
    reading: Any = SimpleNamespace(**{
        "scans": [scan(10, 80, own, 7, [(70, 3)]), scan(0, 5, 5, 0, [])], "record_bytes": own + 5,
        "foreign_records": [(70, 3)], "blank_bytes": 10, "damaged": [LogRange(85, 100, "")], "stale": [],
        "begin": 0, "end": 100, **change,
    })  # fmt: skip
    if text is None:
        log_scan._check_tiling(reading)
        return
    with pytest.raises(TotalsDisagree) as error:
        log_scan._check_tiling(reading)
    assert str(error.value) == text


# ------------------------------------------------------------------- a last record that was not written to its end
POLICIES = ("fail", "stop", "salvage")


def a_log(count: int = 5, **fields: object) -> LogBuilder:
    log = LogBuilder(SEGMENT)
    for number in range(count):
        log.message(Message("Topic", number % 2, body=b"body" * 10, tags="t", **fields))  # type: ignore[arg-type]
    return log


def torn(
    log: LogBuilder, written: int, policy: str, *changes: tuple[int, bytes], split_size: int = SEGMENT
) -> LogReading:
    """The log with no more than the first bytes of its last record, and some changes."""
    last = log.records[-1]
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    base = last.offset - last.offset % SEGMENT
    segments[base][last.offset - base + written :] = bytes(SEGMENT - (last.offset - base) - written)
    for offset, data in changes:
        base = offset - offset % SEGMENT
        segments[base][offset - base : offset - base + len(data)] = data
    return read_segments(segments, split_size, policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("written", [4, 7, 9, 30, 36, 88, 100, 127, 130])
@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize("split_size", [100, SEGMENT])
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
    assert reading.unwritten_bytes == SEGMENT - last.offset


def test_segments_made_ahead_do_not_matter() -> None:
    log = a_log()
    log.preallocate()
    assert torn(log, 60, "fail").unfinished is not None


def test_a_sound_log_has_none() -> None:
    log = a_log()
    reading = read_segments(log.segments, SEGMENT)
    assert (reading.unfinished, reading.notes, reading.facts()["unfinished_record"]) == (None, [], None)


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
    inner = max(placed.offset for placed in log.records if placed.offset < SEGMENT - 300)
    data = {base: bytearray(content) for base, content in log.segments.items()}
    data[0][inner + 60 :] = bytes(SEGMENT - inner - 60)
    with pytest.raises(DamagedLog):
        read_segments(data, SEGMENT)
    assert read_segments(data, SEGMENT, "salvage").losses.messages > 0
