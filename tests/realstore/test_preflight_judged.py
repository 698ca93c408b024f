"""What preflight says, of single faults and of random accidents, judged by the real store."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.random_accidents import run, summary
from support.real_store import RELEASES, Opened, RealStore, RealStoreFailed
from support.rebuilding import preflight_here
from support.store_to_start import as_fastjson, configure, lock_held
from support.wrong_stores import CASES, LAG, QUEUE_FILE, SEGMENT, SETTINGS, Facts, cut_units, log_cut, said_of, served

from jobs.preflight.stopped_store import Answer, Reason
from storeformat.storage import files

pytestmark = pytest.mark.realstore


# ----------------------------------------------------------------------------------------------------- preflight judged
# What ``preflight`` says of a store, and what the store of each release then does: against the advice, and after the
# cure. Each case is a copy with one thing wrong; what was served before and is not any more is lost.
Offsets = set[int]

NOTED = ("torn_tail", "log_cut", "damaged_before")
SAFE_OF_RELEASE = {
    "4.9.8": {"healthy", "lag", "lag_after_crash", "queues_wiped", *NOTED},
    "5.1.4": {"healthy", "lag_after_crash", "folder", *NOTED},
    "5.3.3": {"healthy", "lag_after_crash", "empty_last", "folder", *NOTED},
    "5.5.0": {"healthy", "lag_after_crash", "empty_last", "folder", *NOTED},
}
"""Where the answer is safe; everywhere else it is not. The rules of 5.1.4 are those of 5.1.1, too, which does not start
with an empty last file.
"""


@dataclass(frozen=True)
class Tried:
    """A case: what was said of it, what the broker served, and both again after the cure."""

    said: Answer
    opened: Opened
    said_after: Answer
    cured: Opened


@dataclass(frozen=True)
class Ahead:
    """A log that is shorter than its queues, and a group that had read all; ``after``: reasons that a cure leaves."""

    ends: list[tuple[str, str, str]]
    after: list[Reason]
    opened: Opened


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

    said = [re.findall(r"in queue (\d+) of (\S+), which ends at (\d+)", reason.what)[0] for reason in ahead()]
    cures = [(topic, queue_id, end) for queue_id, topic, end in said]
    for topic, queue_id, end in cures:
        table[f"{topic}@readers"][int(queue_id)] = int(end)
    return Ahead(cures, ahead(), judge.open([root], put=True, ask=False)[0])


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


@pytest.fixture(scope="module", params=RELEASES)
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
                count = sum(reason.values["count"] for reason in tried.said.reasons if reason.rule == CASES[name][1])
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
        assert len(story.lost(tried.opened)) >= reason.values["count"] > 0

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
        """Nor of any other up to 4.9.8: recovery takes the fillers for a message at the 2 GiB mark of the log."""
        lost = story.lost(story.cases["fillers_alone"].opened)
        assert lost >= set(story.facts.served[story.facts.largest_queue])

    def test_a_damaged_log_is_cut(self, story: Story) -> None:
        opened = story.cases["damaged_log"].opened
        assert opened.store.loaded_end_offset == story.facts.offsets[-LAG]
        assert len(story.lost(opened)) == LAG

    def test_queues_without_a_log_are_deleted(self, story: Story) -> None:
        assert sum(map(len, served(story.cases["log_gone"].opened).values())) == 0


# --------------------------------------------------------------------------------------------- preflight healthy judged
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("halt", [False, True], ids=["stopped", "killed"])
def test_healthy_stores_are_safe(release: str, halt: bool, tmp_path: Path) -> None:
    for store in RealStore(release).write(tmp_path, 8, seed=78_000 + halt, halt=halt):
        configure(store.root)
        answer = preflight_here(store.root, store.settings, release)
        assert answer.safe, (store.root.name, answer.lines())


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_members_of_a_group_are_safe(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "space_of", lambda path: files.Space(1 << 40, 1 << 39, 1 << 39))
    for store in RealStore(release).write(tmp_path, 3, seed=78_500, features=["dledger"]):
        configure(store.root)
        answer = preflight_here(store.root, store.settings, release)
        assert answer.first_line == "safe to start", answer.lines()


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_a_store_in_use(release: str, tmp_path: Path) -> None:
    (written,) = RealStore(release).write(tmp_path, 1, seed=79_500, settings=SETTINGS, messages=30)
    configure(written.root)
    with lock_held(written.root):
        assert [reason.rule for reason in said_of(written.root, release).reasons] == ["store_in_use"]
        with pytest.raises(RealStoreFailed, match="Lock failed"):
            RealStore(release).open([written.root])
    assert said_of(written.root, release).safe
    assert RealStore(release).open([written.root])[0].store.loaded


def with_an_empty_last_file(root: Path, queue: tuple[str, int], offsets: list[int]) -> tuple[Path, int]:
    """Cuts log and queues where a queue's last file would begin, and makes it; returns it, and the queue's end."""
    end = (len(offsets) - 1) // (QUEUE_FILE // 20) * (QUEUE_FILE // 20)
    cut_units(root, offsets[end])
    for path in sorted((root / "commitlog").iterdir()):
        path.write_bytes(path.read_bytes()[: max(offsets[end] - int(path.name), 0)].ljust(SEGMENT, b"\0"))
    made = root / "consumequeue" / queue[0] / str(queue[1]) / f"{end * 20:020d}"
    made.write_bytes(bytes(QUEUE_FILE))
    return made, end


@pytest.mark.parametrize("release", RELEASES)
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


# ----------------------------------------------------------------------------------------------------- random accidents
TRIALS = 300
ALARMS = 0.02


def test_preflight_and_the_real_store_agree(tmp_path: Path) -> None:
    seed = int(os.environ.get("ACCIDENTS_SEED", time.strftime("%Y%m%d")))
    trials = run(seed, range(TRIALS), tmp_path)
    told = [f"seed {seed}: python -m support.random_accidents --seed {seed} --only NUMBER", *summary(trials)]
    false_safe = [trial.line() for trial in trials if trial.verdict == "FALSE SAFE"]
    alarms = [trial.line() for trial in trials if trial.verdict == "FALSE ALARM"]
    print(*told, sep="\n")  # noqa: T201
    assert false_safe == [], told
    assert len(alarms) <= ALARMS * TRIALS, [*told, *alarms]
