"""Every part of a store that a rebuild does not make is named, and nothing that is merely there."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.store.not_rebuilt import parts_not_rebuilt
from storeformat.store.segment_files import find_segments


def named(root: Path, *, extended: bool = False) -> list[str]:
    return [part["part"] for part in parts_not_rebuilt(str(root), extended=extended)]


def put(root: Path, path: str, content: bytes = b"x") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("consumequeue_ext/T/0/00000000000000000000", "consumequeue_ext"),
        ("compaction/compactionLog/T/0/00000000000000000000", "compaction"),
        ("timerwheel", "timerwheel"),
        ("timerwheel.1048576", "timerwheel.1048576"),
        ("timerlog/00000000000000000000", "timerlog"),
        ("kvStore/000012.sst", "kvStore"),
        ("consumequeue/CURRENT", "consumequeue/CURRENT"),
        ("consumequeue_rocksdb/000004.log", "consumequeue_rocksdb"),
        ("rocksdbstore/000012.sst", "rocksdbstore"),
        ("rocksdbstore/000012.log", "rocksdbstore"),
        ("config/topics/000012.sst", "config/topics"),
        ("config/metadata/000012.sst", "config/metadata"),
        ("config/rdb/000004.log", "config/rdb"),
        ("epochFileCheckpoint", "epochFileCheckpoint"),
        ("brokerIdentity", "brokerIdentity"),
        ("tieredstore/a", "tieredstore"),
        ("transaction/statetable/00000000000000000000", "transaction"),
        ("notes.txt", "notes.txt"),
        ("dledger-n0/data/00000000000000000000", "dledger-n0"),
    ],
)
def test_a_part_is_named_with_a_reason(path: str, part: str, tmp_path: Path) -> None:
    put(tmp_path, "commitlog/00000000000000000000")
    put(tmp_path, path)
    (found,) = parts_not_rebuilt(str(tmp_path))
    assert found["part"] == part
    assert len(found["reason"]) > 30


def test_what_every_store_has_is_not_named(tmp_path: Path) -> None:
    """5.4.0 and later create rocksdbstore/ in every store, and a timer wheel that is off leaves empty files."""
    for path in ("commitlog/00000000000000000000", "consumequeue/T/0/00000000000000000000", "checkpoint", "config/a"):
        put(tmp_path, path)
    for path in ("abort", "abort.bak", "lock", "config/topics.json", "config/users/CURRENT", "backup/x/manifest.json"):
        put(tmp_path, path)
    for path in ("batchconsumequeue/T/0/00000000000000000000", "index/20240101000000000", ".claim-1", "lost+found/a"):
        put(tmp_path, path)
    for path in ("rocksdbstore/000004.log", "timerwheel"):
        put(tmp_path, path, b"")
    for path in ("rocksdbstore/CURRENT", "rocksdbstore/MANIFEST-000005", "rocksdbstore/OPTIONS-000007"):
        put(tmp_path, path)
    (tmp_path / "compaction").mkdir()
    assert named(tmp_path) == []


def test_segments_that_were_not_read_are_named(tmp_path: Path) -> None:
    for path in ("commitlog", "commitlog-b", "repaired"):
        put(tmp_path, f"{path}/{0:020d}", bytes(100))
    for read in ("commitlog", "commitlog-b"):
        segments = find_segments([str(tmp_path / read)], None)
        found = [part["part"] for part in parts_not_rebuilt(str(tmp_path), segments)]
        assert found == sorted({"commitlog", "commitlog-b", "repaired"} - {read})


@pytest.mark.parametrize(("bit_map", "parts"), [(0, []), (14, ["consumequeue_ext"])])
def test_where_ext_units_are_written_only_bit_maps_are_missing(bit_map: int, parts: list[str], tmp_path: Path) -> None:
    unit = (20 + bit_map).to_bytes(2, "big") + bytes(16) + bit_map.to_bytes(2, "big") + bytes(bit_map)
    put(tmp_path, "consumequeue_ext/A/0/00000000000000000000", unit.ljust(100, b"\0"))
    assert named(tmp_path) == ["consumequeue_ext"]
    assert named(tmp_path, extended=True) == parts


def test_a_database_of_queues_that_is_made_is_not_named(tmp_path: Path) -> None:
    put(tmp_path, "consumequeue/CURRENT")
    put(tmp_path, "consumequeue_rocksdb/000004.sst")
    put(tmp_path, "rocksdbstore/000004.sst")
    found = parts_not_rebuilt(str(tmp_path), in_rocksdb=True)
    assert [part["part"] for part in found] == ["rocksdbstore"]
