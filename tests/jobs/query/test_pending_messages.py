"""A message that waits under a topic of the broker's own is found under the topic to which it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.rebuilding import rebuild_here
from support.store_builder import COMMIT, LogBuilder

from jobs.contract.options import QueryOptions
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore
from jobs.query.queue_listing import split_waiting
from jobs.spark.runner import Runner

SMALL = {"maxHashSlotNum": 10, "maxIndexNum": 20}
REAL = {"REAL_TOPIC": "T", "REAL_QID": "3"}
STORED = 1_700_000_000_000
SCHEDULE, TIMER, HALF, OP = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # fmt: skip


def answers(log: LogBuilder, tmp_path: Path, topic: str = "T") -> dict[str, dict[str, Any]]:
    """What each way of asking for key k of a topic answers."""
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", SMALL).directory)
    for name in ("index", "consumequeue"):
        (built / name).rename(root / name)
    settings = tuple((name, str(value)) for name, value in SMALL.items())
    found = {}
    for way in ("index", "scan"):
        options = QueryOptions(store=str(root), settings=settings, kind="key", topic=topic, key="k", scan=way == "scan")
        found[way] = query.by_key(options, OfflineStore(open_store(options)), Runner())
    return found


@pytest.mark.parametrize(
    ("topic", "properties", "says"),
    [
        (SCHEDULE, {**REAL, "DELAY": "5"},
         "delayed message of T:3: stored 2023-11-14T22:13:20.000+00:00, delivery due 2023-11-14T22:14:20.000+00:00"),
        (TIMER, {**REAL, "TIMER_OUT_MS": str(STORED + 1_800_000)},
         "timer message of T:3: stored 2023-11-14T22:13:20.000+00:00, delivery due 2023-11-14T22:43:20.000+00:00"),
        (HALF, {**REAL, "TRAN_MSG": "true"}, "half message of T:3: stored 2023-11-14T22:13:20.000+00:00"),
        ("%RETRY%g", {"RETRY_TOPIC": "T"},
         "to be consumed again, in %RETRY%g:0 at 0: stored 2023-11-14T22:13:20.000+00:00"),
        ("%DLQ%g", {"RETRY_TOPIC": "T"}, "dead letter in %DLQ%g:0 at 0: stored 2023-11-14T22:13:20.000+00:00"),
    ],
)  # fmt: skip
def test_a_message_that_waits(tmp_path: Path, topic: str, properties: dict[str, str], says: str) -> None:
    log = LogBuilder()
    log.message(topic="T", keys="another")
    log.message(topic=topic, keys="other", properties={**properties, "REAL_TOPIC": "U", "RETRY_TOPIC": "U"})
    placed = log.message(topic=topic, keys="k", properties=properties, store_timestamp=STORED)
    if topic.startswith("%"):
        says = says.replace("at 0", f"at {placed.message.queue_offset}")
    for way, answer in answers(log, tmp_path).items():
        assert (answer["found"], answer["messages"]) == (1, []), way
        (row,) = answer["waiting"]
        assert row["commit_log_offset"] == placed.offset
        assert row["waits_for"].startswith(says)


def test_nothing_waits_for_another_topic(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic=SCHEDULE, keys="k", properties={**REAL, "DELAY": "5"})
    for answer in answers(log, tmp_path, "U").values():
        assert answer["found"] == 0
        assert "waiting" not in answer


def test_a_message_that_was_delivered_says_where(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic=SCHEDULE, keys="k", uniq_key="id", properties={**REAL, "DELAY": "1"})
    delivered = log.message(topic="T", queue_id=3, keys="k", uniq_key="id", properties={**REAL, "DELAY": "1"})
    for answer in answers(log, tmp_path).values():
        (row,) = answer["waiting"]
        assert row["waits_for"].endswith(f"; delivered at offset {delivered.offset}")
        assert [found["commit_log_offset"] for found in answer["messages"]] == [delivered.offset]


def test_what_became_of_half_messages(tmp_path: Path) -> None:
    log = LogBuilder()
    half = [log.message(topic=HALF, keys="k", properties={**REAL, "TRAN_MSG": "true"}) for _ in range(3)]
    committed = log.message(
        topic="T", queue_id=3, keys="k", sys_flag=COMMIT, prepared_transaction_offset=half[0].offset
    )
    ended = log.message(topic=OP, tags="d", body=b"0,2,")
    found = answers(log, tmp_path)
    ends = [row["waits_for"].partition("+00:00")[2] for row in found["scan"]["waiting"]]
    assert ends == [
        f"; delivered at offset {committed.offset}",
        ", waits for its producer to commit it or to roll it back",
        f"; its producer rolled it back, or the broker gave it up, at offset {ended.offset}",
    ]
    ends = [row["waits_for"].partition("+00:00")[2] for row in found["index"]["waiting"]]
    assert [end[:16] for end in ends] == ["; delivered at o", ", waits for its ", ", waits for its "]
    assert "was rolled back: --scan says which" in ends[2]


def test_the_later_copy_is_the_next_record_of_the_same_message() -> None:
    def row(offset: int, topic: str = SCHEDULE, uniq_key: str | None = "u", **more: Any) -> dict[str, Any]:
        base = {"queue_id": 0, "queue_offset": 0, "tags_code": 5, "transaction_type": "none", "store_timestamp_ms": 0}
        properties = {"REAL_TOPIC": "T", "REAL_QID": "3", "DELAY": "5"}
        return {
            **base, "commit_log_offset": offset, "topic": topic, "uniq_key": uniq_key, "properties": properties,
            "prepared_transaction_offset": 0, **more,
        }  # fmt: skip

    def ends(*rows: dict[str, Any]) -> list[str]:
        _, waiting = split_waiting(rows, "T")
        return [one["waits_for"].partition("; ")[2] for one in waiting]

    again, delivered = "stored again under SCHEDULE_TOPIC_XXXX at offset 20", "delivered at offset 30"
    assert ends(row(10), row(20), row(30, "T")) == [again, delivered]
    assert ends(row(10), row(10, "T")) == [""], "not after itself"
    assert ends(row(10), row(30, "T", "another")) == [""]
    assert ends(row(10, uniq_key=None), row(30, "T", None)) == [""], "neither has one"
    commit = {"transaction_type": "commit", "prepared_transaction_offset": 10}
    assert ends(row(10), row(30, "T", "another", **commit)) == [delivered]
    assert ends(row(11), row(30, "T", "another", **commit)) == [""]
    assert ends(row(10), row(30, "T", "another", **{**commit, "transaction_type": "rollback"})) == [""]
