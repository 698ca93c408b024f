"""ConfigManager's rule: the file, else its backup, else nothing, else no start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import MissingInput, NotAStore
from storeformat.store.config import config_files
from storeformat.store.config.config_files import ConfigCopy, FileState, TopicQueues, read_config, read_offsets

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


def test_a_directory_is_torn(tmp_path: Path) -> None:
    (tmp_path / "config" / "topics.json").mkdir(parents=True)
    assert read_config(str(tmp_path), "topics.json").main.content is FileState.TORN


def test_what_nests_too_deep_is_torn(tmp_path: Path) -> None:
    found = read(tmp_path, b'{"offsetTable":' + b"[" * 100_000, None).main
    assert found.content is FileState.TORN
    assert found.why


def test_the_ends_of_64_bits_are_held(tmp_path: Path) -> None:
    content = b'{"offsetTable":{"A@g":{0:9223372036854775807,-5:-9223372036854775808}}}'
    assert read(tmp_path, content, None).value == {("A", "g"): {0: (1 << 63) - 1, -5: -(1 << 63)}}


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
        ("topics.json", '{"topicConfigTable":{"A":{"writeQueueNums":4}}}', {"A": TopicQueues(16, 4)}),
        ("lmqConsumerOffset.json", '{"lmqOffsetTable":{"T":1,"@g":1,"T@":1,"T@g":2}}', {("T", "g"): {0: 2}}),
    ],
)
def test_each_file_has_a_table_of_its_own(tmp_path: Path, name: str, content: str, value: object) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(content)
    assert read_config(str(tmp_path), name).value == value
    (tmp_path / "config" / name).write_text(content.upper())
    assert read_config(str(tmp_path), name).value == {}


def test_a_table_is_found_by_its_name() -> None:
    decode = config_files._decode_table("table")
    assert decode({"table": {"a": 1}, "other": {"b": 2}}) == {"a": 1}
    assert decode({"other": {"b": 2}}) == {}


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


def test_keys_that_name_no_group_are_left_out(tmp_path: Path) -> None:
    content = b'{"offsetTable":{"A":{0:1},"A@":{0:1},"%RETRY%g@g":{0:1.5,1:"7"}}}'
    assert read(tmp_path, content, None).value == {("%RETRY%g", "g"): {0: 1, 1: 7}}


def test_topics(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    text = '{"topicConfigTable":{"A":{"readQueueNums":4,"writeQueueNums":2},"B":{}}}'
    (tmp_path / "config" / "topics.json").write_text(text)
    assert read_config(str(tmp_path), "topics.json").value == {"A": TopicQueues(4, 2), "B": TopicQueues(16, 16)}


def test_an_absurd_length_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with (tmp_path / "config" / "topics.json").open("wb") as file:
        file.truncate(30 << 30)
    assert refusal(NotAStore, lambda: read_config(str(tmp_path), "topics.json")) == {
        "what": "this file is too large",
        "path": str(tmp_path / "config" / "topics.json"),
        "found": 30 << 30,
        "expected": "at most 268435456 bytes",
    }


def test_what_5_5_0_writes(tmp_path: Path) -> None:
    """The text is ConsumerOffsetManager#encode's of 5.5.0 (fastjson2)."""
    text = (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1795356019873\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"readers":[\n\t\t\t"Normal"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n\t\t"Normal@readers":{\n\t\t\t0:10,\n\t\t\t1:11\n\t\t}\n\t},\n\t"pullOffsetTable":{}\n}'
    )
    assert read(tmp_path, text.encode(), None).value == {("Normal", "readers"): {0: 10, 1: 11}}


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Callable[[], object]]], None]:
    """A broker that holds the lock, and does one step in each pause of the reader."""

    def work(steps: list[Callable[[], object]]) -> None:
        monkeypatch.setattr(config_files, "is_live", lambda lock: True)
        stand_in(monkeypatch, config_files, "time", sleep=lambda seconds: steps.pop(0)())

    return work


@pytest.mark.parametrize("half", [None, b"", SOUND[:20]], ids=["moved to .bak", "emptied", "half written"])
def test_a_live_broker_has_just_begun_to_write(
    tmp_path: Path, half: bytes | None, at_work: Callable[[list[Callable[[], object]]], None]
) -> None:
    assert read(tmp_path, half, OLDER).value == {("A", "g"): {0: 3}}
    path = tmp_path / "config" / "consumerOffset.json"
    at_work([lambda: path.write_bytes(SOUND[:25]), lambda: path.write_bytes(SOUND)])
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
