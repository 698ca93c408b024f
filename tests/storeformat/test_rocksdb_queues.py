"""What a broker reads from a database of queues: ends, units, and the offset of a time. The database is a dict here."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storeformat.errors import MissingInput
from storeformat.store import rocksdb_queues
from storeformat.store.rocksdb_queues import RocksDbQueues, StoredEnds, rocksdb_queues_in

Q = (b"T", 1)


class SortedDict:
    """Takes the place of an open database: pairs of the two families in the order of their keys."""

    def __init__(self, units: Mapping[bytes, bytes], ends: Mapping[bytes, bytes]) -> None:
        self.families = {"default": dict(units), "offset": dict(ends)}

    def get(self, family: str, key: bytes) -> bytes | None:
        return self.families[family].get(key)

    def pairs(self, family: str, begin: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in sorted(self.families[family].items()):
            if key >= begin and (end is None or key < end):
                yield key, value

    def key_from(self, family: str, key: bytes) -> bytes | None:
        return min((other for other in self.families[family] if other >= key), default=None)


def unit_key(queue_offset: int, topic: bytes = b"T", queue_id: int = 1) -> bytes:
    head = struct.pack(">i", len(topic)) + b"\x01" + topic + b"\x01" + struct.pack(">i", queue_id)
    return head + b"\x01" + struct.pack(">q", queue_offset)


def unit(phy_offset: int, time: int = 0, size: int = 100, tags: int = 7) -> bytes:
    return struct.pack(">qiqq", phy_offset, size, tags, time)


def end_key(end: bytes, topic: bytes = b"T", queue_id: int = 1) -> bytes:
    return struct.pack(">i", len(topic)) + b"\x01" + topic + b"\x01" + end + b"\x01" + struct.pack(">i", queue_id)


def queues(units: Mapping[bytes, bytes] = {}, ends: Mapping[bytes, bytes] = {}) -> RocksDbQueues:
    database: Any = SortedDict(units, ends)
    return RocksDbQueues(database)


def test_how_far_the_log_is_dispatched() -> None:
    key = end_key(b"max", b"CHECKPOINT_TOPIC", 0)
    assert queues(ends={key: struct.pack(">q", 4711)}).dispatched() == 4711
    assert queues(ends={key: bytes(7)}).dispatched() is None
    assert queues(units={key: struct.pack(">q", 4711)}).dispatched() is None


def test_the_ends_of_all_queues() -> None:
    found = queues(
        ends={
            end_key(b"max"): struct.pack(">qq", 900, 9),
            end_key(b"min"): struct.pack(">qq", 300, 3),
            end_key(b"max", b"U", 0): struct.pack(">qq", 50, 0),
            end_key(b"min", b"V", 2): struct.pack(">qq", 0, 0),
            end_key(b"mid", b"W", 2): struct.pack(">qq", 0, 0),
            end_key(b"max", b"X", 2): bytes(15),
            end_key(b"max", b"CHECKPOINT_TOPIC", 0): bytes(8),
        }
    ).ends()
    assert found == {
        Q: StoredEnds((900, 9), (300, 3)),
        (b"U", 0): StoredEnds((50, 0)),
        (b"V", 2): StoredEnds(None, (0, 0)),
    }


def test_the_queues_that_have_units() -> None:
    """In the order of their keys, whatever else lies between them."""
    keys = [unit_key(at, *queue) for queue in ((b"T", 1), (b"T", 300), (b"A2", 0)) for at in (0, 5, 1 << 40)]
    odd = [b"\0", unit_key(3)[:-1], unit_key(7, b"U") + b"\0", b"\xff" * 30]
    found = queues({key: unit(0) for key in [*keys, *odd]}).queues()
    assert list(found) == [(b"T", 1), (b"T", 300), (b"A2", 0)]
    assert list(queues().queues()) == []


def test_a_unit_is_a_value_of_28_bytes() -> None:
    held = queues({unit_key(3): unit(900, 17), unit_key(4): unit(900)[:-1], unit_key(5): unit(900) + b"\0"})
    found = held.unit(Q, 3)
    assert found is not None
    assert found.tolist() == [(900, 100, 7, 17)]
    assert [held.unit(Q, at) for at in (2, 4, 5)] == [None] * 3


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 100])
def test_units_come_in_order_and_without_what_is_none(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_queues, "PAIRS_AT_A_TIME", at_a_time)
    held = queues(
        {unit_key(at): unit(at * 10, at + 1) for at in (0, 1, 2, 256, 1 << 33)}
        | {unit_key(3): bytes(27), unit_key(4)[:-8] + bytes(7): unit(1), unit_key(4) + b"\0": unit(1)}
        | {unit_key(0, *queue): unit(1) for queue in ((b"T", 0), (b"T", 2), (b"S", 1), (b"TT", 1))}
    )

    def seen(*bounds: int) -> list[tuple[int, int, int]]:
        parts = list(held.units(Q, *bounds))
        assert all(len(offsets) <= at_a_time and offsets.dtype == np.int64 for offsets, _ in parts)
        return [
            (offset, int(row["phy_offset"]), int(row["store_timestamp"]))
            for offsets, rows in parts
            for offset, row in zip(offsets.tolist(), rows, strict=True)
        ]

    whole = [(at, at * 10, at + 1) for at in (0, 1, 2, 256, 1 << 33)]
    assert seen() == seen(0) == whole
    assert seen(1) == whole[1:]
    assert seen(0, 2) == whole[:2]
    assert seen(2, 257) == whole[2:4]
    assert seen(3, 256) == []


@pytest.mark.parametrize(
    ("first", "last", "log_begin", "served"),
    [
        ((100, 3), (500, 9), 100, (3, 10)),
        ((100, 3), (500, 9), 99, (3, 10)),
        ((100, 3), None, 100, (3, 0)),
        ((100, 3), None, 101, (0, 0)),
        (None, None, 0, (0, 0)),
        ((100, 3), (500, 9), 501, (10, 10)),
        ((0, 2), (900, 9), 500, (2, 10)),  # the search finds no unit
    ],
)
def test_the_offsets_that_a_broker_serves(
    first: tuple[int, int] | None, last: tuple[int, int] | None, log_begin: int, served: tuple[int, int]
) -> None:
    ends = {end_key(name): struct.pack(">qq", *end) for name, end in ((b"min", first), (b"max", last)) if end}
    assert queues(ends=ends).range_of(Q, log_begin) == served


@pytest.mark.parametrize("first", [None, 0, 3])
def test_a_queue_whose_first_units_are_before_the_log_is_searched(first: int | None) -> None:
    """Units 3 to 9 at offsets 300 to 900."""
    ends = {end_key(b"max"): struct.pack(">qq", 900, 9)}
    if first is not None:
        ends[end_key(b"min")] = struct.pack(">qq", 0, first)
    held = queues({unit_key(at): unit(at * 100) for at in range(3, 10)}, ends)
    expected = {1: 3, 299: 3, 300: 3, 301: 4, 400: 4, 450: 5, 899: 9, 900: 9}
    assert {begin: held.range_of(Q, begin) for begin in expected} == {
        begin: (place, 10) for begin, place in expected.items()
    }


def test_a_directory_without_a_database(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    with pytest.raises(MissingInput), rocksdb_queues_in(str(tmp_path)):
        pass
