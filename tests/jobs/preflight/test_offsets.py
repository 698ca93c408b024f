"""Offsets outside of their queues."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import LogBuilder
from support.store_to_start import SEGMENT, StoreToStart, finished, healthy_store

from jobs.preflight import offsets_and_timers as offsets
from jobs.preflight.preflight import judge
from jobs.preflight.reason import Reason
from jobs.preflight.replicas import read_replica

BEYOND = "committed_beyond_queue"


def beyond(
    store: StoreToStart, topic: str, queue_id: int, committed: int, end: int, *, deleted: bool = False
) -> Reason:
    return Reason(
        BEYOND,
        f"group readers has committed {committed} in queue {queue_id} of {topic}, which ends at {end}: it would skip "
        f"the next {committed - end} messages" + (", but the topic is not configured" if deleted else ""),
        f'in {store.root}/config/consumerOffset.json, "{topic}@readers", set {queue_id}:{committed} to '
        f"{queue_id}:{end} while the broker is stopped",
        unsafe=not deleted,
    )


def test_a_group_at_the_end_of_its_queue_is_fine(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 10, 1: 10}})
    assert store.answer().first_line == "safe to start"


def test_a_group_beyond_the_end_would_skip_what_comes(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 10, 1: 17}})
    assert store.answer().reasons == (beyond(store, "Orders", 1, 17, 10),)
    store.conf |= {"brokerRole": "SLAVE", "brokerId": "1"}
    assert store.answer().safe, "it has its master's offsets, and reads on"
    store.commit({"Orders@readers": {0: 10, 1: 10}})
    assert store.answer().safe


NONE = {"offsetTable": {}}


def test_no_offsets_where_groups_are_known(store: StoreToStart) -> None:
    """A start without the file leaves an empty table; a slave of 5.5.0 has one, too."""
    entry = {"readQueueNums": 2, "writeQueueNums": 1}
    store.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {}})
    names = ("Orders", "Stock", "%RETRY%readers", "%RETRY%poppers_Orders", "%RETRY%CID_RMQ_SYS_x")
    store.write_config("topics.json", {"topicConfigTable": dict.fromkeys(names, entry)})
    for document in (NONE, {**NONE, "pullOffsetTable": {}}, {**NONE, "groupTopicMap": {}}):
        store.write_config("consumerOffset.json", document)
        assert store.answer().reasons == (
            Reason(
                "no_offsets",
                "consumerOffset.json has no offset, and 2 groups are known (poppers, readers): they start over, read "
                "up to 40 messages again or skip those they have not read; a slave of 5.5.0 gets none from its master",
                f"put another copy of {store.root}/config/consumerOffset.json in place, or rebuild --only "
                "consumer-offsets and publish; where nothing proves an offset, --consumer-offsets-at TIME sets it",
            ),
        )
    store.conf["configManagerVersion"] = "v2"
    assert store.reasons("no_offsets") == []
    del store.conf["configManagerVersion"]
    shutil.rmtree(store.root / "consumequeue")
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert store.reasons("no_offsets") == []


def test_groups_that_the_configuration_or_the_log_know(tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT)
    log.message(topic="Orders")
    log.message(topic="%RETRY%tried", properties={"RETRY_TOPIC": "Orders"})
    store = finished(tmp_path / "store", log)
    store.write_config("consumerOffset.json", NONE)
    assert "2 groups are known (readers, tried)" in store.only_reason("no_offsets").what
    store.write_config("consumerOffset.json", {**NONE, "pullOffsetTable": {"Orders@readers": {0: 3}}})  # it broadcasts
    assert "1 groups are known (tried)" in store.only_reason("no_offsets").what


def test_offsets_that_a_copy_has(store: StoreToStart) -> None:
    """Of an empty table they are a loss; groups that a table lacks may have been deleted."""
    store.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {}})
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 3}, "Orders@others": {0: 3}}})
    note = store.only_reason("no_offsets")
    assert (note.unsafe, note.values["first"]) == (False, "others")
    store.write_config("consumerOffset.json", NONE)
    reason = store.only_reason("no_offsets")
    assert (reason.unsafe, "2 groups are known (others, readers)" in reason.what) == (True, True)
    assert reason.what.endswith("its .bak has offsets")


def test_offsets_that_a_replica_has(store: StoreToStart, tmp_path: Path) -> None:
    other = healthy_store(tmp_path / "replica")
    store.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {}})
    store.write_config("consumerOffset.json", NONE)
    stopped = store.stopped()
    (reason,) = judge(stopped, [read_replica(stopped, str(other.root))]).reasons
    assert (reason.rule, reason.unsafe) == ("no_offsets", True)
    assert judge(stopped).safe


def test_a_queue_that_is_not_there_ends_at_zero(store: StoreToStart) -> None:
    store.commit({"Stock@readers": {5: 3}})
    assert store.only_reason(BEYOND).values["end"] == 0


def test_no_offset_is_edited_while_its_queue_is_in_doubt(store: StoreToStart) -> None:
    """The queue is gone, and a rebuild makes it again: then the offset is right."""
    shutil.rmtree(store.queue_directory("Stock", 1))
    rules = {reason.rule for reason in store.answer().reasons if reason.unsafe}
    assert rules == {"messages_not_served"}


def test_a_topic_that_was_deleted_only_leaves_a_note(store: StoreToStart) -> None:
    """Names of the broker's own need no configuration."""
    store.commit({f"{topic}@readers": {0: 3} for topic in ("Gone", "rmq_sys_x", "%LMQ%x")})
    assert store.answer().reasons == (
        beyond(store, "%LMQ%x", 0, 3, 0),
        beyond(store, "rmq_sys_x", 0, 3, 0),
        beyond(store, "Gone", 0, 3, 0, deleted=True),
    )
    store.config("topics.json").unlink()
    assert [reason.unsafe for reason in store.reasons(BEYOND)] == [True] * 3
    store.conf["configManagerVersion"] = "v2"
    assert store.reasons(BEYOND) == []


