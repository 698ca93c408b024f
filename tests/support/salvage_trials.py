"""Salvage judged by the hundred thousand: damaged logs in memory, read by ``jobs.log.log_scan`` without files or Spark.

========  ==============================================================================================================
wrong     a record that was never written there, or whose checked bytes are not the ones that were
missed    a record whose bytes are all still in place, and which did not come out (``misled``: a record in the same
          segment, in the same queue or chain, passes every check with a damaged queue, queue offset or time)
uncounted a message that is gone between two survivors of its queue and that the report does not name
shifted   a survivor whose unit does not stand at its own queue offset, in the plan of the queues (``twins``: a record
          with a damaged queue id or topic claims the same place, and either may be the one that the other queue misses)
========  ==============================================================================================================

Not asked is what no reader can do: damage in bytes without a check (``unchecked``: all but sizes, magic, offset and
body, unless ``__CRC32#`` ends the record whole); a block of an older log that begins where a record must (``aligned``),
and the record in which it ends (``covered``); a first segment of an earlier life, before which nothing lies
(``beginless``); a copy in the body of a lost message that claims the place of a lost one (``forged``), or another's
(``copies``).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from support.damaging import SEGMENT, Shape, draw_damage, draw_field_damage, draw_log
from support.in_memory import MemoryReader
from support.store_builder import Embedded, LogBuilder, Placed

from jobs.log.log_scan import LogReading, scan_log
from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.log.chain_walk import BlockWindow, ChainWalk
from storeformat.log.segments import ChainEnd, Segment, Split
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.salvage.evidence import Neighbours, Side, foreign_bytes
from storeformat.salvage.survey import Broken, survey
from storeformat.storage import files
from udfs.log.scan import ScanTask, SplitScan

_CLAIMS = (slice(12, 16), slice(20, 28), slice(56, 64))
"""QUEUEID, QUEUEOFFSET and STORETIMESTAMP of a record with short hosts."""
_CRC_TAIL = 21
"""``__CRC32#`` with its value, and the separator before it."""


@dataclass
class RememberingRunner:
    """Scans the splits of sound segments once for all trials on a log."""

    damaged: set[int] = field(default_factory=set)
    known: dict[Split, SplitScan] = field(default_factory=dict)

    def map(self, what: str, task: Callable[[Iterator[Any]], Iterable[Any]], items: Sequence[Any]) -> list[Any]:
        rows = []
        for item in items:
            sound = isinstance(item, Split) and item.segment.base not in self.damaged
            row = self.known.get(item) if sound else None
            if row is None:
                (row,) = task(iter([item]))
            if sound:
                self.known[item] = row
            rows.append(row)
        return rows


@dataclass
class Tally:
    """What trials found; ``examples`` hold the first of each kind of failure."""

    trials: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fail(self, what: str, told: str) -> None:
        self.counts[what] += 1
        if self.counts[what] <= 3:
            self.examples.append(f"{what}: {told}")


def run_trials(
    seed: int, count: int, shape: Shape, *, per_log: int = 100, split_size: int = SEGMENT, whole_driver: bool = True
) -> Tally:
    """The outcome of trials; without ``whole_driver`` of chain and survey alone, which is ten times as fast."""
    tally = Tally()
    for trial, changed in draw_trials(seed, count, shape, per_log, split_size, whole_files=whole_driver):
        tally.trials += 1
        if changed and whole_driver:
            trial.judge_reading(changed, tally, f"seed {seed} trial {tally.trials}")
        elif changed:
            trial.judge_surveys(changed, tally, f"seed {seed} trial {tally.trials}")
    return tally


def run_field_trials(seed: int, count: int, shape: Shape, *, per_log: int = 100) -> Tally:
    """The outcome of ``count`` trials in each of which one field alone of one record is damaged."""
    tally = Tally()
    draw = random.Random(seed)
    for number in range(count):
        if number % per_log == 0:
            log = draw_log(draw, shape)
            trial = Trial(log, log, shape, SEGMENT)
        offset, changed = draw_field_damage(draw, log)
        tally.trials += 1
        if changed:
            trial.judge_places(offset, changed, tally, f"seed {seed} trial {tally.trials}")
    return tally


