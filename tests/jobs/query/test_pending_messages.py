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
from jobs.spark.runner import LocalRunner

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
    for way in ("index", "explain", "scan"):
        options = QueryOptions(
            store=str(root),
            settings=settings,
            kind="key",
            topic=topic,
            key="k",
            **({} if way == "index" else {way: True}),
        )
        found[way] = query.by_key(options, OfflineStore(open_store(options)), LocalRunner())
    return found


@pytest.mark.parametrize(
    ("topic", "properties", "says"),
    [
        (SCHEDULE, {**REAL, "DELAY": "5"},
         "delayed message of T:3: stored 2023-11-14 22:13:20 UTC, delivery due 2023-11-14 22:14:20 UTC"),
        (TIMER, {**REAL, "TIMER_OUT_MS": str(STORED + 1_800_000)},
         "timer message of T:3: stored 2023-11-14 22:13:20 UTC, delivery due 2023-11-14 22:43:20 UTC"),
        (HALF, {**REAL, "TRAN_MSG": "true"}, "half message of T:3: stored 2023-11-14 22:13:20 UTC"),
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, "to be consumed again, in %RETRY%g:0 at 0: stored 2023-11-14 22:13:20 UTC"),
        ("%DLQ%g", {"RETRY_TOPIC": "T"}, "dead letter in %DLQ%g:0 at 0: stored 2023-11-14 22:13:20 UTC"),
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
        if way == "explain":
            assert [item["reason"] for item in answer["explanation"]] == [row["waits_for"]]


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
    for way in ("explain", "scan"):
        ends = [row["waits_for"].partition(" UTC")[2] for row in found[way]["waiting"]]
        assert ends == [
            f"; delivered at offset {committed.offset}",
            ", waits for its producer to commit it or to roll it back",
            f"; its producer rolled it back, or the broker gave it up, at offset {ended.offset}",
        ]
    ends = [row["waits_for"].partition(" UTC")[2] for row in found["index"]["waiting"]]
    assert [end[:16] for end in ends] == ["; delivered at o", ", waits for its ", ", waits for its "]
    assert "was rolled back: --scan tells" in ends[2]
