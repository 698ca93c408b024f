"""config/topics.json out of the log: what is in it, what is kept, what is left to the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.refusals import refusal

from storeformat.errors import NotAStore, WrongSettings
from storeformat.store.config import fastjson
from storeformat.store.config.topic_config import (
    configured_batch_topics,
    find_batch_topics,
    topic_configuration,
    topics_json,
)

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


def test_an_older_file_has_fewer_queues() -> None:
    """Its readQueueNums grows to what the log has; where new messages go stays."""
    known = {"topicConfigTable": {"A": {"readQueueNums": 2, "writeQueueNums": 2, "perm": 4}, "B": {"readQueueNums": 9}}}
    data, changed = topics_json({"A": 4, "B": 4}, (), known, 7)
    table = json.loads(data)["topicConfigTable"]
    assert (table["A"], table["B"]) == ({"readQueueNums": 4, "writeQueueNums": 2, "perm": 4}, {"readQueueNums": 9})
    assert changed == ["A"]
    silent = {"topicConfigTable": {"A": {"perm": 6}, "B": "damaged"}}
    assert topics_json({"A": 4, "B": 4}, (), silent, 7)[1] == []


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


def configured(root: Path, name: str, text: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(text)


TABLE = '{"topicConfigTable":{"A":{"attributes":{"queue.type":"BatchCQ"}},"B":{"attributes":{"queue.type":"SimpleCQ"}},'
TABLE += '"C":{"attributes":null},"D":{},"E":5}}'


def test_topics_of_batches_are_named_configured_or_there(tmp_path: Path) -> None:
    assert find_batch_topics(str(tmp_path), ()) == frozenset()
    configured(tmp_path, "topics.json", TABLE)
    (tmp_path / "batchconsumequeue" / "F" / "0").mkdir(parents=True)
    (tmp_path / "batchconsumequeue" / "stray").touch()
    assert find_batch_topics(str(tmp_path), ["N"]) == {"A", "F", "N"}
    (tmp_path / "consumequeue" / "A").mkdir(parents=True)
    assert find_batch_topics(str(tmp_path), ()) == {"A", "F"}, "there is no queue in it"
    (tmp_path / "consumequeue" / "A" / "0").mkdir()
    assert refusal(WrongSettings, lambda: find_batch_topics(str(tmp_path), ())) == {
        "what": "a topic of type BatchCQ has ordinary consume queues, too",
        "path": str(tmp_path / "consumequeue" / "A"),
        "found": "A",
    }


def test_the_backup_is_read_where_the_file_is_not_sound(tmp_path: Path) -> None:
    assert (topic_configuration(str(tmp_path)), configured_batch_topics(str(tmp_path))) == (None, None)
    configured(tmp_path, "topics.json.bak", TABLE)
    for torn in ("", "{", "[]", '{"topicConfigTable":[]}', "\0\0"):
        configured(tmp_path, "topics.json", torn)
        assert configured_batch_topics(str(tmp_path)) == {"A"}
    configured(tmp_path, "topics.json", '{"topicConfigTable":{"Z":{"attributes":{"queue.type":"BatchCQ"}}}}')
    assert configured_batch_topics(str(tmp_path)) == {"Z"}
    configured(tmp_path, "topics.json", '{"topicConfigTable":{"\xff":{}}}')
    (tmp_path / "config" / "topics.json").write_bytes(b'{"topicConfigTable":{"\xff":{}}}')
    assert topic_configuration(str(tmp_path)) == {"topicConfigTable": {"\ufffd": {}}}


@pytest.mark.parametrize("name", ["", ".", "..", "/etc", "a\\u0000b", "x" * 5_000])
def test_what_is_no_name_of_a_directory_is_no_topic_of_batches(tmp_path: Path, name: str) -> None:
    configured(
        tmp_path, "topics.json", f'{{"topicConfigTable":{{"{name}":{{"attributes":{{"queue.type":"BatchCQ"}}}}}}}}'
    )
    assert find_batch_topics(str(tmp_path), ()) == frozenset()


@pytest.mark.parametrize(
    "version", ['[1]', '"x"', "5", "null", '{"counter":null}', '{"counter":"abc"}', '{"counter":1e999}',
                '{"counter":[]}', '{"counter":9223372036854775807}', '{"\\ud800":"\\ud800"}']
)  # fmt: skip
def test_a_version_that_is_none_begins_anew(version: str) -> None:
    known = fastjson.parse(f'{{"dataVersion":{version},"topicConfigTable":{{"\\ud800":{{"perm":1e999}}}}}}')
    content, added = topics_json({"A": 1}, (), known, 7)
    written = fastjson.parse(content.decode())
    assert (written["dataVersion"]["counter"], written["dataVersion"]["timestamp"], added) == (1, 7, ["A"])


def test_the_text_is_as_fastjson_indents_it() -> None:
    content, _ = topics_json({"订": 1}, (), None, timestamp=5)
    head = '{\n\t"dataVersion": {\n\t\t"stateVersion": 0,\n\t\t"counter": 1,\n\t\t"timestamp": 5\n\t},\n'
    assert content.decode().startswith(head + '\t"topicConfigTable": {\n\t\t"订": {\n')
    assert content.endswith(b"\n\t}\n}\n")
