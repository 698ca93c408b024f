"""``preflight`` before a real broker starts: what it predicts comes true against its advice, and not after the cure.

One broker a release writes a store and stops. Copies of it are changed in what lies around the log:

=============  ==========================================================================================
``ahead``      committed offsets, and that of a delay level, after the ends of their queues; timer wheel and
               timer log lost, ``timercheck`` kept
``cured``      the same, and what ``preflight`` says to do
``forgotten``  offsets of groups and of delay levels torn, no ``.bak``; the timer log and the file of groups lost, and a
               topic in that of topics
``noted``      topics torn with a sound ``.bak``, filters torn, the timer wheel lost, the log's tail torn: no loss
``bare``       no ``config/`` at all
``rebuilt``    the same, and topics from the log
``SHUT``       what a broker does not start with
=============  ==========================================================================================

A group was switched off before. Messages with a timer are due after the store was stopped, and before its copies are
started.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import copy_store, overwrite, run_job
from support.real_broker import RELEASES, BrokerFailed, BrokerSite
from support.rebuilding import rules_of_release
from support.store_to_start import lock_held

from jobs.preflight.preflight import judge
from jobs.preflight.stopped_store import Answer, Reason, StoppedStore, read_stopped_store
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker

SENT, MORE, TIMED, AHEAD, TAGGED = 40, 12, 3, 20, 8
DUE_SECONDS = 60
READ = {"command": "consume", "group": "readers", "topic": "Normal", "messages": 0, "to_the_end": True}
READ_ALL = {**READ, "group": "everyone"}
READ_SHUT = {**READ, "group": "shut"}
READ_TAGGED = {**READ, "group": "tagged", "topic": "Tagged"}
SEND_MORE: Mapping[str, Any] = {"command": "send", "round": "two", "create": [], "counts": {"normal": MORE}}
SEND_DELAYED: Mapping[str, Any] = {"command": "send", "round": "late", "create": [], "counts": {"delayed": 1}}
ASK_DELAYED = {"command": "ask", "topics": ["Delayed"]}
ENDS = re.compile(r"(?<=[{,\s])(\d+):(\d+)")


def await_delayed(messages: int) -> dict[str, Any]:
    return {"command": "await", "topic": "Delayed", "messages": messages}


STEPS: Mapping[str, list[Mapping[str, Any]]] = {
    # delivered before the stop, and what the start delivers by itself
    "ahead": [SEND_MORE, SEND_DELAYED, await_delayed(1 + 1), READ, ASK_DELAYED],
    "cured": [SEND_MORE, SEND_DELAYED, await_delayed(1 + 1 + TIMED), READ, ASK_DELAYED],
    "forgotten": [SEND_MORE, await_delayed(1 + 1), READ, READ_SHUT, READ_TAGGED, ASK_DELAYED],
    "noted": [SEND_MORE, await_delayed(1 + TIMED), READ, READ_ALL, READ_SHUT, ASK_DELAYED],
    "bare": [READ],
    "rebuilt": [SEND_MORE, READ, READ_ALL, READ_TAGGED],
}


@dataclass(frozen=True)
class Started:
    """How much each group took, tags delivered late, and where in the timer queue the broker queued again."""

    took: Mapping[str, int]
    late: tuple[str, ...]
    timer_offset: int


@dataclass(frozen=True)
class Story:
    healthy: Answer
    said: Mapping[str, Answer]
    started: Mapping[str, Started]
    shut: Mapping[str, tuple[Answer, bool]]
    """What was said, and whether the broker came up."""

    def reasons(self, name: str, rule: str) -> list[Reason]:
        return [reason for reason in self.said[name].reasons if reason.rule == rule]


def evidence_of(site: BrokerSite, store: Path, settings: Mapping[str, Any] | None = None) -> StoppedStore:
    conf = read_settings(str(site.broker_conf(store, **(settings or {}))), ())
    return read_stopped_store(str(store), conf, rules_of_release(site.release))


def preflight(site: BrokerSite, store: Path, settings: Mapping[str, Any] | None = None) -> Answer:
    return judge(evidence_of(site, store, settings))


def make(site: BrokerSite) -> Path:
    """A store with messages that the group has read, and some that wait."""
    store = site.scratch / "store"
    site.start(store)
    counts = {"normal": SENT, "delayed": 2, "soon": TIMED, "tagged": TAGGED}
    site.clients(
        {"command": "send", "round": "one", "create": ["Normal", "Delayed", "Tagged"], "counts": counts},
        await_delayed(1),
        {**READ, "messages": SENT},
    )
    site.stop()
    with changed(store, "subscriptionGroup.json") as document:  # as mqadmin updateSubGroup -s false does
        groups = document["subscriptionGroupTable"]
        groups["shut"] = {**groups["readers"], "groupName": "shut", "consumeEnable": False}
    return store


@contextlib.contextmanager
def changed(store: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yields a file of ``config/`` to be changed."""
    path = store / "config" / name
    document = json.loads(path.read_text())
    yield document
    path.write_text(json.dumps(document))


