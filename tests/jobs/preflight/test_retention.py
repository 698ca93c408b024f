"""What the broker deletes soon after its start."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.patching import stand_in
from support.store_to_start import StoreToStart, healthy_store

from jobs.preflight import files_and_space
from jobs.preflight.reason import Reason
from storeformat.storage import local_status
from storeformat.storage.local_status import FileStatus, Space
from storeformat.store import retention
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import rules_of
from storeformat.store.recovery import Redispatch
from storeformat.store.retention import Doomed, doomed

RULE = "messages_deleted"


@pytest.fixture(autouse=True)
def ten_o_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are deleted at four, in 18 hours."""
    monkeypatch.setattr(
        retention.time, "localtime", lambda seconds: time.struct_time((2024, 5, 30, 10, 0, 0, 3, 151, 0))
    )


def deleted(store: StoreToStart, unread: str = "", *, unsafe: bool = True) -> Reason:
    return Reason(
        RULE,
        f"1 of 2 segments, up to offset 4096, are deleted within 18 h: they are older than fileReservedTime{unread}",
        "raise fileReservedTime in broker.conf until the groups have read them, or give the segments a new time: "
        f"touch -- {store.root}/commitlog/*",
        unsafe,
    )


def test_a_log_that_begins_later_than_its_queues_and_retention_explain(store: StoreToStart) -> None:
    first = store.segment(0)
    first.unlink()
    assert store.reasons("log_begins_late") == []
    store.conf["fileReservedTime"] = "999999"
    gone = sum(record.offset < 4096 for record in store.log.records)
    (reason,) = store.reasons("log_begins_late")
    assert (reason.values["begin"], reason.unsafe) == (4096, False)
    assert reason.what == (
        f"the log begins at offset 4096, after {gone} messages that queues still have, though its first one is "
        "younger than the 999999 hours of fileReservedTime"
    )
    first.write_bytes(bytes(4096))
    assert store.reasons("log_begins_late") == []


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
    assert reason == deleted(store, f"; {unread} messages of them some group has not read, most of all readers in "
                                    f"Orders ({unread})")  # fmt: skip


def test_old_segments_that_all_groups_have_read(store: StoreToStart) -> None:
    store.age(100, segments=1)
    assert store.only_reason(RULE) == deleted(store, unsafe=False)


def test_the_group_that_lacks_most_is_named(store: StoreToStart) -> None:
    """Six messages of each queue are deleted; a group without an offset in a topic does not count for it."""
    store.age(100, segments=1)
    store.commit({"Orders@a": {0: 6, 1: 9}, "Orders@b": {0: 5, 1: 0}, "Stock@c": {0: 7}, "Stock@d": {}, "No@e": {0: 1}})
    assert store.only_reason(RULE) == deleted(
        store, "; 13 messages of them some group has not read, most of all b in Orders (7)"
    )


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


def test_what_of_a_queue_goes_with_the_first_segments(store: StoreToStart) -> None:
    """First queue offset and that of the first message from a log offset on; a queue of Orders has its seventh message
    at 4096. Messages that are in no queue yet count where they are dispatched again.
    """
    stopped = store.stopped()
    key, begin = ("Orders", 0), 4096
    without = replace(stopped, queues={})
    shorter = replace(stopped, queues={key: replace(stopped.queues[key], begin=2, end=4)})
    for given, expected in (
        (stopped, (0, 6)),
        (without, (0, 0)),
        (replace(without, redispatch=Redispatch(0)), (0, 6)),
        (replace(without, redispatch=Redispatch(0, skipped=0)), (1, 6)),
        (replace(without, redispatch=Redispatch(4096)), (0, 0)),
        (shorter, (2, 4)),
        (replace(shorter, redispatch=Redispatch(0)), (2, 6)),
        (replace(shorter, redispatch=Redispatch(3300, 3300)), (2, 4)),
        (replace(shorter, redispatch=Redispatch(3300)), (2, 6)),
    ):
        assert files_and_space._deleted(given, key, begin) == expected
    assert files_and_space._deleted(stopped, ("Orders", 7), begin) == (0, 0)


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
    reasons = store.reasons(RULE)
    assert [reason.unsafe for reason in reasons] == [True] * deleted
    assert ["the disk is too full" in reason.what for reason in reasons] == [True] * deleted
    assert [reason.cure for reason in reasons] == ["free some space before the start"] * deleted


def test_a_low_warning_level_deletes_at_once(store: StoreToStart) -> None:
    """From 5.0.0 on (CleanCommitLogService#isSpaceToDelete); the disk is half full."""
    store.commit({"Orders@readers": {0: 1}})
    store.conf["diskSpaceWarningLevelRatio"] = "40"
    assert store.only_reason("messages_deleted").unsafe
    store.version = "4.9"
    assert store.reasons("messages_deleted") == []


# ------------------------------------------------------------------------------------- what is deleted, at its bounds
HOUR = 3_600_000


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> int:
    """Twelve o'clock of the machine, in milliseconds."""
    stand_in(monkeypatch, retention, "time", localtime=time.gmtime)
    return 1_717_070_400_000


