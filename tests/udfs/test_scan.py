"""The scan of a split, and functions for SQL."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reading import read_segments
from support.store_builder import ROLLBACK, LogBuilder, Message

from storeformat.errors import DamagedLog, RecordDefect, WriteFailed
from storeformat.log.segments import ChainEnd, Segment, Split, plan_splits
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.salvage.evidence import Neighbours, Side
from storeformat.salvage.survey import Broken
from udfs import failures
from udfs.failures import Failure, FailuresAsRows
from udfs.functions import scalar
from udfs.log import scan as scanning
from udfs.log.log_copies import MadeSegment, SharedRange, compare_copies, make_segment, ranges_by_segment
from udfs.log.scan import Dispatched, ScanTask, SplitScan, StoreTimes
from udfs.log.staged_runs import times_path
from udfs.log.survey import SurveyTask


# ---------------------------------------------------------------------------------------------------------- scan
def a_log() -> LogBuilder:
    log = LogBuilder()
    log.message(topic="A", queue_id=1, keys="x y", store_timestamp=1_700_000_000_500)
    log.message(topic="B", body=b"half", sys_flag=ROLLBACK)
    log.message(topic="A", queue_id=1, store_timestamp=1_700_000_000_100)
    return log


def scan(log: LogBuilder, **task: object) -> SplitScan:
    (found,) = read_segments(log.segments, 1 << 30, **{"with_entries": True, **task}).scans
    return found


def test_the_totals_of_a_split() -> None:
    log = a_log()
    found, sizes = scan(log), [record.size for record in log.records]
    assert (found.records, found.record_bytes, found.staged.units.count, found.staged.entries.count) == (
        3,
        sum(sizes),
        2,
        2,
    )
    assert found.dispatched == Dispatched(sizes[0] + sizes[1], sizes[0] + sizes[1], 0)
    assert (found.staged.units.offset_sum, found.staged.entries.offset_sum) == (sizes[0] + sizes[1], 0)
    times = (1_700_000_000_500, 1_700_000_000_501, 1_700_000_000_100)
    assert found.times == StoreTimes(first=times[0], last=times[2], recent=times, latest=times[1])
    assert (found.report.start, found.report.end, found.head_bytes) == (0, sum(sizes), 0)


@pytest.mark.parametrize("split_size", [pytest.param(1, marks=pytest.mark.thorough), 100, 1000])
def test_each_record_is_in_one_split(split_size: int) -> None:
    log = a_log()
    scans = read_segments(log.segments, split_size, with_entries=True).scans
    assert sum(one.records for one in scans) == 3
    for one in scans:
        split = one.report.split
        inside = [record for record in log.records if split.start <= record.offset < split.stop]
        assert (one.records, one.record_bytes) == (len(inside), sum(record.size for record in inside))


def test_a_foreign_record_is_stepped_over_and_told() -> None:
    log = a_log()
    offset = log.foreign_record(log.records[0])
    found = scan(log)
    assert found.special.foreign == ((offset, log.records[0].size),)
    (ref,) = found.special.foreign_refs
    assert (ref.offset, ref.topic, ref.queue_id, ref.queue_offset) == (offset, b"A", 1, 0)
    assert found.records == 3
    assert (found.dispatched.last, found.dispatched.last_unit) == (offset, log.records[2].offset)


def test_a_cluster_must_see_the_staging_directory(tmp_path: object) -> None:
    task = ScanTask(f"{tmp_path}/gone", DecodeRules(), DispatchRules(()))
    with pytest.raises(WriteFailed, match="not every machine"):
        list(task(iter([])))


@pytest.mark.parametrize(("data", "zero"), [(bytes(300), True), (b"x" * 300, False)])
def test_a_split_without_any_record(tmp_path: Path, data: bytes, zero: bool) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(200) + data + bytes(524))
    split = Split(3, Segment(str(path), 0, 1024), 200, 500, 1024)
    (found,) = ScanTask("", DecodeRules(), DispatchRules(()))(iter([split]))
    report = found.report
    assert (report.split, report.start, report.end, report.rest_is_zero) == (split, None, 200, zero)
    assert (report.ended, report.defect) == (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)


def test_staged_files_have_names_of_their_own(tmp_path: Path) -> None:
    """Of each split, however often it is read."""
    log = a_log()
    (tmp_path / "staging").mkdir()
    (segment,) = (log.write(tmp_path) / "commitlog").iterdir()
    task = ScanTask(str(tmp_path / "staging"), DecodeRules(), DispatchRules(()), with_times=True)
    splits = plan_splits([Segment(str(segment), 0, segment.stat().st_size)], 150)
    names = []
    for found in task(iter([*splits, *splits])):
        times = times_path(found.staged.units.path) if found.staged.units.path else ""
        for path in (found.staged.units.path, times, found.staged.entries.path):
            names.append(Path(path).name)
            assert not path or names[-1].startswith(f"split-{found.report.split.number:06d}-")
    names = [name for name in names if name]
    assert len(set(names)) == len(names) == len(list((tmp_path / "staging").iterdir())) > 6


def test_queues_of_all_kinds_are_told() -> None:
    """Two messages at 5 and one at 7 of a batch queue, which is cut out by a filter; and what is no batch queue."""
    log = LogBuilder()
    log.queue_offsets["B", 4] = 5
    log.inner_batch(Message(topic="B", queue_id=4), 2)
    single = log.message(topic="B", queue_id=4)
    log.message(topic="B", queue_id=1)
    log.message(topic="A", queue_id=2)
    rules = DispatchRules((), batch_topics=frozenset({b"B"}))
    everything = scan(log, dispatch_rules=rules)
    assert everything.staged.queues() == {("B", 4), ("B", 1), ("A", 2)}
    assert (everything.staged.batches.count, everything.staged.units.count) == (3, 1)
    assert everything.dispatched.last_unit == log.records[-1].offset
    some = scan(log, dispatch_rules=rules, topics=(TopicFilter("B", 4),))
    assert (some.staged.queues(), some.staged.topics, some.staged.batches.count) == ({("B", 4)}, (b"B", b"A"), 2)
    assert some.staged.batch_runs.messages.tolist() == [3]
    assert some.staged.batches.offset_sum == log.records[0].offset + single.offset
    assert some.dispatched.last_unit == log.records[-1].offset
    last = log.message(topic="B")
    assert scan(log, dispatch_rules=rules).dispatched == Dispatched(last.offset, last.offset, -1)


def test_what_a_repair_put_in_the_place_of_lost_records_is_told() -> None:
    """Their topic is as long as there was room for it; they are rolled back, which a producer's own message is not."""
    log = LogBuilder()
    log.message(topic="A")
    fillers = [log.message(topic="rmq_sys_lost"[:length], sys_flag=ROLLBACK) for length in (12, 1)]
    log.message(topic="rmq_sys_lost")
    log.message(topic="other", sys_flag=ROLLBACK)
    assert scan(log).special.fillers == tuple((filler.offset, filler.size) for filler in fillers)


