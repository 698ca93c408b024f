"""Databases of RocksDB, and consume queues in them."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.refusals import refusal

from storeformat.errors import DependencyMissing, MissingInput, NotAStore, WriteFailed
from storeformat.queues import rocksdb_queues
from storeformat.queues.rocksdb_queues import RocksDbQueues, StoredEnds, rocksdb_queues_in
from storeformat.storage import rocksdb
from storeformat.storage.rocksdb import Family

# -------------------------------------------------------------------------------------------------------------- rocksdb
rocksdict = pytest.importorskip("rocksdict")

DEFAULT, OTHER = Family("default", compressed=True, universal=True), Family("other")
NAMES = ("default", "other")


def database(directory: Path) -> Path:
    first, second, third = (str(directory / name) for name in ("1.sst", "2.sst", "3.sst"))
    rocksdb.write_sorted_file(first, DEFAULT, ((b"a%03d" % number, b"v%d" % number) for number in range(500)))
    rocksdb.write_sorted_file(second, DEFAULT, [(b"b\x00", b"x"), (b"b\xff", b"y")])
    rocksdb.write_sorted_file(third, OTHER, [(b"k", b"v")])
    rocksdb.make_database(str(directory / "made"), {DEFAULT: [first, second], OTHER: [third]})
    return directory / "made"


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def test_pairs_come_back_in_order(tmp_path: Path) -> None:
    with rocksdb.reading(str(database(tmp_path)), NAMES) as open_one:
        expected = [(b"a%03d" % number, b"v%d" % number) for number in range(500)]
        assert list(open_one.pairs("default")) == [*expected, (b"b\x00", b"x"), (b"b\xff", b"y")]
        assert list(open_one.pairs("default", b"a498", b"b\xff")) == [*expected[498:], (b"b\x00", b"x")]
        assert open_one.get("other", b"k") == b"v"
        assert open_one.get("default", b"k") is None
        assert open_one.key_from("default", b"a4995") == b"b\x00"
        assert open_one.key_from("default", b"c") is None


def test_nothing_is_left_of_what_made_it_and_reading_changes_nothing(tmp_path: Path) -> None:
    made = database(tmp_path)
    before = contents(made)
    assert {"CURRENT", "IDENTITY"} < before.keys()
    assert not {"LOG", "LOCK", "rocksdict-config.json"} & before.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    with rocksdb.reading(str(made), NAMES) as open_one:
        assert open_one.get("other", b"k") == b"v"
    assert contents(made) == before


def test_keys_out_of_order_are_refused(tmp_path: Path) -> None:
    path, pairs = str(tmp_path / "1.sst"), [(b"b", b""), (b"a", b"")]
    said = refusal(WriteFailed, lambda: rocksdb.write_sorted_file(path, DEFAULT, pairs))
    assert said["what"].startswith("a table of RocksDB cannot be written: ")
    assert said["path"] == path


def test_a_database_is_made_in_a_place_of_its_own(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    said = refusal(WriteFailed, lambda: rocksdb.make_database(str(taken), {DEFAULT: []}))
    assert said["what"].startswith("a database of RocksDB cannot be made: ")
    assert said["path"] == str(taken)


def test_what_is_no_database(tmp_path: Path) -> None:
    said = {"what": "there is no RocksDB database", "path": str(tmp_path)}
    assert refusal(MissingInput, lambda: rocksdb.reading(str(tmp_path), NAMES).__enter__()) == said
    made = database(tmp_path)
    (made / "CURRENT").write_text("MANIFEST-999999\n")
    said = refusal(NotAStore, lambda: rocksdb.reading(str(made), NAMES).__enter__())
    assert said["what"].startswith("this RocksDB database cannot be read: ")
    assert said.keys() == {"what", "path"}
    assert said["path"] == str(made)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    made = database(tmp_path)
    for path in made.glob("*.sst"):
        path.unlink()
    with pytest.raises(NotAStore, match="cannot be read") as caught, rocksdb.reading(str(made), NAMES) as open_one:
        list(open_one.pairs("default"))
    assert caught.value.path == str(made)


def test_without_the_extra_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    said = {
        "what": "no library for RocksDB is installed",
        "advice": "install the extra rocksdb (rocksdict): ./spark-submit.sh --setup --with rocksdb",
    }
    assert refusal(DependencyMissing, rocksdb.require) == said
    assert refusal(DependencyMissing, lambda: rocksdb.reading(str(tmp_path), NAMES).__enter__()) == said
    assert DependencyMissing.exit_code == 69


@pytest.mark.parametrize("name", ["000099.sst", "000099.log", "MANIFEST-000099", "OPTIONS-000099"])
def test_nobody_waits_for_a_pipe(name: str, tmp_path: Path) -> None:
    made = database(tmp_path)
    os.mkfifo(made / name)
    said = refusal(NotAStore, lambda: rocksdb.reading(str(made), NAMES).__enter__())
    assert said == {"what": "this is not a regular file", "path": str(made / name)}


def test_garbage_from_which_rocksdb_does_not_come_back(tmp_path: Path) -> None:
    """Eight bytes that begin as a record of a recycled file does."""
    made = database(tmp_path)
    (manifest,) = made.glob("MANIFEST-*")
    with manifest.open("ab") as file:
        file.write(bytes.fromhex("435e8fbd18fe08e8"))
    said = refusal(NotAStore, lambda: rocksdb.reading(str(made), NAMES).__enter__())
    assert said == {"what": "this RocksDB database has a damaged log", "path": str(manifest)}


@pytest.mark.parametrize("name", ["000099.log", "MANIFEST-000099", "OPTIONS-000099"])
def test_a_hole_is_neither_copied_nor_read_to_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file takes no space in the store; a plain copy of it would fill the temporary directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "views"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    made = database(tmp_path)
    (tmp_path / "views").mkdir()
    with (made / name).open("wb") as file:
        file.truncate(1 << 30)
    if name.startswith("MANIFEST"):  # one that CURRENT does not name
        with rocksdb.reading(str(made), NAMES) as open_one:
            assert open_one.get("other", b"k") == b"v"
            assert sum(path.lstat().st_blocks for path in (tmp_path / "views").rglob("*")) * 512 < 1 << 20
    with (made / name).open("wb") as file:
        file.truncate(4 << 40)
    said = refusal(NotAStore, lambda: rocksdb.reading(str(made), NAMES).__enter__())
    assert (said["what"], said["path"]) == ("this RocksDB database has too much to read", str(made / name))
    assert not list((tmp_path / "views").iterdir())


# ------------------------------------------------------------------------------------------------------- rocksdb queues
Q = (b"T", 1)


class SortedDict:
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
