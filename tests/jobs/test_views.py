"""Every view gives what an independent slow count gives, over stores that real brokers wrote.

The rows come from the tests' own decoder, not from ``load``; the counts are plain Python over those rows. One more
broker, ``damaged``, is a golden store with messages taken out and clocks turned back: gaps and steps to be found.
"""

from __future__ import annotations

import math
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import golden, messages_model
from support.broker_model import read_segments
from support.broker_settings import BrokerSettings

from jobs import functions, views
from udfs import schemas

pytestmark = [pytest.mark.spark, pytest.mark.golden]

STORES = ("base-larger-5.3.3", "base-clean-4.9.8", "batch-cq-5.3.3", "recreate-5.1.4", "retention-5.5.0", "lmq-5.5.0")
SHOP = Path(__file__).parents[2] / "notebooks" / "shop" / "shop-5.3.3.tar.gz"
SHOP_LEVELS = "1s 2s 2s 3s 4s 6s 8s 10s 15s 20s 30s 1m"
HALF, OPS, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
Row = dict[str, Any]
Counts = Iterable[tuple[Any, ...]]


def rows_of(name: str) -> Iterator[Row]:
    (store,) = golden.stores(lambda one: one.name == name)
    settings = BrokerSettings.of(store.version, store.settings)
    for row in messages_model.rows(read_segments(golden.unpack(store)), settings, until=store.dispatched_up_to):
        yield {"cluster": "c", "broker": name, **row}


def rows_of_the_shop(directory: Path) -> Iterator[Row]:
    """A broker with clients: retries, dead letters, delays, transactions and traces."""
    with tarfile.open(SHOP) as archive:
        archive.extractall(directory, filter="data")
    settings = BrokerSettings.of("5.3.3", {"mappedFileSizeCommitLog": 262144, "messageDelayLevel": SHOP_LEVELS})
    for row in messages_model.rows(read_segments(directory / "shop-5.3.3"), settings):
        yield {"cluster": "c", "broker": "shop-a", **row}


def damaged(rows: Iterable[Row]) -> Iterator[Row]:
    """Messages are missing, others are there twice, and now and then a clock went back."""
    for number, whole in enumerate(rows):
        if number % 50 in (7, 8, 23):
            continue
        back = timedelta(hours=1) if number % 60 == 11 else timedelta()
        ahead = timedelta(minutes=5) if number % 70 == 13 else timedelta()
        key = "SAME" if number % 40 == 5 else whole["uniq_key"]
        yield whole | {
            "broker": "damaged",
            "store_timestamp": whole["store_timestamp"] - back,
            "born_timestamp": whole["born_timestamp"] + ahead,
            "uniq_key": key,
            "commit_log_offset": whole["commit_log_offset"] * 700,  # more than one piece of the view clock_steps
        }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    found = [row for name in STORES for row in rows_of(name)]
    found += rows_of_the_shop(tmp_path_factory.mktemp("shop"))
    return found + list(damaged(row for row in found if row["broker"] == STORES[0]))


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, rows: list[Row]) -> SparkSession:
    """A session of its own, so that no other test's views are in the way."""
    other = spark.newSession()
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES_WITH_BODY)
    messages = other.createDataFrame(table, schemas.to_spark(schemas.MESSAGES_WITH_BODY))
    views.register(other, messages, views.VIEWS)
    return other


# ---------------------------------------------------------------------------------------------------- the slow counts
def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def ms(later: datetime, earlier: datetime) -> int:
    return (later - earlier) // timedelta(milliseconds=1)


def host(row: Row) -> str:
    return str(row["born_host"]).rpartition(":")[0]


def storage(rows: list[Row], key: Callable[[Row], tuple[Any, ...]], *, queue: bool = False) -> Counts:
    of_broker = {broker: sum(row["size"] for row in mine) for broker, mine in grouped(rows, _broker).items()}
    for group, mine in grouped(rows, lambda row: (*_broker(row), *key(row))).items():
        size, stored = sum(row["size"] for row in mine), [row["store_timestamp"] for row in mine]
        numbers = [row["queue_offset"] for row in mine]
        span = (min(numbers), max(numbers)) if queue else ()
        bodies = sum(row["body_size"] for row in mine)
        yield (*group, len(mine), size, bodies, size / of_broker[group[:2]], *span, min(stored), max(stored))


