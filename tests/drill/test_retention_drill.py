"""A store that was down for days: a broker that is started on it deletes what ``preflight`` says (``old``); not after
``touch`` (``touched``). The two run side by side, for a broker cleans a minute after its start.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import copy_store, numbers_in
from support.real_broker import RELEASES, BrokerSite
from support.rebuilding import rules_of_release

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.reason import Answer
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker

SENT, READ_BEFORE = 160, 16
DAYS = 4
READERS: Mapping[str, Any] = {"command": "consume", "group": "readers", "topic": "Normal"}
TIMEOUT = 200


@dataclass(frozen=True)
class Story:
    committed: int
    """Messages that the group has no need to read again: its committed offsets when the first broker had stopped."""
    said: Mapping[str, Answer]
    after: Answer
    """What is said of ``old`` when its broker has deleted."""
    begin: Mapping[str, int]
    """Where the log begins in the end."""
    everything: Mapping[str, int]
    took: Mapping[str, int]


def preflight(site: BrokerSite, store: Path) -> Answer:
    settings = read_settings(str(site.broker_conf(store)), ())
    return safe_to_start(str(store), settings, rules_of_release(site.release))


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def make(site: BrokerSite) -> Path:
    store = site.scratch / "old"
    site.start(store)
    site.clients(
        {"command": "send", "round": "one", "create": ["Normal"], "counts": {"normal": SENT}},
        {**READERS, "messages": READ_BEFORE},
    )
    site.stop()
    then = time.time() - DAYS * 24 * 3600
    for path in segments(store):
        os.utime(path, (then, then))
    return store


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    kept = {
        "fileReservedTime": 48,
        "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
        "cleanResourceInterval": 500,
    }
    scratch = tmp_path_factory.mktemp(f"retention-{request.param}")
    with contextlib.ExitStack() as stack:
        sites = {
            name: stack.enter_context(BrokerSite(request.param, scratch / f"site-{name}", kept))
            for name in ("old", "touched")
        }
        old = make(sites["old"])
        read_before = sum(numbers_in(old, "consumerOffset.json", "Normal@readers").values())
        stores = {"old": old, "touched": copy_store(old, scratch / "touched")}
        for path in segments(stores["touched"]):
            path.touch()
        said = {name: preflight(site, stores[name]) for name, site in sites.items()}
        for name, site in sites.items():
            site.start(stores[name])
        deadline = time.monotonic() + TIMEOUT
        end = next(reason.values["begin"] for reason in said["old"].reasons if reason.rule == "messages_deleted")
        while int(segments(old)[0].name) < end and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(2)  # for the cleanings after it, which must delete nothing
        begin = {name: int(segments(store)[0].name) for name, store in stores.items()}
        after = preflight(sites["old"], old)
        everything, took = {}, {}
        for name, site in sites.items():
            all_read, rest = site.clients(
                {**READERS, "group": "everyone", "messages": 0, "to_the_end": True},
                {**READERS, "messages": 0, "to_the_end": True},
            )
            everything[name], took[name] = len(all_read["took"]), len(rest["took"])
        yield Story(read_before, said, after, begin, everything, took)


def unread(story: Story) -> int:
    (reason,) = (reason for reason in story.said["old"].reasons if reason.rule == "messages_deleted")
    words = reason.what.split()
    return int(words[words.index("messages") - 1].replace(",", ""))


def test_what_is_deleted_is_said(story: Story) -> None:
    (reason,) = story.said["old"].reasons
    assert (reason.rule, reason.unsafe) == ("messages_deleted", True)
    assert "deleted at once" in reason.what
    assert reason.values["begin"] == story.begin["old"] > 0


def test_against_the_advice_the_group_misses_them(story: Story) -> None:
    assert unread(story) > 0
    assert story.took["old"] == story.everything["old"]
    assert story.took["old"] + unread(story) == SENT - story.committed


def test_offsets_before_their_queues_are_told(story: Story) -> None:
    """Of queues in which the group has one. It goes on at the first message that is left."""
    before = [reason for reason in story.after.reasons if reason.rule == "committed_before_queue"]
    assert 0 < sum(reason.values["gone"] for reason in before) <= unread(story)
    assert not any(reason.unsafe for reason in before)


def test_after_the_cure_nothing_is_deleted(story: Story) -> None:
    assert story.said["touched"].safe
    assert story.begin["touched"] == 0
    assert story.everything["touched"] == SENT
    assert story.took["touched"] == SENT - story.committed
