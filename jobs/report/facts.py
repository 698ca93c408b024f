"""Totals, groups and checks of a table ``messages``, from the views in ``jobs/report/sql/views``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jobs.contract.report import printable, size_text
from jobs.contract.reporter import duration_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

KEYS = MappingProxyType(
    {
        "topic": ("topic",),
        "queue": ("cluster", "broker", "topic", "queue_id"),
        "tag": ("topic", "tags"),
        "host": ("host",),
        "hour": ("hour",),
        "date": ("store_date",),
    }
)
MOST_GROUPS = 100_000
_WIDEST = 127
"""Characters of a group's key on a terminal: the limit of topics (Validators); a tag may have thousands."""
_AT_ONCE = 3
"""Queries at a time: others use the cores while one is planned or runs its last tasks."""
_SECONDS_OF = MappingProxyType({"hour": 3600, "date": 86400})

# One row each, cheap to read in a report: what people ask first when something is wrong.
CHECKS = MappingProxyType(
    {
        "retries": """
            SELECT consumer_group, origin_topic, kind, reconsume_times, sum(messages) AS messages, sum(bytes) AS bytes,
                   max(median_seconds_since_born) AS median_seconds_since_born, min(oldest_stored) AS oldest_stored
              FROM retry_ageing GROUP BY ALL
             ORDER BY messages DESC, consumer_group, kind DESC, reconsume_times, origin_topic""",
        "duplicates": """
            SELECT topic, messages, duplicated_keys, surplus, surplus_share, median_seconds_between
              FROM duplicates_by_topic WHERE surplus > 0 ORDER BY surplus DESC, topic""",
        "transactions": """
            SELECT producer_group, topic, outcome, sum(transactions) AS transactions, sum(checks) AS checks,
                   max(median_seconds) AS median_seconds, max(max_seconds) AS max_seconds
              FROM transaction_outcomes GROUP BY ALL ORDER BY transactions DESC, producer_group, topic, outcome""",
        "delays": """
            SELECT level, sum(scheduled) AS scheduled, sum(delivered) AS delivered, sum(waiting) AS waiting,
                   sum(overdue) AS overdue, min(min_late_ms) AS min_late_ms, max(median_late_ms) AS median_late_ms,
                   max(max_late_ms) AS max_late_ms
              FROM delay_accuracy GROUP BY level ORDER BY level""",
        "gaps": """
            SELECT cluster, broker, topic, queue_id, kind, count(*) AS places,
                   CAST(least(sum(CAST(missing AS DECIMAL(38))), 9223372036854775807) AS BIGINT) AS missing,
                   min(stored) AS first, max(stored) AS last
              FROM queue_gaps GROUP BY ALL ORDER BY missing DESC, cluster, broker, topic, queue_id, kind""",
        "clock_steps": """
            SELECT cluster, broker, count(*) AS steps, max(milliseconds) AS max_milliseconds, min(stored) AS first,
                   max(stored) AS last
              FROM clock_steps GROUP BY cluster, broker ORDER BY cluster, broker""",
        "clocks_ahead": """
            SELECT host, sum(messages) AS messages, sum(from_the_future) AS from_the_future, min(min_ms) AS min_ms
              FROM clock_skew_by_host GROUP BY host HAVING from_the_future > 0 ORDER BY min_ms, host""",
    }
)
BY_REAL_TOPIC = ("retries", "transactions", "delays")
"""Checks of messages stored under another topic than their own."""


@dataclass(frozen=True)
class Facts:
    """Rows of brokers, checks by name, and the largest of ``groups_in_all`` groups (``MOST_GROUPS`` at most)."""

    by: str
    brokers: Sequence[Row]
    groups: Sequence[Row]
    checks: dict[str, list[Row]]
    groups_in_all: int

    @property
    def messages(self) -> int:
        return sum(broker["messages"] for broker in self.brokers)

    @property
    def bytes(self) -> int:
        return sum(broker["bytes"] for broker in self.brokers)

    @property
    def first_stored(self) -> Any:
        return min((broker["first_stored"] for broker in self.brokers if broker["first_stored"]), default=None)

    @property
    def last_stored(self) -> Any:
        return max((broker["last_stored"] for broker in self.brokers if broker["last_stored"]), default=None)

    @property
    def span(self) -> float:
        """Seconds from the oldest message to the newest, at least 1."""
        return max((self.last_stored - self.first_stored).total_seconds(), 1.0) if self.first_stored else 1.0

    @property
    def mean_rate(self) -> float:
        return self.bytes / self.span

    def names_of_brokers(self, most: int) -> str:
        names = ", ".join(f"{broker['cluster']}/{broker['broker']}" for broker in self.brokers[:most])
        return names + (f" and {len(self.brokers) - most} more" if len(self.brokers) > most else "")


def measure(spark: SparkSession, by: str, *, checks: bool, without: Sequence[str] = ()) -> Facts:
    """Facts from the registered views, with ``checks`` those not in ``without``."""
    keys = ", ".join(KEYS[by])
    asked = {
        **{name: query for name, query in CHECKS.items() if checks and name not in without},
        "groups": f"""
            SELECT {keys}, sum(messages) AS messages, sum(bytes) AS bytes, sum(body_bytes) AS body_bytes,
                   min(first_stored) AS first_stored, max(last_stored) AS last_stored
              FROM storage_by_{by} GROUP BY {keys} ORDER BY bytes DESC, {keys} LIMIT {MOST_GROUPS}""",
        "brokers": """
            SELECT cluster, broker, sum(messages) AS messages, sum(bytes) AS bytes, min(first_stored) AS first_stored,
                   max(last_stored) AS last_stored
              FROM storage_by_date GROUP BY cluster, broker ORDER BY cluster, broker""",
    }
    found = dict(zip(asked, answers(spark, asked.values()), strict=True))
    brokers, groups = found.pop("brokers"), found.pop("groups")
    in_all = len(groups)
    if in_all == MOST_GROUPS:
        count = f"SELECT count(*) AS groups FROM (SELECT DISTINCT {keys} FROM storage_by_{by})"
        ((counted,),) = answers(spark, [count])
        in_all = counted["groups"]
    return with_rates(Facts(by, brokers, groups, found, in_all))


