"""What ``preflight`` says of queues in RocksDB, and what the store of a release does then: against the advice, and
after it.

A store that the release wrote, and its database from a rebuild. Copies of it:

===========  ===========================================================================================================
``shut``     CURRENT names a manifest that is not there
``first``    the database ends where the last record begins: after a clean stop that one is passed over
``far``      the database ends in the first of more than ten segments: from 5.4.0 on the start does not go back that far
===========  ===========================================================================================================

The cure is the rebuild itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.real_broker import RELEASES
from support.real_store import RealStore, RealStoreFailed
from support.rebuilding import preflight_here, rebuild_here, rules_of_release

from jobs.preflight.stopped_store import Answer

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.realstore

SETTINGS: Mapping[str, Any] = {
    "mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "messageIndexEnable": True,
}  # fmt: skip
ROCKSDB: Mapping[str, Any] = {**SETTINGS, "storeType": "defaultRocksDB"}
RULES = {"database_not_read", "messages_not_served"}


def said_of(root: Path, release: str) -> Answer:
    settings = {**ROCKSDB, "fileReservedTime": 999_999, "cleanFileForciblyEnable": False}
    answer = preflight_here(root, settings, release)
    # no broker was around: there is no configuration, which other tests are about
    return Answer(tuple(reason for reason in answer.reasons if reason.rule in RULES))


Served = set[int]


@dataclass(frozen=True)
class Case:
    """What was said of a copy, and what its queues served; None where the store failed, and why."""

    said: Answer
    served: Served | None
    why: str


@dataclass(frozen=True)
class Story:
    release: str
    offsets: list[int]
    begins: list[int]
    cases: Mapping[str, Case]

    def lost(self, name: str) -> Served:
        served = self.cases[name].served
        assert served is not None
        return set(self.offsets) - served


def opened(judge: RealStore, root: Path, known: Mapping[str, list[int]]) -> tuple[Served | None, str]:
    try:
        (found,) = judge.open([root], settings=ROCKSDB, known=[known])
    except RealStoreFailed as failure:
        return None, str(failure)
    if not found.store.loaded:
        return None, "not loaded"
    return {offset for queue in found.answers["queues"] for offset in queue["commitLogOffsets"]}, ""


def with_database(log: Path, root: Path, release: str, until: int | None) -> None:
    """Makes a store of a log, with its database as it was when the log was dispatched up to an offset."""
    shutil.copytree(log / "commitlog", root / "commitlog")
    built = rebuild_here(root, root.parent, ROCKSDB, broker_version=rules_of_release(release), until_offset=until)
    for path in Path(built.directory).iterdir():
        if path.name != "manifest.json":
            shutil.move(path, root / path.name)


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    release: str = request.param
    scratch, judge = tmp_path_factory.mktemp(release.replace(".", "-")), RealStore(release)
    (written,) = judge.write(scratch / "written", 1, seed=77_500, settings=SETTINGS, messages=1_500)
    (asked,) = judge.open([written.root])
    known: dict[str, list[int]] = {}
    offsets = []
    for queue in asked.answers["queues"]:
        known.setdefault(queue["topic"], []).append(queue["queueId"])
        offsets += queue["commitLogOffsets"]
    offsets.sort()
    begins = [int(path.name) for path in sorted((written.root / "commitlog").iterdir())]
    cases = {}
    for name, until in (("whole", None), ("first", offsets[-1]), ("far", offsets[5]), ("shut", None)):
        root = scratch / name / "store"
        with_database(written.root, root, release, until)
        if name == "shut":
            (root / "consumequeue" / "CURRENT").write_text("MANIFEST-999999\n")
        cases[name] = Case(said_of(root, release), *opened(judge, root, known))
    return Story(release, offsets, begins, cases)


def rules(case: Case) -> list[tuple[str, bool]]:
    return [(reason.rule, reason.unsafe) for reason in case.said.reasons]


def test_after_a_rebuild_everything_is_served(story: Story) -> None:
    assert rules(story.cases["whole"]) == []
    assert story.lost("whole") == set()


def test_a_database_that_cannot_be_read_ends_the_start(story: Story) -> None:
    assert rules(story.cases["shut"]) == [("database_not_read", True)]
    assert story.cases["shut"].why


def test_the_record_at_the_end_of_the_database_is_passed_over(story: Story) -> None:
    assert rules(story.cases["first"]) == [("messages_not_served", True)]
    assert story.lost("first") == {story.offsets[-1]}


def test_what_lies_before_the_last_ten_segments_is_not_served(story: Story) -> None:
    """Up to 5.3.3 the start goes back as far as the database. Where a queue lacks a message, 5.5.0 throws."""
    assert len(story.begins) > 11
    bounded = story.release != "5.3.3"
    assert rules(story.cases["far"]) == [("messages_not_served", True)]
    (reason,) = story.cases["far"].said.reasons
    assert (f"goes back to {story.begins[-10]} only" in reason.what) is bounded
    if bounded:
        assert '"cqUnit" is null' in story.cases["far"].why
    else:
        assert story.offsets[5] in story.lost("far")