def _broker(row: Row) -> tuple[str, str]:
    return row["cluster"], row["broker"]


def throughput(rows: list[Row]) -> Counts:
    for group, mine in grouped(
        rows, lambda row: (*_broker(row), row["topic"], row["store_timestamp"].replace(second=0, microsecond=0))
    ).items():
        size = sum(row["size"] for row in mine)
        yield (*group, len(mine), size, len(mine) / 60, size / 60)


def size_buckets(rows: list[Row]) -> Counts:
    for (cluster, broker, topic, power), mine in grouped(
        rows, lambda row: (*_broker(row), row["topic"], math.floor(math.log2(row["size"])))
    ).items():
        yield cluster, broker, topic, 2**power, 2 ** (power + 1), len(mine), sum(row["size"] for row in mine)


def retry_ageing(rows: list[Row]) -> Counts:
    ends = {broker: max(row["store_timestamp"] for row in mine) for broker, mine in grouped(rows, _broker).items()}

    def key(row: Row) -> tuple[Any, ...] | None:
        match = re.fullmatch(r"%(RETRY|DLQ)%(.*)", row["topic"])
        properties = row["properties"]
        origin = properties.get("DLQ_ORIGIN_TOPIC", properties.get("RETRY_TOPIC"))
        return match and (*_broker(row), match[1].lower(), match[2], origin, row["reconsume_times"])

    for group, mine in grouped(rows, key).items():
        if group is not None:
            lingered = [ms(row["store_timestamp"], row["born_timestamp"]) / 1000 for row in mine]
            stored = [row["store_timestamp"] for row in mine]
            age = ms(ends[group[:2]], min(stored)) / 1000
            size = sum(row["size"] for row in mine)
            yield (*group, len(mine), size, median(lingered), max(lingered), min(stored), max(stored), age)


def duplicates(rows: list[Row]) -> Counts:
    def counts(row: Row) -> bool:
        mine = row["topic"] in (SCHEDULE, HALF) or row["topic"].startswith(("%RETRY%", "rmq_sys_"))
        return row["uniq_key"] is not None and row["dispatched"] and not mine

    for group, mine in grouped(
        filter(counts, rows), lambda row: (row["cluster"], row["topic"], row["uniq_key"])
    ).items():
        if len(mine) > 1:
            numbers = sorted(row["queue_offset"] for row in mine)
            sends = {(row["broker"], row["queue_id"], row["born_timestamp"]) for row in mine}
            stored = [row["store_timestamp"] for row in mine]
            yield (
                *group,
                len(mine),
                len({row["broker"] for row in mine}),
                len({(row["body_crc"], row["body_size"]) for row in mine}),
                len(sends) == 1 and numbers[-1] - numbers[0] + 1 == len(numbers),
                min(stored),
                max(stored),
                ms(max(stored), min(stored)) / 1000,
            )


def duplicates_by_topic(rows: list[Row]) -> Counts:
    found = grouped([{"k": one} for one in duplicates(rows) if not one[6]], lambda row: row["k"][:2])
    for group, messages in Counter((row["cluster"], row["topic"]) for row in rows).items():
        mine = [row["k"] for row in found.get(group, [])]
        surplus = sum(one[3] - 1 for one in mine)
        yield (
            *group,
            messages,
            len(mine),
            surplus,
            surplus / messages,
            median(one[9] for one in mine) if mine else None,
        )


