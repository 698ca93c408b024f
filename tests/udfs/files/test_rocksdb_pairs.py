"""Sorted files of the pairs of RocksDB queues, and a database against the log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storeformat.queues import consume_queue
from storeformat.queues.rocksdb_check import FirstDifference, PairsComparison
from storeformat.queues.rocksdb_pairs import FAMILIES
from storeformat.storage import rocksdb
from storeformat.store.rocksdb_queues import rocksdb_queues_in
from udfs.files import rocksdb_pairs
from udfs.files.rocksdb_pairs import (
    ComparePairs,
    PlannedTable,
    QueueEnds,
    QueuePart,
    UnitSlice,
    WriteTables,
    WrittenTable,
    write_ends,
)

UNITS = [(500, 91, 7, 11), (600, 92, -8, 12), (700, 93, 9, 13), (1 << 40, 94, 10, 14)]
"""Commit-log offset, size, tags code and store time of each."""


@pytest.fixture
def staged(tmp_path: Path) -> tuple[str, str]:
    """Paths of the units and of their times."""
    pytest.importorskip("rocksdict")
    offsets, sizes, tags, times = zip(*UNITS, strict=True)
    units, stamps = tmp_path / "s.units", tmp_path / "s.times"
    units.write_bytes(consume_queue.pack_units(offsets, sizes, tags).tobytes())
    stamps.write_bytes(np.array(times, "<i8").tobytes())
    return str(units), str(stamps)


def part_of(staged: tuple[str, str], queue_offset: int, begin: int, count: int, queue_id: int = 3) -> UnitSlice:
    return UnitSlice("T", queue_id, queue_offset, *staged, begin, count)


@pytest.fixture
def database(staged: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Units of T:3 from 40 on, of one file; two to be read at a time."""
    monkeypatch.setattr(rocksdb_pairs, "PAIRS_AT_A_TIME", 2)
    planned = PlannedTable("0", (part_of(staged, 40, 0, 1), part_of(staged, 41, 1, 3)))
    (tmp_path / "tables").mkdir()
    tables = list(WriteTables(str(tmp_path / "tables"))(iter([planned])))
    assert tables == [WrittenTable(str(tmp_path / "tables" / "0"), 4)]
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["0"]
    write_ends(str(tmp_path / "ends"), [QueueEnds("T", 3, (40, 500), (43, 1 << 40))], dispatched=793)
    directory = str(tmp_path / "database")
    rocksdb.make_database(directory, {FAMILIES[0]: [tables[0].path], FAMILIES[1]: [str(tmp_path / "ends")]})
    return directory


def test_pairs_as_a_broker_has_them(database: str) -> None:
    with rocksdb_queues_in(database) as queues:
        units, ends = (list(queues.database.pairs(family)) for family in ("default", "offset"))
    head = "00000001 01 54 01 00000003 01"
    assert units == [
        (bytes.fromhex(f"{head} {40:016x}"), bytes.fromhex(f"{500:016x} 0000005b {7:016x} {11:016x}")),
        (bytes.fromhex(f"{head} {41:016x}"), bytes.fromhex(f"{600:016x} 0000005c fffffffffffffff8 {12:016x}")),
        (bytes.fromhex(f"{head} {42:016x}"), bytes.fromhex(f"{700:016x} 0000005d {9:016x} {13:016x}")),
        (bytes.fromhex(f"{head} {43:016x}"), bytes.fromhex(f"{1 << 40:016x} 0000005e {10:016x} {14:016x}")),
    ]
    assert ends == [
        (b"\0\0\0\1\1T\1max\1\0\0\0\3", bytes.fromhex(f"{1 << 40:016x} {43:016x}")),
        (b"\0\0\0\1\1T\1min\1\0\0\0\3", bytes.fromhex(f"{500:016x} {40:016x}")),
        (b"\0\0\0\x10\1CHECKPOINT_TOPIC\1max\1\0\0\0\0", bytes.fromhex(f"{793:016x}")),
    ]


SURPLUS = FirstDifference("extra_unit", 43, None, UNITS[3])


@pytest.mark.parametrize(
    ("last", "task", "expected"),
    [
        (None, {}, PairsComparison(3, Counter(extra_unit=1), SURPLUS)),
        (43, {}, PairsComparison(3, Counter(extra_unit=1), SURPLUS)),
        (42, {}, PairsComparison(3, beyond=1)),
        (None, {"dispatched": 1 << 40}, PairsComparison(3)),
        (None, {"dispatched": (1 << 40) + 1}, PairsComparison(3, Counter(extra_unit=1), SURPLUS)),
        (None, {"unread": ((1 << 40, 1 << 41),)}, PairsComparison(3)),
        (None, {"unread": ((0, 1 << 40),)}, PairsComparison(3, Counter(extra_unit=1), SURPLUS)),
        (None, {"log_begin": (1 << 40) + 1}, PairsComparison(3, before_log=1)),
    ],
)
def test_a_unit_that_the_log_does_not_make(
    database: str, staged: tuple[str, str], last: int | None, task: dict[str, Any], expected: PairsComparison
) -> None:
    """The last one of four."""
    part = QueuePart(b"T", 3, 40, None, (part_of(staged, 40, 0, 3),), last)
    (found,) = ComparePairs(database, **{"log_begin": 0, **task})(iter([[part]]))
    assert (found.topic, found.queue_id, found.found) == (b"T", 3, expected)
    assert found.offset_sum == 500 + 600 + 700 + (1 << 40)


def test_parts_of_a_queue_are_compared_each_by_itself(database: str, staged: tuple[str, str]) -> None:
    """One part ends where the next begins, and nothing is counted twice."""
    parts = [
        QueuePart(b"T", 3, 0, 41, (part_of(staged, 40, 0, 1),)),
        QueuePart(b"T", 3, 41, 43, (part_of(staged, 41, 1, 1), part_of(staged, 42, 2, 1))),
        QueuePart(b"T", 3, 43, None, (part_of(staged, 43, 3, 1),)),
        QueuePart(b"T", 4, 0, None, ()),
    ]
    found = list(ComparePairs(database, 0)(iter([parts[:2], parts[2:]])))
    assert [one.found for one in found] == [PairsComparison(count) for count in (1, 2, 1, 0)]
    assert [one.offset_sum for one in found] == [500, 1300, 1 << 40, 0]


def test_units_that_are_missing_or_others(database: str, staged: tuple[str, str]) -> None:
    """Of another queue none is there; each of the same one, a place further, is another."""
    absent = QueuePart(b"T", 4, 40, None, (part_of(staged, 40, 0, 4, queue_id=4),))
    moved = QueuePart(b"T", 3, 41, None, (part_of(staged, 41, 0, 4),))
    missing, others = (one.found for one in ComparePairs(database, 0)(iter([[absent, moved]])))
    assert missing == PairsComparison(4, Counter(missing_unit=4), FirstDifference("missing_unit", 40, UNITS[0], None))
    first = FirstDifference("wrong_offset", 41, UNITS[0], UNITS[1])
    assert others == PairsComparison(4, Counter(wrong_offset=3, missing_unit=1), first)
