"""Three places of the log are unreadable, and everything else is served again. A broker that starts on such a log cuts
it at the first (``cut``); after a salvage it starts without touching one byte, and survives another crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import (
    ASK,
    COUNTS,
    GROUP,
    Answers,
    Crashed,
    Done,
    copy_store,
    differences,
    files_of,
    log_files,
    missing,
    overwrite,
    places,
    run_job,
)

pytestmark = pytest.mark.broker

MORE: Mapping[str, Any] = {"command": "send", "round": "two", "create": [], "counts": {"normal": 40, "tagged": 20}}


@dataclass(frozen=True)
class Damaged:
    """A wiped store with damage in its log: where, and the log offsets of the messages that lay there."""

    store: Path
    ranges: Sequence[tuple[int, int]]
    lost: frozenset[int]


@dataclass(frozen=True)
class Saved:
    """What became of it: the two commands, the files before and after a start, and the answers to clients."""

    rebuilt: Done
    published: Done
    files: tuple[dict[str, str], dict[str, str], dict[str, str]]
    started: tuple[dict[str, str], dict[str, str], dict[str, str]]
    answers: Answers
    answers_after_crash: Answers
    group: Mapping[str, Any]
    sent: Sequence[Mapping[str, Any]]
    answers_after: Answers


@pytest.fixture(scope="module")
def damaged(crashed: Crashed) -> Damaged:
    """Two records and a half of one segment, one bit of a body in another, the first record of a third."""
    store = copy_store(crashed.scratch / "wiped", crashed.scratch / "damaged")
    segments = [int(name) for name in log_files(store)]
    starts = sorted(row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"])

    def records(segment: int) -> list[int]:
        return [offset for offset in starts if segment <= offset < segment + segments[1]]

    torn, flipped, headless = (records(segments[number]) for number in (-7, -5, -4))
    ranges = [(torn[5] + 20, torn[7] + 300), (flipped[8] + 200, flipped[8] + 201), (headless[0], headless[0] + 90)]
    for begin, end in ranges:
        overwrite(store, begin, end)
    return Damaged(store, ranges, frozenset([*torn[5:8], flipped[8], headless[0]]))


@pytest.fixture(scope="module")
def cut(crashed: Crashed, damaged: Damaged) -> list[str]:
    """The segments that a broker leaves of the damaged log when it starts on it as it is."""
    store = copy_store(damaged.store, crashed.scratch / "cut")
    crashed.site.start(store)
    crashed.site.kill()
    return list(log_files(store))


@pytest.fixture(scope="module")
def saved(crashed: Crashed, damaged: Damaged) -> Saved:
    site, store, output = crashed.site, damaged.store, crashed.scratch / "salvaged"
    settings = ("--broker-conf", site.broker_conf(store))
    refused = run_job("rebuild", "--store", store, "--output", output, *settings)
    assert (refused.code, refused.report["status"]) == (2, "refused"), "a damaged log is refused by default"
    rebuilt = run_job("rebuild", "--store", store, "--output", output, *settings, "--on-damage", "salvage")
    published = run_job("publish", "--store", store, "--from", output, "--after-crash")
    files = files_of(store)
    site.start(store)
    started = files_of(store)
    (answers,) = site.clients(ASK)
    site.kill()
    site.start(store)
    left = COUNTS["normal"] + COUNTS["large"] - len(crashed.group["took"]) - len(damaged.lost)
    again, group, sent, _, after = site.clients(
        ASK,
        {**GROUP, "messages": left, "to_the_end": True},
        MORE,
        {"command": "await", "topic": "Normal", "messages": COUNTS["normal"] + MORE["counts"]["normal"]},
        ASK,
    )
    site.kill()
    return Saved(rebuilt, published, files, started, answers, again, group, sent, after)


class TestWithoutUs:
    def test_the_broker_deletes_what_lies_after_the_damage(
        self, crashed: Crashed, damaged: Damaged, cut: list[str]
    ) -> None:
        assert len(crashed.log) - len(cut) >= 6
        assert int(cut[-1]) <= damaged.ranges[0][0]


class TestSalvage:
    def test_every_lost_message_is_counted(self, damaged: Damaged, saved: Saved) -> None:
        assert saved.rebuilt.code == 1, saved.rebuilt.said
        assert saved.rebuilt.report["status"] == "damaged"
        assert saved.rebuilt.report["lost_messages"] == len(damaged.lost)

    def test_every_damaged_range_is_named(self, damaged: Damaged, saved: Saved) -> None:
        named = [(item["begin"], item["end"]) for item in saved.rebuilt.report["damaged_ranges"]]
        for begin, end in damaged.ranges:
            assert any(first <= begin and end <= last for first, last in named), (begin, end, named)
        assert len(named) == len(damaged.ranges)

    def test_a_start_changes_no_file_and_truncates_nothing(self, saved: Saved) -> None:
        assert saved.published.code == 0, saved.published.said
        assert saved.started == saved.files

    def test_everything_else_is_served(self, crashed: Crashed, damaged: Damaged, saved: Saved) -> None:
        assert differences(without(crashed.answers, damaged.lost), without(saved.answers, frozenset())) == []

    def test_and_also_after_another_crash(self, crashed: Crashed, damaged: Damaged, saved: Saved) -> None:
        expected = without(crashed.answers, damaged.lost)
        assert differences(expected, without(saved.answers_after_crash, frozenset())) == []

    def test_the_group_gets_past_the_losses(self, crashed: Crashed, damaged: Damaged, saved: Saved) -> None:
        left = {tuple(at) for at in saved.group["took"]} | {tuple(at) for at in crashed.group["took"]}
        lost = set(places(crashed.answers, "Normal")) - set(places(without(crashed.answers, damaged.lost), "Normal"))
        assert len(lost) == len(damaged.lost)
        assert left >= set(places(crashed.answers, "Normal")) - lost
        assert len(saved.group["took"]) - len({tuple(at) for at in saved.group["took"]}) <= len(lost)

    def test_new_messages_go_on_after_the_old(self, crashed: Crashed, saved: Saved) -> None:
        for name, queue in crashed.answers["queues"].items():
            got = sorted(r["queueOffset"] for r in saved.sent if f"{r['topic']}:{r['queueId']}" == name)
            assert got == list(range(queue["maxOffset"], queue["maxOffset"] + len(got))), name
        assert len(saved.sent) == 60
        assert missing(saved.answers_after, saved.sent) == []


def without(answers: Answers, lost: frozenset[int]) -> Answers:
    """The answers if these messages had never been; times that may end on a lost message's place are not compared."""

    def left(offsets: Sequence[int]) -> list[int]:
        return [offset for offset in offsets if offset not in lost]

    queues = {}
    for name, queue in answers["queues"].items():
        rows = {row["queueOffset"]: row for row in queue["messages"] if row["commitLogOffset"] not in lost}
        gone = {row["queueOffset"] for row in queue["messages"]} - rows.keys()
        by_tag = {tag: sorted(set(offsets) - gone) for tag, offsets in queue["byTag"].items()}
        queues[name] = {**queue, "messages": list(rows.values()), "byTag": by_tag}
        if name.startswith("Normal:"):
            del queues[name]["byTime"]
    found: dict[str, Any] = {"log": answers["log"], "queues": queues}
    for part in ("keys", "uniqKeys"):
        found[part] = {name: kept for name, offsets in answers[part].items() if (kept := left(offsets))}
    found["ids"] = {name: offset for name, offset in answers["ids"].items() if offset not in lost}
    return found
