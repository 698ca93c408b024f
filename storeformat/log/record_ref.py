"""References to records: what a certified record says of its time and place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storeformat import message as m
from storeformat.record.decode import RecordBlock


@dataclass(frozen=True, slots=True)
class RecordRef:
    """What one certified record says of its time and place; enough to tell a survivor from a leftover of an older
    log.
    """

    offset: int
    store_timestamp: int
    topic: bytes
    queue_id: int
    queue_offset: int
    queued: bool = True
    """Whether it takes a place in its queue: prepared and rolled back messages do not."""


def record_ref(block: RecordBlock, row: int) -> RecordRef:
    """Returns what one record of a block says of itself."""
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
    """Returns what the first record of a block that is not foreign says of itself; None where there is none."""
    rows = np.flatnonzero(~block.foreign)
    return record_ref(block, int(rows[0])) if rows.size else None