def test_a_shorter_log_takes_units_from_its_queues(store: StoreToStart) -> None:
    """The copy of a slave that lags: the queues are those of the master."""
    cut = store.log.records[20]
    store.log.truncate(cut.offset)
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    store.log.write(store.root)
    last = store.segment(-1)
    data, end = last.read_bytes(), cut.offset % store.log.segment_size
    last.write_bytes(data[:end].ljust(len(data), b"\0"))
    assert {reason.values["end"] for reason in store.reasons(BEYOND)} == {5}
    assert store.only_reason("units_beyond_log").values["end"] == cut.offset


def test_what_recovery_dispatches_counts(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=36, version="4.9")
    assert store.answer().first_line == "safe to start"


def test_a_group_before_the_first_message_is_a_note(store: StoreToStart) -> None:
    """Queues begin at 6 in what is left of the log; that of a group at the first message, or without files, is fine."""
    store.segment(0).unlink()
    shutil.rmtree(store.queue_directory("Stock", 0))
    store.commit({"Orders@readers": {0: 6, 1: 5}, "Stock@readers": {0: 0, 1: 0}})
    assert tuple(offsets.committed_outside_queue(store.stopped())) == tuple(
        Reason(
            "committed_before_queue",
            f"group readers has committed {committed} in queue 1 of {topic}, which begins at 6: the {6 - committed} "
            "messages between are no longer in the log",
            unsafe=False,
        )
        for topic, committed in (("Orders", 5), ("Stock", 0))
    )
    store.commit({"Orders@readers": {0: 10}})
    assert list(offsets.committed_outside_queue(store.stopped())) == []
    store.commit({"Orders@readers": {0: 0}})
    store.conf["configManagerVersion"] = "v2"
    assert list(offsets.committed_outside_queue(store.stopped())) == []


