"""``preflight`` before a real broker starts: what it predicts comes true against its advice, and not after the cure.

One broker a release writes a store and stops. Copies of it are damaged in what lies around the files:

    ahead     committed offsets after the ends of their queues; timer wheel and log lost, ``timercheck`` kept
    cured     the same, and what ``preflight`` says to do
    forgotten consumerOffset.json torn, no ``.bak``
    shut      topics.json torn, and its ``.bak``, too
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import copy_store
from support.real_broker import RELEASES, BrokerFailed, BrokerSite
from support.rebuilding import rules_of_release

from jobs.safety.answer import judge
from jobs.safety.evidence import gather
from jobs.safety.reason import Answer, Reason
from jobs.safety.start_settings import read_settings

pytestmark = pytest.mark.broker

SENT, MORE, TIMED, AHEAD = 40, 12, 3, 20
READ = {"command": "consume", "group": "readers", "topic": "Normal", "messages": 0, "to_the_end": True}
SEND_MORE: Mapping[str, Any] = {"command": "send", "round": "two", "create": [], "counts": {"normal": MORE}}
ENDS = re.compile(r"(?<=[{,\s])(\d+):(\d+)")


@dataclass(frozen=True)
class Story:
    healthy: Answer
    said: Mapping[str, Answer]
    took: Mapping[str, int]
    timer_offset: Mapping[str, int]
    started: Mapping[str, bool]

    def reason(self, name: str, rule: str) -> Reason:
        return next(reason for reason in self.said[name].reasons if reason.rule == rule)


def offsets_of_group(text: str, more: int) -> str:
    """consumerOffset.json with every offset of the group so much higher."""
    at = text.index('"Normal@readers"', text.index('"offsetTable"'))
    end = text.index("}", at)
    return text[:at] + ENDS.sub(lambda found: f"{found[1]}:{int(found[2]) + more}", text[at:end]) + text[end:]


def preflight(site: BrokerSite, store: Path) -> Answer:
    settings = read_settings(str(site.broker_conf(store)), ())
    return judge(gather(str(store), settings, rules_of_release(site.release)))


def make(site: BrokerSite) -> Path:
    """A store with messages that the group has read, and some that wait."""
    store = site.scratch / "store"
    site.start(store)
    counts = {"normal": SENT, "timed": TIMED}
    site.clients(
        {"command": "send", "round": "one", "create": ["Normal", "Delayed"], "counts": counts},
        {**READ, "messages": SENT},
    )
    site.stop()
    return store


def copies(site: BrokerSite, store: Path) -> dict[str, Path]:
    """The damaged copies, one of them cured again."""
    found = {name: copy_store(store, site.scratch / name) for name in ("ahead", "cured", "forgotten", "shut")}
    for name in ("ahead", "cured"):
        path = found[name] / "config" / "consumerOffset.json"
        path.write_text(offsets_of_group(path.read_text(), AHEAD))
        (found[name] / "timerwheel").unlink()
        shutil.rmtree(found[name] / "timerlog")
    torn = found["forgotten"] / "config" / "consumerOffset.json"
    torn.write_text(torn.read_text()[:-5])
    torn.with_name(torn.name + ".bak").unlink(missing_ok=True)
    for suffix in ("", ".bak"):
        (found["shut"] / "config" / f"topics.json{suffix}").write_text("{")
    return found


def cure(answer: Answer, store: Path) -> None:
    """Does what the reasons say."""
    path = store / "config" / "consumerOffset.json"
    text = path.read_text()
    for reason in answer.reasons:
        for before, after in re.findall(r"set (\d+:\d+) to (\d+:\d+)", reason.cure):
            assert before in text
            text = text.replace(before, after)
        if f"mv {store / 'config' / 'timercheck'}" in reason.cure:
            (store / "config" / "timercheck").rename(store / "timercheck.away")
    path.write_text(text)


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with BrokerSite(request.param, tmp_path_factory.mktemp(f"preflight-{request.param}")) as site:
        store = make(site)
        healthy = preflight(site, store)
        stores = copies(site, store)
        cure(preflight(site, stores["cured"]), stores["cured"])
        said = {name: preflight(site, path) for name, path in stores.items()}
        took, timer_offset, started = {}, {}, {}
        for name, path in stores.items():
            try:
                site.start(path)
            except BrokerFailed:
                started[name] = False
                assert site.broker is not None
                site.broker.kill()
                site.broker = None
                continue
            started[name] = True
            _, read = site.clients(SEND_MORE, READ)
            took[name] = len(read["took"])
            found = re.findall(r"Timer recover ok.*? currQueueOffset:(\d+)", site.store_log())
            timer_offset[name] = int(found[-1]) if found else -1
            site.kill()
        yield Story(healthy, said, took, timer_offset, started)


class TestAnswers:
    def test_a_store_that_was_stopped_is_safe(self, story: Story) -> None:
        assert story.healthy.safe, story.healthy.lines()

    @pytest.mark.parametrize(
        ("name", "rules"),
        [
            ("ahead", {"committed_beyond_queue", "timer_state_lost"}),
            ("forgotten", {"config_lost"}),
            ("shut", {"config_torn"}),
        ],
    )
    def test_every_damage_is_named(self, story: Story, name: str, rules: set[str]) -> None:
        assert {reason.rule for reason in story.said[name].reasons if reason.unsafe} == rules

    def test_after_the_cure_it_is_safe(self, story: Story) -> None:
        assert story.said["cured"].safe, story.said["cured"].lines()


class TestAgainstTheAdvice:
    def test_a_group_ahead_skips_what_is_sent(self, story: Story) -> None:
        assert story.took["ahead"] == 0
        skipped = sum(
            int(str(reason.found)) - int(str(reason.expected).rpartition(" ")[2])
            for reason in story.said["ahead"].reasons
            if reason.rule == "committed_beyond_queue"
        )
        assert skipped == 4 * AHEAD

    def test_a_group_without_offsets_reads_all_again(self, story: Story) -> None:
        assert story.took["forgotten"] == SENT + MORE

    def test_a_broker_with_two_torn_files_does_not_start(self, story: Story) -> None:
        assert story.started == {"ahead": True, "cured": True, "forgotten": True, "shut": False}

    def test_waiting_messages_are_not_queued_again(self, story: Story) -> None:
        """Recovery reads the timer queue after them, and wheel and log are empty."""
        assert story.timer_offset["ahead"] == TIMED
        assert f"{TIMED} messages" in story.reason("ahead", "timer_state_lost").what


class TestAfterTheCure:
    def test_the_group_gets_what_is_sent(self, story: Story) -> None:
        assert story.took["cured"] == MORE

    def test_waiting_messages_are_queued_again(self, story: Story) -> None:
        assert story.timer_offset["cured"] == 0
