"""Heads and certificates: what begins at a place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.store_builder import Message, encode_record

from storeformat.errors import RecordDefect
from storeformat.log.framing import PLAIN, ChainEnd, find_records, judge_head

SIZE = 4096


def test_a_certificate_is_a_whole_magic_and_the_own_offset() -> None:
    head = bytearray(encode_record(Message(), 1000))
    own_offset, magic = slice(28, 36), slice(4, 8)

    def found(place: slice, value: bytes, base: int = 1000) -> int | None:
        data = head.copy()
        data[place] = value
        return PLAIN.find(data, base, len(data), base, base + len(data))

    assert found(magic, b"\xda\xa3\x20\xa7") == 1000
    assert found(magic, b"\xda\xa3\x20\xab") == 1000
    assert found(magic, b"\xda\xa3\x20\xa8") is None
    assert found(own_offset, (1001).to_bytes(8, "big")) is None
    assert found(own_offset, (-1000).to_bytes(8, "big", signed=True)) is None
    assert found(own_offset, (1000).to_bytes(8, "big"), base=2000) is None


@pytest.mark.parametrize(
    ("head", "room", "allowed", "expected"),
    [
        ("00000000 00000000", 99, 99, (ChainEnd.DEFECT, RecordDefect.UNWRITTEN)),
        ("00000063 cbd43194", 99, 99, (ChainEnd.BLANK, RecordDefect.OK)),
        ("00000062 cbd43194", 99, 99, (ChainEnd.DEFECT, RecordDefect.LENGTH_MISMATCH)),
        ("00000000 daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("00000063 00000000", 99, 99, (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)),
        ("00000063 daa320a8", 99, 99, (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)),
        ("0000005a daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("80000000 daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("00000064 daa320ab", 99, 99, (ChainEnd.DEFECT, RecordDefect.TRUNCATED)),
        ("00000063 daa320ab", 99, 98, (ChainEnd.CUT, RecordDefect.OK)),
        ("7fffffff daa320a7", 1 << 40, 1 << 40, (ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE)),
        ("10000001 daa320a7", 1 << 40, 1 << 40, (ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE)),
        ("10000000 daa320a7", 1 << 40, 1 << 40, 1 << 28),
        ("00000063 daa320ab", 99, 99, 99),
        ("00000062 daa320ab", 99, 98, 98),
        ("0000005b daa320a7", 99, 99, 91),
    ],
)
def test_heads(head: str, room: int, allowed: int, expected: object) -> None:
    assert judge_head(bytes.fromhex(head), room, allowed) == expected


MAGIC = st.sampled_from([b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xda\xa3\x20\xa8", b"\xda\xda\xa3\x20\xab"])


@given(
    noise=st.binary(max_size=200),
    heads=st.lists(st.tuples(st.integers(0, 270), MAGIC, st.booleans()), max_size=6),
    base=st.sampled_from([0, 1 << 40]),
    start=st.integers(0, 260),
    length=st.integers(0, 260),
)
@example(noise=b"", heads=[(264, b"\xda\xa3\x20\xa7", True)], base=0, start=264, length=1)
@example(noise=b"", heads=[(265, b"\xda\xa3\x20\xa7", True)], base=0, start=0, length=300)
def test_certified_heads_are_found_at_once_as_one_by_one(
    noise: bytes, heads: list[tuple[int, bytes, bool]], base: int, start: int, length: int
) -> None:
    data = bytearray(noise.ljust(400, b"\0"))
    for at, magic, own in heads:
        head = at + len(magic) - 4
        data[at + 4 : at + 4 + len(magic)] = magic
        data[head + 28 : head + 36] = (base + head + (not own)).to_bytes(8, "big")
    del data[300:]
    stop = base + start + length
    one_by_one = []
    place = PLAIN.find(data, base, len(data), base + start, stop)
    while place is not None:
        one_by_one.append(place)
        place = PLAIN.find(data, base, len(data), place + 1, stop)
    assert find_records(np.frombuffer(data, np.uint8), base, base + start, stop).tolist() == one_by_one
