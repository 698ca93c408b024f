"""Retention, timers, and what recover mends, with whole brokers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import (
    ASK,
    Answers,
    Crashed,
    Done,
    copy_store,
    differences,
    files_of,
    log_files,
    missing,
    numbers_in,
    overwrite,
    run_job,
)
from support.real_broker import RELEASES, REPLICATED, SINCE_5, BrokerPair, BrokerSite, await_alike
from support.rebuilding import rules_of_release

from jobs.preflight.preflight import safe_to_start
from jobs.preflight.stopped_store import Answer
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker


# ------------------------------------------------------------------------------------------------------ retention drill
# A store that was down for days: a broker that is started on it deletes what ``preflight`` says (``old``); not after
# ``touch`` (``touched``). The two run side by side, for a broker cleans a minute after its start.
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


# ---------------------------------------------------------------------------------------------------------- timer drill
# A broker is killed with timer messages pending, and its timer state is lost: rebuild and publish make it anew, and
# each message that waits is delivered once; what was delivered does not come again.
#
# Some messages are due before the crash, some after it, some in an hour. Copies of the store after ``kill -9``:
#
#     all      wheel, timer log and timercheck lost
#     mixed    a wheel of another length, timercheck full of zeros, the timer log as it was
#     kept     wheel and timer log lost, timercheck kept: not cured, nothing that waits is delivered
SOON, LATER, FAR = 5, 6, 3
ASK_TIMERS = {"command": "ask", "topics": ["Delayed"]}


@dataclass(frozen=True)
class Night:
    """The broker after the crash: which keys were to come soon, and later, and the damaged stores."""

    site: BrokerSite
    soon: set[str]
    later: set[str]
    copies: dict[str, Path]


def served(answers: dict[str, Any]) -> Counter[str]:
    return Counter(row["keys"] for queue in answers["queues"].values() for row in queue["messages"])


def units_to_come(store: Path) -> int:
    """How many units the slots of the wheel have whose time is to come, each chain followed to its first."""
    log = b"".join(path.read_bytes() for path in sorted((store / "timerlog").iterdir()))
    count = 0
    for seconds, _, last, _, _ in struct.iter_unpack(">qqqii", (store / "timerwheel").read_bytes()):
        position = last if seconds > time.time() else -1
        while position != -1:
            count += 1
            (position,) = struct.unpack_from(">q", log, position + 4)
    return count


@pytest.fixture(scope="module", params=SINCE_5)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    scratch = tmp_path_factory.mktemp(f"timers-{request.param}")
    with BrokerSite(request.param, scratch, settings={"timerFlushIntervalMs": 1_000}) as site:
        store = site.scratch / "store"
        site.start(store)
        counts = {"soon": LATER, "brief": SOON, "timed": FAR}
        sent, _, answers = site.clients(
            {"command": "send", "round": "one", "create": ["Delayed"], "counts": counts},
            {"command": "await", "topic": "Delayed", "messages": SOON},
            ASK_TIMERS,
        )
        site.kill()
        keys = {kind: {row["keys"] for row in sent if row["kind"] == kind} for kind in counts}
        assert set(served(answers)) >= keys["brief"]
        copies = {name: copy_store(store, site.scratch / name) for name in ("all", "mixed", "kept")}
        for name in ("all", "kept"):
            (copies[name] / "timerwheel").unlink()
            shutil.rmtree(copies[name] / "timerlog")
        (copies["all"] / "config" / "timercheck").unlink()
        (copies["mixed"] / "timerwheel").write_bytes(b"short")
        (copies["mixed"] / "config" / "timercheck").write_bytes(bytes(4096))
        yield Night(site, keys["brief"], keys["soon"], copies)


@pytest.mark.parametrize("name", ["all", "mixed"])
def test_what_waits_is_delivered_once(night: Night, name: str) -> None:
    site, store, output = night.site, night.copies[name], night.site.scratch / f"rebuilt-{name}"
    conf = ("--broker-conf", site.broker_conf(store))
    done = run_job("rebuild", "--store", store, *conf, "--only", "timers", "--output", output)
    assert done.code == 0, done.said
    delivered = done.report["timers_delivered"]
    assert delivered >= SOON  # on a slow machine some of the later ones, too
    assert done.report["timers_waiting"] + delivered == SOON + LATER + FAR
    put = run_job("publish", "--store", store, "--from", output, "--after-crash", *conf)
    reasons = run_job("preflight", "--store", store, *conf).report["reasons"]
    unsafe = {one["rule"] for one in reasons if one["unsafe"]}
    assert put.code == bool(unsafe), put.said
    assert unsafe <= {"no_offsets"}, "what the group that asks committed, the broker may not have written yet"
    site.start(store)
    _, _, answers = site.clients(
        {"command": "await", "topic": "Delayed", "messages": SOON + LATER},
        {"command": "pause", "ms": 8_000},
        ASK_TIMERS,
    )
    recovered = re.findall(r"Timer recover ok.*? currQueueOffset:(\d+)", site.store_log())
    assert int(recovered[-1]) == done.report["timer_queue_end"]
    assert served(answers) == Counter([*night.soon, *night.later])
    site.stop()
    assert units_to_come(store) == FAR
    site.start(store)
    _, again = site.clients({"command": "pause", "ms": 5_000}, ASK_TIMERS)
    site.kill()
    assert served(again) == served(answers)


def test_without_a_cure_what_waits_is_not_delivered(night: Night) -> None:
    """The tests before have taken their time: all but those of the next hour are due."""
    store, output = night.copies["kept"], night.site.scratch / "dry"
    conf = ("--store", store, "--broker-conf", night.site.broker_conf(store))
    told = run_job("rebuild", *conf, "--only", "timers", "--output", output, "--dry-run").report
    assert told["timers_overdue"] == SOON + LATER - told["timers_delivered"]
    assert run_job("preflight", *conf).code == 1
    night.site.start(store)
    _, answers = night.site.clients({"command": "pause", "ms": 8_000}, ASK_TIMERS)
    night.site.kill()
    assert sum(served(answers).values()) == told["timers_delivered"]


# -------------------------------------------------------------------------------------------------------- recover drill
def without_queues(store: Path) -> None:
    """As ``wiped`` is: no queues, no index, no checkpoint."""


def without_index(store: Path) -> None:
    shutil.rmtree(store / "index", ignore_errors=True)  # without queues 5.3.3 makes all of it again at its start


def torn_offsets(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-3])  # each group is whole
    path.with_name(path.name + ".bak").unlink(missing_ok=True)


def recover(crashed: Crashed, store: Path) -> Done:
    return run_job("recover", "--store", store, "--broker-conf", crashed.site.broker_conf(store), "--yes")


@pytest.mark.parametrize("damage", [without_queues, without_index, torn_offsets])
def test_all_is_served_again(crashed: Crashed, damage: Callable[[Path], None], tmp_path: Path) -> None:
    store = copy_store(crashed.scratch / "wiped", tmp_path / "store")
    if damage is not without_queues:
        assert recover(crashed, store).code == 0
        damage(store)
    done = recover(crashed, store)
    assert done.code == 0, done
    crashed.site.start(store)
    (answers,) = crashed.site.clients(ASK)
    crashed.site.kill()
    assert differences(crashed.answers, answers) == []
    assert missing(answers, crashed.sent) == []


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_left_of_a_damaged_log_is_served(crashed: Crashed, cut: bool, tmp_path: Path) -> None:
    """One record is damaged, or the last segment ends within one."""
    store = copy_store(crashed.scratch / "wiped", tmp_path / "store")
    base = int(list(log_files(store))[-1 if cut else -5])
    starts = sorted(row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"])
    own = [offset for offset in starts if base <= offset]
    if cut:
        with (store / "commitlog" / f"{base:020d}").open("r+b") as file:
            file.truncate(own[len(own) // 2] - base + 50)
    else:
        overwrite(store, own[3] + 20, own[3] + 60)
    done = recover(crashed, store)
    assert str(done.report.get("answer")).startswith("safe"), done
    (log,) = store.glob("commitlog-repaired-*")
    lost = set(own[len(own) // 2 :]) if cut else {own[3]}
    crashed.site.start(store, storePathCommitLog=log)
    (answers,) = crashed.site.clients(ASK)
    crashed.site.kill()
    before = {row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"]}
    served = {row["commitLogOffset"] for queue in answers["queues"].values() for row in queue["messages"]}
    assert before - served == lost


# --------------------------------------------------------------------------------------------------------- resend drill
# Messages that ``query list`` exported are sent again by a real producer, with the program that README names: bodies,
# tags, keys and properties are the same; ids, offsets and times are new.
RESEND = Path(__file__).resolve().parents[2] / "conf" / "Resend.java"
COUNTS = {"normal": 30, "large": 2, "tagged": 20}
NEW = {"UNIQ_KEY", "WAIT", "CLUSTER", "TRACE_ON", "MSG_REGION"}
"""Properties that a client or a broker sets anew."""


def exported(store: Path, conf: Path, topic: str, target: Path) -> list[dict[str, Any]]:
    done = run_job("query", "--store", store, "--broker-conf", conf, "list", "--topic", topic, "--bodies",
                   "--export", target)  # fmt: skip
    assert done.code == 0
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


def content(row: dict[str, Any]) -> str:
    """What a consumer sees, but for ids, offsets and times."""
    kept = {name: value for name, value in row["properties"].items() if name not in NEW}
    return json.dumps(
        [row["topic"], row.get("body"), row.get("body_base64"), row["flag"], row["tags"], row["keys"], kept]
    )


def test_what_was_exported_arrives_again(tmp_path: Path) -> None:
    with BrokerSite("5.3.3", tmp_path) as site:
        store = tmp_path / "store"
        site.start(store)
        site.clients({"command": "send", "round": "one", "create": ["Normal", "Tagged"], "counts": COUNTS})
        site.stop()
        conf = site.broker_conf(store)
        before = {topic: exported(store, conf, topic, tmp_path / f"{topic}.jsonl") for topic in ("Normal", "Tagged")}
        site.start(store)
        for topic, rows in before.items():
            said = site.run_java(str(RESEND), site.name_server, str(tmp_path / f"{topic}.jsonl"))
            assert f"{len(rows)} sent" in said
        site.stop()
        assert sum(map(len, before.values())) == sum(COUNTS.values())
        for topic, rows in before.items():
            after = exported(store, conf, topic, tmp_path / f"{topic}-again.jsonl")
            assert Counter(map(content, after)) == Counter([*map(content, rows), *map(content, rows)])
            assert len({row["uniq_key"] for row in after}) == len(after) == 2 * len(rows)


# -------------------------------------------------------------------------------------------------------- replica drill
@dataclass(frozen=True)
class Healed:
    """What became of the master: the commands, the log, the files before and after a start, what clients were told."""

    refused: Done
    compared: Done
    rebuilt: Done
    published: Done
    log: Mapping[str, str]
    files: tuple[dict[str, str], dict[str, str], dict[str, str]]
    started: tuple[dict[str, str], dict[str, str], dict[str, str]]
    answers: Answers


@pytest.fixture(scope="module")
def healed(crashed: Crashed) -> Healed:
    site, scratch = crashed.site, crashed.scratch
    master, slave = (copy_store(scratch / "wiped", scratch / f"copy-{name}") for name in ("master", "slave"))
    segments = sorted(crashed.log)
    starts = sorted(row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"])
    size = int(segments[1]) - int(segments[0])

    def records(number: int) -> list[int]:
        begin = int(segments[number])
        return [offset for offset in starts if begin <= offset < begin + size]

    for number in (-7, -5):
        overwrite(master, records(number)[3] + 20, records(number)[6] + 30)
    (master / "commitlog" / segments[-4]).unlink()
    overwrite(slave, records(-6)[2] + 10, records(-6)[4] + 90)
    short = slave / "commitlog" / segments[-3]
    short.write_bytes(short.read_bytes()[: size // 3])
    conf = ("--broker-conf", site.broker_conf(master))
    output, repaired = scratch / "healed", scratch / "healed-segments"
    refused = run_job("rebuild", "--store", master, "--output", output, *conf)
    compared = run_job("inspect", "--store", master, *conf, "--replica", slave)
    rebuilt = run_job(
        "rebuild", "--store", master, "--output", output, *conf, "--replica", slave, "--repair-log", repaired
    )
    for path in repaired.iterdir():
        shutil.copy(path, master / "commitlog" / path.name)
    log = log_files(master)
    published = run_job("publish", "--store", master, "--from", output, "--after-crash")
    files = files_of(master)
    site.start(master)
    started = files_of(master)
    (answers,) = site.clients(ASK)
    site.kill()
    return Healed(refused, compared, rebuilt, published, log, files, started, answers)


def test_alone_the_damaged_master_is_refused(healed: Healed) -> None:
    assert healed.refused.code == 65


def test_the_two_logs_agree_in_all_that_is_sound(healed: Healed) -> None:
    (replica,) = healed.compared.report["replicas"]
    assert replica["first_difference"] is None
    assert replica["damaged_ranges"]


def test_every_range_is_healed_and_nothing_is_lost(healed: Healed) -> None:
    assert healed.rebuilt.code == 0, healed.rebuilt.said
    report: dict[str, Any] = healed.rebuilt.report
    assert (report["damaged_ranges"], report["lost_messages_at_least"]) == ([], 0)
    assert len(report["healed_ranges"]) >= 3
    assert len(report["repaired_segments"]) == 3


def test_the_log_is_the_one_that_was_written_byte_for_byte(crashed: Crashed, healed: Healed) -> None:
    assert healed.log == crashed.log


def test_queues_and_index_are_those_of_the_broker(crashed: Crashed, healed: Healed) -> None:
    assert healed.published.code == 0, healed.published.said
    assert healed.files[0] == crashed.queues


def test_a_start_changes_no_file_and_everything_is_served(crashed: Crashed, healed: Healed) -> None:
    assert healed.started == healed.files
    assert differences(crashed.answers, healed.answers) == []


def test_the_copies_are_left_as_they_were(crashed: Crashed, healed: Healed) -> None:
    slave = crashed.scratch / "copy-slave"
    assert sorted(log_files(slave)) == sorted(crashed.log)
    assert log_files(slave) != crashed.log


# -------------------------------------------------------------------------------------------------------- promote drill
# The master's disk is gone: a slave is promoted, the right one and a copy (``old``) that lacks what was acknowledged
# by both later; ``preflight --replica`` compares the two, and each is started as master.
SENT_EACH, READ_EACH, MORE, AFTER = 40, 16, 12, 8


@dataclass(frozen=True)
class RecoverStory:
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
def recover_story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecoverStory]:
    with BrokerPair(request.param, tmp_path_factory.mktemp(f"promote-{request.param}")) as pair:
        master, slave = pair.scratch / "master", pair.scratch / "slave"
        pair.start(master)
        pair.start_slave(slave)
        pair.clients(send("one", SENT_EACH), {**READERS, "messages": READ_EACH})
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
        yield RecoverStory(pair.release, said, took, served)


def test_the_longer_one_is_safe_but_for_offsets_that_never_came(recover_story: RecoverStory) -> None:
    """To a slave of 5.5.0."""
    reasons = recover_story.said["slave"].report["reasons"]
    expected = ["no_offsets"] if recover_story.release == "5.5.0" else []
    assert [reason["rule"] for reason in reasons if reason["unsafe"]] == expected, reasons
    assert f"it lacks {MORE} messages" in recover_story.rule("slave", "replica_shorter")["what"]


def test_it_serves_all_that_was_acknowledged(recover_story: RecoverStory) -> None:
    assert recover_story.served["slave"] == SENT_EACH + MORE


def test_the_group_goes_on_or_starts_over(recover_story: RecoverStory) -> None:
    """It may get again what it read within the last minute, and misses nothing; without offsets it reads all again."""
    least = 0 if recover_story.release == "5.5.0" else READ_EACH + 8
    assert SENT_EACH + MORE + AFTER - least <= recover_story.took["slave"] <= SENT_EACH + MORE + AFTER


def test_the_shorter_one_is_not_safe(recover_story: RecoverStory) -> None:
    done = recover_story.said["old"]
    assert (done.code, done.report["answer"]) == (1, "not safe to start")
    assert f"{MORE} messages are lost" in recover_story.rule("old", "replica_longer")["what"]


def test_against_the_advice_they_are_lost(recover_story: RecoverStory) -> None:
    assert recover_story.served["old"] == SENT_EACH
