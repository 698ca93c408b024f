"""Topics, groups and offsets in databases below ``config/``."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from jobs.preflight.reason import Reason

NAMES = ("topics", "subscriptionGroups", "consumerOffsets")
FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
ROCKSDB = {"storeType": "defaultRocksDB"}


def with_databases(root: Path, *names: str, version: str = "5.5") -> StoreToStart:
    """A store whose queues are in a database as far as its files show, and none of the JSON."""
    store = healthy_store(root, version=version)
    store.conf |= ROCKSDB
    for name in FILES:
        store.config(name).unlink()
    for name in names:
        store.config(name).mkdir()
        (store.config(name) / "CURRENT").write_text("MANIFEST-000001\n")
    return store


def lost(store: StoreToStart) -> list[str]:
    return [reason.what.split()[0] for reason in store.reasons("config_lost") if reason.unsafe]


def reason_of_lost(store: StoreToStart, name: str, then: str, more: str = "") -> Reason:
    return Reason(
        "config_lost",
        f"config/{name} is not there: {then}",
        f"put {store.root}/config/{name} back, or a replica's{more}",
    )


def test_all_there(tmp_path: Path) -> None:
    store = with_databases(tmp_path, *NAMES)
    assert store.reasons("config_lost") == store.reasons("config_torn") == []


@pytest.mark.parametrize(
    ("name", "then", "more"),
    [
        ("topics", "no client finds its topics, their messages are not served", ""),
        ("subscriptionGroups", "groups have to be created again; their retry limits and switches are lost", ""),
        (
            "consumerOffsets",
            "every group starts over: it reads messages again, or skips those it has not read",
            "; rebuild --only consumer-offsets makes a file that 5.3.2 and later take in",
        ),
    ],
)
def test_one_lost(tmp_path: Path, name: str, then: str, more: str) -> None:
    store = with_databases(tmp_path, *(set(NAMES) - {name}))
    assert store.reasons("config_lost") == [reason_of_lost(store, name, then, more)]


def test_a_log_without_messages_has_none_yet(tmp_path: Path) -> None:
    store = with_databases(tmp_path)
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert lost(store) == []


@pytest.mark.parametrize(("version", "unsafe"), [("5.3", ["config/topics"]), ("5.5", [])])
def test_a_file_is_taken_in_its_place(tmp_path: Path, version: str, unsafe: list[str]) -> None:
    """By 5.3.2 and later; the rules of 5.3 stand for older releases, too."""
    store = with_databases(tmp_path, *NAMES[1:], version=version)
    store.write_config("topics.json", {"topicConfigTable": {}})
    assert lost(store) == unsafe
    taken = Reason(
        "config_from_json", "config/topics is not there: the broker takes topics.json in its place", unsafe=False
    )
    assert store.reasons("config_from_json") == ([] if unsafe else [taken])


@pytest.mark.parametrize("content", [b"", b"{"])
def test_a_file_that_is_not_sound_is_not_taken(tmp_path: Path, content: bytes) -> None:
    store = with_databases(tmp_path, *NAMES[1:])
    store.config("topics.json").write_bytes(content)
    assert lost(store) == ["config/topics"]


@pytest.mark.parametrize("backup", [False, True])
def test_a_torn_file_beside_its_database_ends_the_start(tmp_path: Path, backup: bool) -> None:
    store = with_databases(tmp_path, *NAMES)
    store.config("consumerOffset.json").write_text("{")
    if backup:
        store.write_config("consumerOffset.json.bak", {"offsetTable": {}})
    path = store.config("consumerOffset.json")
    assert store.only_reason("config_torn") == Reason(
        "config_torn",
        f"{path} is torn: the broker reads its data version beside that of the database, and does not start",
        f"mv --backup=numbered -t {store.root}/.. -- {path}",
    )


def test_delay_offsets_stay_in_a_file(tmp_path: Path) -> None:
    store = with_databases(tmp_path, *NAMES)
    for suffix in ("", ".bak"):
        store.config("delayOffset.json" + suffix).write_text("{")
    assert "delayOffset.json" in store.only_reason("config_torn").what


def test_one_database_for_all(tmp_path: Path) -> None:
    store = with_databases(tmp_path, "metadata")
    assert len(lost(store)) == 3
    store.conf["useSingleRocksDBForAllConfigs"] = "true"
    assert lost(store) == []


def test_the_second_form_is_no_matter_of_the_store_type(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "json")
    store.conf["configManagerVersion"] = "v2"
    then = "the broker starts without topics, groups and offsets, and reads no JSON"
    assert store.reasons("config_lost") == [reason_of_lost(store, "rdb", then)]
    store = with_databases(tmp_path / "v2", "rdb")
    store.conf["configManagerVersion"] = "v2"
    assert lost(store) == []
    store.config("consumerOffset.json").write_text("{")  # which nobody reads
    assert store.reasons("config_torn") == []
