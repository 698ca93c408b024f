"""Offsets outside of their queues."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.store_to_start import StoreToStart, healthy_store

BEYOND = "committed_beyond_queue"


def test_a_group_at_the_end_of_its_queue_is_fine(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 10, 1: 10}})
    assert store.answer().first_line == "safe to start"


def test_a_group_beyond_the_end_would_skip_what_comes(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 10, 1: 17}})
    reason = store.only_reason(BEYOND)
    assert (reason.found, reason.expected, reason.unsafe) == (17, "at most 10", True)
    assert "skip the next 7 messages" in reason.what
    assert "set 1:17 to 1:10" in reason.cure
    store.commit({"Orders@readers": {0: 10, 1: 10}})
    assert store.answer().safe


def test_offsets_of_a_slave_of_5_5(store: StoreToStart) -> None:
    """Groups have subscribed, and nobody has pulled or committed: its master's offsets never came."""
    entry = {"readQueueNums": 1, "writeQueueNums": 1}
    names = ("Orders", "Stock", "%RETRY%readers", "%RETRY%CID_RMQ_SYS_x")
    topics = {"topicConfigTable": dict.fromkeys(names, entry)}
    store.write_config("topics.json", topics)
    store.write_config("consumerOffset.json", {"offsetTable": {}, "pullOffsetTable": {}})
    reason = store.only_reason("no_offsets")
    assert reason.unsafe
    assert reason.what.startswith("1 groups have subscribed (readers)")


@pytest.mark.parametrize(
    "document",
    [
        {"offsetTable": {}},  # before 5.5: groups may all be broadcasting
        {"offsetTable": {}, "pullOffsetTable": {"Orders@readers": {0: 3}}},  # the same, and somebody has pulled
        {"offsetTable": {"Orders@readers": {0: 3}}, "pullOffsetTable": {}},
    ],
)
def test_offsets_that_may_be_the_brokers_own(store: StoreToStart, document: Mapping[str, Any]) -> None:
    entry = {"readQueueNums": 1, "writeQueueNums": 1}
    store.write_config("topics.json", {"topicConfigTable": dict.fromkeys(("Orders", "Stock", "%RETRY%readers"), entry)})
    store.write_config("consumerOffset.json", document)
    assert store.reasons("no_offsets") == []


def test_groups_that_never_subscribed_need_no_offset(store: StoreToStart) -> None:
    store.write_config("consumerOffset.json", {"offsetTable": {}, "pullOffsetTable": {}})
    assert store.reasons("no_offsets") == []


def test_a_queue_that_is_not_there_ends_at_zero(store: StoreToStart) -> None:
    shutil.rmtree(store.queue_directory("Stock", 1))
    assert store.only_reason(BEYOND).expected == "at most 0"


def test_a_topic_that_was_deleted_only_leaves_a_note(store: StoreToStart) -> None:
    store.commit({"Gone@readers": {0: 3}})
    assert not store.only_reason(BEYOND).unsafe


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
    assert {reason.expected for reason in store.reasons(BEYOND)} == {"at most 5"}
    assert store.only_reason("units_beyond_log").expected == f"at most {cut.offset}"


def test_what_recovery_dispatches_counts(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=36, version="4.9")
    assert store.answer().first_line == "safe to start"


def test_a_group_before_the_first_message_is_a_note(store: StoreToStart) -> None:
    store.segment(0).unlink()
    store.commit({"Orders@readers": {0: 0}})
    reason = store.only_reason("committed_before_queue")
    assert (reason.found, reason.unsafe) == (0, False)
    assert store.answer().safe


def test_delay_offsets_are_set_back_since_4_9_2(store: StoreToStart) -> None:
    store.write_config("delayOffset.json", {"offsetTable": {3: 8}})
    assert not store.only_reason("delay_offset_beyond_queue").unsafe
    store.version = "4.8"
    assert store.only_reason("delay_offset_beyond_queue").unsafe


def test_a_log_of_zeros_takes_all_units(store: StoreToStart) -> None:
    for path in (store.root / "commitlog").iterdir():
        path.write_bytes(bytes(4096))
    assert {reason.expected for reason in store.reasons(BEYOND)} == {"at most 0"}


def test_with_light_queues_another_file_is_judged(store: StoreToStart) -> None:
    """LmqConsumerOffsetManager reads lmqConsumerOffset.json alone."""
    store.conf["enableLmq"] = "true"
    assert "lmqConsumerOffset.json is absent" in store.only_reason("config_lost").what
    store.write_config("lmqConsumerOffset.json", {"offsetTable": {"Orders@readers": {0: 99}}, "lmqOffsetTable": {}})
    reason = store.only_reason("committed_beyond_queue")
    assert (reason.found, "lmqConsumerOffset.json" in reason.cure) == (99, True)
