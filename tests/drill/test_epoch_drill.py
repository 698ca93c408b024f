"""A member of a controller's group comes back without its epochs: what ``preflight`` says, and what then happens.

``one`` is master and has messages that nobody else has when it dies; ``other`` becomes master and goes on without
them. With its epochs ``one`` cuts its log to what both have, and follows. Copies of it come back instead:

=========  ======================================================================
``torn``   the epoch file torn, its ``.bak`` sound
``words``  the same, but it holds words instead of numbers
``lost``   neither is there
=========  ======================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import copy_store, run_job
from support.real_broker import RELEASES, BrokerFailed, BrokerGroup, are_alike, await_alike
from support.rebuilding import rules_of_release

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.reason import Reason
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker

SENT, ALONE, AFTER, LATER = 40, 6, 10, 5
EPOCHS = "epochFileCheckpoint"


def torn(epochs: Path) -> None:
    epochs.with_name(EPOCHS + ".bak").write_bytes(epochs.read_bytes())
    epochs.write_bytes(epochs.read_bytes()[:-3])


def words(epochs: Path) -> None:
    torn(epochs)
    epochs.write_text("one\ntwo\n")


def lost(epochs: Path) -> None:
    epochs.unlink()
    epochs.with_name(EPOCHS + ".bak").unlink(missing_ok=True)


COPIES: Mapping[str, Callable[[Path], None]] = {"torn": torn, "words": words, "lost": lost}


@dataclass(frozen=True)
class Story:
    """By copy: what was said of its epochs, and whether it came up and got its master's log."""

    whole: list[Reason]
    said: Mapping[str, list[Reason]]
    started: Mapping[str, bool]
    follows: Mapping[str, bool]
    compared: Mapping[str, Mapping[str, Any]]
    """What was said of a log beside the master's."""


def send(name: str, count: int) -> dict[str, Any]:
    create = ["Normal"] if name in ("one", "three") else []  # a slave has no topics yet
    return {"command": "send", "round": name, "create": create, "counts": {"normal": count}}


def said_of_epochs(group: BrokerGroup, store: Path) -> list[Reason]:
    settings = read_settings(str(group.member_conf("one", store)), ())
    answer = safe_to_start(str(store), settings, rules_of_release(group.release))
    return [reason for reason in answer.reasons if reason.rule == "epoch_file"]


def part(group: BrokerGroup, one: Path, other: Path) -> None:
    """Makes two logs that part: ``other`` is master in the end, ``one`` is dead."""
    group.master = "one"
    group.start_member("one", one)
    group.clients(send("one", SENT))
    group.start_member("other", other)
    await_alike(one, other)
    group.kill_member("other")
    group.clients(send("two", ALONE))
    group.kill_member("one")
    group.master = "other"
    group.start_member("other", other)
    group.clients(send("three", AFTER))


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with BrokerGroup(request.param, tmp_path_factory.mktemp(f"epoch-{request.param}")) as group:
        one, other = group.scratch / "one", group.scratch / "other"
        part(group, one, other)
        said, started, follows = {}, {}, {}
        for name, change in COPIES.items():
            store = copy_store(one, group.scratch / name)
            change(store / EPOCHS)
            said[name] = said_of_epochs(group, store)
            try:
                group.start_member("one", store)
            except BrokerFailed:
                group.members.pop("one").kill()
                started[name] = follows[name] = False
                continue
            started[name] = True
            group.clients(send(f"after-{name}", LATER))
            if said[name][0].unsafe:
                time.sleep(5)
            else:
                await_alike(other, store)
            follows[name] = are_alike(other / "commitlog", store / "commitlog")
            group.kill_member("one")
        version = ("--broker-version", rules_of_release(group.release))
        compared = {}
        for store in (one, group.scratch / "lost"):
            conf = ("--broker-conf", group.member_conf("one", store))
            done = run_job("preflight", "--store", store, *conf, "--replica", other, *version)
            (compared[store.name],) = (one for one in done.report["reasons"] if one["rule"] == "replica_differs")
        yield Story(said_of_epochs(group, one), said, started, follows, compared)


def test_whole_epochs_are_fine(story: Story) -> None:
    assert story.whole == []


def test_the_backup_is_taken(story: Story) -> None:
    (reason,) = story.said["torn"]
    assert not reason.unsafe
    assert story.follows["torn"]


def test_against_the_advice_a_member_without_epochs_does_not_follow(story: Story) -> None:
    (reason,) = story.said["lost"]
    assert reason.unsafe
    assert story.started["lost"]
    assert not story.follows["lost"]
    assert story.compared["lost"]["found"] == story.compared["one"]["found"], "it keeps what its master does not have"


def test_words_for_numbers_end_the_start(story: Story) -> None:
    (reason,) = story.said["words"]
    assert reason.unsafe
    assert "does not start" in reason.what
    assert not story.started["words"]


def test_where_two_members_part_is_told(story: Story) -> None:
    assert f"and this store {ALONE} messages" in story.compared["one"]["what"]
