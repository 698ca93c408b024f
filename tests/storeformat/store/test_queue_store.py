"""What shows that a broker keeps its queues in RocksDB, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.store.queue_store import rocksdb_queues

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
