"""Where the log goes on after the place at which its chain broke, and what was read of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import LogBuilder

from storeformat.errors import RecordDefect
from storeformat.log import log_tail
from storeformat.log.block_window import BlockWindow
from storeformat.log.log_tail import LogTail, read_tail
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules

SIZE = 8192
T0 = 1_700_000_000_000


@pytest.fixture
def log() -> LogBuilder:
    """Some forty records in two segments, each a second younger than the one before."""
    log = LogBuilder(SIZE)
    for number in range(40):
        log.message(topic="T", queue_id=number % 2, body=bytes(150), store_timestamp=T0 + 1000 * number)
    assert len(log.segments) == 2
    return log


def tail_of(
    log: LogBuilder, tmp_path: Path, lost: dict[int, bytes], furthest_unit: int = -1, met_from: int = 0
) -> LogTail:
    """The tail of a log in which some records consist of another byte."""
    log.write(tmp_path)
    segments = []
    for base, content in log.segments.items():
        data = bytearray(content)
        for number, byte in lost.items():
            placed = log.records[number]
            if base <= placed.offset < base + SIZE:
                data[placed.offset - base : placed.end - base] = byte * placed.size
        path = tmp_path / "commitlog" / f"{base:020d}"
        path.write_bytes(data)
        segments.append(Segment(str(path), base, SIZE))
    return read_tail(segments, furthest_unit, DecodeRules(), met_from)


def test_a_whole_log(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {})
    assert (tail.begin, tail.end, tail.goes_on_at, tail.passed) == (0, log.end_offset, None, ())
    assert tail.offsets.tolist() == [placed.offset for placed in log.records]
    assert tail.ends.tolist() == [placed.end for placed in log.records]
    assert tail.last_rows == {("T", 0): 38, ("T", 1): 39}
    assert (tail.defect, tail.is_torn) == (RecordDefect.UNWRITTEN, False)


@pytest.mark.parametrize(
    ("zeros", "furthest", "goes_on"),
    [(10_000, -1, True), (500, -1, True), (200, -1, False), (200, 12, True), (200, 11, False)],
)
def test_after_zeros_a_record_is_looked_for_a_little_way_and_as_far_as_queues_point(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, zeros: int, furthest: int, goes_on: bool
) -> None:
    """One record is zeros: the next one begins some 250 bytes after it; ``furthest`` is a record that a queue has."""
    monkeypatch.setattr(log_tail, "_LAST_ZEROS", zeros)
    lost, following = log.records[10], log.records[11]
    assert 200 < following.offset - lost.offset < 500
    others = [number for number, placed in enumerate(log.records) if number >= 12 and placed.offset < SIZE]
    end = log.records[furthest].offset if furthest >= 0 else -1
    tail = tail_of(log, tmp_path, dict.fromkeys([10, *others], b"\0"), end)
    assert (tail.end, tail.defect) == (lost.offset, RecordDefect.UNWRITTEN)
    assert (tail.goes_on_at == following.offset) is goes_on


def test_after_damage_the_first_record_that_is_not_older_is_where_it_goes_on(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {10: b"?"})
    assert (tail.end, tail.goes_on_at, tail.is_torn) == (log.records[10].offset, log.records[11].offset, False)


def test_damage_at_the_end_is_a_torn_tail(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {39: b"?"})
    assert (tail.end, tail.goes_on_at, tail.is_torn) == (log.records[-1].offset, None, True)


def test_a_block_of_leftovers_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, loads = LogBuilder(SIZE), []
    for number in range(40):
        log.message(body=b"", store_timestamp=T0 - 1000 * number)
    load = BlockWindow.load
    monkeypatch.setattr(BlockWindow, "load", lambda *given: (loads.append(given[2]), load(*given))[1])
    tail = tail_of(log, tmp_path, {10: b"?"})
    assert (tail.end, tail.goes_on_at) == (log.records[10].offset, None)
    assert sum(loads) < 10 * SIZE


def test_damage_that_recovery_does_not_read_is_passed_over(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {10: b"?"}, met_from=log.records[11].offset)
    assert (tail.passed, tail.end, tail.goes_on_at) == ((log.records[10].offset,), log.end_offset, None)
    assert len(tail.offsets) == 39
    for met_from in (log.records[10].offset, log.records[11].offset - 1):
        tail = tail_of(log, tmp_path, {10: b"?"}, met_from=met_from)
        assert (tail.passed, tail.end) == ((), log.records[10].offset)


def plain_segments(tmp_path: Path, *sizes: int) -> list[Segment]:
    """Segments of no content but a first byte."""
    found, base = [], 0
    for size in sizes:
        path = tmp_path / f"{base:020d}"
        path.write_bytes(b"x".ljust(size, b"\0"))
        found.append(Segment(str(path), base, size))
        base += size
    return found


@pytest.mark.parametrize(
    ("most", "last", "expected"),
    [(300, 4, (2, 200)), (299, 4, (3, 300)), (100, 4, (4, 400)), (500, 4, (0, 0)), (900, 3, (0, 0)), (200, 1, (0, 0))],
)
def test_whole_segments_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, last: int, expected: tuple[int, int]
) -> None:
    """Of a hundred bytes each, as many as fit, up to the last one that is written."""
    monkeypatch.setattr(log_tail, "READ_AT_MOST", most)
    segments = plain_segments(tmp_path, 100, 100, 100, 100, 100, 100)
    assert log_tail._start(segments, segments[last], -1) == expected


@pytest.mark.parametrize("furthest", [-1, 0, 1, 25, 38, 39])
def test_of_a_long_segment_the_part_before_where_queues_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, furthest: int
) -> None:
    """From a record on that is certain to be one, a thousand bytes before; all of it where queues end before it."""
    monkeypatch.setattr(log_tail, "READ_AT_MOST", 1000)
    log = LogBuilder(1 << 16)
    for number in range(40):
        log.message(topic="T", queue_id=0, body=bytes(150), store_timestamp=T0 + 1000 * number)
    log.write(tmp_path)
    segments = [Segment(str(path), 0, 1 << 16) for path in (tmp_path / "commitlog").iterdir()]
    end = log.records[furthest].end if furthest >= 0 else -1
    expected = next((placed.offset for placed in log.records if placed.offset >= end - 1000 > 0), 0)
    assert log_tail._start(segments, segments[0], end) == (0, expected)


def test_segments_that_are_not_written(tmp_path: Path) -> None:
    segments = plain_segments(tmp_path, 100, 100)
    for segment in segments:
        Path(segment.path).write_bytes(bytes(100))
    assert (read_tail([], -1, DecodeRules()).end, read_tail(segments[1:], -1, DecodeRules()).end) == (0, 100)


def test_a_segment_may_begin_older_than_the_one_before(tmp_path: Path) -> None:
    """A clock stepped back: recovery reads on, whatever the queues have."""
    log = LogBuilder(SIZE)
    for number, time in enumerate((T0, T0 + 1000, T0 + 999)):
        log.message(topic="T", queue_id=0, body=bytes(150), store_timestamp=time)
        if number == 1:
            log.blank()
    log.write(tmp_path)
    segments = [Segment(str(path), int(path.name), SIZE) for path in sorted((tmp_path / "commitlog").iterdir())]
    tail = read_tail(segments, SIZE, DecodeRules())
    assert (len(tail.offsets), tail.end, tail.goes_on_at) == (3, log.end_offset, None)
