"""Queues in files by topic and name; what shows that a broker keeps them in RocksDB, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.store.queue_places import queue_directories, rocksdb_queues

FILE = "consumequeue/T/0/" + "0" * 20


def store_with(root: Path, *paths: str) -> str:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    return str(root)


@pytest.mark.parametrize(
    ("paths", "settings", "shown"),
    [
        ([FILE], {"storeType": "DefaultRocksDB"}, "storeType=DefaultRocksDB"),
        (["consumequeue/CURRENT"], {}, "consumequeue/ "),
        (["consumequeue_rocksdb/CURRENT"], {}, "consumequeue_rocksdb/ "),
        (["config/topics/000012.sst"], {}, "config/topics/ "),
        (["config/consumerOffsets/000004.log"], {}, "config/consumerOffsets/ "),
        ([FILE, "config/subscriptionGroups/000004.log"], {}, "config/subscriptionGroups/ "),
    ],
)
def test_queues_in_rocksdb(tmp_path: Path, paths: list[str], settings: dict[str, str], shown: str) -> None:
    assert (rocksdb_queues(store_with(tmp_path, *paths), settings) or "").startswith(shown)


@pytest.mark.parametrize(
    ("paths", "settings"),
    [
        ([], {}),
        ([FILE, "rocksdbstore/CURRENT", "rocksdbstore/000009.sst", "config/topics.json", "config/topics/CURRENT"], {}),
        (["consumequeue/CURRENT", "config/topics/000012.sst"], {"storeType": "default"}),
        ([FILE, "consumequeue/CURRENT"], {"rocksdbCQDoubleWriteEnable": "true"}),
        ([FILE, "consumequeue_rocksdb/CURRENT"], {}),
    ],
)
def test_queues_in_files(tmp_path: Path, paths: list[str], settings: dict[str, str]) -> None:
    assert rocksdb_queues(store_with(tmp_path, *paths), settings) is None


def test_directories_and_their_files(tmp_path: Path) -> None:
    for path in ("A/0/" + "0" * 20, "A/0/notes", "A/x/" + "0" * 20, "B/1/" + "0" * 18 + "20", "B/1/" + "0" * 20):
        file = tmp_path / "consumequeue" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    (tmp_path / "consumequeue" / "B" / "stray").touch()
    found = list(queue_directories(str(tmp_path), "consumequeue"))
    assert [(one.topic, one.queue_id) for one in found] == [("A", 0), ("A", None), ("B", 1)]
    assert [[int(file.name) for file in one.files()] for one in found] == [[0], [0], [0, 20]]
    assert len(found[0].entries()) == 2
    assert [one.topic for one in queue_directories(str(tmp_path), "consumequeue", {"B"})] == ["B"]
    assert list(queue_directories(str(tmp_path), "batchconsumequeue")) == []
