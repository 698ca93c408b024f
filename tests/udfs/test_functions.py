"""SQL functions."""

from __future__ import annotations

import tracemalloc
import zlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import java_rules

from udfs.functions import scalar


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


@given(st.lists(st.none() | st.text(), max_size=8))
def test_hashes_are_javas(texts: list[str | None]) -> None:
    texts = [text and text.encode("utf-8", "replace").decode() for text in texts]
    assert scalar.java_hash(pa.array(texts, pa.string())).to_pylist() == [
        None if text is None else java_rules.hash_code(text) for text in texts
    ]


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
