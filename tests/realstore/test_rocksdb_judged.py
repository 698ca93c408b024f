"""Queues in RocksDB: the exported pairs against the database that a real store of that type has left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.real_store import RealStore
from support.rebuilding import options_for, rules_of_release

from jobs import opening, rocksdbexport
from jobs.running import LocalRunner
from storeformat.storeparts import parts_not_rebuilt

pytestmark = pytest.mark.realstore

STORES = 6


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_pairs_are_those_in_the_database(release: str, tmp_path: Path) -> None:
    real = RealStore(release)
    stores = real.write(
        tmp_path / "written",
        STORES,
        seed=41_000,
        features=("lmq", "long_topics", "property_crc"),
        settings={"storeType": "defaultRocksDB"},
    )
    for number, (store, theirs) in enumerate(
        zip(stores, real.rocksdb_pairs([store.root for store in stores]), strict=True)
    ):
        assert "consumequeue/CURRENT" in [part["part"] for part in parts_not_rebuilt(str(store.root))]
        log, work = tmp_path / f"log-{number}", tmp_path / f"work-{number}"
        shutil.copytree(store.root / "commitlog", log / "commitlog")
        work.mkdir()
        options = options_for(
            log,
            work / "output",
            store.settings,
            only=("rocksdb",),
            broker_version=rules_of_release(release),
            split_size=(1 << 10, 5_000, 1 << 30)[number % 3],
        )
        exported = rocksdbexport.export(options, opening.open_store(options), str(work), LocalRunner())
        rows = pq.read_table(Path(exported.directory) / "rocksdb").to_pylist()
        ours = {name: {row["key"]: row["value"] for row in rows if row["family"] == name} for name in theirs}
        assert len(rows) == exported.pairs == sum(map(len, ours.values()))
        assert ours["default"] == theirs["default"]
        assert sum(b"\1%LMQ%" in key for key in ours["default"]) > 0
        assert without_first(ours["offset"]) == without_first(theirs["offset"])
        # The first unit is what a broker remembers when it has been asked for it; 0 and 0 before there was one.
        for key, value in theirs["offset"].items():
            assert value in (ours["offset"][key], bytes(16))


def without_first(pairs: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in pairs.items() if key[-8:-5] != b"min"}
