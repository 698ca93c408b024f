"""The pairs of RocksDB queues as a table, against a slow model of what a broker puts under which key."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support import golden
from support.broker_model import dispatch, read_segments
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.rebuilding import options_for, rules_of_release
from support.store_builder import LogBuilder, Message

from jobs.cli import command_line
from jobs.contract.options import RebuildOptions, narrow_to_queues
from jobs.log import opening
from jobs.rebuild import rebuild, rocksdb_pairs
from jobs.rebuild.manifest import read_manifest
from jobs.spark.runner import LocalRunner
from storeformat.errors import Refused, UsageError

pytestmark = pytest.mark.golden

UNIT = struct.Struct(">qiqq")
STORES = ("base-clean-5.3.3", "base-clean-5.5.0", "recreate-5.1.4", "retention-5.1.4", "batch-cq-5.3.3")


def export(root: Path, work: Path, settings: dict[str, Any], **more: Any) -> rocksdb_pairs.Exported:
    work.mkdir(exist_ok=True)
    options = options_for(root, work / "output", settings, only=("rocksdb",), **more)
    return rocksdb_pairs.export(options, opening.open_store(options), str(work), LocalRunner())


def rows_of(exported: rocksdb_pairs.Exported) -> list[dict[str, Any]]:
    return list(pq.read_table(Path(exported.directory) / "rocksdb").to_pylist())


def key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    name = topic.encode()
    return struct.pack(f">ib{len(name)}sbibq", len(name), 1, name, 1, queue_id, 1, queue_offset)


def modelled(root: Path, store: GoldenStore) -> dict[bytes, bytes]:
    """A queue offset of 0 begins the queue anew, whose pairs went with the topic; else the last one put stays."""
    queues: dict[tuple[str, int], dict[bytes, bytes]] = {}
    for request in dispatch(read_segments(root), BrokerSettings.of(store.version, store.settings)).requests:
        if request.transaction_type not in (0x0, 0x8):
            continue
        pairs = queues.setdefault((request.topic, request.queue_id), {})
        if request.consume_queue_offset == 0:
            pairs.clear()
        pairs[key(request.topic, request.queue_id, request.consume_queue_offset)] = UNIT.pack(
            request.commit_log_offset, request.msg_size, request.tags_code, request.store_timestamp
        )
    return {name: value for pairs in queues.values() for name, value in pairs.items()}


@pytest.mark.parametrize("split_size", [1 << 10, 1 << 30])
@pytest.mark.parametrize("store", golden.stores(lambda store: store.name in STORES), ids=str)
def test_pairs_are_the_models(store: GoldenStore, split_size: int, tmp_path: Path) -> None:
    root = golden.unpack(store)
    version = rules_of_release(store.version)
    exported = export(root, tmp_path / "work", store.settings, broker_version=version, split_size=split_size)
    rows = rows_of(exported)
    assert {row["key"]: row["value"] for row in rows if row["family"] == "default"} == modelled(root, store)
    assert len(rows) == len({(row["family"], row["key"]) for row in rows}) == exported.pairs
    for row in rows:
        if row["family"] == "default":
            assert row["key"] == key(row["topic"], row["queue_id"], row["queue_offset"])
            said = (row["phy_offset"], row["size"], row["tags_code"], row["store_timestamp"])
            assert UNIT.unpack(row["value"]) == said


def test_files_of_few_rows_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    whole = export(golden.unpack(store), tmp_path / "whole", store.settings)
    monkeypatch.setattr(rocksdb_pairs, "_ROWS_A_FILE", 7)
    cut = export(golden.unpack(store), tmp_path / "cut", store.settings)
    assert len(cut.rows) > 40
    assert sorted(map(str, rows_of(cut))) == sorted(map(str, rows_of(whole)))


def test_nobody_publishes_a_table(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    exported = export(golden.unpack(store), tmp_path / "work", store.settings)
    with pytest.raises(Refused, match="table of RocksDB pairs"):
        read_manifest(exported.directory)


def test_the_command_line_takes_it_alone() -> None:
    words = ["rebuild", "--store", "S", "--output", "O", "--only"]
    _, options = command_line.parse([*words, "rocksdb"], command_line.JOBS)
    assert isinstance(options, RebuildOptions)
    assert options.only == ("rocksdb",)
    _, options = command_line.parse([*words, "rocksdb", "--topic", "T"], command_line.JOBS)
    assert isinstance(options, RebuildOptions)
    assert narrow_to_queues(options) == options
    with pytest.raises(UsageError, match="rocksdb"):
        command_line.parse([*words, "rocksdb,index"], command_line.JOBS)
    with pytest.raises(UsageError, match="rocksdb"):
        command_line.parse(["verify", "--store", "S", "--only", "rocksdb"], command_line.JOBS)


def test_the_report_counts_pairs(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    exported = export(golden.unpack(store), tmp_path / "work", store.settings)
    counted = rebuild._counted(exported)
    assert counted["rocksdb_pairs"] == len(rows_of(exported)) > store.entry["counts"]["queues"]
    assert counted["queues"] == store.entry["counts"]["queues"]


def test_a_topic_that_was_created_anew_in_what_is_lost_keeps_none_of_its_earlier_pairs(tmp_path: Path) -> None:
    """As in the queues in files; only what lies after the lost first message shows that a new life began."""
    log = LogBuilder(4096)
    for queue_offset in (*range(10), *range(5)):
        log.message(Message("T", queue_offset=queue_offset, body=bytes(40)))
        log.message(Message("U", body=bytes(40)))
    log.write(tmp_path)
    lost = log.records[20]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(lost.offset)
        file.write(b"\xa5" * lost.size)
    rows = rows_of(export(tmp_path, tmp_path / "work", {}, on_damage="salvage"))
    units = [(row["queue_offset"], row["phy_offset"]) for row in rows if row["topic"] == "T" and row["size"]]
    assert units == [(number, log.records[20 + 2 * number].offset) for number in range(1, 5)]
