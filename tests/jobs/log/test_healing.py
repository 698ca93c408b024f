"""Copies of a log, damaged at random, healed from each other; and what is refused.

``support.replica_trials`` says what a trial does and counts.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.in_memory import MemoryReader
from support.replica_trials import run_replica_trials
from support.salvage_trials import Tally

from jobs.log.restored_log import ByteRange, LogCopy, common, joined, without
from storeformat.log.segments import Segment
from storeformat.storage import files


@pytest.fixture(autouse=True)
def logs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RangeReader", MemoryReader)


def assert_nothing_failed(tally: Tally) -> None:
    assert (tally.counts["wrong"], tally.counts["lost"]) == (0, 0), tally.examples
    assert tally.counts["healed"] > tally.trials / 3
    assert tally.counts["alive"] > 20 * tally.trials


@pytest.mark.thorough
@pytest.mark.parametrize(("copies", "count"), [(2, 60), (3, 25)])
def test_only_what_is_damaged_in_all_copies_is_lost(copies: int, count: int) -> None:
    assert_nothing_failed(run_replica_trials(copies, count, copies=copies))


def _trials(seed: int, count: int, copies: int) -> Tally:
    files.RangeReader = MemoryReader  # type: ignore[misc,assignment]
    return run_replica_trials(seed, count, copies=copies)


@pytest.mark.slow
def test_ten_thousand_logs_of_damaged_copies() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        tallies = list(pool.map(_trials, range(10), [1_000] * 10, [2, 3] * 5))
    assert sum(tally.trials for tally in tallies) == 10_000
    for tally in tallies:
        assert_nothing_failed(tally)


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


def offsets(ranges: list[ByteRange]) -> set[int]:
    return {at for begin, end in ranges for at in range(begin, end)}


def test_zeros_before_damage_are_lost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before the second damage reach back over the first one."""
    monkeypatch.setattr(MemoryReader, "contents", {"log": b"x" * 40 + bytes(360)})
    damaged = [SimpleNamespace(begin=100, end=200), SimpleNamespace(begin=250, end=300)]
    reading: Any = SimpleNamespace(end=300, damaged=damaged, stale=[], segments=[Segment("log", 0, 400)])
    assert LogCopy("a", reading).lost == [(40, 100), (100, 200), (200, 250), (250, 300)]


@given(RANGES, RANGES)
def test_ranges_are_as_sets_of_offsets(one: list[ByteRange], other: list[ByteRange]) -> None:
    left, right = joined(one), joined(other)
    assert offsets(left) == offsets(one)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(left))
    assert offsets(common(left, right)) == offsets(one) & offsets(other)
    assert offsets(without(left, right)) == offsets(one) - offsets(other)
