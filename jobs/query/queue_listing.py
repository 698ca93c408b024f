"""``query list``: the messages of a topic, queue by queue and in order, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.contract.options import FOREVER, ListOptions
from jobs.query.offline_store import OfflineStore, plain_row, row_rules, utc_text
from storeformat.arrays import Int64s, Structs
from storeformat.errors import MissingInput
from storeformat.kernels import PADDING
from storeformat.log.log_end import growing_log_end
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
_DECODED_AT_ONCE = 512
"""Records: those after a damaged one are checked again."""
OPEN_HALF = ", waits for its producer to commit it or to roll it back"
_OF_WAITING = (
    "commit_log_offset", "topic", "queue_id", "queue_offset", "tags_code", "properties", "store_timestamp", "uniq_key",
)  # fmt: skip


@dataclass
class Listing:
    """A listing and its counters; ``committed`` has the first queue offset to list of each queue."""

    offline: OfflineStore
    options: ListOptions
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
        options, topic = self.options, self.options.topic
        rules = row_rules(self.offline.store, bodies=options.bodies)
        if options.waiting:
            yield from self._waiting(topic, rules)
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
        for table in self._topic(topic, rules, queue_ids):
            yield from _with_plain_bodies(table)

    def _waiting(self, topic: str, rules: RowRules) -> Iterator[pa.Table]:
        ends = self._ends_of_waits(topic, rules)
        for holding in (*HOLDING_TOPICS, *self.offline.topics_with(*PREFIXES)):
            for table in self._topic(holding, rules):
                found = {
                    number: waiting_text(row, waiting, topic) + (OPEN_HALF if waiting.kind == "half" else "")
                    for number, row, waiting in _waiting_rows(table, topic, self.options.queue_id)
                    if not any(ends.get(end, -1) > row["commit_log_offset"] for end in _ends_of(row, waiting))
                }
                if found:
                    part = table.take(pa.array(found)).append_column("waits_for", pa.array(found.values(), pa.string()))
                    yield from _with_plain_bodies(part)

    def _ends_of_waits(self, topic: str, rules: RowRules) -> dict[tuple[Any, Any], int]:
        """Log offset of the last record of each of ``_ends_of`` the messages that wait for a topic, -1 for none."""
        rules, op_rules = replace(rules, columns=_OF_WAITING), replace(rules, columns=(*_OF_WAITING, "body"))
        waits = Listing(self.offline, self.options)
        at_any_time = Listing(self.offline, replace(self.options, begin=0, end=FOREVER))
        ends: dict[tuple[Any, Any], int] = {}
        for table in (table for holding in HOLDING_TOPICS for table in waits._topic(holding, rules)):
            for _, row, waiting in _waiting_rows(table, topic, self.options.queue_id):
                ends |= dict.fromkeys(_ends_of(row, waiting), -1)
        for name in sorted({name for _, name in ends if isinstance(name, str)}):
            queue_ids = self.offline.queue_ids(name)
            if not queue_ids:
                self.notes.append(f"no consume queue of {name}: if it is lost, what was delivered is listed, too")
            for table in at_any_time._topic(name, rules, queue_ids):
                for row in table.select(("uniq_key", "commit_log_offset")).to_pylist():
                    place = (row["uniq_key"], name)
                    if place in ends:
                        ends[place] = max(ends[place], row["commit_log_offset"])
        for table in (table for name in OP_TOPICS for table in at_any_time._topic(name, op_rules)):
            for row in table.to_pylist():
                # as it is stored: no broker compresses it, and a few bytes could ask for gigabytes
                places = ended_half(row["queue_id"], row["body"], dict(row["properties"] or ()))
                ends |= dict.fromkeys(ends.keys() & set(places), row["commit_log_offset"])
        return ends

    def _topic(self, topic: str, rules: RowRules, queue_ids: Sequence[int] | None = None) -> Iterator[pa.Table]:
        for queue_id in self.offline.queue_ids(topic) if queue_ids is None else queue_ids:
            for units in self.offline.units(topic, queue_id, self.committed.get(queue_id, 0)):
                inside = units["phy_offset"] < self.log_end
                self.beyond_end += int((~inside).sum())
                table = self._records(units[inside], rules)
                if table.num_rows:
                    yield table

    def _records(self, units: Structs, rules: RowRules) -> pa.Table:
        order = np.argsort(units["phy_offset"], kind="stable")
        block, found = self._read(units["phy_offset"][order], units["size"][order])
        self.lost_units += len(order) - len(found)
        times = block.heads.store_timestamp
        keep = np.flatnonzero((times >= self.options.begin) & (times <= self.options.end))
        batch = record_batch(_Gathered(**vars(block.take(keep))), rules)
        return pa.Table.from_batches([batch]).take(pa.array(np.argsort(order[found[keep]], kind="stable")))

    def _read(self, offsets: Int64s, sizes: Int64s) -> tuple[RecordBlock, Int64s]:
        """Sound records of the given sizes at these ascending offsets in one buffer, and their numbers."""
        segments = self.offline.store.segments
        places = np.array([segment.base for segment in segments]).searchsorted(offsets, "right") - 1
        ends = offsets + sizes
        inside = np.flatnonzero((places >= 0) & (ends <= np.array([segment.end for segment in segments])[places]))
        apart = (np.diff(places[inside]) != 0) | (offsets[inside][1:] - ends[inside][:-1] > _NEAR)
        windows = [part for part in np.split(inside, np.flatnonzero(apart) + 1) if len(part)]
        lengths = [int(ends[part].max() - offsets[part[0]]) for part in windows]
        data = bytearray(sum(lengths) + PADDING)
        positions = np.full(len(offsets), -1, np.int64)
        at = 0
        with ExitStack() as stack:
            readers: dict[str, files.RangeReader] = {}
            for part, length in zip(windows, lengths, strict=True):
                segment, begin = segments[places[part[0]]], int(offsets[part[0]])
                if segment.path not in readers:
                    readers[segment.path] = stack.enter_context(files.RangeReader(segment.path))
                readers[segment.path].read_into(begin - segment.base, memoryview(data)[at : at + length])
                positions[part] = offsets[part] - begin + at
                at += length
        buffer = np.frombuffer(data, np.uint8)
        left = inside
        stored = buffer[positions[left, np.newaxis] + np.arange(4)].view(">i4")[:, 0]
        left = left[stored == sizes[left]]
        rules, found = self.offline.store.decode_rules(), left[:0]
        while len(left):
            block, fault = decode(buffer, 0, positions[left[:_DECODED_AT_ONCE]], rules)
            found = np.append(found, left[: len(block)])
            left = left[len(block) + (fault is not None) :]
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


def _waiting_rows(table: pa.Table, topic: str, queue_id: int | None) -> Iterator[tuple[int, dict[str, Any], Pending]]:
    for number, row in enumerate(map(plain_row, table.select(_OF_WAITING).to_pylist())):
        found = _waiting_for(row, topic)
        if found is not None and queue_id in (None, found.queue_id):
            yield number, row, found


def _ends_of(row: dict[str, Any], waiting: Pending) -> list[tuple[Any, Any]]:
    """What ends a wait: the delivery or a copy that waits instead, by unique key and topic; of a half message also its
    op message, as ``pending.ended_half`` has it.
    """
    if row["topic"] not in HOLDING_TOPICS:
        return []
    topics = {waiting.topics[0]} if row["topic"] == SCHEDULE_TOPIC else {waiting.topics[0], row["topic"]}
    copies = [] if row["uniq_key"] is None else [(row["uniq_key"], name) for name in topics]
    return [*copies, *half_places([row])]


def _waiting_for(row: dict[str, Any], topic: str) -> Pending | None:
    """What a message waits for if it belongs to the topic; None if it is in its own one."""
    found = pending(row["topic"], row["tags_code"], row["properties"])
    return found if found is not None and belongs_to(row["topic"], found, topic) else None


def split_waiting(
    rows: Sequence[dict[str, Any]], topic: str, ended: Mapping[tuple[int, int], int] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows under their topic, and rows that wait for it elsewhere, with ``waits_for``. ``ended``: log offset of the op
    message by queue id and queue offset of ended half messages, None if not looked up.
    """
    own = [row for row in rows if row["topic"] == topic]
    waiting = []
    for row in rows:
        found = _waiting_for(row, topic) if row["topic"] != topic else None
        if found is None:
            continue
        fate = ""
        later = next((other for other in rows if _is_later_copy(other, row)), None)
        if later is not None:
            what = "delivered" if later["topic"] == topic else f"stored again under {later['topic']}"
            fate = f"; {what} at offset {later['commit_log_offset']}"
        elif found.kind == "half" and ended is None:
            fate = ", waits for its producer to commit it, or was rolled back: --scan says which"
        elif found.kind == "half":
            ends = [ended[place] for place in half_places([row]) if ended and place in ended]
            fate = (
                f"; its producer rolled it back, or the broker gave it up, at offset {ends[0]}" if ends else OPEN_HALF
            )
        waiting.append({**row, "waits_for": waiting_text(row, found, topic) + fate})
    return own, waiting


