"""SQL functions on Arrow columns: decode what the store encodes.

``FUNCTIONS`` has the return types; ``jobs.report.views`` registers them with the prefix ``rmq_``, with signatures
and comments in ``jobs/report/sql/functions.sql``. Null or malformed arguments give null: a query over millions of rows
must not end at one odd message key.

Bodies of the trace topic (``RMQ_SYS_TRACE_TOPIC``), from producers and consumers, are text: steps end with 0x02, their
fields are separated by 0x01. Mirrors TraceDataEncoder#encoderFromContextBean; run with the clients of 4.6.1, 4.9.8,
5.1.4, 5.3.3 and 5.5.0, which differ only in brackets.

==============  ===================================================================================================
Pub             time, region, group, topic, msg id, tags, keys, store host, body size, cost, message type,
                [offset message id,] success
SubBefore       time, region, group, request id, msg id, retry times, keys
SubAfter        request id, msg id, cost, success, keys, [context code, [time, group: 4.7 and later]]
EndTransaction  time, region, group, topic, msg id, tags, keys, store host, message type, transaction id, state,
                from a check (4.8 and later)
Recall          time, region, group, topic, msg id, success (5.3 and later)
==============  ===================================================================================================

The msg id is the UNIQ_KEY; a SubBefore and its SubAfter share request id and msg id. Times and costs are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storeformat import message
from storeformat.javacompat import (
    LONG_MAX,
    LONG_MIN,
    decode_java_utf8,
    index_key_hashes,
    java_hashes,
    parse_int,
    parse_long,
)
from storeformat.record import bodies, message_ids
from storeformat.record.message_ids import offset_message_ids, parse_offset_message_id, parse_unique_key

_TIME = pa.timestamp("us", "UTC")
MOST_BYTES_A_BATCH = 512 << 20  # uncompressed bodies of a batch (10,000 rows), which could exhaust memory

_STEPS_AT_A_TIME = 4096  # a step of 15 bytes is a mapping of a kilobyte until it is in a column

FIELD_SEPARATOR, STEP_SEPARATOR = "\x01", "\x02"

STEP = pa.struct([
    ("step", pa.string()),
    ("time", pa.timestamp("us", "UTC")),
    ("region", pa.string()),
    ("group_name", pa.string()),
    ("topic", pa.string()),
    ("msg_id", pa.string()),
    ("tags", pa.string()),
    ("keys", pa.string()),
    ("store_host", pa.string()),
    ("body_size", pa.int32()),
    ("cost_ms", pa.int32()),
    ("message_type", pa.string()),
    ("offset_msg_id", pa.string()),
    ("success", pa.bool_()),
    ("request_id", pa.string()),
    ("retry_times", pa.int32()),
    ("context_code", pa.int32()),
    ("transaction_id", pa.string()),
    ("transaction_state", pa.string()),
    ("from_transaction_check", pa.bool_()),
])  # fmt: skip
"""One step; fields that its kind lacks, or that are empty, are null."""

_PUB = "time region group_name topic msg_id tags keys store_host body_size cost_ms message_type"
_SUB_AFTER = "request_id msg_id cost_ms success keys context_code"
_LAYOUTS = MappingProxyType(
    {
        ("Pub", 13): f"{_PUB} success",
        ("Pub", 14): f"{_PUB} offset_msg_id success",
        ("SubBefore", 8): "time region group_name request_id msg_id retry_times keys",
        ("SubAfter", 6): _SUB_AFTER.rpartition(" ")[0],
        ("SubAfter", 7): _SUB_AFTER,
        ("SubAfter", 9): f"{_SUB_AFTER} time group_name",
        ("EndTransaction", 13): "time region group_name topic msg_id tags keys store_host message_type "
        "transaction_id transaction_state from_transaction_check",
        ("Recall", 7): "time region group_name topic msg_id success",
    }
)
"""(kind, number of fields with the kind) -> their names."""

_KNOWN_COUNTS = MappingProxyType(
    {kind: sorted((n for k, n in _LAYOUTS if k == kind), reverse=True) for kind, _ in _LAYOUTS}
)
_MESSAGE_TYPES = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg")
_MICROSECONDS = 1000


# ----------------------------------------------------------------------------------------------- hashes of the broker
def java_hash(text: pa.Array) -> pa.Array:
    """``String#hashCode``, int32."""
    return pa.array(java_hashes(text), pa.int32(), mask=_nulls(text))


