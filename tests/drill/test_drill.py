"""The full drill: a broker dies, its queues, index and checkpoint are gone; rebuild and publish; it serves again.

A real name server, broker, producer, consumer and admin client of each release. One story a release, told once by the
fixtures, in the order of the night in which it happens; each test is one claim about it.

    crashed     messages of every kind, a group that has read a part, everything asked; then kill -9, and all derived
                files removed (before it, on the live broker: rebuild is allowed, publish is refused)
    recovered   rebuild, publish --after-crash, the broker starts again and is asked, read and written
    killed      a copy of what was published, but its topics' configuration was lost, too, and made anew from the log:
                start, kill -9 at once, start; asked and written again
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import (
    ASK,
    BATCH_SIZE,
    COMMITTED,
    COUNTS,
    DELIVERED,
    GROUP,
    TOPICS,
    Answers,
    Crashed,
    copy_store,
    differences,
    files_of,
    index_files,
    missing,
    places,
    queue_files,
    run_job,
    run_job_with_spark,
    unique_keys,
)

from jobs.contract.options import QUESTIONS, RebuildOptions
from jobs.contract.report import Reporter
from jobs.log import opening
from jobs.query import query
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from storeformat.store.config_files import topic_configuration

pytestmark = pytest.mark.broker

MORE: Mapping[str, Any] = {
    "command": "send", "round": "two", "create": [], "counts": {"normal": 40, "tagged": 20, "batch": 4}
}  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A broker that has started on rebuilt files: files as published and as started, answers, and what came after."""

    store: Path
    published: tuple[dict[str, str], dict[str, str], dict[str, str]]
    started: tuple[dict[str, str], dict[str, str], dict[str, str]]
    answers: Answers
    group: Mapping[str, Any]
    sent: Sequence[Mapping[str, Any]]
    answers_after: Answers
    store_log: str


@pytest.fixture(scope="module")
def published(crashed: Crashed) -> Path:
    """The store after rebuild and publish, not started; and ``twin``, a copy of it."""
    store, output = crashed.store, crashed.scratch / "rebuilt"
    rebuilt = run_job_with_spark(
        "rebuild", "--store", store, "--output", output, "--broker-conf", crashed.site.broker_conf(store)
    )
    assert (rebuilt.code, rebuilt.report["status"]) == (0, "ok"), rebuilt.said
    refused = run_job("publish", "--store", store, "--from", output)
    assert (refused.code, "after-crash" in refused.said) == (2, True), refused.said
    published = run_job("publish", "--store", store, "--from", output, "--after-crash")
    assert published.code == 0, published.said
    forget_topics(copy_store(store, crashed.scratch / "twin"), crashed)
    return store


def forget_topics(store: Path, crashed: Crashed) -> None:
    """Takes the topics' configuration away and puts in its place what a rebuild makes of the log."""
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    options = RebuildOptions(
        store=str(store),
        output=str(crashed.scratch / "topics"),
        broker_conf=str(crashed.site.broker_conf(store)),
        topics_json=True,
    )
    staging = crashed.scratch / "topics-staging"
    staging.mkdir()
    built = build_store.rebuild(options, opening.open_store(options), str(staging), Runner())
    assert set(TOPICS) <= set(built.facts["topics_added"])
    assert "SCHEDULE_TOPIC_XXXX" not in built.facts["topics_added"]
    shutil.copy(Path(built.directory) / "config" / "topics.json", store / "config")


@pytest.fixture(scope="module")
def recovered(crashed: Crashed, published: Path) -> Served:
    return served(crashed, published, kills=0)


@pytest.fixture(scope="module")
def killed(recovered: Served, crashed: Crashed) -> Served:
    return served(crashed, crashed.scratch / "twin", kills=1)


