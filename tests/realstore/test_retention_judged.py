"""What ``preflight`` says will be deleted, and what the store of each release then deletes, on a small memory file
system that is filled to a known part: which offsets, how soon, and how many messages a group had not read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.hostile import small_disk
from support.real_store import RELEASES, RealStore
from support.rebuilding import preflight_here
from support.store_to_start import as_fastjson

from jobs.preflight.stopped_store import Answer, Reason

pytestmark = pytest.mark.realstore

SEGMENT = 65_536
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 400, "messageIndexEnable": False}
OLD = 3
"""Segments older than four days."""
DISK = 32 << 20


@dataclass(frozen=True)
class Case:
    """``used`` is the percentage of the disk in use, None for any."""

    settings: Mapping[str, Any]
    used: int | None = None
    of_4x: bool = True


def hour(ahead: int) -> str:
    return f"{(time.localtime().tm_hour + ahead) % 24:02d}"


KEEP = {"diskMaxUsedSpaceRatio": 95, "cleanFileForciblyEnable": False}


def case(hours: int, when: str, used: int | None = None, *, of_4x: bool = True, **more: Any) -> Case:
    return Case({**KEEP, "fileReservedTime": hours, "deleteWhen": when, **more}, used, of_4x)


CASES = {
    "in_its_hour": case(48, "{now}"),
    "one_of_its_hours": case(48, "{later};{now}"),
    "in_another_hour": case(48, "{later}"),
    "kept_longer": case(200, "{now}"),
    "disk_above_its_ratio": case(48, "{later}", 60, diskMaxUsedSpaceRatio=50),
    "forced": case(200, "{later}", 88, diskMaxUsedSpaceRatio=75, cleanFileForciblyEnable=True),
    "forced_in_its_hour": case(200, "{now}", 88, cleanFileForciblyEnable=True),
    "not_forced": case(200, "{later}", 88),
    "full_but_young_enough_to_stay": case(48, "{later}", 88),
    "forced_from_a_third_on": case(
        200, "{later}", 40, of_4x=False, diskSpaceCleanForciblyRatio=20, cleanFileForciblyEnable=True
    ),
}


@dataclass(frozen=True)
class Tried:
    said: Answer
    begin: int
    unread: int
    """Messages that the group had not read and whose records are gone."""
    segments: int

    @property
    def reason(self) -> Reason | None:
        return next((reason for reason in self.said.reasons if reason.rule == "messages_deleted"), None)


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A file system of ``DISK`` bytes; its place is open to the store's process."""
    with small_disk(Path("/dev/shm") / f"rocketmq-store-spark-{os.getpid()}", DISK) as place:
        yield place


def commit(root: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    table: dict[str, dict[int, int]] = {}
    for (topic, queue_id), offset in offsets.items():
        table.setdefault(f"{topic}@readers", {})[queue_id] = offset
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(as_fastjson({"offsetTable": table}), encoding="utf-8")


def age(root: Path) -> None:
    then = time.time() - 100 * 3600
    for path in sorted((root / "commitlog").iterdir())[:OLD]:
        os.utime(path, (then, then))


def fill(disk: Path, percent: int | None) -> None:
    state = os.statvfs(disk)
    wanted = int(DISK * ((percent or 0) + 0.5) / 100) - (state.f_blocks - state.f_bfree) * state.f_frsize
    (disk / "ballast").write_bytes(bytes(max(wanted, 0)))


def said_of(root: Path, settings: Mapping[str, Any], release: str) -> Answer:
    return preflight_here(root, {**SETTINGS, **settings}, release)


@dataclass(frozen=True)
class Story:
    release: str
    cases: Mapping[str, Tried]
    count: int
    """Segments before."""


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, disk: Path) -> Story:
    release: str = request.param
    scratch, judge = tmp_path_factory.mktemp(release.replace(".", "-")), RealStore(release)
    (written,) = judge.write(scratch / "written", 1, seed=79_000, settings=SETTINGS, messages=500)
    shutil.copytree(written.root, scratch / "asked")
    (asked,) = judge.open([scratch / "asked"])
    before = {(row["topic"], row["queueId"]): row for row in asked.answers["queues"]}
    committed = {
        key: row["queueOffsets"][len(row["queueOffsets"]) // 2] for key, row in before.items() if row["queueOffsets"]
    }
    commit(written.root, committed)
    told = {
        name: {**case.settings, "deleteWhen": case.settings["deleteWhen"].format(now=hour(0), later=hour(5))}
        for name, case in CASES.items()
        if case.of_4x or not release.startswith("4.")
    }
    cases = {}
    for used in dict.fromkeys(case.used for case in CASES.values()):
        names = [name for name in told if CASES[name].used == used]
        roots = [disk / name for name in names]
        (disk / "ballast").unlink(missing_ok=True)
        for root in roots:
            subprocess.run(["cp", "-a", "--sparse=never", written.root, root], check=True)
            age(root)
        fill(disk, used)
        said = [said_of(root, told[name], release) for root, name in zip(roots, names, strict=True)]
        cleaned = judge.clean(roots, [told[name] for name in names]) if names else []
        for name, answer, store in zip(names, said, cleaned, strict=True):
            unread = sum(
                record < store.min_offset and offset >= committed[key]
                for key, row in before.items()
                for record, offset in zip(row["commitLogOffsets"], row["queueOffsets"], strict=True)
            )
            cases[name] = Tried(answer, store.min_offset, unread, len(list((store.root / "commitlog").iterdir())))
            shutil.rmtree(store.root)
    return Story(release, cases, len(list((written.root / "commitlog").iterdir())))


def test_what_is_deleted_at_once_is_what_was_said(story: Story) -> None:
    for name, tried in story.cases.items():
        reason = tried.reason
        at_once = reason is not None and "deleted at once" in reason.what
        predicted = reason.values["begin"] if reason is not None and at_once else 0
        assert tried.begin == predicted, (name, tried.said.lines())


def test_what_goes_later_is_still_there(story: Story) -> None:
    tried = story.cases["in_another_hour"]
    assert tried.reason is not None
    assert "deleted within 5 h" in tried.reason.what
    assert tried.reason.values["begin"] == OLD * SEGMENT
    assert tried.begin == 0


def test_the_cases_delete_and_keep(story: Story) -> None:
    deleted = {name for name, tried in story.cases.items() if tried.begin}
    expected = {"in_its_hour", "one_of_its_hours", "disk_above_its_ratio", "forced", "forced_in_its_hour"}
    if not story.release.startswith("4."):
        expected |= {"full_but_young_enough_to_stay", "forced_from_a_third_on"}
    assert deleted == expected


def test_unread_messages_are_counted(story: Story) -> None:
    for name, tried in story.cases.items():
        if tried.begin:
            assert tried.reason is not None
            assert tried.unread > 0
            assert f"; {tried.unread:,} messages of them" in tried.reason.what, (name, tried.reason.what)
            assert not tried.said.safe


def test_after_the_cure_nothing_is_deleted(story: Story) -> None:
    """``fileReservedTime`` raised."""
    assert story.cases["kept_longer"].reason is None
    assert story.cases["kept_longer"].segments >= story.count