# -------------------------------------------------------------------------------------------------------- what is lost
def tear(store: Path, name: str, *, backup: bytes | None = None) -> None:
    path = store / "config" / name
    content = path.read_bytes() if path.exists() else b"{"
    path.write_bytes(content[: max(len(content) - 5, 1)])
    path.with_name(name + ".bak").unlink(missing_ok=True)
    if backup is not None:
        path.with_name(name + ".bak").write_bytes(backup)


def put_ahead(text: str, table: str, more: int) -> str:
    """A file of offsets with every one of a table so much higher."""
    at = text.index(table, text.index('"offsetTable"'))
    end = text.index("}", at)
    return text[:at] + ENDS.sub(lambda found: f"{found[1]}:{int(found[2]) + more}", text[at:end]) + text[end:]


def ahead(site: BrokerSite, store: Path) -> None:
    for name, table in (("consumerOffset.json", '"Normal@readers"'), ("delayOffset.json", '"offsetTable"')):
        path = store / "config" / name
        path.write_text(put_ahead(path.read_text(), table, AHEAD))
    (store / "timerwheel").unlink()
    shutil.rmtree(store / "timerlog")


def cured(site: BrokerSite, store: Path) -> None:
    """Does what the reasons say."""
    ahead(site, store)
    for reason in preflight(site, store).reasons:
        for path, before, after in re.findall(r"in (\S+\.json),.* set (\d+:\d+) to (\d+:\d+)", reason.cure):
            text = Path(path).read_text()
            assert before in text
            Path(path).write_text(text.replace(before, after))
        for command in re.findall(r"mv --backup=numbered [^:;]+", reason.cure):
            subprocess.run(command, shell=True, check=True)
    assert not (store / "config" / "timercheck").exists()


def forgotten(site: BrokerSite, store: Path) -> None:
    tear(store, "consumerOffset.json")
    tear(store, "delayOffset.json")
    shutil.rmtree(store / "timerlog")
    for path in (store / "config").glob("subscriptionGroup.json*"):
        path.unlink()
    with changed(store, "topics.json") as document:
        del document["topicConfigTable"]["Tagged"]


def noted(site: BrokerSite, store: Path) -> None:
    tear(store, "topics.json", backup=(store / "config" / "topics.json").read_bytes())
    tear(store, "consumerFilter.json")
    (store / "timerwheel").unlink()
    end = evidence_of(site, store).tail.end
    record = (store / "commitlog" / f"{0:020d}").read_bytes()[:90]
    overwrite(store, end, end + len(record), record)


def bare(site: BrokerSite, store: Path) -> None:
    shutil.rmtree(store / "config")


