"""Proof by damage: no wrong message comes out of a damaged log, no whole one is missed, every lost one is counted.

``support.salvage_trials`` says what a trial does, what it counts, and what no reader of this format can do.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import damaging, strategies
from support.damaging import Shape
from support.in_memory import MemoryReader
from support.reading import read_segments
from support.salvage_trials import Tally, Trial, Trials, run_in_processes, run_trials
from support.store_builder import LogBuilder

from jobs.log.log_scan import LogReading
from storeformat.errors import DamagedLog
from storeformat.kernels import compiled
from storeformat.storage import files

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
