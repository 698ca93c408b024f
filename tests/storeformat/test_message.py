"""Sizes and flags of a record."""

from __future__ import annotations

import numpy as np
import pytest

from storeformat import message as m


def test_prepared_and_rolled_back_messages_have_no_place_in_a_queue() -> None:
    flags = np.array([0x0, 0x4, 0x8, 0xC], np.int32)
    assert m.is_queued(flags).tolist() == [True, False, True, False]
    assert m.is_queued(flags | 0x7F3).tolist() == [True, False, True, False]
    assert [m.is_queued(flag) for flag in flags.tolist()] == [True, False, True, False]


@pytest.mark.parametrize(("flags", "position"), [(0x0, 88), (0x10, 100), (0x20, 100), (0x30, 112)])
def test_the_body_lies_after_both_hosts(flags: int, position: int) -> None:
    assert m.body_position(flags) == position
    born, store = m.HOST_V6 if flags & 0x10 else m.HOST_V4, m.HOST_V6 if flags & 0x20 else m.HOST_V4
    head = m.head_dtype(born, store)
    assert (head.itemsize, head.fields is not None) == (m.MAX_HEAD_SIZE, True)
    assert head.fields is not None
    assert head.fields["body_length"][1] == position - 4


def test_sizes_are_those_of_the_broker() -> None:
    """The smallest record, CRC32_RESERVED_LEN, and the two magics as bytes."""
    assert (m.MIN_RECORD_SIZE, m.PROPERTY_CRC_SIZE, m.CERTIFICATE_SIZE) == (91, 20, 36)
    assert m.MAGIC_V1.to_bytes(4, "big", signed=True) == m.MAGIC_V1_BYTES
    assert m.MAGIC_V2.to_bytes(4, "big", signed=True) == m.MAGIC_V2_BYTES
    assert m.MAGIC_BLANK.to_bytes(4, "big", signed=True).hex() == "cbd43194"
