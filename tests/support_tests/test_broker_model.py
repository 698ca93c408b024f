"""Oracles: the model of a broker, and what oracles import."""

from __future__ import annotations

import ast
import struct
import zlib
from pathlib import Path

import pytest
from support import golden
from support.broker_check import (
    RECOVERY,
    ByteBuffer,
    CheckResult,
    check_message_and_return_size,
    string_to_message_properties,
)
from support.broker_index import IndexFile
from support.broker_model import Broker, dispatch, read_segments, walk
from support.broker_settings import BrokerSettings
from support.golden_differences import index_differences, queue_differences
from support.store_builder import BLANK, ROLLBACK, Embedded, LogBuilder, Message, encode_record

# -------------------------------------------------------------------------------------------------------- store builder
# Records that a broker 4.9.8 wrote.
RECORD_V4 = bytes.fromhex(
    "00000086daa320a73610a686000000000000000700000000000000000000000000000000000000000000018bcfe568000a010203000010e1"
    "000001a1f852deb0c0a8000900002a9f0000000200000000000000000000000568656c6c6f06546f7069634100204b455953016b31206b32"
    "02554e49515f4b455901553002544147530154616741"
)
RECORD_V6 = bytes.fromhex(
    "00000096daa320a7770659160000000000000007000000000000000300000000000003ab000000300000018bcfe5680020010db800000000"
    "000000000000000100000001000001a1f852ded2fe8000000000000000000000000000020000000200000002000000000000000000000002"
    "763606546f70696341001b4b455953016b3602554e49515f4b455901553602544147530154"
    "36"
)


def check(record: bytes, version: tuple[int, ...] = (5, 3, 3)) -> CheckResult:
    return check_message_and_return_size(ByteBuffer(record, 0, len(record)), BrokerSettings(version=version), RECOVERY)


def test_a_record_of_a_broker() -> None:
    given = {"topic": "TopicA", "trailing_separator": False, "flag": 7, "reconsume_times": 2}
    v4 = Message(**given, body=b"hello", keys="k1 k2", uniq_key="U0", tags="TagA", store_timestamp=1795167542960)  # type: ignore[arg-type]
    assert encode_record(v4, 0) == RECORD_V4
    keys = {"keys": "k6", "uniq_key": "U6", "tags": "T6"}
    hosts = {"born_host": ("2001:db8::1", 1), "store_host": ("fe80::2", 2)}
    v6 = Message(**given, **keys, **hosts, queue_offset=3, body=b"v6", store_timestamp=1795167542994)  # type: ignore[arg-type]
    assert encode_record(v6, 939) == RECORD_V6


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores("property-crc") + golden.stores("long-topic"), ids=str)
def test_records_of_brokers_are_written_again(store: golden.GoldenStore) -> None:
    """Every record of the store, taken apart by formats of this test, comes out of the builder byte by byte."""
    segments = read_segments(golden.unpack(store))
    size = next(iter(segments.values()))
    for offset, length in golden.chain(golden.unpack(store), store).items():
        base = offset - offset % len(size)
        record = segments[base][offset - base : offset - base + length]
        assert encode_record(_taken_apart(record), offset) == record


def _taken_apart(record: bytes) -> Message:
    _, magic, crc, queue_id, flag, queue_offset, _, sys_flag = struct.unpack_from(">iIiiiqqi", record)
    born = 20 if sys_flag & 0x10 else 8
    store = 20 if sys_flag & 0x20 else 8
    (born_timestamp,) = struct.unpack_from(">q", record, 40)
    (store_timestamp,) = struct.unpack_from(">q", record, 48 + born)
    position = 56 + born + store
    reconsume_times, prepared, body_length = struct.unpack_from(">iqi", record, position)
    position += 16
    body = record[position : position + body_length]
    position += body_length
    topic_width = 2 if magic == 0xDAA320AB else 1
    topic_length = int.from_bytes(record[position : position + topic_width], "big")
    position += topic_width
    topic = record[position : position + topic_length]
    properties = record[position + topic_length + 2 :]
    has_crc = b"__CRC32#" in properties
    assert crc == zlib.crc32(body) & 0x7FFFFFFF

    def host(data: bytes) -> tuple[str, int]:
        address = ".".join(str(byte) for byte in data[:4]) if len(data) == 8 else data[:16].hex(":", 2)
        return address, int.from_bytes(data[-4:], "big")

    return Message(
        topic=topic, queue_id=queue_id, queue_offset=queue_offset, body=body,
        properties=properties[:-20] if has_crc else properties, property_crc=has_crc, flag=flag, sys_flag=sys_flag,
        born_timestamp=born_timestamp, born_host=host(record[48 : 48 + born]),
        store_timestamp=store_timestamp, store_host=host(record[56 + born : 56 + born + store]),
        reconsume_times=reconsume_times, prepared_transaction_offset=prepared,
    )  # fmt: skip


