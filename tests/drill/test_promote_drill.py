"""The master's disk is gone: a slave is promoted, the right one and a copy (``old``) that lacks what was acknowledged
by both later; ``preflight --replica`` compares the two, and each is started as master.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from support.drilling import Done, copy_store, run_job
from support.real_broker import RELEASES, REPLICATED, BrokerPair, await_alike
from support.rebuilding import rules_of_release

pytestmark = pytest.mark.broker

SENT, READ_BEFORE, MORE, AFTER = 40, 16, 12, 8
READERS: Mapping[str, Any] = {"command": "consume", "group": "readers", "topic": "Normal"}


@dataclass(frozen=True)
class Story:
    """What was said of each copy beside the other, and what a group that reads to the end took once each was master."""

    release: str
    said: Mapping[str, Done]
    took: Mapping[str, int]
    served: Mapping[str, int]

    def rule(self, name: str, rule: str) -> Mapping[str, Any]:
        return next(reason for reason in self.said[name].report["reasons"] if reason["rule"] == rule)


def send(name: str, count: int) -> dict[str, Any]:
    create = ["Normal"] if name == "one" else []
    return {"command": "send", "round": name, "create": create, "counts": {"normal": count}}


@pytest.fixture(scope="module", params=RELEASES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with BrokerPair(request.param, tmp_path_factory.mktemp(f"promote-{request.param}")) as pair:
        master, slave = pair.scratch / "master", pair.scratch / "slave"
        pair.start(master)
        pair.start_slave(slave)
        pair.clients(send("one", SENT), {**READERS, "messages": READ_BEFORE})
        await_alike(master, slave, REPLICATED[: 2 if pair.release == "5.5.0" else 3])
        pair.stop_slave()
        old = copy_store(slave, pair.scratch / "old")
        pair.start_slave(slave)
        pair.clients(send("two", MORE))  # each is acknowledged by both
        pair.kill()
        shutil.rmtree(master)
        pair.stop_slave()
        said, took, served = {}, {}, {}
        for name, store, other in (("slave", slave, old), ("old", old, slave)):
            conf = pair.broker_conf(store, brokerRole="ASYNC_MASTER")
            version = ("--broker-version", rules_of_release(pair.release))
            said[name] = run_job("preflight", "--store", store, "--broker-conf", conf, "--replica", other, *version)
        for name, store in (("slave", slave), ("old", old)):
            pair.start(store, brokerRole="ASYNC_MASTER")
            everyone = {**READERS, "group": "everyone", "messages": 0, "to_the_end": True}
            served_all, _, took_all = pair.clients(
                everyone, send("three", AFTER), {**READERS, "messages": 0, "to_the_end": True}
            )
            served[name], took[name] = len(served_all["took"]), len(took_all["took"])
            pair.kill()
        yield Story(pair.release, said, took, served)


def test_the_longer_one_is_safe_but_for_offsets_that_never_came(story: Story) -> None:
    """To a slave of 5.5.0."""
    reasons = story.said["slave"].report["reasons"]
    expected = ["no_offsets"] if story.release == "5.5.0" else []
    assert [reason["rule"] for reason in reasons if reason["unsafe"]] == expected, reasons
    assert f"it lacks {MORE} messages" in story.rule("slave", "replica_shorter")["what"]


def test_it_serves_all_that_was_acknowledged(story: Story) -> None:
    assert story.served["slave"] == SENT + MORE


def test_the_group_goes_on_or_starts_over(story: Story) -> None:
    """It may get again what it read within the last minute, and misses nothing; without offsets it reads all again."""
    least = 0 if story.release == "5.5.0" else READ_BEFORE + 8
    assert SENT + MORE + AFTER - least <= story.took["slave"] <= SENT + MORE + AFTER


def test_the_shorter_one_is_not_safe(story: Story) -> None:
    done = story.said["old"]
    assert (done.code, done.report["answer"]) == (1, "not safe to start")
    assert f"{MORE} messages are lost" in story.rule("old", "replica_longer")["what"]


def test_against_the_advice_they_are_lost(story: Story) -> None:
    assert story.served["old"] == SENT
