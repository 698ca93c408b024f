"""Stores of real brokers: all that stopped cleanly may be started, and so may the killed ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import rules_of_release
from support.store_to_start import configure

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.stopped_store import read_stopped_store
from storeformat.store.broker_rules import DEFAULT, NO_SIGNS
from storeformat.store.settings import Settings

pytestmark = pytest.mark.golden

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
