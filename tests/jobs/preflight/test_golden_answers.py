"""Stores of real brokers: what may be started, and what may not, as their brokers showed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from support import golden
from support.drilling import run_job
from support.golden import GoldenStore
from support.rebuilding import rules_of_release
from support.store_to_start import configure

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.stopped_store import read_stopped_store
from storeformat.store.broker_rules import DEFAULT
from storeformat.store.settings import Settings, read_settings
from storeformat.store.store import NO_SIGNS

pytestmark = pytest.mark.golden


# ------------------------------------------------------------------------------------------------------- golden answers
EXPECTED_NOTES = {"messages_deleted", "delay_offset_behind"}  # their files' times mean nothing, no broker delivered
NOTES_OF_SCENARIO = {
    "stale": {"torn_tail", "units_beyond_log"}, "recreate": {"messages_not_served"}, "lag": {"index_deleted"},
}  # fmt: skip


def conf_of(store: GoldenStore) -> Settings:
    return Settings({name: str(value).lower() for name, value in store.settings.items()})


@pytest.mark.parametrize("store", golden.stores(), ids=str)
@pytest.mark.parametrize("told", [True, False], ids=["release told", "release shown"])
def test_safe(store: GoldenStore, told: bool, tmp_path: Path) -> None:
    version = rules_of_release(store.version) if told else None
    root = golden.unpack(store, tmp_path)
    configure(root)  # no broker was around it
    answer = safe_to_start(str(root), conf_of(store), version)
    assert answer.safe, answer.lines()
    notes = {reason.rule for reason in answer.reasons}
    assert notes - EXPECTED_NOTES <= NOTES_OF_SCENARIO.get(store.scenario, set())


@pytest.mark.parametrize("store", golden.stores(lambda one: one.scenario == "lmq"), ids=str)
def test_a_light_queue_file_with_the_name_of_another(store: GoldenStore, tmp_path: Path) -> None:
    root = golden.unpack(store, tmp_path)
    configure(root)
    file = next(path for path in sorted(root.glob("consumequeue/%LMQ%*/0/0*")) if len(list(path.parent.iterdir())) == 1)
    file.rename(file.with_name(f"{20_000:020d}"))
    answer = safe_to_start(str(root), conf_of(store), store.version)
    assert [reason.rule for reason in answer.reasons if reason.unsafe] == ["wrong_units"]


@pytest.mark.parametrize("store", golden.stores(lambda one: one.name.startswith("lag-killed")), ids=str)
def test_the_index_that_a_start_deletes(store: GoldenStore) -> None:
    """The same store after its broker was started again shows from where on the index was written anew."""
    (recovered,) = golden.stores(store.name.replace("killed", "recovered"))
    answer = safe_to_start(str(golden.unpack(store)), conf_of(store), store.version)
    found = [reason.what for reason in answer.reasons if reason.rule == "index_deleted"]
    begin = recovered.index_begins_at
    assert [f"messages from offset {begin} on" in what for what in found] == ([] if begin is None else [True])


@pytest.mark.parametrize("store", golden.stores(), ids=str)
@pytest.mark.parametrize("conf", [True, False], ids=["with settings", "without"])
def test_the_release_that_is_shown(store: GoldenStore, conf: bool) -> None:
    found = read_stopped_store(str(golden.unpack(store)), conf_of(store) if conf else Settings({}, from_file=False))
    shows = rules_of_release(store.version) in ("4.6", "5.3", "5.5")  # else 5.3 is taken
    assert found.rules.version == (rules_of_release(store.version) if shows else DEFAULT)


def test_a_store_of_4_6_1_is_none_of_5_3(tmp_path: Path) -> None:
    """Empty configuration, young segments, an empty last one: 5.3 would delete that, 4.6.1 does not start."""
    (store,) = golden.stores("base-clean-4.6.1")
    root = golden.unpack(store, tmp_path)
    (root / "config").mkdir(exist_ok=True)
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        (root / "config" / name).write_text("{}", encoding="utf-8")
    segments = sorted((root / "commitlog").iterdir())
    for path in segments:
        os.utime(path)
    size = segments[0].stat().st_size
    (root / "commitlog" / f"{int(segments[-1].name) + size:020d}").touch()
    answer = safe_to_start(str(root), conf_of(store))
    assert not answer.safe
    assert [reason.rule for reason in answer.reasons if reason.unsafe] == ["segment_size", "config_lost"]


def test_an_empty_segment_of_a_release_that_nothing_shows(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-4.9.8")
    root = golden.unpack(store, tmp_path)
    configure(root)
    segments = sorted((root / "commitlog").iterdir())
    (root / "commitlog" / f"{int(segments[-1].name) + segments[0].stat().st_size:020d}").touch()
    assert read_stopped_store(str(root), conf_of(store)).release_reason == NO_SIGNS
    assert not safe_to_start(str(root), conf_of(store)).safe
    assert safe_to_start(str(root), conf_of(store), "5.3").safe


# ---------------------------------------------------------------------------------------------------------------- cases
CASES = Path(__file__).parents[2] / "answers" / "cases"


@pytest.mark.parametrize(
    ("name", "version", "unsafe", "figure"),
    [
        ("batch_topics_older_json", "5.3.3", "queue_type", None),
        ("batch_type_against_files", "5.3.3", "queue_type", None),
        ("clock_back_is_no_damage", "4.9.8", None, None),
        ("compaction_rebuilt_not_served", "5.3.3", None, None),
        ("dledger_data_as_commitlog", "5.3.3", "store_path", None),
        ("dledger_killed_queues_cut", "5.1.4", None, None),
        ("dledger_killed_queues_cut", "5.2.0", "messages_not_served", 17),  # apache/rocketmq #9084
        ("dledger_killed_queues_cut", "5.3.3", "messages_not_served", 17),
        ("dledger_killed_queues_cut", "5.5.0", None, None),
        ("light_queue_lost", "5.5.0", "messages_not_served", 34),
        ("light_queues_rocksdb_after_kill", "5.5.0", "messages_not_served", 6),
        ("pop_database_broken", "5.3.3", "database_not_opened", None),
        ("prefer_rocksdb_first_start", "5.5.0", "messages_not_served", 282),
        ("queue_offsets_twice_circle", "5.1.4", None, None),
        ("queues_older_than_log", "4.9.8", "messages_moved", 116),
        ("segments_swapped", "5.3.3", "segment_misplaced", 2),
        ("tiered_store_unread", "5.3.3", None, None),
        ("topic_queue_mapping_torn", "5.3.3", "config_torn", None),
    ],
)
def test_what_the_broker_showed(
    tmp_path: Path, name: str, version: str, unsafe: str | None, figure: int | None
) -> None:
    conf = unpack(name, tmp_path)
    answer = safe_to_start(str(tmp_path / "store"), read_settings(str(conf), ()), version)
    rules = {reason.rule for reason in answer.reasons if reason.unsafe}
    assert rules == ({unsafe} if unsafe else set()), answer.lines()
    assert figure in [reason.values.get("count") for reason in answer.reasons if reason.rule == unsafe] or not figure


def unpack(name: str, directory: Path) -> Path:
    """Makes ``store`` of a case, and returns its broker.conf."""
    with tarfile.open(CASES / f"{name}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    for path in (directory / "store").rglob("*") if name != "tiered_store_unread" else ():
        os.utime(path)  # retention looks at the times of files
    conf = directory / "broker.conf"
    conf.write_text(conf.read_text().replace("@STORE@", str(directory / "store")))
    return conf


def test_compacted_topics_get_no_queues(tmp_path: Path) -> None:
    """The broker fills ``compaction/`` only from what it dispatches: with their queues in place it served 0 of 40."""
    store = ("--store", tmp_path / "store", "--broker-conf", unpack("compaction_rebuilt_not_served", tmp_path))
    store = (*store, "--broker-version", "5.3.3")
    assert run_job("rebuild", *store, "--output", tmp_path / "made").code == 0
    assert [path.name for path in (tmp_path / "made" / "consumequeue").iterdir()] == ["A"]
    run_job("publish", "--store", tmp_path / "store", "--from", tmp_path / "made")
    assert run_job("verify", *store).code == 0
    (reason,) = run_job("preflight", *store).report["reasons"]
    assert reason["cure"].startswith("if no other process uses the store, touch -- ")
    (tmp_path / "store" / "abort").touch()
    assert run_job("preflight", *store).code == 0