def served(crashed: Crashed, store: Path, kills: int) -> Served:
    """What a broker does on ``store``, which after every start but the last is killed at once."""
    site = crashed.site
    published = files_of(store)
    for _ in range(kills):
        site.start(store)
        site.kill()
    site.start(store)
    started = files_of(store)
    log = site.store_log()
    left = COUNTS["normal"] + COUNTS["large"] - len(crashed.group["took"])
    answers, group, sent, _, after = site.clients(
        ASK,
        {**GROUP, "messages": left, "to_the_end": True},
        MORE,
        {"command": "await", "topic": "Normal", "messages": COUNTS["normal"] + MORE["counts"]["normal"]},
        ASK,
    )
    site.kill()
    return Served(store, published, started, answers, group, sent, after, log)


def topics_were_forgotten(served: Served, crashed: Crashed) -> bool:
    """Whether that broker ran with the configuration of ``forget_topics``."""
    return served.store == crashed.scratch / "twin"


# -------------------------------------------------------------------------------------------------- while it was alive
class TestBeforeTheCrash:
    def test_the_broker_had_served_all_that_was_sent(self, crashed: Crashed) -> None:
        assert missing(crashed.answers, crashed.sent) == []
        fates = defaultdict(list)
        for row in crashed.sent:
            fates[row["fate"]].append(row["uniqKey"])
        seen = set(unique_keys(crashed.answers, TOPICS))
        assert seen >= {*fates["COMMIT_MESSAGE"], *fates["delivered"]}
        assert not seen & {*fates["ROLLBACK_MESSAGE"], *fates["UNKNOW"], *fates["waiting"]}
        assert len(fates["delivered"]) == DELIVERED
        assert len(fates["COMMIT_MESSAGE"]) == COMMITTED

    def test_there_are_more_segments_than_a_broker_goes_back(self, crashed: Crashed) -> None:
        assert len(crashed.log) > 10

    def test_a_live_log_may_be_rebuilt_elsewhere(self, crashed: Crashed) -> None:
        assert crashed.live_rebuild.code == 0, crashed.live_rebuild.said
        assert queue_files(crashed.live_output) == crashed.queues
        assert list(index_files(crashed.live_output).values()) == list(crashed.index.values())

    def test_verify_finds_nothing_while_it_runs(self, crashed: Crashed) -> None:
        assert (crashed.live_verify.code, crashed.live_verify.report["differences"]) == (0, [])

    def test_publish_refuses_a_live_broker(self, crashed: Crashed) -> None:
        assert (crashed.live_publish.code, crashed.live_publish.report["status"]) == (2, "refused")
        assert "lock" in crashed.live_publish.said
        assert not (crashed.store / "backup" / "unfinished").exists()


