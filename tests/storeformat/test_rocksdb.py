"""Databases of sorted files: what is written is read, in the order of bytes, and reading leaves nothing behind."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from support.refusals import refusal

from storeformat.errors import DependencyMissing, MissingInput, NotAStore, WriteFailed
from storeformat.storage import rocksdb
from storeformat.storage.rocksdb import Family

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
