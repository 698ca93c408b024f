"""RocksDB queues that this program made: pairs as a real store writes them, and what a real store serves of them."""

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
from support.rebuilding import options_for, rebuild_here, rules_of_release, verify_here

from jobs.log import opening
from jobs.rebuild import build_store
from jobs.rebuild.rebuild import parts_not_rebuilt
from jobs.spark.runner import Runner

pytest.importorskip("rocksdict")
from support.rocksdb_stores import pairs_in

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


# ---------------------------------------------------------------------------------------------------------------- pairs
@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_pairs_are_those_in_the_database(release: str, tmp_path: Path) -> None:
    real = RealStore(release)
    features, settings = ("lmq", "long_topics", "property_crc"), {"storeType": "defaultRocksDB"}
    stores = real.write(tmp_path / "written", 6, seed=41_000, features=features, settings=settings)
    pairs = real.rocksdb_pairs([store.root for store in stores])
    for number, (store, theirs) in enumerate(zip(stores, pairs, strict=True)):
        assert "consumequeue/CURRENT" in [part["part"] for part in parts_not_rebuilt(str(store.root))]
        log, work = tmp_path / f"log-{number}", tmp_path / f"work-{number}"
        shutil.copytree(store.root / "commitlog", log / "commitlog")
        work.mkdir()
        options = {"broker_version": rules_of_release(release), "split_size": (1 << 10, 5_000, 1 << 30)[number % 3]}
        built = rebuild_here(log, work, store.settings, only=("consumequeue",), **options)
        ours = pairs_in(Path(built.directory) / "consumequeue")
        assert ours["default"] == theirs["default"]
        assert sum(b"\1%LMQ%" in key for key in ours["default"]) > 0
        assert without_first(ours["offset"]) == without_first(theirs["offset"])
        # The first unit is what a broker remembers when it has been asked for it; 0 and 0 before there was one.
        for key, value in theirs["offset"].items():
            assert value in (ours["offset"][key], bytes(16))


def test_a_store_with_every_part_that_is_not_rebuilt_names_them_all(tmp_path: Path) -> None:
    """Written by 5.5.0 with all that it puts into RocksDB beside files."""
    switches = ("indexRocksDBEnable", "transRocksDBEnable", "rocksdbCQDoubleWriteEnable")
    settings = dict.fromkeys((*switches, "useSeparateStorePathForRocksdbCQ"), True)
    written, features = tmp_path / "written", ("lmq", "cq_ext")
    stores = RealStore("5.5.0").write(written, 2, seed=42_000, features=features, settings=settings)
    for store in stores:
        options = options_for(store.root, tmp_path / "out", store.settings, broker_version="5.5")
        opened = opening.open_store(options)
        named = {
            part["part"]
            for part in parts_not_rebuilt(str(store.root), opened.segments, extended=True)
            if len(part["reason"]) > 30
        }
        assert named == {"consumequeue_rocksdb", "rocksdbstore", "store.json"}
        built = build_store.rebuild(options, opened, str(tmp_path / f"work-{store.root.name}"), Runner())
        for part in ("consumequeue", "consumequeue_ext", "index"):
            assert files_below(store.root / part) == files_below(Path(built.directory) / part), part


def files_below(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()]


def without_first(pairs: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in pairs.items() if key[-8:-5] != b"min"}