def transactions(rows: list[Row]) -> Counts:
    decisions = grouped(
        (row for row in rows if row["transaction_type"] in ("commit", "rollback")),
        lambda row: (*_broker(row), row["prepared_transaction_offset"]),
    )
    operations = defaultdict(list)
    for row in rows:
        if row["topic"] == OPS and row["tags"] == "d":
            for number in row["body"].decode(errors="replace").split(","):
                if re.fullmatch(r"\d+", number):
                    operations[(*_broker(row), int(number))].append(row["store_timestamp"])
    halves = [row for row in rows if row["topic"] == HALF or row["transaction_type"] == "prepared"]
    with_ops = {_broker(row) for row in rows if row["topic"] == OPS}
    for group, mine in grouped(
        halves,
        lambda row: (
            *_broker(row),
            row["properties"].get("__transactionId__") or row["uniq_key"] or row["offset_msg_id"],
        ),
    ).items():
        decided = [one for row in mine for one in decisions.get((*_broker(row), row["commit_log_offset"]), ())]
        ops = [
            at
            for row in mine
            if row["topic"] == HALF
            for at in operations.get((*_broker(row), row["queue_offset"]), ())
        ]
        if decided:
            outcome = "committed" if any(one["transaction_type"] == "commit" for one in decided) else "rolled back"
        else:
            outcome = "rolled back" if ops else "open" if _broker(mine[0]) in with_ops else "not committed"
        begun, ended = min(row["store_timestamp"] for row in mine), None
        if decided or ops:
            ended = min(row["store_timestamp"] for row in decided) if decided else min(ops)
        producer = min((row["properties"]["PGROUP"] for row in mine if "PGROUP" in row["properties"]), default=None)
        topic = min(row["properties"].get("REAL_TOPIC", row["topic"]) for row in mine)
        seconds = None if ended is None else ms(ended, begun) / 1000
        yield (*group, producer, topic, outcome, len(mine) - 1, begun, ended, seconds)


def transaction_outcomes(rows: list[Row]) -> Counts:
    for group, mine in grouped(
        [{"t": one} for one in transactions(rows)], lambda row: (*row["t"][:2], *row["t"][3:6])
    ).items():
        seconds = [row["t"][9] for row in mine if row["t"][9] is not None]
        checks = sum(row["t"][6] for row in mine)
        yield (*group, len(mine), checks, median(seconds) if seconds else None, max(seconds, default=None))


def delays(rows: list[Row]) -> Counts:
    ends = {broker: max(row["store_timestamp"] for row in mine) for broker, mine in grouped(rows, _broker).items()}
    arrived = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["commit_log_offset"]):
        properties = row["properties"]
        if "DELAY" in properties and properties.get("REAL_TOPIC") == row["topic"] and row["dispatched"]:
            arrived[(*_broker(row), row["topic"], row["uniq_key"], row["reconsume_times"])].append(
                row["store_timestamp"]
            )
    for row in sorted(rows, key=lambda row: (row["tags_code"], row["commit_log_offset"])):
        if row["topic"] == SCHEDULE and "REAL_TOPIC" in row["properties"]:
            topic, due = row["properties"]["REAL_TOPIC"], messages_model.time(row["tags_code"])
            waiting = arrived[(*_broker(row), topic, row["uniq_key"], row["reconsume_times"])]
            came = waiting.pop(0) if waiting else None
            late = None if came is None else ms(came, due)
            state = "delivered" if came else "waiting" if due > ends[_broker(row)] else "overdue"
            place = row["uniq_key"], row["commit_log_offset"], row["store_timestamp"]
            yield (*_broker(row), row["queue_id"] + 1, topic, *place, due, came, late, state)


def delay_accuracy(rows: list[Row]) -> Counts:
    for group, mine in grouped([{"d": one} for one in delays(rows)], lambda row: row["d"][:3]).items():
        late = sorted(row["d"][9] for row in mine if row["d"][9] is not None)
        states = Counter(row["d"][10] for row in mine)
        if late:
            at = 0.99 * (len(late) - 1)
            low, high = late[math.floor(at)], late[math.ceil(at)]
            figures: tuple[Any, ...] = (late[0], median(late), low + (high - low) * (at - math.floor(at)), late[-1])
        else:
            figures = (None,) * 4
        yield (*group, len(mine), *(states[name] for name in ("delivered", "waiting", "overdue")), *figures)


def queue_gaps(rows: list[Row]) -> Counts:
    for group, mine in grouped(
        (row for row in rows if row["dispatched"]), lambda row: (*_broker(row), row["topic"], row["queue_id"])
    ).items():
        expected, before = None, None
        for row in sorted(mine, key=lambda row: row["commit_log_offset"]):
            properties, number, count = row["properties"], row["queue_offset"], 1
            if "INNER_BASE" in properties and "INNER_NUM" in properties:
                number, count = int(properties["INNER_BASE"]), int(properties["INNER_NUM"])
            if expected is not None and number != expected:
                kind = "gap" if number > expected else "restart" if number == 0 else "repeat"
                place = before, row["store_timestamp"], row["commit_log_offset"]
                yield (*group, kind, expected, number, max(number - expected, 0), *place)
            expected, before = number + count, row["store_timestamp"]


