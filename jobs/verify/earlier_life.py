"""A log that continues into records of an earlier life of its file: a recycled segment, after a power cut. A broker
reads them, too. But from some offset on all queue offsets were used before, and store times go back.
"""

from __future__ import annotations

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.queue_runs import DenseBlocks, QueueRuns
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import segment_with
from storeformat.record.decode import HEADS_ONLY, store_timestamp_at
from storeformat.storage import files

_FEWEST = 2
"""A single record may have a damaged queue offset."""


def taken_from(table: QueueRuns) -> int | None:
    """Log offset from which on all records claim queue offsets that were used before."""
    blocks = DenseBlocks.of(table)
    ends = blocks.firsts + blocks.counts
    begins, stops = blocks.queues()
    is_taken = np.zeros(len(blocks.keys), bool)
    for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True):
        if stop - begin > 1:
            before = np.maximum.accumulate(ends[begin:stop])[:-1]
            is_taken[begin + 1 : stop] = (blocks.firsts[begin + 1 : stop] > 0) & (ends[begin + 1 : stop] <= before)
    if int(blocks.counts[is_taken].sum()) < _FEWEST:
        return None
    offset = int(blocks.first_offsets[is_taken].min())
    return offset if bool((blocks.last_offsets[~is_taken] < offset).all()) else None


def earlier_life_note(reading: LogReading) -> str | None:
    """Note on a log that continues into an earlier life of its file."""
    offset = taken_from(reading.queue_runs)
    if offset is None:
        return None
    segment = segment_with(reading.segments, offset)
    with files.RangeReader(segment.path) as reader:
        time = store_timestamp_at(reader, offset - segment.base)
        walk = chain_from(BlockWindow(reader, segment), segment.base, HEADS_ONLY, stop=offset)
        inside = [int(block.heads.store_timestamp.max()) for block in walk]
    before = [scan.times.latest for scan in reading.scans if scan.report.end <= segment.base]
    latest = max([*inside, *before], default=time)
    if time >= latest:
        return None
    return (
        f"from offset {offset} on the log runs into records of an earlier life of its file: store times go back by "
        f"{latest - time} ms, and all queue offsets were taken before; a broker reads these records, too, so units and "
        "keys after that offset may differ for this reason"
    )
