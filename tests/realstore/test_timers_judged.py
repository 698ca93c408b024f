"""Timer files lost in each combination: what ``preflight`` says and what the timer of the store makes of it; and after
``rebuild --only timers`` and ``publish`` each message that waits comes once, and none that was delivered.

A message comes once for each unit in the wheel, and once if the timer queues it again.
"""

from __future__ import annotations

import itertools
import shutil
import struct
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.drilling import run_job
from support.real_broker import SINCE_5
from support.real_store import RealStore
from support.rebuilding import preflight_here
from support.store_builder import LogBuilder
from support.store_to_start import QUEUE_FILE, SEGMENT, finished

from jobs.preflight.stopped_store import Reason

pytestmark = pytest.mark.realstore

TIMER = "rmq_sys_wheel_timer"
DELIVERED, WAITING = 3, 5
SETTINGS: Mapping[str, int] = {
    "mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": QUEUE_FILE, "maxHashSlotNum": 100,
    "maxIndexNum": 60, "mappedFileSizeTimerLog": 8192,
}  # fmt: skip
SET = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
SLOT = np.dtype([("seconds", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])
WHEEL, LOG, CHECK = ("kept", "lost"), ("kept", "lost"), ("kept", "lost", "zeros")
COMBINATIONS = [*itertools.product(WHEEL, LOG, CHECK), ("short", "kept", "kept")]


@dataclass(frozen=True)
class Tried:
    """What was said, and how often each message would come, by its number (None: no start), now and when cured."""

    said: tuple[Reason, ...]
    comes: list[int] | None
    cured: list[int] | None


def made(root: Path) -> list[int]:
    """A store whose first messages were delivered, with a timer that was stopped; returns where each message lies."""
    log, now = LogBuilder(SEGMENT), int(time.time() * 1000)
    properties = [
        {"UNIQ_KEY": f"k{number}", "TIMER_OUT_MS": str(now + 3_600_000 + 1_000 * number), "REAL_TOPIC": "Sold",
         "REAL_QID": "0"}
        for number in range(DELIVERED + WAITING)
    ]  # fmt: skip
    placed = [log.message(topic=TIMER, properties=one).offset for one in properties]
    for one in properties[:DELIVERED]:
        log.message(topic="Sold", properties={**one, "TIMER_DEQUEUE_MS": "1"})
    finished(root, log)
    cure(root)
    return placed


def cure(root: Path) -> None:
    new = root.with_name(f"{root.name}-new")
    done = run_job("rebuild", "--store", root, "--output", new, "--only", "timers", *SET)
    assert (done.code, done.report["timers_waiting"]) == (0, WAITING), done.said
    assert run_job("publish", "--store", root, "--from", new).code == 0


def lose(root: Path, wheel: str, log: str, check: str) -> None:
    if wheel == "lost":
        (root / "timerwheel").unlink()
    if wheel == "short":
        (root / "timerwheel").write_bytes(b"short")
    if log == "lost":
        shutil.rmtree(root / "timerlog")
    if check == "lost":
        (root / "config" / "timercheck").unlink()
    if check == "zeros":
        (root / "config" / "timercheck").write_bytes(bytes(4096))


def comes(root: Path, placed: list[int], queue_offset: int | None) -> list[int] | None:
    if queue_offset is None:
        return None
    log = b"".join(path.read_bytes() for path in sorted(root.glob("timerlog/*")))
    wheel = np.fromfile(root / "timerwheel", SLOT)
    found: Counter[int] = Counter()
    for last in wheel["last"][wheel["seconds"] > time.time()].tolist():
        position = last
        while 0 <= position < len(log):
            (offset,) = struct.unpack_from(">q", log, position + 28)
            found[offset] += 1
            (position,) = struct.unpack_from(">q", log, position + 4)
    return [found[offset] + (number >= queue_offset) for number, offset in enumerate(placed)]


@pytest.fixture(scope="module", params=SINCE_5)
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Tried]:
    release: str = request.param
    scratch, judge = tmp_path_factory.mktemp(release.replace(".", "-")), RealStore(release)
    placed = made(scratch / "whole")
    assert judge.load_timers([scratch / "whole"], SETTINGS) == [len(placed)]
    said, roots = [], []
    for number, states in enumerate(COMBINATIONS):
        for part in ("tried", "cured"):
            root = scratch / f"{part}-{number:02d}"
            shutil.copytree(scratch / "whole", root)
            lose(root, *states)
            roots.append(root)
        reasons = preflight_here(root, SETTINGS, release).reasons
        said.append(tuple(reason for reason in reasons if reason.rule.startswith("timer")))
        cure(root)
    loaded = judge.load_timers(roots, SETTINGS)
    counts = [comes(root, placed, offset) for root, offset in zip(roots, loaded, strict=True)]
    return [Tried(*row) for row in zip(said, counts[::2], counts[1::2], strict=True)]


@pytest.mark.parametrize("number", range(len(COMBINATIONS)), ids=["-".join(row) for row in COMBINATIONS])
def test_each_combination(tried: list[Tried], number: int) -> None:
    case = tried[number]
    assert case.cured == [0] * DELIVERED + [1] * WAITING
    if case.comes is None:
        assert [(reason.rule, reason.unsafe) for reason in case.said] == [("timer_wheel_size", True)]
        return
    never = 0 in case.comes[DELIVERED:]
    twice = any(case.comes[:DELIVERED]) or max(case.comes) > 1
    assert any(reason.unsafe for reason in case.said) is never, (case.comes, case.said)
    if twice:
        assert case.said, case.comes
    if not case.said:
        assert case.comes == case.cured
