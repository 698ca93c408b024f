"""Stores of real brokers: all that stopped cleanly may be started, and so may the killed ones."""

from __future__ import annotations

import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import rules_of_release

from jobs.safety.answer import safe_to_start
from jobs.safety.start_settings import StartSettings

pytestmark = pytest.mark.golden

EXPECTED_NOTES = {"config_absent", "messages_deleted"}  # no broker was around them, and their files' times mean nothing
NOTES_OF_SCENARIO = {"stale": {"torn_tail", "units_beyond_log"}, "recreate": {"messages_not_served"}}


@pytest.mark.parametrize("store", golden.stores(), ids=str)
@pytest.mark.parametrize("told", [True, False], ids=["release told", "release shown"])
def test_safe(store: GoldenStore, told: bool) -> None:
    settings = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in store.settings.items()
    }
    version = rules_of_release(store.version) if told else None
    answer = safe_to_start(str(golden.unpack(store)), StartSettings(settings), version)
    assert answer.safe, answer.lines()
    notes = {reason.rule for reason in answer.reasons}
    assert notes - EXPECTED_NOTES <= NOTES_OF_SCENARIO.get(store.scenario, set())
