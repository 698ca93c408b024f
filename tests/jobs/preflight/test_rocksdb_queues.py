"""Queues in RocksDB: what the start makes of a database that goes with the log, lags behind it, or cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.stopped_store import Answer
from storeformat.store.settings import Settings

pytest.importorskip("rocksdict")
from support.rocksdb_stores import ChangedDatabase, broker_settings, empty, with_database

pytestmark = pytest.mark.golden

RULES = {"database_not_read", "messages_not_served", "store_type"}


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    root, settings = with_database("base-clean-5.5.0", tmp_path)
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):  # a whole broker's
        (root / "config" / name).mkdir(parents=True, exist_ok=True)
        (root / "config" / name / "CURRENT").write_text("MANIFEST-000001\n")
        (root / "config" / name / "MANIFEST-000001").write_bytes(b"x")
    return root, settings


def asked(store: tuple[Path, dict[str, Any]], version: str = "5.5", **more: str) -> Answer:
    root, settings = store
    return safe_to_start(str(root), Settings(broker_settings(settings, **more)), version)


def found(answer: Answer) -> set[str]:
    return {reason.rule for reason in answer.reasons} & RULES


def test_a_database_that_goes_with_the_log_is_safe(store: tuple[Path, dict[str, Any]]) -> None:
    for version in ("5.3", "5.5"):
        answer = asked(store, version)
        assert answer.safe, answer.lines()
        assert not found(answer)


def test_one_that_no_broker_could_open_is_not_safe(store: tuple[Path, dict[str, Any]]) -> None:
    (store[0] / "consumequeue" / "CURRENT").write_text("MANIFEST-999999\n")
    answer = asked(store)
    assert not answer.safe
    assert found(answer) == {"database_not_read"}


def test_without_the_library_nothing_is_known(
    store: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    answer = asked(store)
    assert answer.first_line.startswith("not known: whether the queues in RocksDB fit the log")
    assert found(answer) == {"database_not_read"}
    assert "--with rocksdb" in " ".join(answer.lines())


@pytest.mark.parametrize("what", ["no pairs", "no database"])
def test_an_empty_database_is_filled_from_the_last_segments_alone(
    store: tuple[Path, dict[str, Any]], what: str
) -> None:
    empty(store[0] / "consumequeue", what)
    (store[0] / "abort").touch()
    for version, most, expected in (("5.5", "1", True), ("5.5", "1000", False), ("5.3", "1", True)):
        rules = {one.rule for one in asked(store, version, commitLogRecoverMaxNum=most).reasons if one.unsafe} & RULES
        assert rules == ({"store_type"} if expected else set()), (version, most)


def test_the_record_at_the_end_of_a_database_is_passed_over_after_a_clean_stop(
    store: tuple[Path, dict[str, Any]],
) -> None:
    with ChangedDatabase(store[0]) as database:
        _, _, pairs = database.queue()
        database.end_at(int.from_bytes(pairs[-1][1][:8], "big"))
    assert found(asked(store)) == {"messages_not_served"}
    (store[0] / "abort").touch()
    assert not found(asked(store))
