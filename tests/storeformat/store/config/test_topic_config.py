"""config/topics.json out of the log: what is in it, what is kept, what is left to the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storeformat.errors import NotAStore
from storeformat.store.config import fastjson
from storeformat.store.config.topic_config import find_batch_topics, topics_json

QUEUES = {
    "订单": 4, "T|x": 1, "%RETRY%g": 1, "Batch": 8, "SCHEDULE_TOPIC_XXXX": 5, "RMQ_SYS_TRANS_HALF_TOPIC": 1,
    "rmq_sys_wheel_timer": 1, "%LMQ%device": 1, "RMQ_SYS_TRACE_TOPIC": 2,
}  # fmt: skip


def made(known: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[str]]:
    content, added = topics_json(QUEUES, {"Batch"}, known, timestamp=1_700_000_000_000)
    return json.loads(content), added


def test_topics_get_what_the_log_proves() -> None:
    document, added = made()
    assert added == sorted(document["topicConfigTable"])
    assert added == ["%RETRY%g", "Batch", "RMQ_SYS_TRACE_TOPIC", "T|x", "订单"]
    assert document["topicConfigTable"]["订单"] == {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG",
        "topicName": "订单", "topicSysFlag": 0, "writeQueueNums": 4,
    }  # fmt: skip
    assert document["topicConfigTable"]["Batch"]["attributes"] == {"queue.type": "BatchCQ"}
    assert document["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}


def test_entries_that_are_there_stay() -> None:
    kept = {"perm": 4, "readQueueNums": 16, "writeQueueNums": 2, "order": True, "attributes": {"+a": "1"}}
    known = {"dataVersion": {"counter": 41, "timestamp": 5}, "topicConfigTable": {"订单": kept}, "more": [1]}
    document, added = made(known)
    assert "订单" not in added
    assert document["topicConfigTable"]["订单"] == kept
    assert (document["dataVersion"]["counter"], document["more"]) == (42, [1])
    again, nothing = made(document)
    assert (again, nothing) == (document, [])


def test_the_file_can_be_read_as_a_broker_writes_it() -> None:
    content, _ = topics_json(QUEUES, {"Batch"}, None, timestamp=0)
    assert fastjson.parse(content.decode()) == json.loads(content)


def test_a_topics_json_of_30_gigabytes_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with (tmp_path / "config" / "topics.json").open("wb") as file:
        file.truncate(30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        find_batch_topics(str(tmp_path), [])
