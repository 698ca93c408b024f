"""The rows of the table ``messages``, one record at a time, from the model of the broker's dispatch."""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from support.broker_model import walk
from support.broker_settings import BrokerSettings

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TRANSACTIONS = {0: "none", 4: "prepared", 8: "commit", 12: "rollback"}


def rows(
    segments: Mapping[int, bytes], settings: BrokerSettings, *, until: int | None = None, zone: str = "UTC"
) -> Iterator[dict[str, Any]]:
    """Every record of a log as a row with a body; times and dates as Python has them, None where it has none."""
    size = settings.mapped_file_size_commit_log
    for request in walk(segments, settings, until=until):
        base = request.commit_log_offset - request.commit_log_offset % size
        row = _fixed_fields(memoryview(segments[base])[request.commit_log_offset - base :][: request.msg_size])
        store_host = row.pop("raw_store_host")
        stored = row["store_timestamp"]
        properties = dict(request.properties or {})
        yield {
            **row,
            "store_date": None if stored is None else stored.astimezone(ZoneInfo(zone)).date(),
            "commit_log_offset": request.commit_log_offset,
            "size": request.msg_size,
            "topic": request.topic,
            "tags": properties.get("TAGS"),
            "tags_code": request.tags_code,
            "keys": [key for key in properties.get("KEYS", "").split(" ") if key],
            "uniq_key": properties.get("UNIQ_KEY"),
            "offset_msg_id": (store_host + struct.pack(">q", request.commit_log_offset)).hex().upper(),
            "properties": properties,
            "transaction_type": TRANSACTIONS[request.transaction_type],
            "dispatched": request.transaction_type in (0, 8),
            "salvaged": False,
            **from_properties(properties),
            "queue_run": None,
            "log_run": None,
        }


def mark_runs(rows: list[dict[str, Any]]) -> None:
    """Says of the rows of one broker, which are a part of its log, where runs begin and end."""
    queues: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        row |= {"queue_run": 0, "log_run": 0}
        if row["dispatched"]:
            queues.setdefault((row["topic"], row["queue_id"]), []).append(row)
    for queue in queues.values():
        _mark("queue_run", queue, lambda one, two: two["queue_offset"] == one["queue_offset"] + (one["inner_num"] or 1))
    _mark("log_run", rows, _goes_on)


def _goes_on(one: dict[str, Any], two: dict[str, Any]) -> bool:
    was, became = one["store_timestamp"], two["store_timestamp"]
    rises = was is not None and became is not None and became >= was
    return bool(rises and two["commit_log_offset"] == one["commit_log_offset"] + one["size"])


def _mark(name: str, rows: list[dict[str, Any]], follows: Callable[[dict[str, Any], dict[str, Any]], bool]) -> None:
    for at, row in enumerate(rows):
        first = at == 0 or not follows(rows[at - 1], row)
        last = at == len(rows) - 1 or not follows(row, rows[at + 1])
        row[name] = first + 2 * last


def _fixed_fields(record: memoryview) -> dict[str, Any]:
    position = 0

    def take(code: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(">" + code, record, position)
        position += struct.calcsize(code)
        return int(value)

    def host(wide: bool) -> bytes:
        nonlocal position
        raw = bytes(record[position : position + (20 if wide else 8)])
        position += len(raw)
        return raw

    take("i")
    row: dict[str, Any] = {"magic_code": take("i"), "body_crc": take("i"), "queue_id": take("i"), "flag": take("i")}
    row |= {"queue_offset": take("q")}
    take("q")
    row["sys_flag"] = flags = take("i")
    row["born_timestamp"] = time(take("q"))
    row["born_host"] = host_text(host(bool(flags & 0x10)))
    row["store_timestamp"] = time(take("q"))
    row["raw_store_host"] = host(bool(flags & 0x20))
    row["store_host"] = host_text(row["raw_store_host"])
    row |= {"reconsume_times": take("i"), "prepared_transaction_offset": take("q")}
    row["body_size"] = max(take("i"), 0)
    row["body"] = bytes(record[position : position + row["body_size"]])
    return row


def from_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    due = whole(properties.get("TIMER_OUT_MS"), 63)
    return {
        "delay_level": whole(properties.get("DELAY"), 31),
        "timer_due": None if due is None else time(due),
        "real_topic": properties.get("REAL_TOPIC"),
        "inner_num": whole(properties.get("INNER_NUM"), 31) if "INNER_BASE" in properties else None,
    }


def whole(text: str | None, bits: int) -> int | None:
    """The property as a whole number; None if it is not one, or needs more bits."""
    found = int(text) if text is not None and re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
    return found if found is not None and -(2**bits) <= found < 2**bits else None


def host_text(raw: bytes) -> str:
    """``address:port``."""
    port = int.from_bytes(raw[-4:], "big", signed=True)
    if len(raw) == 8:
        return ".".join(map(str, raw[:4])) + f":{port}"
    return f"[{ipaddress.IPv6Address(raw[:16])}]:{port}"


def time(milliseconds: int) -> datetime | None:
    """The time, None where no calendar of Python's has it (a day of room at both ends, for time zones)."""
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
        moment - timedelta(days=1), moment + timedelta(days=1, microseconds=-1)
    except OverflowError:
        return None
    return moment
