"""Small cases of delays, transactions, gaps and duplicates: each is a cluster of its own in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import messages_model, random_messages, views_model

from jobs.report import views
from jobs.report.views import CHECKS, KEYS, measure
from udfs.table import schemas

pytestmark = pytest.mark.spark

Row = dict[str, Any]
BEGIN = datetime(2024, 5, 30, 12, 0, tzinfo=timezone.utc)
BEGIN_MS = 1_717_070_400_000
MOST = (1 << 63) - 1
TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"
HALF, ROCKSDB_HALF = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP, ROCKSDB_OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"


def message(offset: int, topic: str, properties: dict[str, str] | None = None, **fields: Any) -> Row:
    """A message that was stored as many milliseconds after the start as its offset says."""
    at = BEGIN + timedelta(milliseconds=fields.pop("at", offset))
    return {
        "broker": "a", "store_date": date(2024, 5, 30), "commit_log_offset": offset, "size": 100,
        "topic": topic, "queue_id": 0, "queue_offset": offset, "transaction_type": "none", "reconsume_times": 0,
        "dispatched": True, "born_host": "10.0.0.1:1", "born_timestamp": at, "store_timestamp": at,
        "prepared_transaction_offset": 0, "offset_msg_id": f"id{offset}", "body_size": 0,
        "properties": properties or {}, **fields,
    }  # fmt: skip


def timer(offset: int, key: str | None, due: object, topic: str = TIMER, **more: str) -> Row:
    return message(offset, topic, {"REAL_TOPIC": "orders", "TIMER_OUT_MS": str(due), **more}, uniq_key=key)


TIMERS: list[tuple[list[Row], tuple[int, ...], tuple[float | None, ...]]] = [
    ([timer(0, "k", BEGIN_MS + 50), timer(70, "k", BEGIN_MS + 50, "orders")], (1, 1, 0, 0), (20, 20.0, 20)),
    ([timer(0, "k", BEGIN_MS + 99), message(100, "other")], (1, 0, 0, 1), (None, None, None)),
    ([timer(0, "k", BEGIN_MS + 100), message(100, "other")], (1, 0, 0, 1), (None, None, None)),
    ([timer(0, "k", BEGIN_MS + 101), message(100, "other")], (1, 0, 1, 0), (None, None, None)),
    ([timer(0, "k", "never")], (1, 0, 0, 1), (None, None, None)),
    # What came for another message, or under another topic, is not it.
    ([timer(0, "k", BEGIN_MS + 50), timer(70, "l", BEGIN_MS + 50, "orders")], (1, 0, 0, 1), (None, None, None)),
    ([timer(0, "k", BEGIN_MS + 50), timer(70, "k", BEGIN_MS, "pay")], (1, 0, 0, 1), (None, None, None)),
    # Of two with one key the first due gets what came first, whatever the order of the rows in the table is.
    (
        [timer(75, "k", 0, "orders"), timer(70, "k", 0, "orders"), timer(1, "k", BEGIN_MS + 50),
         timer(0, "k", BEGIN_MS + 60)],
        (2, 2, 0, 0), (15, 17.5, 20),
    ),
    # Put back into the timer because its time was far away (TimerMessageStore#convert): it counts once.
    (
        [timer(0, "k", BEGIN_MS), timer(1, "k", BEGIN_MS, TIMER_ROLL_TIMES="1"),
         timer(2, "k", BEGIN_MS, TIMER_ROLL_TIMES="2"), timer(3, "k", BEGIN_MS, "orders", TIMER_ROLL_TIMES="2")],
        (1, 1, 0, 0), (3, 3.0, 3),
    ),
    ([timer(4, "k", BEGIN_MS, TIMER_ROLL_TIMES="7"), timer(5, "k", BEGIN_MS, "orders")], (1, 1, 0, 0), (5, 5.0, 5)),
    ([timer(0, "k", BEGIN_MS), timer(9, "k", BEGIN_MS, TIMER_ROLL_TIMES="1")], (1, 0, 0, 1), (None,) * 3),
    ([timer(9, "k", BEGIN_MS, TIMER_ROLL_TIMES="1")], (1, 0, 0, 1), (None,) * 3),
    ([timer(0, "k", BEGIN_MS), timer(9, "k", BEGIN_MS + 1, TIMER_ROLL_TIMES="1")], (2, 0, 0, 2), (None,) * 3),
    # Recalled, by its key, or by topic and key (RecallMessageProcessor).
    ([timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="k")], (1, 0, 0, 0), (None,) * 3),
    ([timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="orders+k")], (1, 0, 0, 0), (None,) * 3),
    ([timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="pay+k")], (1, 0, 0, 1), (None,) * 3),
    (
        [timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="k", REAL_TOPIC="pay")],
        (1, 0, 0, 1), (None,) * 3,
    ),
]  # fmt: skip

A_HALF = message(5, HALF, {"PGROUP": "p", "REAL_TOPIC": "orders"}, uniq_key="u")


def decided(kind: str, **fields: Any) -> Row:
    return message(fields.pop("offset", 9), "orders", transaction_type=kind,
                   prepared_transaction_offset=fields.pop("half", 5), **fields)  # fmt: skip


TRANSACTIONS: list[tuple[list[Row], str, float | None]] = [
    ([], "not committed", None),
    ([message(9, OP, tags="d", body=b"99")], "open", None),
    ([message(9, OP, tags="e", body=b"5")], "open", None),
    ([message(9, OP, tags="d", body=b"4,5,6")], "rolled back", 0.004),
    ([message(9, OP, {"TRANS_OFFSET": "5"}, tags="d", body=b"7")], "rolled back", 0.004),
    ([message(9, ROCKSDB_OP, tags="d", body=b"5")], "open", None),
    ([message(9, "TRANS_CHECK_MAX_TIME_TOPIC", uniq_key="u")], "given up", 0.004),
    ([message(9, "TRANS_CHECK_MAX_TIME_TOPIC", uniq_key="v")], "not committed", None),
    (
        [message(9, "TRANS_CHECK_MAX_TIME_TOPIC", uniq_key="u"), message(10, OP, tags="d", body=b"5")],
        "given up", 0.004,
    ),
    ([decided("commit"), message(8, OP, tags="d", body=b"5")], "committed", 0.004),
    ([decided("rollback")], "rolled back", 0.004),
    ([decided("rollback"), decided("commit", offset=12)], "committed", 0.004),
    ([decided("commit", half=6)], "not committed", None),
    ([decided("commit", broker="b")], "not committed", None),
]  # fmt: skip


def copies(*numbers: int, **more: Any) -> list[Row]:
    return [message(10 * at, "orders", uniq_key="k", queue_offset=number, **{"born_timestamp": BEGIN, **more})
            for at, number in enumerate(numbers)]  # fmt: skip


DUPLICATES: dict[str, tuple[list[Row], list[int]]] = {
    "batch": (copies(3, 4, 5), []),
    "hole": (copies(3, 4, 6), [2]),
    "queues": ([*copies(3), *copies(4, queue_id=1)], [1]),
    "times": ([*copies(3), *copies(4, born_timestamp=BEGIN + timedelta(milliseconds=1))], [1]),
    "no times": (copies(3, 4, born_timestamp=None), []),
    "one time": ([*copies(3), *copies(4, born_timestamp=None)], [1]),
    "other topic": ([*copies(3), message(50, "pay", uniq_key="k")], []),
    "once": (copies(3), []),
}
NUMBERS: list[list[tuple[int, dict[str, str]]]] = [
    [(3, {}), (4, {}), (9, {}), (12, {})],
    [(5, {}), (0, {}), (1, {}), (1, {})],
    [(1, {"INNER_BASE": "1", "INNER_NUM": "3"}), (4, {}), (6, {})],
    [(0, {}), (MOST, {}), (0, {})],
]
OTHERS = {
    "levels": [
        message(0, SCHEDULE, {"REAL_TOPIC": "orders"}, queue_id=2, uniq_key="k", tags_code=BEGIN_MS + 5),
        message(1, SCHEDULE, {"REAL_TOPIC": SCHEDULE}, queue_id=2, uniq_key="x", tags_code=BEGIN_MS + 5),
        message(9, "orders", {"REAL_TOPIC": "orders", "DELAY": "3"}, uniq_key="k"),
        message(10, "orders", {"REAL_TOPIC": "orders", "DELAY": "3"}, uniq_key="k", dispatched=False),
        message(11, SCHEDULE, {"REAL_TOPIC": "orders"}, queue_id=1, uniq_key="l", tags_code=BEGIN_MS + 50),
    ],
    "rocksdb": [
        message(5, ROCKSDB_HALF, uniq_key="u", queue_offset=0), message(6, ROCKSDB_HALF, uniq_key="v"),
        message(9, ROCKSDB_OP, tags="d", body=b"5"),
    ],
    "checked": [
        *(message(at, HALF, {"__transactionId__": "t", "PGROUP": "p"}) for at in (5, 6, 7)),
        decided("commit", offset=20, half=6),
    ],
    "numbers": [
        message(50, "orders", queue_offset=77, dispatched=False),
        *reversed([
            message(100 * turn + queue, "orders", properties, queue_id=queue, queue_offset=number)
            for queue, numbers in enumerate(NUMBERS)
            for turn, (number, properties) in enumerate(numbers)
        ]),
    ],
}  # fmt: skip


def all_cases() -> Iterator[Row]:
    cases = {
        **{f"timer {number}": rows for number, (rows, *_) in enumerate(TIMERS)},
        **{f"transaction {number}": [A_HALF, *rows] for number, (rows, *_) in enumerate(TRANSACTIONS)},
        **{f"copies {name}": rows for name, (rows, _) in DUPLICATES.items()},
        **OTHERS,
    }
    for name, rows in cases.items():
        yield from ({"cluster": name, **row} for row in rows)


def as_loaded(rows: list[Row]) -> list[Row]:
    """The rows with the columns that ``load`` takes from properties, and with the ends of runs."""
    newer = [row | messages_model.from_properties(row["properties"]) for row in rows]
    logs: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(newer, key=lambda row: int(row["commit_log_offset"])):
        logs.setdefault((row["cluster"], row["broker"]), []).append(row)
    for log in logs.values():
        for begin in range(0, len(log), 50):
            messages_model.mark_runs(log[begin : begin + 50])
    return newer


GAPS = ("messages_gaps", "queue_gaps", "clock_steps")


def registered(spark: SparkSession, rows: list[Row], names: Sequence[str] = views.VIEWS) -> SparkSession:
    other = spark.newSession()
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES_WITH_BODY)
    views.register(other, other.createDataFrame(table, schemas.to_spark(table.schema)), names)
    return other


@pytest.fixture(scope="module", params=[pytest.param("of an older load", marks=pytest.mark.slow), "of this version"])
def found(request: pytest.FixtureRequest, spark: SparkSession) -> dict[str, list[Row]]:
    rows = list(all_cases())
    other = registered(spark, as_loaded(rows) if request.param == "of this version" else rows)
    names = ("delay_accuracy", "transaction_outcomes", "duplicates_by_topic", "queue_gaps")
    return {name: other.table(name).toArrow().to_pylist() for name in names}


def of_cluster(rows: list[Row], cluster: str) -> list[Row]:
    return [row for row in rows if row["cluster"] == cluster]


def late(row: Row) -> tuple[Any, ...]:
    names = ("level", "scheduled", "delivered", "waiting", "overdue", "min_late_ms", "median_late_ms", "max_late_ms")
    return tuple(row[name] for name in names)


def test_delays(found: dict[str, list[Row]]) -> None:
    for number, (_, counts, times) in enumerate(TIMERS):
        (row,) = of_cluster(found["delay_accuracy"], f"timer {number}")
        assert late(row) == (None, *counts, *times), number
    levels = sorted(map(late, of_cluster(found["delay_accuracy"], "levels")))
    assert levels == [(2, 1, 0, 1, 0, None, None, None), (3, 1, 1, 0, 0, 4, 4.0, 4)]


def test_transactions(found: dict[str, list[Row]]) -> None:
    for number, (_, outcome, seconds) in enumerate(TRANSACTIONS):
        (row,) = of_cluster(found["transaction_outcomes"], f"transaction {number}")
        assert row == {
            "cluster": f"transaction {number}", "broker": "a", "producer_group": "p", "topic": "orders",
            "outcome": outcome, "transactions": 1, "checks": 0, "median_seconds": seconds, "max_seconds": seconds,
        }, number  # fmt: skip
    rocksdb = of_cluster(found["transaction_outcomes"], "rocksdb")
    assert sorted((row["outcome"], row["topic"], row["transactions"]) for row in rocksdb) == [
        ("open", ROCKSDB_HALF, 1),
        ("rolled back", ROCKSDB_HALF, 1),
    ]
    (checked,) = of_cluster(found["transaction_outcomes"], "checked")
    assert (checked["transactions"], checked["checks"], checked["max_seconds"]) == (1, 2, 0.015)


def test_a_batch_under_one_key_is_no_duplicate(found: dict[str, list[Row]]) -> None:
    for name, (_, surplus) in DUPLICATES.items():
        rows = of_cluster(found["duplicates_by_topic"], f"copies {name}")
        assert [row["surplus"] for row in rows if row["surplus"]] == surplus, name


def test_numbers_that_do_not_go_on(found: dict[str, list[Row]]) -> None:
    """In the order of the log, which is not that of the table; a queue each."""
    gaps = of_cluster(found["queue_gaps"], "numbers")
    named = sorted((row["queue_id"], row["commit_log_offset"], row["kind"], row["missing"]) for row in gaps)
    assert named == [
        (0, 200, "gap", 4), (0, 300, "gap", 2), (1, 101, "restart", 0), (1, 301, "repeat", 0), (2, 202, "gap", 1),
        (3, 103, "gap", MOST - 1),
    ]  # fmt: skip
    assert {row["stored"] - row["previous_stored"] for row in gaps} == {timedelta(milliseconds=100)}


def test_rows_that_were_deleted_are_no_gap(spark: SparkSession) -> None:
    """Of a run that lacks its end nothing can be said."""
    log = as_loaded([{"cluster": "c", **message(at, "T", queue_offset=at)} for at in range(100)])
    left = [row for row in log if not 40 <= row["commit_log_offset"] < 60]
    other = registered(spark, left, GAPS)
    assert other.table("queue_gaps").count() == other.table("clock_steps").count() == 0


def test_rows_that_a_repair_wrote_here_and_there(spark: SparkSession) -> None:
    """They say nothing of runs, and so the others of their broker are looked at, too; the clock went back at one."""
    log = as_loaded([
        {"cluster": "c", **message(100 * at, "T", queue_offset=at, at=at - 30 * (at >= 45))} for at in range(50)
    ])  # fmt: skip
    for number in (10, 25, 40):
        log[number] |= dict.fromkeys(schemas.RUNS)
    log[47] |= {"queue_offset": 90, **dict.fromkeys(schemas.RUNS)}
    other = registered(spark, log, GAPS)
    gaps = other.table("queue_gaps").orderBy("commit_log_offset").collect()
    assert [(row.expected, row.found) for row in gaps] == [(47, 90), (91, 48)]
    assert [row.commit_log_offset for row in other.table("clock_steps").collect()] == [4500]
    assert other.table("messages_gaps").count() == 0


def test_random_messages(spark: SparkSession) -> None:
    """Every check and every group of a report, against slow counts."""
    rows = [{**row, "properties": dict(row["properties"])} for row in random_messages.usual_messages(2, 700)]
    other = registered(spark, as_loaded(rows))
    checks = measure(other, "topic", checks=True).checks
    expected = views_model.checks(rows)
    assert all(expected.values())
    for name in CHECKS:
        assert checks[name] == expected[name], name
    for by in KEYS:
        groups = measure(other, by, checks=False).groups
        wanted = views_model.groups(rows, by)
        assert [{name: group[name] for name in wanted[0]} for group in groups] == wanted, by