def clock_steps(rows: list[Row]) -> Counts:
    for mine in grouped(rows, _broker).values():
        in_order = sorted(mine, key=lambda row: row["commit_log_offset"])
        for one, other in pairwise(in_order):
            was, became = one["store_timestamp"], other["store_timestamp"]
            if became < was:
                yield (*_broker(other), other["commit_log_offset"], was, became, ms(was, became))


def clock_skew_by_host(rows: list[Row]) -> Counts:
    def first_attempt(row: Row) -> bool:
        late = row["reconsume_times"] != 0 or row["transaction_type"] != "none" or row["topic"].startswith("%DLQ%")
        return not late and not {"DELAY", "TIMER_OUT_MS", "TRAN_MSG"} & set(row["properties"])

    for group, mine in grouped(filter(first_attempt, rows), lambda row: (*_broker(row), host(row))).items():
        took = [ms(row["store_timestamp"], row["born_timestamp"]) for row in mine]
        yield (*group, len(mine), sum(one < 0 for one in took), min(took), median(took), max(took))


SLOW_COUNTS: dict[str, Callable[[list[Row]], Counts]] = {
    "storage_by_topic": lambda rows: storage(rows, lambda row: (row["topic"],)),
    "storage_by_queue": lambda rows: storage(rows, lambda row: (row["topic"], row["queue_id"]), queue=True),
    "storage_by_tag": lambda rows: storage(rows, lambda row: (row["topic"], row["tags"])),
    "storage_by_host": lambda rows: storage(rows, lambda row: (host(row),)),
    "storage_by_hour": lambda rows: storage(
        rows, lambda row: (row["store_timestamp"].replace(minute=0, second=0, microsecond=0),)
    ),
    "storage_by_date": lambda rows: storage(rows, lambda row: (row["store_date"],)),
    "throughput": throughput,
    "size_buckets": size_buckets,
    "retry_ageing": retry_ageing,
    "duplicates": duplicates,
    "duplicates_by_topic": duplicates_by_topic,
    "transactions": transactions,
    "transaction_outcomes": transaction_outcomes,
    "delays": delays,
    "delay_accuracy": delay_accuracy,
    "queue_gaps": queue_gaps,
    "clock_steps": clock_steps,
    "clock_skew_by_host": clock_skew_by_host,
}


def test_every_view_is_counted() -> None:
    assert set(SLOW_COUNTS) == set(views.VIEWS)


@pytest.mark.parametrize("name", views.VIEWS)
def test_a_view_gives_what_a_slow_count_gives(name: str, catalog: SparkSession, rows: list[Row]) -> None:
    found = sorted(in_order(row.values()) for row in catalog.table(name).toArrow().to_pylist())
    expected = sorted(map(in_order, SLOW_COUNTS[name](rows)))
    assert len(found) == len(expected)
    assert expected, f"no store has anything for {name}"
    for one, other in zip(found, expected, strict=True):
        assert plain(one) == pytest.approx(plain(other), rel=1e-9)


def in_order(row: Iterable[Any]) -> tuple[tuple[bool, Any], ...]:
    """Sortable: a null comes first."""
    return tuple((value is not None, 0 if value is None else value) for value in row)


def plain(row: tuple[tuple[bool, Any], ...]) -> list[Any]:
    """Only numbers, for approx: the rest must be equal."""
    values = [value.timestamp() if isinstance(value, datetime) else value for given, value in row]
    return [value if isinstance(value, (int, float)) else hash(value) for value in values] + [given for given, _ in row]


