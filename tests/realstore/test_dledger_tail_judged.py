"""Members of a DLedger group with entries that their group does not agree on, written by real brokers.

A leader is cut off with entries that nobody else has, and comes back when the others have put entries of another term
in their place. Whatever directory is rebuilt, it is what the group agrees on; a broker that was killed there puts more
into its queues when it starts, and keeps it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.derived_files import derived, differing
from support.real_store import Group, RealStore
from support.rebuilding import rebuild_here, rules_of_release
from support.verifying import verify_here

from jobs import publish
from jobs.config import PublishOptions
from jobs.rebuilding import Built
from jobs.reporting import Reporter
from storeformat.dledger import committed_index

pytestmark = pytest.mark.realstore

SETTINGS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 60,
}
GROUPS: list[dict[str, Any]] = [
    {"seed": 70_000, "messages": 60, "tail": 3, "others": 40, "from_killed": False},
    {"seed": 70_001, "messages": 90, "tail": 150, "others": 2, "from_killed": False},
    {"seed": 70_002, "messages": 120, "tail": 3, "others": 3, "from_killed": True},
    {"seed": 70_003, "messages": 40, "tail": 40, "others": 60, "from_killed": True},
]
TAIL_AFTER_KILL = ("5.3.3", "5.5.0")
"""Releases whose recovery of a killed member dispatches every entry that lies there (5.2.0 and later). Up to 5.3.3 it
counts entries without their heads and truncates the queues again where that leads it.
"""


@dataclass(frozen=True)
class Judged:
    release: str
    groups: list[Group]

    def rebuild(self, root: Path, work: Path) -> Built:
        built = rebuild_here(root, work, SETTINGS, broker_version=rules_of_release(self.release), split_size=5_000)
        assert built.reading.damaged == []
        return built


@pytest.fixture(
    scope="module",
    params=["5.3.3", *(pytest.param(release, marks=pytest.mark.slow) for release in ("4.9.8", "5.1.4", "5.5.0"))],
)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    directory = tmp_path_factory.mktemp(f"tail-{request.param}")
    yield Judged(request.param, RealStore(request.param).overwritten(directory, GROUPS, SETTINGS))
    shutil.rmtree(directory)


def test_every_member_gives_the_files_of_those_that_stayed(judged: Judged, tmp_path: Path) -> None:
    for number, group in enumerate(judged.groups):
        members = [group.root / name for name in ("n0", "n1", "n2")]
        stayed = [root for root in members if root.name != group.old_leader]
        expected = derived(stayed[0])
        assert differing(expected, derived(stayed[1])) == []
        for root in members:
            built = judged.rebuild(root, tmp_path / f"{number}-{root.name}")
            assert differing(expected, derived(Path(built.directory))) == [], root


def test_a_tail_that_is_not_committed_is_in_no_queue(judged: Judged, tmp_path: Path) -> None:
    """As in the queues of the leader that wrote it, killed or stopped."""
    for number, (group, asked) in enumerate(zip(judged.groups, GROUPS, strict=True)):
        for name in ("killed", "stopped"):
            root = group.root / name
            checkpoint = root / f"dledger-{group.old_leader}" / "checkpoint"
            assert committed_index(str(checkpoint)) == group.committed_index
            built = judged.rebuild(root, tmp_path / f"{number}-{name}")
            assert differing(derived(root), derived(Path(built.directory))) == [], root
            assert built.reading.records == group.committed_index + 1
            whole = rebuild_here(
                root, tmp_path / f"{number}-{name}-whole", SETTINGS, until_offset=end_of_entries(root, group)
            )
            assert whole.reading.records == group.committed_index + 1 + asked["tail"]


def end_of_entries(root: Path, group: Group) -> int:
    """The offset behind the last entry, from the group's own index of entries: units of 32 bytes."""
    units = (root / f"dledger-{group.old_leader}" / "index" / f"{0:020d}").read_bytes()[: 1 << 20]
    position = size = at = 0
    while int.from_bytes(units[at : at + 4], "big") == 1:
        position, size = (int.from_bytes(units[at + a : at + b], "big") for a, b in ((4, 12), (12, 16)))
        at += 32
    return position + size


def test_a_killed_member_starts_on_a_published_rebuild_with_what_is_committed(judged: Judged, tmp_path: Path) -> None:
    left, published = [], []
    for number, group in enumerate(judged.groups):
        for name, roots in (("left", left), ("published", published)):
            roots.append(Path(shutil.copytree(group.root / "killed", tmp_path / f"{name}-{number}")))
            describe(roots[-1], group)
        made = Path(judged.rebuild(published[-1], tmp_path / f"work-{number}").directory)
        publish.run(PublishOptions(store=str(published[-1]), rebuilt=str(made), after_crash=True), Reporter(quiet=True))
        assert not (published[-1] / "abort").exists()
    before = [derived(root) for root in published]
    loaded = RealStore(judged.release).load([*left, *published])
    assert all(store.loaded for store in loaded)
    units = [sum(queue.max_offset for queue in store.queues) for store in loaded]
    for root, files in zip(published, before, strict=True):
        assert differing(files, derived(root)) == [], root
    for number, (group, asked) in enumerate(zip(judged.groups, GROUPS, strict=True)):
        theirs, ours = units[number], units[len(left) + number]
        if judged.release == "5.5.0":
            assert theirs == ours + asked["tail"]
        elif judged.release not in TAIL_AFTER_KILL:
            assert theirs == ours
        verified = verify_here(published[number], SETTINGS, broker_version=rules_of_release(judged.release))
        assert not verified.verdicts.counts
        assert not verified.verdicts.hazards
        warned = verify_here(group.root / "killed", SETTINGS, broker_version=rules_of_release(judged.release))
        hazards = [hazard["hazard"] for hazard in warned.verdicts.hazards]
        assert hazards == (["uncommitted_tail"] if judged.release in TAIL_AFTER_KILL else [])
        assert not warned.verdicts.counts


def describe(root: Path, group: Group) -> None:
    peers = ";".join(f"n{member}-127.0.0.1:{20_000 + member}" for member in range(3))
    group_settings = {"enableDLegerCommitLog": True, "dLegerSelfId": group.old_leader, "dLegerPeers": peers}
    (root / "store.json").write_text(json.dumps({"settings": {**SETTINGS, **group_settings}}))


def test_verify_finds_what_a_killed_member_is_left_with(judged: Judged) -> None:
    """Its tail in queues and index, or, where it dispatches nothing again, an index without its last entries."""
    for group, asked in zip(judged.groups, GROUPS, strict=True):
        root = group.root / group.old_leader
        verified = verify_here(root, SETTINGS, broker_version=rules_of_release(judged.release))
        assert bool(verified.verdicts.counts or verified.verdicts.hazards) == asked["from_killed"], root