@pytest.mark.parametrize(("left", "rolls"), [(9, False), (8, False), (7, True), (1, True), (0, True)])
def test_eight_bytes_stay_free_after_a_record(left: int, rolls: bool) -> None:
    log = LogBuilder(segment_size=512)
    first = log.message(body=b"x")
    overhead = first.size - 1
    second = log.message(body=bytes(512 - first.size - overhead - left))
    if rolls:
        assert second.offset == 512
        assert struct.unpack_from(">iI", log.segments[0], first.end) == (512 - first.end, BLANK)
    else:
        assert (second.offset, second.end) == (first.end, 512 - left)


def test_a_batch_stays_in_one_segment() -> None:
    log = LogBuilder(segment_size=512)
    log.message(body=bytes(200))
    assert [placed.offset >= 512 for placed in log.batch([Message(), Message(), Message()])] == [True] * 3
    with pytest.raises(ValueError, match="fit in no segment"):
        log.message(body=bytes(512))


def test_counters_are_the_brokers() -> None:
    log = LogBuilder(base=131072)
    given: list[dict[str, int]] = [{}, {"sys_flag": ROLLBACK}, {}, {"queue_id": 1, "queue_offset": 7}, {"queue_id": 1}]
    offsets = [log.message(topic="A", **fields).message.queue_offset for fields in given]
    assert offsets == [0, 0, 1, 7, 8]
    log.delete_topic("A")
    assert log.message(topic="A").message.queue_offset == 0
    assert log.records[0].offset == 131072
    stamps = [placed.message.store_timestamp or 0 for placed in log.records]
    assert stamps == sorted(set(stamps))


def test_truncation_keeps_old_bytes_after_the_new_end() -> None:
    log = LogBuilder(segment_size=1024)
    placed = [log.message(topic="A", body=bytes([n]) * 100) for n in range(12)]
    assert len(log.segments) > 1
    log.truncate(placed[2].offset)
    assert list(log.segments) == [0]
    assert log.message(topic="A", body=bytes(10)).message.queue_offset == 2
    old = placed[3].offset
    assert log.segments[0][old : old + placed[3].size] == encode_record(placed[3].message, old)
    assert [request.commit_log_offset for request in walk(log.segments, small())] == [
        placed.offset for placed in log.records
    ]
    assert [stale.offset for stale in log.stale_records] == [p.offset for p in placed[3:] if p.end <= 1024]
    log.blank()
    log.message(topic="A")
    assert [request.consume_queue_offset for request in walk(log.segments, small())] == [0, 1, 2, 3]


def small() -> BrokerSettings:
    return BrokerSettings(mapped_file_size_commit_log=1024)


@pytest.mark.parametrize("rejoins", [False, True])
def test_embedded_copies_stand_where_they_say(rejoins: bool) -> None:
    log = LogBuilder()
    log.message()
    body = Embedded((Message(body=b"one", tags="x"), Message(body=b"two")), lead=b"lead", rejoins=rejoins)
    placed = log.message(topic="Outer", tags="tag", body=body)
    data = log.segments[0]
    copies = [
        position
        for position in range(placed.offset + 1, placed.end)
        if data[position + 4 : position + 8] == b"\xda\xa3\x20\xa7"
        and int.from_bytes(data[position + 28 : position + 36], "big") == position
    ]
    assert len(copies) == 2
    sizes = [int.from_bytes(data[position : position + 4], "big") for position in copies]
    assert (copies[1] + sizes[1] == placed.end) is rejoins
    for position, size in zip(copies, sizes, strict=True):
        assert check(data[position : position + size]).success
    assert check(data[placed.offset : placed.end]).success


