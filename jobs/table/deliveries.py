"""Delay levels against what shows them: the store's own queues, and deliveries that come too early."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.contract.options import LoadOptions
from jobs.log.opening import OpenedStore
from jobs.table.messages_table import MessagesTable
from storeformat.errors import WrongSettings
from storeformat.message import SCHEDULE_TOPIC
from storeformat.store.delay_levels import contradicted


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
        path=store.root, found=levels, expected=store.layout.message_delay_level,
        advice="--broker-conf FILE, or --set messageDelayLevel='1s 5s ...', gives the broker's",
    )  # fmt: skip


_SHORTEST = f"""
    count(*) AS pairs, min(waiting.queue_id + 1) AS level,
    min((CAST(delivered.store_timestamp AS BIGINT) - CAST(waiting.store_timestamp AS BIGINT)) / 1000) AS delay
FROM (SELECT *, properties['REAL_TOPIC'] AS came_as FROM mine WHERE topic = '{SCHEDULE_TOPIC}') AS waiting
JOIN (SELECT * FROM mine WHERE properties['DELAY'] IS NOT NULL AND dispatched) AS delivered
    ON delivered.topic = waiting.came_as AND delivered.properties['REAL_TOPIC'] = waiting.came_as
    AND delivered.uniq_key = waiting.uniq_key AND delivered.reconsume_times = waiting.reconsume_times
    AND delivered.store_timestamp >= waiting.store_timestamp
GROUP BY waiting.came_as, waiting.uniq_key, waiting.reconsume_times
"""


def shortest_delays(table: MessagesTable, cluster: str, broker: str, begin: int) -> dict[int, int]:
    """Returns, by delay level, the fewest milliseconds from the storing of a message to its delivery, in a broker's
    rows from an offset on. Only messages count that are there twice: once waiting, once delivered.
    """
    question = f"SELECT level, min(delay) AS delay FROM (SELECT {_SHORTEST}) WHERE pairs = 1 GROUP BY level"
    rows = table.answer(question, cluster, broker, begin)
    return dict(zip(rows["level"].to_pylist(), rows["delay"].to_pylist(), strict=True))


def too_early(shortest: dict[int, int], delay_millis: Sequence[int]) -> list[int]:
    """Returns the levels at which a message came before it was due."""
    return [level for level, delay in sorted(shortest.items()) if delay < sum(delay_millis[level - 1 : level])]
