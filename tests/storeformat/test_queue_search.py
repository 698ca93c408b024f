"""Ends of queues and offsets by time: answers of real brokers, and what they mean on queues with any times."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import golden

from storeformat.arrays import Structs
from storeformat.queues import batch_consume_queue
from storeformat.queues import consume_queue as cq
from storeformat.queues.queue_search import (
    Boundary,
    FileUnits,
    batch_at,
    batch_offset_by_time,
    batch_range,
    min_offset,
    offset_by_time,
    queue_end,
    recovered_batches,
)

# --------------------------------------------------------------------------------------------------------- queue search
# Where the running broker's begin is an older one than it computes when it starts: a pre-blank it has just written
# counts once it starts with a log that begins at 0; a queue that was empty while the head of the log was deleted.
BEFORE_A_START = {"lmq-5.1.4": {("%LMQ%device-7", 0): (1, 0)}, "retention-4.9.8": {("TopicOrder", 1): (0, 5)}}
ANSWERED = golden.stores(lambda store: "answers" in store.entry)


def queue_of(phy_offsets: list[int], per_file: int, pre_blanks: int = 0) -> list[FileUnits]:
    """Files of a queue whose messages of 10 bytes lie at these offsets."""
    plan = cq.place_runs([0], [pre_blanks], [len(phy_offsets)])
    size = per_file * cq.UNIT_SIZE
    files, slices = cq.plan_files(plan, per_file, size)
    units = cq.pack_units(phy_offsets, [10] * len(phy_offsets), [0] * len(phy_offsets)).tobytes()
    found = []
    for (_, base, blanks, _, _), (_, begin, count, _) in zip(files.tolist(), slices.tolist(), strict=True):
        piece = units[begin * cq.UNIT_SIZE : (begin + count) * cq.UNIT_SIZE]
        content = (cq.PRE_BLANK * blanks + piece).ljust(size, b"\0")
        found.append(FileUnits(base // cq.UNIT_SIZE, cq.parse_units(content)))
    return found


def real_queue(directory: Path) -> list[FileUnits]:
    return [
        FileUnits(int(path.name) // cq.UNIT_SIZE, cq.parse_units(path.read_bytes()))
        for path in sorted(directory.iterdir())
    ]


def store_time_in(root: Path, begin: int, end: int) -> Callable[[int, int], int]:
    """CommitLog#pickupStoreTimestamp on the segments of a store."""
    segments = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    size = len(next(iter(segments.values())))

    def store_time(phy_offset: int, length: int) -> int:
        if not (begin <= phy_offset and phy_offset + length <= end):
            return -1
        segment = segments[phy_offset - phy_offset % size]
        (sys_flag,) = struct.unpack_from(">i", segment, phy_offset % size + 36)
        return struct.unpack_from(">q", segment, phy_offset % size + (68 if sys_flag & 0x10 else 56))[0]

    return store_time


@pytest.mark.golden
@pytest.mark.parametrize("store", ANSWERED, ids=str)
def test_ends_are_those_the_real_broker_answered(store: golden.GoldenStore) -> None:
    root = golden.unpack(store)
    assert store.entry["answers"]["queues"]
    differing = {}
    for queue in store.entry["answers"]["queues"]:
        files = real_queue(root / "consumequeue" / queue["topic"] / str(queue["queueId"]))
        end = queue_end(files)
        assert end == queue["maxOffset"], queue
        found = min_offset(files, end, store.min_offset)
        if found != queue["minOffset"]:
            differing[queue["topic"], queue["queueId"]] = (queue["minOffset"], found)
    assert differing == BEFORE_A_START.get(store.name, {})


@pytest.mark.golden
@pytest.mark.parametrize("store", [store for store in ANSWERED if "times" in store.entry["answers"]], ids=str)
def test_offsets_by_time_are_those_the_real_broker_answered(store: golden.GoldenStore) -> None:
    root, answers = golden.unpack(store), store.entry["answers"]
    store_time = store_time_in(root, answers["minPhyOffset"], answers["maxPhyOffset"])
    for queue in answers["queues"]:
        files = real_queue(root / "consumequeue" / queue["topic"] / str(queue["queueId"]))
        units = {
            file.first_queue_offset + place: unit for file in files for place, unit in enumerate(file.units.tolist())
        }
        begin, end = queue["minOffset"], queue["maxOffset"]

        def time_at(place: int, units: dict[int, tuple[int, int, int]] = units) -> int:
            return store_time(*units[place][:2])

        found = [offset_by_time(begin, end, time_at, time, Boundary.LOWER) for time in answers["times"]]
        assert found == queue["offsetByTime"], queue


