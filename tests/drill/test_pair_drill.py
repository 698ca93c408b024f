"""A master and its slave, and epochs of a controller's group, with whole brokers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import (
    ASK,
    COUNTS,
    TOPICS,
    Answers,
    Done,
    copy_store,
    differences,
    files_of,
    log_files,
    missing,
    overwrite,
    run_job,
    wipe,
)
from support.real_broker import RELEASES, BrokerFailed, BrokerGroup, BrokerPair, are_alike, await_alike
from support.rebuilding import rules_of_release

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.stopped_store import Reason
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker


# ----------------------------------------------------------------------------------------------------------- pair drill
# The drill with a real pair (SYNC_MASTER and SLAVE): both logs lose records and a segment in one night, in different
# places, and the master serves everything. In copies one record is damaged in both.
KINDS = ("normal", "large", "tagged", "batch")


@dataclass(frozen=True)
class Night:
    """A pair after kill -9 of both, each with a damaged log: what was sent and answered, the files there were."""

    pair: BrokerPair
    master: Path
    slave: Path
    sent: Sequence[Mapping[str, Any]]
    answers: Answers
    queues: Mapping[str, str]
    log: Mapping[str, str]
    last_record: tuple[int, int]
    """One that is sound in both."""

    def conf(self, store: Path) -> tuple[object, ...]:
        return "--broker-conf", self.pair.broker_conf(store)


@pytest.fixture(scope="module", params=RELEASES)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    scratch = tmp_path_factory.mktemp(f"pair-{request.param}")
    with BrokerPair(request.param, scratch) as pair:
        master, slave = scratch / "master", scratch / "slave"
        pair.start(master)
        pair.start_slave(slave)
        sent, answers = pair.clients(
            {"command": "send", "round": "one", "create": TOPICS, "counts": {kind: COUNTS[kind] for kind in KINDS}}, ASK
        )
        await_alike(master, slave)
        pair.kill_slave()
        pair.kill()
        queues, _, log = files_of(master)
        assert log_files(slave) == log, "HA replication sends the log as it is"
        starts = sorted(row["commitLogOffset"] for queue in answers["queues"].values() for row in queue["messages"])
        yield Night(pair, master, slave, sent, answers, queues, log, spoiled(master, slave, sorted(log), starts))


def spoiled(master: Path, slave: Path, segments: Sequence[str], starts: Sequence[int]) -> tuple[int, int]:
    """Damages both logs, removes what was derived from the master's, and returns a record that is left alone."""
    length = int(segments[1]) - int(segments[0])

    def records(number: int) -> list[int]:
        begin = int(segments[number])
        return [offset for offset in starts if begin <= offset < begin + length]

    overwrite(master, records(0)[3] + 20, records(0)[6] + 30)
    overwrite(slave, records(0)[8] + 10, records(0)[9] + 90)
    (master / "commitlog" / segments[1]).unlink()
    short = slave / "commitlog" / segments[2]
    short.write_bytes(short.read_bytes()[: length // 3])
    overwrite(slave, records(-1)[0], records(-1)[0] + 8)
    wipe(master)
    left = records(-2)[1]
    with (master / "commitlog" / segments[-2]).open("rb") as file:
        file.seek(left % length)
        return left, left + int.from_bytes(file.read(4), "big")


@dataclass(frozen=True)
class Served:
    """The master, healed and started: the commands, its log before the start, its files after it, what it answered."""

    rebuilt: Done
    published: Done
    log: Mapping[str, str]
    queues: Mapping[str, str]
    answers: Answers


@pytest.fixture(scope="module")
def copies(night: Night) -> tuple[Path, Path]:
    """Both stores as they are after the night."""
    scratch = night.pair.scratch
    return copy_store(night.master, scratch / "copy-master"), copy_store(night.slave, scratch / "copy-slave")


@pytest.fixture(scope="module")
def served(night: Night, copies: tuple[Path, Path]) -> Served:
    output, repaired = night.pair.scratch / "healed", night.pair.scratch / "repaired"
    rebuilt = run_job(
        "rebuild", "--store", night.master, "--output", output, *night.conf(night.master), "--replica", night.slave,
        "--repair-log", repaired,
    )  # fmt: skip
    for path in repaired.iterdir():
        shutil.copy(path, night.master / "commitlog" / path.name)
    log = log_files(night.master)
    published = run_job("publish", "--store", night.master, "--from", output, "--after-crash")
    night.pair.start(night.master)
    (answers,) = night.pair.clients(ASK)
    night.pair.kill()
    return Served(rebuilt, published, log, files_of(night.master)[0], answers)


def test_the_logs_agree_in_all_that_is_sound(night: Night, served: Served) -> None:
    (replica,) = served.rebuilt.report["replicas"]
    assert (replica["first_difference"], replica["log_end"]) == (None, served.rebuilt.report["log_end"])
    assert len(replica["damaged_ranges"]) >= 3


def test_the_masters_log_is_whole_byte_for_byte(night: Night, served: Served) -> None:
    assert served.rebuilt.code == 0, served.rebuilt.said
    rules = [reason["rule"] for reason in served.published.report["reasons"] if reason["unsafe"]]
    assert rules in ([], ["no_offsets"]), "5.3.3 knows the group that asks, and that commits nothing"
    assert served.published.code == len(rules), served.published.said
    report = served.rebuilt.report
    assert (report["damaged_ranges"], report["lost_messages_at_least"]) == ([], 0)
    assert len(report["repaired_segments"]) == 2
    assert served.log == night.log


def test_the_master_serves_everything(night: Night, served: Served) -> None:
    assert differences(night.answers, served.answers) == []
    assert missing(served.answers, night.sent) == []
    assert served.queues == night.queues


def test_what_is_damaged_in_both_is_all_that_is_lost(night: Night, copies: tuple[Path, Path]) -> None:
    master, slave = copies
    begin, end = night.last_record
    overwrite(master, begin + 40, end - 4)
    overwrite(slave, begin + 4, end - 30)
    asked = ("inspect", "--store", master, *night.conf(master), "--replica", slave)
    assert run_job(*asked).code == 2
    done = run_job(*asked, "--on-damage", "salvage")
    assert [(row["begin"], row["end"]) for row in done.report["damaged_ranges"]] == [(begin, end)]
    assert done.report["lost_messages_at_least"] == 1


# ---------------------------------------------------------------------------------------------------------- epoch drill
# A member of a controller's group comes back without its epochs: what ``preflight`` says, and what then happens.
#
# ``one`` is master and has messages that nobody else has when it dies; ``other`` becomes master and goes on without
# them. With its epochs ``one`` cuts its log to what both have, and follows. Copies of it come back instead:
#
# =========  ======================================================================
# ``torn``   the epoch file torn, its ``.bak`` sound
# ``words``  the same, but it holds words instead of numbers
# ``lost``   neither is there
# =========  ======================================================================
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
    assert story.compared["lost"]["what"] == story.compared["one"]["what"], "it keeps what its master does not have"


def test_words_for_numbers_end_the_start(story: Story) -> None:
    (reason,) = story.said["words"]
    assert reason.unsafe
    assert "does not start" in reason.what
    assert not story.started["words"]


def test_where_two_members_part_is_told(story: Story) -> None:
    assert f"and this store {ALONE} messages" in story.compared["one"]["what"]
