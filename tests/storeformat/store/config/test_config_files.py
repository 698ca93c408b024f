"""ConfigManager's rule: the file, else its backup, else nothing, else no start."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.errors import NotAStore
from storeformat.store.config import config_files
from storeformat.store.config.config_files import FileState, TopicQueues, read_config

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
    "content",
    [b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"A@g":5}}', b'{"offsetTable":{"A@g":{0:99999999999999999999}}}',
     b'{"offsetTable":{"A@g":{0:"x"}}}', b'{"offsetTable":{"A@g":{0:true}}}'],
)  # fmt: skip
def test_what_cannot_be_held_is_torn(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content, None).main.content is FileState.TORN


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
    with pytest.raises(NotAStore, match="not a broker's configuration file"):
        read_config(str(tmp_path), "topics.json")


def test_what_5_5_0_writes(tmp_path: Path) -> None:
    """The text is ConsumerOffsetManager#encode's of 5.5.0 (fastjson2)."""
    text = (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1795356019873\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"readers":[\n\t\t\t"Normal"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n\t\t"Normal@readers":{\n\t\t\t0:10,\n\t\t\t1:11\n\t\t}\n\t},\n\t"pullOffsetTable":{}\n}'
    )
    assert read(tmp_path, text.encode(), None).value == {("Normal", "readers"): {0: 10, 1: 11}}
