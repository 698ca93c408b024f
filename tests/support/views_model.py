"""What each view over ``messages`` should give: plain counts, one row of the table after the other.

``SLOW_COUNTS`` has one for every view, from rows as ``messages_model`` makes them to the view's rows in its columns'
order.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from support import messages_model

HALF, OPS, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"

Row = dict[str, Any]
Counts = Iterable[tuple[Any, ...]]


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
    of_broker = {broker: sum(row["size"] for row in mine) for broker, mine in grouped(rows, broker_of).items()}
    for group, mine in grouped(rows, lambda row: (*broker_of(row), *key(row))).items():
        size, stored = sum(row["size"] for row in mine), [row["store_timestamp"] for row in mine]
        numbers = [row["queue_offset"] for row in mine]
        span = (min(numbers), max(numbers)) if queue else ()
        bodies = sum(row["body_size"] for row in mine)
        yield (*group, len(mine), size, bodies, size / of_broker[group[:2]], *span, min(stored), max(stored))


def broker_of(row: Row) -> tuple[str, str]:
    return row["cluster"], row["broker"]


def throughput(rows: list[Row]) -> Counts:
    for group, mine in grouped(
        rows, lambda row: (*broker_of(row), row["topic"], row["store_timestamp"].replace(second=0, microsecond=0))
    ).items():
        size = sum(row["size"] for row in mine)
        yield (*group, len(mine), size, len(mine) / 60, size / 60)


def size_buckets(rows: list[Row]) -> Counts:
    for (cluster, broker, topic, power), mine in grouped(
        rows, lambda row: (*broker_of(row), row["topic"], math.floor(math.log2(row["size"])))
    ).items():
        yield cluster, broker, topic, 2**power, 2 ** (power + 1), len(mine), sum(row["size"] for row in mine)


def retry_ageing(rows: list[Row]) -> Counts:
    ends = {broker: max(row["store_timestamp"] for row in mine) for broker, mine in grouped(rows, broker_of).items()}

    def key(row: Row) -> tuple[Any, ...] | None:
        match = re.fullmatch(r"%(RETRY|DLQ)%(.*)", row["topic"])
        properties = row["properties"]
        origin = properties.get("DLQ_ORIGIN_TOPIC", properties.get("RETRY_TOPIC"))
        return match and (*broker_of(row), match[1].lower(), match[2], origin, row["reconsume_times"])

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
        lambda row: (*broker_of(row), row["prepared_transaction_offset"]),
    )
    operations = defaultdict(list)
    for row in rows:
        if row["topic"] == OPS and row["tags"] == "d":
            for number in row["body"].decode(errors="replace").split(","):
                if re.fullmatch(r"\d+", number):
                    operations[(*broker_of(row), int(number))].append(row["store_timestamp"])
    halves = [row for row in rows if row["topic"] == HALF or row["transaction_type"] == "prepared"]
    with_ops = {broker_of(row) for row in rows if row["topic"] == OPS}
    for group, mine in grouped(
        halves,
        lambda row: (
            *broker_of(row),
            row["properties"].get("__transactionId__") or row["uniq_key"] or row["offset_msg_id"],
        ),
    ).items():
        decided = [one for row in mine for one in decisions.get((*broker_of(row), row["commit_log_offset"]), ())]
        ops = [
            at
            for row in mine
            if row["topic"] == HALF
            for at in operations.get((*broker_of(row), row["queue_offset"]), ())
        ]
        if decided:
            outcome = "committed" if any(one["transaction_type"] == "commit" for one in decided) else "rolled back"
        else:
            outcome = "rolled back" if ops else "open" if broker_of(mine[0]) in with_ops else "not committed"
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
    ends = {broker: max(row["store_timestamp"] for row in mine) for broker, mine in grouped(rows, broker_of).items()}
    arrived = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["commit_log_offset"]):
        properties = row["properties"]
        if "DELAY" in properties and properties.get("REAL_TOPIC") == row["topic"] and row["dispatched"]:
            arrived[(*broker_of(row), row["topic"], row["uniq_key"], row["reconsume_times"])].append(
                row["store_timestamp"]
            )
    for row in sorted(rows, key=lambda row: (row["tags_code"], row["commit_log_offset"])):
        if row["topic"] == SCHEDULE and "REAL_TOPIC" in row["properties"]:
            topic, due = row["properties"]["REAL_TOPIC"], messages_model.time(row["tags_code"])
            waiting = arrived[(*broker_of(row), topic, row["uniq_key"], row["reconsume_times"])]
            came = waiting.pop(0) if waiting else None
            late = None if came is None else ms(came, due)
            state = "delivered" if came else "waiting" if due > ends[broker_of(row)] else "overdue"
            place = row["uniq_key"], row["commit_log_offset"], row["store_timestamp"]
            yield (*broker_of(row), row["queue_id"] + 1, topic, *place, due, came, late, state)


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
        (row for row in rows if row["dispatched"]), lambda row: (*broker_of(row), row["topic"], row["queue_id"])
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


def messages_gaps(rows: list[Row]) -> Counts:
    for group, mine in grouped(rows, broker_of).items():
        for one, other in pairwise(sorted(mine, key=lambda row: row["commit_log_offset"])):
            end, begin = one["commit_log_offset"] + one["size"], other["commit_log_offset"]
            if begin - end >= other["size"] + 8:
                yield (*group, end, begin, begin - end, one["store_timestamp"], other["store_timestamp"])


def clock_steps(rows: list[Row]) -> Counts:
    for mine in grouped(rows, broker_of).values():
        for one, other in pairwise(sorted(mine, key=lambda row: row["commit_log_offset"])):
            was, became = one["store_timestamp"], other["store_timestamp"]
            if became < was:
                yield (*broker_of(other), other["commit_log_offset"], was, became, ms(was, became))


def clock_skew_by_host(rows: list[Row]) -> Counts:
    def first_attempt(row: Row) -> bool:
        late = row["reconsume_times"] != 0 or row["transaction_type"] != "none" or row["topic"].startswith("%DLQ%")
        columns = messages_model.from_properties(row["properties"])
        return not late and columns["delay_level"] is None and columns["real_topic"] is None

    for group, mine in grouped(filter(first_attempt, rows), lambda row: (*broker_of(row), host(row))).items():
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
    "messages_gaps": messages_gaps,
    "clock_steps": clock_steps,
    "clock_skew_by_host": clock_skew_by_host,
}


# ------------------------------------------------------------------------------------------- a report's checks and sums
def checks(rows: list[Row]) -> dict[str, list[Row]]:
    """What each check of a report should find: the views' rows, added up over brokers, in their order."""
    found = {
        "retries": _added(
            retry_ageing(rows), {"consumer_group": 3, "origin_topic": 4, "kind": 2, "reconsume_times": 5},
            messages=(6, sum), bytes=(7, sum), median_seconds_since_born=(8, max), oldest_stored=(10, min),
        ),
        "duplicates": [
            dict(zip(("topic", "messages", "duplicated_keys", "surplus", "surplus_share", "median_seconds_between"),
                     one[1:], strict=True))
            for one in duplicates_by_topic(rows) if one[4]
        ],
        "transactions": _added(
            transaction_outcomes(rows), {"producer_group": 2, "topic": 3, "outcome": 4},
            transactions=(5, sum), checks=(6, sum), median_seconds=(7, max), max_seconds=(8, max),
        ),
        "delays": _added(
            delay_accuracy(rows), {"level": 2}, scheduled=(3, sum), delivered=(4, sum), waiting=(5, sum),
            overdue=(6, sum), min_late_ms=(7, min), median_late_ms=(8, max), max_late_ms=(10, max),
        ),
        "gaps": _added(
            queue_gaps(rows), {"cluster": 0, "broker": 1, "topic": 2, "queue_id": 3, "kind": 4},
            places=(0, len), missing=(7, sum), first=(9, min), last=(9, max),
        ),
        "clock_steps": _added(
            clock_steps(rows), {"cluster": 0, "broker": 1},
            steps=(0, len), max_milliseconds=(5, max), first=(4, min), last=(4, max),
        ),
        "clocks_ahead": [
            row for row in _added(
                clock_skew_by_host(rows), {"host": 2}, messages=(3, sum), from_the_future=(4, sum), min_ms=(5, min)
            ) if row["from_the_future"]
        ],
    }  # fmt: skip
    orders: dict[str, tuple[str, ...]] = {
        "retries": ("-messages", "consumer_group", "-kind", "reconsume_times", "origin_topic"),
        "duplicates": ("-surplus", "topic"),
        "transactions": ("-transactions", "producer_group", "topic", "outcome"),
        "delays": ("level",),
        "gaps": ("-missing", "cluster", "broker", "topic", "queue_id", "kind"),
        "clock_steps": ("cluster", "broker"),
        "clocks_ahead": ("min_ms", "host"),
    }
    return {name: in_order(given, *orders[name]) for name, given in found.items()}


