"""The database of RocksDB queues against a slow model of the keys and values that a broker writes."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.broker_model import dispatch, read_segments
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.publishing import quiet
from support.rebuilding import options_for, rules_of_release
from support.store_builder import LogBuilder, Message, overwrite_log
from support.store_to_start import configure

from jobs.contract.options import PublishOptions, VerifyOptions
from jobs.log import opening
from jobs.log.opening import with_queue_store
from jobs.publish import publish
from jobs.rebuild import build_store, rebuild, rocksdb_database
from jobs.rebuild.manifest import read_manifest
from jobs.spark.runner import Runner
from jobs.verify import verify
from storeformat.errors import TotalsDisagree

pytest.importorskip("rocksdict")
from support.rocksdb_stores import pairs_in

pytestmark = pytest.mark.golden

UNIT, ENDS = struct.Struct(">qiqq"), struct.Struct(">qq")
STORES = ("base-clean-5.3.3", "base-clean-5.5.0", "recreate-5.1.4", "retention-5.1.4", "batch-cq-5.3.3", "lmq-5.5.0")


def made(root: Path, work: Path, settings: dict[str, Any], kind: str = "rocksdb", **more: Any) -> build_store.Built:
    work.mkdir(exist_ok=True)
    options = options_for(root, work / "output", settings, **more)
    store = with_queue_store(opening.open_store(options), kind)  # type: ignore[arg-type]
    return build_store.rebuild(options, store, str(work), Runner())


def key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    name = topic.encode()
    return struct.pack(f">ib{len(name)}sbibq", len(name), 1, name, 1, queue_id, 1, queue_offset)


def end_key(topic: str, end: bytes, queue_id: int) -> bytes:
    name = topic.encode()
    return struct.pack(f">ib{len(name)}sb3sbi", len(name), 1, name, 1, end, 1, queue_id)


def modelled(root: Path, store: GoldenStore) -> dict[str, dict[bytes, bytes]]:
    """A queue offset of 0 begins the queue anew, whose pairs went with the topic; else the last one put stays."""
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int, int]]] = {}
    last: dict[tuple[str, int], tuple[int, int]] = {}
    dispatched = 0
    for request in dispatch(read_segments(root), BrokerSettings.of(store.version, store.settings)).requests:
        if request.transaction_type not in (0x0, 0x8):
            continue
        queue, at = (request.topic, request.queue_id), request.consume_queue_offset
        units = queues.setdefault(queue, {})
        if at == 0:
            units.clear()
        units[at] = (request.commit_log_offset, request.msg_size, request.tags_code, request.store_timestamp)
        last[queue] = (request.commit_log_offset, at)
        dispatched = request.commit_log_offset + request.msg_size
    ends = {end_key("CHECKPOINT_TOPIC", b"max", 0): struct.pack(">q", dispatched)}
    for (topic, queue_id), units in queues.items():
        first = min(units)
        ends[end_key(topic, b"min", queue_id)] = ENDS.pack(units[first][0], first)
        ends[end_key(topic, b"max", queue_id)] = ENDS.pack(*last[topic, queue_id])
    pairs = {key(*queue, at): UNIT.pack(*unit) for queue, units in queues.items() for at, unit in units.items()}
    return {"default": pairs, "offset": ends}


@pytest.mark.parametrize("split_size", [8 << 10, 1 << 30])
@pytest.mark.parametrize("store", golden.stores(lambda store: store.name in STORES), ids=str)
def test_the_database_is_the_models(
    store: GoldenStore, split_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Light queues are not in the model: the test against a real store has them."""
    root, version = golden.unpack(store), rules_of_release(store.version)
    monkeypatch.setattr(rocksdb_database, "_PAIRS_A_FILE", 37)
    monkeypatch.setattr(rocksdb_database, "_PAIRS_A_TASK", 11)
    built = made(root, tmp_path / "work", store.settings, broker_version=version, split_size=split_size)
    found = pairs_in(Path(built.directory) / "consumequeue")
    plain = {family: {k: v for k, v in pairs.items() if b"\1%LMQ%" not in k} for family, pairs in found.items()}
    assert plain == modelled(root, store)
    assert (plain != found) == store.name.startswith("lmq")
    assert read_manifest(built.directory).queue_store.kind == "rocksdb"
    assert not (Path(built.directory) / "batchconsumequeue").exists()


