"""Stores after random accidents: ``preflight`` calls those safe that a real store serves, and no others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.random_accidents import run, summary

pytestmark = pytest.mark.realstore

TRIALS = 300
ALARMS = 0.02


def test_preflight_and_the_real_store_agree(tmp_path: Path) -> None:
    seed = int(os.environ.get("ACCIDENTS_SEED", time.strftime("%Y%m%d")))
    trials = run(seed, range(TRIALS), tmp_path)
    told = [f"seed {seed}: python -m support.random_accidents --seed {seed} --only NUMBER", *summary(trials)]
    false_safe = [trial.line() for trial in trials if trial.verdict == "FALSE SAFE"]
    alarms = [trial.line() for trial in trials if trial.verdict == "FALSE ALARM"]
    print(*told, sep="\n")  # noqa: T201
    assert false_safe == [], told
    assert len(alarms) <= ALARMS * TRIALS, [*told, *alarms]
