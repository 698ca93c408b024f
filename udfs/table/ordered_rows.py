"""Records of many blocks -> rows in queue order.

The sources of rows are packed while blocks pass; then the records are sorted by reference, and columns are made once,
of records in this order:

==================  ==================================================================================================
of every record     its fixed fields; where the values of properties lie; codes of its topic
packed bytes        BORNHOST to STOREHOST, then the properties: what columns are made of besides
bodies              where they are asked for, as an Arrow array
order               store_date (none at the end), topic, queue, and in a queue that of the log
==================  ==================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from storeformat import message as m
from storeformat.arrays import Bools, Bytes, Int32s, Int64s, stable_order
from storeformat.kernels import PADDING, Heads, Spans, numpy_kernels
from storeformat.record.decode import RecordBlock
from udfs.table import schemas
from udfs.table.rows import (
    FIRST_MILLISECOND,
    LAST_MILLISECOND,
    RowRules,
    bodies_of,
    host_sizes,
    record_batch,
    store_dates,
)

_CHUNK_ROWS = 1 << 18
_CHUNK_BYTES = 128 << 20
_ROW_BYTES = 120  # of fixed fields
_NO_DATE = np.iinfo(np.int64).max


@dataclass
class OrderedRows:
    """Collects records and returns them as sorted rows, in chunks."""

    rules: RowRules
    rows: int = 0
    size: int = 0
    _blocks: list[_Packed] = field(default_factory=list)
    _topics: dict[bytes, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return self.rows >= _CHUNK_ROWS or self.size >= _CHUNK_BYTES

    def add(self, block: RecordBlock) -> None:
        """Add a block's own records; its buffer may then be reused."""
        if block.foreign.any():
            block = block.take(np.flatnonzero(~block.foreign))
        if not len(block):
            return
        known = [self._topics.setdefault(topic, len(self._topics)) for topic in block.topics]
        packed = _pack(block, np.array(known, np.int32)[block.topic_codes], self.rules)
        self._blocks.append(packed)
        self.rows += len(block)
        self.size += len(block) * _ROW_BYTES + packed.pieces.nbytes + (packed.bodies.nbytes if packed.bodies else 0)

    def chunk(self) -> pa.Table:
        """Sorted rows of all records since the last chunk."""
        blocks, topics = self._blocks, list(self._topics)
        self._blocks, self._topics, self.rows, self.size = [], {}, 0, 0
        heads = Heads._make(np.concatenate(column) for column in zip(*(block.heads for block in blocks), strict=True))
        codes = np.concatenate([block.topic_codes for block in blocks])
        groups, count = self._queues(heads, codes, topics)
        by_queue = None if (groups[1:] >= groups[:-1]).all() else stable_order(groups, count)
        order = self._order(heads, groups, count, by_queue)
        lengths = np.concatenate([block.hosts_length for block in blocks])
        values = {
            name: Spans(*map(np.concatenate, zip(*(block.values[name] for block in blocks), strict=True)))
            for name in blocks[0].values
        }
        pieces = pa.concat_arrays([block.pieces for block in blocks] + [pa.array([bytes(PADDING)], pa.binary())])
        bodies = pa.concat_arrays([block.bodies for block in blocks]) if blocks[0].bodies is not None else None
        del blocks
        logged = heads
        if order is not None:
            heads = Heads._make(column[order] for column in heads)
            codes, lengths = codes[order], lengths[order]
            values = {name: Spans(spans.starts[order], spans.lengths[order]) for name, spans in values.items()}
            pieces = pieces.take(pa.array(np.append(order, len(pieces) - 1)))
            bodies = None if bodies is None else bodies.take(pa.array(order))
        block = _block(pieces, heads, codes, topics, lengths, values)
        made = {} if bodies is None else {"body": bodies}
        rules = replace(self.rules, columns=tuple(name for name in self.rules.columns if name not in made))
        rows = pa.Table.from_batches([record_batch(block, rules)])
        if set(schemas.RUNS) <= set(rules.columns):
            runs = np.stack([queue_runs(logged, groups, by_queue, rows["inner_num"], order), log_runs(logged)])
            made |= dict(zip(schemas.RUNS, map(pa.array, runs if order is None else runs[:, order]), strict=True))
        columns = [made[name] if name in made else rows[name] for name in self.rules.columns]
        return pa.Table.from_arrays(columns, schema=self.rules.schema)

    def _queues(self, heads: Heads, codes: Int32s, topics: list[bytes]) -> tuple[Int64s, int]:
        """Queue number of each record, ordered by topic and id, and the number of possible queues."""
        if not {"topic", "queue_id"} <= set(self.rules.columns):
            return np.zeros(len(codes), np.int64), 1
        ranks = np.empty(len(topics), np.int64)
        ranks[sorted(range(len(topics)), key=topics.__getitem__)] = np.arange(len(topics))
        width = int(heads.queue_id.max()) + 1
        return ranks[codes] * width + heads.queue_id, len(topics) * width

    def _order(self, heads: Heads, groups: Int64s, count: int, by_queue: Int64s | None) -> Int64s | None:
        """Stable order by date, topic and queue; None if already sorted."""
        if "store_date" in self.rules.columns:
            dates = store_dates(heads.store_timestamp, self.rules.time_zone)
            days = np.asarray(dates.cast(pa.int32()).cast(pa.int64()).fill_null(_NO_DATE))
            if (days != days[0]).any():
                distinct, places = np.unique(days, return_inverse=True)
                return stable_order(places * count + groups, len(distinct) * count)
        return by_queue


