"""Consume queues of BatchCQ topics: one 46-byte unit a record, which may hold many messages (FORMAT.md).

Mirrors ``BatchConsumeQueue#putBatchMessagePositionInfo`` (5.0.0 to 5.5.0): units are appended, the first file begins at
0, and readers search by ``msg_base_offset``. As in an ordinary queue a record with base 0 starts the queue over, and
only its last life is kept.
"""

from __future__ import annotations

import numpy as np

from storeformat.arrays import Bools, Structs, leading
from storeformat.errors import WrongSettings

UNIT = np.dtype(
    [
        ("phy_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("msg_base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
UNIT_SIZE = UNIT.itemsize
NOT_COMPACTED = -1


def check_file_size(size: int) -> int:
    """Refuse a file size that is not whole units: the broker does not round."""
    if size < UNIT_SIZE or size % UNIT_SIZE:
        raise WrongSettings(
            "mapperFileSizeBatchConsumeQueue holds no whole units", found=size, expected=f"a multiple of {UNIT_SIZE}"
        )
    return size


def parse_units(content: bytes | bytearray | memoryview) -> Structs:
    """``UNIT`` view over the bytes of a file, without a cut last unit."""
    return np.frombuffer(content, UNIT, len(content) // UNIT_SIZE)


def is_valid(units: Structs) -> Bools:
    """Which units a broker accepts."""
    return np.asarray(
        (units["phy_offset"] >= 0) & (units["size"] > 0) & (units["msg_base_offset"] >= 0) & (units["batch_size"] > 0)
    )


def written_units(units: Structs) -> int:
    """Number of units before the first that a broker does not accept."""
    return leading(is_valid(units))
