"""Real stores, and what a killed member of a group is left with."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.real_store import (
    FEATURES,
    RELEASES,
    Group,
    Opened,
    RealStore,
    RealStoreFailed,
    RealStoreUnavailable,
    Store,
    build,
    derived,
    differing,
    wiped_copy,
)
from support.rebuilding import rebuild_here, rules_of_release, verify_here

from jobs.contract.options import PublishOptions
from jobs.contract.report import Reporter
from jobs.publish import publish
from jobs.rebuild.build_store import Built
from jobs.verify.differences import Verdicts
from storeformat.log.dledger import committed_index

pytestmark = pytest.mark.realstore


# ----------------------------------------------------------------------------------------------------------- real store
COUNT = 6
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
UNIT = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stores(release: str, tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    return RealStore(release).write(tmp_path_factory.mktemp(f"written-{release}"), COUNT, seed=1000)


@pytest.fixture(scope="module")
def recovered(release: str, stores: list[Store], tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    target = tmp_path_factory.mktemp(f"recovered-{release}")
    return RealStore(release).recover([wiped_copy(store.root, target / store.root.name) for store in stores])


@pytest.fixture(scope="module")
def opened(release: str, stores: list[Store], tmp_path_factory: pytest.TempPathFactory) -> list[Opened]:
    target = tmp_path_factory.mktemp(f"opened-{release}")
    roots = [Path(shutil.copytree(store.root, target / store.root.name)) for store in stores]
    return RealStore(release).open(roots, put=True)


def commit_log(store: Store) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store.root / "commitlog").iterdir()))


def test_every_queue_holds_what_the_store_says(stores: list[Store]) -> None:
    for store in stores:
        assert store.loaded
        for queue in store.queues:
            files = sorted((store.root / "consumequeue" / queue.topic / str(queue.queue_id)).glob("*"))
            units = np.frombuffer(b"".join(path.read_bytes() for path in files), UNIT)
            assert np.count_nonzero(units["size"]) == queue.max_offset, (store.root, queue)
        counts = store.counts
        queued = sum(queue.max_offset for queue in store.queues)
        assert queued == counts["messages"] - counts["prepared"] - counts["rolled_back"]


def test_stores_end_cleanly_and_cover_the_log(stores: list[Store]) -> None:
    for store in stores:
        assert not (store.root / "abort").exists()
        assert len(list((store.root / "index").iterdir())) > 1
        log = commit_log(store)
        assert log[store.end_offset :].count(0) == len(log) - store.end_offset
        assert log[store.end_offset - 1 : store.end_offset + 1] != b"\0\0"


def test_a_seed_gives_one_log(tmp_path: Path) -> None:
    first, second = (RealStore("5.3.3").write(tmp_path / name, 3, seed=1000) for name in ("first", "second"))
    for one, other in zip(first, second, strict=True):
        assert (one.settings, one.counts, one.end_offset) == (other.settings, other.counts, other.end_offset)
        assert commit_log(one)[: one.end_offset] == commit_log(other)[: other.end_offset]
    assert len({commit_log(store)[:65536] for store in first}) == len(first)


def test_a_wiped_store_recovers_to_what_it_was(release: str, stores: list[Store], recovered: list[Store]) -> None:
    for before, after in zip(stores, recovered, strict=True):
        assert (after.loaded, after.end_offset) == (True, before.end_offset)
        was, became = derived(before.root), derived(after.root)
        different = {name for name in was.keys() | became.keys() if was.get(name) != became.get(name)}
        if release == "4.9.8":
            # It dispatches before it knows the delay levels, and so writes the hash of the tag.
            different = {name for name in different if SCHEDULE_TOPIC not in name}
        assert not different


def test_an_open_store_serves_every_offset(stores: list[Store], opened: list[Opened]) -> None:
    for written, open_ in zip(stores, opened, strict=True):
        assert open_.store.loaded
        assert open_.store.end_offset == open_.store.loaded_end_offset == written.end_offset
        queues: list[dict[str, Any]] = open_.answers["queues"]
        assert [(q["topic"], q["queueId"], q["maxOffset"]) for q in queues] == [
            (q.topic, q.queue_id, q.max_offset) for q in written.queues
        ]
        for queue in queues:
            assert "notFoundAt" not in queue
            assert queue["queueOffsets"] == list(range(queue["minOffset"], queue["maxOffset"]))
            assert len(queue["offsetByTime"]) == len(open_.answers["times"])


def test_an_open_store_finds_its_keys(release: str, opened: list[Opened]) -> None:
    types = set()
    for open_ in opened:
        queries = open_.answers["queries"]
        types |= {query["type"] for query in queries}
        found = sum(bool(query["commitLogOffsets"]) for query in queries)
        assert found > 0.9 * len(queries)  # the rest are keys of rolled back messages only
    assert types == ({"K", "T"} if release == "5.5.0" else {"K"})


def test_the_next_message_gets_the_next_offset(opened: list[Opened]) -> None:
    for open_ in opened:
        next_offset = {(q.topic, q.queue_id): q.max_offset for q in open_.store.queues}
        assert {(p["topic"], p["queueId"]): p["queueOffset"] for p in open_.puts} == next_offset
        assert all(put["served"] for put in open_.puts)


@pytest.mark.parametrize("version", RELEASES)
def test_features_leave_their_traces(version: str, tmp_path: Path) -> None:
    (store,) = RealStore(version).write(tmp_path, 1, seed=7, features=FEATURES[version], messages=120)
    log = commit_log(store)
    names = {queue.topic for queue in store.queues}
    stopped = {
        "lmq": any(name.startswith("%LMQ%") for name in names),
        "cq_ext": any((store.root / "consumequeue_ext").rglob("0*")),
        "batch_cq": any((store.root / "batchconsumequeue").rglob("0*")) and store.counts["inner_batched"] > 0,
        "long_topics": any(len(name) > 127 for name in names) and bytes.fromhex("daa320ab") in log,
        "property_crc": log.count(b"__CRC32#\1") == store.counts["messages"],
    }
    assert {feature for feature, there in stopped.items() if there} == set(FEATURES[version])


@pytest.mark.parametrize("version", [RELEASES[0], RELEASES[-1]])
def test_halt_leaves_an_abort_file(version: str, tmp_path: Path) -> None:
    (store,) = RealStore(version).write(tmp_path, 1, halt=True, messages=20)
    assert (store.root / "abort").exists()
    (again,) = RealStore(version).recover([store.root])
    assert (again.end_offset, again.queues) == (store.end_offset, store.queues)
    assert not (store.root / "abort").exists()


def test_bench_recovers_what_bench_wrote(tmp_path: Path) -> None:
    real = RealStore("5.3.3")
    written = real.bench_write(tmp_path / "log", 5_000_000, settings={"mappedFileSizeCommitLog": 1 << 20})
    assert {path.name for path in written.store.root.iterdir()} == {"commitlog", "store.json"}
    recovered = real.bench_recover(tmp_path / "log", tmp_path / "target", settings={"maxIndexNum": 30_000})
    assert recovered.messages == written.messages > 4500
    assert 0 < recovered.seconds < recovered.process_seconds
    header = min((tmp_path / "target" / "index").iterdir()).read_bytes()[:40]
    assert int.from_bytes(header[36:40], "big") == 3 * written.messages + 1


def test_a_setting_the_release_does_not_know_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RealStoreFailed, match="this release has no setting enabledAppendPropCRC"):
        RealStore("4.9.8").write(tmp_path, 1, features=["property_crc"])


def test_without_maven_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("support.real_store._HOME", tmp_path)
    (tmp_path / "pom.xml").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RealStoreUnavailable, match=re.escape("the real store needs Java 17 and Maven")):
        build("5.3.3")


# -------------------------------------------------------------------------------------------------- dledger tail judged
# Members of a DLedger group with entries that their group does not agree on, written by real brokers. Whatever
# directory is rebuilt, it is what the group agrees on; a broker killed there puts more into its queues when it starts.
#
# Members may differ in one thing: from 5.1 on one that starts without its checkpoint (``DLedgerCommitLog#getMaxOffset``
# is 0 then, and ``recheckReputOffsetFromCq`` false) dispatches its log again, and its index, which passes over what
# lies before its last record, takes this one twice (``IndexService#buildIndex``). DLedger loses that file by itself at
# times.
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
