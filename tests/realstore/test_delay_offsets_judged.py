"""Delay levels whose offset lies beyond their queue: what ``preflight`` says, and what the store of a release does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.real_store import RealStore
from support.store_to_start import as_fastjson
from support.verifying import preflight_here

from jobs.preflight.reason import Reason

pytestmark = pytest.mark.realstore

SETTINGS = {"mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 400, "messageIndexEnable": False}
AHEAD = 7


def reason_of(root: Path, release: str) -> Reason:
    reasons = preflight_here(root, {**SETTINGS, "fileReservedTime": 99_999}, release).reasons
    return next(reason for reason in reasons if reason.rule == "delay_offset_beyond_queue")


@pytest.mark.parametrize("release", ["4.8.0", "4.9.8"])
def test_a_level_beyond_its_queue(release: str, tmp_path: Path) -> None:
    """4.9.8 sets the level back to the end of its queue; 4.8.0 lets it skip what is sent."""
    judge = RealStore(release)
    (written,) = judge.write(tmp_path / "written", 1, seed=80_000, settings=SETTINGS, messages=200)
    end = next(
        (queue.max_offset for queue in written.queues if (queue.topic, queue.queue_id) == ("SCHEDULE_TOPIC_XXXX", 0)), 0
    )
    roots = {}
    for name, offset in (("healthy", end), ("ahead", end + AHEAD), ("cured", end)):
        roots[name] = tmp_path / name
        shutil.copytree(written.root, roots[name])
        (roots[name] / "config").mkdir(exist_ok=True)
        (roots[name] / "config" / "delayOffset.json").write_text(as_fastjson({"offsetTable": {1: offset}}))
    reason = reason_of(roots["ahead"], release)
    corrects = release == "4.9.8"
    assert reason.unsafe is not corrects
    assert (reason.values["offset"], reason.values["right"]) == (end + AHEAD, end)
    assert f"set 1:{end + AHEAD} to 1:{end}" in reason.cure
    assert judge.delivers(list(roots.values())) == [True, corrects, True]
