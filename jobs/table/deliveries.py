"""Delay levels compared with the store's queues, and with deliveries that are too early."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.contract.options import LoadOptions
from jobs.log.opening import OpenedStore
from jobs.table.messages_table import MessagesTable
from storeformat.errors import WrongSettings
from storeformat.message import SCHEDULE_TOPIC
from storeformat.store.delay_levels import contradicted


def check_delay_levels(store: OpenedStore, options: LoadOptions, shown: dict[int, int]) -> list[str]:
    """Note, or WrongSettings without ``--set``, if the store's queues prove other delay levels."""
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
    """Shortest delay (ms) by level, of messages stored just twice: waiting and delivered."""
    question = f"SELECT level, min(delay) AS delay FROM (SELECT {_SHORTEST}) WHERE pairs = 1 GROUP BY level"
    rows = table.answer(question, cluster, broker, begin)
    return dict(zip(rows["level"].to_pylist(), rows["delay"].to_pylist(), strict=True))


def too_early(shortest: dict[int, int], delay_millis: Sequence[int]) -> list[int]:
    """Levels at which a message was delivered before it was due."""
    return [level for level, delay in sorted(shortest.items()) if delay < sum(delay_millis[level - 1 : level])]
