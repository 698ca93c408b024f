"""Stores of real brokers after public reports, and whether a start was safe, as their brokers showed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from support.drilling import run_job

from jobs.preflight.preflight import safe_to_start
from storeformat.store.settings import read_settings

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
