"""Files of a store against staged runs: what of a file is compared at all, and with what."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import java_rules
from support.broker_index import IndexFile
from support.store_builder import LogBuilder

from storeformat.arrays import LogExtent
from storeformat.index.entries import ROW
from storeformat.index.index_check import FileContext
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.storage import files
from udfs.files import verify
from udfs.files.build import PlannedQueueFile
from udfs.files.verify import (
    ComparedQueueFile,
    CompareIndexFiles,
    CompareQueueFiles,
    EntrySource,
    ExtFile,
    IndexCheck,
    QueueCheck,
    StagedRows,
    _FileBuffer,
    _reading,
    _used_units,
)
from udfs.log.staged_files import Readers, Slices

UNITS = [(500, 91, 7), (600, 92, -8), (700, 93, 9)]
"""Commit-log offset, size and tags code."""
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def units(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack(">qiq", *row) for row in rows)


def compared(
    tmp_path: Path,
    content: bytes | None,
    *,
    rows: list[tuple[int, int, int]] = UNITS,
    begin: int = 0,
    fillers: list[bool] | None = None,
    base: int = 0,
    segments: tuple[Segment, ...] = (),
    **check: Any,
) -> ComparedQueueFile:
    """A file of six units held against these rows, of which each is a slice of its own."""
    tmp_path.mkdir(exist_ok=True)
    staged, path = tmp_path / "s.units", tmp_path / "consumequeue" / "T" / "3" / f"{base:020d}"
    staged.write_bytes(units(*rows))
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    slices = Slices.of(*((str(staged), number, 1) for number in range(len(rows))))
    marks = None if fillers is None else np.array(fillers)
    file = PlannedQueueFile("consumequeue", ("T", 3), base, slices, pre_blanks=begin, fillers=marks)
    task = CompareQueueFiles(str(tmp_path), 120, segments, DecodeRules(), LogExtent(400, 800))
    (found,) = task(iter([[QueueCheck(file, begin, begin + len(rows), **check)]]))
    assert (found.queue, found.base) == (("T", 3), base)
    return found


@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("base", [0, 120])
def test_a_file_as_the_log_makes_it(tmp_path: Path, begin: int, base: int) -> None:
    content = (PRE_BLANK * begin + units(*UNITS)).ljust(120, b"\0")
    found = compared(tmp_path, content, begin=begin, base=base)
    assert (found.size, found.first_expected, found.last_expected) == (120, 500, 700)
    assert found.units is not None
    assert (found.units.faults, found.units.counts, found.units.compared) == ((), {}, 3)
    assert (found.units.last_present, found.units.old, found.units.after_end.count) == (700, 0, 0)


def test_a_file_that_is_not_there_lacks_all_units(tmp_path: Path) -> None:
    found = compared(tmp_path, None, begin=1)
    assert (found.size, found.first_expected, found.last_expected) == (None, 500, 700)
    assert found.units is not None
    assert (found.units.counts, found.units.compared) == ({"missing_unit": 4}, 0)


@pytest.mark.parametrize("length", [0, 119, 121, 140])
def test_a_file_of_another_length_is_not_compared(tmp_path: Path, length: int) -> None:
    found = compared(tmp_path, bytes(length))
    assert (found.size, found.units, found.first_expected, found.last_expected) == (length, None, 500, 700)


def test_a_file_that_the_log_does_not_know(tmp_path: Path) -> None:
    content = units((300, 90, 1), (450, 90, 1)).ljust(100, b"\0") + units((900, 90, 1))
    found = compared(tmp_path, content, rows=[])
    assert (found.size, found.first_expected, found.last_expected) == (120, None, None)
    assert found.units is not None
    after = found.units.after_end
    assert (after.places.tolist(), after.count, after.below_log, after.beyond_log) == ([0, 1], 2, 1, 1)


def test_units_that_differ_and_units_that_follow(tmp_path: Path) -> None:
    content = units(UNITS[0], (600, 92, 8), (700, 94, 9), (0, 0, 0), (450, 90, 1)).ljust(120, b"\0")
    found = compared(tmp_path, content).units
    assert found is not None
    assert [(fault.position, fault.cause) for fault in found.faults] == [(20, "wrong_tags_code"), (40, "wrong_size")]
    assert (found.compared, found.after_end.places.tolist()) == (1, [4])


def test_what_lies_in_the_place_of_a_lost_message_is_not_known(tmp_path: Path) -> None:
    content = (PRE_BLANK * 2 + units(UNITS[0], (12345, 90, 1), UNITS[2])).ljust(120, b"\0")
    found = compared(tmp_path, content, begin=2, fillers=[False, True, False]).units
    assert found is not None
    assert (found.faults, found.compared, found.unproven) == ((), 2, 1)
    other = compared(tmp_path / "again", content, begin=2, fillers=[False, False, True]).units
    assert other is not None
    assert [(fault.position, fault.cause) for fault in other.faults] == [(60, "wrong_offset")]


def address(offset: int) -> int:
    """What stands in a unit whose tags code lies in consumequeue_ext."""
    return offset - (1 << 63)


@pytest.mark.parametrize(
    ("second", "faults"),
    [
        (struct.pack(">hqqh", 20, -8, 5, 0), []),
        (struct.pack(">hqqh", 23, -8, 5, 3) + b"map", []),
        (struct.pack(">hqqh", 23, -8, 5, 2) + b"map", [(20, "wrong_tags_code")]),
        (struct.pack(">hqqh", 20, 8, 5, 0), [(20, "wrong_tags_code")]),
        (struct.pack(">hqqh", 20, -8, 5, 0)[:-1], [(20, "wrong_tags_code")]),
        (b"", [(20, "wrong_tags_code")]),
    ],
)
def test_an_address_leads_to_the_tags_code(tmp_path: Path, second: bytes, faults: list[tuple[int, str]]) -> None:
    """Into the second of two files of a queue, after another unit."""
    for number, content in enumerate((struct.pack(">hqqh", 20, 7, 5, 0), struct.pack(">hqqh", 20, 9, 5, 0) + second)):
        (tmp_path / f"ext{number}").write_bytes(content)
    sizes = [(tmp_path / f"ext{number}").stat().st_size for number in range(2)]
    ext = tuple(ExtFile(str(tmp_path / f"ext{number}"), 100 * number, size) for number, size in enumerate(sizes))
    content = units((500, 91, address(0)), (600, 92, address(120)), (700, 93, address(100))).ljust(120, b"\0")
    found = compared(tmp_path, content, ext=ext).units
    assert found is not None
    assert [(fault.position, fault.cause) for fault in found.faults] == faults
    assert (found.ext_places.tolist(), found.compared) == ([0, 2] if faults else [0, 1, 2], 2 if faults else 3)
    without = compared(tmp_path / "without", content).units
    assert without is not None
    assert without.counts == {"wrong_tags_code": 3}


@pytest.mark.parametrize("base", [0, 4096])
def test_the_hash_of_the_tags_in_the_place_of_a_delivery_time(tmp_path: Path, base: int) -> None:
    log = LogBuilder(4096, base=base)
    log.message(topic="Other")
    records = [log.message(topic="SCHEDULE_TOPIC_XXXX", tags=tags) for tags in ("t", "u")]
    path = tmp_path / "segment"
    path.write_bytes(log.segments[base])
    due = 1_700_000_000_000
    rows = [(record.offset, record.size, due) for record in records]
    hashed = units((*rows[0][:2], java_rules.hash_code("t")), (*rows[1][:2], java_rules.hash_code("t")))
    segments = (Segment(str(path), base, 4096),)
    found = compared(
        tmp_path, hashed.ljust(120, b"\0"), rows=rows, segments=segments, schedule=True
    ).units  # fmt: skip
    assert found is not None
    assert [(fault.position, fault.cause) for fault in found.faults] == [(20, "wrong_tags_code")]
    assert (found.delivery_hashes.tolist(), found.compared) == ([0], 1)


def test_units_of_a_batch_queue(tmp_path: Path) -> None:
    unit = struct.Struct(">qiqqqhii")
    rows = [unit.pack(500, 91, 7, 11, 0, 2, -1, 0), unit.pack(600, 92, 7, 12, 2, 1, -1, 0)]
    (tmp_path / "s").write_bytes(b"".join(rows))
    path = tmp_path / "batchconsumequeue" / "T" / "3" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes((rows[0] + unit.pack(600, 92, 7, 12, 3, 1, -1, 0)).ljust(3 * unit.size, b"\0"))
    file = PlannedQueueFile("batchconsumequeue", ("T", 3), 0, Slices.of((str(tmp_path / "s"), 0, 2)))
    task = CompareQueueFiles(str(tmp_path), 138, (), DecodeRules(), LogExtent(400, 800), batch_queues=True)
    (found,) = task(iter([[QueueCheck(file, 0, 2)]]))
    assert found.units is not None
    assert [(fault.position, fault.cause) for fault in found.units.faults] == [(46, "wrong_offset")]


@pytest.fixture
def entries(tmp_path: Path) -> tuple[list[EntrySource], list[int]]:
    """Sources of staged entries, and the log offset of each entry; some offsets have several."""
    sources, offsets = [], []
    for number, count in enumerate((3, 1, 200, 70)):
        rows = np.zeros(count, ROW)
        first = 10_000 * number
        rows["offset"] = first + np.arange(count) // 3 * 10
        rows["key_hash"] = np.arange(len(offsets), len(offsets) + count)
        (tmp_path / f"{number}.entries").write_bytes(rows.tobytes())
        sources.append(EntrySource(str(tmp_path / f"{number}.entries"), count, int(rows["offset"][-1])))
        offsets += rows["offset"].tolist()
    return sources, offsets


@pytest.mark.parametrize("at_a_time", [1, 5, 1 << 16])
def test_entries_are_read_over_the_ends_of_their_files(
    entries: tuple[list[EntrySource], list[int]], at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_ROWS_AT_A_TIME", at_a_time)
    sources, offsets = entries
    with Readers() as readers:
        staged = StagedRows(sources, readers)
        assert staged.rows.total == len(offsets)
        for begin, end in ((2, 5), (3, 4), (4, 204), (203, 205), (274, 274), (1, 2), (0, 0), (0, 274), (9, 99)):
            assert staged.rows.read(begin, end)["key_hash"].tolist() == [*range(begin, end)]


def test_entries_are_found_by_their_offset(entries: tuple[list[EntrySource], list[int]]) -> None:
    sources, offsets = entries
    with Readers() as readers:
        staged = StagedRows(sources, readers)
        for asked in sorted({offset + step for offset in offsets for step in (-1, 0, 1)}):
            assert staged.rows.find(asked) == sum(offset < asked for offset in offsets), asked


def test_a_log_without_entries() -> None:
    with Readers() as readers:
        staged = StagedRows([], readers)
        assert (staged.rows.total, staged.rows.find(0), len(staged.rows.read(0, 0))) == (0, 0, 0)


def test_nothing_is_read_after_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(10)))
    with files.RangeReader(str(tmp_path / "file")) as reader:
        read = _reading(reader, 10)
        assert [bytes(read(*asked)) for asked in ((0, 3), (8, 2), (8, 5), (10, 1), (12, 1))] == [
            b"\0\1\2", b"\x08\x09", b"\x08\x09", b"", b"",
        ]  # fmt: skip


@pytest.mark.parametrize("spoiled", [None, 40 + 4 * 7 + 20 * 2 + 3])
def test_an_index_file_against_the_entries_of_the_log(tmp_path: Path, spoiled: int | None) -> None:
    """The second of two sources begins in the middle of the file."""
    made = IndexFile([0] * 7, 10, counts_every_put=False)
    rows = np.zeros(6, ROW)
    for number in range(6):
        key, time = f"T#key{number}", 1_700_000_000_000 + 1500 * number
        assert made.put_key(key, 100 * number, time)
        rows[number] = (java_rules.math_abs(java_rules.hash_code(key)), 100 * number, time)
    sources = []
    for name, part in (("a", rows[:4]), ("b", rows[4:])):
        (tmp_path / name).write_bytes(part.tobytes())
        sources.append(EntrySource(str(tmp_path / name), len(part), int(part["offset"][-1])))
    content = bytearray(made.to_bytes())
    if spoiled is not None:
        content[spoiled] ^= 1
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114221320000").write_bytes(content)
    task = CompareIndexFiles(str(tmp_path), 7, 10, tuple(sources))
    context = FileContext(LogExtent(0, 600), None, growing=False)
    (found,) = task(iter([IndexCheck("index/20231114221320000", context)]))
    assert (found.entries, found.last_offset) == (6, 500)
    assert list(found.counts) == ([] if spoiled is None else ["wrong_entry"])


@pytest.mark.parametrize("unit", [20, 46])
@pytest.mark.parametrize("units", [1, 5])
def test_a_file_is_used_up_to_its_last_byte_that_is_not_zero(unit: int, units: int) -> None:
    """Wherever that byte lies: the words that are looked at begin and end within units."""
    content = bytearray(unit * units)
    for at_least in range(units + 1):
        assert _used_units(content, at_least, unit) == at_least
        for position in range(len(content)):
            content[position] = 1
            assert _used_units(content, at_least, unit) == max(at_least, position // unit + 1), position
            content[position] = 0


def test_a_file_takes_the_place_of_a_longer_one(tmp_path: Path) -> None:
    """Nothing of the one before it is left where the next one has a hole."""
    buffer = _FileBuffer(100_000)
    for number, data in enumerate([b"\1" * 100_000, b"\2" * 50_000, b"", b"\3"]):
        path = tmp_path / str(number)
        path.write_bytes(data)
        with path.open("r+b") as file:
            file.truncate(100_000)
        loaded = bytes(buffer.load(str(path)))
        assert bytes(buffer.content) == loaded.ljust(100_000, b"\0") == path.read_bytes()
