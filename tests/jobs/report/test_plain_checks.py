"""What Arrow and numpy find in a plain table is what the views find in it, whatever the rows are."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import random_messages, views_model

from jobs.report import page, plain_checks, views
from jobs.report.facts import measure
from jobs.report.plain_facts import measure_plain, plain_pictures
from jobs.table import messages_table
from udfs.table import schemas


def written(path: Path, rows: pa.Table, files: int) -> messages_table.MessagesTable:
    """Returns a plain table of these rows, in several commits."""
    step = -(-len(rows) // files)
    for begin in range(0, len(rows), step):
        deltalake.write_deltalake(str(path), rows.slice(begin, step), mode="append", partition_by=["store_date"])
    table = messages_table.open_to_read(str(path))
    assert table is not None
    return table


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("seed", "count", "bodies"), [(3, 2000, True), (2, 400, False)])
def test_the_views_find_the_same(seed: int, count: int, bodies: bool, spark: SparkSession, tmp_path: Path) -> None:
    schema = schemas.MESSAGES_WITH_BODY if bodies else schemas.MESSAGES
    rows = pa.Table.from_pylist(random_messages.messages(seed, count), schema=schema)
    table = written(tmp_path / "messages", rows, 3)
    other = spark.newSession()
    views.register(other, other.createDataFrame(rows, schemas.to_spark(schema)), views.VIEWS)
    facts = measure(other, "topic", checks=True)
    found = plain_checks.check_plain(table)
    assert all(facts.checks.values())
    for checks in (found, facts.checks):  # in whose order topics of two clusters are equal
        checks["duplicates"].sort(key=str)
    for name in facts.checks:
        assert found[name] == facts.checks[name], name
    assert plain_pictures(table, measure_plain(table, "topic")) == page.read_pictures(other)


@pytest.mark.parametrize(("seed", "files"), [(1, 1), (2, 3)])
def test_a_slow_count_finds_the_same(seed: int, files: int, tmp_path: Path) -> None:
    rows = random_messages.usual_messages(seed, 700)
    table = written(tmp_path / "t", pa.Table.from_pylist(rows, schema=schemas.MESSAGES_WITH_BODY), files)
    counted = [{**row, "properties": dict(row["properties"])} for row in rows]
    expected, found = views_model.checks(counted), plain_checks.check_plain(table)
    assert all(expected.values())
    for name in expected:
        assert found[name] == expected[name], name
    for by in ("topic", "queue", "tag", "host", "hour", "date"):
        facts = measure_plain(table, by)
        groups = [{name: value for name, value in row.items() if name in expected_row} for row, expected_row in
                  zip(facts.groups, views_model.groups(counted, by), strict=True)]  # fmt: skip
        assert groups == views_model.groups(counted, by), by


BEGIN = datetime(2024, 5, 30, 12, 0, tzinfo=timezone.utc)
BEGIN_MS = 1_717_070_400_000
TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"
HALF, ROCKSDB_HALF = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP, ROCKSDB_OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"


def message(offset: int, topic: str, properties: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """A message that was stored as many milliseconds after the start as its offset says."""
    at = BEGIN + timedelta(milliseconds=fields.pop("at", offset))
    return {
        "cluster": "c", "broker": "a", "store_date": date(2024, 5, 30), "commit_log_offset": offset, "size": 100,
        "topic": topic, "queue_id": 0, "queue_offset": offset, "transaction_type": "none", "reconsume_times": 0,
        "dispatched": True, "born_host": "10.0.0.1:1", "born_timestamp": at, "store_timestamp": at,
        "prepared_transaction_offset": 0, "offset_msg_id": f"id{offset}", "body_size": 0,
        "properties": list((properties or {}).items()), **fields,
    }  # fmt: skip


def found_in(path: Path, *rows: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return plain_checks.check_plain(written(path, pa.Table.from_pylist([*rows], schema=schemas.MESSAGES_WITH_BODY), 1))


def timer(offset: int, key: str | None, due: object, topic: str = TIMER, **more: str) -> dict[str, Any]:
    properties = {"REAL_TOPIC": "orders", "TIMER_OUT_MS": str(due), **more}
    return message(offset, topic, properties, uniq_key=key)


@pytest.mark.parametrize(
    ("rows", "counts", "late"),
    [
        ([timer(0, "k", BEGIN_MS + 50), timer(70, "k", BEGIN_MS + 50, "orders")], (1, 1, 0, 0), (20, 20.0, 20)),
        ([timer(0, "k", BEGIN_MS + 99), message(100, "other")], (1, 0, 0, 1), (None, None, None)),
        ([timer(0, "k", BEGIN_MS + 100), message(100, "other")], (1, 0, 0, 1), (None, None, None)),
        ([timer(0, "k", BEGIN_MS + 101), message(100, "other")], (1, 0, 1, 0), (None, None, None)),
        ([timer(0, "k", "never")], (1, 0, 0, 1), (None, None, None)),
        # What came for another message, or under another topic, is not it.
        ([timer(0, "k", BEGIN_MS + 50), timer(70, "l", BEGIN_MS + 50, "orders")], (1, 0, 0, 1), (None, None, None)),
        ([timer(0, "k", BEGIN_MS + 50), timer(70, "k", BEGIN_MS, "pay")], (1, 0, 0, 1), (None, None, None)),
        # Of two with one key the first due gets what came first.
        (
            [timer(0, "k", BEGIN_MS + 60), timer(1, "k", BEGIN_MS + 50), timer(70, "k", 0, "orders"),
             timer(75, "k", 0, "orders")],
            (2, 2, 0, 0), (15, 17.5, 20),
        ),
        # Whatever the order of the rows in the table is.
        (
            [timer(75, "k", 0, "orders"), timer(70, "k", 0, "orders"), timer(1, "k", BEGIN_MS + 50),
             timer(0, "k", BEGIN_MS + 60)],
            (2, 2, 0, 0), (15, 17.5, 20),
        ),
        # Put back into the timer because its time was far away: it counts once.
        ([timer(0, "k", BEGIN_MS), timer(9, "k", BEGIN_MS, TIMER_ROLL_TIMES="1")], (1, 0, 0, 1), (None,) * 3),
        ([timer(9, "k", BEGIN_MS, TIMER_ROLL_TIMES="1")], (1, 0, 0, 1), (None,) * 3),
        ([timer(0, "k", BEGIN_MS), timer(9, "k", BEGIN_MS + 1, TIMER_ROLL_TIMES="1")], (2, 0, 0, 2), (None,) * 3),
        # Recalled, by its key, or by topic and key.
        ([timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="k")], (1, 0, 0, 0), (None,) * 3),
        ([timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="orders+k")], (1, 0, 0, 0), (None,) * 3),
        ([timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="pay+k")], (1, 0, 0, 1), (None,) * 3),
        (
            [timer(0, "k", BEGIN_MS), timer(9, None, 0, TIMER_DEL_UNIQKEY="k", REAL_TOPIC="pay")],
            (1, 0, 0, 1), (None,) * 3,
        ),
    ],
)  # fmt: skip
def test_timers(
    rows: list[dict[str, Any]], counts: tuple[int, ...], late: tuple[float | None, ...], tmp_path: Path
) -> None:
    (found,) = found_in(tmp_path / "t", *rows)["delays"]
    assert tuple(found.values()) == (None, *counts, *late)
    assert list(found) == ["level", "scheduled", "delivered", "waiting", "overdue", "min_late_ms", "median_late_ms",
                           "max_late_ms"]  # fmt: skip


def test_a_level_is_the_queue_of_its_schedule(tmp_path: Path) -> None:
    rows = [
        message(0, SCHEDULE, {"REAL_TOPIC": "orders"}, queue_id=2, uniq_key="k", tags_code=BEGIN_MS + 5),
        message(1, SCHEDULE, {"REAL_TOPIC": SCHEDULE}, queue_id=2, uniq_key="x", tags_code=BEGIN_MS + 5),
        message(9, "orders", {"REAL_TOPIC": "orders", "DELAY": "3"}, uniq_key="k"),
        message(10, "orders", {"REAL_TOPIC": "orders", "DELAY": "3"}, uniq_key="k", dispatched=False),
        message(11, SCHEDULE, {"REAL_TOPIC": "orders"}, queue_id=1, uniq_key="l", tags_code=BEGIN_MS + 50),
    ]
    assert [tuple(row.values()) for row in found_in(tmp_path / "t", *rows)["delays"]] == [
        (2, 1, 0, 1, 0, None, None, None),
        (3, 1, 1, 0, 0, 4, 4.0, 4),
    ]


@pytest.mark.parametrize(
    ("rows", "outcome", "seconds"),
    [
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
        (
            [message(9, "orders", transaction_type="commit", prepared_transaction_offset=5),
             message(8, OP, tags="d", body=b"5")],
            "committed", 0.004,
        ),
        ([message(9, "orders", transaction_type="rollback", prepared_transaction_offset=5)], "rolled back", 0.004),
        (
            [message(9, "orders", transaction_type="rollback", prepared_transaction_offset=5),
             message(12, "orders", transaction_type="commit", prepared_transaction_offset=5)],
            "committed", 0.004,
        ),
        ([message(9, "orders", transaction_type="commit", prepared_transaction_offset=6)], "not committed", None),
        (
            [message(9, "orders", transaction_type="commit", prepared_transaction_offset=5, broker="b")],
            "not committed", None,
        ),
    ],
)  # fmt: skip
def test_how_a_transaction_ends(
    rows: list[dict[str, Any]], outcome: str, seconds: float | None, tmp_path: Path
) -> None:
    half = message(5, HALF, {"PGROUP": "p", "REAL_TOPIC": "orders"}, transaction_type="none", uniq_key="u")
    (found,) = found_in(tmp_path / "t", half, *rows)["transactions"]
    assert found == {
        "producer_group": "p", "topic": "orders", "outcome": outcome, "transactions": 1, "checks": 0,
        "median_seconds": seconds, "max_seconds": seconds,
    }  # fmt: skip


def test_a_half_message_in_rocksdb_goes_by_its_offset_in_the_log(tmp_path: Path) -> None:
    halves = [message(5, ROCKSDB_HALF, uniq_key="u", queue_offset=0), message(6, ROCKSDB_HALF, uniq_key="v")]
    found = found_in(tmp_path / "t", *halves, message(9, ROCKSDB_OP, tags="d", body=b"5"))["transactions"]
    assert [(row["outcome"], row["topic"], row["transactions"]) for row in found] == [
        ("open", ROCKSDB_HALF, 1),
        ("rolled back", ROCKSDB_HALF, 1),
    ]


def test_a_half_message_that_is_stored_again_for_each_check(tmp_path: Path) -> None:
    halves = [message(at, HALF, {"__transactionId__": "t", "PGROUP": "p"}) for at in (5, 6, 7)]
    (found,) = found_in(
        tmp_path / "t", *halves, message(20, "orders", transaction_type="commit", prepared_transaction_offset=6)
    )["transactions"]
    assert (found["transactions"], found["checks"], found["max_seconds"]) == (1, 2, 0.015)


def test_numbers_that_do_not_go_on(tmp_path: Path) -> None:
    """In the order of the log, which is not that of the table; a queue each."""
    most = (1 << 63) - 1
    queues: list[list[tuple[int, dict[str, str]]]] = [
        [(3, {}), (4, {}), (9, {}), (12, {})],
        [(5, {}), (0, {}), (1, {}), (1, {})],
        [(1, {"INNER_BASE": "1", "INNER_NUM": "3"}), (4, {}), (6, {})],
        [(0, {}), (most, {}), (0, {})],
    ]
    rows = [
        message(100 * turn + queue, "orders", properties, queue_id=queue, queue_offset=number)
        for queue, numbers in enumerate(queues)
        for turn, (number, properties) in enumerate(numbers)
    ]
    found = found_in(tmp_path / "t", *reversed(rows), message(50, "orders", queue_offset=77, dispatched=False))["gaps"]
    assert [(row["queue_id"], row["kind"], row["places"], row["missing"]) for row in found] == [
        (3, "gap", 1, most - 1), (0, "gap", 2, 6), (2, "gap", 1, 1), (1, "repeat", 1, 0), (1, "restart", 1, 0),
    ]  # fmt: skip
    assert [(found[1]["first"] - BEGIN, found[1]["last"] - BEGIN)] == [
        (timedelta(milliseconds=200), timedelta(milliseconds=300))
    ]


def test_a_batch_under_one_key_is_no_duplicate(tmp_path: Path) -> None:
    def copies(*numbers: int, **more: Any) -> list[dict[str, Any]]:
        return [message(10 * at, "orders", uniq_key="k", queue_offset=number, **{"born_timestamp": BEGIN, **more})
                for at, number in enumerate(numbers)]  # fmt: skip

    def surplus(name: str, *rows: dict[str, Any]) -> list[int]:
        return [row["surplus"] for row in found_in(tmp_path / name, *rows)["duplicates"]]

    assert surplus("batch", *copies(3, 4, 5)) == []
    assert surplus("hole", *copies(3, 4, 6)) == [2]
    assert surplus("queues", *copies(3), *copies(4, queue_id=1)) == [1]
    assert surplus("times", *copies(3), *copies(4, born_timestamp=BEGIN + timedelta(milliseconds=1))) == [1]
    assert surplus("no times", *copies(3, 4, born_timestamp=None)) == []
    assert surplus("one time", *copies(3), *copies(4, born_timestamp=None)) == [1]
    assert surplus("other topic", *copies(3), message(50, "pay", uniq_key="k")) == []
    assert surplus("once", *copies(3)) == []


@pytest.mark.parametrize("named", [2, 100])
def test_what_is_plotted(named: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes by interval and topic, the smaller topics together, and messages by size."""
    monkeypatch.setattr(page, "MOST_NAMED", named)
    rows = random_messages.usual_messages(3, 300)
    table = written(tmp_path / "t", pa.Table.from_pylist(rows, schema=schemas.MESSAGES_WITH_BODY), 2)
    found = plain_pictures(table, measure_plain(table, "topic"))
    hours = [row["store_timestamp"].replace(minute=0, second=0, microsecond=0) for row in rows]
    step = page.step_of(max(hours) - min(hours))
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row["topic"]] = sizes.get(row["topic"], 0) + row["size"]
    largest = sorted(sizes, key=lambda topic: (-sizes[topic], topic))[:named]
    by_time: dict[tuple[datetime, str | None], int] = {}
    by_size: dict[int, int] = {}
    for row in rows:
        at = datetime.fromtimestamp(row["store_timestamp"].timestamp() // step.total_seconds() * step.total_seconds(),
                                    timezone.utc)  # fmt: skip
        key = (at, row["topic"] if row["topic"] in largest else None)
        by_time[key] = by_time.get(key, 0) + row["size"]
        power = row["size"].bit_length() - 1
        by_size[power] = by_size.get(power, 0) + 1
    assert found.step == step
    assert [(row["at"], row["topic"], row["bytes"]) for row in found.bytes_by_time] == [
        (*key, by_time[key]) for key in sorted(by_time, key=lambda key: (key[0], key[1] is not None, key[1] or ""))
    ]
    assert [(row["from_size"], row["to_size"], row["messages"]) for row in found.sizes] == [
        (1 << power, 2 << power, by_size[power]) for power in sorted(by_size)
    ]


def test_an_interval_is_that_of_whole_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[timedelta] = []
    step_of = page.step_of

    def looked_at(span: timedelta) -> timedelta:
        seen.append(span)
        return step_of(span)

    monkeypatch.setattr(page, "step_of", looked_at)
    rows = [message(0, "T", at=1), message(1, "T", at=3_599_999), message(2, "T", at=3_600_001)]
    for count in (2, 3):
        name = tmp_path / f"t{count}"
        table = written(name, pa.Table.from_pylist(rows[:count], schema=schemas.MESSAGES_WITH_BODY), 1)
        plain_pictures(table, measure_plain(table, "topic"))
    assert seen == [timedelta(), timedelta(hours=1)]
