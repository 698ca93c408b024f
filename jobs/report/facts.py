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
from jobs.report.views import sql_text

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

CHECKS = ("retries", "duplicates", "transactions", "delays", "gaps", "clock_steps", "clocks_ahead")
"""Files in ``jobs/report/sql/checks``: what people ask first when something is wrong, in few rows."""
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
        **{name: sql_text("checks", f"{name}.sql") for name in CHECKS if checks and name not in without},
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


_SENTENCES = {
    "retries": ("groups", "{retries:,} retries and {dead:,} dead letters; consumer groups: {groups}", "none"),
    "duplicates": ("surplus", "{surplus:,} messages more than unique keys", "none"),
    "transactions": ("outcomes", "{outcomes}", "none"),
    "delays": ("scheduled", "{scheduled:,} delayed messages, {overdue:,} overdue{late}{early}", "none"),
    "gaps": ("places", "{missing:,} messages are missing in queues{again}", "none: queue offsets are consecutive"),
    "clocks": (
        "clocks", "the broker's clock went back {steps:,} times; {ahead:,} producers' clocks are ahead of it",
        "no step back, no producer ahead",
    ),
}  # fmt: skip
"""The figure that must not be zero, the sentence, and what is said without."""


def sentences(checks: dict[str, list[Row]]) -> dict[str, str]:
    """What each check found, in a sentence."""

    def total(name: str, column: str, **where: str) -> int:
        rows = (row for row in checks.get(name, ()) if all(row[key] == value for key, value in where.items()))
        return sum(row[column] for row in rows)

    def known(column: str) -> list[int]:
        return [row[column] for row in checks.get("delays", ()) if row[column] is not None]

    outcomes = Counter[str]()
    for row in checks.get("transactions", ()):
        outcomes[row["outcome"]] += row["transactions"]
    latest, earliest = max(known("max_late_ms"), default=-1), min(known("min_late_ms"), default=0)
    again = total("gaps", "places", kind="restart") + total("gaps", "places", kind="repeat")
    steps, ahead = total("clock_steps", "steps"), len(checks.get("clocks_ahead", ()))
    doubt = f"; up to {-earliest:,} ms too early: was the broker's messageDelayLevel given to load?"
    figures = {
        "retries": total("retries", "messages", kind="retry"),
        "dead": total("retries", "messages", kind="dlq"),
        "groups": len({row["consumer_group"] for row in checks.get("retries", ())}),
        "surplus": total("duplicates", "surplus"),
        "outcomes": ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())),
        "scheduled": total("delays", "scheduled"),
        "overdue": total("delays", "overdue"),
        "late": f", at most {latest:,} ms late" if latest >= 0 else "",
        "early": doubt if earliest < 0 else "",
        "places": total("gaps", "places"),
        "missing": total("gaps", "missing"),
        "again": f"; at {again:,} places offsets restart or occur twice" if again else "",
        "steps": steps,
        "ahead": ahead,
        "clocks": steps + ahead,
    }
    found = {name: text.format(**figures) if figures[one] else none for name, (one, text, none) in _SENTENCES.items()}
    without = "not judged with this --topic: name a whole topic, and none in which the broker keeps messages of others"
    return found | {name: without for name in BY_REAL_TOPIC if name not in checks}


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


def to_lines(facts: Facts, most: int, elsewhere: str = "") -> list[str]:
    """Lines for a terminal with the ``most`` largest groups; ``elsewhere`` says where the others are."""
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
        for group in facts.groups[:most]
    ]
    lines = [head, "", *_aligned(rows, left=len(KEYS[facts.by]))]
    if facts.groups_in_all > most:
        lines.append(f"... and {facts.groups_in_all - most:,} more{elsewhere}")
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