def rebuilt(site: BrokerSite, store: Path) -> None:
    bare(site, store)
    made = store.with_name("made")
    conf = ("--broker-conf", site.broker_conf(store), "--broker-version", rules_of_release(site.release))
    assert run_job("rebuild", "--store", store, "--output", made, "--topics-json", *conf).code == 0
    published = run_job("publish", "--store", store, "--from", made)
    assert (published.code, published.report["status"]) == (1, "unsafe"), "config/ is lost, and with it all offsets"


LOST: Mapping[str, Callable[[BrokerSite, Path], None]] = {
    "ahead": ahead, "cured": cured, "forgotten": forgotten, "noted": noted, "bare": bare, "rebuilt": rebuilt,
}  # fmt: skip


def torn_twice(store: Path) -> None:
    for suffix in ("", ".bak"):
        (store / "config" / f"topics.json{suffix}").write_text("{")


def short_wheel(store: Path) -> None:
    (store / "timerwheel").write_bytes(bytes(100))


def nothing(store: Path) -> None:
    pass


SHUT: Mapping[str, tuple[Callable[[Path], None], Mapping[str, Any]]] = {
    "config_torn": (torn_twice, {}),
    "timer_wheel_size": (short_wheel, {}),
    "timer_log_size": (nothing, {"mappedFileSizeTimerLog": 1 << 21}),
    "segment_size": (nothing, {"mappedFileSizeCommitLog": 1 << 17}),
    "store_in_use": (nothing, {}),
}
"""What a broker does not start with, by rule: what is done to the store, and other settings."""


def try_to_start(site: BrokerSite, store: Path, settings: Mapping[str, Any]) -> bool:
    try:
        site.start(store, **settings)
    except BrokerFailed:
        assert site.broker is not None
        site.broker.kill()
        site.broker = None
        return False
    site.stop()
    return True


def run_copy(site: BrokerSite, store: Path, name: str) -> Started:
    site.start(store)
    steps = STEPS[name]
    answers = list(zip(steps, site.clients(*steps), strict=True))
    took = {step["group"]: len(answer["took"]) for step, answer in answers if step["command"] == "consume"}
    late = [
        row["tags"]
        for step, answer in answers
        if step["command"] == "ask"
        for queue in answer["queues"].values()
        for row in queue["messages"]
    ]
    found = re.findall(r"Timer recover ok.*? currQueueOffset:(\d+)", site.store_log())
    site.kill()
    return Started(took, tuple(sorted(late)), int(found[-1]) if found else -1)


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with BrokerSite(request.param, tmp_path_factory.mktemp(f"preflight-{request.param}")) as site:
        store = make(site)
        due = time.monotonic() + DUE_SECONDS
        healthy = preflight(site, store)
        shut, said, started = {}, {}, {}
        for rule, (change, settings) in SHUT.items():
            copy = copy_store(store, site.scratch / rule)
            change(copy)
            with lock_held(copy) if rule == "store_in_use" else contextlib.nullcontext():
                shut[rule] = preflight(site, copy, settings), try_to_start(site, copy, settings)
        for name, lose in LOST.items():
            copy = copy_store(store, site.scratch / name)
            lose(site, copy)
            said[name] = preflight(site, copy)
        time.sleep(max(due - time.monotonic(), 0))
        for name in LOST:
            started[name] = run_copy(site, site.scratch / name, name)
        yield Story(healthy, said, started, shut)


class TestAnswers:
    def test_a_store_that_was_stopped_is_safe(self, story: Story) -> None:
        assert story.healthy.safe, story.healthy.lines()

    @pytest.mark.parametrize(
        ("name", "unsafe", "notes"),
        [
            ("ahead", "committed_beyond_queue delay_offset_ahead timer_state_lost", "delay_offset_beyond_queue"),
            ("cured", "", "timer_state_lost"),
            ("forgotten", "config_lost delay_offset_behind timer_state_lost", "config_lost topics_not_configured"),
            ("noted", "", "config_backup config_lost torn_tail"),
            ("bare", "config_absent", "timer_state_lost"),
            ("rebuilt", "config_lost", "config_lost delay_offset_behind timer_state_lost"),
        ],
    )
    def test_every_loss_is_named(self, story: Story, name: str, unsafe: str, notes: str) -> None:
        reasons = story.said[name].reasons
        assert {reason.rule for reason in reasons if reason.unsafe} == set(unsafe.split()), story.said[name].lines()
        never_used = {"queues_fewer_than_configured"}  # three queues of Delayed had no message yet
        noted = {reason.rule for reason in reasons if not reason.unsafe} - never_used
        assert noted == set(notes.split()), story.said[name].lines()


