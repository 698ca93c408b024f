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

from jobs.logscan import LogReading
from storeformat import files
from storeformat.errors import DamagedLog
from storeformat.survivors import CLOCK_SLACK
from udfs.scan import Selection

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
def test_behind_a_page_of_an_older_log_this_one_goes_on(trial: Trial, base: int, length: int) -> None:
    """The first page of a segment was never written: the older records there are chained from the segment's begin."""
    sound = trial.sound[base]
    reading = trial.read({base: trial.older[base][:length] + sound[length:]})
    goes_on = first_behind(trial.log, base + length)
    assert (goes_on, True) in [(begin, end > begin) for begin, end in begins_of(reading)]
    assert not any(base <= begin < goes_on for begin, _ in begins_of(reading))
    lost = [placed for placed in trial.log.records if base <= placed.offset < goes_on]
    assert reading.records == len(trial.log.records) - len(lost)
    assert sum(item.end - item.begin for item in reading.damaged) == goes_on - base


@pytest.mark.parametrize("task", [{}, {"with_units": False}, {"selection": Selection((("A", 0),))}])
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


def test_a_damaged_time_makes_no_older_log_of_the_next_segment() -> None:
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
    reading = read_segments(segments, 1000, "salvage")
    assert (reading.records, reading.losses.messages) == (len(log.records) - 1, 1)


def test_a_last_file_of_an_older_log_is_no_loss(trial: Trial) -> None:
    """Nothing of this log lies behind it, so the log ends before it; but nobody is to lose it without a word."""
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