def index_key_hash(topic: pa.Array, key: pa.Array) -> pa.Array:
    """Hash of a topic's key in index files, int32 (IndexFile#indexKeyHashMethod)."""
    text = pc.binary_join_element_wise(topic, key, "#")
    return pa.array(index_key_hashes(java_hashes(text)), pa.int32(), mask=_nulls(text))


# ---------------------------------------------------------------------------------------------------------------- ids
def offset_msg_id(store_host: pa.Array, commit_log_offset: pa.Array) -> pa.Array:
    """Offset message ids from hosts (``ip:port``, ``[v6]:port``) and commit-log offsets, string."""
    texts = store_host.dictionary_encode()
    known = [message_ids.host_bytes(text or "") for text in _texts(texts.dictionary)]
    stored = pa.array(known, pa.binary()).take(texts.indices)
    offsets = commit_log_offset.fill_null(0).to_numpy(zero_copy_only=False)
    return pc.if_else(commit_log_offset.is_valid(), offset_message_ids(stored, offsets), pa.scalar(None, pa.string()))


OFFSET_MSG_ID_PARTS = pa.struct([("host", pa.string()), ("port", pa.int32()), ("commit_log_offset", pa.int64())])


def offset_msg_id_parts(msg_id: pa.Array) -> pa.Array:
    """Host, port and commit-log offset of offset message ids, struct."""
    return pa.array([_offset_msg_id_parts(text) for text in _texts(msg_id)], OFFSET_MSG_ID_PARTS)


UNIQ_KEY_PARTS = pa.struct(
    [
        ("ip", pa.string()),
        ("mac", pa.string()),
        ("pid", pa.int32()),
        ("class_loader", pa.int64()),
        ("span", pa.int64()),
        ("counter", pa.int64()),
    ]
)


def uniq_key_parts(uniq_key: pa.Array) -> pa.Array:
    """Parts of unique keys, struct: ``ip`` of classic clients, ``mac`` of gRPC clients."""
    return pa.array([_uniq_key_parts(text) for text in _texts(uniq_key)], UNIQ_KEY_PARTS)


def uniq_key_time(uniq_key: pa.Array, near: pa.Array, utc_offset_minutes: pa.Array) -> pa.Array:
    """Creation time of unique keys, timestamp: of the possible months the nearest to ``near``."""
    milliseconds = pc.divide(near.cast(pa.timestamp("us", near.type.tz)).cast(pa.int64()), 1000).to_pylist()
    times = [
        _uniq_key_time(text, at, minutes)
        for text, at, minutes in zip(_texts(uniq_key), milliseconds, utc_offset_minutes.to_pylist(), strict=True)
    ]
    return pa.array(times, pa.int64()).cast(_TIME)


# --------------------------------------------------------------------------------------------------- parts of a record
def host_text(host: pa.Array) -> pa.Array:
    """``ip:port`` or ``[v6]:port`` of stored BORNHOST and STOREHOST (8 or 20 bytes), string."""
    encoded = host.dictionary_encode()
    texts = [_host_text(stored) for stored in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


PROPERTIES = pa.map_(pa.string(), pa.string())


def properties_map(properties: pa.Array) -> pa.Array:
    """Property bytes as a map, by MessageDecoder#string2messageProperties (4.9.1 and later)."""
    return pa.array([None if raw is None else _properties(raw) for raw in properties.to_pylist()], PROPERTIES)


def uncompressed_body(body: pa.Array, sys_flag: pa.Array) -> pa.Array:
    """Decompressed bodies, binary; null if bytes contradict the flags or a batch exceeds its limit."""
    plain: list[bytes | None] = []
    room = MOST_BYTES_A_BATCH
    for raw, flag in zip(body.to_pylist(), sys_flag.to_pylist(), strict=True):
        found = None if raw is None or flag is None else bodies.uncompressed(raw, flag, most=room)
        if found is not None and flag & message.COMPRESSED:
            room -= len(found)
        plain.append(found)
    return pa.array(plain, pa.binary())


def trace_messages(body: pa.Array) -> pa.Array:
    """Steps in uncompressed bodies of the trace topic, lists of ``STEP``."""
    ends, parts = [0], [pa.array([], STEP)]

    def steps_of_all() -> Iterator[dict[str, Any]]:
        for raw in body.to_pylist():
            count = 0
            for step in parse_steps("" if raw is None else decode_java_utf8(raw)):
                count += 1
                yield step
            ends.append(ends[-1] + count)

    steps = steps_of_all()
    while some := list(islice(steps, _STEPS_AT_A_TIME)):
        parts.append(pa.array(some, STEP))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.concat_arrays(parts), mask=body.is_null())


