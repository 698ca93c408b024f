"""The last part of a log, read and checked as recovery does: its records, its end and the reason for it.

At most ``READ_AT_MOST`` bytes are read, from the head of a segment or, in a longer one, from a certified record on, so
the check takes a second for any log. ``verify`` checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bools, Int64s
from storeformat.errors import RecordDefect
from storeformat.log.chain_walk import BlockWindow, certificates, chain_from, search_certificate
from storeformat.log.segments import ChainEnd, Segment
from storeformat.message import MAX_HEAD_SIZE
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules, RecordBlock, store_timestamp_at
from storeformat.record.dispatch import MultiDispatchRules, dispatched, light_units
from storeformat.storage.files import RangeReader, read_range

READ_AT_MOST = 128 << 20
_LAST_ZEROS = 16 << 20


TRAITS: dict[str, Callable[[RecordBlock], Bools]] = {
    "long topic": lambda block: block.heads.magic_code == m.MAGIC_V2,
    "no DUP_INFO": lambda block: (block.heads.properties_length > 0) & (block.properties[m.DUP_INFO].lengths < 0),
    "no property CRC": lambda block: block.properties[m.PROPERTY_CRC].lengths < 0,
}
"""Records of a block at which recovery ends the log in some releases or with some settings."""
_PROPERTIES = (*DISPATCH_PROPERTIES, m.DUP_INFO)


@dataclass(frozen=True)
class TailRows:
    """The queued records of a log's tail, one a row in log order, and one for each light queue; ``key_of`` indexes
    ``keys``.
    """

    offsets: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    ends: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    queue_offsets: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    key_of: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: tuple[tuple[str, int], ...] = ()

    @cached_property
    def by_queue(self) -> dict[tuple[str, int], Int64s]:
        """The rows of each queue, in log order."""
        by_queue = np.argsort(self.key_of, kind="stable")
        numbers, begins = np.unique(self.key_of[by_queue], return_index=True)
        ranges = pairwise([*begins.tolist(), len(by_queue)])
        return {
            self.keys[number]: by_queue[begin:end]
            for number, (begin, end) in zip(numbers.tolist(), ranges, strict=True)
        }

    @cached_property
    def last(self) -> dict[tuple[str, int], int]:
        """The last row of each queue."""
        return {key: int(rows[-1]) for key, rows in self.by_queue.items()}


@dataclass(frozen=True)
class TailDamage:
    """How a tail breaks. ``goes_on_at``: the first younger record after the break. ``passed``: damage that recovery
    does not read. ``foreign``: first record with another own offset, if not only older ones follow.
    """

    defect: RecordDefect = RecordDefect.UNWRITTEN
    goes_on_at: int | None = None
    passed: tuple[int, ...] = ()
    foreign: int | None = None

    @property
    def is_torn(self) -> bool:
        """True if the tail ends with bytes that are no record and nothing younger follows."""
        return self.defect not in (RecordDefect.OK, RecordDefect.UNWRITTEN) and self.goes_on_at is None


@dataclass(frozen=True)
class LogTail:
    """A log's tail [begin, end). ``firsts``: first record with each of ``TRAITS``. ``time``: store time of the last
    record read, in milliseconds.
    """

    begin: int = 0
    end: int = 0
    rows: TailRows = TailRows()
    damage: TailDamage = TailDamage()
    firsts: Mapping[str, int] = field(default_factory=dict)
    time: int = 0


class _Rows:
    """Collects the rows of a tail block by block, and the first traits from ``met_from`` on."""

    def __init__(self, met_from: int, light: MultiDispatchRules | None) -> None:
        self.met_from, self.light = met_from, light
        self.foreign: int | None = None
        self.first_foreign: int | None = None
        self.firsts: dict[str, int] = {}
        self.parts: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
        self.numbers: dict[tuple[str, int], int] = {}
        self.time = 0

    def add(self, block: RecordBlock) -> None:
        self.time = int(block.heads.store_timestamp[-1])
        rows = np.flatnonzero(dispatched(block))
        for trait, has in TRAITS.items():
            met = block.offsets[has(block) & (block.offsets >= self.met_from)]
            if met.size:
                self.firsts.setdefault(trait, int(met[0]))
        if self.first_foreign is None and block.foreign.any():
            self.first_foreign = int(block.offsets[block.foreign.argmax()])
        if self.first_foreign is not None and (block.offsets[~block.foreign] > self.first_foreign).any():
            self.foreign = self.first_foreign
        heads, names, codes = block.heads, [*block.topics], block.topic_codes[rows].astype(np.int64)
        queue_ids, queue_offsets = heads.queue_id[rows].astype(np.int64), heads.queue_offset[rows]
        if self.light is not None:
            light = light_units(block, rows, self.light)
            order = np.argsort(np.concatenate([rows, light.rows]), kind="stable")
            codes = np.concatenate([codes, light.name_codes + len(names)])[order]
            queue_ids = np.concatenate([queue_ids, light.queue_ids])[order]
            queue_offsets = np.concatenate([queue_offsets, light.queue_offsets])[order]
            rows, names = np.concatenate([rows, light.rows])[order], names + light.names
        unique, inverse = np.unique(codes << 32 | queue_ids, return_inverse=True)
        topics = [name.decode("utf-8", "replace") for name in names]
        keys = [(topics[code >> 32], code & 0xFFFFFFFF) for code in unique.tolist()]
        numbers = np.array([self.numbers.setdefault(key, len(self.numbers)) for key in keys], np.int64)
        offsets = block.offsets[rows]
        self.parts.append((offsets, offsets + heads.total_size[rows], queue_offsets, numbers[inverse]))

    def table(self) -> TailRows:
        if not self.parts:
            return TailRows()
        offsets, ends, queue_offsets, key_of = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        return TailRows(offsets, ends, queue_offsets, key_of, tuple(self.numbers))


def read_tail(
    segments: Sequence[Segment],
    furthest_unit: int,
    rules: DecodeRules,
    met_from: int = 0,
    light: MultiDispatchRules | None = None,
) -> LogTail:
    """Read a log's tail; damage before ``met_from`` is skipped. ``furthest_unit``: the furthest queue's end, or -1."""
    more = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET) if light else ()
    rules = replace(rules, properties=(*_PROPERTIES, *more))
    written = [segment for segment in segments if any(read_range(segment.path, 0, min(8, segment.size)))]
    if not written:
        return LogTail(end=segments[0].base if segments else 0)
    at, start = _start(segments, written[-1], furthest_unit)
    begin, rows, position, defect, passed = start, _Rows(met_from, light), start, RecordDefect.OK, []
    while at < len(segments):
        segment = segments[at]
        with RangeReader(segment.path) as reader:
            walk = chain_from(BlockWindow(reader, segment), max(start, segment.base), rules)
            for block in walk:
                rows.add(block)
        position, defect, at = walk.position, walk.defect, at + 1
        if walk.ended == ChainEnd.BLANK:
            position, defect = segment.end, RecordDefect.OK
            continue
        if position >= met_from:
            break
        found = _younger_record(segments, position, furthest_unit, rows.time, defect)
        if found is None or found > met_from:
            break
        passed.append(position)
        start, at = found, next(number for number, one in enumerate(segments) if one.base <= found < one.end)
    goes_on = _younger_record(segments, position, furthest_unit, rows.time, defect)
    return LogTail(
        begin, position, rows.table(),
        TailDamage(defect, goes_on, tuple(passed), rows.foreign), rows.firsts, rows.time,
    )  # fmt: skip


def _start(segments: Sequence[Segment], last: Segment, furthest_unit: int) -> tuple[int, int]:
    at = list(segments).index(last)
    if last.size > READ_AT_MOST:
        known = furthest_unit if last.base < furthest_unit <= last.end else last.base
        wanted = max(known - READ_AT_MOST, last.base)
        if wanted > last.base:
            with RangeReader(last.path) as reader:
                found = search_certificate(BlockWindow(reader, last), wanted, known, last.end).first
            return at, last.base if found is None else found
        return at, last.base
    count = max(READ_AT_MOST // last.size, 1)
    first = max(at - count + 1, 0)
    return first, segments[first].base


def _younger_record(
    segments: Sequence[Segment], position: int, furthest_unit: int, last_time: int, defect: RecordDefect
) -> int | None:
    """Where the log continues after its chain broke: older records are leftovers of a truncation. Behind zeros only the
    range up to the furthest unit is searched, or ``_LAST_ZEROS``.
    """
    for segment in segments:
        if segment.end <= position:
            continue
        begin = max(position + 1, segment.base) if segment.base <= position else segment.base
        stop = segment.end
        if defect == RecordDefect.UNWRITTEN and segment.base <= position:
            stop = min(max(furthest_unit, position + _LAST_ZEROS), segment.end)
        elif segment.base > position:
            stop = segment.base + 1
        with RangeReader(segment.path) as reader:
            for found in certificates(BlockWindow(reader, segment), begin, stop, segment.end):
                if (
                    found + MAX_HEAD_SIZE <= segment.end
                    and store_timestamp_at(reader, found - segment.base) >= last_time
                ):
                    return found
    return None
