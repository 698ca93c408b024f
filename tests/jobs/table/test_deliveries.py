"""Which deliveries came too early; ``shortest_delays`` is run by ``test_load``."""

from __future__ import annotations

from jobs.table.deliveries import too_early


def test_levels_of_which_a_message_came_too_early() -> None:
    delays = (1_000, 5_000, 10_000)
    assert too_early({3: 2_000, 1: 1_000, 2: 4_999}, delays) == [2, 3]
    assert too_early({1: 1_000, 2: 5_001, 19: 0}, delays) == []
    assert too_early({}, delays) == []
