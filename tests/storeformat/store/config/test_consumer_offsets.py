"""The file of committed offsets, on bytes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from support.store_to_start import as_fastjson

from storeformat.store.config.config_files import CONFIG, Offsets, read_config
from storeformat.store.config.consumer_offsets import (
    REVIVE_GROUP,
    DataVersion,
    consumer_offsets_json,
    data_version,
    highest_committed,
    known_groups,
    offsets_before_tear,
)

OFFSETS: Offsets = {("T", "one"): {0: 7, 1: 123456}, ("%RETRY%g", "g"): {0: 0}, ("U", "名"): {3: 1 << 40}}
DOCUMENT = {
    "dataVersion": {"counter": 5, "stateVersion": 0, "timestamp": 17},
    "groupTopicMap": {"one": ["T"]},
    "offsetTable": {f"{topic}@{group}": dict(queues) for (topic, group), queues in OFFSETS.items()},
    "pullOffsetTable": {"T@pull": {0: 9}},
}


def test_what_is_written_is_what_a_broker_reads(tmp_path: Path) -> None:
    (tmp_path / CONFIG).mkdir()
    content = consumer_offsets_json(OFFSETS, DataVersion(1, 2, 3))
    (tmp_path / CONFIG / "consumerOffset.json").write_bytes(content)
    assert read_config(str(tmp_path), "consumerOffset.json").value == OFFSETS
    assert data_version(content.decode()) == (1, 2, 3)


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
    assert content.decode().split("\n") == [
        "{",
        '\t"dataVersion": {',
        '\t\t"counter": 2,',
        '\t\t"stateVersion": 1,',
        '\t\t"timestamp": 3',
        "\t},",
        '\t"offsetTable": {',
        '\t\t"A@g": {',
        '\t\t\t"0": 5',
        "\t\t},",
        '\t\t"名@g": {',
        '\t\t\t"2": 1,',
        '\t\t\t"10": 3',
        "\t\t}",
        "\t}",
        "}",
        "",
    ]


@pytest.mark.parametrize("later", ["resetOffsetTable", "pullOffsetTable", "groupTopicMap"])
def test_other_tables_of_a_torn_file_are_not_read(later: str) -> None:
    text = '{"x":{"S@g":{0:1}},"offsetTable":{"T@g":{0:7},"U@g":{0:"y"}},"LATER":{"T@g":{0:9},"V@g":{0:9}'
    assert offsets_before_tear(text.replace("LATER", later)) == {("T", "g"): {0: 7}}


def test_versions_are_compared_as_the_broker_does() -> None:
    assert DataVersion(1, 0, 0) > DataVersion(0, 9, 9) > DataVersion(0, 8, 99)


def test_before_a_tear_every_number_is_as_it_was_written() -> None:
    text = as_fastjson(DOCUMENT)
    seen = 0
    for cut in range(len(text)):
        found = offsets_before_tear(text[:cut])
        assert all(OFFSETS[key] == queues for key, queues in found.items())
        assert len(found) >= seen
        seen = len(found)
    assert offsets_before_tear(text) == OFFSETS
    assert offsets_before_tear(text[:-40] + "\0" * 40) == OFFSETS


def test_before_a_tear_in_the_table_of_light_groups() -> None:
    light = {("%LMQ%a", "%LMQ%g"): {0: 123}, ("%LMQ%b", "%LMQ%g"): {0: 4567}}
    table = {f"{topic}@{group}": offset for (topic, group), queues in light.items() for offset in queues.values()}
    text = as_fastjson({"lmqOffsetTable": table, **DOCUMENT})
    for cut in range(len(text)):
        assert offsets_before_tear(text[:cut]).items() <= {**OFFSETS, **light}.items()
    assert offsets_before_tear(text) == {**OFFSETS, **light}


def test_noise_is_no_offset() -> None:
    chance = random.Random(1)
    text = as_fastjson(DOCUMENT)
    for _ in range(500):
        place = chance.randrange(len(text))
        noise = "".join(chr(chance.randrange(1, 0x250)) for _ in range(8))
        offsets_before_tear(text[:place] + noise + text[place + 8 :])
    assert offsets_before_tear("") == {}
    assert offsets_before_tear('{"offsetTable":{"T@g":{0:7},"offsetTable":{},"U@g":{0:1}') == {
        ("T", "g"): {0: 7},
        ("U", "g"): {0: 1},
    }
    assert offsets_before_tear('{"offsetTable":{"T@g":{0:x}}') == {}


def test_the_revive_group_commits_the_last_message_read() -> None:
    assert (highest_committed("readers", 5), highest_committed(REVIVE_GROUP, 5)) == (5, 4)


def test_a_name_that_no_topic_can_have_is_looked_at_once() -> None:
    begun = time.monotonic()
    assert known_groups(["%RETRY%" + "_" * 300_000], []) == ["_" * 300_000]
    assert time.monotonic() - begun < 1
