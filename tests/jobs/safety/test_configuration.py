"""Files of ``config/``, and storeType."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, as_fastjson, finished, healthy_store

LOSING = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")


@pytest.mark.parametrize("name", LOSING)
@pytest.mark.parametrize("backup", [None, b""])
def test_a_torn_file_without_a_backup_is_lost(store: StoreToStart, name: str, backup: bytes | None) -> None:
    path = store.config(name)
    path.write_bytes(path.read_bytes()[:-2])
    if backup is not None:
        path.with_name(name + ".bak").write_bytes(backup)
    reason = store.only_reason("config_lost")
    assert name in reason.what
    assert reason.unsafe


@pytest.mark.parametrize("name", LOSING)
def test_a_torn_file_with_a_torn_backup_ends_the_start(store: StoreToStart, name: str) -> None:
    path = store.config(name)
    path.write_bytes(bytes(100))
    path.with_name(name + ".bak").write_text('{"x":')
    reason = store.only_reason("config_torn")
    assert "does not start" in reason.what
    assert reason.unsafe


@pytest.mark.parametrize("content", [None, b"", b"\0" * 50, b'{"offsetTable":{'])
def test_a_sound_backup_is_taken(store: StoreToStart, content: bytes | None) -> None:
    path = store.config("consumerOffset.json")
    path.rename(path.with_name(path.name + ".bak"))
    if content is not None:
        path.write_bytes(content)
    assert not store.only_reason("config_backup").unsafe
    assert store.answer().safe


def test_offsets_of_the_backup_are_judged_too(store: StoreToStart) -> None:
    path = store.config("consumerOffset.json")
    path.unlink()
    path.with_name(path.name + ".bak").write_text(as_fastjson({"offsetTable": {"Orders@readers": {0: 99}}}))
    assert store.only_reason("committed_beyond_queue").found == 99


def test_one_absent_file_beside_others_was_lost(store: StoreToStart) -> None:
    store.config("topics.json").unlink()
    assert store.only_reason("config_lost").unsafe


def test_no_configuration_at_all(store: StoreToStart) -> None:
    shutil.rmtree(store.root / "config")
    assert store.only_reason("config_absent").unsafe
    assert store.only_reason("config_absent").what.startswith(f"{store.root}/config holds no ")
    assert [reason.rule for reason in store.answer().reasons] == ["config_absent"]


def test_lost_delay_offsets_matter_where_something_was_delayed(store: StoreToStart, tmp_path: Path) -> None:
    store.config("delayOffset.json").write_bytes(b"{")
    assert not store.only_reason("config_lost").unsafe
    log = healthy_store(tmp_path / "first").log
    log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    delayed = finished(tmp_path / "delayed", log)
    delayed.config("delayOffset.json").write_bytes(b"{")
    assert delayed.only_reason("config_lost").unsafe


def test_lost_filters_are_a_note(store: StoreToStart) -> None:
    store.config("consumerFilter.json").write_bytes(b"{")
    assert not store.only_reason("config_lost").unsafe


def test_topics_with_queues_and_no_configuration(store: StoreToStart) -> None:
    store.write_config("topics.json", {"topicConfigTable": {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}}})
    assert store.only_reason("topics_not_configured").found == ["Stock"]


def test_queues_fewer_than_configured(store: StoreToStart) -> None:
    entry = {"readQueueNums": 3, "writeQueueNums": 3}
    store.write_config("topics.json", {"topicConfigTable": {"Orders": entry, "Stock": entry, "Unused": entry}})
    assert store.only_reason("queues_fewer_than_configured").found == ["Orders:2", "Stock:2"]
    assert store.answer().safe
    for queues, said in ((1024, 1), (1025, 0)):  # more are no topic of a person
        entry = {"readQueueNums": 2, "writeQueueNums": queues}
        store.write_config("topics.json", {"topicConfigTable": {"Orders": entry, "Stock": {"writeQueueNums": 2}}})
        assert len(store.reasons("queues_fewer_than_configured")) == said


# ------------------------------------------------------------------------------------------------------------ storeType
def database(store: StoreToStart, *parts: str) -> None:
    directory = store.root.joinpath(*parts)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "CURRENT").write_text("MANIFEST-000004\n")
    (directory / "000009.sst").write_bytes(b"x")


def test_queues_in_a_database_and_a_type_of_files(store: StoreToStart) -> None:
    shutil.rmtree(store.root / "consumequeue")
    database(store, "consumequeue")
    reason = store.only_reason("store_type")
    assert reason.unsafe
    assert "storeType=defaultRocksDB" in reason.cure


def test_both_kinds_of_queues_are_fine(store: StoreToStart) -> None:
    database(store, "consumequeue")
    assert store.reasons("store_type") == []


def test_a_configuration_in_databases_and_a_type_of_files(store: StoreToStart) -> None:
    shutil.rmtree(store.root / "config")
    database(store, "config", "consumerOffsets")
    assert store.only_reason("store_type").unsafe


@pytest.mark.parametrize(("version", "segments", "unsafe"), [("5.5", 2, False), ("5.5", 11, True), ("5.3", 2, True)])
def test_a_type_of_databases_without_one(store: StoreToStart, version: str, segments: int, unsafe: bool) -> None:
    store.conf["storeType"] = "defaultRocksDB"
    store.version = version
    for number in range(len(list((store.root / "commitlog").iterdir())), segments):
        (store.root / "commitlog" / f"{number * 4096:020d}").write_bytes(bytes(4096))
    assert store.only_reason("store_type").unsafe is unsafe


def test_a_type_of_databases_with_one(store: StoreToStart) -> None:
    store.conf["storeType"] = "defaultRocksDB"
    database(store, "consumequeue")
    assert store.reasons("store_type") == []
    store.conf["useSeparateStorePathForRocksdbCQ"] = "true"
    assert store.only_reason("store_type").expected == "useSeparateStorePathForRocksdbCQ=false"