def test_the_shop_is_as_it_was_run(catalog: SparkSession) -> None:
    """What Shop.java did, by its own rules (notebooks/shop/README.md)."""
    one = {
        name: catalog.table(name).where(f"broker = 'shop-a' AND {condition}").collect()
        for name, condition in {
            "storage_by_topic": "topic = 'orders'",
            "transactions": "TRUE",
            "retry_ageing": "consumer_group = 'ledger'",
            "delay_accuracy": "delivered <> scheduled",
        }.items()
    }
    (twice,) = catalog.table("duplicates_by_topic").where("topic = 'orders'").collect()
    orders = one["storage_by_topic"][0].messages
    assert (orders, twice.surplus) == (1094 + 27, 27)
    assert len(one["transactions"]) == 1094 // 5
    assert [
        (row.kind, row.reconsume_times) for row in sorted(one["retry_ageing"], key=lambda row: row.reconsume_times)
    ] == [
        ("retry", 1),
        ("retry", 2),
        ("retry", 3),
        ("dlq", 4),
    ]
    assert {(row.origin_topic, row.messages) for row in one["retry_ageing"]} == {("payments", 14)}
    assert one["delay_accuracy"] == []


def test_views_are_described(catalog: SparkSession) -> None:
    described = {row.col_name: row.comment for row in catalog.sql("DESCRIBE retry_ageing").collect()}
    assert described["reconsume_times"] == "The how-manieth retry"


def test_a_table_without_bodies_has_all_views_but_no_rollbacks(catalog: SparkSession, rows: list[Row]) -> None:
    table = pa.Table.from_pylist([row for row in rows if row["broker"] == STORES[0]], schema=schemas.MESSAGES)
    other = catalog.newSession()
    views.register(other, other.createDataFrame(table, schemas.to_spark(schemas.MESSAGES)))
    outcomes = {row.outcome for row in other.table("transaction_outcomes").collect()}
    assert outcomes == {"committed", "not committed"}
    assert other.table("traces").count() == 0


def test_functions_in_sql(catalog: SparkSession, rows: list[Row]) -> None:
    views.register(catalog, catalog.table("messages"), views.TRACE_VIEWS)
    names = functions.register(catalog)
    steps = {row.step: row["count"] for row in catalog.table("traces").groupBy("step").count().collect()}
    assert steps["Pub"] >= 1094
    assert 0 < steps["SubBefore"] == catalog.table("consumptions").count()
    failed = catalog.table("consumptions").where("consumer_group = 'ledger' AND NOT success").count()
    assert failed == 4 * 14  # the first attempt and three retries
    assert len(names) == len(set(names)) > 15
    described = [row.function_desc for row in catalog.sql("DESCRIBE FUNCTION EXTENDED rmq_uniq_key_time").collect()]
    assert any("When a client made a unique key." in line for line in described)
    assert any(line.split()[-4:-1] == ["DEFAULT", "0", "'time"] or "DEFAULT 0" in line for line in described)
    wrong = catalog.sql(
        """
        SELECT count_if(rmq_tags_code(tags) <> tags_code AND topic <> 'SCHEDULE_TOPIC_XXXX') AS tags,
               count_if(rmq_offset_msg_id(store_host, commit_log_offset) <> offset_msg_id) AS ids,
               count_if(rmq_offset_msg_id_parts(offset_msg_id).commit_log_offset <> commit_log_offset) AS parts,
               count_if(rmq_transaction_type(sys_flag) <> transaction_type) AS transactions,
               count_if(unix_millis(store_timestamp) + rmq_delay_ms(rmq_delay_level(properties)) <> tags_code
                        AND topic = 'SCHEDULE_TOPIC_XXXX' AND broker <> 'shop-a') AS delays,
               count_if(rmq_uncompressed_body(body, sys_flag) IS NULL) AS bodies
          FROM messages WHERE broker <> 'damaged'
        """
    ).first()
    assert wrong.asDict() == dict.fromkeys(("tags", "ids", "parts", "transactions", "delays", "bodies"), 0)
    for name in names:
        count = len(catalog.sql(f"DESCRIBE FUNCTION {name}").collect())
        assert count > 2
    assert (
        catalog.sql("SELECT rmq_delay_ms(NULL), rmq_host_ip(NULL), rmq_index_slot(NULL, 'k')").first()[:] == (None,) * 3
    )
    assert catalog.sql("SELECT rmq_delay_ms(99), rmq_delay_ms(0), rmq_delay_ms(2, '1s 2d')").first()[:] == (
        7_200_000,
        0,
        172_800_000,
    )
    assert catalog.sql("SELECT rmq_host_ip('[fe80::2]:9'), rmq_host_ip('1.2.3.4:5')").first()[:] == (
        "fe80::2",
        "1.2.3.4",
    )
