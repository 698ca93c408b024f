"""Searching batch queues: against a linear look at the same units. What brokers answer, the judged tests compare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.arrays import Structs
from storeformat.queues import batch_consume_queue
from storeformat.queues.batch_queue_search import offset_by_time, queue_range, recovered, unit_at
from storeformat.queues.queue_search import Boundary


def units_of(sizes: list[int], steps: list[int], *, first: int = 0) -> Structs:
    """Units that hold ``sizes`` messages each, ``steps`` milliseconds apart."""
    units = np.zeros(len(sizes), batch_consume_queue.UNIT)
    units["phy_offset"], units["size"] = 100 * np.arange(len(sizes)), 100
    units["msg_base_offset"] = first + np.cumsum([0, *sizes[:-1]]) if sizes else 0
    units["batch_size"], units["store_timestamp"] = sizes, 1000 + np.cumsum(steps)
    return units


def cut(units: Structs, per_file: int) -> list[Structs]:
    """Whole files, zeros after the last unit."""
    padded = np.zeros(-(-len(units) // per_file) * per_file, units.dtype)
    padded[: len(units)] = units
    return [padded[at : at + per_file] for at in range(0, len(padded), per_file)]


@st.composite
def queues(draw: st.DrawFn) -> list[Structs]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=30))
    steps = draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)))
    return recovered(cut(units_of(sizes, steps, first=draw(st.integers(0, 9))), draw(st.integers(1, 7))))


@given(queues())
def test_every_message_is_found_in_its_unit(files: list[Structs]) -> None:
    units = np.concatenate(files)
    begin, end = queue_range(files, 0)
    assert (begin, end) == (units["msg_base_offset"][0], units["msg_base_offset"][-1] + units["batch_size"][-1])
    for offset in range(begin, end):
        (place,) = np.flatnonzero(
            (units["msg_base_offset"] <= offset) & (offset < units["msg_base_offset"] + units["batch_size"])
        )
        assert unit_at(files, offset) == units[place]
    assert unit_at(files, begin - 1) is None
    assert unit_at(files, end) is None


@given(queues())
def test_a_time_leads_to_the_first_unit_at_or_after_it_in_the_file_that_began_before(files: list[Structs]) -> None:
    begin, end = queue_range(files, 0)
    for time in range(998, int(files[-1]["store_timestamp"][-1]) + 3):
        started = [units for units in files if units["store_timestamp"][0] <= time]
        units = started[-1] if started else files[0]
        later = np.flatnonzero(units["store_timestamp"] >= time)
        last = time >= units["store_timestamp"][-1]
        place = len(units) - 1 if last else int(later[0])
        found = offset_by_time(files, time, Boundary.LOWER, begin=begin, end=end)
        assert found == units["msg_base_offset"][place]
        upper = offset_by_time(files, time, Boundary.UPPER, begin=begin, end=end)
        assert begin <= found <= end
        assert begin <= upper <= end


@pytest.mark.parametrize(
    ("boundary", "places"),
    [
        (Boundary.LOWER, {5: 0, 10: 0, 11: 1, 20: 1, 25: 4, 50: 4, 60: 5, 90: 5, 99: 5}),
        (Boundary.UPPER, {5: 0, 10: 0, 11: 1, 20: 3, 25: 0, 50: 4, 60: 5, 90: 5, 99: 5}),
    ],
)
def test_the_unit_of_a_time_is_the_one_that_the_broker_comes_upon(boundary: Boundary, places: dict[int, int]) -> None:
    """BatchConsumeQueue#binarySearchRight step by step; its UPPER is the later of two neighbours, or none (25)."""
    times = [10, 20, 20, 20, 50, 90]
    (units,) = recovered(cut(units_of([1] * 6, [0] * 6), 6))
    units["store_timestamp"] = times
    assert {asked: offset_by_time([units], asked, boundary, begin=0, end=6) for asked in places} == places


def test_a_queue_begins_after_what_the_log_has_lost() -> None:
    files = recovered(cut(units_of([3, 2, 4, 1], [1, 1, 1, 1]), 2))
    assert queue_range(files, 0) == (0, 10)
    assert queue_range(files, 100) == (3, 10)
    assert queue_range(files, 101) == (5, 10)  # the second file is not looked at
    assert queue_range([], 0) == (-1, 0)
    assert unit_at([], 0) is None
    assert offset_by_time([], 5, Boundary.LOWER, begin=-1, end=0) == -1


def test_the_first_unit_that_is_none_ends_the_queue() -> None:
    files = cut(units_of([1] * 8, [1] * 8), 2)
    files[2][1]["size"] = 0
    assert [len(units) for units in recovered(files)] == [2, 2, 1]