def test_of_many_foreign_records_some_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "LISTED", 2)
    log = a_log()
    offsets = [log.foreign_record(log.records[0]) for _ in range(3)]
    for block_size in (200, 1 << 20):
        monkeypatch.setattr(scanning, "BLOCK_SIZE", block_size)
        found = scan(log)
        assert [offset for offset, _ in found.special.foreign] == offsets
        assert [ref.offset for ref in found.special.foreign_refs] == offsets[:2]


# -------------------------------------------------------------------------------------------------- find records
@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(4096, base=8192)
    log.message(topic="A", queue_id=3, body=b"first")
    log.message(topic="B", queue_id=5, body=b"the second")
    log.foreign_record(log.records[0])
    log.message(topic="A", queue_id=7)
    return log


def split_of(log: LogBuilder, tmp_path: Path, first: int | None, stop: int) -> Split:
    path = tmp_path / f"{8192:020d}"
    path.write_bytes(log.segments[8192])
    return Split(0, Segment(str(path), 8192, 4096), 8192, stop, stop, first)


def a_break(tmp_path: Path) -> tuple[Broken, int]:
    """Returns a segment whose second record has lost its head, and where the third begins."""
    log = LogBuilder(4096)
    for _ in range(4):
        log.message(topic="T", body=b"b" * 50)
    content = bytearray(log.segments[0])
    begin, end = log.records[1].offset, log.records[1].end
    content[begin : begin + 40] = b"\xff" * 40
    path = tmp_path / f"{0:020d}"
    path.write_bytes(content)
    near = Neighbours(Side({(b"T", 0): 1}, 1_700_000_000_001))
    return Broken(Segment(str(path), 0, 4096), begin, RecordDefect.ILLEGAL_MAGIC, 4096, near), end


