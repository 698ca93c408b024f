"""RocksDB queues that this program made, opened by the real store: it serves every message, goes on writing, and starts
again. The answers are those of the store that wrote the log, with its queues in files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.broker_model import dispatch, read_segments
from support.broker_settings import BrokerSettings
from support.real_store import Opened, RealStore, Store
from support.rebuilding import rebuild_here, rules_of_release, verify_here

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.realstore

STORES = 4
FEATURES = ("lmq", "long_topics", "property_crc")
FILES: Mapping[str, Any] = {"storeType": "default"}
ROCKSDB: Mapping[str, Any] = {"storeType": "defaultRocksDB"}
APART: Mapping[str, Any] = {"storeType": "defaultRocksDB", "useSeparateStorePathForRocksdbCQ": "true"}
CASES = {"to rocksdb": (FILES, ROCKSDB), "apart": (FILES, APART)}
RUNS = [("5.5.0", case) for case in CASES]


def replaced(store: Store, target: Path, settings: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """A store of the same log with everything else from a rebuild for these settings."""
    root, told = target / store.root.name, {**store.settings, **settings}
    shutil.copytree(store.root / "commitlog", root / "commitlog")
    built = rebuild_here(
        root, target / f"work-{store.root.name}", told, broker_version=rules_of_release(store.release), split_size=5_000
    )
    for path in Path(built.directory).iterdir():
        if path.name != "manifest.json":
            shutil.move(path, root / path.name)
    described = json.loads((store.root / "store.json").read_text(encoding="utf-8"))
    described["settings"] = {**described["settings"], **settings}
    (root / "store.json").write_text(json.dumps(described), encoding="utf-8")
    return root, told


@pytest.mark.parametrize(("release", "case"), RUNS)
def test_the_broker_takes_the_database_for_its_own(release: str, case: str, tmp_path: Path) -> None:
    before, after = CASES[case]
    real = RealStore(release)
    stores = real.write(tmp_path / "written", STORES, seed=43_000, features=FEATURES, settings=before)
    for store in stores:
        own = verify_here(store.root, {**store.settings, **before}, broker_version=rules_of_release(release))
        assert own.verdicts.counts == {}, "its own is as it should be"
    copies = [replaced(store, tmp_path / "ours", after) for store in stores]
    known = [queues_of(root, told) for root, told in copies]
    theirs = real.open([store.root for store in stores], put=True, known=known)
    ours = real.open([root for root, _ in copies], put=True, known=known)
    for store, their, our in zip(stores, theirs, ours, strict=True):
        assert our.store.loaded
        assert our.store.end_offset == their.store.end_offset
        assert put_at(our) == put_at(their)
        assert messages(our) == messages(their), store.root
    for root, told in copies:
        assert verify_here(root, told, broker_version=rules_of_release(release)).verdicts.counts == {}
    for first, second in zip(ours, real.open([root for root, _ in copies], put=True, known=known), strict=True):
        assert put_at(second) == {queue: offset + 1 for queue, offset in put_at(first).items()}


def queues_of(root: Path, told: Mapping[str, Any]) -> dict[str, list[int]]:
    """The queues of a store, ids by topic, as the model of its broker has them."""
    found: dict[str, set[int]] = {}
    for request in dispatch(read_segments(root), BrokerSettings.of("5.5.0", told)).requests:
        found.setdefault(request.topic, set()).add(request.queue_id)
    return {topic: sorted(ids) for topic, ids in sorted(found.items())}


def put_at(opened: Opened) -> dict[tuple[str, int], int]:
    """The queue offset of each queue's next message, which a database can give back a moment later only."""
    assert opened.puts
    return {(put["topic"], put["queueId"]): put["queueOffset"] for put in opened.puts}


def messages(opened: Opened) -> dict[tuple[str, int], tuple[Any, ...]]:
    """The messages that each queue serves. Light queues with gaps have another minimum in RocksDB than in files."""
    return {
        (queue["topic"], queue["queueId"]): (queue["maxOffset"], queue["commitLogOffsets"], queue["sizes"])
        for queue in opened.answers["queues"]
        if not queue["topic"].startswith("%LMQ%") and queue["topic"] != "not-light"
    }