def half_places(rows: Sequence[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    """Places of the half messages among rows, as in ``pending.ended_half``."""
    half = [row for row in rows if row["topic"] in HALF_TOPICS]
    return tuple(
        place for row in half for place in ((row["queue_id"], row["queue_offset"]), (-1, row["commit_log_offset"]))
    )


def _is_later_copy(other: dict[str, Any], row: dict[str, Any]) -> bool:
    same = row["uniq_key"] is not None and other["uniq_key"] == row["uniq_key"]
    offset = row["commit_log_offset"]
    same |= other["transaction_type"] == "commit" and other["prepared_transaction_offset"] == offset
    return bool(same and other["commit_log_offset"] > offset)


def waiting_text(row: dict[str, Any], waiting: Pending, topic: str) -> str:
    """What a message waits for, in words; the row needs ``store_timestamp_ms``."""
    queue = waiting.topics[0] if waiting.topics else topic
    queue += "" if waiting.queue_id is None else f":{waiting.queue_id}"
    place = f"{row['topic']}:{row['queue_id']} at {row['queue_offset']}"
    due = "" if waiting.due is None else f", delivery due {utc_text(waiting.due)}"
    what = {"retried": f"to be consumed again, in {place}", "dead": f"dead letter in {place}"}
    stored = f"stored {utc_text(row['store_timestamp_ms'] or 0)}{due}"
    return f"{what.get(waiting.kind, f'{waiting.kind} message of {queue}')}: {stored}"
