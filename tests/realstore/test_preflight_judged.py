"""What ``preflight`` says of a store, and what the store of each release then does: against the advice, and after it.

One store a release, written by that release. Each case is a copy with one thing wrong. The broker's store opens it
as it is, and another copy after the cure; what was served before and is not any more is lost.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.real_store import RELEASES, Opened, RealStore
from support.rebuilding import rebuild_here, rules_of_release

from jobs.safety.answer import safe_to_start
from jobs.safety.reason import Answer
from jobs.safety.start_settings import StartSettings

pytestmark = pytest.mark.realstore

SEGMENT, QUEUE_FILE = 65_536, 400
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": QUEUE_FILE, "maxHashSlotNum": 100,
            "maxIndexNum": 400, "messageIndexEnable": True}  # fmt: skip
UNIT = struct.Struct(">qiq")
LAG = 5

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


def damaged_log(root: Path, facts: Facts) -> None:
    """One bit of a body, in the last segment that has some records after it."""
    offset = facts.offsets[-LAG]
    path = root / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[offset % SEGMENT + 8] ^= 1  # of the CRC
    path.write_bytes(bytes(data))


def torn_tail(root: Path, facts: Facts) -> None:
    source = facts.offsets[0]
    record = (root / "commitlog" / f"{source // SEGMENT * SEGMENT:020d}").read_bytes()[source % SEGMENT :][:90]
    path = root / "commitlog" / f"{facts.end // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[facts.end % SEGMENT : facts.end % SEGMENT + 90] = record
    path.write_bytes(bytes(data))


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
    "damaged_log": (damaged_log, "log_damaged", segments_put_back),
    "torn_tail": (torn_tail, "torn_tail", nothing),
    "log_gone": (log_gone, "log_missing", segments_put_back),
}
SAFE_OF_RELEASE = {
    "4.9.8": {"healthy", "lag", "lag_after_crash", "queues_wiped", "torn_tail"},
    "5.1.4": {"healthy", "lag_after_crash", "torn_tail"},
    "5.3.3": {"healthy", "lag_after_crash", "torn_tail"},
    "5.5.0": {"healthy", "lag_after_crash", "torn_tail"},
}
"""Where the answer is safe; everywhere else it is not."""


@dataclass(frozen=True)
class Tried:
    """A case: what was said of it, what the broker served, and both again after the cure."""

    said: Answer
    opened: Opened
    said_after: Answer
    cured: Opened


def said_of(root: Path, release: str) -> Answer:
    settings = {name: str(value) for name, value in SETTINGS.items()} | {"fileReservedTime": "999999"}
    return safe_to_start(str(root), StartSettings(settings), rules_of_release(release))


def served(opened: Opened) -> dict[tuple[str, int], list[int]]:
    return {(queue["topic"], queue["queueId"]): queue["commitLogOffsets"] for queue in opened.answers.get("queues", ())}


@dataclass(frozen=True)
class Story:
    release: str
    facts: Facts
    cases: Mapping[str, Tried]

    def lost(self, opened: Opened) -> Offsets:
        now = served(opened)
        return {
            offset for queue, offsets in self.facts.served.items() for offset in set(offsets) - set(now.get(queue, ()))
        }


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    release: str = request.param
    scratch, judge = tmp_path_factory.mktemp(release.replace(".", "-")), RealStore(release)
    (written,) = judge.write(scratch / "written", 1, seed=77_000, settings=SETTINGS, messages=600)
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
    opened = {root.parent.name + root.name: one for root, one in zip(roots, judge.open(roots), strict=True)}
    return Story(
        release,
        facts,
        {name: Tried(said[name][0], opened[f"tried{name}"], said[name][1], opened[f"cured{name}"]) for name in CASES},
    )


@pytest.mark.parametrize("name", CASES)
class TestCases:
    def test_what_is_said(self, story: Story, name: str) -> None:
        said = story.cases[name].said
        assert said.safe is (name in SAFE_OF_RELEASE[story.release]), said.lines()
        rules = {reason.rule for reason in said.reasons if reason.unsafe or name == "torn_tail"}
        if not said.safe or name == "torn_tail":
            assert CASES[name][1] in rules

    def test_what_is_called_safe_loses_nothing(self, story: Story, name: str) -> None:
        tried = story.cases[name]
        if tried.said.safe:
            assert tried.opened.store.loaded
            assert story.lost(tried.opened) == set()

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

    @pytest.mark.parametrize("name", ["stray_file", "segment_size", "queue_file_size"])
    def test_the_store_does_not_load(self, story: Story, name: str) -> None:
        assert not story.cases[name].opened.store.loaded

    def test_a_damaged_log_is_cut(self, story: Story) -> None:
        opened = story.cases["damaged_log"].opened
        assert opened.store.loaded_end_offset == story.facts.offsets[-LAG]
        assert len(story.lost(opened)) == LAG

    def test_queues_without_a_log_are_deleted(self, story: Story) -> None:
        opened = story.cases["log_gone"].opened
        assert sum(map(len, served(opened).values())) == 0


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("halt", [False, True], ids=["stopped", "killed"])
def test_healthy_stores_are_safe(release: str, halt: bool, tmp_path: Path) -> None:
    stores = RealStore(release).write(tmp_path, 8, seed=78_000 + halt, halt=halt)
    for store in stores:
        settings: dict[str, Any] = {name: str(value) for name, value in store.settings.items()}
        answer = safe_to_start(str(store.root), StartSettings(settings), rules_of_release(release))
        assert answer.safe, (store.root.name, answer.lines())