def segments_of(now: int, *ages: int) -> list[FileStatus]:
    """Segments of 4096 bytes that were changed so many milliseconds ago."""
    return [
        FileStatus(f"{4096 * number:020d}", f"/{number}", 4096, now - age, 0, 0, 0) for number, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ([73 * HOUR], None),
        ([72 * HOUR, 0], (1, 4096)),
        ([72 * HOUR - 1, 0], None),
        ([72 * HOUR, 72 * HOUR], (1, 4096)),
        ([72 * HOUR, 72 * HOUR, 0], (2, 8192)),
        ([72 * HOUR, 0, 72 * HOUR, 0], (1, 4096)),
        ([], None),
    ],
)
def test_segments_that_are_old_enough(noon: int, ages: list[int], expected: tuple[int, int] | None) -> None:
    found = doomed(segments_of(noon, *ages), ["/"], BrokerConf({"deleteWhen": "12"}), rules_of("5.3"), noon)
    assert found == (None if expected is None else Doomed(*expected, forced=False, hours=0))


@pytest.mark.parametrize(
    ("when", "hours"),
    [
        ("12", 0),
        ("13", 1),
        ("11", 23),
        ("04", 16),
        ("11;14", 2),
        ("00", 12),
        ("23;x;", 11),
        ("24", 24),
        ("x", 24),
        ("²", 24),
        ("9" * 5000, 24),
        ("", 24),
    ],
)
def test_the_hour_in_which_segments_are_deleted(noon: int, when: str, hours: int) -> None:
    """What becomes old enough until then goes, too."""
    settings = BrokerConf({"deleteWhen": when, "fileReservedTime": "30"})
    aged, younger = ((30 - hours) * HOUR, (30 - hours) * HOUR - 1)
    found = doomed(segments_of(noon, aged, younger, 0), ["/"], settings, rules_of("4.9"), noon)
    assert found == Doomed(1, 4096, forced=False, hours=hours)


@pytest.mark.parametrize(
    ("used", "given", "version", "expected"),
    [
        (75, {}, "5.3", None),
        (76, {}, "5.3", (False, 0)),
        (76, {"diskMaxUsedSpaceRatio": "76"}, "5.3", None),
        (95, {"diskMaxUsedSpaceRatio": "99", "cleanFileForciblyEnable": "false"}, "4.9", None),
        (96, {"diskMaxUsedSpaceRatio": "99", "cleanFileForciblyEnable": "false"}, "4.9", (False, 0)),
        (10, {"diskMaxUsedSpaceRatio": "5"}, "5.3", None),
        (11, {"diskMaxUsedSpaceRatio": "5"}, "5.3", (False, 0)),
        (85, {"diskMaxUsedSpaceRatio": "95"}, "5.3", None),
        (86, {"diskMaxUsedSpaceRatio": "95"}, "5.3", (True, 0)),
        (86, {"diskMaxUsedSpaceRatio": "95"}, "4.9", (True, 1)),
        (86, {"diskMaxUsedSpaceRatio": "95", "cleanFileForciblyEnable": "false"}, "5.3", (False, 0)),
        (41, {"diskSpaceCleanForciblyRatio": "40"}, "5.3", (True, 0)),
        (40, {"diskSpaceCleanForciblyRatio": "40"}, "5.3", None),
        (41, {"diskSpaceCleanForciblyRatio": "40"}, "4.9", None),
        (30, {"diskSpaceCleanForciblyRatio": "20"}, "5.3", None),
        (31, {"diskSpaceCleanForciblyRatio": "20"}, "5.3", (True, 0)),
        (86, {"diskSpaceCleanForciblyRatio": "99", "diskMaxUsedSpaceRatio": "95"}, "5.0", (True, 0)),
    ],
)
def test_how_full_a_disk_may_be(
    noon: int,
    monkeypatch: pytest.MonkeyPatch,
    used: int,
    given: dict[str, str],
    version: str,
    expected: tuple[bool, int] | None,
) -> None:
    """Segments that are old enough at noon, and not at one, which is when they are deleted; forced, all but the last
    go.
    """
    monkeypatch.setattr(local_status, "space_of", lambda path: Space(100, 100 - used, 100 - used))
    settings = BrokerConf({"deleteWhen": "13", **given})
    found = doomed(segments_of(noon, 72 * HOUR, 70 * HOUR, 0), ["/"], settings, rules_of(version), noon)
    on_time = Doomed(1, 4096, forced=False, hours=1)
    count = 2 if expected and expected[0] else 1
    assert found == (on_time if expected is None else Doomed(count, 4096 * count, *expected))


@pytest.mark.parametrize(
    ("log", "queues", "at_once"), [((80, 10), 10, False), ((80, 80), 10, True), ((10, 10), 80, True)]
)
def test_the_emptiest_disk_of_the_log_counts(
    noon: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: tuple[int, ...], queues: int, at_once: bool
) -> None:
    used = {str(tmp_path / name): percent for name, percent in zip(("a", "b", "q"), (*log, queues), strict=True)}
    for name in used:
        Path(name).mkdir()
    monkeypatch.setattr(local_status, "space_of", lambda path: Space(100, 100 - used[path], 100 - used[path]))
    settings = BrokerConf({"deleteWhen": "13"})
    paths = [*list(used)[:2], *list(used)[2:]]
    for given in (paths, [*paths[:2], paths[2] + "/absent"]):
        found = doomed(segments_of(noon, 72 * HOUR, 0), given, settings, rules_of("5.3"), noon)
        now = at_once and (given is paths or log == (80, 80))
        assert found == Doomed(1, 4096, forced=False, hours=0 if now else 1)
