"""Segments that hold what a file of the same name held in an earlier life of the log, whole or at their begin: a page
that was never written, a file out of an old backup. Their records are certified and chained, and none of this log's.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.damaging import SEGMENT, Shape, draw_log
from support.in_memory import MemoryReader
from support.reading import read_segments
from support.salvage_trials import Trial
from support.store_builder import LogBuilder

from jobs.log.log_scan import LogReading
from storeformat.errors import DamagedLog
from storeformat.queues.topic_filter import TopicFilter
from storeformat.salvage.evidence import CLOCK_SLACK
from storeformat.storage import files

YEARS_BEFORE = 1_600_000_000_000


@pytest.fixture(autouse=True)
def logs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RangeReader", MemoryReader)


@pytest.fixture(scope="module")
def logs() -> tuple[LogBuilder, LogBuilder]:
    """This log, and the older one; the records of no two segments begin at the same places."""
    draw = random.Random(3)
    older = draw_log(draw, Shape(), clock=YEARS_BEFORE)
    return draw_log(draw, Shape()), older


@pytest.fixture(params=[SEGMENT, 300])
def trial(logs: tuple[LogBuilder, LogBuilder], request: pytest.FixtureRequest) -> Trial:
    return Trial(*logs, Shape(), request.param)


def begins_of(reading: LogReading) -> list[tuple[int, int]]:
    """Pieces of chain, those that touch made one."""
    pieces: list[tuple[int, int]] = []
    for scan in (scan for scan in reading.scans if scan.records):
        start, end = scan.report.start or 0, scan.report.end
        if pieces and pieces[-1][1] == start:
            start = pieces.pop()[0]
        pieces.append((start, end))
    return pieces


def first_behind(log: LogBuilder, offset: int) -> int:
    """Where the first record begins that does not begin before an offset."""
    return next(placed.offset for placed in log.records if placed.offset >= offset)


@pytest.mark.parametrize("base", [0, SEGMENT, 2 * SEGMENT])
def test_a_whole_segment_of_an_older_log_is_left_out(trial: Trial, base: int) -> None:
    reading = trial.read({base: trial.older[base]})
    assert [(item.begin, item.end) for item in reading.damaged] == [(base, base + SEGMENT)]
    assert not any(base <= begin < base + SEGMENT for begin, _ in begins_of(reading))
    in_it = [placed for placed in trial.log.records if base <= placed.offset < base + SEGMENT]
    assert reading.records == len(trial.log.records) - len(in_it)


@pytest.mark.parametrize("length", [200, 500, 900])
@pytest.mark.parametrize("base", [SEGMENT, 2 * SEGMENT, 3 * SEGMENT])
def test_after_a_page_of_an_older_log_this_one_goes_on(trial: Trial, base: int, length: int) -> None:
    """The first page of a segment was never written: the older records there are chained from the segment's begin."""
    sound = trial.sound[base]
    reading = trial.read({base: trial.older[base][:length] + sound[length:]})
    goes_on = first_behind(trial.log, base + length)
    assert (goes_on, True) in [(begin, end > begin) for begin, end in begins_of(reading)]
    assert not any(base <= begin < goes_on for begin, _ in begins_of(reading))
    lost = [placed for placed in trial.log.records if base <= placed.offset < goes_on]
    assert reading.records == len(trial.log.records) - len(lost)
    assert sum(item.end - item.begin for item in reading.damaged) == goes_on - base


@pytest.mark.parametrize("task", [{}, {"with_units": False}, {"topics": (TopicFilter("A", 0),)}])
@pytest.mark.parametrize("queues", ["the same", "others"])
def test_a_clock_that_was_set_back_makes_no_older_log(queues: str, task: dict[str, Any]) -> None:
    """Two days back where a segment begins, for good: whether all queues are read, one, or none."""
    log = LogBuilder(SEGMENT)
    while log.end_offset < 3 * SEGMENT:
        if log.end_offset < 2 * SEGMENT <= log.end_offset + 200:
            log.clock -= 2 * CLOCK_SLACK
        log.clock += 1
        topic = "B" if queues == "others" and log.clock < 1_700_000_000_000 - CLOCK_SLACK else "A"
        log.message(topic=topic, body=bytes(30))
    reading = read_segments(log.segments, 1000, **task)
    assert (reading.records, reading.damaged, reading.stale) == (len(log.records), [], [])


