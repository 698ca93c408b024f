"""Which deliveries came too early; ``shortest_delays`` is run by ``test_load``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.contract.options import LoadOptions
from jobs.table.deliveries import check_delay_levels, too_early
from storeformat.errors import WrongSettings


def test_levels_of_which_a_message_came_too_early() -> None:
    delays = (1_000, 5_000, 10_000)
    assert too_early({3: 2_000, 1: 1_000, 2: 4_999}, delays) == [2, 3]
    assert too_early({1: 1_000, 2: 5_001, 19: 0}, delays) == []
    assert too_early({}, delays) == []


def test_levels_that_the_stores_own_queues_contradict() -> None:
    store: Any = SimpleNamespace(
        root="/s",
        dispatch_rules=lambda: SimpleNamespace(delay_millis=(1_000, 5_000, 10_000)),
        layout=SimpleNamespace(message_delay_level="1s 5s 10s"),
    )
    options = LoadOptions(store="/s", table="t", cluster="c", broker="b")
    assert check_delay_levels(store, options, {}) == check_delay_levels(store, options, {1: 1_000, 3: 10_000}) == []
    shown = {1: 1_000, 2: 7_000, 3: 2_000}
    with pytest.raises(WrongSettings) as caught:
        check_delay_levels(store, options, shown)
    levels = "level 2: 7,000 ms, level 3: 2,000 ms"
    assert str(caught.value) == (
        "the broker has another messageDelayLevel, its queues of SCHEDULE_TOPIC_XXXX show it: found "
        f"{levels}, expected 1s 5s 10s (/s)"
    )
    assert caught.value.advice == "--broker-conf FILE, or --set messageDelayLevel='1s 5s ...', gives the broker's"
    told = LoadOptions(store="/s", table="t", cluster="c", broker="b", settings=(("messageDelayLevel", "1s 5s 10s"),))
    assert check_delay_levels(store, told, shown) == [
        f"messageDelayLevel is taken as given; the store's own queues show another one ({levels})"
    ]
