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


def of_times(
    times: Mapping[int, int], *, first: int | None = None, last: int | None = None, places: Mapping[int, int] = {}
) -> RocksDbQueues:
    """A queue of units with these store timestamps, each at offset 1000 + its queue offset if not told otherwise."""
    first, last = min(times) if first is None else first, max(times) if last is None else last
    return queues(
        {unit_key(at): unit(places.get(at, 1000 + at), time) for at, time in times.items()},
        {
            end_key(b"min"): struct.pack(">qq", places.get(first, 1000 + first), first),
            end_key(b"max"): struct.pack(">qq", places.get(last, 1000 + last), last),
        },
    )


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


TIMES = {3: 10, 4: 10, 5: 20, 6: 20, 7: 20, 8: 30}


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [(9, 3, 0), (10, 3, 4), (11, 5, 4), (19, 5, 4), (20, 5, 7), (21, 8, 7), (29, 8, 7), (30, 8, 8), (31, 9, 8)],
)
@pytest.mark.parametrize("more", [0, 1, 2, 3])
def test_the_offset_of_a_time(time: int, lower: int, upper: int, more: int) -> None:
    """The first that is not earlier, or the last that is not later; before all of them a broker answers 0 there."""
    times = TIMES | {8 + number: 30 for number in range(1, more + 1)}
    held = of_times(times)
    last = max(times)
    assert held.offset_by_time(Q, time, 0, upper=False) == (last + 1 if time > 30 else lower)
    assert held.offset_by_time(Q, time, 0, upper=True) == (last if time >= 30 else upper)


def test_a_queue_of_one_unit_and_one_without_units() -> None:
    held = of_times({4: 10})
    assert [held.offset_by_time(Q, time, 0, upper=False) for time in (5, 10, 15)] == [4, 4, 5]
    assert [held.offset_by_time(Q, time, 0, upper=True) for time in (5, 10, 15)] == [0, 4, 4]
    assert [queues().offset_by_time(Q, 10, 0, upper=upper) for upper in (False, True)] == [0, 0]


def test_units_before_the_log_count_as_earlier() -> None:
    """The middle unit points there, and its time would lead the other way."""
    held = of_times({3: 10, 4: 10, 5: 40, 6: 20, 7: 50}, places={5: 500})
    assert held.offset_by_time(Q, 15, 1000, upper=False) == 6
    assert held.offset_by_time(Q, 15, 1000, upper=True) == 5
    assert held.offset_by_time(Q, 15, 500, upper=False) == 5


def test_a_missing_unit_and_a_negative_time_in_the_way_of_the_search() -> None:
    held = of_times({3: 10, 4: 20, 6: 30, 7: 40})
    assert held.offset_by_time(Q, 30, 0, upper=False) == 6
    assert held.offset_by_time(Q, 15, 0, upper=False) == 6, "what lies before the hole is not seen"
    assert held.offset_by_time(Q, 15, 0, upper=True) == -1
    assert of_times({3: 10, 4: 20, 5: -1, 6: 30, 7: 40}).offset_by_time(Q, 30, 0, upper=False) == 0
    assert of_times({3: -5, 4: 0, 5: 0, 6: 30, 7: 40}).offset_by_time(Q, 0, 0, upper=True) == 5


def test_ends_without_units_decide_nothing() -> None:
    held = of_times({5: 20}, first=3, last=8)
    assert held.offset_by_time(Q, 20, 0, upper=False) == 5
    assert held.offset_by_time(Q, 99, 0, upper=True) == 5
    assert held.offset_by_time(Q, 1, 0, upper=True) == -1


def test_equal_times_end_where_the_queue_does() -> None:
    """What lies outside of the ends is not served, whatever its time."""
    held = of_times({2: 20, 3: 20, 4: 20, 5: 20, 6: 20}, first=3, last=5)
    assert held.offset_by_time(Q, 20, 0, upper=False) == 3
    assert held.offset_by_time(Q, 20, 0, upper=True) == 5


def test_a_directory_without_a_database(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    with pytest.raises(MissingInput), rocksdb_queues_in(str(tmp_path)):
        pass