@pytest.mark.parametrize("split_size", [100, 1000])
def test_a_damaged_time_makes_no_older_log_of_the_next_segment(split_size: int) -> None:
    """The last record of the first segment claims a far future, and the second segment's chain is broken."""
    log = LogBuilder(SEGMENT)
    while log.end_offset < 2 * SEGMENT:
        log.clock += 1
        log.message(topic="A", body=bytes(30))
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    last = max(placed.offset for placed in log.records if placed.offset < SEGMENT)
    segments[0][last + 56] = 1
    lost = log.records[50]
    segments[SEGMENT][lost.offset - SEGMENT : lost.end - SEGMENT] = bytes(lost.size)
    reading = read_segments(segments, split_size, "salvage")
    assert (reading.records, reading.losses.messages) == (len(log.records) - 1, 1)


@pytest.mark.parametrize("task", [{"with_units": False}, {"topics": (TopicFilter("none of these", 0),)}])
@pytest.mark.parametrize(("base", "lag"), [(SEGMENT, 3_600_000), (SEGMENT, 2 * CLOCK_SLACK), (0, 2 * CLOCK_SLACK)])
def test_a_file_of_an_older_log_is_told_whatever_queues_are_read(base: int, lag: int, task: dict[str, Any]) -> None:
    """Of an hour ago, too: an index alone would lead to its records without a word."""
    log, older = LogBuilder(SEGMENT), LogBuilder(SEGMENT)
    older.clock -= lag
    older.queue_offsets = {("A", queue_id): 5 for queue_id in range(3)}
    while log.end_offset < 4 * SEGMENT:
        log.message(topic="A", queue_id=len(log.records) % 3, body=bytes(30))
    while older.end_offset < 2 * SEGMENT:
        older.message(topic="A", queue_id=len(older.records) % 3, body=bytes(20))
    segments = log.segments | {base: older.segments[base]}
    with pytest.raises(DamagedLog, match="older log"):
        read_segments(segments, 1000, **task)
    stopped = read_segments(segments, 1000, "stop", **task)
    assert (stopped.end, stopped.records) == (base, sum(placed.offset < base for placed in log.records))


def test_a_last_file_of_an_older_log_is_no_loss(trial: Trial) -> None:
    """Nothing of this log lies after it, so the log ends before it; but nobody is to lose it without a word."""
    base = max(base for base in trial.sound if base < trial.log.end_offset)
    reading = trial.read({base: trial.older[base]})
    assert reading.end == base
    assert (reading.damaged, reading.losses.messages) == ([], 0)
    (stale,) = reading.stale
    used = len(trial.older[base].rstrip(b"\0"))
    assert (stale.begin, stale.end) == (base, base + used)
    with pytest.raises(DamagedLog, match="older log"):
        read_segments(trial.sound | {base: trial.older[base]}, trial.split_size)


def test_half_of_the_queues_go_on_by_chance() -> None:
    """The record before the older file is lost, so that a queue may have a gap there, which is no jump. But where a
    clock was set back, more queues go on.
    """
    older = LogBuilder(SEGMENT)
    older.clock, older.queue_offsets = YEARS_BEFORE, {("A", 0): 5}
    log = LogBuilder(SEGMENT)
    while log.end_offset < 2 * SEGMENT - 200:
        for one in (older, log):
            one.message(topic="A", queue_id=len(one.records) % 2, body=bytes(30))
    *kept, lost = [placed for placed in log.records if placed.offset < SEGMENT]
    segments = {0: bytearray(log.segments[0]), SEGMENT: older.segments[SEGMENT]}
    segments[0][lost.offset : lost.end] = bytes(lost.size)
    reading = read_segments(segments, 1000, "salvage")
    assert (reading.records, reading.end) == (len(kept), lost.offset)


# ------------------------------------------------------------------------ what tells an older log from a clock set back
HOUR = 3600 * 1000
Rows = list[tuple[int, int, float]]
"""Queue id, queue offset and hour of each record of a segment."""


def part(hour: float, *numbers: int | None) -> Rows:
    """One record in each of a few queues, all of one time; None where a queue has none."""
    return [(queue, number, hour) for queue, number in enumerate(numbers) if number is not None]


def a_log_of(*segments: Rows) -> LogBuilder:
    """A log with a BLANK at the end of each segment but the last one."""
    log = LogBuilder(SEGMENT)
    for number, rows in enumerate(segments):
        if number:
            log.blank()
        for queue_id, queue_offset, hour in rows:
            time = YEARS_BEFORE + round(hour * HOUR)
            log.message(queue_id=queue_id, queue_offset=queue_offset, store_timestamp=time, body=b"")
    return log