def with_rates(facts: Facts) -> Facts:
    """Add share and rates to the groups."""
    seconds = _SECONDS_OF.get(facts.by, facts.span)
    for group in facts.groups:
        group["share"] = group["bytes"] / max(facts.bytes, 1)
        group["messages_per_second"] = group["messages"] / seconds
        group["bytes_per_second"] = group["bytes"] / seconds
    return facts


def answers(spark: SparkSession, queries: Iterable[str]) -> list[list[Row]]:
    """Rows of each query."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(lambda query: list(spark.sql(query).toArrow().to_pylist()), queries))


def sentences(checks: dict[str, list[Row]]) -> dict[str, str]:
    """What each check found, in a sentence."""
    made, checks = checks, {name: checks.get(name, []) for name in CHECKS}

    def total(name: str, column: str, **where: Any) -> int:
        return sum(row[column] for row in checks[name] if all(row[key] == value for key, value in where.items()))

    retries, dead = total("retries", "messages", kind="retry"), total("retries", "messages", kind="dlq")
    groups = len({row["consumer_group"] for row in checks["retries"]})
    surplus = total("duplicates", "surplus")
    outcomes = Counter[str]()
    for row in checks["transactions"]:
        outcomes[row["outcome"]] += row["transactions"]
    scheduled, overdue = total("delays", "scheduled"), total("delays", "overdue")
    latest = max((row["max_late_ms"] for row in checks["delays"] if row["max_late_ms"] is not None), default=-1)
    earliest = min((row["min_late_ms"] for row in checks["delays"] if row["min_late_ms"] is not None), default=0)
    delays = f"{scheduled:,} delayed messages, {overdue:,} overdue"
    if latest >= 0:
        delays += f", at most {latest:,} ms late"
    if earliest < 0:
        delays += f"; up to {-earliest:,} ms too early: was the broker's messageDelayLevel given to load?"
    missing, places = total("gaps", "missing"), total("gaps", "places")
    again = total("gaps", "places", kind="restart") + total("gaps", "places", kind="repeat")
    steps, ahead = total("clock_steps", "steps"), len(checks["clocks_ahead"])
    found = {
        "retries": f"{retries:,} retries and {dead:,} dead letters; consumer groups: {groups}" if groups else "none",
        "duplicates": f"{surplus:,} messages more than unique keys" if surplus else "none",
        "transactions": ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())) or "none",
        "delays": delays if scheduled else "none",
        "gaps": (
            f"{missing:,} messages are missing in queues"
            + (f"; at {again:,} places offsets restart or occur twice" if again else "")
            if places
            else "none: queue offsets are consecutive"
        ),
        "clocks": (
            f"the broker's clock went back {steps:,} times; {ahead:,} producers' clocks are ahead of it"
            if steps or ahead
            else "no step back, no producer ahead"
        ),
    }
    without = "not judged with this --topic: name a whole topic, and none in which the broker keeps messages of others"
    return found | {name: without for name in BY_REAL_TOPIC if name not in made}


def moment(value: Any) -> str:
    """A UTC time as ``2024-05-30 07:15:02``."""
    return "?" if value is None else str(value)[:19]


def key_text(value: Any) -> str:
    """A group's key, safe for a terminal."""
    if value is None:
        return "(none)"
    return str(value)[:16] if hasattr(value, "hour") else printable(str(value))


def span_text(seconds: float) -> str:
    """A storage duration, in days from two days on."""
    return duration_text(seconds) if seconds < 172_800 else f"{seconds / 86_400:,.1f} days"


def number_text(value: float, digits: int) -> str:
    """A number with ``digits`` significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def rate_text(rate: float) -> str:
    """Bytes per second, with a fraction for small rates."""
    return f"{size_text(rate)}/s" if rate >= 10 else f"{rate:.2g} B/s"


def to_lines(facts: Facts, shown: int, elsewhere: str = "") -> list[str]:
    """Lines for a terminal with the ``shown`` largest groups; ``elsewhere`` says where the others are."""
    if not facts.brokers:
        return ["The table is empty."]
    head = (
        f"{facts.messages:,} messages, {size_text(facts.bytes)}, {moment(facts.first_stored)} to "
        f"{moment(facts.last_stored)} ({span_text(facts.span)}); {facts.names_of_brokers(5)}"
    )
    rows = [(*KEYS[facts.by], "messages", "bytes", "share", "messages/s", "rate")]
    rows += [
        (
            *(
                text if len(text := key_text(group[key])) <= _WIDEST else f"{text[:_WIDEST]}..."
                for key in KEYS[facts.by]
            ),
            f"{group['messages']:,}",
            size_text(group["bytes"]),
            f"{group['share']:.1%}",
            number_text(group["messages_per_second"], 3),
            rate_text(group["bytes_per_second"]),
        )
        for group in facts.groups[:shown]
    ]
    lines = [head, "", *_aligned(rows, left=len(KEYS[facts.by]))]
    if facts.groups_in_all > shown:
        lines.append(f"... and {facts.groups_in_all - shown:,} more{elsewhere}")
    if facts.checks:
        lines += ["", *(f"{title:<14}{sentence}" for title, sentence in sentences(facts.checks).items())]
    return lines


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
