"""Random rows of the table ``messages``, odd ones among them: every kind of finding of the views occurs."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from typing import Any

Row = dict[str, Any]

TOPICS = (
    "orders", "orders", "orders", "pay", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "rmq_sys_other",
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "%RETRY%g", "%RETRY%", "%DLQ%g", "%DLQ%h",
)  # fmt: skip
BEGIN = datetime(2024, 5, 30, 23, 50, tzinfo=timezone.utc)
_BIGGEST = (1 << 63) - 1


def messages(seed: int, count: int) -> list[Row]:
    """Returns rows of three brokers, one without a name, in the order of no log."""
    chance = random.Random(seed)
    logs: dict[tuple[str | None, str | None], int] = {("c", "a"): 0, ("c", "b"): 1 << 30, (None, None): 0}
    numbers: dict[tuple[Any, ...], int] = {}
    rows: list[Row] = []
    for at in range(count):
        broker = chance.choice([*logs, ("c", "a")])
        offset = logs[broker]
        size = chance.choice([1, 91, 128, 217, 255, 256, 1 << 20])
        logs[broker] = offset + chance.choice([size, size, 1 << 26])
        topic, queue = chance.choice(TOPICS), chance.randrange(3)
        number = numbers.get((broker, topic, queue), chance.choice([0, 5, _BIGGEST - 1]))
        number = chance.choice([number] * 12 + [0, number + 3, max(number - 2, 0)])
        number = min(number, _BIGGEST)
        numbers[broker, topic, queue] = number + 1 if number < _BIGGEST else 0
        row = {
            "cluster": broker[0], "broker": broker[1], "commit_log_offset": offset, "size": size, "topic": topic,
            "queue_id": queue, "queue_offset": number,
        }  # fmt: skip
        halves = [one for one in rows if one["broker"] == broker[1] and one["topic"].endswith("HALF_TOPIC")]
        rows.append(row | _rest(chance, at, row, chance.choice(halves) if halves else row))
    chance.shuffle(rows)
    return rows


_PLAIN_TOPICS = {
    "rmq_sys_wheel_timer": "rmq_sys_other",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC": "orders",
}


def usual_messages(seed: int, count: int) -> list[Row]:
    """Random messages as a slow count can tell them: no odd NULL, whole milliseconds, no timers, sound properties."""
    rows = messages(seed, count)
    for row in rows:
        row["cluster"], row["broker"] = row["cluster"] or "d", row["broker"] or "a"
        row["born_host"] = row["born_host"].replace("none", "none:1")
        row["topic"] = _PLAIN_TOPICS.get(row["topic"], row["topic"])
        row["uniq_key"], row["queue_offset"] = row["uniq_key"] or None, row["queue_offset"] % (1 << 20)
        at = BEGIN + timedelta(seconds=row["commit_log_offset"] % 7919, hours=row["size"] % 3)
        row["store_timestamp"] = stored = (row["store_timestamp"] or at).replace(microsecond=0)
        row["born_timestamp"] = (row["born_timestamp"] or stored).replace(microsecond=5000 * (row["size"] % 2))
        row["store_date"] = stored.date()
        row["tags_code"] = int(stored.timestamp() * 1000) + row["tags_code"] % 7000
        row["body"] = row["body"] if row["body"] in (b"0", b"1,2,x") else b"%d" % (row["queue_offset"] % 5)
        dropped = ("TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "TRANS_OFFSET")
        properties = {name: value for name, value in row["properties"] if name not in dropped}
        if properties.get("INNER_BASE") not in (None, "7") or properties.get("INNER_NUM") not in (None, "3"):
            properties.pop("INNER_BASE", None)
        if row["topic"] == "SCHEDULE_TOPIC_XXXX" and properties.get("REAL_TOPIC") == row["topic"]:
            properties["REAL_TOPIC"] = "pay"
        row["properties"] = list(properties.items())
    return rows


def _rest(chance: random.Random, at: int, row: Row, half: Row) -> Row:
    """Returns the columns that are not yet there; some name ``half``, a half message of the same broker."""
    stored = BEGIN + timedelta(seconds=at, microseconds=chance.choice([0, 0, 7000, 7]))
    stored -= timedelta(hours=chance.choice([0] * 30 + [1]))
    took = chance.choice([0, 3, 40, 5000, -2, -600_000]) if chance.random() < 0.2 else 1
    keys = (None, "", "k", "7F00000100002A139A3B17C2", f"{chance.randrange(9)}" * 32, f"key {at}")
    named = (str(half[name]).encode() for name in ("commit_log_offset", "queue_offset"))
    bodies = (None, b"0", b"1,2,x", b" 3 ,\xff,4", *named)
    return {
        "store_date": chance.choice([date(2024, 5, 30), date(2024, 5, 31), None]),
        "tags": chance.choice(["d", "d", None, "TagA"]),
        "tags_code": int(stored.timestamp() * 1000) + chance.choice([-5000, 0, 800, 3000, 10**7, 10**15]),
        "keys": [],
        "uniq_key": chance.choice(keys),
        "offset_msg_id": f"id {row['commit_log_offset']}",
        "flag": 0,
        "sys_flag": 0,
        "transaction_type": chance.choice(["none"] * 6 + ["prepared", "commit", "rollback"]),
        "reconsume_times": chance.choice([0, 0, 0, 1, 2]),
        "prepared_transaction_offset": half["commit_log_offset"] if chance.random() < 0.5 else 0,
        "born_timestamp": None if chance.random() < 0.05 else stored - timedelta(milliseconds=took),
        "born_host": chance.choice(["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[::1]:9", "none"]),
        "store_timestamp": None if chance.random() < 0.03 else stored,
        "store_host": "10.0.0.9:10911",
        "body_crc": chance.randrange(2),
        "body_size": row["size"] // 2,
        "properties": _properties(chance, row["topic"], half, int(stored.timestamp() * 1000)),
        "magic_code": 0,
        "dispatched": chance.random() < 0.9,
        "body": chance.choice(bodies),
    }


def _properties(chance: random.Random, topic: str, half: Row, stored: int) -> list[tuple[str, str]]:
    given = {
        "KEYS": ["a b"],
        "INNER_BASE": ["7", "x", f"{_BIGGEST}", " 12\t"],
        "INNER_NUM": ["3", "1e9", "-2", "4294967296"],
        "DELAY": ["3"],
        "TIMER_OUT_MS": [f"{stored}", f"{stored + 2000}", "never", f"{10**17}", "-9"],
        "TRAN_MSG": ["true"],
        "REAL_TOPIC": ["orders", "orders", topic, "pay"],
        "RETRY_TOPIC": ["orders", "pay"],
        "DLQ_ORIGIN_TOPIC": ["orders"],
        "TIMER_DEL_UNIQKEY": ["k", "orders+k", "pay+k", "pay+" + "3" * 32],
        "TIMER_ROLL_TIMES": ["1"],
        "__transactionId__": ["t1", "t2", "t3"],
        "PGROUP": ["p1", "p2", "订单"],
        "TRANS_OFFSET": [f"{half['queue_offset']}", "x"],
    }
    rare = {"INNER_BASE", "TIMER_DEL_UNIQKEY", "DLQ_ORIGIN_TOPIC", "TRAN_MSG", "TRANS_OFFSET"}
    often = {"REAL_TOPIC": 0.6, "TIMER_OUT_MS": 0.1, "DELAY": 0.15}
    if topic == "rmq_sys_wheel_timer":
        often |= {"TIMER_OUT_MS": 0.5, "TIMER_DEL_UNIQKEY": 0.3}
    return [
        (name, chance.choice(values))
        for name, values in given.items()
        if chance.random() < often.get(name, 0.05 if name in rare else 0.3)
    ]
