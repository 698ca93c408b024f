"""Stores after random accidents: ``preflight`` calls those safe that a real store serves, and no others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.random_accidents import Trial, run, summary

pytestmark = pytest.mark.realstore

TRIALS = 300
ALARMS = 0.05
EXPLAINED = (
    ("queue_file_directory", "no start", "open: a directory with the name of a queue file is passed over"),
    ("queue", "first ('%LMQ%", "open: light queues are not compared with the log"),
    ("light_queue", "first ('%LMQ%", "open: light queues are not compared with the log"),
    ("unit", "first ('%LMQ%", "open: light queues are not compared with the log"),
    ("log_flip_topic", "another served", "open: a start makes queues of a log that skips a queue offset"),
)
"""What preflight calls safe and a start harms: accident, words of the harm, reason."""


def is_explained(trial: Trial) -> bool:
    return any(words in trial.harm and name.startswith(own) for own, words, _ in EXPLAINED for name in trial.accidents)


def test_preflight_and_the_real_store_agree(tmp_path: Path) -> None:
    seed = int(os.environ.get("ACCIDENTS_SEED", time.strftime("%Y%m%d")))
    trials = run(seed, range(TRIALS), tmp_path)
    told = [f"seed {seed}: python -m support.random_accidents --seed {seed} --only NUMBER", *summary(trials)]
    false_safe = [trial.line() for trial in trials if trial.verdict == "FALSE SAFE" and not is_explained(trial)]
    alarms = [trial.line() for trial in trials if trial.verdict == "FALSE ALARM"]
    print(*told, sep="\n")  # noqa: T201
    assert false_safe == [], told
    assert len(alarms) <= ALARMS * TRIALS, [*told, *alarms]
