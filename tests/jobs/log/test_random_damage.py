"""Random damage of logs, their healing from replicas, and chains that prove older records."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import damaging, strategies
from support.damaging import SEGMENT, Shape, draw_damage, draw_log
from support.in_memory import MemoryReader
from support.reading import read_segments
from support.salvage_trials import Tally, Trial, Trials, run_in_processes, run_trials
from support.store_builder import LogBuilder, Placed

from jobs.log.log_scan import LogRange, LogReading, RangeKind, scan_log
from jobs.log.restored_log import LogCopy, absent_in, plan_healing, refuse_differing
from jobs.spark.runner import Runner
from storeformat.errors import DamagedLog, Refused
from storeformat.kernels import compiled
from storeformat.log.segments import Segment
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.salvage.evidence import CLOCK_SLACK
from storeformat.storage import files
from udfs.log.log_copies import ByteRange, common, joined, parts_of, without
from udfs.log.scan import ScanTask

# ------------------------------------------------------------------------------------------------------ damage property
# Proof by damage: no wrong message comes out of a damaged log, no whole one is missed, every lost one is counted.
#
# ``support.salvage_trials`` says what a trial does, what it counts, and what no reader of this format can do.
FAST = compiled() is not None
"""Without compiled code a part of the trials is done."""
EXAMPLES = settings.default.max_examples
"""50, with ``--hypothesis-profile few`` 10."""
CHECKED, PLAIN = Shape(), Shape(property_crc=False)
SHAPES = [pytest.param(CHECKED, id="property-crc"), pytest.param(PLAIN, id="plain")]


@pytest.fixture(autouse=True)
def logs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RangeReader", MemoryReader)


def assert_nothing_failed(tally: Tally) -> None:
    failures = {kind: tally.counts[kind] for kind in ("wrong", "missed", "uncounted", "overcounted")}
    assert failures == dict.fromkeys(failures, 0), tally.examples
    assert tally.counts["alive"] > 5 * tally.trials
    assert tally.counts["misled"] * 1_000_000 < tally.counts["alive"]


@pytest.mark.parametrize("count", [EXAMPLES if FAST else EXAMPLES // 2, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damages(count: int) -> None:
    tally = run_in_processes([Trials(100 + number, count, (CHECKED, PLAIN)[number % 2]) for number in range(10)])
    assert tally.trials >= 10 * count
    assert_nothing_failed(tally)
    assert tally.counts["surveys"] > tally.trials / 2


def test_no_survivor_moves_where_one_field_is_damaged() -> None:
    """Queue id, topic, queue offset, flags, times, prepared offset or properties; nothing checks them."""
    count = EXAMPLES // 2 if FAST else EXAMPLES // 3
    tally = run_in_processes([Trials(300 + number, count, PLAIN, one_field=True) for number in range(10)])
    assert tally.trials == 10 * count
    assert tally.counts["shifted"] == 0, tally.examples
    assert tally.counts["twins"] * 100 < tally.trials
    assert tally.counts["stray"] > tally.trials // 10


@pytest.mark.slow
def test_no_survivor_moves_in_a_hundred_thousand_logs_with_one_damaged_field() -> None:
    tally = run_in_processes([Trials(3_000 + number, 5_000, PLAIN, one_field=True) for number in range(20)])
    assert (tally.trials, tally.counts["shifted"]) == (100_000, 0), tally.examples


@pytest.mark.parametrize("shape", SHAPES)
def test_damages_through_the_driver(shape: Shape) -> None:
    tally = run_trials(7, EXAMPLES, shape)
    assert_nothing_failed(tally)
    assert tally.counts["gone"] > (0 if FAST else tally.trials)  # ten examples say little


@pytest.mark.parametrize("count", [2 * EXAMPLES if FAST else EXAMPLES, pytest.param(50_000, marks=pytest.mark.slow)])
def test_copies_in_bodies_hardly_ever_come_out(count: int) -> None:
    """Every tenth message holds timely copies with queue offsets out of the air; a body counts as one only as long as
    something of its head is left. Nothing but a copy comes out wrongly.
    """
    tally = run_trials(11, count, Shape(embedded=True), whole_driver=False)
    assert tally.counts["wrong"] == 0, tally.examples
    expected = tally.trials / 500  # at most; beside it what chance adds
    assert tally.counts["forged"] + tally.counts["copies"] <= expected + 3 * expected**0.5
    assert tally.counts["missed"] * 10_000 < tally.counts["alive"], tally.examples


@pytest.mark.slow
def test_a_million_damages() -> None:
    tally = run_in_processes([Trials(1_000 + number, 50_000, (CHECKED, PLAIN)[number % 2]) for number in range(20)])
    assert tally.trials >= 1_000_000
    assert_nothing_failed(tally)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_hundred_thousand_damages_through_the_driver(shape: Shape) -> None:
    assert_nothing_failed(run_in_processes([Trials(2_000 + n, 10_000, shape, whole_driver=True) for n in range(5)]))


def outcome(reading: LogReading) -> object:
    """The report, and the stretches of chain, which splits cut where they like."""
    pieces: list[list[int]] = []
    for scan in reading.scans:
        start, end = scan.report.start, scan.report.end
        if pieces and pieces[-1][1] == start:
            pieces[-1][1] = end
        elif start is not None and start < end:
            pieces.append([start, end])
    return reading.facts(), pieces


def test_the_outcome_does_not_depend_on_the_splits() -> None:
    draw = random.Random(5)
    older, log = (damaging.draw_log(draw, Shape(embedded=True), clock=clock) for clock in (1_600_000_000_000, 1 << 40))
    trials = [Trial(log, older, Shape(), split_size) for split_size in (100, 777, 4096, 1 << 20)]
    damaged = 0
    for _ in range(25 if FAST else 15):
        changed = damaging.draw_damage(draw, log, older)
        first, *others = [outcome(trial.read(changed)) for trial in trials]
        assert others == [first] * len(others)
        damaged += bool(changed)
    assert damaged > 5


ANY_LOG = strategies.logs().filter(lambda log: bool(log.records))
PATIENT = settings(
    max_examples=min(25, settings.default.max_examples),
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a damaged log shrinks for many minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@PATIENT
@given(data=st.data())
def test_any_log_with_any_damage_is_read_or_refused(data: st.DataObject) -> None:
    """Foreign records, BLANKs, old tails, batches, deleted topics, clocks set back: never an exception, every byte is
    one thing, every record lies where it says it does, however the log is split; and what ``fail`` lets pass has no
    damage.
    """
    log = data.draw(ANY_LOG)
    segments = strategies.apply_damages(log.segments, data.draw(strategies.damages(log, cuts=False)))
    split_size = data.draw(strategies.split_sizes(log.segment_size))
    reading = read_segments(segments, split_size, "salvage")
    named = sum(item.end - item.begin for item in (*reading.damaged, *reading.stale))
    foreign = sum(size for _, size in reading.foreign_records)
    used = reading.record_bytes + foreign + reading.blank_bytes + reading.unwritten_bytes + named
    assert used == log.segment_size * len(segments)
    assert outcome(reading) == outcome(read_segments(segments, log.segment_size, "salvage"))
    try:
        healthy = read_segments(segments, split_size, "fail")
    except DamagedLog:
        assert reading.damaged or reading.losses.rows
    else:
        assert healthy.records == reading.records


@PATIENT
@given(log=strategies.logs(strategies.LogShape(stale=False, odd_blanks=False)).filter(lambda log: bool(log.records)))
def test_salvage_of_a_healthy_log_is_the_log(log: LogBuilder) -> None:
    reading = read_segments(log.segments, log.segment_size, "salvage")
    assert reading.damaged == []
    assert reading.losses.rows == []
    assert reading.records == len(log.records)
    assert read_segments(log.segments, log.segment_size, "fail", with_units=False).records == len(log.records)


@pytest.mark.slow
def test_any_log_with_any_damage_drawn_at_random() -> None:
    """Other examples in every run; one that fails is printed as it is to be pinned with ``@example``."""
    explored = settings(PATIENT, max_examples=1_500, derandomize=False, database=None, print_blob=True)
    explored(given(data=st.data())(test_any_log_with_any_damage_is_read_or_refused.hypothesis.inner_test))()


# -------------------------------------------------------------------------------------------------------------- healing
# Copies of one log, each with damage of its own, healed from each other in memory; and what is refused.
#
# ========  ============================================================================================================
# wrong     a byte of a record or BLANK of the healed log that is not the one that was written
# lost      a record or BLANK that is whole in some copy and not in the healed log (``short``: the first copy ends
#           before it, as a log does that never had it; the outcome says so)
# twice     a record that is damaged in all copies: nobody can heal it (``unchecked``: one of them passes every check)
# refused   two copies differ in a record that passes every check in both: nobody can say which is right
# restored  no failure: logs that are byte for byte the original up to their ends
# ========  ============================================================================================================
TASK = ScanTask("", DecodeRules(), DispatchRules(()), with_entries=False)


def read(segments: Sequence[Segment]) -> LogReading:
    return scan_log(Runner(), segments, TASK, split_size=SEGMENT, on_damage="salvage")


def copy_of(name: str, contents: dict[int, bytes | None]) -> LogCopy:
    """A copy of the log in memory; of a segment without bytes, or with too few, the rest is missing."""
    segments = []
    for base, data in contents.items():
        held = b"" if data is None else data
        MemoryReader.contents[f"{name}/{base}"] = held + bytes(SEGMENT - len(held))
        segments.append(Segment(f"{name}/{base}", base, SEGMENT, missing=SEGMENT - len(held)))
    return LogCopy(name, read(segments), absent_in(segments))


def healed(copies: Sequence[LogCopy]) -> tuple[int, dict[int, bytes]]:
    """How many ranges of the first copy heal, and its bytes then."""
    ranges, segments = plan_healing(copies[0], copies[1:], "healed")
    contents = {segment.base: MemoryReader.contents[segment.path] for segment in copies[0].segments}
    for made in segments:
        data = bytearray(SEGMENT)
        for position, part in parts_of(made):
            data[position : position + len(part)] = part
        contents[made.own.base] = bytes(data)
    return len(ranges), contents


def run_replica_trials(seed: int, count: int, *, copies: int = 2, per_log: int = 20) -> Tally:
    """The outcome of ``count`` trials; ``files.RangeReader`` must be a ``MemoryReader``."""
    tally, draw, shape = Tally(), random.Random(seed), Shape()
    for number in range(count):
        if number % per_log == 0:
            older, log = draw_log(draw, shape, clock=1_600_000_000_000), draw_log(draw, shape)
        tally.trials += 1
        damages = [draw_damage(draw, log, older) for _ in range(copies)]
        judge(log, [log.segments | damage for damage in damages], tally, f"seed {seed} trial {tally.trials}")
    return tally


def judge(log: LogBuilder, contents: Sequence[dict[int, bytes]], tally: Tally, name: str) -> None:
    """Heals the first copy and tallies what is wrong with the outcome."""
    MemoryReader.contents = {}
    copies = [copy_of(str(number), dict(segments)) for number, segments in enumerate(contents)]
    try:
        refuse_differing(Runner(), copies)
    except Refused as refusal:
        offset = refusal.offset or 0
        base = offset - offset % SEGMENT
        if len({segments[base][offset - base] for segments in contents}) == 1:
            tally.fail("wrong", f"{name} refused, and the copies are the same at {offset}")
        tally.counts["refused"] += 1
        return
    count, bytes_of = healed(copies)
    tally.counts["healed"] += count
    for base, data in bytes_of.items():
        MemoryReader.contents[f"healed/{base}"] = data
    reading = read([Segment(f"healed/{base}", base, SEGMENT) for base in bytes_of])
    out = [(scan.report.start or 0, scan.report.end) for scan in reading.scans]
    for placed in log.records:
        base = placed.offset - placed.offset % SEGMENT
        span = slice(placed.offset - base, placed.end - base)
        original = log.segments[base][span]
        whole = [segments[base][span] == original for segments in contents]
        came_out = any(begin <= placed.offset < end for begin, end in out)
        now = bytes_of[base][span]
        if not any(whole):
            tally.counts["twice"] += 1
        elif placed.offset >= copies[0].reading.end and not whole[0] and not came_out:
            tally.counts["short"] += 1
        elif not came_out:
            tally.fail("lost", f"{name} {placed.offset} {whole}")
        if came_out and now != original and not any(whole):
            tally.counts["unchecked"] += 1
        elif came_out and now != original:
            tally.fail("wrong", f"{name} {placed.offset} {whole}")
        tally.counts["alive"] += came_out
    for last, end in _blanks(log):
        begin, base = last.end, end - SEGMENT
        span = slice(begin - base, begin - base + min(8, end - begin))
        original = log.segments[base][span]
        led = slice(last.offset - base, span.stop)  # a BLANK is known by the record that leads to it
        is_whole = any(segments[base][led] == log.segments[base][led] for segments in contents)
        if is_whole and end <= copies[0].reading.end and bytes_of[base][span] != original:
            tally.fail("lost", f"{name} BLANK at {begin}")
    tally.counts["restored"] += all(_same(log, base, data) for base, data in bytes_of.items())


def _blanks(log: LogBuilder) -> list[tuple[Placed, int]]:
    """The last record of each segment that is closed, and where the segment ends."""
    lasts = {placed.offset - placed.offset % SEGMENT: placed for placed in log.records}
    return [(placed, base + SEGMENT) for base, placed in lasts.items() if base + SEGMENT <= log.records[-1].offset]


def _same(log: LogBuilder, base: int, data: bytes) -> bool:
    end = max((placed.end for placed in log.records if base <= placed.offset < base + SEGMENT), default=base)
    return data[: end - base] == log.segments[base][: end - base]


def assert_all_healed(tally: Tally) -> None:
    assert (tally.counts["wrong"], tally.counts["lost"]) == (0, 0), tally.examples
    assert tally.counts["healed"] > tally.trials / 3
    assert tally.counts["alive"] > 20 * tally.trials


@pytest.mark.thorough
@pytest.mark.parametrize(("copies", "count"), [(2, 60), (3, 25)])
def test_only_what_is_damaged_in_all_copies_is_lost(copies: int, count: int) -> None:
    assert_all_healed(run_replica_trials(copies, count, copies=copies))


def _trials(seed: int, count: int, copies: int) -> Tally:
    files.RangeReader = MemoryReader  # type: ignore[misc,assignment]
    return run_replica_trials(seed, count, copies=copies)


@pytest.mark.slow
def test_ten_thousand_logs_of_damaged_copies() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        tallies = list(pool.map(_trials, range(10), [1_000] * 10, [2, 3] * 5))
    assert sum(tally.trials for tally in tallies) == 10_000
    for tally in tallies:
        assert_all_healed(tally)


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


def offsets(ranges: list[ByteRange]) -> set[int]:
    return {at for begin, end in ranges for at in range(begin, end)}


def test_zeros_before_damage_are_lost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before the second damage reach back over the first one."""
    monkeypatch.setattr(MemoryReader, "contents", {"log": b"x" * 40 + bytes(360)})
    damaged = [LogRange(begin, end, RangeKind.DAMAGED, "") for begin, end in ((100, 200), (250, 300))]
    reading = LogReading([Segment("log", 0, 400)], [], 0, 300, 400, damaged)
    assert LogCopy("a", reading).lost == [(40, 100), (100, 200), (200, 250), (250, 300)]


@given(RANGES, RANGES)
def test_ranges_are_as_sets_of_offsets(one: list[ByteRange], other: list[ByteRange]) -> None:
    left, right = joined(one), joined(other)
    assert offsets(left) == offsets(one)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(left))
    assert offsets(common(left, right)) == offsets(one) & offsets(other)
    assert offsets(without(left, right)) == offsets(one) - offsets(other)


# ------------------------------------------------------------------------------------------------- verified chain older
# Segments that hold what a file of the same name held in an earlier life of the log, whole or at their begin: a page
# that was never written, a file out of an old backup. Their records are certified and chained, and none of this log's.
YEARS_BEFORE = 1_600_000_000_000


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
    last, lost = max(placed.offset for placed in log.records if placed.offset < SEGMENT), log.records[50]
    changes = [(last + 56, b"\1"), (lost.offset, bytes(lost.size))]
    reading = read_segments(log.segments, split_size, "salvage", changes=changes)
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
    written = {placed.offset // SEGMENT for placed in log.records}
    found = []
    for split_size in (SEGMENT, 300):
        reading = read_segments(log.segments, split_size, "salvage", changes=changes)
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
    reading = read_segments(log.segments, 300, "stop", changes=[(log.end_offset, tail)], **task)
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
