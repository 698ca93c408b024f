"""Members of a DLedger group with entries that their group does not agree on, written by real brokers. Whatever
directory is rebuilt, it is what the group agrees on; a broker killed there puts more into its queues when it starts.

Members may differ in one thing: from 5.1 on one that starts without its checkpoint (``DLedgerCommitLog#getMaxOffset``
is 0 then, and ``recheckReputOffsetFromCq`` false) dispatches its log again, and its index, which passes over what lies
before its last record, takes this one twice (``IndexService#buildIndex``). DLedger loses that file by itself at times.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.real_store import RELEASES, Group, RealStore, derived, differing
from support.rebuilding import rebuild_here, rules_of_release
from support.verifying import verify_here

from jobs.contract.options import PublishOptions
from jobs.contract.reporter import Reporter
from jobs.publish import publish
from jobs.rebuild.build_store import Built
from jobs.verify.differences import Verdicts
from storeformat.log.dledger import committed_index

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
    {"seed": 70_003, "messages": 40, "tail": 40, "others": 60, "from_killed": True, "forgets": True},
]
HEAD = 48
"""Bytes of an entry before its record."""

TAIL_AFTER_KILL = ("5.3.3", "5.5.0")
"""Releases whose recovery of a killed member dispatches every entry that lies there (5.2.0 and later). Up to 5.3.3 it
counts entries without their heads and truncates the queues again where that leads it.
"""


DISPATCHES_AGAIN = ("5.1.4", "5.3.3", "5.5.0")
"""Releases of which a member that starts without its checkpoint dispatches its log again."""


@dataclass(frozen=True)
class Judged:
    release: str
    groups: list[Group]

    def rebuild(self, root: Path, work: Path) -> Built:
        built = rebuild_here(root, work, SETTINGS, broker_version=rules_of_release(self.release), split_size=5_000)
        assert built.reading.damaged == []
        return built


@pytest.fixture(scope="module", params=RELEASES)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    directory = tmp_path_factory.mktemp(f"tail-{request.param}")
    yield Judged(request.param, RealStore(request.param).overwritten(directory, GROUPS, SETTINGS))
    shutil.rmtree(directory)


def test_every_member_gives_the_files_of_those_that_stayed(judged: Judged, tmp_path: Path) -> None:
    for number, (group, asked) in enumerate(zip(judged.groups, GROUPS, strict=True)):
        members = [group.root / name for name in ("n0", "n1", "n2")]
        (remembers,) = {root for root in members if root.name not in (group.old_leader, group.forgetful)}
        expected, other = derived(remembers), derived(group.root / group.forgetful)
        notes = verify(judged, group.root / group.forgetful).notes
        if asked.get("forgets") and judged.release in DISPATCHES_AGAIN:
            assert all(name.startswith("index/") for name in differing(expected, other))
            once, twice = index_entries(expected), index_entries(other)
            assert twice == with_the_last_twice(once, group)
            assert notes == [f"{len(twice) - len(once)} index entries are there twice, as after a crash"]
        else:
            assert differing(expected, other) == []
            assert notes == []
        for root in members:
            built = judged.rebuild(root, tmp_path / f"{number}-{root.name}")
            assert differing(expected, derived(Path(built.directory))) == [], root


def index_entries(files: dict[str, bytes]) -> list[tuple[int, int]]:
    """Key hash and offset of every entry, over all files. The first entry of a file counts none and is left out."""
    found: list[tuple[int, int]] = []
    begin = 40 + 4 * SETTINGS["maxHashSlotNum"]
    for rank in range(sum(name.startswith("index/") for name in files)):
        content = files[f"index/{rank}"]
        count = int.from_bytes(content[36:40], "big")
        found += [struct.unpack_from(">iq", content, at) for at in range(begin + 20, begin + 20 * count, 20)]
    return found


def with_the_last_twice(entries: list[tuple[int, int]], group: Group) -> list[tuple[int, int]]:
    """The entries as they are if the last record before the restart is dispatched again after it."""
    offset, _ = entry_at(group.root / group.forgetful, group.forgetful, group.committed_index)
    last = [number for number, entry in enumerate(entries) if entry[1] == offset + HEAD]
    assert last
    after = last[-1] + 1
    return entries[:after] + entries[last[0] : after] + entries[after:]


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
    """The offset after the last entry."""
    number, end = 0, 0
    while entry := entry_at(root, group.old_leader, number):
        number, end = number + 1, sum(entry)
    return end


def entry_at(root: Path, member: str, number: int) -> tuple[int, int] | None:
    """Offset and size of an entry, from the group's own index of entries: units of 32 bytes; None after the last."""
    with (root / f"dledger-{member}" / "index" / f"{0:020d}").open("rb") as units:
        units.seek(32 * number)
        magic, offset, size = struct.unpack(">iqi", units.read(16))
    return (offset, size) if magic == 1 else None


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
        found = verify(judged, published[number])
        assert not found.counts
        assert not found.hazards
        warned = verify(judged, group.root / "killed")
        hazards = [hazard["hazard"] for hazard in warned.hazards]
        assert hazards == (["uncommitted_tail"] if judged.release in TAIL_AFTER_KILL else [])
        assert not warned.counts


def describe(root: Path, group: Group) -> None:
    peers = ";".join(f"n{member}-127.0.0.1:{20_000 + member}" for member in range(3))
    group_settings = {"enableDLegerCommitLog": True, "dLegerSelfId": group.old_leader, "dLegerPeers": peers}
    (root / "store.json").write_text(json.dumps({"settings": {**SETTINGS, **group_settings}}))


def test_verify_finds_what_a_killed_member_is_left_with(judged: Judged) -> None:
    """Its tail in queues and index, or, where it dispatches nothing again, an index without its last entries."""
    for group, asked in zip(judged.groups, GROUPS, strict=True):
        root = group.root / group.old_leader
        found = verify(judged, root)
        assert bool(found.counts or found.hazards) == asked["from_killed"], root


def verify(judged: Judged, root: Path) -> Verdicts:
    return verify_here(root, SETTINGS, broker_version=rules_of_release(judged.release)).verdicts
