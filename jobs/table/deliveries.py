"""Deliveries of delayed messages: one that comes too early shows that a delay level is shorter than was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storeformat.message import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY = ("real_topic", "uniq_key", "reconsume_times")


def shortest_delays(rows: DataFrame) -> dict[int, int]:
    """Returns, by delay level, the fewest milliseconds from the storing of a message to its delivery.

    Only messages count that are there twice: once waiting, once delivered.
    """
    from pyspark.sql.functions import expr  # noqa: PLC0415  (for the type checker alone this module needs no Spark)

    waiting = rows.where(f"topic = '{SCHEDULE_TOPIC}'").selectExpr(
        "properties['REAL_TOPIC'] AS real_topic", "uniq_key", "reconsume_times",
        "queue_id + 1 AS level", "unix_millis(store_timestamp) AS stored",
    )  # fmt: skip
    delivered = rows.where("properties['DELAY'] IS NOT NULL AND topic = properties['REAL_TOPIC'] AND dispatched")
    delivered = delivered.selectExpr(
        "topic AS real_topic", "uniq_key", "reconsume_times", "unix_millis(store_timestamp) AS came"
    )
    pairs = waiting.join(delivered, list(_KEY)).where("came >= stored")
    single = pairs.groupBy(*_KEY).agg(
        expr("count(*) AS pairs"), expr("min(level) AS level"), expr("min(came - stored) AS delay")
    )
    found = single.where("pairs = 1").groupBy("level").agg(expr("min(delay) AS delay")).collect()
    return {row.level: row.delay for row in found}


def too_early(shortest: dict[int, int], delay_millis: Sequence[int]) -> list[int]:
    """Returns the levels at which a message came before it was due."""
    return [level for level, delay in sorted(shortest.items()) if delay < sum(delay_millis[level - 1 : level])]
