"""Queues in RocksDB: the rebuilt database against the database that a real store of that type has left."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.real_store import RealStore
from support.rebuilding import options_for, rebuild_here, rules_of_release

from jobs.log import opening
from jobs.rebuild import build_store
from jobs.rebuild.rebuild import parts_not_rebuilt
from jobs.spark.runner import Runner

pytest.importorskip("rocksdict")
from support.rocksdb_stores import pairs_in

pytestmark = pytest.mark.realstore

STORES = 6


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_pairs_are_those_in_the_database(release: str, tmp_path: Path) -> None:
    real = RealStore(release)
    features, settings = ("lmq", "long_topics", "property_crc"), {"storeType": "defaultRocksDB"}
    stores = real.write(tmp_path / "written", STORES, seed=41_000, features=features, settings=settings)
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
    """Written by 5.5.0 with all that it puts into RocksDB beside files; what a whole broker has is put by hand."""
    switches = ("indexRocksDBEnable", "transRocksDBEnable", "rocksdbCQDoubleWriteEnable")
    settings = dict.fromkeys((*switches, "useSeparateStorePathForRocksdbCQ"), True)
    written, features = tmp_path / "written", ("lmq", "cq_ext")
    stores = RealStore("5.5.0").write(written, 2, seed=42_000, features=features, settings=settings)
    by_hand = {
        "compaction/compactionLog/T/0/00000000000000000000": "compaction", "timerwheel": "timerwheel",
        "timerwheel.1048576": "timerwheel.1048576", "timerlog/00000000000000000000": "timerlog",
        "kvStore/000009.sst": "kvStore", "config/topics/000009.sst": "config/topics",
        "config/rdb/000004.log": "config/rdb", "epochFileCheckpoint": "epochFileCheckpoint",
        "brokerIdentity": "brokerIdentity", "dledger-n1/data/00000000000000000000": "dledger-n1",
        "plugin/state": "plugin", "store.json": "store.json",
    }  # fmt: skip
    for store in stores:
        for path in by_hand:
            (store.root / path).parent.mkdir(parents=True, exist_ok=True)
            (store.root / path).write_bytes(b"{}")
        (store.root / "config" / "topics.json").write_text("")
        options = options_for(store.root, tmp_path / "out", store.settings, broker_version="5.5")
        options = replace(options, settings=(*options.settings, ("enableDLegerCommitLog", "false")))
        opened = opening.open_store(options)
        named = {
            part["part"]
            for part in parts_not_rebuilt(str(store.root), opened.segments, extended=True)
            if len(part["reason"]) > 30
        }
        assert named == {"consumequeue_rocksdb", "rocksdbstore", *by_hand.values()}
        built = build_store.rebuild(options, opened, str(tmp_path / f"work-{store.root.name}"), Runner())
        for part in ("consumequeue", "consumequeue_ext", "index"):
            assert files_below(store.root / part) == files_below(Path(built.directory) / part), part


def files_below(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()]


def without_first(pairs: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in pairs.items() if key[-8:-5] != b"min"}
