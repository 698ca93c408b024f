"""Files of config/."""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in
from support.store_to_start import as_fastjson

from storeformat.errors import MissingInput, NotAStore, WrongSettings
from storeformat.store import config_files
from storeformat.store.config_files import (
    CONFIG,
    REVIVE_GROUP,
    ConfigCopy,
    DataVersion,
    FileState,
    Offsets,
    TopicQueues,
    configured_batch_topics,
    consumer_offsets_json,
    data_version,
    find_batch_topics,
    highest_committed,
    known_groups,
    offsets_before_tear,
    read_config,
    read_offsets,
    topic_configuration,
    topics_json,
)
from storeformat.store.timer_files import DEFAULT, DELETE, TimerUnit, read_timer_files, timer_check, timer_log

# -------------------------------------------------------------------------------------------------- config files
SOUND = b'{"offsetTable":{"A@g":{0:5}}}'
OLDER = b'{"offsetTable":{"A@g":{0:3}}}'


def read(root: Path, main: bytes | None, backup: bytes | None) -> config_files.ConfigFile:
    (root / "config").mkdir(exist_ok=True)
    for suffix, content in (("", main), (".bak", backup)):
        path = root / "config" / f"consumerOffset.json{suffix}"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    return read_config(str(root), "consumerOffset.json")


@pytest.mark.parametrize("main", [None, b"", b"{", b"\0\0", SOUND], ids=["absent", "empty", "torn", "zeros", "sound"])
@pytest.mark.parametrize("backup", [None, b"", b"{", OLDER], ids=["absent", "empty", "torn", "sound"])
def test_what_is_taken(tmp_path: Path, main: bytes | None, backup: bytes | None) -> None:
    found = read(tmp_path, main, backup)
    expected = 5 if main == SOUND else 3 if backup == OLDER else None
    assert (found.value or {}).get(("A", "g")) == ({0: expected} if expected else None)
    assert found.ends_the_start is (main != SOUND and backup == b"{")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[]", "this is not an object"),
        (b'{"offsetTable":[]}', "this is not an object"),
        (b'{"offsetTable":{"A@g":5}}', "this is not a table of objects"),
        (b'{"offsetTable":{"A@g":null}}', "this is not a table of objects"),
        (b'{"offsetTable":{"A@g":{0:99999999999999999999}}}', "a number has more than 64 bits"),
        (b'{"offsetTable":{"A@g":{0:9223372036854775808}}}', "a number has more than 64 bits"),
        (b'{"offsetTable":{"A@g":{0:-9223372036854775809}}}', "a number has more than 64 bits"),
        (b'{"offsetTable":{"A@g":{2147483648:5}}}', "a number has more than 32 bits"),
        (b'{"offsetTable":{"A@g":{0:1e400}}}', "a number has more than 64 bits"),
        (b'{"offsetTable":{"A@g":{0:"x"}}}', "invalid literal for int() with base 10: 'x'"),
        (b'{"offsetTable":{"A@g":{0:true}}}', "this is not a number"),
        (b'{"offsetTable":{"A@g":{0:[]}}}', "this is not a number"),
        (b'{"offsetTable":{"A@g":{0:NaN}}}', "NaN is not a value"),
    ],
)
def test_what_cannot_be_held_is_torn(tmp_path: Path, content: bytes, why: str) -> None:
    found = read(tmp_path, content, None).main
    path = tmp_path / "config" / "consumerOffset.json"
    modified = path.stat().st_mtime_ns // 1_000_000
    assert found == ConfigCopy(str(path), FileState.TORN, modified, why=why, text=content.decode())


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json"])
def test_entries_are_objects(tmp_path: Path, name: str) -> None:
    (tmp_path / "config").mkdir()
    path, table = tmp_path / "config" / name, {"t": "topicConfigTable", "s": "subscriptionGroupTable"}[name[0]]
    for entry, state in (("{}", FileState.SOUND), ("null", FileState.TORN), ("5", FileState.TORN)):
        path.write_text(f'{{"{table}":{{"A":{entry}}}}}')
        assert read_config(str(tmp_path), path.name).main.content is state


