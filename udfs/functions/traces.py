"""Bodies of the trace topic (``RMQ_SYS_TRACE_TOPIC``), from producers and consumers.

Text: steps end with 0x02, their fields are separated by 0x01. Mirrors TraceDataEncoder#encoderFromContextBean; run
with the clients of 4.6.1, 4.9.8, 5.1.4, 5.3.3 and 5.5.0, which differ only in brackets.

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

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from storeformat.javacompat import LONG_MAX, LONG_MIN, parse_int, parse_long

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