FUNCTIONS: Mapping[str, tuple[Callable[..., pa.Array], pa.DataType]] = MappingProxyType(
    {
        "java_hash": (java_hash, pa.int32()),
        "index_key_hash": (index_key_hash, pa.int32()),
        "offset_msg_id": (offset_msg_id, pa.string()),
        "offset_msg_id_parts": (offset_msg_id_parts, OFFSET_MSG_ID_PARTS),
        "uniq_key_parts": (uniq_key_parts, UNIQ_KEY_PARTS),
        "uniq_key_time": (uniq_key_time, _TIME),
        "host_text": (host_text, pa.string()),
        "properties_map": (properties_map, PROPERTIES),
        "uncompressed_body": (uncompressed_body, pa.binary()),
        "trace_messages": (trace_messages, pa.list_(STEP)),
    }
)
"""Name -> (function, type of the result)."""


# ------------------------------------------------------------------------------------------------------- single values
def _nulls(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)


def _texts(column: pa.Array) -> list[str | None]:
    """Spark allows bytes that are not UTF-8 in a text column."""
    return [None if raw is None else decode_java_utf8(raw) for raw in column.cast(pa.binary()).to_pylist()]


def _host_text(stored: bytes | None) -> str | None:
    return (
        message_ids.host_text(stored)
        if stored is not None and len(stored) in (message.HOST_V4, message.HOST_V6)
        else None
    )


def _offset_msg_id_parts(text: str | None) -> dict[str, Any] | None:
    parts = parse_offset_message_id(text or "")
    if parts is None:
        return None
    return {"host": parts.address, "port": parts.port, "commit_log_offset": parts.commit_log_offset}


def _uniq_key_parts(text: str | None) -> dict[str, Any] | None:
    key = parse_unique_key(text or "")
    if key is None:
        return None
    return {
        "ip": key.ip,
        "mac": key.address.hex(":") if key.is_grpc else None,
        "pid": key.pid,
        "class_loader": None if key.is_grpc else key.class_loader,
        "span": key.span,
        "counter": key.counter,
    }


def _uniq_key_time(text: str | None, near: int | None, utc_offset_minutes: int | None) -> int | None:
    if text is None or near is None or utc_offset_minutes is None:
        return None
    key = parse_unique_key(text)
    milliseconds = None if key is None else key.timestamp(near, utc_offset_minutes * 60_000)
    return None if milliseconds is None else milliseconds * 1000


def _properties(raw: bytes) -> list[tuple[str, str]]:
    pieces = decode_java_utf8(raw).split(chr(message.PROPERTY_SEPARATOR))
    parts = (piece.partition(chr(message.NAME_VALUE_SEPARATOR)) for piece in pieces)
    return list({name: value for name, _, value in parts if name and value}.items())


def parse_steps(text: str) -> Iterator[dict[str, Any]]:
    """Steps of one body as mappings with the fields of ``STEP``, without unknown kinds. A step with more fields than
    any layout is read by the longest: clients only add fields at the end.
    """
    for part in text.split(STEP_SEPARATOR):
        kind, *fields = part.split(FIELD_SEPARATOR)
        counts = [count for count in _KNOWN_COUNTS.get(kind, ()) if count <= len(fields) + 1]
        if counts:
            names = _LAYOUTS[kind, counts[0]].split()
            step = {name: _value(name, value) for name, value in zip(names, fields, strict=False)}
            yield {"step": kind, **step}


def _value(name: str, text: str) -> Any:
    if name == "time":
        milliseconds = parse_long(text)
        if milliseconds is None or not LONG_MIN <= milliseconds * _MICROSECONDS <= LONG_MAX:
            return None
        return milliseconds * _MICROSECONDS
    if name in ("success", "from_transaction_check"):
        return text.lower() == "true"
    if name == "message_type":
        number = parse_int(text)
        return _MESSAGE_TYPES[number] if number is not None and 0 <= number < len(_MESSAGE_TYPES) else None
    if name in ("body_size", "cost_ms", "retry_times", "context_code"):
        return parse_int(text)
    return text or None
