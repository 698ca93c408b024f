"""Queues in files by topic and name; what shows that a broker keeps them in RocksDB, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.errors import WrongSettings
from storeformat.store.queue_places import QueueStore, queue_directories, queue_store, rocksdb_queues

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
        (["consumequeue/CURRENT"], {}, "consumequeue/ is a RocksDB database"),
        (
            ["consumequeue_rocksdb/CURRENT"],
            {},
            "consumequeue_rocksdb/ is a RocksDB database, and consumequeue/ has no queue",
        ),
        (["config/topics/000012.sst"], {}, "config/topics/ is a RocksDB database"),
        (["config/consumerOffsets/000004.log"], {}, "config/consumerOffsets/ is a RocksDB database"),
        ([FILE, "config/subscriptionGroups/000004.log"], {}, "config/subscriptionGroups/ is a RocksDB database"),
    ],
)
def test_queues_in_rocksdb(tmp_path: Path, paths: list[str], settings: dict[str, str], shown: str) -> None:
    root = store_with(tmp_path, *paths)
    assert rocksdb_queues(root, settings) == queue_store(root, settings).shown == shown


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


DOUBLE = {"rocksdbCQDoubleWriteEnable": "true"}
SEPARATE = {"useSeparateStorePathForRocksdbCQ": "true"}


@pytest.mark.parametrize(
    ("paths", "settings", "kind", "database"),
    [
        ([], {}, "file", "consumequeue"),
        ([], {"storeType": "defaultRocksDB"}, "rocksdb", "consumequeue"),
        ([], {"storeType": "defaultRocksDB", **SEPARATE}, "rocksdb", "consumequeue_rocksdb"),
        (["consumequeue_rocksdb/CURRENT"], {}, "rocksdb", "consumequeue_rocksdb"),
        (["consumequeue_rocksdb/CURRENT", "consumequeue/CURRENT"], {}, "rocksdb", "consumequeue"),
        (["consumequeue_rocksdb/CURRENT"], {**DOUBLE}, "file", "consumequeue_rocksdb"),
        ([], {**DOUBLE, "storeType": "defaultRocksDB"}, "rocksdb", "consumequeue"),
        ([], {**DOUBLE, "combineCQLoadingCQTypes": "default"}, "file", "consumequeue"),
        ([], {**DOUBLE, "combineCQLoadingCQTypes": " defaultrocksdb;"}, "rocksdb", "consumequeue"),
        ([], {**DOUBLE, "combineCQLoadingCQTypes": "defaultRocksDB; default"}, "file", "consumequeue"),
    ],
)
def test_where_queues_are(tmp_path: Path, paths: list[str], settings: dict[str, str], kind: str, database: str) -> None:
    found = queue_store(store_with(tmp_path, *paths), settings)
    assert (found.kind, found.database) == (kind, database)
    assert found.in_rocksdb == (kind == "rocksdb")


def test_another_kind_is_asked_for(tmp_path: Path) -> None:
    root = store_with(tmp_path, FILE)
    assert queue_store(root, {}, "rocksdb") == QueueStore("rocksdb", "consumequeue")
    assert queue_store(root, {"storeType": "defaultRocksDB"}, "file").kind == "file"


def test_light_queues_in_rocksdb_alone_are_refused_by_name(tmp_path: Path) -> None:
    light = {"combineCQUseRocksdbForLmq": "TRUE"}
    with pytest.raises(WrongSettings) as refused:
        queue_store(store_with(tmp_path), {**DOUBLE, **light})
    error = refused.value
    assert error.what == (
        "with combineCQUseRocksdbForLmq=true light queues lie in RocksDB alone, which is neither rebuilt nor checked"
    )
    assert (error.path, error.advice) == (str(tmp_path), "--only index,checkpoint does the rest")
    assert queue_store(str(tmp_path), {**DOUBLE, "combineCQUseRocksdbForLmq": "yes"}).written_twice
    assert queue_store(str(tmp_path), light, "rocksdb").kind == "rocksdb"


def test_what_shows_that_queues_are_kept_twice(tmp_path: Path) -> None:
    shown = "rocksdbCQDoubleWriteEnable=true"
    assert queue_store(store_with(tmp_path), DOUBLE) == QueueStore("file", shown=shown, written_twice=True)
    one = {**DOUBLE, "combineCQLoadingCQTypes": "default"}
    assert queue_store(str(tmp_path), one) == QueueStore("file", shown=shown)
    assert queue_store(str(tmp_path), {}).shown is None
