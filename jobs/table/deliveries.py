"""Delay levels against what shows them: the store's own queues, and deliveries that come too early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.contract.options import LoadOptions
from jobs.log.opening import OpenedStore
from storeformat.errors import WrongSettings
from storeformat.message import SCHEDULE_TOPIC
from storeformat.store.delay_levels import contradicted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY = ("real_topic", "uniq_key", "reconsume_times")


def check_delay_levels(store: OpenedStore, options: LoadOptions, shown: dict[int, int]) -> list[str]:
    """Returns a note where the store's own queues show other delay levels than ``--set`` names; raises WrongSettings
    where they were not given: due times and tags_code would be wrong for good.
    """
    wrong = contradicted(shown, store.dispatch_rules().delay_millis)
    if not wrong:
        return []
    levels = ", ".join(f"level {level}: {shown[level]:,} ms" for level in wrong)
    if "messageDelayLevel" in dict(options.settings):
        return [f"messageDelayLevel is taken as given; the store's own queues show another one ({levels})"]
    raise WrongSettings(
        f"the broker has another messageDelayLevel, its queues of {SCHEDULE_TOPIC} show it",
        path=store.root,
        found=levels,
        expected=store.layout.message_delay_level,
        advice="--broker-conf FILE, or --set messageDelayLevel='1s 5s ...', gives the broker's",
    )


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