# ---------------------------------------------------------------------------------------------------- after the rebuild
@pytest.fixture(params=["recovered", pytest.param("killed", marks=pytest.mark.slow)])
def serving(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


class TestTheShortPath:
    def test_rebuilt_files_are_those_of_the_broker(self, crashed: Crashed, recovered: Served) -> None:
        queues, index, log = recovered.published
        assert queues == crashed.queues
        assert list(index.values()) == list(crashed.index.values()), "index files, whatever their names"
        assert log == crashed.log

    def test_a_start_changes_no_file_and_truncates_nothing(self, recovered: Served) -> None:
        assert recovered.started == recovered.published
        assert "last shutdown normally" in recovered.store_log

    def test_a_crash_right_after_it_changes_no_queue(self, killed: Served) -> None:
        """The last index file may hold the last record's keys twice (5.5): a query shows them once."""
        assert "last shutdown abnormally" in killed.store_log
        assert killed.started[0] == killed.published[0]
        assert killed.started[2] == killed.published[2]
        before, after = list(killed.published[1].items()), list(killed.started[1].items())
        assert after[:-1] == before[:-1]
        assert len(after) == len(before)


class TestServing:
    def test_every_answer_is_the_same(self, crashed: Crashed, serving: Served) -> None:
        """A lost configuration is not given back the highest queues of a topic that never had a message."""
        unused = {
            name: queue
            for name, queue in crashed.answers["queues"].items()
            if name not in serving.answers["queues"] and not queue["messages"] and queue["maxOffset"] == 0
        }
        answers = {**serving.answers, "queues": {**serving.answers["queues"], **unused}}
        assert differences(crashed.answers, answers) == []
        assert not unused or topics_were_forgotten(serving, crashed)

    def test_the_group_goes_on_where_it_stopped(self, crashed: Crashed, serving: Served) -> None:
        assert crashed.group["took"]
        assert serving.group["took"]
        both = sorted(tuple(at) for at in (*crashed.group["took"], *serving.group["took"]))
        assert both == sorted(places(crashed.answers, "Normal")), "each message once"

    def test_new_messages_get_the_next_offsets(self, crashed: Crashed, serving: Served) -> None:
        expected = {}
        offsets = defaultdict(list)
        for row in serving.sent:
            offsets[f"{row['topic']}:{row['queueId']}"].append(row["queueOffset"])
        for name, got in offsets.items():
            begin = crashed.answers["queues"][name]["maxOffset"]
            expected[name] = list(range(begin, begin + len(got)))
        assert {name: sorted(got) for name, got in offsets.items()} == expected
        assert len(serving.sent) == 40 + 20 + 4 * BATCH_SIZE

    def test_old_and_new_messages_are_served_together(self, crashed: Crashed, serving: Served) -> None:
        assert missing(serving.answers_after, [*crashed.sent, *serving.sent]) == []
        assert len(unique_keys(serving.answers_after, TOPICS)) == len(unique_keys(crashed.answers, TOPICS)) + len(
            serving.sent
        )


class TestLostTopics:
    def test_the_broker_has_its_topics_again(self, crashed: Crashed, killed: Served) -> None:
        """That it serves them is what ``TestServing`` shows."""
        found, before = (
            topic_configuration(str(crashed.scratch / name)) or {"topicConfigTable": {}} for name in ("twin", "store")
        )
        for topic in TOPICS:
            entry, original = found["topicConfigTable"][topic], before["topicConfigTable"][topic]
            assert (entry["perm"], entry["topicName"]) == (original["perm"], topic)
            used = max(queue for queue, _ in places(crashed.answers, topic)) + 1
            assert used <= entry["readQueueNums"] == entry["writeQueueNums"] <= original["readQueueNums"]


class TestVerify:
    def test_it_finds_nothing_in_what_brokers_went_on_with(self, crashed: Crashed, killed: Served) -> None:
        for store in (crashed.store, crashed.scratch / "twin"):
            done = run_job("verify", "--store", store, "--broker-conf", crashed.site.broker_conf(store))
            assert (done.code, done.report["differences"]) == (0, []), (done.report["differences"], done.said)


class TestOfflineAnswers:
    def test_they_are_those_of_the_broker(self, crashed: Crashed, killed: Served) -> None:
        """``query`` on the rebuilt store, against what the broker had said before it died."""
        wiped = crashed.scratch / "wiped"
        store: dict[str, Any] = {
            "store": str(crashed.live_output),
            "commitlog": (str(wiped / "commitlog"),),
            "broker_conf": str(crashed.site.broker_conf(wiped)),
        }

        def ask(kind: Any, **more: Any) -> Any:
            return query.run(QUESTIONS[kind](**store, **more), Reporter(quiet=True))

        asked = 0
        for name, found in list(crashed.answers["keys"].items())[::25]:
            topic, _, key = name.partition("#")
            assert sorted(row["commit_log_offset"] for row in ask("key", topic=topic, key=key)["messages"]) == found
            asked += 1
        for name, queue in list(crashed.answers["queues"].items()):
            topic, _, queue_id = name.rpartition(":")
            for moment, offset in list(queue["byTime"].items())[::10]:
                assert ask("time", topic=topic, queue_id=int(queue_id), time=int(moment))["queue_offset"] == offset
                asked += 1
        assert asked > 40