def draw_trials(
    seed: int, count: int, shape: Shape, per_log: int = 100, split_size: int = SEGMENT, *, whole_files: bool = False
) -> Iterator[tuple[Trial, dict[int, bytes]]]:
    """Yields logs, each ``per_log`` times, with the segments that a damage changes; the last is the trial ``count``."""
    draw = random.Random(seed)
    for number in range(count):
        if number % per_log == 0:
            older = draw_log(draw, shape, clock=1_600_000_000_000)
            log = draw_log(draw, shape)
            trial = Trial(log, older, shape, split_size)
        yield trial, draw_damage(draw, log, older, whole_files=whole_files)


@dataclass(frozen=True)
class Trials:
    """The arguments of one ``run_trials``."""

    seed: int
    count: int
    shape: Shape
    whole_driver: bool = False
    one_field: bool = False


def run_in_processes(parts: Sequence[Trials]) -> Tally:
    """The tally of all parts, which share the cores."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(parts), os.cpu_count() or 1), context) as pool:
        tallies = list(pool.map(_run_alone, parts))
    counts = sum((tally.counts for tally in tallies), Counter[str]())
    return Tally(sum(tally.trials for tally in tallies), counts, [text for tally in tallies for text in tally.examples])


def _run_alone(part: Trials) -> Tally:
    files.RangeReader = MemoryReader  # type: ignore[misc,assignment]
    if part.one_field:
        return run_field_trials(part.seed, part.count, part.shape)
    return run_trials(part.seed, part.count, part.shape, whole_driver=part.whole_driver)


class Trial:
    """One log, whose sound parts are scanned once."""

    def __init__(self, log: LogBuilder, older: LogBuilder, shape: Shape, split_size: int) -> None:
        self.older = older.segments
        self.boundaries = {placed.end for placed in log.records} | set(log.segments)
        self.log, self.shape, self.split_size = log, shape, split_size
        self.sound = log.segments
        self.segments = [Segment(str(base), base, SEGMENT) for base in self.sound]
        self.task = ScanTask("", DecodeRules(), DispatchRules(()), with_entries=False)
        self.truth = {placed.offset: placed for placed in log.records}
        self.in_queue: dict[tuple[bytes, int], list[Placed]] = {}
        for placed in log.records:
            self.in_queue.setdefault(_queue(placed), []).append(placed)
        self.by_segment: dict[int, list[Placed]] = {base: [] for base in self.sound}
        for placed in log.records:
            self.by_segment[placed.offset - placed.offset % SEGMENT].append(placed)
        self._around: dict[int, Neighbours] = {}
        self.places: set[tuple[bytes, int, int | None]] = set()
        self.aligned: dict[int, int] = {}
        self.runner = RememberingRunner()

    def read(self, changed: dict[int, bytes]) -> LogReading:
        """The salvaged reading of the log with some segments changed."""
        self.runner.damaged = set(changed)
        MemoryReader.contents = {str(base): data for base, data in (self.sound | changed).items()}
        return scan_log(self.runner, self.segments, self.task, split_size=self.split_size, on_damage="salvage")

    def judge_reading(self, changed: dict[int, bytes], tally: Tally, name: str) -> None:
        """Lets the driver read the damaged log and tallies what is wrong with the outcome."""
        reading = self.read(changed)
        unchecked = tally.counts["unchecked"] + tally.counts["aligned"]
        came_out: set[int] = set()
        first = min((scan.report.start or 0 for scan in reading.scans if scan.records), default=0)
        if first in changed and changed[first][: m.FIXED_HEAD] == self.older[first][: m.FIXED_HEAD]:
            tally.counts["beginless"] += 1
            return
        for base, data in changed.items():
            ranges = [(scan.report.start or 0, scan.report.end) for scan in reading.scans]
            mine = [item for item in ranges if base <= item[0] < base + SEGMENT]
            came_out |= self._judge(base, data, mine, tally, name)
        if tally.counts["unchecked"] + tally.counts["aligned"] == unchecked:  # else its queue offset may be damaged too
            self._count(changed, came_out, reading, tally, name)

    def judge_places(self, damaged: int, changed: dict[int, bytes], tally: Tally, name: str) -> None:
        """Tallies survivors that do not stand at their own queue offsets: every record but the damaged one survives."""
        reading = self.read(changed)
        table = reading.queue_runs
        places = table.plan().runs
        runs = table.runs
        placed_at: dict[int, int] = {}
        for row in np.flatnonzero(places["count"]).tolist():
            topic, queue_id = table.queue_at(row)
            inside = self.in_queue.get((topic.encode(), queue_id), [])
            first, last = int(runs.first_offsets[row]), int(runs.last_offsets[row])
            begin, end = int(places["skip"][row]), int(places["skip"][row] + places["count"][row])
            for placed in inside:
                number = (placed.message.queue_offset or 0) - int(runs.first_queue_offsets[row])
                if first <= placed.offset <= last and begin <= number < end:
                    placed_at[placed.offset] = int(places["position"][row]) + number - begin
        tally.counts["stray"] += any(stray.offset == damaged for stray in reading.losses.strays)
        for placed in self.log.records:
            own = placed.message.queue_offset
            if placed.offset == damaged:
                tally.counts["home"] += placed_at.get(placed.offset) == own
                continue
            tally.counts["alive"] += 1
            if placed_at.get(placed.offset) is None and self._is_twin(damaged, placed, changed):
                tally.counts["twins"] += 1
            elif placed_at.get(placed.offset) != own:
                found = placed_at.get(placed.offset)
                tally.fail(
                    "shifted", f"{name} damaged {damaged}: {placed.offset} {placed.message.queue} {own} at {found}"
                )

    def _is_twin(self, damaged: int, whole: Placed, changed: dict[int, bytes]) -> bool:
        """Whether the damaged record claims the place of another, and either may be what its queue misses."""
        ((base, data),) = changed.items()
        now = data[damaged - base : self.truth[damaged].end - base]
        claim = (_topic(now)[1:], *struct.unpack_from(">i4xq", now, 12))
        own = self.in_queue[_queue(self.truth[damaged])]
        at = next(number for number, placed in enumerate(own) if placed.offset == damaged)
        after = own[at - 1].offset if at else -1
        before = own[at + 1].offset if at + 1 < len(own) else self.log.end_offset
        return claim == (*_queue(whole), whole.message.queue_offset) and after < whole.offset < before

    def judge_surveys(self, changed: dict[int, bytes], tally: Tally, name: str) -> None:
        """Reads each damaged segment alone, as if the others were sound."""
        for base, data in changed.items():
            segment = Segment(str(base), base, SEGMENT)
            MemoryReader.contents = {segment.path: data}
            window = BlockWindow(MemoryReader(segment.path), segment)  # type: ignore[arg-type]
            walk = ChainWalk(
                window, Split(0, segment, base, segment.end, segment.end, base), base, self.task.decode_rules
            )
            blocks = list(walk)
            start, defect, room = walk.position, walk.defect, sum(foreign_bytes(block) for block in blocks)
            if blocks and data[: m.FIXED_HEAD] == self.older[base][: m.FIXED_HEAD]:  # the driver leaves this chain out
                start, defect = int(blocks[-1].offsets[-1]), RecordDefect.OLDER_LOG
                room = start - base
                ranges = []
            else:
                ranges = [(base, start)]
            if walk.ended == ChainEnd.DEFECT:
                near = self._neighbours(segment, start if ranges else base)
                near = replace(near, before=replace(near.before, room=room))
                found = survey(window, Broken(segment, start, defect, segment.end, near), self.task.decode_rules)
                tally.counts["surveys"] += 1
                ranges += found.pieces
            self._judge(base, data, ranges, tally, name)

    def _neighbours(self, segment: Segment, position: int) -> Neighbours:
        near = self._around.get(segment.base)
        if near is None:
            before = [placed for placed in self.log.records if placed.offset < segment.base]
            after = [placed for placed in self.log.records if placed.offset >= segment.end]
            near = self._around[segment.base] = Neighbours(
                Side(
                    {_queue(placed): (placed.message.queue_offset or 0) + 1 for placed in before},
                    before[-1].message.store_timestamp if before else None,
                ),
                Side(
                    {_queue(placed): placed.message.queue_offset or 0 for placed in reversed(after)},
                    after[0].message.store_timestamp if after else None,
                ),
                whole=True,
            )
        inside = [placed for placed in self.by_segment[segment.base] if placed.end <= position]
        ends = {_queue(placed): (placed.message.queue_offset or 0) + 1 for placed in inside}
        last = inside[-1].message.store_timestamp if inside else near.before.time
        return replace(near, before=Side({**near.before.edges, **ends}, last))

    def _judge(self, base: int, data: bytes, ranges: Sequence[tuple[int, int]], tally: Tally, name: str) -> set[int]:
        """Tallies what came out of one segment that should not have, and what did not; returns what came out."""
        came_out: set[int] = set()
        forged = tally.counts["forged"] + tally.counts["copies"]
        self.aligned.clear()
        self.places = (
            {
                (*_queue(placed), placed.message.queue_offset)
                for placed in self.log.records
                if data[placed.offset - base : placed.end - base]
                == self.sound[base][placed.offset - base : placed.end - base]
            }
            if self.shape.embedded
            else set()
        )
        for start, end in ranges:
            at = start
            while at < end:
                (size,) = struct.unpack_from(">i", data, at - base)
                if int.from_bytes(data[at - base + 28 : at - base + 36], "big") == at:  # else foreign
                    came_out.add(at)
                    self._check(base, data, at, size, tally, name)
                at += size
        for placed in self.by_segment[base]:
            span = slice(placed.offset - base, placed.end - base)
            if data[span] == self.sound[base][span]:
                tally.counts["alive"] += 1
                if placed.offset in came_out:
                    continue
                if any(at < placed.offset < end for at, end in self.aligned.items()):
                    tally.counts["covered"] += 1
                elif self._is_misled(base, data, placed):
                    tally.fail("misled", f"{name} {placed.offset} {placed.message.queue} {placed.message.queue_offset}")
                elif tally.counts["forged"] + tally.counts["copies"] == forged:
                    tally.fail("missed", f"{name} {placed.offset} {placed.message.queue} {placed.message.queue_offset}")
        return came_out

    def _check(self, base: int, data: bytes, at: int, size: int, tally: Tally, name: str) -> None:
        placed = self.truth.get(at)
        span = slice(at - base, at - base + size)
        if placed is not None and placed.size == size:
            if data[span] == self.sound[base][span]:
                return
            if self._differs_unchecked(data[span], self.sound[base][span]):
                tally.counts["unchecked"] += 1
                return
        then = self.older[base][span]
        if at in self.boundaries and then[:4] == data[span][:4] and self._differs_unchecked(data[span], then):
            self.boundaries.add(at + size)
            self.aligned[at] = at + size
            tally.counts["aligned"] += 1
            return
        copy = self._copy_of_what(data[span], at)
        if copy is not None:
            tally.counts["copies" if copy in self.places else "forged"] += 1
            return
        tally.fail("wrong", f"{name} {at} size {size}, written there: {placed}")

    def _differs_unchecked(self, now: bytes, then: bytes) -> bool:
        """Whether nothing that has a check tells a record's bytes from others."""
        hidden = now[-_CRC_TAIL:] != then[-_CRC_TAIL:] or not self.shape.property_crc
        return now == then or (hidden and _body(now) in (b"", _body(then)))

    def _is_misled(self, base: int, data: bytes, whole: Placed) -> bool:
        """Whether a record that passes every check makes a damaged claim that speaks against ``whole``: in its queue,
        before or now, in its chain, or with a time that puts it on the other side.
        """
        here = self.by_segment[base].index(whole)
        false = {number for number in range(len(self.by_segment[base])) if self._lies(base, data, number)}
        for number in false:
            placed = self.by_segment[base][number]
            now = data[placed.offset - base : placed.end - base]
            (time,) = struct.unpack_from(">q", now, 56)
            turned = (time > (whole.message.store_timestamp or 0)) == (number < here)
            claimed = now[12:16] == struct.pack(">i", whole.message.queue_id) and _topic(now)[1:] == _queue(whole)[0]
            between = range(min(number, here) + 1, max(number, here))
            linked = all(other in false or self._is_whole(base, data, other) for other in between)
            if (
                claimed
                or _queue(placed) == _queue(whole)
                or linked
                or (turned and time != placed.message.store_timestamp)
            ):
                return True
        return False

    def _is_whole(self, base: int, data: bytes, number: int) -> bool:
        placed = self.by_segment[base][number]
        span = slice(placed.offset - base, placed.end - base)
        return data[span] == self.sound[base][span]

    def _lies(self, base: int, data: bytes, number: int) -> bool:
        """Whether a record passes every check but says another place in a queue, or another time, than was written."""
        placed = self.by_segment[base][number]
        now, then = (part[placed.offset - base : placed.end - base] for part in (data, self.sound[base]))
        differs = any(now[part] != then[part] for part in _CLAIMS) or _topic(now) != _topic(then)
        framed = now[:8] == then[:8] and now[28:36] == then[28:36]
        return differs and framed and self._differs_unchecked(now, then)

    def _copy_of_what(self, record: bytes, at: int) -> tuple[bytes, int, int] | None:
        """The place in a queue that a copy out of a lost body claims; None if the record is no copy."""
        holder = next((p for p in self.by_segment[at - at % SEGMENT] if p.offset < at < p.end), None)
        if holder is None or not isinstance(holder.message.body, Embedded):
            return None
        queue_id, queue_offset = struct.unpack_from(">i4xq", record, 12)
        topic_at = 88 + max(struct.unpack_from(">i", record, 84)[0], 0)
        return record[topic_at + 1 : topic_at + 1 + record[topic_at]], queue_id, queue_offset

    def _count(
        self, changed: dict[int, bytes], came_out: set[int], reading: LogReading, tally: Tally, name: str
    ) -> None:
        """Every message that is gone between survivors of its queue is counted, and no other."""
        queues: dict[Any, list[tuple[int, bool]]] = {}
        for placed in self.log.records:
            base = placed.offset - placed.offset % SEGMENT
            out = placed.offset in came_out if base in changed else True
            queues.setdefault(placed.message.queue, []).append((placed.message.queue_offset or 0, out))
        for (topic, queue_id), rows in queues.items():
            last = max((number for number, out in rows if out), default=-1)
            gone = {number for number, out in rows if not out and number < last}
            told = [row for row in reading.losses.rows if (row.topic, row.queue_id) == (topic, queue_id)]
            counted = {
                row.first_queue_offset + number
                for row in told
                if row.first_queue_offset is not None
                for number in range(row.messages)
            }
            tally.counts["gone"] += len(gone)
            if gone - counted:
                tally.fail("uncounted", f"{name} {topic}/{queue_id} {sorted(gone - counted)}")
            if {number for number, out in rows if out} & counted:
                tally.fail("overcounted", f"{name} {topic}/{queue_id} {sorted(counted)}")


def _queue(placed: Placed) -> tuple[bytes, int]:
    return placed.message.topic_bytes, placed.message.queue_id


def _body(record: bytes) -> bytes:
    (length,) = struct.unpack_from(">i", record, 84)
    return record[88 : 88 + max(length, 0)]


def _topic(record: bytes) -> bytes:
    at = 88 + len(_body(record))
    return record[at : at + 1 + record[at]] if at < len(record) else b""
