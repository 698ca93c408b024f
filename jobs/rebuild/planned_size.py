"""How much disk a rebuild will take, before its first byte is written.

A file takes blocks for what it holds, not for its length: a file system leaves the rest a hole. Fillers are data like
any unit, though, so a short log whose messages have high queue offsets can ask for much more than its own length: the
first file of each queue is filled up to its first message, and lost messages between two that survive get one unit
each. A log does not tell whether that is a broker's history or an attack; the free space decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from jobs.contract.report import size_text
from jobs.rebuild.planning import BatchQueuesPlan, IndexPlan, QueuesPlan
from storeformat.arrays import Int64s
from storeformat.errors import Refused
from storeformat.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext
from storeformat.storage import local_status
from storeformat.store.layout import StoreLayout

_BLOCK = 4096


def planned_bytes(
    queues: QueuesPlan | None, batches: BatchQueuesPlan | None, index: IndexPlan | None, layout: StoreLayout
) -> int:
    """Returns the bytes on disk of all planned files, in whole blocks; a little more than they will take."""
    total = 0
    if queues is not None:
        total += _in_blocks((queues.files.pre_blanks + queues.files.counts()) * consume_queue.UNIT_SIZE)
        total += _in_blocks([file.slices.rows * consume_queue_ext.UNIT_SIZE for file in queues.ext_files])
    if batches is not None:
        total += _in_blocks([file.slices.rows * batch_consume_queue.UNIT_SIZE for file in batches.files])
    if index is not None:  # entries fill a block each of the slots as long as there are blocks
        slots = SLOT_SIZE * layout.max_hash_slot_num
        total += _in_blocks([HEADER_SIZE + min(count * _BLOCK, slots) + count * ENTRY_SIZE for count in index.entries])
    return total


def _in_blocks(sizes: Iterable[int] | Int64s | Sequence[int]) -> int:
    """Returns the sum of sizes, each rounded up to whole blocks."""
    return int((-(-np.asarray(sizes, np.int64) // _BLOCK)).sum()) * _BLOCK


def size_note(planned: int, log: int) -> str | None:
    """Returns a note where the output is larger than the log that it is made of; None where that is as usual."""
    if planned <= max(log, 1 << 20):
        return None
    return (
        f"the output takes {size_text(planned)}, more than the {size_text(log)} of log that it is made of: its queues "
        "begin at high offsets, or most of their messages are lost; units without a message fill the rest"
    )


def refuse_if_too_large(planned: int, directory: str, log: int) -> None:
    """Raises Refused where less is free below a directory than the planned files take."""
    free = local_status.free_space(directory)
    if free is not None and free < planned:
        raise Refused(
            "the output does not fit on its disk", path=directory,
            found=f"{size_text(free)} free", expected=f"{size_text(planned)} for {size_text(log)} of log",
            advice="name an --output with more room, rebuild fewer --topic, or go on with --ignore-free-space",
        )  # fmt: skip