def groups(rows: list[Row], by: str) -> list[Row]:
    """What a report's groups should be, the largest first, without their rates."""
    names = {"queue": ("cluster", "broker", "topic", "queue_id"), "tag": ("topic", "tags"), "date": ("store_date",)}
    keys = names.get(by, (by,))
    at = {"cluster": 0, "broker": 1} if by == "queue" else {}
    own = [name for name in keys if name not in at]
    at |= {name: 2 + number for number, name in enumerate(own)}
    first = 2 + len(own)
    after = first + (6 if by == "queue" else 4)
    found = _added(
        SLOW_COUNTS[f"storage_by_{by}"](rows), {name: at[name] for name in keys}, messages=(first, sum),
        bytes=(first + 1, sum), body_bytes=(first + 2, sum), first_stored=(after, min), last_stored=(after + 1, max),
    )  # fmt: skip
    return in_order(found, "-bytes", *keys)


def in_order(rows: list[Row], *keys: str) -> list[Row]:
    """Rows as SQL orders them: downwards by keys with a minus; NULL is below every value."""
    for key in reversed(keys):
        name = key.lstrip("-")
        known = sorted((row for row in rows if row[name] is not None), key=lambda row: row[name])
        none = [row for row in rows if row[name] is None]
        rows = [*none, *known]
        if key.startswith("-"):
            rows = [*sorted(known, key=lambda row: row[name], reverse=True), *none]
    return rows


def _added(found: Counts, keys: dict[str, int], **sums: tuple[int, Callable[[list[Any]], Any]]) -> list[Row]:
    """Rows of a view by some of its columns; of the others what is known is added up."""
    made = grouped([{"row": one} for one in found], lambda row: tuple(row["row"][at] for at in keys.values()))
    rows = []
    for group, mine in made.items():
        row = dict(zip(keys, group, strict=True))
        for name, (at, how) in sums.items():
            values = [one["row"][at] for one in mine]
            known = values if how is len else [value for value in values if value is not None]
            row[name] = how(known) if known else None
        rows.append(row)
    return rows