@given(times=st.lists(st.integers(1, 12), max_size=30).map(sorted), begin=st.integers(0, 12), asked=st.integers(0, 14))
def test_bounds_are_the_first_not_before_and_the_last_not_after(times: list[int], begin: int, asked: int) -> None:
    lower, upper = (
        offset_by_time(begin, begin + len(times), lambda place: times[place - begin], asked, boundary)
        for boundary in (Boundary.LOWER, Boundary.UPPER)
    )
    assert lower == begin + sum(time < asked for time in times)
    assert upper == begin + max(sum(time <= asked for time in times) - 1, 0)


def test_queue_without_files() -> None:
    assert queue_end([]) == min_offset([], 0, 0) == 0


def test_queue_whose_messages_are_all_gone() -> None:
    assert min_offset(queue_of([100, 110, 120], 4), 3, 500) == 3


def test_pre_blanks_count_where_the_log_begins_at_zero() -> None:
    assert min_offset(queue_of([0, 10], 10, pre_blanks=5), 7, 0) == 0
    assert 10 <= min_offset(queue_of([0, 10], 10, pre_blanks=15), 17, 0) <= 15


def test_recovery_looks_at_the_last_three_files_only() -> None:
    files = queue_of([10 * n for n in range(20)], 5)
    hole = bytearray(files[0].units.tobytes())
    hole[20:40] = bytes(20)
    assert queue_end([FileUnits(0, cq.parse_units(hole)), *files[1:]]) == 20
    assert queue_end([FileUnits(0, cq.parse_units(hole)), *files[1:3]]) == 1


def test_a_last_file_that_nobody_wrote() -> None:
    """A broker that was killed right after it made the file: the queue ends before it."""
    files = [*queue_of([100, 110, 120], 3), FileUnits(3, cq.parse_units(bytes(60)))]
    assert queue_end(files) == 3
    assert min_offset(files, 3, 100) == min_offset(files[1:], 0, 0) == 0


def test_a_queue_whose_first_unit_is_damaged_has_no_messages() -> None:
    file = FileUnits(100, np.zeros(10, cq.UNIT))
    file.units["phy_offset"], file.units["size"] = np.arange(2_000, 3_000, 100), 100
    file.units["size"][0] = 0
    assert min_offset([file], queue_end([file]), 1_000) == 0


# --------------------------------------------------------------------------------------------------- batch queue search
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
    return recovered_batches(cut(units_of(sizes, steps, first=draw(st.integers(0, 9))), draw(st.integers(1, 7))))


@given(queues())
def test_every_message_is_found_in_its_unit(files: list[Structs]) -> None:
    units = np.concatenate(files)
    begin, end = batch_range(files, 0)
    assert (begin, end) == (units["msg_base_offset"][0], units["msg_base_offset"][-1] + units["batch_size"][-1])
    for offset in range(begin, end):
        (place,) = np.flatnonzero(
            (units["msg_base_offset"] <= offset) & (offset < units["msg_base_offset"] + units["batch_size"])
        )
        assert batch_at(files, offset) == units[place]
    assert batch_at(files, begin - 1) is None
    assert batch_at(files, end) is None


@given(queues())
def test_a_time_leads_to_the_first_unit_at_or_after_it_in_the_file_that_began_before(files: list[Structs]) -> None:
    begin, end = batch_range(files, 0)
    for time in range(998, int(files[-1]["store_timestamp"][-1]) + 3):
        started = [units for units in files if units["store_timestamp"][0] <= time]
        units = started[-1] if started else files[0]
        later = np.flatnonzero(units["store_timestamp"] >= time)
        last = time >= units["store_timestamp"][-1]
        place = len(units) - 1 if last else int(later[0])
        found = batch_offset_by_time(files, time, Boundary.LOWER, begin=begin, end=end)
        assert found == units["msg_base_offset"][place]
        upper = batch_offset_by_time(files, time, Boundary.UPPER, begin=begin, end=end)
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
    (units,) = recovered_batches(cut(units_of([1] * 6, [0] * 6), 6))
    units["store_timestamp"] = times
    assert {asked: batch_offset_by_time([units], asked, boundary, begin=0, end=6) for asked in places} == places


def test_a_queue_begins_after_what_the_log_has_lost() -> None:
    files = recovered_batches(cut(units_of([3, 2, 4, 1], [1, 1, 1, 1]), 2))
    assert batch_range(files, 0) == (0, 10)
    assert batch_range(files, 100) == (3, 10)
    assert batch_range(files, 101) == (5, 10)  # the second file is not looked at
    assert batch_range([], 0) == (-1, 0)
    assert batch_at([], 0) is None
    assert batch_offset_by_time([], 5, Boundary.LOWER, begin=-1, end=0) == -1


def test_the_first_unit_that_is_none_ends_the_queue() -> None:
    files = cut(units_of([1] * 8, [1] * 8), 2)
    files[2][1]["size"] = 0
    assert [len(units) for units in recovered_batches(files)] == [2, 2, 1]
