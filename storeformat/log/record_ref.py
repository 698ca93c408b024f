"""A record's time and position in log and queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storeformat import message as m
from storeformat.record.decode import RecordBlock


@dataclass(frozen=True, slots=True)
class RecordRef:
    """A certified record's time and queue position; enough to tell a survivor from a leftover of an older log."""

    offset: int
    store_timestamp: int
    topic: bytes
    queue_id: int
    queue_offset: int
    queued: bool = True  # False for prepared and rolled back messages, which have no unit


def record_ref(block: RecordBlock, row: int) -> RecordRef:
    """Reference to the record in one row of a block."""
    heads = block.heads
    return RecordRef(
        offset=int(block.offsets[row]),
        store_timestamp=int(heads.store_timestamp[row]),
        topic=block.topics[block.topic_codes[row]],
        queue_id=int(heads.queue_id[row]),
        queue_offset=int(heads.queue_offset[row]),
        queued=m.is_queued(int(heads.sys_flag[row])),
    )


def first_record_ref(block: RecordBlock) -> RecordRef | None:
    """Reference to the first record of a block that is not foreign."""
    rows = np.flatnonzero(~block.foreign)
    return record_ref(block, int(rows[0])) if rows.size else None