def test_a_topic_that_was_created_anew_in_what_is_lost_keeps_none_of_its_earlier_pairs(tmp_path: Path) -> None:
    """As in the queues in files; only what follows the lost first message shows that a new life began."""
    log = LogBuilder(4096)
    for queue_offset in (*range(10), *range(5)):
        log.message(Message("T", queue_offset=queue_offset, body=bytes(40)))
        log.message(Message("U", body=bytes(40)))
    log.write(tmp_path)
    lost = log.records[20]
    overwrite_log(tmp_path / "commitlog", lost.offset, b"\xa5" * lost.size)
    built = made(tmp_path, tmp_path / "work", {}, on_damage="salvage")
    units = pairs_in(Path(built.directory) / "consumequeue")["default"]
    offsets = {name: UNIT.unpack(value)[0] for name, value in units.items() if name < key("U", 0, 0)}
    assert offsets == {key("T", 0, number): log.records[20 + 2 * number].offset for number in range(1, 5)}


@pytest.mark.spark
def test_its_tasks_run_under_spark(spark: Any, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    root = golden.unpack(store, tmp_path)
    configure(root)
    here = Path(made(root, tmp_path / "here", store.settings).directory) / "consumequeue"
    options = options_for(root, tmp_path / "out", {**store.settings, "storeType": "defaultRocksDB"})
    assert rebuild.run(options, quiet()).exit_code == 0
    assert pairs_in(tmp_path / "out" / "consumequeue") == pairs_in(here)
    assert publish.run(PublishOptions(store=str(root), rebuilt=str(tmp_path / "out")), quiet()).exit_code == 0
    verified = verify.run(VerifyOptions(store=str(root), settings=options.settings), quiet())
    assert (verified.exit_code, verified["counts"]) == (0, {})


def test_a_database_apart_lies_in_a_directory_of_its_own(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    options = options_for(golden.unpack(store), tmp_path / "work" / "output", store.settings)
    separate = ("useSeparateStorePathForRocksdbCQ", "true")
    options = replace(options, settings=(*options.settings, ("storeType", "defaultRocksDB"), separate))
    (tmp_path / "work").mkdir()
    opened = with_queue_store(opening.open_store(options))
    built = build_store.rebuild(options, opened, str(tmp_path / "work"), Runner())
    assert (Path(built.directory) / "consumequeue_rocksdb" / "CURRENT").exists()
    assert not (Path(built.directory) / "consumequeue").exists()


def test_an_empty_log_has_a_database_with_its_checkpoint_alone(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    built = made(tmp_path, tmp_path / "work", {})
    checkpoint = bytes.fromhex("00000010 01") + b"CHECKPOINT_TOPIC\x01max\x01" + bytes(4)
    assert pairs_in(Path(built.directory) / "consumequeue") == {"default": {}, "offset": {checkpoint: bytes(8)}}


def test_a_database_that_lacks_a_pair_is_never_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    write = rocksdb_database.WriteTables.__call__

    def lossy(self: Any, planned: Any) -> Any:
        return write(self, ((name, slices[1:]) for name, slices in planned))

    monkeypatch.setattr(rocksdb_database.WriteTables, "__call__", lossy)
    with pytest.raises(TotalsDisagree, match="does not match the log"):
        made(golden.unpack(store), tmp_path / "work", store.settings)


def test_the_last_of_several_intervals_wins() -> None:
    source = random.Random(7)
    for _ in range(300):
        drawn = [(begin, begin + source.randrange(1, 9)) for begin in (source.randrange(40) for _ in range(8))]
        taken: list[tuple[int, int]] = []
        seen: set[int] = set()
        for begin, end in drawn:
            free = [place for low, high in rocksdb_database._free(taken, begin, end) for place in range(low, high)]
            assert free == [place for place in range(begin, end) if place not in seen]
            seen.update(free)
        assert sorted(seen) == [place for low, high in taken for place in range(low, high)]
