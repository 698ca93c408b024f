"""The database of RocksDB queues: the same pairs as the table of ``--only rocksdb``, however its files are cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support import golden
from support.golden import GoldenStore
from support.publishing import quiet
from support.rebuilding import options_for, rules_of_release

from jobs.cli import command_line
from jobs.contract.options import PublishOptions, RebuildOptions, VerifyOptions
from jobs.log import opening
from jobs.log.opening import with_queue_store
from jobs.publish import publish
from jobs.rebuild import build_store, rebuild, rocksdb_database, rocksdb_pairs
from jobs.rebuild.manifest import read_manifest
from jobs.spark.runner import LocalRunner
from jobs.verify import verify
from storeformat.errors import Refused, TotalsDisagree, UsageError
from storeformat.store.rocksdb_queues import rocksdb_queues_in

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.golden

STORES = ("base-clean-5.3.3", "base-clean-5.5.0", "recreate-5.1.4", "batch-cq-5.3.3", "lmq-5.5.0")


def made(root: Path, work: Path, settings: dict[str, Any], kind: str = "rocksdb", **more: Any) -> build_store.Built:
    work.mkdir(exist_ok=True)
    options = options_for(root, work / "output", settings, **more)
    store = with_queue_store(opening.open_store(options), kind)  # type: ignore[arg-type]
    return build_store.rebuild(options, store, str(work), LocalRunner())


def pairs_in(directory: Path) -> dict[tuple[str, bytes], bytes]:
    with rocksdb_queues_in(str(directory)) as queues:
        database = queues.database
        return {(name, key): value for name in ("default", "offset") for key, value in database.pairs(name)}


def table(root: Path, work: Path, settings: dict[str, Any], **more: Any) -> dict[tuple[str, bytes], bytes]:
    work.mkdir()
    options = options_for(root, work / "output", settings, only=("rocksdb",), **more)
    exported = rocksdb_pairs.export(options, opening.open_store(options), str(work), LocalRunner())
    rows = pq.read_table(Path(exported.directory) / "rocksdb").to_pylist()
    return {(row["family"], row["key"]): row["value"] for row in rows}


@pytest.mark.parametrize("store", golden.stores(lambda store: store.name in STORES), ids=str)
def test_the_database_holds_the_pairs_of_the_table(
    store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, version = golden.unpack(store), rules_of_release(store.version)
    monkeypatch.setattr(rocksdb_database, "_PAIRS_A_FILE", 37)
    monkeypatch.setattr(rocksdb_database, "_PAIRS_A_TASK", 11)
    built = made(root, tmp_path / "work", store.settings, broker_version=version)
    found = pairs_in(Path(built.directory) / "consumequeue")
    assert found == table(root, tmp_path / "table", store.settings, broker_version=version)
    assert built.database is not None
    assert rebuild._counted(built)["rocksdb_pairs"] == built.database.pairs == len(found)
    assert read_manifest(built.directory).queue_store == "rocksdb"
    assert not (Path(built.directory) / "batchconsumequeue").exists()


@pytest.mark.spark
def test_its_tasks_run_under_spark(spark: Any, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    root = golden.unpack(store, tmp_path)
    here = Path(made(root, tmp_path / "here", store.settings).directory) / "consumequeue"
    options = options_for(root, tmp_path / "out", {**store.settings, "storeType": "defaultRocksDB"})
    assert rebuild.run(options, quiet()).exit_code == 0
    assert pairs_in(tmp_path / "out" / "consumequeue") == pairs_in(here)
    assert publish.run(PublishOptions(store=str(root), rebuilt=str(tmp_path / "out")), quiet()).exit_code == 0
    verified = verify.run(VerifyOptions(store=str(root), settings=options.settings), quiet())
    assert (verified.exit_code, verified["counts"]) == (0, {})


def test_both_are_the_files_and_the_database_side_by_side(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    root = golden.unpack(store)
    both = Path(made(root, tmp_path / "both", store.settings, "both").directory) / "consumequeue"
    plain = Path(made(root, tmp_path / "file", store.settings, "file").directory) / "consumequeue"
    assert {path.name for path in both.iterdir() if path.is_dir()} == {path.name for path in plain.iterdir()}
    for path in filter(Path.is_file, plain.rglob("0*")):
        assert (both / path.relative_to(plain)).read_bytes() == path.read_bytes()
    only = Path(made(root, tmp_path / "only", store.settings).directory) / "consumequeue"
    assert pairs_in(both) == pairs_in(only)


def test_a_database_apart_lies_in_a_directory_of_its_own(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    options = options_for(golden.unpack(store), tmp_path / "work" / "output", store.settings)
    separate = ("useSeparateStorePathForRocksdbCQ", "true")
    options = replace(options, settings=(*options.settings, ("storeType", "defaultRocksDB"), separate))
    (tmp_path / "work").mkdir()
    opened = with_queue_store(opening.open_store(options))
    built = build_store.rebuild(options, opened, str(tmp_path / "work"), LocalRunner())
    assert (Path(built.directory) / "consumequeue_rocksdb" / "CURRENT").exists()
    assert not (Path(built.directory) / "consumequeue").exists()


def test_an_empty_log_has_a_database_with_its_checkpoint_alone(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    built = made(tmp_path, tmp_path / "work", {})
    key = bytes.fromhex("00000010 01") + b"CHECKPOINT_TOPIC\x01max\x01" + bytes(4)
    assert pairs_in(Path(built.directory) / "consumequeue") == {("offset", key): bytes(8)}


def test_a_database_that_lacks_a_pair_is_never_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    write = rocksdb_database.WriteTables.__call__

    def lossy(self: Any, planned: Any) -> Any:
        return write(self, (replace(file, slices=file.slices[1:]) for file in planned))

    monkeypatch.setattr(rocksdb_database.WriteTables, "__call__", lossy)
    with pytest.raises(TotalsDisagree, match="does not match the log"):
        made(golden.unpack(store), tmp_path / "work", store.settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["s3://bucket/out"], "in a bucket"),
        (["out", "--topic", "T"], "--topic"),
        (["out", "--only", "index"], "--only leaves out"),
    ],
)
def test_what_cannot_be_a_database_is_refused(words: list[str], message: str) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    opened = opening.open_store(options_for(golden.unpack(store), Path("out"), store.settings))
    line = ["rebuild", "--store", "S", "--queue-store", "rocksdb", "--output", *words]
    _, options = command_line.parse(line, command_line.JOBS)
    assert isinstance(options, RebuildOptions)
    with pytest.raises(UsageError, match=message):
        rebuild._with_queue_store(options, opened)


def test_batch_queues_are_not_kept_twice() -> None:
    (store,) = golden.stores("batch-cq-5.5.0")
    opened = opening.open_store(options_for(golden.unpack(store), Path("out"), store.settings))
    with pytest.raises(Refused, match="BatchCQ"):
        with_queue_store(opened, "both")


def test_light_queues_are_not_kept_twice() -> None:
    (store,) = golden.stores("lmq-5.5.0")
    opened = opening.open_store(options_for(golden.unpack(store), Path("out"), store.settings))
    with pytest.raises(Refused, match="light queues"):
        with_queue_store(opened, "both")
    assert with_queue_store(opened, "rocksdb").queues_in.in_rocksdb
