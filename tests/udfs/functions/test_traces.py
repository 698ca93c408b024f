"""Trace bodies as TraceDataEncoder of real clients wrote them (4.6.1 to 5.5.0); ``|`` is 0x01, ``$`` 0x02."""

from __future__ import annotations

import tracemalloc
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.functions import scalar, traces

TIME = datetime.fromtimestamp(1700000000, timezone.utc).replace(microsecond=123000)
PUB = {
    "step": "Pub",
    "time": TIME,
    "region": "DefaultRegion",
    "group_name": "group",
    "topic": "TopicA",
    "msg_id": "MSGID",
    "tags": "tag",
    "keys": "k1 k2",
    "store_host": "1.2.3.4:10911",
    "body_size": 5,
    "cost_ms": 17,
    "message_type": "Delay_Msg",
    "offset_msg_id": "OFFID",
    "success": True,
}
SUB_AFTER = {
    "step": "SubAfter",
    "request_id": "REQ",
    "msg_id": "MSGID",
    "cost_ms": 17,
    "success": False,
    "keys": "k1 k2",
    "context_code": 3,
}


def steps(text: str) -> list[dict[str, Any]]:
    body = text.replace("|", "\x01").replace("$", "\x02").encode()
    (found,) = scalar.trace_messages(pa.array([body], pa.binary())).to_pylist()
    return [{name: value for name, value in step.items() if value is not None} for step in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pub|1700000000123|DefaultRegion|group|TopicA|MSGID|tag|k1 k2|1.2.3.4:10911|5|17|3|OFFID|true$", [PUB]),
        (
            (
                "SubBefore|1700000000123|DefaultRegion|group|REQ|MSGID|2|k1 k2$"
                "SubBefore|1700000000123|DefaultRegion|group|REQ|MSGID2|0|$"
            ),
            [
                {
                    "step": "SubBefore",
                    "time": TIME,
                    "region": "DefaultRegion",
                    "group_name": "group",
                    "request_id": "REQ",
                    "msg_id": "MSGID",
                    "retry_times": 2,
                    "keys": "k1 k2",
                },
                {
                    "step": "SubBefore",
                    "time": TIME,
                    "region": "DefaultRegion",
                    "group_name": "group",
                    "request_id": "REQ",
                    "msg_id": "MSGID2",
                    "retry_times": 0,
                },
            ],
        ),
        ("SubAfter|REQ|MSGID|17|false|k1 k2|3$", [SUB_AFTER]),  # 4.6.1
        (
            "SubAfter|REQ|MSGID|17|false|k1 k2|3|1700000000123|group$",
            [SUB_AFTER | {"time": TIME, "group_name": "group"}],
        ),
        (
            (
                "EndTransaction|1700000000123|DefaultRegion|group|TopicA|MSGID|tag|k1 k2|1.2.3.4:10911|3|TXID|"
                "COMMIT_MESSAGE|true$"
            ),
            [
                {
                    name: value
                    for name, value in PUB.items()
                    if name not in ("body_size", "cost_ms", "offset_msg_id", "success")
                }
                | {
                    "step": "EndTransaction",
                    "transaction_id": "TXID",
                    "transaction_state": "COMMIT_MESSAGE",
                    "from_transaction_check": True,
                }
            ],
        ),
        (
            "Recall|1700000000123|DefaultRegion|group|TopicA|MSGID|true$",
            [
                {name: PUB[name] for name in ("time", "region", "group_name", "topic", "msg_id", "success")}
                | {"step": "Recall"}
            ],
        ),
        ("Unknown|1|2$Pub|too|short$", []),
        ("", []),
    ],
)
def test_steps_of_real_clients(text: str, expected: list[dict[str, Any]]) -> None:
    assert steps(text) == expected


@pytest.mark.parametrize(
    ("number", "kind"), [("0", "Normal_Msg"), ("4", "Order_Msg"), ("5", None), ("-1", None), ("x", None), ("", None)]
)
def test_kinds_of_messages_have_numbers(number: str, kind: str | None) -> None:
    (step,) = steps(f"Pub|1700000000123|r|g|T|M|t|k|h|5|17|{number}|true$")
    assert step.get("message_type") == kind


def test_fields_that_a_later_client_adds_are_left_out() -> None:
    text = "Pub|1700000000123|DefaultRegion|group|TopicA|MSGID|tag|k1 k2|1.2.3.4:10911|5|17|3|OFFID|true|10.0.0.1|new$"
    assert steps(text) == [PUB]


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
    assert column.type == pa.list_(traces.STEP)
    assert {step["step"] for step in column[0].as_py()} <= {"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"}
