"""What is gathered of a store, and what is no store."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from jobs.preflight.stopped_store import RocksDb, furthest_unit, read_stopped_store
from storeformat.errors import MissingInput, NotAStore, StoreFormatError
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.queue_ends import QueueEnd
from storeformat.store.recovery import Redispatch

SETTINGS = BrokerConf({}, from_file=False)
OFFSETS = {"consumerOffset.json", "lmqConsumerOffset.json"}


def refusal(root: str) -> tuple[type[StoreFormatError], str, str | None]:
    with pytest.raises(StoreFormatError) as caught:
        read_stopped_store(root, SETTINGS)
    return type(caught.value), str(caught.value), caught.value.advice


def test_what_is_no_store(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    assert refusal("s3://bucket/store") == (
        NotAStore, "a broker starts on a local disk only (s3://bucket/store)", None,
    )  # fmt: skip
    assert refusal(root) == (MissingInput, f"there is no such store ({root})", None)
    Path(root).mkdir()
    advice = "--store must be the broker's storePathRootDir"
    assert refusal(root) == (MissingInput, f"there is no commit log ({root}/commitlog)", advice)


def test_a_file_of_absurd_length_is_no_checkpoint(store: StoreToStart) -> None:
    path = store.root / "checkpoint"
    path.write_bytes(bytes(1 << 20))
    assert store.stopped().root == str(store.root)
    path.write_bytes(bytes((1 << 20) + 1))
    said = f"this file is too large: found 1048577, expected at most 1048576 bytes ({path})"
    assert refusal(str(store.root)) == (NotAStore, said, None)


@pytest.mark.parametrize(
    ("page", "folder", "version"),
    [
        (None, False, "5.3"),
        (None, True, "5.5"),
        (StoreCheckpoint(1, 1, 1), False, "5.3"),
        (StoreCheckpoint(1, 1, 1, 0, 0, 5), False, "5.5"),
        (StoreCheckpoint(1, 1, 1, 5, 0, 0), False, "5.3"),
    ],
)
def test_the_release_that_a_store_shows(
    store: StoreToStart, page: StoreCheckpoint | None, folder: bool, version: str
) -> None:
    if page is not None:
        (store.root / "checkpoint").write_bytes(page.to_bytes())
    if folder:
        (store.root / "rocksdbstore").mkdir()
    assert read_stopped_store(str(store.root), SETTINGS).rules.version == version
    assert read_stopped_store(str(store.root), SETTINGS, "4.9").rules.version == "4.9"


def test_what_is_told_of_a_healthy_store(store: StoreToStart) -> None:
    found = read_stopped_store(str(store.root), BrokerConf(store.conf), "5.5", now_ms=7)
    assert (found.after_crash, found.is_live, found.now_ms, found.rocksdb) == (False, False, 7, RocksDb())
    assert (furthest_unit(found.queues.values()), found.redispatch) == (6744, Redispatch(6744, 6744))
    assert OFFSETS & set(found.configs) == {"consumerOffset.json"}
    assert found.offsets_file.name == "consumerOffset.json"
    store.conf["enableLmq"] = "true"
    found = read_stopped_store(str(store.root), BrokerConf(store.conf), "5.5")
    assert OFFSETS & set(found.configs) == {"lmqConsumerOffset.json"}
    assert found.offsets_file.name == "lmqConsumerOffset.json"
    assert found.now_ms > 1_600_000_000_000


def test_fillers_are_no_end(store: StoreToStart) -> None:
    filler = QueueEnd("New", 0, (), end=20, end_offset=0x7FFFFFFF)
    stopped = store.stopped()
    assert furthest_unit([*stopped.queues.values(), filler]) == 6744
    assert furthest_unit([filler]) == -1


def test_a_start_after_a_crash(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", version="5.3")
    (store.root / "abort").touch()
    found = store.stopped()
    assert (found.after_crash, found.redispatch) == (True, Redispatch(0))
    (store.root / "checkpoint").write_bytes(StoreCheckpoint(store.log.clock + 9000, store.log.clock + 9000).to_bytes())
    assert store.stopped().redispatch == Redispatch(4096)


@pytest.mark.parametrize(
    ("made", "filled", "expected"),
    [
        ((), ("consumequeue",), RocksDb(queues=True)),
        ((), ("consumequeue_rocksdb",), RocksDb(queues_apart=True)),
        (("rdb", "topics"), (), RocksDb(made=("topics", "rdb"))),
        (
            ("subscriptionGroups", "consumerOffsets", "metadata", "other"),
            ("config/metadata", "config/consumerOffsets"),
            RocksDb(
                configuration=("consumerOffsets", "metadata"),
                made=("subscriptionGroups", "consumerOffsets", "metadata"),
            ),
        ),
    ],
)
def test_databases_that_hold_something(
    store: StoreToStart, made: tuple[str, ...], filled: tuple[str, ...], expected: RocksDb
) -> None:
    for name in made:
        store.config(name).mkdir()
        (store.config(name) / "CURRENT").touch()
    for name in filled:
        (store.root / name).mkdir(exist_ok=True)
        (store.root / name / "000007.sst").touch()
    assert store.stopped().rocksdb == expected
