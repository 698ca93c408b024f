"""Where a log ends, and whether it still ends there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.refusals import refusal
from support.store_builder import LogBuilder

from storeformat.errors import NotAStore
from storeformat.log.log_end import check_log_end, growing_log_end
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules

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
    log = LogBuilder(SIZE) if messages == (0,) else log_of(*messages)
    segments = written(log, tmp_path)
    segments = segments or [empty_segment(tmp_path)]
    assert growing_log_end(segments, DecodeRules()) == log.end_offset


def empty_segment(root: Path) -> Segment:
    path = root / f"{0:020d}"
    path.write_bytes(bytes(SIZE))
    return Segment(str(path), 0, SIZE)


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


def test_a_refusal_says_what_and_where(tmp_path: Path) -> None:
    segments = written(log := log_of(3), tmp_path)
    path, last = segments[0].path, log.records[2]
    assert refused(segments, SIZE + 1) == ("the log does not reach its recorded end", path, SIZE + 1)
    assert refused(segments, 0) == ("the log has grown past its recorded end", path, 0)
    assert refused(segments, last.end - 1) == ("a record spans the recorded end of the log", path, last.end - 1)
    assert refused(segments, SIZE) == ("the log ends before its recorded end", path, last.end)


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