def queue_runs(
    heads: Heads, queues: Int64s, by_queue: Int64s | None, inner_num: pa.ChunkedArray, order: Int64s | None
) -> Int32s:
    """Column ``queue_run`` of records in log order; ``by_queue`` sorts by queue, ``inner_num`` is in row order."""
    counts = np.ones(len(queues), np.int64)
    if inner_num.null_count < len(inner_num):
        counts[slice(None) if order is None else order] = np.asarray(inner_num.fill_null(1))
    rows = np.arange(len(queues)) if by_queue is None else by_queue
    rows = rows[m.is_queued(heads.sys_flag[rows])]
    numbers, queues = heads.queue_offset[rows], queues[rows]
    follows = (queues[1:] == queues[:-1]) & (numbers[1:] == numbers[:-1] + counts[rows[:-1]])
    found = np.zeros(len(heads.sys_flag), np.int32)
    found[rows] = _ends(follows)
    return found


def log_runs(heads: Heads) -> Int32s:
    """Column ``log_run`` of records in log order; a run contains no record whose time is NULL."""
    times, offsets = heads.store_timestamp, heads.physical_offset
    timed = (times >= FIRST_MILLISECOND) & (times < LAST_MILLISECOND)
    rises = timed[1:] & timed[:-1] & (times[1:] >= times[:-1])
    return _ends(rises & (offsets[1:] == offsets[:-1] + heads.total_size[:-1]))


def _ends(follows: Bools) -> Int32s:
    """1 for the first of a run, 2 for the last, 3 for both; ``follows``: each but the first continues the run."""
    found = np.append(True, ~follows).astype(np.int32)
    found += np.append(~follows, True) * np.int32(2)
    return found


@dataclass(frozen=True)
class _Packed:
    """What is kept of one block. ``values`` are relative to the properties of their row."""

    heads: Heads
    topic_codes: Int32s
    hosts_length: Int64s
    pieces: pa.BinaryArray
    values: dict[bytes, Spans]
    bodies: pa.BinaryArray | None


def _pack(block: RecordBlock, topic_codes: Int32s, rules: RowRules) -> _Packed:
    heads = block.heads
    hosts = block.positions + m.BORN_HOST_POSITION
    born, stored = host_sizes(heads.sys_flag)
    hosts_length = 8 + born + stored
    starts = np.stack([hosts, heads.properties_start], axis=1).ravel()
    lengths = np.stack([hosts_length, heads.properties_length], axis=1).ravel().astype(np.int32)
    # The gathered two spans of a record are contiguous: its piece.
    _, offsets, data = numpy_kernels.gather_spans(block.buffer, Spans(starts, lengths)).buffers()
    ends = np.frombuffer(offsets, np.int32, len(starts) + 1)[::2].copy()
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(block), [None, pa.py_buffer(ends), data])
    bodies = bodies_of(block) if "body" in rules.columns else None
    values = {
        name: Spans(spans.starts - heads.properties_start, spans.lengths)
        for name, spans in block.properties.items()
        if name in rules.properties
    }
    return _Packed(heads, topic_codes, hosts_length, pieces, values, bodies)


def _block(
    pieces: pa.BinaryArray,
    heads: Heads,
    topic_codes: Int32s,
    topics: list[bytes],
    hosts_length: Int64s,
    values: dict[bytes, Spans],
) -> RecordBlock:
    """Records whose bytes are the pieces; the last piece is padding."""
    _, offsets, data = pieces.buffers()
    begins = np.frombuffer(offsets, np.int32, len(heads.total_size) + 1, pieces.offset * 4)[:-1].astype(np.int64)
    properties = begins + hosts_length
    buffer: Bytes = np.frombuffer(data, np.uint8)
    heads = heads._replace(properties_start=properties)
    spans = {name: Spans(found.starts + properties, found.lengths) for name, found in values.items()}
    return RecordBlock(buffer, 0, begins - m.BORN_HOST_POSITION, heads, topic_codes, topics, spans)