@pytest.mark.parametrize(
    ("version", "then"), [("5.3", "the broker sets it back"), ("4.8", "the level would skip the next 8 messages")]
)
def test_delay_offsets_are_set_back_since_4_9_2(store: StoreToStart, version: str, then: str) -> None:
    store.version = version
    store.write_config("delayOffset.json", {"offsetTable": {2: 0, 3: 8}})
    assert store.answer().reasons == (
        Reason(
            "delay_offset_beyond_queue",
            f"delay level 3 stands at 8, its queue ends at 0: {then}",
            f"in {store.root}/config/delayOffset.json, set 3:8 to 3:0",
            unsafe=version == "4.8",
        ),
    )
    store.conf["storeType"], store.version = "defaultRocksDB", "5.3"
    assert store.reasons("delay_offset_beyond_queue") == []


def test_a_delay_level_ahead_of_messages_that_are_not_due(tmp_path: Path) -> None:
    """As with the file of another broker: whatever release, they are lost; the cure that is shown makes it safe."""
    log, begin = LogBuilder(SEGMENT), 1_700_000_000_000
    for seconds in (0, 5, 20):  # due after ten
        real = {"DELAY": "3", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
        log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=real, store_timestamp=begin + seconds * 1000)
    store = finished(tmp_path / "store", log)
    for offset, pending in ((2, 0), (3, 1), (9, 1)):
        store.write_config("delayOffset.json", {"offsetTable": {3: offset}})
        found = store.reasons("delay_offset_ahead")
        assert [(reason.values["offset"], reason.values["right"], reason.unsafe) for reason in found] == [
            (offset, 2, True)
        ] * pending
    assert "and 1 messages before it were not due when the log ended: they are never delivered" in found[0].what
    assert found[0].cure == f"in {store.root}/config/delayOffset.json, set 3:9 to 3:2"
    assert store.reasons("delay_offset_beyond_queue") == []


@pytest.mark.parametrize(
    ("levels", "served", "said"),
    [
        ("1s 5s 10s", 0, None),
        ("1s 5s", 0, "3 messages wait at delay levels [3], messageDelayLevel has 2"),
        ("1s", 2, "1 messages wait at delay levels [3], messageDelayLevel has 1"),
        ("1s 5s", 3, None),
        ("1s 5 s", 3, "messageDelayLevel has '5', and the broker does not start"),
    ],
)  # fmt: skip
def test_delay_levels_that_messages_wait_at(tmp_path: Path, levels: str, served: int, said: Any) -> None:
    log = LogBuilder(SEGMENT)
    for _ in range(3):
        log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    store = finished(tmp_path / "store", log)
    store.write_config("delayOffset.json", {"offsetTable": {3: served}})
    store.conf["messageDelayLevel"] = levels
    reasons = store.reasons("delay_level_absent")
    assert [reason.what.partition(": they")[0] for reason in reasons] == [said] * (said is not None)
    assert all(reason.unsafe for reason in reasons)


def test_level_n_has_queue_n_minus_1(tmp_path: Path) -> None:
    log = healthy_store(tmp_path / "first").log
    log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    store = finished(tmp_path / "store", log)
    store.write_config("delayOffset.json", {"offsetTable": {3: 1}})
    assert store.reasons("delay_offset_beyond_queue") == []
    store.write_config("delayOffset.json", {"offsetTable": {2: 1, 3: 1, 4: 1}})
    assert [reason.values["offset"] for reason in store.reasons("delay_offset_beyond_queue")] == [1, 1]


def test_a_log_of_zeros_takes_all_units(store: StoreToStart) -> None:
    for path in (store.root / "commitlog").iterdir():
        path.write_bytes(bytes(4096))
    assert {reason.values["end"] for reason in store.reasons(BEYOND)} == {0}


def test_with_light_queues_another_file_is_judged(store: StoreToStart) -> None:
    """LmqConsumerOffsetManager reads lmqConsumerOffset.json alone."""
    store.conf["enableLmq"] = "true"
    assert "lmqConsumerOffset.json is absent" in store.only_reason("config_lost").what
    store.write_config("lmqConsumerOffset.json", {"offsetTable": {"Orders@readers": {0: 99}}, "lmqOffsetTable": {}})
    reason = store.only_reason("committed_beyond_queue")
    assert (reason.values["committed"], "lmqConsumerOffset.json" in reason.cure) == (99, True)
