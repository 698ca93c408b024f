"""The end of a log, as its broker and a scan find it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.refusals import refusal
from support.store_builder import LogBuilder

from storeformat.errors import NotAStore, RecordDefect
from storeformat.log import log_tail
from storeformat.log.log_end import check_log_end, growing_log_end
from storeformat.log.log_tail import LogTail, read_tail
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules

# ------------------------------------------------------------------------------------------------------- log end
SIZE = 4096


def written(log: LogBuilder, root: Path) -> list[Segment]:
    log.write(root)
    return [Segment(str(root / "commitlog" / f"{base:020d}"), base, SIZE) for base in log.segments]


def log_of(*messages: int) -> LogBuilder:
    """A log with so many messages in each segment, all but the last of which a BLANK closes."""
    log = LogBuilder(SIZE)
    for number, count in enumerate(messages):
        if number:
            log.blank()
        for _ in range(count):
            log.message(topic="T", body=b"body")
    return log


def test_the_end_of_the_last_record_is_the_end_of_the_log(tmp_path: Path) -> None:
    log = log_of(3, 2)
    check_log_end(written(log, tmp_path), log.end_offset, DecodeRules())


@pytest.mark.parametrize("messages", [(3, 2), (3, 0)])
def test_a_blank_after_the_end_is_growth(tmp_path: Path, messages: tuple[int, ...]) -> None:
    """A rebuild of the first segment alone is stale once a broker has closed that segment and begun another."""
    log = log_of(*messages)
    end = log.records[2].end
    with pytest.raises(NotAStore, match="has grown past its recorded end") as caught:
        check_log_end(written(log, tmp_path), end, DecodeRules())
    assert (caught.value.offset, Path(str(caught.value.path)).name) == (end, f"{0:020d}")


def test_a_record_after_the_end_is_growth_unless_a_group_has_not_agreed_on_it(tmp_path: Path) -> None:
    log = log_of(3)
    segments, end = written(log, tmp_path), log.records[1].end
    with pytest.raises(NotAStore, match="has grown past its recorded end"):
        check_log_end(segments, end, DecodeRules())
    check_log_end(segments, end, DecodeRules(), committed=end)
    with pytest.raises(NotAStore, match="has grown past its recorded end"):
        check_log_end(segments, end, DecodeRules(), committed=end + 1)


@pytest.mark.parametrize("step", [-1, 1])
def test_an_end_between_records_is_refused(tmp_path: Path, step: int) -> None:
    log = log_of(3)
    with pytest.raises(NotAStore, match=r"spans the recorded end|ends before its recorded end"):
        check_log_end(written(log, tmp_path), log.records[1].end + step, DecodeRules())


def test_the_end_of_a_segment_is_reached_by_its_blank(tmp_path: Path) -> None:
    log = log_of(3, 0)
    check_log_end(written(log, tmp_path), SIZE, DecodeRules())


def test_an_end_outside_of_the_segments_is_refused(tmp_path: Path) -> None:
    log = log_of(3)
    (segment,) = written(log, tmp_path)
    moved = [Segment(segment.path, SIZE, SIZE)]
    for end in (SIZE - 1, 2 * SIZE + 1):
        with pytest.raises(NotAStore, match="does not reach its recorded end"):
            check_log_end(moved, end, DecodeRules())


def test_damage_ends_the_walk_unless_it_is_passed(tmp_path: Path) -> None:
    log = log_of(4)
    segments, lost = written(log, tmp_path), log.records[1]
    content = bytearray(Path(segments[0].path).read_bytes())
    content[lost.offset : lost.end] = b"\xff" * lost.size
    Path(segments[0].path).write_bytes(content)
    with pytest.raises(NotAStore, match="ends before its recorded end") as caught:
        check_log_end(segments, log.end_offset, DecodeRules())
    assert caught.value.offset == lost.offset
    check_log_end(segments, log.end_offset, DecodeRules(), past_damage=True)


@pytest.mark.parametrize("messages", [(0,), (2,), (2, 0), (2, 3), (2, 3, 0)])
def test_a_growing_log_ends_after_its_last_record(tmp_path: Path, messages: tuple[int, ...]) -> None:
    """The next segment may have been made, and not written to; a BLANK leads to it."""
    segments = written(log := log_of(*messages), tmp_path)
    if not segments:
        (tmp_path / "empty").write_bytes(bytes(SIZE))
        segments = [Segment(str(tmp_path / "empty"), 0, SIZE)]
    assert growing_log_end(segments, DecodeRules()) == log.end_offset


@pytest.mark.parametrize("rest", [b"\xff" * 20, b"\x00" * 7 + b"\x01"])
def test_what_lies_after_the_end_of_a_growing_log_does_not_matter(tmp_path: Path, rest: bytes) -> None:
    log = log_of(1, 2)
    segments, end = written(log, tmp_path), log.end_offset
    content = bytearray(Path(segments[-1].path).read_bytes())
    content[end - SIZE : end - SIZE + len(rest)] = rest
    Path(segments[-1].path).write_bytes(content)
    assert growing_log_end(segments, DecodeRules()) == end


def refused(segments: list[Segment], end: int) -> tuple[object, ...]:
    return tuple(refusal(NotAStore, lambda: check_log_end(segments, end, DecodeRules())).values())


def test_a_log_that_ends_with_its_last_segment(tmp_path: Path) -> None:
    first, second = written(log_of(3, 0), tmp_path)
    check_log_end([first], SIZE, DecodeRules())
    Path(first.path).write_bytes(b"\xff" * SIZE)
    assert refused([first, second], SIZE) == ("the log ends before its recorded end", first.path, 0)


def test_damage_up_to_the_end_is_passed(tmp_path: Path) -> None:
    segments, lost = written(log := log_of(3), tmp_path), log.records[2]
    content = bytearray(Path(segments[0].path).read_bytes())
    content[lost.offset : lost.end] = b"\xff" * lost.size
    Path(segments[0].path).write_bytes(content)
    check_log_end(segments, lost.end, DecodeRules(), past_damage=True)


# ------------------------------------------------------------------------------------------------------ log tail
TAIL_SIZE = 8192
T0 = 1_700_000_000_000


@pytest.fixture
def log() -> LogBuilder:
    """Some forty records in two segments, each a second younger than the one before."""
    log = LogBuilder(TAIL_SIZE)
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
            if base <= placed.offset < base + TAIL_SIZE:
                data[placed.offset - base : placed.end - base] = byte * placed.size
        path = tmp_path / "commitlog" / f"{base:020d}"
        path.write_bytes(data)
        segments.append(Segment(str(path), base, TAIL_SIZE))
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
    others = [number for number, placed in enumerate(log.records) if number >= 12 and placed.offset < TAIL_SIZE]
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


@pytest.mark.parametrize(("most", "begin"), [(2 * TAIL_SIZE, 0), (2 * TAIL_SIZE - 1, TAIL_SIZE)])
def test_as_many_whole_segments_are_read_as_fit(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, begin: int
) -> None:
    monkeypatch.setattr(log_tail, "READ_AT_MOST", most)
    assert tail_of(log, tmp_path, {}).begin == begin


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
    assert read_tail(segments, end, DecodeRules()).begin == expected


def test_segments_that_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(100))
    segments = [Segment(str(tmp_path / "zeros"), base, 100) for base in (0, 100)]
    assert (read_tail([], -1, DecodeRules()).end, read_tail(segments[1:], -1, DecodeRules()).end) == (0, 100)


def test_a_segment_may_begin_older_than_the_one_before(tmp_path: Path) -> None:
    """A clock stepped back: recovery reads on, whatever the queues have."""
    log = LogBuilder(TAIL_SIZE)
    for number, time in enumerate((T0, T0 + 1000, T0 + 999)):
        log.message(topic="T", queue_id=0, body=bytes(150), store_timestamp=time)
        if number == 1:
            log.blank()
    log.write(tmp_path)
    segments = [Segment(str(path), int(path.name), TAIL_SIZE) for path in sorted((tmp_path / "commitlog").iterdir())]
    tail = read_tail(segments, TAIL_SIZE, DecodeRules())
    assert (len(tail.offsets), tail.end, tail.goes_on_at) == (3, log.end_offset, None)