def test_a_ghost_is_a_copy_that_carries_its_old_offset() -> None:
    log = LogBuilder()
    first = log.message(topic="A")
    at = log.foreign_record(first)
    last = log.message(topic="A")
    assert (at, last.offset) == (first.end, first.end + first.size)
    settings = BrokerSettings()
    assert [request.commit_log_offset for request in walk(log.segments, settings)] == [first.offset, last.offset]
    both = [request.commit_log_offset for request in walk(log.segments, settings, step_over_foreign=False)]
    assert both == [first.offset, first.offset, last.offset]
    # the broker dispatches it, and its queues and index drop it: both ways give one result
    assert dispatch(log.segments, settings).files == dispatch(log.segments, settings, step_over_foreign=False).files


@pytest.mark.parametrize(
    ("lie", "size_known"),
    [
        ({"total_size": 10}, True),
        ({"total_size": 0}, False),
        ({"total_size": -1}, False),
        ({"total_size": 1 << 30}, False),
        ({"magic": 1}, False),
        ({"body_crc": 7}, False),
        ({"body_length": -4}, False),
        ({"topic_length": -1}, False),
        ({"properties_length": -1, "tags": "t"}, True),
        ({"properties": {"INNER_NUM": "x", "INNER_BASE": "0"}}, False),
        ({"topic": "SCHEDULE_TOPIC_XXXX", "properties": {"DELAY": "1_0"}}, False),
    ],
)
def test_lies_are_seen_by_the_brokers_check(lie: dict[str, object], size_known: bool) -> None:
    record = encode_record(Message(body=b"body"), 0)
    assert check(record).success
    result = check(encode_record(Message(**({"body": b"body"} | lie)), 0))  # type: ignore[arg-type]
    assert not result.success
    assert (result.size > 0) is size_known, result.reason


def test_negative_lengths_count_as_zero() -> None:
    assert check(encode_record(Message(body_length=-4, properties=b"", properties_length=-1), 0)).success


def test_a_log_that_ends_where_an_old_record_begins_is_settled() -> None:
    log = LogBuilder()
    placed = [log.message(body=bytes(30)) for _ in range(3)]
    log.truncate(placed[1].offset)
    assert log.end_offset == placed[1].offset
    log.settle()
    assert [request.commit_log_offset for request in walk(log.segments, BrokerSettings())] == [
        placed.offset for placed in log.records
    ]
    assert log.fill(100) is not None
    assert log.remaining == 100
    assert log.fill(50) is None


def test_heads_preallocation_and_files(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1024)
    for _ in range(30):
        log.message(body=bytes(100))
    bases = list(log.segments)
    log.remove_head(2)
    log.preallocate()
    root = log.write(tmp_path)
    assert read_segments(root) == log.segments
    assert list(log.segments) == [*bases[2:], bases[-1] + 1024]
    assert log.records[0].offset == bases[2]
    assert min(path.name for path in (root / "commitlog").iterdir()) == f"{2048:020d}"


# --------------------------------------------------------------------------------------------------------- broker model
def settings_of(store: golden.GoldenStore) -> BrokerSettings:
    topics, bitmap = frozenset(store.entry.get("batch_topics", ())), store.entry.get("filter_bitmap_bytes", 0)
    return BrokerSettings.of(store.version, store.settings, batch_topics=topics, filter_bitmap_bytes=bitmap)


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


# --------------------------------------------------------------------------------------------------------- independence
SUPPORT = Path(__file__).resolve().parent.parent / "support"
ORACLES = (
    "broker_check", "broker_index", "broker_model", "broker_settings", "entry_log", "golden", "golden_differences",
    "java_rules", "messages_model", "offsets_model", "store_builder", "timer_model", "views_model",
)  # fmt: skip


def imported(module: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse((SUPPORT / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("oracle", ORACLES)
def test_an_oracle_imports_nothing_of_the_program_and_only_oracles(oracle: str) -> None:
    names = imported(oracle)
    assert {name.partition(".")[0] for name in names} & {"storeformat", "udfs", "jobs"} == set()
    assert {name.split(".")[1] for name in names if name.startswith("support.")} <= set(ORACLES)
