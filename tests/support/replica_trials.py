"""Copies of one log, each with damage of its own, healed from each other in memory.

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

import random
from collections.abc import Sequence

from support.damaging import SEGMENT, Shape, draw_damage, draw_log
from support.in_memory import MemoryReader
from support.salvage_trials import Tally
from support.store_builder import LogBuilder, Placed

from jobs.log.log_scan import LogReading, scan_log
from jobs.log.restored_log import Healing, LogCopy, absent_in, plan_healing, refuse_differing
from jobs.spark.runner import Runner
from storeformat.errors import Refused
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
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
