"""Committed offsets against the queues, as ``verify`` judges them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.store_to_start import StoreToStart, healthy_store
from support.verifying import verify_here

from jobs.verify import verify
from jobs.verify.differences import Verdicts

SIZES = {"maxHashSlotNum": 100, "maxIndexNum": 60}
PARTS = ("consumequeue", "index", "consumer-offsets")


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    return healthy_store(tmp_path / "store")


def verdicts(store: StoreToStart, **more: Any) -> Verdicts:
    return verify_here(store.root, {**SIZES, **store.conf}, **{"only": PARTS, **more}).verdicts


def differences(store: StoreToStart) -> list[tuple[Any, ...]]:
    found = verdicts(store).differences
    assert {row["artefact"] for row in found} <= {"consumer-offsets"}
    assert {row["file"] for row in found} <= {"config/consumerOffset.json"}
    return [(row["cause"], row["topic"], row["queue_id"], row["expected"], row["found"]) for row in found]


def test_a_healthy_store(store: StoreToStart) -> None:
    verified = verify_here(store.root, {**SIZES, **store.conf}, only=PARTS)
    assert not verified.verdicts.counts
    assert verified.compared["committed_offsets"] == 4
    assert not verified.verdicts.notes


def test_an_offset_beyond_its_queue(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 10, 1: 11}, "Stock@readers": {7: 1}})
    assert differences(store) == [
        ("beyond_end", "Orders", 1, {"at most": 10}, {"group": "readers", "committed": 11}),
        ("beyond_end", "Stock", 7, {"at most": 0}, {"group": "readers", "committed": 1}),
    ]


def test_what_healthy_brokers_leave_is_a_note(store: StoreToStart) -> None:
    store.segment(0).unlink()
    store.commit({"Orders@readers": {0: 0}, "Gone@readers": {0: 7}})
    found = verdicts(store)
    assert "beyond_end" not in found.counts
    notes = " ".join(found.notes)
    assert "1 committed offsets are before the first message" in notes
    assert "1 committed offsets are of topics that are not configured" in notes


@pytest.mark.parametrize(
    ("main", "backup", "cause", "said"),
    [
        ('{"offsetTable":{', None, "torn_file", {"file": "torn", ".bak": "absent"}),
        ("", '{"offsetTable":{"Orders@readers":{0:1}}}', "torn_file",
         {"file": "empty", ".bak": "sound", ".bak entries": "1"}),
        ("\0\0\0", '{"off', "torn_file", {"file": "torn", ".bak": "torn"}),
        (None, '{"offsetTable":{}}', "missing_file", {"file": "absent", ".bak": "sound", ".bak entries": "0"}),
    ],
)  # fmt: skip
def test_a_file_that_is_torn_or_gone(
    store: StoreToStart, main: str | None, backup: str | None, cause: str, said: dict[str, str]
) -> None:
    path = store.config("consumerOffset.json")
    path.unlink()
    for name, text in ((path, main), (path.with_name(path.name + ".bak"), backup)):
        if text is not None:
            name.write_text(text)
    ((found_cause, _, _, _, found),) = differences(store)
    found.pop("why", None)
    assert (found_cause, found) == (cause, said)


def test_a_broker_killed_while_it_wrote_takes_the_backup(store: StoreToStart) -> None:
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 3}}})
    store.config("consumerOffset.json").write_text("")
    (store.root / "abort").touch()
    found = verdicts(store)
    assert (found.counts, found.hazard_counts) == ({}, {"offsets_from_backup": 1})
    assert found.hazards[0]["entries"] == 1
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 17}}})
    assert verdicts(store).counts == {"beyond_end": 1}


def test_what_a_broker_takes_from_the_backup_is_judged(store: StoreToStart) -> None:
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 17}}})
    store.config("consumerOffset.json").write_text("{")
    assert [row[0] for row in differences(store)] == ["torn_file", "beyond_end"]


def test_no_offsets_where_groups_are_known(store: StoreToStart, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is absent, or a start without it has left it empty; a broker at work may not have written it yet."""
    store.config("consumerOffset.json").unlink()
    assert [(row[0], row[4]) for row in differences(store)] == [("no_committed_offsets", {"file": "absent"})]
    with monkeypatch.context() as patch:
        patch.setattr(verify, "is_live", lambda lock: True)
        assert differences(store) == []
    store.write_config("consumerOffset.json", {"offsetTable": {}})
    assert [(row[0], row[3]) for row in differences(store)] == [("no_committed_offsets", {"groups": ["readers"]})]
    store.commit({})
    assert differences(store) == []


def test_a_copy_without_config_is_not_judged(store: StoreToStart) -> None:
    for path in (store.root / "config").iterdir():
        path.unlink()
    assert differences(store) == []


def test_a_database_of_offsets_is_not_judged(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 17}})
    only = {"only": ("consumer-offsets",)}
    assert verdicts(store, **only).counts == {"beyond_end": 1}
    store.conf["storeType"] = "defaultRocksDB"
    assert not verdicts(store, **only).counts


def test_after_a_crash_the_log_counts_and_not_the_queues(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=36)
    (store.root / "abort").touch()
    assert differences(store) == []


def test_a_log_that_is_read_in_part_proves_no_end(store: StoreToStart) -> None:
    assert not verdicts(store, until_offset=store.log.records[10].offset).counts