def test_what_follows_the_damage_survives(tmp_path: Path) -> None:
    broken, survivor = a_break(tmp_path)
    (found,) = SurveyTask(DecodeRules())(iter([broken]))
    assert found.pieces[0][0] == survivor
    assert found.gaps[0].begin == broken.start
    assert found.broken == broken


# ---------------------------------------------------------------------------------------------------- log copies
def segment(path: Path, content: bytes) -> Segment:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return Segment(str(path), 0, len(content))


def test_bodies_that_differ_belong_to_two_logs(tmp_path: Path) -> None:
    log, other = LogBuilder(1024), LogBuilder(1024)
    for number in range(2):
        log.message(body=b"mine")
        other.message(body=b"mine" if number == 0 else b"mink")
    one, two = segment(tmp_path / "one", log.segments[0]), segment(tmp_path / "two", other.segments[0])
    first = next(at for at in range(1024) if log.segments[0][at] != other.segments[0][at])
    (difference,) = compare_copies(iter([SharedRange(one, two, 0, log.end_offset)]))
    assert difference == first


def test_a_segment_of_its_own_bytes_and_those_of_a_copy(tmp_path: Path) -> None:
    own, copy = segment(tmp_path / "own", b"a" * 60), segment(tmp_path / "copy", b"b" * 100)
    short = replace(own, size=100, missing=40)
    path = tmp_path / "made" / "0"
    make_segment(MadeSegment(short, str(path), ((10, 20, copy), (70, 80, copy))))
    assert path.read_bytes() == b"a" * 10 + b"b" * 10 + b"a" * 40 + bytes(10) + b"b" * 10 + bytes(20)


def test_ranges_are_cut_at_the_ends_of_a_segment() -> None:
    assert ranges_by_segment([(0, 5), (8, 12), (15, 30), (20, 21)], Segment("x", 10, 10)) == [(10, 12), (15, 20)]


def test_properties_that_differ_without_a_crc_show_no_side_that_is_right(tmp_path: Path) -> None:
    log = LogBuilder(1024)
    record = log.message(body=b"body", keys="k")
    other = bytearray(log.segments[0])
    other[record.end - 2] ^= 1
    sides = segment(tmp_path / "one", log.segments[0]), segment(tmp_path / "other", bytes(other))
    (difference,) = compare_copies(iter([SharedRange(*sides, 0, log.end_offset)]))
    assert difference == record.end - 2


# ------------------------------------------------------------------------------------------------------------- failures
def task(items: Iterator[int | Exception]) -> Iterator[int]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


FULL = OSError(28, "No space left on device", "/full/x")
DAMAGED = DamagedLog("bad size", offset=7, advice="salvage")


@pytest.mark.parametrize("error", [FULL, DAMAGED, WriteFailed("changed")])
def test_a_failure_is_the_last_row_and_survives_the_way(error: Exception) -> None:
    one, failure = pickle.loads(pickle.dumps(list(FailuresAsRows(task, attempts=1)(iter([1, error, 2])))))
    assert (one, type(failure), type(failure.error)) == (1, Failure, type(error))
    assert (str(failure.error), vars(failure.error)) == (str(error), vars(error))


def test_a_defect_stays_an_exception() -> None:
    with pytest.raises(KeyError):
        list(FailuresAsRows(task, attempts=1)(iter([KeyError("x")])))


