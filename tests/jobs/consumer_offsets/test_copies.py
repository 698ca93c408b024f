"""Copies of committed offsets: which there are, and which is believed first."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.reading import opened
from support.store_to_start import StoreToStart

from jobs.consumer_offsets.copies import OffsetsCopy, read_copies
from storeformat.errors import MissingInput, NotAStore
from storeformat.store.config.config_files import FileState

NAME = "consumerOffset.json"


def write(root: Path, name: str, offset: int | None, counter: int | None = None, age: float = 0) -> None:
    """A copy whose one offset tells it from the others; None for a torn one."""
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    version = {} if counter is None else {"dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1}}
    text = json.dumps({**version, "offsetTable": {"Orders@readers": {"0": offset or 1}}})
    path.write_text(text[:-2] if offset is None else text)
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))


def copies(store: StoreToStart, *replicas: Path) -> list[OffsetsCopy]:
    return read_copies(opened(store.root, needs_index_sizes=False), [str(root) for root in replicas])


def order(found: list[OffsetsCopy]) -> list[Any]:
    return [(copy.source.rpartition("/")[2], copy.offsets.get(("Orders", "readers"), {}).get(0)) for copy in found]


def test_the_file_and_its_backup(store: StoreToStart) -> None:
    write(store.root, NAME, 5)
    write(store.root, NAME + ".bak", 4)
    found = copies(store)
    assert order(found) == [("file", 5), (".bak", 4)]
    assert found[0].as_row() | {"path": None} == {
        "source": "file", "path": None, "content": "sound", "modified_ms": 1_700_000_000_000, "version": None,
        "groups": 1,
    }  # fmt: skip


def test_a_file_that_is_torn_or_empty(store: StoreToStart) -> None:
    write(store.root, NAME, None)
    assert order(copies(store)) == [("file, before its tear", 1)]
    (store.root / "config" / NAME).write_bytes(b"")
    assert [copy.content for copy in copies(store)] == [FileState.EMPTY]
    (store.root / "config" / NAME).write_bytes(bytes(100))
    assert [copy.content for copy in copies(store)] == [FileState.TORN]
    (store.root / "config" / NAME).unlink()
    assert copies(store) == []


def test_versions_tell_the_newer_one_and_not_the_times_of_files(store: StoreToStart, tmp_path: Path) -> None:
    """A slave goes on writing what its master last said."""
    write(store.root, NAME, None)
    write(store.root, NAME + ".bak", 7, counter=9, age=600)
    write(tmp_path / "slave", NAME, 6, counter=8)
    assert order(copies(store, tmp_path / "slave")) == [("file, before its tear", 1), (".bak", 7), ("slave", 6)]


def test_without_versions_times_tell(store: StoreToStart, tmp_path: Path) -> None:
    (store.root / "config" / NAME).unlink()
    write(store.root, NAME + ".bak", 7, age=600)
    write(tmp_path / "slave", NAME, 6, age=100)
    write(tmp_path / "slave", NAME + ".bak", 5, age=200)
    assert order(copies(store, tmp_path / "slave")) == [("slave", 6), ("slave .bak", 5), (".bak", 7)]


def test_a_replica_without_offsets(store: StoreToStart, tmp_path: Path) -> None:
    with pytest.raises(MissingInput) as caught:
        copies(store, tmp_path / "slave")
    path = tmp_path / "slave" / "config" / NAME
    assert str(caught.value) == f"this replica has no committed offsets ({path})"


def test_copies_are_read_from_a_local_disk_alone(store: StoreToStart) -> None:
    with pytest.raises(NotAStore) as caught:
        read_copies(replace(opened(store.root, needs_index_sizes=False), root="s3://bucket/store"))
    assert str(caught.value) == "committed offsets can only be read from a local disk (s3://bucket/store)"


def test_a_database_is_what_the_broker_read(store: StoreToStart) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    database = rocksdict.Rdict(str(store.root / "config" / "consumerOffsets"), rocksdict.Options(raw_mode=True))
    database[b"Orders@readers"] = b'{"offsetTable":{0:3}}'
    database.flush()
    database.close()
    write(store.root, NAME, 5)
    told = opened(store.root, needs_index_sizes=False, settings=(("storeType", "defaultRocksDB"),))
    assert order(read_copies(told)) == [("database", 3), ("file", 5)]
    told = opened(store.root, needs_index_sizes=False, settings=(("storeType", "default"),))
    assert order(read_copies(told)) == [("file", 5)]
