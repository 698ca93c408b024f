"""Find messages in proven ranges of the log, inside a Spark task, without queues or index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storeformat.arrays import Int64s
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules, RecordBlock
from storeformat.record.dispatch import (
    OP_TOPICS,
    DispatchRules,
    batch_units,
    belongs_to,
    dispatched,
    ended_half,
    may_hold,
    pending,
)
from udfs.table.proven_ranges import ProvenRange, proven_blocks
from udfs.table.rows import RowRules, record_batch


@dataclass(frozen=True)
class Wanted:
    """Search criteria, None: any. ``key``: KEYS or UNIQ_KEY. ``begin``, ``end``: store times in milliseconds,
    inclusive. ``waiting``: also messages of the topic that wait in a system topic; needs the column ``properties``.
    """

    topic: str | None = None
    key: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    begin: int | None = None
    end: int | None = None
    waiting: bool = False


@dataclass(frozen=True)
class FindMessages:
    """Yields wanted messages as dictionaries, at most ``limit`` a range."""

    wanted: Wanted
    rules: RowRules
    limit: int

    def __call__(self, ranges: Iterator[ProvenRange]) -> Iterator[dict[str, Any]]:
        for item in ranges:
            left = self.limit
            for block in _blocks(item, self.rules):
                rows = self._matching(block)
                yield from rows[:left]
                left -= len(rows)
                if left <= 0:
                    break

    def _matching(self, block: RecordBlock) -> list[dict[str, Any]]:
        wanted = self.wanted
        rows = _of_queue(block, wanted.topic, wanted.queue_id, waiting=wanted.waiting)
        times = block.heads.store_timestamp
        if wanted.begin is not None:
            rows = rows[times[rows] >= wanted.begin]
        if wanted.end is not None:
            rows = rows[times[rows] <= wanted.end]
        if wanted.queue_offset is not None:
            rows = rows[dispatched(block)[rows]]  # unqueued records have 0 there
            first, end = queue_places(block, self.rules.dispatch_rules)
            rows = rows[(first[rows] <= wanted.queue_offset) & (wanted.queue_offset < end[rows])]
        if not rows.size:
            return []
        batch = record_batch(block.take(rows), self.rules)
        if wanted.key is not None:
            batch = batch.filter(_has_key(batch, wanted.key))
        found: list[dict[str, Any]] = batch.to_pylist()
        if wanted.waiting and wanted.topic is not None:
            found = [row for row in found if row["topic"] == wanted.topic or _waits_for(row, wanted.topic)]
        return found


def _waits_for(row: dict[str, Any], topic: str) -> bool:
    found = pending(row["topic"], row["tags_code"], dict(row["properties"] or ()))
    return found is not None and belongs_to(row["topic"], found, topic)


@dataclass(frozen=True)
class FindEndedHalf:
    """Yields half messages ended by an op message (``pending.ended_half``), and that one's offset."""

    half: tuple[tuple[int, int], ...]
    rules: RowRules

    def __call__(self, ranges: Iterator[ProvenRange]) -> Iterator[tuple[tuple[int, int], int]]:
        for item in ranges:
            for block in _blocks(item, self.rules):
                rows = np.concatenate([_of_queue(block, topic, None) for topic in OP_TOPICS])
                for row in record_batch(block.take(np.sort(rows)), self.rules).to_pylist() if rows.size else ():
                    for place in ended_half(row["queue_id"], row["body"], dict(row["properties"] or ())):
                        if place in self.half:
                            yield place, row["commit_log_offset"]


def _has_key(batch: pa.RecordBatch, key: str) -> pa.Array:
    keys = batch.column("keys")
    equal = pc.fill_null(pc.equal(keys.flatten(), key), False)
    hit = np.zeros(batch.num_rows, bool)
    hit[np.asarray(pc.list_parent_indices(keys))[np.asarray(equal.to_numpy(zero_copy_only=False), bool)]] = True
    return pc.or_(pa.array(hit), pc.fill_null(pc.equal(batch.column("uniq_key"), key), False))


@dataclass(frozen=True)
class TimePlace:
    """A range's queue offsets [first, end) of one queue, and those next to a time."""

    first: int
    end: int
    first_at_or_after: int | None
    last_at_or_before: int | None


@dataclass(frozen=True)
class FindTime:
    """Yields where a time is among a queue's messages, for each block with some."""

    topic: str
    queue_id: int
    timestamp: int
    rules: RowRules

    def __call__(self, ranges: Iterator[ProvenRange]) -> Iterator[TimePlace]:
        for item in ranges:
            for block in _blocks(item, self.rules):
                rows = _of_queue(block, self.topic, self.queue_id)
                rows = rows[dispatched(block)[rows]]
                if not rows.size:
                    continue
                first, ends = queue_places(block, self.rules.dispatch_rules)
                offsets, times = first[rows], block.heads.store_timestamp[rows]
                later, earlier = offsets[times >= self.timestamp], offsets[times <= self.timestamp]
                yield TimePlace(
                    first=int(offsets.min()),
                    end=int(ends[rows].max()),
                    first_at_or_after=int(later.min()) if later.size else None,
                    last_at_or_before=int(earlier.max()) if earlier.size else None,
                )


def queue_places(block: RecordBlock, rules: DispatchRules) -> tuple[Int64s, Int64s]:
    """Queue offsets [first, end) of each record: several for an inner batch."""
    first, end = block.heads.queue_offset.copy(), block.heads.queue_offset + 1
    if not rules.batch_topics:
        return first, end
    batches = batch_units(block, rules).units
    rows = np.searchsorted(block.offsets, batches["phy_offset"])
    first[rows] = batches["msg_base_offset"]
    end[rows] = first[rows] + batches["batch_size"]
    return first, end


def _of_queue(block: RecordBlock, topic: str | None, queue_id: int | None, *, waiting: bool = False) -> Int64s:
    keep = ~block.foreign
    if topic is not None:
        codes = [
            code
            for code, name in enumerate(block.topics)
            if name == topic.encode() or (waiting and may_hold(name.decode(errors="replace")))
        ]
        keep &= np.isin(block.topic_codes, codes)
    if queue_id is not None:
        keep &= block.heads.queue_id == queue_id
    return np.flatnonzero(keep)


def _blocks(item: ProvenRange, rules: RowRules) -> Iterator[RecordBlock]:
    needed = DISPATCH_PROPERTIES if rules.dispatch_rules.batch_topics else ()
    properties = tuple(dict.fromkeys((*rules.properties, *needed)))
    return proven_blocks(item, DecodeRules(split_parser=rules.split_parser, properties=properties))