@pytest.mark.parametrize("error", [FULL, WriteFailed("changed")])
def test_what_could_be_read_elsewhere_is_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        list(FailuresAsRows(task, attempts=4)(iter([error])))
    monkeypatch.setattr(failures, "_attempt", lambda: 4)
    assert list(FailuresAsRows(task, attempts=4)(iter([error]))) == [Failure(error)]  # type: ignore[arg-type]
    assert [type(row) for row in FailuresAsRows(task, attempts=9)(iter([DAMAGED]))] == [Failure]


# -------------------------------------------------------------------------------------------------------- scalar
def strings(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def ints(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def utc(*arguments: int) -> datetime:
    return datetime(*arguments, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


# Nulls have to come out as nulls, wherever they stand.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "java_hash": ("polygenelubricants",),
    "index_key_hash": ("TopicT", "U0"),
    "offset_msg_id": ("192.168.0.9:10911", 377),
    "offset_msg_id_parts": ("C0A8000900002A9F0000000000000000",),
    "uniq_key_parts": ("0ABFD8F5B74873D16E9368B1AD5B004D",),
    "uniq_key_time": ("0ABFD8F5B74873D16E9368B1AD5B004D", utc(2024, 5, 30), 0),
    "host_text": (bytes.fromhex("c0a8000900002a9f"),),
    "properties_map": (b"KEYS\x01k1 k2\x02",),
    "uncompressed_body": (b"body", 0),
    "trace_messages": (b"Recall\x011\x01r\x01g\x01t\x01m\x01true\x02",),
}
PARTS = ("ip", "mac", "pid", "class_loader", "span", "counter")
RESULTS: dict[str, Any] = {
    "java_hash": -2147483648,
    "index_key_hash": 1902675303,
    "offset_msg_id": "C0A8000900002A9F0000000000000179",
    "offset_msg_id_parts": {"host": "192.168.0.9", "port": 10911, "commit_log_offset": 0},
    "uniq_key_parts": dict(zip(PARTS, ("10.191.216.245", None, 0xB748, 0x73D16E93, 0x68B1AD5B, 0x4D), strict=True)),
    "uniq_key_time": utc(2024, 5, 1) + timedelta(milliseconds=0x68B1AD5B),
    "host_text": "192.168.0.9:10911",
    "properties_map": [("KEYS", "k1 k2")],
    "uncompressed_body": b"body",
}
TYPES = {int: pa.int32(), str: pa.string(), bytes: pa.binary(), datetime: pa.timestamp("us", "UTC")}


def test_every_function_is_tried_with_nulls() -> None:
    assert set(ARGUMENTS) == set(scalar.FUNCTIONS)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_null_in_null_out(name: str) -> None:
    function, _ = scalar.FUNCTIONS[name]
    values = ARGUMENTS[name]
    rows = [values] + [tuple(None if i == at else v for i, v in enumerate(values)) for at in range(len(values))]
    columns = [
        pa.array(column, TYPES[type(value)]) for column, value in zip(zip(*rows, strict=True), values, strict=True)
    ]
    if name == "offset_msg_id":
        columns[1] = columns[1].cast(pa.int64())
    result = function(*columns)
    assert result.is_valid().to_pylist() == [True] + [False] * len(values)
    if name in RESULTS:
        assert result[0].as_py() == RESULTS[name]
    empty = function(*(column.slice(0, 0) for column in columns))
    assert len(empty) == 0
    assert empty.type == result.type
    moved = function(*(pa.concat_arrays([column, column]).slice(len(rows)) for column in columns))
    assert moved.equals(result)


def test_a_text_that_is_no_utf_8_has_no_form() -> None:
    odd = pa.array([b"\xff"]).view(pa.string())
    assert scalar.offset_msg_id(odd, pa.array([5])).to_pylist() == [None]
    assert scalar.offset_msg_id_parts(odd).to_pylist() == [None]
    assert scalar.uniq_key_parts(odd).to_pylist() == [None]
    assert scalar.uniq_key_time(odd, pa.array([utc(2024, 5, 30)]), ints(0)).to_pylist() == [None]


def test_offset_message_ids_both_ways() -> None:
    hosts, offsets = strings("[fe80::2]:2", "nonsense", "1.2.3.4:x"), pa.array([939, 1, 2])
    ids = scalar.offset_msg_id(hosts, offsets).to_pylist()
    assert ids == ["FE8000000000000000000000000000020000000200000000000003AB", None, None]
    parts = scalar.offset_msg_id_parts(strings(*ids, "12", "Z" * 32)).to_pylist()
    assert parts == [{"host": "fe80::2", "port": 2, "commit_log_offset": 939}, *[None] * 4]


def test_unique_keys_of_grpc_clients_name_a_mac_address() -> None:
    key = "01" + "0A1B2C3D4E5F" + "1F90" + f"{86400:08X}" + f"{7:08X}"
    (parts,) = scalar.uniq_key_parts(strings(key)).to_pylist()
    assert parts == dict(zip(PARTS, (None, "0a:1b:2c:3d:4e:5f", 0x1F90, None, 86400, 7), strict=True))
    near = pa.array([utc(2030, 1, 1)], pa.timestamp("us", "UTC"))
    assert scalar.uniq_key_time(strings(key), near, ints(0)).to_pylist() == [utc(2021, 1, 2)]


def test_the_time_of_a_unique_key_takes_the_month_that_is_near() -> None:
    key = "7F0000010001" + "00000000" + f"{1000:08X}" + "0000"  # one second into a month
    near = pa.array([utc(2024, 2, 29, 23, 59), utc(2024, 3, 1), utc(2024, 12, 31, 23)], pa.timestamp("us", "UTC"))
    found = scalar.uniq_key_time(strings(key, key, key), near, ints(0, 480, 0)).to_pylist()
    assert found == [
        utc(2024, 3, 1, 0, 0, 1),
        utc(2024, 2, 29, 16, 0, 1),  # March had begun eight hours ago in the client's zone
        utc(2025, 1, 1, 0, 0, 1),
    ]


def test_hosts_as_stored() -> None:
    hexadecimal = ("0a010203000010e1", "20010db8" + "00" * 11 + "01" + "00000001", "", "78" * 9)
    stored = [bytes.fromhex(text) for text in hexadecimal]
    texts = scalar.host_text(pa.array(stored, pa.binary())).to_pylist()
    assert texts == ["10.1.2.3:4321", "[2001:db8::1]:1", None, None]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"a\x011", [("a", "1")]),
        (b"a\x011\x02a\x012\x02", [("a", "2")]),
        (b"a\x011\x012\x02b\x01\x02\x01c\x02d\x02", [("a", "1\x012")]),
        ("标签\x01😀\x02".encode(), [("标签", "😀")]),
        (b"k\x01\xed\xa0\x80\x02", [("k", "\ufffd")]),
    ],
)
def test_properties_by_the_brokers_rules(raw: bytes, expected: list[tuple[str, str]]) -> None:
    assert scalar.properties_map(pa.array([raw], pa.binary())).to_pylist() == [expected]


