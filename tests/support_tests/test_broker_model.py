"""The model of the broker gives the files that real brokers wrote."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support import golden
from support.broker_check import string_to_message_properties
from support.broker_index import IndexFile
from support.broker_model import Broker, dispatch, read_segments, walk
from support.broker_settings import BrokerSettings
from support.golden_differences import index_differences, queue_differences
from support.store_builder import COMMIT, PREPARED, ROLLBACK, LogBuilder


def settings_of(store: golden.GoldenStore) -> BrokerSettings:
    return BrokerSettings.of(
        store.version,
        store.settings,
        batch_topics=frozenset(store.entry.get("batch_topics", ())),
        filter_bitmap_bytes=store.entry.get("filter_bitmap_bytes", 0),
    )


def model_of(store: golden.GoldenStore, *, index_from: int = 0) -> Broker:
    segments = read_segments(golden.unpack(store))
    return dispatch(segments, settings_of(store), until=store.dispatched_up_to, index_from=index_from)


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_the_model_agrees_with_the_broker(store: golden.GoldenStore, tmp_path: Path) -> None:
    model = model_of(store)
    root = model.write(tmp_path / "whole")
    assert queue_differences(golden.unpack(store), root, store) == []
    assert index_differences(golden.unpack(store), root, store) == []
    if store.index_begins_at is not None:
        root = model_of(store, index_from=store.index_begins_at).write(tmp_path / "from")
        assert index_differences(golden.unpack(store), root, store, from_begin=False) == []


def units(model: Broker, file: str) -> list[tuple[int, int, int]]:
    found = list(struct.iter_unpack(">qiq", model.files[file]))
    while found and not any(found[-1]):
        found.pop()
    return found


def entries(file: bytes, slots: int) -> list[tuple[int, int, int, int]]:
    """Key hash, offset, seconds and previous entry, from entry 1 on."""
    count = struct.unpack_from(">i", file, 36)[0]
    return list(struct.iter_unpack(">iqii", file[40 + 4 * slots + 20 : 40 + 4 * slots + 20 * count]))


def test_transactions_go_where_the_broker_sends_them() -> None:
    log = LogBuilder()
    placed = [log.message(uniq_key=f"U{flag}", sys_flag=flag) for flag in (0, PREPARED, COMMIT, ROLLBACK)]
    model = dispatch(log.segments)
    offsets = [record.offset for record in placed]
    assert [unit[0] for unit in units(model, f"consumequeue/TopicTest/0/{0:020d}")] == [offsets[0], offsets[2]]
    assert [entry[1] for entry in entries(model.index_files[0], 100)] == offsets[:3]


def test_a_queue_begins_anew_when_its_offsets_do() -> None:
    log = LogBuilder()
    for _ in range(5):
        log.message()
    log.delete_topic("TopicTest")
    second_life = [log.message().offset for _ in range(3)]
    assert [unit[0] for unit in units(dispatch(log.segments), f"consumequeue/TopicTest/0/{0:020d}")] == second_life


def test_a_gap_shifts_and_a_step_back_is_dropped() -> None:
    log = LogBuilder()
    placed = [log.message(queue_offset=offset).offset for offset in (52, 53, 60, 54, 61, 57)]
    model = dispatch(log.segments)
    found = units(model, f"consumequeue/TopicTest/0/{1000:020d}")
    assert list(model.files) == [f"consumequeue/TopicTest/0/{1000:020d}"]
    # 60 comes too early and takes position 54; 54 itself is then late; 61 takes 55; 57 is early again and takes 56
    kept = [placed[number] for number in (0, 1, 2, 4, 5)]
    assert found[:2] == [(0, 0x7FFFFFFF, 0)] * 2
    assert [unit[0] for unit in found[2:]] == kept


def test_delay_levels() -> None:
    log = LogBuilder()
    for delay in ("3", "99", "0", "+1"):
        log.message(topic="SCHEDULE_TOPIC_XXXX", tags="TagA", properties={"DELAY": delay}, store_timestamp=1_000)
    log.message(topic="Delivered", tags="TagA", properties={"DELAY": "3"}, store_timestamp=1_000)
    codes = [request.tags_code for request in walk(log.segments, BrokerSettings())]
    assert codes == [11_000, 7_201_000, 2598919, 2_000, 2598919]


def test_an_index_file_measures_time_from_its_first_entry_and_that_one_from_the_file_before() -> None:
    log = LogBuilder()
    stamps = [10_000, 12_999, 9_000, 50_000, 50_000 + 1000 * 2**33]
    for number, stamp in enumerate(stamps):
        log.message(topic="T", uniq_key=f"U{number}", store_timestamp=stamp)
    first, second = dispatch(log.segments, BrokerSettings(max_index_num=4)).index_files
    assert [entry[2] for entry in entries(first, 100)] == [0, 2, 0]
    assert [entry[2] for entry in entries(second, 100)] == [(50_000 - 9_000) // 1000, 0x7FFFFFFF]
    assert struct.unpack_from(">qq", second) == (50_000, stamps[4])


def test_an_empty_index_file_follows_a_full_one_once_another_record_comes() -> None:
    log = LogBuilder()
    placed = [log.message(topic="T", uniq_key="U") for _ in range(3)]
    rules = BrokerSettings(max_index_num=4)
    assert len(dispatch(log.segments, rules).index_files) == 1
    log.message(topic="T", sys_flag=ROLLBACK)
    last = dispatch(log.segments, rules).index_files[-1]
    stamp = placed[-1].message.store_timestamp
    assert struct.unpack_from(">qqqqii", last) == (stamp, stamp, placed[-1].offset, placed[-1].offset, 0, 1)
    assert not any(last[40:])


def test_slots_are_counted_once_from_4_7_1_on() -> None:
    for version, count in (((4, 7, 0), 3), ((4, 7, 1), 1)):
        file = IndexFile(slots=[0], max_index_num=10, counts_every_put=version <= (4, 7, 0))
        for number in range(3):
            assert file.put_key(f"T#{number}", number, 1)
        assert file.hash_slot_count == count
        log = LogBuilder()
        for _ in range(3):
            log.message(uniq_key="U")
        (data,) = dispatch(log.segments, BrokerSettings(version=version, max_hash_slot_num=1)).index_files
        assert struct.unpack_from(">i", data, 32) == (count,)


def test_a_damaged_record_costs_a_running_broker_the_segment_and_a_recovering_one_the_rest() -> None:
    log = LogBuilder(segment_size=1024)
    placed = [log.message(body=bytes(200)).offset for _ in range(7)]
    assert [offset // 1024 for offset in placed] == [0, 0, 0, 1, 1, 1, 2]
    rules = BrokerSettings(mapped_file_size_commit_log=1024)
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    segments[0][placed[1] + 4] ^= 0xFF
    damaged = {base: bytes(data) for base, data in segments.items()}
    assert [request.commit_log_offset for request in walk(damaged, rules)] == [placed[0], *placed[3:]]
    assert [request.commit_log_offset for request in walk(damaged, rules, recovery=True)] == placed[:1]


@pytest.mark.parametrize(
    ("text", "scanned", "split"),
    [
        ("a\x01b\x02c\x01d", {"a": "b", "c": "d"}, {"a": "b", "c": "d"}),
        ("a\x01b\x02", {"a": "b"}, {"a": "b"}),
        ("a\x01b\x02a\x01c", {"a": "c"}, {"a": "c"}),
        ("a\x01", {}, {}),
        ("\x01b", {}, {"": "b"}),
        ("\x01bb", {}, {"": "bb"}),
        ("a\x01b\x01c", {"a": "b\x01c"}, {}),
        ("a\x01b\x01", {"a": "b\x01"}, {"a": "b"}),
        ("abc\x02a\x01b", {"a": "b"}, {"a": "b"}),
        ("\x02\x02", {}, {}),
    ],
)
def test_property_parsers_before_and_from_4_9_1(text: str, scanned: dict[str, str], split: dict[str, str]) -> None:
    for version, expected in (((4, 6, 1), split), ((4, 9, 0), split), ((4, 9, 1), scanned), ((5, 5, 0), scanned)):
        assert string_to_message_properties(text, version) == expected
