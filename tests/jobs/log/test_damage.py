"""What lies after the last sound record: a damaged message, or what an older log left there."""

from __future__ import annotations

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder

SEGMENT = 4096
TIME = 1_700_000_000_000


@pytest.mark.parametrize(("later", "is_loss"), [(1, True), (0, True), (-1, False)])
@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_a_damaged_last_record_is_a_loss_unless_it_is_older_than_the_one_before(
    split_size: int, later: int, *, is_loss: bool
) -> None:
    """A broker stores many messages in one millisecond: the same time is no sign of an older log."""
    log = LogBuilder(SEGMENT)
    log.message(topic="A", body=b"sound", store_timestamp=TIME)
    last = log.message(topic="B", body=b"damaged", store_timestamp=TIME + later)
    data = bytearray(log.segments[0])
    data[data.index(b"damaged", last.offset)] ^= 1
    reading = read_segments({0: data}, split_size, "salvage")
    assert bool(reading.damaged) is is_loss
    assert reading.records == 1
