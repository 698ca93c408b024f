"""Queues against the end of the log."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.store_to_start import StoreToStart, finished, healthy_store

from jobs.preflight import queues_and_log
from jobs.preflight.reason import Reason
from storeformat.errors import RecordDefect
from storeformat.log.log_tail import LogTail
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.queue_ends import QueueEnd
from storeformat.store.recovery import Redispatch

NOT_SERVED = "messages_not_served"
VERIFY = "rebuild and publish before the start; verify names every message"


def not_served(count: int, first: int, queues: str, after: str, done: str, *, unsafe: bool = True) -> Reason:
    return Reason(
        NOT_SERVED,
        f"{count} messages from offset {first} on are in no queue ({queues}), and a start after {after} does not put "
        f"them there ({done})" + ("" if unsafe else "; their topics may have been deleted"),
        VERIFY,
        unsafe,
    )


NOTHING = "nothing is dispatched again; 5.3.2 and 5.3.3: all but the first of them"


@pytest.mark.parametrize("version", ["4.6", "4.9", "5.0", "5.1", "5.3", "5.5"])
def test_a_healthy_store(tmp_path: Path, version: str) -> None:
    store = healthy_store(tmp_path / "store", version=version)
    assert store.answer().lines() == ["safe to start"]


@pytest.mark.parametrize(
    ("version", "lost"), [("4.9", 0), ("5.1", 4), ("5.3", 4), ("5.5", 1)], ids=["4.9", "5.1", "5.3", "5.5"]
)
def test_a_lag_after_a_clean_stop(tmp_path: Path, version: str, lost: int) -> None:
    """4.9 goes on where the queues end, 5.0 to 5.3.1 nowhere, 5.4 and later after the first record there."""
    store = healthy_store(tmp_path / "store", dispatched=36, version=version)
    store.commit({})
    first = store.log.records[36].offset
    all_four = not_served(4, first, "Orders:0, Orders:1, Stock:0, Stock:1", "a clean stop", NOTHING)
    done = f"it dispatches from offset {first} on, but the first record"
    said = {0: (), 1: (not_served(1, first, "Orders:0", "a clean stop", done),), 4: (all_four,)}
    assert store.answer().reasons == said[lost]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("version", ["4.6", "4.9", "5.0", "5.1", "5.3", "5.5"])
def test_no_queues_at_all(tmp_path: Path, version: str, crashed: bool) -> None:
    store = healthy_store(tmp_path / "store", version=version)
    shutil.rmtree(store.root / "consumequeue")
    if crashed:
        (store.root / "abort").touch()
    rules = [reason.rule for reason in store.answer().reasons]
    assert rules == ["queues_made_again" if crashed or version in ("4.6", "4.9", "5.5") else NOT_SERVED]
    assert store.answer().safe == (rules == ["queues_made_again"])


@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_a_lag_after_a_crash_is_made_good(tmp_path: Path, version: str) -> None:
    store = healthy_store(tmp_path / "store", dispatched=30, version=version)
    (store.root / "abort").touch()
    assert store.answer().first_line == "safe to start"


def test_a_lag_after_a_crash_that_the_checkpoint_hides(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=4)
    (store.root / "abort").touch()
    time = store.log.clock + 5000
    (store.root / "checkpoint").write_bytes(StoreCheckpoint(time, time, time).to_bytes())
    store.commit({})
    begin = store.log.records[4].offset
    lost = [record for record in store.log.records if begin <= record.offset < 4096]
    queues = "Orders:0, Orders:1, Stock:0, Stock:1"
    done = "it dispatches from offset 4096 on"
    assert store.answer().reasons == (not_served(len(lost), begin, queues, "a crash", done),)


def test_recovery_goes_back_ten_segments_at_most(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=400, dispatched=0, version="5.5")
    (store.root / "abort").touch()
    store.commit({})
    reason = store.only_reason(NOT_SERVED)
    first_seen = int(store.segment(-10).name)
    assert reason.values["count"] == sum(record.offset < first_seen for record in store.log.records)
    store.conf["commitLogRecoverMaxNum"] = "1000"
    assert store.answer().safe


@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_one_queue_lost(store: StoreToStart, version: str) -> None:
    store.version = version
    store.commit({})
    shutil.rmtree(store.queue_directory("Orders", 0))
    assert store.reasons(NOT_SERVED) == [not_served(10, 0, "Orders:0", "a clean stop", NOTHING)]


def test_a_deleted_topic_is_no_lost_queue(store: StoreToStart) -> None:
    shutil.rmtree(store.root / "consumequeue" / "Stock")
    store.write_config("topics.json", {"topicConfigTable": {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}}})
    store.commit({})
    first = store.log.records[1].offset
    said = not_served(20, first, "Stock:0, Stock:1", "a clean stop", NOTHING, unsafe=False)
    assert store.reasons(NOT_SERVED) == [said]


def test_a_topic_made_anew_is_no_lost_queue(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "first")
    store.log.delete_topic("Orders")
    for _ in range(3):
        store.log.message(topic="Orders", queue_id=1)
    again = finished(tmp_path / "store", store.log)
    shutil.rmtree(again.queue_directory("Orders", 0))
    again.commit({})
    assert not again.only_reason(NOT_SERVED).unsafe


def test_a_log_without_segments(store: StoreToStart) -> None:
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert store.reasons("log_missing") == [
        Reason(
            "log_missing",
            "the log has no segment, and 4 queues have messages: the broker deletes the queues and begins at 0",
            "put the segments back, or storePathCommitLog right",
        )
    ]
    shutil.rmtree(store.root / "consumequeue")
    assert {reason.rule for reason in store.answer().reasons if reason.unsafe} == {"log_missing"}, "groups have read it"
    store.commit({})
    note = store.only_reason("log_missing")
    assert (note.unsafe, "2 topics are configured (Orders, Stock)" in note.what) == (False, True)
    store.write_config("topics.json", {"topicConfigTable": {"TBW102": {}, "shop-a": {}}})
    store.conf["brokerName"] = "shop-a"
    assert store.reasons("log_missing") == []


def test_one_queue_with_messages_is_enough(store: StoreToStart) -> None:
    store.commit({})
    stopped = store.stopped()
    queues = {key: replace(queue, end_offset=-1) for key, queue in stopped.queues.items()}
    gone = replace(stopped, log=replace(stopped.log, files=()), queues=queues)
    assert not any(reason.unsafe for reason in queues_and_log.log_missing(gone))
    queues["Stock", 1] = replace(queues["Stock", 1], end_offset=0)
    (reason,) = queues_and_log.log_missing(gone)
    assert " and 1 queues have messages" in reason.what
    assert list(queues_and_log.log_missing(replace(gone, log=stopped.log))) == []


def test_a_member_of_a_group_is_told_what_its_queues_lack(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=38)
    stopped = store.stopped()
    member = replace(stopped, log=replace(stopped.log, of_group=True))
    assert list(queues_and_log.messages_not_served(member)) == [
        Reason(
            NOT_SERVED,
            "2 messages at the end of this member's log are in no queue; those that its group has not agreed on are "
            "replaced or dispatched when it meets the others, which is not judged here",
            "verify compares the queues with what the group has committed",
            unsafe=False,
        )
    ]
    whole = healthy_store(tmp_path / "whole").stopped()
    assert list(queues_and_log.messages_not_served(replace(whole, log=replace(whole.log, of_group=True)))) == []


def test_what_was_not_read_may_lack_more(tmp_path: Path) -> None:
    """Nothing is dispatched of what lies before the part of the log that was read, and queues do not reach it."""
    stopped = healthy_store(tmp_path / "store", dispatched=0).stopped()
    part = replace(stopped, tail=replace(stopped.tail, begin=1))
    assert [reason.what.split()[0] for reason in queues_and_log.messages_not_served(stopped)] == ["40"]
    assert next(iter(queues_and_log.messages_not_served(part))).what.startswith("at least 40 messages from offset 0 ")
    again = replace(part, redispatch=Redispatch(0))
    assert list(queues_and_log.messages_not_served(again)) == []
    again = replace(part, redispatch=Redispatch(0, skipped=0))
    (reason,) = queues_and_log.messages_not_served(again)
    assert reason.what.startswith("at least 1 messages from offset 0 ")


def test_whose_lack_a_deleted_topic_may_explain(store: StoreToStart, tmp_path: Path) -> None:
    """Rows of messages that are surely lost, and of those whose topic may have been deleted."""
    stopped = store.stopped()
    rows = np.arange(40)
    orders, stock, second_life = rows[rows % 2 == 0], rows[rows % 2 == 1], stopped.tail.queue_offsets.copy()
    second_life[26] = 0  # the seventh message of a queue of Orders begins it again
    again = replace(stopped.tail, queue_offsets=second_life)
    other = healthy_store(tmp_path / "topics are not known")
    other.config("topics.json").write_text("{", encoding="utf-8")
    unknown = other.stopped()
    queues = {key: queue for key, queue in stopped.queues.items() if key[0] == "Stock"}
    half = {key: queue for key, queue in stopped.queues.items() if key == ("Orders", 0)}
    for given, sure, doubtful in (
        (stopped, rows, []),
        (replace(stopped, queues={}), rows, []),
        (replace(unknown, queues={}), rows, []),
        (replace(unknown, queues=queues), stock, orders),
        (replace(unknown, queues=half), orders, stock),
        (replace(stopped, tail=again), rows, []),
        (replace(stopped, tail=again, queues={}), [*stock, *orders[13:]], orders[:13]),
        (replace(stopped, tail=again, queues=queues), [*stock, *orders[13:]], orders[:13]),
        (replace(stopped, tail=again, queues=half),
         [row for row in rows if row % 4 != 2 or row >= 26], [row for row in orders[:13] if row % 4 == 2]),
    ):  # fmt: skip
        found = queues_and_log._by_certainty(given, np.ones(40, np.bool_))
        assert [part.tolist() for part in found] == [sorted(sure), sorted(doubtful)]
    none = queues_and_log._by_certainty(stopped, rows == 3)
    assert [part.tolist() for part in none] == [[3], []]


@pytest.mark.parametrize("case", ["databases", "members", "no segments", "goes on"])
def test_units_are_not_cut(store: StoreToStart, case: str) -> None:
    stopped = store.stopped()
    shorter = replace(stopped, tail=replace(stopped.tail, end=6000))
    assert list(queues_and_log.units_beyond_log(shorter)) == [
        Reason(
            "units_beyond_log",
            "the log ends at offset 6000, 4 queues have units up to 6744: the broker cuts those of 4 messages off",
            "nothing, if the log's tail is lost; else put the missing segment back first",
            unsafe=False,
        )
    ]
    other = {
        "databases": replace(shorter, conf=BrokerConf({"storeType": "defaultRocksDB"})),
        "members": replace(shorter, log=replace(shorter.log, of_group=True)),
        "no segments": replace(shorter, log=replace(shorter.log, segments=())),
        "goes on": replace(shorter, tail=replace(shorter.tail, goes_on_at=6500)),
    }
    assert list(queues_and_log.units_beyond_log(other[case])) == []


def test_a_last_file_that_ends_within_a_record_is_cut(store: StoreToStart) -> None:
    log = store.stopped().log
    torn = LogTail(end=6000, defect=RecordDefect.TRUNCATED)
    cut = replace(log, segments=(*log.segments[:-1], replace(log.segments[-1], size=6050 - log.segments[-1].base)))
    for segments, unsafe in ((cut, True), (log, False)):
        (reason,) = queues_and_log.units_beyond_log(replace(store.stopped(), tail=torn, log=segments))
        assert reason.unsafe == unsafe


@pytest.mark.parametrize(("end", "queues"), [(6744, 0), (6743, 1), (6579, 1), (6578, 2)])
def test_a_unit_ends_with_the_log_or_after_it(store: StoreToStart, end: int, queues: int) -> None:
    """The last records end at 6579 and 6744; fillers do not count."""
    stopped = store.stopped()
    filler = QueueEnd("New", 0, (), end=20, end_offset=0x7FFFFFFF)
    shorter = replace(stopped, tail=replace(stopped.tail, end=end), queues={**stopped.queues, ("New", 0): filler})
    found = [reason.what.split(", ")[1] for reason in queues_and_log.units_beyond_log(shorter)]
    said = f"{queues} queues have units up to 6744: the broker cuts those of {queues} messages off"
    assert found == [said][: min(queues, 1)]


# -------------------------------------------------------------------------------------------------- the end of the log
def test_a_torn_tail_is_a_note(store: StoreToStart) -> None:
    end = store.log.end_offset
    record = store.segment(0).read_bytes()[:100]
    last = store.segment(-1)
    data = bytearray(last.read_bytes())
    place = end % store.log.segment_size
    data[place : place + len(record)] = record
    last.write_bytes(bytes(data))
    defect = store.stopped().tail.defect.name
    assert store.answer().reasons == (
        Reason(
            "torn_tail",
            f"the log ends at offset {end} with bytes that are not a record ({defect}): the broker cuts them off; that "
            "is one message at most that was being written",
            unsafe=False,
        ),
    )


@pytest.mark.parametrize("number", [5, 20, 38])
def test_damage_with_records_after_it(store: StoreToStart, number: int) -> None:
    record = store.log.records[number]
    path = store.root / "commitlog" / f"{record.offset // 4096 * 4096:020d}"
    data = bytearray(path.read_bytes())
    data[record.offset % 4096 + 95] ^= 1
    path.write_bytes(bytes(data))
    following = store.log.records[number + 1].offset
    last = 8192 - record.offset
    assert store.only_reason("log_damaged") == Reason(
        "log_damaged",
        f"the log is damaged at offset {record.offset} (BODY_CRC) and goes on at {following}: the broker cuts it at "
        f"{record.offset} and deletes what follows, up to {last:,} bytes",
        "do not start; rebuild --on-damage salvage --repair-log DIR2, then put the repaired segments in place",
    )


def many_segments(root: Path, version: str, damaged: int) -> StoreToStart:
    """A store of some eight segments, with a damaged record in one of them."""
    store = healthy_store(root, 180, version=version)
    path = store.segment(damaged)
    data = bytearray(path.read_bytes())
    data[95] ^= 1
    path.write_bytes(bytes(data))
    return store


@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_damage_before_what_recovery_reads(tmp_path: Path, version: str) -> None:
    """Nothing is cut, and what lies after it is judged; a start after a crash may go back that far."""
    store = many_segments(tmp_path, version, 1)
    assert store.answer().reasons == (
        Reason(
            "log_damaged",
            "the log is damaged at 1 places, the first at offset 4096; a start after a clean stop reads what comes "
            "after them and keeps them, one after a crash may cut the log there",
            "rebuild --on-damage salvage says what is lost",
            unsafe=False,
        ),
    )
    assert store.stopped().tail.end == store.log.end_offset
    (store.root / "abort").touch()
    assert store.only_reason("log_damaged").unsafe


@pytest.mark.parametrize(("version", "unsafe"), [("4.9", True), ("5.1", True), ("5.3", True), ("5.5", False)])
def test_how_far_back_recovery_reads(tmp_path: Path, version: str, unsafe: bool) -> None:
    """The third-last segment; 5.3.2 and later that in which the furthest queue ends, but 5.3.1 has the same rules."""
    store = many_segments(tmp_path, version, -3)
    assert store.only_reason("log_damaged").unsafe is unsafe


def test_a_later_database_of_transactions_goes_back_further(tmp_path: Path) -> None:
    store = many_segments(tmp_path, "5.5", -3)
    store.conf["transRocksDBEnable"] = "true"
    assert store.only_reason("log_damaged").unsafe


def test_messages_after_damage_that_recovery_does_not_read_are_looked_for(tmp_path: Path) -> None:
    store = many_segments(tmp_path, "5.5", 1)
    shutil.rmtree(store.queue_directory("Orders", 0))
    (reason,) = store.reasons("messages_not_served")
    assert reason.unsafe
    assert reason.values["count"] > 30


def test_zeros_in_the_middle_are_damage(store: StoreToStart) -> None:
    path = store.segment(-1)
    data = bytearray(path.read_bytes())
    data[:400] = bytes(400)
    path.write_bytes(bytes(data))
    assert not store.answer().safe


def test_leftovers_after_the_end_are_none(store: StoreToStart) -> None:
    """A broker that cut its log wrote on; records of the old log lie after its end, older than the last one."""
    store.log.truncate(store.log.records[36].offset)
    store.log.message(topic="Orders", queue_id=0, body=bytes(45), store_timestamp=store.log.clock + 10_000)
    shutil.rmtree(store.root)
    again = finished(store.root, store.log)
    assert again.answer().safe


# ------------------------------------------------------------------------------------------------------ files of queues