def test_a_directory_and_what_nests_too_deep_are_torn(tmp_path: Path) -> None:
    (tmp_path / "config" / "topics.json").mkdir(parents=True)
    assert read_config(str(tmp_path), "topics.json").main.content is FileState.TORN
    found = read(tmp_path, b'{"offsetTable":' + b"[" * 100_000, None).main
    assert found.content is FileState.TORN
    assert found.why


def test_a_copy_says_what_was_read_and_when(tmp_path: Path) -> None:
    found = read(tmp_path, SOUND, b"")
    path = str(tmp_path / "config" / "consumerOffset.json")
    modified = [Path(name).stat().st_mtime_ns // 1_000_000 for name in (path, path + ".bak")]
    value = {("A", "g"): {0: 5}}
    assert found.main == ConfigCopy(path, FileState.SOUND, modified[0], value, text=SOUND.decode())
    assert found.backup == ConfigCopy(path + ".bak", FileState.EMPTY, modified[1])
    assert (found.name, found.taken, found.is_absent) == ("consumerOffset.json", found.main, False)
    nothing = read(tmp_path, None, None)
    assert (nothing.main, nothing.taken) == (ConfigCopy(path, FileState.ABSENT), None)
    assert nothing.is_absent
    assert not read(tmp_path, None, b"").is_absent


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("delayOffset.json", '{"offsetTable":{2:7,"3":9}}', {2: 7, 3: 9}),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"g":{"a":1}}}', {"g": {"a": 1}}),
        ("consumerFilter.json", '{"filterDataByTopic":{"T":1}}', {"T": 1}),
        ("consumerOrderInfo.json", '{"table":{"T@g":1}}', {"T@g": 1}),
        ("timermetrics", '{"timingCount":{"T":1}}', {"T": 1}),
        ("topics.json", '{"topicConfigTable":{"A":{"readQueueNums":4}}}', {"A": TopicQueues(4, 16)}),
        ("topics.json", '{"topicConfigTable":{"A":{"writeQueueNums":4},"B":{}}}',
         {"A": TopicQueues(16, 4), "B": TopicQueues(16, 16)}),
        ("lmqConsumerOffset.json", '{"lmqOffsetTable":{"T":1,"@g":1,"T@":1,"T@g":2}}', {("T", "g"): {0: 2}}),
    ],
)  # fmt: skip
def test_each_file_has_a_table_of_its_own(tmp_path: Path, name: str, content: str, value: object) -> None:
    configured(tmp_path, name, content)
    assert read_config(str(tmp_path), name).value == value
    configured(tmp_path, name, content.upper())
    assert read_config(str(tmp_path), name).value == {}


def test_a_file_that_is_never_whole_is_looked_at_so_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty pauses of 50 ms, and only while a broker holds the lock of this store."""
    read(tmp_path, b"{", OLDER)
    pauses: list[float] = []
    asked: list[str] = []
    stand_in(monkeypatch, config_files, "time", sleep=pauses.append)
    monkeypatch.setattr(config_files, "is_live", lambda lock: not asked.append(lock))  # type: ignore[func-returns-value]
    assert read_config(str(tmp_path), "consumerOffset.json").value == {("A", "g"): {0: 3}}
    assert pauses == [0.05] * 20
    assert set(asked) == {str(tmp_path / "lock")}
    read(tmp_path, None, None)
    assert len(pauses) == 20, "what is absent is not waited for"


@pytest.mark.parametrize("content", [b"null", b"{}", b'{"offsetTable":null}'])
def test_nothing_is_sound(tmp_path: Path, content: bytes) -> None:
    found = read(tmp_path, content, OLDER)
    assert (found.main.content, found.value) == (FileState.SOUND, {})


def test_keys_that_name_no_group_are_left_out_and_64_bits_are_held(tmp_path: Path) -> None:
    content = b'{"offsetTable":{"A":{0:1},"A@":{0:1},"%RETRY%g@g":{0:1.5,1:"7"}}}'
    assert read(tmp_path, content, None).value == {("%RETRY%g", "g"): {0: 1, 1: 7}}
    content = b'{"offsetTable":{"A@g":{0:9223372036854775807,-5:-9223372036854775808}}}'
    assert read(tmp_path, content, None).value == {("A", "g"): {0: (1 << 63) - 1, -5: -(1 << 63)}}


def test_an_absurd_length_is_refused_unread(tmp_path: Path) -> None:
    configured(tmp_path, "topics.json", "")
    os.truncate(tmp_path / "config" / "topics.json", 30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        read_config(str(tmp_path), "topics.json")


@pytest.mark.parametrize("half", [None, b"", SOUND[:20]], ids=["moved to .bak", "emptied", "half written"])
def test_a_live_broker_has_just_begun_to_write(
    tmp_path: Path, half: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock, and does one step in each pause of the reader."""
    assert read(tmp_path, half, OLDER).value == {("A", "g"): {0: 3}}
    path = tmp_path / "config" / "consumerOffset.json"
    steps = [SOUND[:25], SOUND]
    monkeypatch.setattr(config_files, "is_live", lambda lock: True)
    stand_in(monkeypatch, config_files, "time", sleep=lambda seconds: path.write_bytes(steps.pop(0)))
    assert read_config(str(tmp_path), path.name).value == {("A", "g"): {0: 5}}


