"""Where the log goes on after the place at which its chain broke, and what was read of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import LogBuilder

from jobs.safety.evidence import log_tail
from jobs.safety.evidence.log_tail import LogTail, read_tail
from storeformat.errors import RecordDefect
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


def test_damage_that_recovery_does_not_read_is_passed_over(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {10: b"?"}, met_from=log.records[11].offset)
    assert (tail.passed, tail.end, tail.goes_on_at) == ((log.records[10].offset,), log.end_offset, None)
    assert len(tail.offsets) == 39
    for met_from in (log.records[10].offset, log.records[11].offset - 1):
        tail = tail_of(log, tmp_path, {10: b"?"}, met_from=met_from)
        assert (tail.passed, tail.end) == ((), log.records[10].offset)
