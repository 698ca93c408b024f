"""Units of a queue in files as a broker recovers them (ConsumeQueue#recover, BatchConsumeQueue#recover).

A unit of a batch queue stands for ``messages`` messages from its queue offset on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from storeformat.arrays import Structs
from storeformat.queues import batch_consume_queue, consume_queue

UNIT = np.dtype([("queue_offset", np.int64), ("messages", np.int64), ("phy_offset", np.int64), ("size", np.int64)])
"""``size`` is 0 where there is no message: a pre-blank, or an invalid unit."""
RECOVERED_FILES = 3  # files that recovery checks, from the last on


def recovered_units(files: Iterable[tuple[int, bytes]], count: int, *, batch: bool) -> Iterator[Structs]:
    """``UNIT`` rows of each of ``count`` files, given as number in the name and content. Recovery trusts all but the
    last three, and ends at the first invalid unit.
    """
    kind = batch_consume_queue if batch else consume_queue
    for number, (position, content) in enumerate(files):
        stored = kind.parse_units(content)
        valid = kind.is_valid(stored)
        ends = number >= count - RECOVERED_FILES and not valid.all()
        units = np.zeros(int((~valid).argmax()) if ends else len(stored), UNIT)
        stored, valid = stored[: len(units)], valid[: len(units)]
        if batch:
            units["queue_offset"], units["messages"] = stored["msg_base_offset"], stored["batch_size"]
        else:
            units["queue_offset"], units["messages"] = position // kind.UNIT_SIZE + np.arange(len(units)), 1
            valid = valid & ~consume_queue.is_pre_blank(stored)
        units["phy_offset"], units["size"] = stored["phy_offset"], np.where(valid, stored["size"], 0)
        yield units
        if ends:
            return