@pytest.mark.parametrize("shorter", [b"", None], ids=["emptied", "moved to .bak"])
def test_a_file_that_is_cut_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shorter: bytes | None
) -> None:
    read(tmp_path, SOUND, OLDER)
    path = tmp_path / "config" / "consumerOffset.json"
    whole = config_files.files.read_bytes

    def cut(name: str) -> bytes:
        if name != str(path):
            return whole(name)
        path.unlink() if shorter is None else path.write_bytes(shorter)
        raise MissingInput("the file was truncated while it was read", path=name)

    monkeypatch.setattr(config_files.files, "read_bytes", cut)
    found = read_config(str(tmp_path), path.name)
    assert found.main.content is (FileState.ABSENT if shorter is None else FileState.TORN)
    assert found.main.path == str(path)
    assert found.value == {("A", "g"): {0: 3}}


def test_what_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(tmp_path, SOUND, None)

    def shut(name: str) -> bytes:
        raise MissingInput("cannot be read: Permission denied", path=name)

    monkeypatch.setattr(config_files.files, "read_bytes", shut)
    with pytest.raises(MissingInput):
        read_config(str(tmp_path), "consumerOffset.json")


def test_what_a_broker_with_light_queues_writes(tmp_path: Path) -> None:
    """LmqConsumerOffsetManager#encode of 5.5.0: both tables in a file of its own; the other is not read."""
    read(tmp_path, SOUND, None)
    text = '{"lmqOffsetTable":{"%LMQ%1@%LMQ%g":7},"offsetTable":{"A@g":{0:2}}}'
    (tmp_path / "config" / "lmqConsumerOffset.json").write_text(text)
    assert read_offsets(str(tmp_path), enable_lmq=True).value == {("A", "g"): {0: 2}, ("%LMQ%1", "%LMQ%g"): {0: 7}}
    assert read_offsets(str(tmp_path), enable_lmq=False).value == {("A", "g"): {0: 5}}