def test_bodies_are_uncompressed_as_the_flags_say() -> None:
    stored = [b"plain", zlib.compress(b"body"), zlib.compress(b"body"), b"no zlib", None]
    found = scalar.uncompressed_body(pa.array(stored, pa.binary()), ints(0x0, 0x1, 0x301, 0x1, 0x0)).to_pylist()
    assert found == [b"plain", b"body", b"body", None, None]


def test_bodies_cannot_ask_for_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "MOST_BYTES_A_BATCH", 2_500)
    stored = [zlib.compress(bytes(1_000)), bytes(9_000), *[zlib.compress(bytes(1_000))] * 2, zlib.compress(bytes(500))]
    found = scalar.uncompressed_body(pa.array(stored, pa.binary()), ints(1, 0, 1, 1, 1)).to_pylist()
    assert [None if body is None else len(body) for body in found] == [1_000, 9_000, 1_000, None, 500]


# -------------------------------------------------------------------------------------------------------- traces
TIME = datetime.fromtimestamp(1700000000, timezone.utc).replace(microsecond=123000)
AT = {"time": TIME, "region": "DefaultRegion", "group_name": "group"}
SENT = {**AT, "topic": "TopicA", "msg_id": "MSGID"}
STORED = {**SENT, "tags": "tag", "keys": "k1 k2", "store_host": "1.2.3.4:10911", "message_type": "Delay_Msg"}
PUB = {"step": "Pub", **STORED, "body_size": 5, "cost_ms": 17, "offset_msg_id": "OFFID", "success": True}
SUB_BEFORE = {"step": "SubBefore", **AT, "request_id": "REQ"}
SUB_AFTER = {"step": "SubAfter", "request_id": "REQ", "msg_id": "MSGID", "cost_ms": 17, "success": False,
             "keys": "k1 k2", "context_code": 3}  # fmt: skip
