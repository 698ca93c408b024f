"""What the broker deletes soon after its start."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from jobs.contract.options import LogOptions
from jobs.log.opening import open_store
from jobs.safety.evidence.start_settings import StartSettings
from jobs.safety.retention import retention_notes
from storeformat.storage import local_status
from storeformat.storage.local_status import Space
from storeformat.store.broker_rules import rules_of

RULE = "messages_deleted"


def test_young_segments_stay(store: StoreToStart) -> None:
    store.age(40, segments=2)
    assert store.reasons(RULE) == []


def test_old_segments_that_a_group_has_not_read(store: StoreToStart) -> None:
    store.age(100, segments=1)
    store.commit({"Orders@readers": {0: 2, 1: 9}})
    reason = store.only_reason(RULE)
    before = [record for record in store.log.records if record.offset < 4096]
    unread = sum(record.message.queue == ("Orders", 0) for record in before) - 2
    assert unread > 0
    assert f"; {unread} messages of them" in reason.what
    assert (reason.found, reason.unsafe) == (4096, True)


def test_old_segments_that_all_groups_have_read(store: StoreToStart) -> None:
    store.age(100, segments=1)
    assert not store.only_reason(RULE).unsafe


def test_messages_that_the_start_dispatches_before_they_expire(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=8, version="5.5")
    (store.root / "abort").touch()  # recovery goes back ten segments
    (store.root / "checkpoint").unlink(missing_ok=True)
    store.age(100, segments=1)
    store.commit({"Orders@readers": {0: 2, 1: 10}})
    before = [record for record in store.log.records if record.offset < 4096]
    unread = sum(record.message.queue == ("Orders", 0) for record in before) - 2
    assert f"; {unread} messages of them" in store.only_reason(RULE).what


def test_a_queue_of_its_topic_in_which_a_group_has_no_offset(store: StoreToStart) -> None:
    store.age(100, segments=1)
    store.commit({"Orders@readers": {0: 10}})
    unread = sum(record.message.queue == ("Orders", 1) for record in store.log.records if record.offset < 4096)
    assert unread > 0
    assert f"; {unread} messages of them" in store.only_reason(RULE).what


def test_the_last_segment_stays(store: StoreToStart) -> None:
    count = len(list((store.root / "commitlog").iterdir()))
    store.age(1000, segments=count)
    assert f"{count - 1} of {count} segments" in store.only_reason(RULE).what


def test_a_young_first_segment_shields_older_ones(store: StoreToStart) -> None:
    store.age(1000, segments=2)
    store.segment(0).touch()
    assert store.reasons(RULE) == []


def test_the_reserved_time_is_that_of_broker_conf(store: StoreToStart) -> None:
    store.age(100, segments=1)
    store.conf["fileReservedTime"] = "200"
    assert store.reasons(RULE) == []


@pytest.mark.parametrize(
    ("used", "settings", "deleted"),
    [
        (50, {}, False),
        (86, {}, True),
        (86, {"cleanFileForciblyEnable": "false"}, False),
        (60, {"diskSpaceCleanForciblyRatio": "50"}, True),
    ],
)
def test_a_full_disk_takes_young_ones(
    store: StoreToStart, monkeypatch: pytest.MonkeyPatch, used: int, settings: dict[str, str], deleted: bool
) -> None:
    store.conf |= settings
    store.commit({"Orders@readers": {0: 0}})
    monkeypatch.setattr(local_status, "space_of", lambda path: Space(10**6, (100 - used) * 10**4, (100 - used) * 10**4))
    assert [reason.unsafe for reason in store.reasons(RULE)] == [True] * deleted


def test_a_note_for_jobs_that_recover_old_segments(store: StoreToStart) -> None:
    segments = open_store(LogOptions(store=str(store.root)), needs_index_sizes=False).segments
    assert retention_notes(str(store.root), segments, StartSettings(), rules_of("5.3")) == []
    store.age(100, segments=1)
    (note,) = retention_notes(str(store.root), segments, StartSettings({"deleteWhen": "04;05"}), rules_of("5.3"))
    assert f"deletes 1 of {len(segments)} segments" in note
    assert "all messages before offset 4096: they are older than fileReservedTime (72 h)" in note
    assert retention_notes(str(store.root), segments, StartSettings({"fileReservedTime": "200"}), rules_of("5.3")) == []
