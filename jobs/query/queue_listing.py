"""``query list``: the messages of a topic, queue by queue and in order, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.contract.options import QueryOptions
from jobs.query.offline_store import OfflineStore, RecordPlaces, row_rules, stored_at, utc_text
from storeformat.arrays import Int64s
from storeformat.errors import MissingInput
from storeformat.kernels import PADDING
from storeformat.log.log_end import growing_log_end
from storeformat.log.segments import Segment, segment_at
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.bodies import uncompressed
from storeformat.record.decode import RecordBlock, decode
from storeformat.record.pending import (
    HALF_TOPICS,
    HOLDING_TOPICS,
    OP_TOPICS,
    PREFIXES,
    Pending,
    belongs_to,
    ended_half,
    pending,
)
from storeformat.storage import files
from udfs.table.rows import RowRules, record_batch

AT_ONCE = 64 << 20
"""Bytes of uncompressed bodies in memory at a time."""
_NEAR = 4 << 10
"""Bytes between two records that are cheaper to read than to skip."""
_AFTER_A_FAULT = 16
"""Records decoded at once after a damaged one; doubles while they are sound, to avoid repeated checks."""
_OF_WAITING = (
    "commit_log_offset", "topic", "queue_id", "queue_offset", "tags_code", "properties", "store_timestamp", "uniq_key",
)  # fmt: skip


@dataclass
class Listing:
    """A listing and its counters; ``committed`` has the first queue offset to list of each queue."""

    offline: OfflineStore
    options: QueryOptions
    committed: Mapping[int, int] = field(default_factory=dict)
    lost_units: int = 0
    beyond_end: int = 0
    """Units at or beyond the end of the log; a broker's recovery cuts them off."""
    notes: list[str] = field(default_factory=list)

    @cached_property
    def log_end(self) -> int:
        """End of the log by its last segment, or an earlier end from the options."""
        store = self.offline.store
        end, until = growing_log_end(store.segments, store.decode_rules()), store.until(self.options.until_offset)
        return end if until is None else min(end, until)

    def tables(self) -> Iterator[pa.Table]:
        """Messages of the topic, or with ``waiting`` those that wait for it elsewhere, some thousand rows at a time."""
        options, topic = self.options, self.options.topic or ""
        rules = row_rules(self.offline.store, bodies=options.bodies)
        if options.waiting:
            ended, delivered = self._ended_half(), self._delivered(topic)
            for holding in (*HOLDING_TOPICS, *self.offline.topics_with(*PREFIXES)):
                for table in self._topic(holding, rules):
                    for part in _waiting_part(table, topic, options.queue_id, ended, delivered):
                        yield from _with_plain_bodies(part)
            return
        queue_ids = self.offline.queue_ids(topic) if options.queue_id is None else [options.queue_id]
        if not queue_ids:
            raise MissingInput(
                "the store has no consume queue of this topic", path=topic,
                advice="inspect lists the topics of the log; --waiting lists messages that were not delivered yet",
            )  # fmt: skip
        last = queue_ids[-1]
        if options.queue_id is None and (absent := last + 1 - len(queue_ids)):
            self.notes.append(f"{absent} queues before {last} are not there: they had no message, or are lost (verify)")
        for queue_id in queue_ids:
            for table in self._queue(topic, queue_id, rules):
                yield from _with_plain_bodies(table)

    def _topic(self, topic: str, rules: RowRules) -> Iterator[pa.Table]:
        for queue_id in self.offline.queue_ids(topic):
            yield from self._queue(topic, queue_id, rules)

    def _at_any_time(self) -> Listing:
        return Listing(self.offline, replace(self.options, begin=0, end=2**63 - 1))

    def _delivered(self, topic: str) -> dict[tuple[str, str], int]:
        """Log offset of the last copy of each message held for a topic (-1: none), by unique key and copy's topic."""
        store = self.offline.store
        columns = RowRules(store.dispatch_rules(), split_parser=store.rules.split_parser, columns=_OF_WAITING)
        once, whole = Listing(self.offline, self.options), self._at_any_time()
        copies: dict[tuple[str, str], int] = {}
        for holding in HOLDING_TOPICS:
            for table in once._topic(holding, columns):
                for row, found in _waiting_rows(table, topic, self.options.queue_id):
                    copies |= dict.fromkeys(_places_of_copies(row, found), -1)
        for name in sorted({name for _, name in copies}):
            queue_ids = self.offline.queue_ids(name)
            if not queue_ids:
                self.notes.append(f"no consume queue of {name}: if it is lost, what was delivered is listed, too")
            for table in (table for queue_id in queue_ids for table in whole._queue(name, queue_id, columns)):
                for row in table.select(("uniq_key", "commit_log_offset")).to_pylist():
                    place = (row["uniq_key"], name)
                    if place in copies:
                        copies[place] = max(copies[place], row["commit_log_offset"])
        return copies

    def _ended_half(self) -> dict[tuple[int, int], int]:
        ended: dict[tuple[int, int], int] = {}
        if not any(self.offline.queue_ids(topic) for topic in HALF_TOPICS):
            return ended
        whole, rules = self._at_any_time(), row_rules(self.offline.store, bodies=True)
        for table in (table for topic in OP_TOPICS for table in whole._topic(topic, rules)):
            for row in table.select(("queue_id", "body", "properties", "commit_log_offset")).to_pylist():
                # as it is stored: no broker compresses it, and a few bytes could ask for gigabytes
                places = ended_half(row["queue_id"], row["body"], dict(row["properties"] or ()))
                ended |= dict.fromkeys(places, row["commit_log_offset"])
        return ended

    def _queue(self, topic: str, queue_id: int, rules: RowRules) -> Iterator[pa.Table]:
        for units in self.offline.units(topic, queue_id, self.committed.get(queue_id, 0)):
            inside = units.offsets < self.log_end
            self.beyond_end += int((~inside).sum())
            if inside.any():
                table = self._records(RecordPlaces(units.offsets[inside], units.sizes[inside]), rules)
                if table.num_rows:
                    yield table

    def _records(self, units: RecordPlaces, rules: RowRules) -> pa.Table:
        order = np.argsort(units.offsets, kind="stable")
        block, found = self._read(units.offsets[order], units.sizes[order])
        self.lost_units += len(order) - len(found)
        times = block.heads.store_timestamp
        keep = np.flatnonzero((times >= self.options.begin) & (times <= self.options.end))
        batch = record_batch(_Gathered(**vars(block.take(keep))), rules)
        return pa.Table.from_batches([batch]).take(pa.array(np.argsort(order[found[keep]], kind="stable")))

    def _windows(self, offsets: Int64s, sizes: Int64s) -> Iterator[tuple[Segment, Int64s]]:
        segments = self.offline.store.segments
        numbers: list[int] = []
        segment: Segment | None = None
        for number, (offset, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
            near = bool(numbers) and offset - int(offsets[numbers[-1]] + sizes[numbers[-1]]) <= _NEAR
            if segment is not None and not (near and offset + size <= segment.end):
                yield segment, np.array(numbers, np.int64)
                numbers, segment = [], None
            if segment is None:
                segment = segment_at(segments, offset)
                if segment is None or offset + size > segment.end:
                    segment = None
                    continue
            numbers.append(number)
        if segment is not None:
            yield segment, np.array(numbers, np.int64)

    def _read(self, offsets: Int64s, sizes: Int64s) -> tuple[RecordBlock, Int64s]:
        """Sound records of the given sizes at these ascending offsets in one buffer, and their numbers."""
        windows = list(self._windows(offsets, sizes))
        lengths = [int((offsets[part] + sizes[part]).max() - offsets[part[0]]) for _, part in windows]
        data = bytearray(sum(lengths) + PADDING)
        positions = np.full(len(offsets), -1, np.int64)
        at = 0
        with ExitStack() as stack:
            readers: dict[str, files.RangeReader] = {}
            for (segment, part), length in zip(windows, lengths, strict=True):
                if segment.path not in readers:
                    readers[segment.path] = stack.enter_context(files.RangeReader(segment.path))
                begin = int(offsets[part[0]])
                readers[segment.path].read_into(begin - segment.base, memoryview(data)[at : at + length])
                positions[part] = offsets[part] - begin + at
                at += length
        buffer = np.frombuffer(data, np.uint8)
        left = np.flatnonzero(positions >= 0)
        stored = buffer[positions[left, np.newaxis] + np.arange(4)].view(">i4")[:, 0]
        left = left[stored == sizes[left]]
        rules, found, count = self.offline.store.decode_rules(), left[:0], len(left)
        while len(left):
            block, fault = decode(buffer, 0, positions[left[:count]], rules)
            found = np.append(found, left[: len(block)])
            left = left[len(block) + (fault is not None) :]
            count = 2 * count if fault is None else max(len(block), _AFTER_A_FAULT)
        block, _ = decode(buffer, 0, positions[found], replace(rules, check_crc=False))
        here = block.heads.physical_offset == offsets[found]
        heads = block.heads._replace(defect=np.zeros_like(block.heads.defect))
        return replace(block, heads=heads).take(here), found[here]


@dataclass(frozen=True)
class _Gathered(RecordBlock):
    """Records from many places of the log, already checked against their PHYSICALOFFSET."""

    @property
    def offsets(self) -> Int64s:
        return self.heads.physical_offset


def _with_plain_bodies(table: pa.Table) -> Iterator[pa.Table]:
    """The table in parts of about ``AT_ONCE`` bytes, bodies uncompressed; damaged ones stay as stored."""
    if "body" not in table.column_names:
        yield table
        return
    bodies: list[bytes | None] = []
    begin = size = 0
    column = table.column_names.index("body")
    stored = zip(table["body"].to_pylist(), table["sys_flag"].to_pylist(), strict=True)
    for number, (body, flags) in enumerate(stored):
        bodies.append(body and (uncompressed(body, flags) or body))
        size += len(bodies[-1] or b"")
        if size >= AT_ONCE or number + 1 == table.num_rows:
            part = table.slice(begin, len(bodies))
            yield part.set_column(column, "body", pa.array(bodies, pa.binary()))
            begin, bodies, size = number + 1, [], 0


def _waiting_rows(table: pa.Table, topic: str, queue_id: int | None) -> Iterator[tuple[dict[str, Any], Pending]]:
    for number, row in enumerate(table.select(_OF_WAITING).to_pylist()):
        row["properties"] = dict(row["properties"] or ())
        found = waiting_of(row)
        if found is not None and belongs_to(row["topic"], found, topic) and queue_id in (None, found.queue_id):
            yield {**row, "number": number}, found


def _places_of_copies(row: dict[str, Any], waiting: Pending) -> list[tuple[str, str]]:
    """Unique key and topic of each later record that ends the wait: the delivery, or a copy that waits instead."""
    if row["uniq_key"] is None or row["topic"] not in HOLDING_TOPICS:
        return []
    again = [] if row["topic"] == SCHEDULE_TOPIC else [row["topic"]]
    return [(row["uniq_key"], name) for name in (waiting.topics[0], *again)]


def _waiting_part(
    table: pa.Table,
    topic: str,
    queue_id: int | None,
    ended: Mapping[tuple[int, int], int],
    delivered: Mapping[tuple[str, str], int],
) -> Iterator[pa.Table]:
    rows, texts = [], []
    for row, found in _waiting_rows(table, topic, queue_id):
        if any(delivered[place] > row["commit_log_offset"] for place in _places_of_copies(row, found)):
            continue
        if found.kind == "half" and any(place in ended for place in half_places([row])):
            continue
        stored = row["store_timestamp"]
        row["store_timestamp_ms"] = None if stored is None else round(stored.timestamp() * 1000)
        rows.append(row["number"])
        texts.append(waiting_text(row, found, topic) + (end_of_half(row, ended) if found.kind == "half" else ""))
    if rows:
        yield table.take(pa.array(rows)).append_column("waits_for", pa.array(texts, pa.string()))


def waiting_of(row: dict[str, Any]) -> Pending | None:
    """What the message of a row waits for."""
    return pending(row["topic"], row["tags_code"], row["properties"] or {})


def split_waiting(
    rows: Sequence[dict[str, Any]], topic: str, ended: Mapping[tuple[int, int], int] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows under their topic, and rows that wait for it elsewhere, with ``waits_for``. ``ended``: log offset of the op
    message by queue id and queue offset of ended half messages, None if not looked up.
    """
    own = [row for row in rows if row["topic"] == topic]
    waiting = []
    for row in rows:
        found = waiting_of(row) if row["topic"] != topic else None
        if found is not None and belongs_to(row["topic"], found, topic):
            text = waiting_text(row, found, topic)
            later = _later_copy(row, rows)
            if later is not None:
                what = "delivered" if later["topic"] == topic else f"stored again under {later['topic']}"
                text += f"; {what} at offset {later['commit_log_offset']}"
            elif found.kind == "half":
                text += end_of_half(row, ended)
            waiting.append({**row, "waits_for": text})
    return own, waiting


def half_places(rows: Sequence[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    """Places of the half messages among rows, as in ``pending.ended_half``."""
    return tuple(place for row in rows if row["topic"] in HALF_TOPICS for place in _places(row))


def _places(row: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    return (row["queue_id"], row["queue_offset"]), (-1, row["commit_log_offset"])


def _later_copy(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    offset = row["commit_log_offset"]
    for other in rows:
        same = row["uniq_key"] is not None and other["uniq_key"] == row["uniq_key"]
        same |= other["transaction_type"] == "commit" and other["prepared_transaction_offset"] == offset
        if same and other["commit_log_offset"] > offset:
            return other
    return None


def end_of_half(row: dict[str, Any], ended: Mapping[tuple[int, int], int] | None) -> str:
    """Fate of a half message without a later copy."""
    if ended is None:
        return ", waits for its producer to commit it, or was rolled back: --scan says which"
    offset = next((ended[place] for place in _places(row) if place in ended), None)
    if offset is None:
        return ", waits for its producer to commit it or to roll it back"
    return f"; its producer rolled it back, or the broker gave it up, at offset {offset}"


def waiting_text(row: dict[str, Any], waiting: Pending, topic: str) -> str:
    """What a message waits for, in words; the row needs ``store_timestamp_ms``."""
    queue = waiting.topics[0] if waiting.topics else topic
    if waiting.queue_id is not None:
        queue = f"{queue}:{waiting.queue_id}"
    place = f"{row['topic']}:{row['queue_id']} at {row['queue_offset']}"
    due = "" if waiting.due is None else f", delivery due {utc_text(waiting.due)}"
    stored = f"stored {utc_text(stored_at(row))}{due}"
    what = {
        "delayed": f"delayed message of {queue}",
        "timer": f"timer message of {queue}",
        "half": f"half message of {queue}",
        "retried": f"to be consumed again, in {place}",
        "dead": f"dead letter in {place}",
    }[waiting.kind]
    return f"{what}: {stored}"
