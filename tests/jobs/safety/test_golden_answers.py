"""Stores of real brokers: all that stopped cleanly may be started, and so may the killed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import rules_of_release
from support.store_to_start import configure

from jobs.safety.answer import safe_to_start
from jobs.safety.evidence.start_settings import StartSettings

pytestmark = pytest.mark.golden

EXPECTED_NOTES = {"messages_deleted"}  # their files' times mean nothing
NOTES_OF_SCENARIO = {"stale": {"torn_tail", "units_beyond_log"}, "recreate": {"messages_not_served"}}


@pytest.mark.parametrize("store", golden.stores(), ids=str)
@pytest.mark.parametrize("told", [True, False], ids=["release told", "release shown"])
def test_safe(store: GoldenStore, told: bool, tmp_path: Path) -> None:
    settings = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in store.settings.items()
    }
    version = rules_of_release(store.version) if told else None
    root = golden.unpack(store, tmp_path)
    configure(root)  # no broker was around it
    answer = safe_to_start(str(root), StartSettings(settings), version)
    assert answer.safe, answer.lines()
    notes = {reason.rule for reason in answer.reasons}
    assert notes - EXPECTED_NOTES <= NOTES_OF_SCENARIO.get(store.scenario, set())