ENDED = {"transaction_id": "TXID", "transaction_state": "COMMIT_MESSAGE", "from_transaction_check": True}


def steps(text: str) -> list[dict[str, Any]]:
    body = text.replace("|", "\x01").replace("$", "\x02").encode()
    (found,) = scalar.trace_messages(pa.array([body], pa.binary())).to_pylist()
    return [{name: value for name, value in step.items() if value is not None} for step in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pub|1700000000123|DefaultRegion|group|TopicA|MSGID|tag|k1 k2|1.2.3.4:10911|5|17|3|OFFID|true$", [PUB]),
        ("Pub|1700000000123|DefaultRegion|group|TopicA|MSGID|tag|k1 k2|1.2.3.4:10911|5|17|3|OFFID|true|new$", [PUB]),
        (
            ("SubBefore|1700000000123|DefaultRegion|group|REQ|MSGID|2|k1 k2$"
             "SubBefore|1700000000123|DefaultRegion|group|REQ|MSGID2|0|$"),
            [SUB_BEFORE | {"msg_id": "MSGID", "retry_times": 2, "keys": "k1 k2"},
             SUB_BEFORE | {"msg_id": "MSGID2", "retry_times": 0}],
        ),
        ("SubAfter|REQ|MSGID|17|false|k1 k2|3$", [SUB_AFTER]),  # 4.6.1
        (
            "SubAfter|REQ|MSGID|17|false|k1 k2|3|1700000000123|group$",
            [SUB_AFTER | {"time": TIME, "group_name": "group"}],
        ),
        (
            ("EndTransaction|1700000000123|DefaultRegion|group|TopicA|MSGID|tag|k1 k2|1.2.3.4:10911|3|TXID|"
             "COMMIT_MESSAGE|true$"),
            [{"step": "EndTransaction", **STORED, **ENDED}],
        ),
        ("Recall|1700000000123|DefaultRegion|group|TopicA|MSGID|true$", [{"step": "Recall", **SENT, "success": True}]),
        ("Unknown|1|2$Pub|too|short$", []),
        ("", []),
    ],
)  # fmt: skip
def test_steps_of_real_clients(text: str, expected: list[dict[str, Any]]) -> None:
    assert steps(text) == expected


@pytest.mark.parametrize(
    ("number", "kind"), [("0", "Normal_Msg"), ("4", "Order_Msg"), ("5", None), ("-1", None), ("x", None), ("", None)]
)
def test_kinds_of_messages_have_numbers(number: str, kind: str | None) -> None:
    (step,) = steps(f"Pub|1700000000123|r|g|T|M|t|k|h|5|17|{number}|true$")
    assert step.get("message_type") == kind


def test_many_small_steps_take_memory_for_their_columns_alone() -> None:
    """Each is 16 bytes; as mappings they would take a kilobyte each."""
    steps, empty = b"SubAfter" + b"\x01" * 6 + b"\x02", b""
    tracemalloc.start()
    column = scalar.trace_messages(pa.array([steps * 50_000, None, empty, steps], pa.binary()))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pc.list_value_length(column).to_pylist() == [50_000, None, 0, 1]
    assert most < 25 << 20


@given(
    st.text(alphabet="\x01\x02PubSfterRcal0123456789-x", max_size=60), st.sampled_from(["Pub", "SubAfter", "Recall"])
)
def test_no_text_breaks_it(text: str, kind: str) -> None:
    body = f"{kind}\x01{text}"
    column = scalar.trace_messages(pa.array([body.encode()], pa.binary()))
    assert column.type == pa.list_(scalar.STEP)
    assert {step["step"] for step in column[0].as_py()} <= {"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"}
