"""What ``preflight`` says of a store, and what the store of each release then does: against the advice, and after it.

One store a release, written by that release. Each case is a copy with one thing wrong. The broker's store opens it
as it is, and another copy after the cure; what was served before and is not any more is lost.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.real_store import ENDS, Opened, RealStore, RealStoreFailed
from support.rebuilding import rebuild_here, rules_of_release
from support.store_to_start import as_fastjson, configure

from jobs.safety.answer import safe_to_start
from jobs.safety.evidence.start_settings import StartSettings
from jobs.safety.reason import Answer, Reason
from storeformat.storage import local_status

pytestmark = pytest.mark.realstore

SEGMENT, QUEUE_FILE = 65_536, 400
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": QUEUE_FILE, "maxHashSlotNum": 100,
            "maxIndexNum": 400, "messageIndexEnable": True}  # fmt: skip
UNIT = struct.Struct(">qiq")
LAG = 5
FILLERS = 7

Offsets = set[int]


@dataclass(frozen=True)
class Facts:
    """The healthy store: where its records lie that a queue serves, by (topic, queue id), and where the log ends."""

    root: Path
    served: Mapping[tuple[str, int], list[int]]
    end: int

    @property
    def offsets(self) -> list[int]:
        return sorted(offset for offsets in self.served.values() for offset in offsets)

    @property
    def largest_queue(self) -> tuple[str, int]:
        return max(self.served, key=lambda queue: len(self.served[queue]))


# --------------------------------------------------------------------------------------------------------------- damage
def queue_units(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())


def cut_units(root: Path, log_offset: int) -> None:
    """Takes the units from a log offset on, and files and queues that have none left."""
    for path in queue_units(root):
        data = path.read_bytes()
        kept = [data[at : at + 20] for at in range(0, len(data), 20) if UNIT.unpack_from(data, at)[1] > 0]
        kept = [unit for unit in kept if UNIT.unpack(unit)[0] < log_offset]
        if kept:
            path.write_bytes(b"".join(kept).ljust(len(data), b"\0"))
        else:
            path.unlink()
            if not list(path.parent.iterdir()):
                path.parent.rmdir()


def lag(root: Path, facts: Facts) -> None:
    cut_units(root, facts.offsets[-LAG])


def lag_after_crash(root: Path, facts: Facts) -> None:
    lag(root, facts)
    (root / "checkpoint").unlink()
    (root / "abort").touch()


def queues_wiped(root: Path, facts: Facts) -> None:
    shutil.rmtree(root / "consumequeue")


def one_queue(root: Path, facts: Facts) -> None:
    topic, queue_id = facts.largest_queue
    shutil.rmtree(root / "consumequeue" / topic / str(queue_id))


def stray_file(root: Path, facts: Facts) -> None:
    (root / "commitlog" / "notes.txt").write_text("x")


def segment_size(root: Path, facts: Facts) -> None:
    os.truncate(sorted((root / "commitlog").iterdir())[0], SEGMENT - 100)


def queue_file_size(root: Path, facts: Facts) -> None:
    os.truncate(queue_units(root)[0], QUEUE_FILE - 20)


def stray_queue_file(root: Path, facts: Facts) -> None:
    """As long as a queue file, so that its name alone is wrong."""
    topic, queue_id = facts.largest_queue
    (root / "consumequeue" / topic / str(queue_id) / "notes").write_bytes(bytes(QUEUE_FILE))


def fillers_alone(root: Path, facts: Facts) -> None:
    """What a broker leaves that dies when it has filled a queue up to its first message, before it writes that."""
    directory = root / "consumequeue" / facts.largest_queue[0] / str(facts.largest_queue[1])
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / f"{QUEUE_FILE:020d}").write_bytes((UNIT.pack(0, 0x7FFFFFFF, 0) * FILLERS).ljust(QUEUE_FILE, b"\0"))


def damaged_log(root: Path, facts: Facts) -> None:
    """One bit of a body, in the last segment that has some records after it."""
    offset = facts.offsets[-LAG]
    path = root / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[offset % SEGMENT + 8] ^= 1  # of the CRC
    path.write_bytes(bytes(data))


def damaged_before(root: Path, facts: Facts) -> None:
    """The same in the first segment, to which no start after a clean stop goes back."""
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[facts.offsets[LAG] + 8] ^= 1
    path.write_bytes(bytes(data))


def torn_tail(root: Path, facts: Facts) -> None:
    source = facts.offsets[0]
    record = (root / "commitlog" / f"{source // SEGMENT * SEGMENT:020d}").read_bytes()[source % SEGMENT :][:90]
    path = root / "commitlog" / f"{facts.end // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[facts.end % SEGMENT : facts.end % SEGMENT + 90] = record
    path.write_bytes(bytes(data))


def segment_missing(root: Path, facts: Facts) -> None:
    sorted((root / "commitlog").iterdir())[1].unlink()


def empty_last(root: Path, facts: Facts) -> None:
    last = sorted((root / "commitlog").iterdir())[-1]
    last.with_name(f"{int(last.name) + SEGMENT:020d}").touch()


def folder(root: Path, facts: Facts) -> None:
    (root / "commitlog" / "old").mkdir()


def queue_with_a_hole(root: Path, facts: Facts) -> None:
    """The last unit of the second-last file of a queue."""
    topic, queue_id = facts.largest_queue
    path = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[-2]
    path.write_bytes(path.read_bytes()[:-20].ljust(QUEUE_FILE, b"\0"))


def log_cut(root: Path, facts: Facts) -> None:
    """A copy that is older than its queues."""
    cut = facts.offsets[-LAG]
    for path in sorted((root / "commitlog").iterdir()):
        base = int(path.name)
        path.write_bytes(path.read_bytes()[: max(cut - base, 0)].ljust(SEGMENT, b"\0"))


def log_gone(root: Path, facts: Facts) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()


def nothing(root: Path, facts: Facts) -> None:
    pass


# ----------------------------------------------------------------------------------------------------------------- cure
def rebuilt(root: Path, facts: Facts) -> None:
    """Rebuild and publish, as far as queues go."""
    work = root.parent / f"{root.name}-work"
    work.mkdir()
    built = rebuild_here(root, work, SETTINGS)
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    shutil.copytree(Path(built.directory) / "consumequeue", root / "consumequeue")


def segments_put_back(root: Path, facts: Facts) -> None:
    shutil.rmtree(root / "commitlog")
    shutil.copytree(facts.root / "commitlog", root / "commitlog")


def stray_moved(root: Path, facts: Facts) -> None:
    (root / "commitlog" / "notes.txt").unlink()


def stray_queue_file_moved(root: Path, facts: Facts) -> None:
    topic, queue_id = facts.largest_queue
    (root / "consumequeue" / topic / str(queue_id) / "notes").unlink()


def folder_moved(root: Path, facts: Facts) -> None:
    (root / "commitlog" / "old").rmdir()


def empty_removed(root: Path, facts: Facts) -> None:
    sorted((root / "commitlog").iterdir())[-1].unlink()


Change = Callable[[Path, Facts], None]
CASES: dict[str, tuple[Change, str, Change]] = {
    "healthy": (nothing, "", nothing),
    "lag": (lag, "messages_not_served", rebuilt),
    "lag_after_crash": (lag_after_crash, "messages_not_served", nothing),
    "queues_wiped": (queues_wiped, "messages_not_served", rebuilt),
    "one_queue": (one_queue, "messages_not_served", rebuilt),
    "stray_file": (stray_file, "stray_file", stray_moved),
    "segment_size": (segment_size, "segment_size", segments_put_back),
    "queue_file_size": (queue_file_size, "queue_files", rebuilt),
    "stray_queue_file": (stray_queue_file, "queue_files", stray_queue_file_moved),
    "fillers_alone": (fillers_alone, "queue_files", rebuilt),
    "damaged_log": (damaged_log, "log_damaged", segments_put_back),
    "damaged_before": (damaged_before, "log_damaged", segments_put_back),
    "torn_tail": (torn_tail, "torn_tail", nothing),
    "log_gone": (log_gone, "log_missing", segments_put_back),
    "segment_missing": (segment_missing, "segment_missing", segments_put_back),
    "empty_last": (empty_last, "segment_size", empty_removed),
    "folder": (folder, "stray_file", folder_moved),
    "queue_with_a_hole": (queue_with_a_hole, "queue_files", rebuilt),
    "log_cut": (log_cut, "units_beyond_log", segments_put_back),
}
NOTED = ("torn_tail", "log_cut", "damaged_before")
SAFE_OF_RELEASE = {
    "4.9.8": {"healthy", "lag", "lag_after_crash", "queues_wiped", *NOTED},
    "5.1.4": {"healthy", "lag_after_crash", "empty_last", "folder", *NOTED},
    "5.3.3": {"healthy", "lag_after_crash", "empty_last", "folder", *NOTED},
    "5.5.0": {"healthy", "lag_after_crash", "empty_last", "folder", *NOTED},
}
"""Where the answer is safe; everywhere else it is not."""


@dataclass(frozen=True)
class Tried:
    """A case: what was said of it, what the broker served, and both again after the cure."""

    said: Answer
    opened: Opened
    said_after: Answer
    cured: Opened


@dataclass(frozen=True)
class Ahead:
    """A log that is shorter than its queues, and a group that had read all: ``ends`` (topic, queue id, end) of the
    reasons, ``after`` those that are left when their cure is done.
    """

    ends: list[tuple[str, str, str]]
    after: list[Reason]
    opened: Opened


def said_of(root: Path, release: str) -> Answer:
    settings = {name: str(value) for name, value in SETTINGS.items()}
    settings |= {"fileReservedTime": "999999", "cleanFileForciblyEnable": "false"}
    return safe_to_start(str(root), StartSettings(settings), rules_of_release(release))


def tried_ahead(facts: Facts, root: Path, judge: RealStore) -> Ahead:
    shutil.copytree(facts.root, root)
    log_cut(root, facts)
    table: dict[str, dict[int, int]] = {}
    for (topic, queue_id), offsets in facts.served.items():
        table.setdefault(f"{topic}@readers", {})[queue_id] = len(offsets)
    path = root / "config" / "consumerOffset.json"

    def ahead() -> list[Reason]:
        path.write_text(as_fastjson({"offsetTable": table}))
        return [reason for reason in said_of(root, judge.release).reasons if reason.rule == "committed_beyond_queue"]

    cures = [re.findall(r'"(.*)@readers", set (\d+):\d+ to \d+:(\d+)', reason.cure)[0] for reason in ahead()]
    for topic, queue_id, end in cures:
        table[f"{topic}@readers"][int(queue_id)] = int(end)
    after = ahead()
    return Ahead(cures, after, judge.open([root], put=True, ask=False)[0])


def served(opened: Opened) -> dict[tuple[str, int], list[int]]:
    return {(queue["topic"], queue["queueId"]): queue["commitLogOffsets"] for queue in opened.answers.get("queues", ())}


@dataclass(frozen=True)
class Story:
    release: str
    facts: Facts
    cases: Mapping[str, Tried]
    ahead: Ahead

    def lost(self, opened: Opened) -> Offsets:
        now = served(opened)
        return {
            offset for queue, offsets in self.facts.served.items() for offset in set(offsets) - set(now.get(queue, ()))
        }


@pytest.fixture(scope="module", params=ENDS)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    release: str = request.param
    scratch, judge = tmp_path_factory.mktemp(release.replace(".", "-")), RealStore(release)
    (written,) = judge.write(scratch / "written", 1, seed=77_000, settings=SETTINGS, messages=600)
    configure(written.root)
    shutil.copytree(written.root, scratch / "asked")
    (asked,) = judge.open([scratch / "asked"])
    facts = Facts(written.root, served(asked), written.end_offset)
    said: dict[str, tuple[Answer, Answer]] = {}
    for name, (damage, _, cure) in CASES.items():
        for part in ("tried", "cured"):
            root = scratch / part / name
            shutil.copytree(written.root, root)
            damage(root, facts)
        said[name] = said_of(scratch / "tried" / name, release), said_of(root, release)
        cure(root, facts)
        said[name] = said[name][0], said_of(root, release)
    roots = [scratch / part / name for part in ("tried", "cured") for name in CASES]
    stuck = [root for root in roots if release.startswith("4.") and root == scratch / "tried" / "fillers_alone"]
    roots = [root for root in roots if root not in stuck]
    opened = {root.parent.name + root.name: one for root, one in zip(roots, judge.open(roots), strict=True)}
    for root in stuck:
        with pytest.raises(RealStoreFailed, match="not a clean shutdown"):
            judge.open([root])
        opened[root.parent.name + root.name] = opened["triedstray_file"]  # one that serves nothing
    return Story(
        release,
        facts,
        {name: Tried(said[name][0], opened[f"tried{name}"], said[name][1], opened[f"cured{name}"]) for name in CASES},
        tried_ahead(facts, scratch / "ahead", judge),
    )


@pytest.mark.parametrize("name", CASES)
class TestCases:
    def test_what_is_said(self, story: Story, name: str) -> None:
        said = story.cases[name].said
        assert said.safe is (name in SAFE_OF_RELEASE[story.release]), said.lines()
        rules = {reason.rule for reason in said.reasons if reason.unsafe or name in NOTED}
        if not said.safe or name in NOTED:
            assert CASES[name][1] in rules

    def test_what_is_called_safe_loses_nothing(self, story: Story, name: str) -> None:
        tried = story.cases[name]
        if tried.said.safe:
            assert tried.opened.store.loaded
            kept = story.facts.offsets[-LAG] if name == "log_cut" else story.facts.end
            assert {offset for offset in story.lost(tried.opened) if offset < kept} == set()

    def test_after_the_cure_nothing_is_lost(self, story: Story, name: str) -> None:
        tried = story.cases[name]
        assert tried.cured.store.loaded
        assert tried.said_after.safe, tried.said_after.lines()
        assert story.lost(tried.cured) == set()


LOSSES = {  # of which the broker's store says how many, and so does the reason
    ("lag", "5.1.4"): LAG, ("lag", "5.5.0"): 1, ("one_queue", "4.9.8"): None, ("one_queue", "5.1.4"): None,
    ("one_queue", "5.3.3"): None, ("one_queue", "5.5.0"): None, ("queues_wiped", "5.1.4"): None,
    ("queues_wiped", "5.5.0"): None,
}  # fmt: skip


class TestAgainstTheAdvice:
    def test_messages_are_not_served(self, story: Story) -> None:
        for name in ("lag", "one_queue", "queues_wiped"):
            if (name, story.release) in LOSSES:
                tried = story.cases[name]
                count = sum(reason.found for reason in tried.said.reasons if reason.rule == CASES[name][1])
                assert len(story.lost(tried.opened)) == count, name
                assert LOSSES[name, story.release] in (None, count)

    def test_5_3_3_loses_the_first_of_them_alone(self, story: Story) -> None:
        if story.release == "5.3.3":
            assert len(story.lost(story.cases["lag"].opened)) == 1

    def test_what_a_missing_segment_held_is_not_served(self, story: Story) -> None:
        held = {offset for offset in story.facts.offsets if SEGMENT <= offset < 2 * SEGMENT}
        assert held <= story.lost(story.cases["segment_missing"].opened)

    def test_files_after_a_hole_in_a_queue_are_deleted(self, story: Story) -> None:
        tried = story.cases["queue_with_a_hole"]
        (reason,) = (reason for reason in tried.said.reasons if reason.rule == "queue_files")
        assert len(story.lost(tried.opened)) >= reason.found > 0

    def test_only_old_releases_stumble_over_directories_and_empty_segments(self, story: Story) -> None:
        for name in ("folder", "empty_last"):
            assert story.cases[name].opened.store.loaded is not story.release.startswith("4.")

    def test_a_group_ahead_skips_what_is_put(self, story: Story) -> None:
        """The log is that of an older copy, and the group had read all: each queue goes on where the rule says."""
        ends = {(topic, int(queue)): int(end) for topic, queue, end in story.ahead.ends}
        assert ends
        for put in story.ahead.opened.puts:
            queue = (put["topic"], put["queueId"])
            assert put["queueOffset"] == ends.get(queue, len(story.facts.served.get(queue, ()))), queue
        assert story.ahead.after == []

    @pytest.mark.parametrize("name", ["stray_file", "segment_size", "queue_file_size", "stray_queue_file"])
    def test_the_store_does_not_load(self, story: Story, name: str) -> None:
        assert not story.cases[name].opened.store.loaded

    def test_of_a_queue_of_fillers_nothing_is_served(self, story: Story) -> None:
        """Nor of any other up to 4.9.8, which stops as after a crash: recovery takes the fillers for a message at the
        2 GiB mark of the log, and what lies before it for dispatched.
        """
        lost = story.lost(story.cases["fillers_alone"].opened)
        assert lost >= set(story.facts.served[story.facts.largest_queue])

    def test_a_damaged_log_is_cut(self, story: Story) -> None:
        opened = story.cases["damaged_log"].opened
        assert opened.store.loaded_end_offset == story.facts.offsets[-LAG]
        assert len(story.lost(opened)) == LAG

    def test_queues_without_a_log_are_deleted(self, story: Story) -> None:
        opened = story.cases["log_gone"].opened
        assert sum(map(len, served(opened).values())) == 0


@pytest.mark.parametrize("release", ENDS)
@pytest.mark.parametrize("halt", [False, True], ids=["stopped", "killed"])
def test_healthy_stores_are_safe(release: str, halt: bool, tmp_path: Path) -> None:
    stores = RealStore(release).write(tmp_path, 8, seed=78_000 + halt, halt=halt)
    for store in stores:
        settings: dict[str, Any] = {name: str(value) for name, value in store.settings.items()}
        configure(store.root)
        answer = safe_to_start(str(store.root), StartSettings(settings), rules_of_release(release))
        assert answer.safe, (store.root.name, answer.lines())


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_members_of_a_group_are_safe(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_status, "space_of", lambda path: local_status.Space(1 << 40, 1 << 39, 1 << 39))
    for store in RealStore(release).write(tmp_path, 3, seed=78_500, features=["dledger"]):
        settings = {name: str(value).lower() for name, value in store.settings.items()}
        configure(store.root)
        answer = safe_to_start(str(store.root), StartSettings(settings), rules_of_release(release))
        assert answer.first_line == "safe to start", answer.lines()


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_a_store_in_use(release: str, tmp_path: Path) -> None:
    (written,) = RealStore(release).write(tmp_path, 1, seed=79_500, settings=SETTINGS, messages=30)
    configure(written.root)
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    line = [sys.executable, "-c", program, str(written.root / "lock")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert [reason.rule for reason in said_of(written.root, release).reasons] == ["store_in_use"]
        with pytest.raises(RealStoreFailed, match="Lock failed"):
            RealStore(release).open([written.root])
        holder.communicate("\n")
    assert said_of(written.root, release).safe
    assert RealStore(release).open([written.root])[0].store.loaded


def with_an_empty_last_file(root: Path, queue: tuple[str, int], offsets: list[int]) -> tuple[Path, int]:
    """Cuts log and queues where the last file of a queue would begin, and makes that file; returns it, and the queue's
    end.
    """
    end = (len(offsets) - 1) // (QUEUE_FILE // 20) * (QUEUE_FILE // 20)
    cut_units(root, offsets[end])
    for path in sorted((root / "commitlog").iterdir()):
        path.write_bytes(path.read_bytes()[: max(offsets[end] - int(path.name), 0)].ljust(SEGMENT, b"\0"))
    made = root / "consumequeue" / queue[0] / str(queue[1]) / f"{end * 20:020d}"
    made.write_bytes(bytes(QUEUE_FILE))
    return made, end


@pytest.mark.parametrize("release", ENDS)
def test_an_empty_last_file_of_a_queue(release: str, tmp_path: Path) -> None:
    """The next message gets an offset that is one too high."""
    judge = RealStore(release)
    (written,) = judge.write(tmp_path / "written", 1, seed=79_600, settings=SETTINGS, messages=250)
    configure(written.root)
    shutil.copytree(written.root, tmp_path / "asked")
    all_served = served(judge.open([tmp_path / "asked"])[0])
    queue = max(all_served, key=lambda key: len(all_served[key]))
    got: dict[str, int | None] = {}
    for name in ("against", "cured"):
        root = tmp_path / name
        shutil.copytree(written.root, root)
        made, end = with_an_empty_last_file(root, queue, all_served[queue])
        said = {reason.rule for reason in said_of(root, release).reasons if reason.unsafe}
        assert said == {"queue_files"}
        if name == "cured":
            made.unlink()
            assert said_of(root, release).safe
        try:
            puts = judge.open([root], put=True, ask=False)[0].puts
        except RealStoreFailed:
            puts = []
        got[name] = next((put["queueOffset"] - end for put in puts if (put["topic"], put["queueId"]) == queue), None)
    assert got == {"against": 1, "cured": 0}