class TestAgainstTheAdvice:
    def test_a_group_ahead_skips_what_is_sent(self, story: Story) -> None:
        assert story.started["ahead"].took["readers"] == 0
        skipped = sum(reason.values["skipped"] for reason in story.reasons("ahead", "committed_beyond_queue"))
        assert skipped == 4 * AHEAD

    def test_groups_without_offsets_read_all_again(self, story: Story) -> None:
        assert story.started["forgotten"].took["readers"] == SENT + MORE

    def test_a_group_that_was_switched_off_reads(self, story: Story) -> None:
        names = [reason.what.split()[0] for reason in story.reasons("forgotten", "config_lost")]
        assert sorted(names) == ["consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"]
        assert story.started["forgotten"].took["shut"] == SENT + MORE

    def test_of_a_topic_that_is_not_configured_no_client_gets_a_message(self, story: Story) -> None:
        (reason,) = story.reasons("forgotten", "topics_not_configured")
        assert reason.values["first"] == "Tagged"
        assert story.started["forgotten"].took["tagged"] == 0

    def test_delay_levels_without_offsets_deliver_again(self, story: Story) -> None:
        """And a timer message of which ``timercheck`` says that it is in the lost timer log never comes."""
        assert story.started["forgotten"].late == ("late", "late")

    def test_waiting_messages_are_not_queued_again(self, story: Story) -> None:
        """Recovery reads the timer queue after them, and wheel and log are empty."""
        assert story.started["ahead"].timer_offset == TIMED
        assert f"{TIMED} messages" in story.reasons("ahead", "timer_state_lost")[0].what
        assert "soon" not in story.started["ahead"].late

    def test_without_configuration_nobody_gets_a_message(self, story: Story) -> None:
        assert story.started["bare"].took["readers"] == 0

    @pytest.mark.parametrize("rule", SHUT)
    def test_a_broker_does_not_start(self, story: Story, rule: str) -> None:
        said, started = story.shut[rule]
        assert {reason.rule for reason in said.reasons if reason.unsafe} == {rule}
        assert not started


class TestAfterTheCure:
    def test_the_group_gets_what_is_sent(self, story: Story) -> None:
        assert story.started["cured"].took["readers"] == MORE

    def test_waiting_messages_are_queued_again_and_delivered(self, story: Story) -> None:
        assert story.started["cured"].timer_offset == 0
        assert story.started["cured"].late == ("late", "late", *["soon"] * TIMED)

    def test_topics_made_from_the_log_are_served(self, story: Story) -> None:
        """Offsets cannot be made of it: the group starts over, and the answer still says so."""
        took = story.started["rebuilt"].took
        assert took == {"readers": SENT + MORE, "everyone": SENT + MORE, "tagged": TAGGED}


class TestNotes:
    def test_a_delay_level_ahead_is_set_back(self, story: Story) -> None:
        """It delivers what is sent, as releases from 4.9.2 on do."""
        assert story.started["ahead"].late == ("late", "late")

    def test_nothing_that_is_noted_loses_a_message(self, story: Story) -> None:
        """The backup is taken, a lost wheel is made of the timer log, a torn tail is cut off."""
        started = story.started["noted"]
        assert started.took == {"readers": MORE, "everyone": SENT + MORE, "shut": 0}
        assert started.late == ("late", *["soon"] * TIMED)
