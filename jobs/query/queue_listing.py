"""``query list``: the messages of a topic queue by queue, in the order of each queue, with bounded memory.

A queue's units are read some thousands at a time; their records are read in windows of the log that hold neighbours
together, decoded with their checksums, and put back into the order of the units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.config import QueryOptions
from jobs.query.offline_store import OfflineStore, QueueUnits, row_rules
from jobs.query.pending_messages import end_of_half, waiting_of, waiting_text
from storeformat.arrays import Int64s
from storeformat.errors import MissingInput
from storeformat.kernels import PADDING
from storeformat.log.log_end import growing_log_end
from storeformat.log.segments import Segment, segment_at
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.bodies import uncompressed
from storeformat.record.decode import RecordBlock, decode
from storeformat.record.pending import HALF_TOPICS, HOLDING_TOPICS, OP_TOPICS, PREFIXES, belongs_to
from storeformat.storage import files
from udfs.table.rows import RowRules, record_batch

_WINDOW = 8 << 20
_NEAR = 64 << 10
"""Bytes between two records that are rather read than skipped."""
_ROWS = "row"


@dataclass
class Listing:
    """What to list, and how many units have led to no record so far. ``committed`` has the queue offset from which on
    each queue is listed.
    """

    offline: OfflineStore
    options: QueryOptions
    committed: Mapping[int, int] = field(default_factory=dict)
    lost_units: int = 0
    beyond_end: int = 0
    """Units that point at or behind the end of the log: a broker's recovery cuts them off."""

    @cached_property
    def log_end(self) -> int:
        """Where the log ends, told by its last segment; or where the options say."""
        store = self.offline.store
        end, until = growing_log_end(store.segments, store.decode_rules()), store.until(self.options.until_offset)
        return end if until is None else min(end, until)

    def tables(self) -> Iterator[pa.Table]:
        """Yields the messages of the topic, or with ``waiting`` those that wait for it elsewhere, in tables of some
        thousand rows; raises MissingInput where the store has no queue of the topic.
        """
        options, topic = self.options, self.options.topic or ""
        if options.waiting:
            yield from self._waiting(topic)
            return
        queue_ids = self.offline.queue_ids(topic) if options.queue_id is None else [options.queue_id]
        if not queue_ids:
            raise MissingInput(
                "the store has no consume queue of this topic", path=topic,
                advice="inspect lists the topics of the log; --waiting lists messages that were not delivered yet",
            )  # fmt: skip
        for queue_id in queue_ids:
            yield from self._queue(TopicFilter(topic, queue_id), self._rules(bodies=options.bodies))

    def _rules(self, *, bodies: bool) -> RowRules:
        return row_rules(self.offline.store, bodies=bodies)

    def _waiting(self, topic: str) -> Iterator[pa.Table]:
        ended = self._ended_half()
        for holding in (*HOLDING_TOPICS, *self.offline.topics_with(*PREFIXES)):
            for queue_id in self.offline.queue_ids(holding):
                for table in self._queue(TopicFilter(holding, queue_id), self._rules(bodies=self.options.bodies)):
                    yield from _waiting_part(table, topic, self.options.queue_id, ended)

    def _ended_half(self) -> dict[tuple[int, int], int]:
        """Returns queue id and queue offset of the half messages that an op message ends, and where that lies."""
        ended: dict[tuple[int, int], int] = {}
        if not any(self.offline.queue_ids(topic) for topic in HALF_TOPICS):
            return ended
        whole = Listing(self.offline, replace(self.options, begin=0, end=2**63 - 1))
        for topic in OP_TOPICS:
            for queue_id in self.offline.queue_ids(topic):
                for table in whole._queue(TopicFilter(topic, queue_id), self._rules(bodies=True)):
                    for row in table.select(("body", "commit_log_offset")).to_pylist():
                        places = (row["body"] or b"").split(b",")
                        ended |= {(queue_id, int(text)): row["commit_log_offset"] for text in places if text.isdigit()}
        return ended

    def _queue(self, queue: TopicFilter, rules: RowRules) -> Iterator[pa.Table]:
        for units in self.offline.units(queue.topic, queue.queue_id or 0, self.committed.get(queue.queue_id or 0, 0)):
            inside = units.offsets < self.log_end
            self.beyond_end += int((~inside).sum())
            table = self._records(QueueUnits(units.offsets[inside], units.sizes[inside]), rules)
            if table.num_rows:
                yield table

    def _records(self, units: QueueUnits, rules: RowRules) -> pa.Table:
        """Returns the records of some units in the order of the units, those stored in the time that is asked for."""
        order = np.argsort(units.offsets, kind="stable")
        batches, rows = [], []
        for segment, part in self._windows(units.offsets[order], units.sizes[order]):
            chosen = order[part]
            block, found = self._read(segment, units.offsets[chosen], units.sizes[chosen])
            times = block.heads.store_timestamp
            keep = ~block.foreign & (times >= self.options.begin) & (times <= self.options.end)
            self.lost_units += len(chosen) - int((~block.foreign).sum())
            batches.append(record_batch(block.take(np.flatnonzero(keep)), rules))
            rows.append(chosen[found][keep])
        if not batches:
            return pa.Table.from_batches([], pa.schema([]))
        table = pa.Table.from_batches(batches).combine_chunks()
        table = table.take(pa.array(np.argsort(np.concatenate(rows), kind="stable")))
        return _with_plain_bodies(table) if "body" in table.column_names else table

    def _windows(self, offsets: Int64s, sizes: Int64s) -> Iterator[tuple[Segment, Int64s]]:
        """Yields a segment and the numbers of the units whose records are read from it at once."""
        segments = self.offline.store.segments
        numbers: list[int] = []
        segment: Segment | None = None
        for number, (offset, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
            last = numbers[-1] if numbers else -1
            near = last >= 0 and offset - int(offsets[last] + sizes[last]) <= _NEAR
            fits = bool(numbers) and offset + size - int(offsets[numbers[0]]) <= _WINDOW
            if segment is not None and not (near and fits and offset + size <= segment.end):
                yield segment, np.array(numbers, np.int64)
                numbers, segment = [], None
            if segment is None:
                segment = segment_at(segments, offset)
                if segment is None or offset + size > segment.end:
                    segment, self.lost_units = None, self.lost_units + 1
                    continue
            numbers.append(number)
        if segment is not None:
            yield segment, np.array(numbers, np.int64)

    def _read(self, segment: Segment, offsets: Int64s, sizes: Int64s) -> tuple[RecordBlock, Int64s]:
        """Returns the records at these ascending offsets that are sound, and which of them those are."""
        begin = int(offsets[0])
        length = int((offsets + sizes).max()) - begin
        data = bytearray(length + PADDING)
        with files.RangeReader(segment.path) as reader:
            reader.read_into(begin - segment.base, memoryview(data)[:length])
        buffer = np.frombuffer(data, np.uint8)
        positions = offsets - begin
        told = [int.from_bytes(data[at : at + 4], "big", signed=True) for at in positions.tolist()]
        candidates = np.flatnonzero(np.array(told, np.int64) == sizes)
        found: list[Int64s] = []
        blocks: list[RecordBlock] = []
        rules = self.offline.store.decode_rules()
        while len(candidates):
            block, fault = decode(buffer, begin, positions[candidates], rules)
            blocks.append(block)
            found.append(candidates[: len(block)])
            candidates = candidates[len(block) + 1 :] if fault is not None else candidates[:0]
        if not blocks:
            return decode(buffer, begin, positions[:0], rules)[0], np.zeros(0, np.int64)
        rows = np.concatenate(found)
        return (blocks[0], rows) if len(blocks) == 1 else (_sound(buffer, begin, positions[rows], rules), rows)


def _sound(buffer: Any, begin: int, positions: Int64s, rules: Any) -> RecordBlock:
    return decode(buffer, begin, positions, rules)[0]


def _with_plain_bodies(table: pa.Table) -> pa.Table:
    """Returns a table in which bodies that producers compressed are as they were; one that is damaged stays."""
    bodies = [
        body if body is None else (uncompressed(body, flags) or body)
        for body, flags in zip(table["body"].to_pylist(), table["sys_flag"].to_pylist(), strict=True)
    ]
    return table.set_column(table.column_names.index("body"), "body", pa.array(bodies, pa.binary()))


def _waiting_part(
    table: pa.Table, topic: str, queue_id: int | None, ended: Mapping[tuple[int, int], int]
) -> Iterator[pa.Table]:
    """Yields the rows of messages that wait for a topic, with a column that says for what."""
    needed = ("topic", "queue_id", "queue_offset", "tags_code", "properties", "store_timestamp")
    rows, texts = [], []
    for number, row in enumerate(table.select(needed).to_pylist()):
        row["properties"] = dict(row["properties"] or ())
        found = waiting_of(row)
        if found is None or not belongs_to(row["topic"], found, topic) or queue_id not in (None, found.queue_id):
            continue
        stored = row["store_timestamp"]
        row["store_timestamp_ms"] = None if stored is None else round(stored.timestamp() * 1000)
        rows.append(number)
        texts.append(waiting_text(row, found, topic) + (end_of_half(row, ended) if found.kind == "half" else ""))
    if rows:
        yield table.take(pa.array(rows)).append_column("waits_for", pa.array(texts, pa.string()))