def left_out(log: LogBuilder, *changes: tuple[int, bytes]) -> list[int]:
    """The numbers of the written segments of which no record comes out, however the log is split."""
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    for offset, data in changes:
        base = offset - offset % SEGMENT
        segments[base][offset - base : offset - base + len(data)] = data
    written = {placed.offset // SEGMENT for placed in log.records}
    found = []
    for split_size in (SEGMENT, 300):
        reading = read_segments(segments, split_size, "salvage")
        found.append(sorted(written - {begin // SEGMENT for begin, _ in begins_of(reading)}))
    assert found[0] == found[1]
    return found[0]


A_DAY_BACK = [
    pytest.param([part(99, 2, 2), part(101, 3, 3)], [], id="all queues go on"),
    pytest.param([part(99, 1, 1), part(101, 3, 3)], [1], id="no queue goes on, and the time comes back"),
    pytest.param([part(99, 1, 1), part(100, 3, 3)], [1], id="of just the time before"),
    pytest.param([part(99, 1, 1), part(99.9, 1, 1)], [], id="the clock stays back"),
    pytest.param([part(99, 1, 1), part(99.9, 1, 1), part(100, 3, 3)], [1, 2], id="what follows later is of that time"),
    pytest.param([part(99, 1, 1)], [1], id="nothing follows"),
    pytest.param([part(99, 2, 1)], [], id="half of the queues go on"),
    pytest.param([part(100, 1, 1), part(101, 3, 3)], [], id="of the same time"),
    pytest.param([part(100 - 1 / HOUR, 1, 1), part(101, 3, 3)], [1], id="a millisecond older"),
    pytest.param([[*part(99, 1, 1), *part(99, 2, 2), *part(101, 3, 3), *part(99, 4, 4)]], [], id="one is not older"),
    pytest.param([part(76, 2, 2, 1)], [], id="one queue of three jumps, and the clock by a day"),
]  # fmt: skip


@pytest.mark.parametrize(("later", "older"), A_DAY_BACK)
def test_within_a_day_most_queues_must_jump_and_the_time_come_back(later: list[Rows], older: list[int]) -> None:
    assert left_out(a_log_of(part(100, 1, 1, 1, 1), *later)) == older


OTHERS = [(4, 1, 75.0)]
DAYS_BACK = [
    pytest.param([part(75, 2, 2, 1)], [1], id="one queue of three jumps"),
    pytest.param([part(75, 2, 2, 2, 1)], [], id="one queue of four jumps"),
    pytest.param([part(75, 2, 2, 2, 9)], [], id="one queue of four jumps ahead"),
    pytest.param([part(75, 2, 2, 9)], [1], id="one queue of three jumps ahead"),
    pytest.param([part(75, 0, 0, 0, 0)], [], id="queues that begin again tell nothing"),
    pytest.param([OTHERS, part(101, 2, 2, 2)], [1], id="other queues, until the time is back"),
    pytest.param([OTHERS, part(76, 2, 2, 2)], [1], id="other queues, until a day before it"),
    pytest.param([OTHERS, part(75.99, 2, 2, 2)], [], id="other queues, and the time stays"),
    pytest.param([part(75, 2, 2, 2), part(101, 3, 3, 3)], [], id="all queues go on, and the time comes back"),
    pytest.param([part(50, 2, 2), part(50, 1, 1)], [], id="what jumps later, when the time stays, says nothing here"),
    pytest.param([[*part(70, 2, 2), *part(70, 9, 9)], part(101, 10, 10)], [], id="a gap inside of the segment"),
]  # fmt: skip


@pytest.mark.parametrize(("later", "older"), DAYS_BACK)
def test_where_the_clock_went_back_by_days_queues_must_go_on(later: list[Rows], older: list[int]) -> None:
    assert left_out(a_log_of(part(100, 1, 1, 1, 1), *later)) == older


@pytest.mark.parametrize(("numbers", "older"), [((2, 2, 2, 9, 9), []), ((2, 2, 9, 9), [1]), ((2, 9, 9), [1])])
def test_after_a_break_more_than_half_of_the_queues_must_go_on(numbers: tuple[int, ...], older: list[int]) -> None:
    """What is lost explains a gap, so only queues that join speak for the segment."""
    log = a_log_of(part(100, 1, 1, 1, 1, 1), part(75, *numbers))
    assert left_out(log, (log.records[4].end, b"\xa5" * 200)) == older


@pytest.mark.parametrize("broken", [b"\xa5" * 50, bytes(700) + b"\xa5" * 50], ids=["garbage", "zeros, then garbage"])
@pytest.mark.parametrize(("numbers", "older"), [((2, 2), []), ((2, 2, 2), []), ((2, 2, 1), [1]), ((2,), [1])])
def test_in_a_segment_that_breaks_off_all_of_two_queues_must_go_on(
    numbers: tuple[int, ...], older: list[int], broken: bytes
) -> None:
    log = a_log_of(part(100, *(1 for _ in numbers)), part(75, *numbers))
    assert left_out(log) == ([1] if numbers == (2, 2, 1) else [])
    assert left_out(log, (log.end_offset, broken)) == older


@pytest.mark.parametrize("hour", [76, 99])
def test_a_segment_that_breaks_off_may_be_a_day_older(hour: float) -> None:
    log = a_log_of(part(100, 1), part(hour, 2))
    assert left_out(log, (log.end_offset, b"\xa5" * 50)) == []


def test_a_segment_without_a_record_is_no_older_log() -> None:
    log = a_log_of(part(100, 1, 1), part(101, 2, 2))
    segments = log.segments | {SEGMENT: b"\xa5" * 100 + log.segments[SEGMENT][100:]}
    (damaged,) = read_segments(segments, SEGMENT, "salvage").damaged
    assert (damaged.begin, damaged.end) == (SEGMENT, SEGMENT + 100)
    assert "older" not in damaged.reason


EARLIER_LIVES = [
    pytest.param([part(0, 5, 5), part(25, 1, 1), part(25, 2, 2)], [0], id="queues jump back, and go on from there"),
    pytest.param([part(0, 1, 1), part(25, 5, 5), part(25, 6, 6)], [0], id="queues jump ahead"),
    pytest.param([part(0, 5, 5), part(25, 1, 1)], [], id="which of two is of this log, nothing tells"),
    pytest.param([part(0, 5, 5), part(24, 1, 1), part(25, 2, 2)], [], id="within a day"),
    pytest.param([part(0, 5, 5), part(25, 6, 1), part(25, 7, 2)], [], id="one queue may be a damaged queue offset"),
    pytest.param([part(0, *[5] * 8), part(25, *[6] * 6, 1, 1), part(25, *[7] * 6, 2, 2)], [], id="two of eight"),
    pytest.param([part(0, *[5] * 7), part(25, *[6] * 5, 1, 1), part(25, *[7] * 5, 2, 2)], [0], id="two of seven"),
    pytest.param([part(0, 5, 5), part(25, 2, 2), part(25, 3, 1)], [], id="half of the queues do not go on after it"),
    pytest.param([[*part(0, 5, 5, 5), *part(23, 6, 6, 6)], part(25, 1, 1), part(25, 2, 2)], [], id="its end is near"),
    pytest.param([[*part(100, 1, 1, 1, 1), *part(50, 2, 2, 2, 2)], part(75, 1, 1, 1, 1)], [], id="clock back inside"),
    pytest.param([part(100, 1, 1), part(75, 1, 1), [], part(101, 2, 2)], [1], id="then only a blank"),
]  # fmt: skip


@pytest.mark.parametrize(("segments", "older"), EARLIER_LIVES)
def test_a_first_segment_is_of_an_earlier_life_where_the_log_begins_after_it(
    segments: list[Rows], older: list[int]
) -> None:
    assert left_out(a_log_of(*segments)) == older


@pytest.mark.parametrize("task", [{"with_units": False}, {"topics": (TopicFilter("TopicTest", 0),)}])
@pytest.mark.parametrize(
    ("later", "tail"),
    [([part(75, 2, 2), part(101, 3, 3)], b""), ([part(75, 2, 2)], b"\xa5" * 50)],
    ids=["and came back", "and an older log lies after the end"],
)
def test_where_a_clock_goes_back_by_days_all_queues_are_asked(
    later: list[Rows], tail: bytes, task: dict[str, Any]
) -> None:
    log = a_log_of(part(100, 1, 1), *later)
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    base = max(segments)
    segments[base][log.end_offset - base : log.end_offset - base + len(tail)] = tail
    reading = read_segments(segments, 300, "stop", **task)
    assert (reading.end, reading.records) == (log.end_offset, len(log.records))


def test_a_record_of_this_log_under_the_end_of_an_older_page_comes_out() -> None:
    """The page ends inside the properties of its last record, which nothing checks."""
    older = LogBuilder(SEGMENT, SEGMENT, clock=YEARS_BEFORE)
    older.message(properties={"P": "x" * 400})
    log = LogBuilder(SEGMENT)
    while log.end_offset < 2 * SEGMENT:
        log.message(body=bytes(17))
    page = older.segments[SEGMENT][:300]
    segments = log.segments
    segments[SEGMENT] = page + segments[SEGMENT][300:]
    reading = read_segments(segments, SEGMENT, "salvage")
    goes_on = first_behind(log, SEGMENT + 300)
    assert goes_on < older.end_offset
    assert goes_on in [begin for begin, _ in begins_of(reading)]
    assert [(item.begin, item.end) for item in reading.damaged] == [(SEGMENT, goes_on)]