# ------------------------------------------------------------------------------------------------------ fastjson
ACCEPTED = {
    '{"offsetTable":{"t@g":{0:5,1:6\n\t\t}}}': {"offsetTable": {"t@g": {"0": 5, "1": 6}}},
    '{"offsetTable":{"t@g":{0:5}}}\0\0\0': {"offsetTable": {"t@g": {"0": 5}}},
    "{'offsetTable':{'t@g':{0:5}}}": {"offsetTable": {"t@g": {"0": 5}}},
    '{"offsetTable":{"t@g":{0:5,},},}': {"offsetTable": {"t@g": {"0": 5}}},
    '{"offsetTable":{"t@g":{"0":"5"}}}': {"offsetTable": {"t@g": {"0": "5"}}},
    '{"offsetTable":{"t@g":{0:5}}/*c*/}': {"offsetTable": {"t@g": {"0": 5}}},
    '{"a":{0:1},"a":{0:2}}': {"a": {"0": 2}},
    '{"{0:5,}":"a,}/*b*/"}': {"{0:5,}": "a,}/*b*/"},
    "null": None,
    r'{"a\ud800":["\udbff","\uD83D\ude00","\\ud800"]}': {"a?": ["?", "\U0001f600", r"\ud800"]},
    "[1e999,-1e999]": [sys.float_info.max, -sys.float_info.max],
}
REFUSED = ("\0\0\0\0", "   ", "\n", '{"a":1}xyz', '{"a":{0:5}', "hello", '{"a":x}', '{"a":NaN}', "{a:1}", '{"a":1}X')


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    assert config_files.parse(text) == ACCEPTED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (json's error is one)
        config_files.parse(text)


def test_no_cut_is_accepted() -> None:
    text = '{\n\t"dataVersion":{\n\t\t"counter":5\n\t},\n\t"offsetTable":{"A@g":{0:12,1:13\n\t\t},"B@g":{0:7\n\t\t}}\n}'
    assert config_files.parse(text)
    for length in range(len(text)):
        with pytest.raises(ValueError):  # noqa: PT011
            config_files.parse(text[:length])


@pytest.mark.parametrize(
    "text", ["1" * 40_000, "/* " * 40_000, '"' + '\\"' * 40_000, "'" + "\\'" * 40_000, "@" * 40_000]
)
def test_no_text_takes_the_square_of_its_length(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(ValueError):  # noqa: PT011
        config_files.parse('{"a":' + text + " x")
    offsets_before_tear('{"offsetTable":{"' + text)
    offsets_before_tear('{"lmqOffsetTable":{"' + text)
    assert time.process_time() - begin < 1


# -------------------------------------------------------------------------------------------------- topic config
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


def configured(root: Path, name: str, text: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(text)


TABLE = '{"topicConfigTable":{"A":{"attributes":{"queue.type":"BatchCQ"}},"B":{"attributes":{"queue.type":"SimpleCQ"}},'
TABLE += '"C":{"attributes":null},"D":{}}}'


def test_topics_of_batches_are_named_configured_or_there(tmp_path: Path) -> None:
    assert find_batch_topics(str(tmp_path), ()) == frozenset()
    configured(tmp_path, "topics.json", TABLE)
    (tmp_path / "batchconsumequeue" / "F" / "0").mkdir(parents=True)
    (tmp_path / "batchconsumequeue" / "stray").touch()
    assert find_batch_topics(str(tmp_path), ["N"]) == {"A", "F", "N"}
    (tmp_path / "consumequeue" / "A").mkdir(parents=True)
    assert find_batch_topics(str(tmp_path), ()) == {"A", "F"}, "there is no queue in it"
    (tmp_path / "consumequeue" / "A" / "0").mkdir()
    with pytest.raises(WrongSettings, match="a topic of type BatchCQ has ordinary consume queues, too: found A"):
        find_batch_topics(str(tmp_path), ())


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
    known = config_files.parse(f'{{"dataVersion":{version},"topicConfigTable":{{"\\ud800":{{"perm":1e999}}}}}}')
    content, added = topics_json({"A": 1}, (), known, 7)
    written = config_files.parse(content.decode())
    assert (written["dataVersion"]["counter"], written["dataVersion"]["timestamp"], added) == (1, 7, ["A"])


def test_the_text_is_as_fastjson_indents_it() -> None:
    content, _ = topics_json({"订": 1}, (), None, timestamp=5)
    head = '{\n\t"dataVersion": {\n\t\t"stateVersion": 0,\n\t\t"counter": 1,\n\t\t"timestamp": 5\n\t},\n'
    assert content.decode().startswith(head + '\t"topicConfigTable": {\n\t\t"订": {\n')
    assert content.endswith(b"\n\t}\n}\n")


# ---------------------------------------------------------------------------------------------- consumer offsets
OFFSETS: Offsets = {("T", "one"): {0: 7, 1: 123456}, ("%RETRY%g", "g"): {0: 0}, ("U", "名"): {3: 1 << 40}}
DOCUMENT = {
    "dataVersion": {"counter": 5, "stateVersion": 0, "timestamp": 17},
    "groupTopicMap": {"one": ["T"]},
    "offsetTable": {f"{topic}@{group}": dict(queues) for (topic, group), queues in OFFSETS.items()},
    "pullOffsetTable": {"T@pull": {0: 9}},
}


def test_light_groups_have_a_table_of_their_own(tmp_path: Path) -> None:
    """With one number for all queues: of several the one with which nothing is skipped."""
    (tmp_path / CONFIG).mkdir()
    offsets = {**OFFSETS, ("%LMQ%a", "%LMQ%g"): {0: 5}, ("T", "%LMQ%g"): {0: 9, 1: 4}}
    content = consumer_offsets_json(offsets, DataVersion(), light_groups=True)
    (tmp_path / CONFIG / "lmqConsumerOffset.json").write_bytes(content)
    light = {("%LMQ%a", "%LMQ%g"): {0: 5}, ("T", "%LMQ%g"): {0: 4}}
    assert read_config(str(tmp_path), "lmqConsumerOffset.json").value == {**OFFSETS, **light}
    (tmp_path / CONFIG / "consumerOffset.json").write_bytes(content)
    assert read_config(str(tmp_path), "consumerOffset.json").value == OFFSETS
    assert data_version(consumer_offsets_json(OFFSETS, DataVersion(1, 2, 3)).decode()) == (1, 2, 3)


def test_a_file_without_a_version() -> None:
    assert data_version('{"offsetTable":{}}') is None
    assert data_version('{"dataVersion":{"counter":"x"}}') is None
    assert data_version('{"dataVersion":{"cou') is None
    assert data_version("[]") is None
    assert data_version('{"dataVersion":5}') is None
    assert data_version('{"dataVersion":{"timestamp":true}}') is None
    assert data_version('{"dataVersion":{"counter":9223372036854775807}}') is None
    assert data_version('{"dataVersion":{}}') == (0, 0, 0)
    assert data_version('{"dataVersion":{"timestamp":3}}') == (0, 0, 3)
    assert data_version('{"dataVersion":{"counter":2}}') == (0, 2, 0)
    assert data_version("[" * 100_000) is None


def test_the_text_that_is_written() -> None:
    content = consumer_offsets_json({("名", "g"): {10: 3, 2: 1}, ("A", "g"): {0: 5}}, DataVersion(1, 2, 3))
    assert content.decode() == (
        '{\n\t"dataVersion": {\n\t\t"counter": 2,\n\t\t"stateVersion": 1,\n\t\t"timestamp": 3\n\t},\n'
        '\t"offsetTable": {\n\t\t"A@g": {\n\t\t\t"0": 5\n\t\t},\n'
        '\t\t"名@g": {\n\t\t\t"2": 1,\n\t\t\t"10": 3\n\t\t}\n\t}\n}\n'
    )


@pytest.mark.parametrize("later", ["resetOffsetTable", "pullOffsetTable", "groupTopicMap"])
def test_other_tables_of_a_torn_file_are_not_read(later: str) -> None:
    text = '{"x":{"S@g":{0:1}},"offsetTable":{"T@g":{0:7},"U@g":{0:"y"}},"LATER":{"T@g":{0:9},"V@g":{0:9}'
    assert offsets_before_tear(text.replace("LATER", later)) == {("T", "g"): {0: 7}}


LIGHT: Offsets = {("%LMQ%a", "%LMQ%g"): {0: 123}, ("%LMQ%b", "%LMQ%g"): {0: 4567}}
LIGHT_TABLE = {"%LMQ%a@%LMQ%g": 123, "%LMQ%b@%LMQ%g": 4567}


@pytest.mark.parametrize(
    ("document", "offsets"), [(DOCUMENT, OFFSETS), ({"lmqOffsetTable": LIGHT_TABLE, **DOCUMENT}, {**OFFSETS, **LIGHT})]
)
def test_before_a_tear_every_number_is_as_it_was_written(document: dict[str, Any], offsets: Offsets) -> None:
    text, seen = as_fastjson(document), 0
    for cut in range(len(text)):
        found = offsets_before_tear(text[:cut])
        numbers = [offsets[key][queue_id] == at for key in found for queue_id, at in found[key].items()]
        assert all(numbers)
        assert len(numbers) >= seen
        seen = len(numbers)
    assert offsets_before_tear(text) == offsets
    assert offsets_before_tear(text[:-40] + "\0" * 40) == offsets


def test_noise_is_no_offset() -> None:
    chance = random.Random(1)
    text = as_fastjson(DOCUMENT)
    for _ in range(500):
        place = chance.randrange(len(text))
        noise = "".join(chr(chance.randrange(1, 0x250)) for _ in range(8))
        offsets_before_tear(text[:place] + noise + text[place + 8 :])
    assert offsets_before_tear("") == {}
    found = offsets_before_tear('{"offsetTable":{"T@g":{0:7},"offsetTable":{},"U@g":{0:1}')
    assert found == {("T", "g"): {0: 7}, ("U", "g"): {0: 1}}
    assert offsets_before_tear('{"offsetTable":{"T@g":{0:x}}') == {}


def test_the_revive_group_commits_the_last_message_read() -> None:
    assert (highest_committed("readers", 5), highest_committed(REVIVE_GROUP, 5)) == (5, 4)


def test_a_name_that_no_topic_can_have_is_looked_at_once() -> None:
    begun = time.monotonic()
    assert known_groups(["%RETRY%" + "_" * 300_000], []) == ["_" * 300_000]
    assert time.monotonic() - begun < 1


# --------------------------------------------------------------------------------------------------- timer files
def test_timer_files_that_are_there_and_that_are_not(tmp_path: Path) -> None:
    found = read_timer_files(str(tmp_path))
    assert (found.queued_up_to, found.wheel_size, found.log_sizes) == (None, None, ())
    (tmp_path / "config").mkdir()
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerwheel").write_bytes(bytes(64))
    (tmp_path / "timerlog" / f"{0:020d}").write_bytes(bytes(52))
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">4q", 1, 2, 9, 4).ljust(4096, b"\0"))
    found = read_timer_files(str(tmp_path))
    assert (found.queued_up_to, found.wheel_size, found.log_sizes) == (4, 64, (52,))
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">qqq", 1, 2, 9))
    assert read_timer_files(str(tmp_path)).queued_up_to == 0, "a short page goes on with zeros"


