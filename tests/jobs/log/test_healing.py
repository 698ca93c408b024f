"""Copies of one log, each with damage of its own, healed from each other in memory; and what is refused.

========  ==============================================================================================================
wrong     a byte of a record or BLANK of the healed log that is not the one that was written
lost      a record or BLANK that is whole in some copy and not in the healed log (``short``: the first copy ends
          before it, as a log does that never had it; the outcome says so)
twice     a record that is damaged in all copies: nobody can heal it (``unchecked``: and one of them passes every check)
refused   two copies differ in a record that passes every check in both: nobody can say which is right
restored  no failure: logs that are byte for byte the original up to their ends
========  ==============================================================================================================
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damaging import SEGMENT, Shape, draw_damage, draw_log
from support.in_memory import MemoryReader
from support.salvage_trials import Tally
from support.store_builder import LogBuilder, Placed

from jobs.log.log_scan import LogReading, scan_log
from jobs.log.restored_log import (
    ByteRange,
    Healing,
    LogCopy,
    absent_in,
    common,
    joined,
    plan_healing,
    refuse_differing,
    without,
)
from jobs.spark.runner import Runner
from storeformat.errors import Refused
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.storage import files
from udfs.log.log_copies import parts_of
from udfs.log.scan import ScanTask

TASK = ScanTask("", DecodeRules(), DispatchRules(()), with_entries=False)


def read(segments: Sequence[Segment]) -> LogReading:
    """The reading of segments that are in memory."""
    return scan_log(Runner(), segments, TASK, split_size=SEGMENT, on_damage="salvage")


def copy_of(name: str, contents: dict[int, bytes | None]) -> LogCopy:
    """A copy of the log in memory; of a segment without bytes, or with too few, the rest is missing."""
    segments = []
    for base, data in contents.items():
        held = b"" if data is None else data
        MemoryReader.contents[f"{name}/{base}"] = held + bytes(SEGMENT - len(held))
        segments.append(Segment(f"{name}/{base}", base, SEGMENT, missing=SEGMENT - len(held)))
    return LogCopy(name, read(segments), absent_in(segments))


def healed(copies: Sequence[LogCopy]) -> tuple[Healing, dict[int, bytes]]:
    """What heals the first copy, and its bytes then."""
    healing = plan_healing(copies[0], copies[1:], "healed")
    contents = {segment.base: MemoryReader.contents[segment.path] for segment in copies[0].segments}
    for made in healing.segments:
        data = bytearray(SEGMENT)
        for position, part in parts_of(made):
            data[position : position + len(part)] = part
        contents[made.own.base] = bytes(data)
    return healing, contents


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
    healing, bytes_of = healed(copies)
    tally.counts["healed"] += len(healing.ranges)
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
    """Whether all records of a segment are as they were written."""
    end = max((placed.end for placed in log.records if base <= placed.offset < base + SEGMENT), default=base)
    return data[: end - base] == log.segments[base][: end - base]


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