UNITS = [TimerUnit(5_000, 2_000, DEFAULT, 700, 120, 17), TimerUnit(6_000, 2_000, DEFAULT | DELETE, 900, 130, -1),
         TimerUnit(5_000, 2_000, DEFAULT, 1100, 140)]  # fmt: skip


def test_a_unit_field_by_field() -> None:
    ((base, data),) = timer_log(UNITS, 4096)
    assert (base, len(data)) == (0, 3 * 52)
    assert data[:52].hex(" ", 4) == (
        "00000034 ffffffff ffffffff 00000001 00000000 000007d0 00000bb8 00000000 000002bc 00000078 00000011 00000000"
        " 00000000"
    )
    assert data[56:64].hex() == "ff" * 8
    assert data[64:68].hex() == "00000005"
    assert int.from_bytes(data[108:116], "big") == 0, "the unit before it in its slot is the first"


def test_a_blank_ends_a_file() -> None:
    files = list(timer_log(UNITS, 2 * 52 + 40))
    assert [(base, len(data)) for base, data in files] == [(0, 2 * 52 + 16), (144, 52)]
    assert files[0][1][104:].hex(" ", 4) == "00000028 00000000 00000000 cbd43194"
    assert list(timer_log([], 4096)) == []


def test_a_check() -> None:
    data = timer_check(7, 9)
    assert len(data) == 4096
    assert data[:56].hex(" ", 8) == (
        "0000000000000007 0000000000000000 0000000000000009 0000000000000009" + " 0000000000000000" * 3
    )
    assert not any(data[56:])
