"""Salvage, committed offsets and what healthy brokers leave, with whole brokers."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    await_numbers,
    copy_store,
    differences,
    files_of,
    log_files,
    missing,
    overwrite,
    places,
    run_job,
)
from support.real_broker import RELEASES, REPLICATED, SINCE_5, BrokerGroup, BrokerSite, await_alike
from support.rebuilding import rules_of_release

from jobs.preflight.preflight import safe_to_start
from storeformat.store.config_files import DataVersion, consumer_offsets_json
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker


# -------------------------------------------------------------------------------------------------------- salvage drill
# Three places of the log are unreadable, and everything else is served again. A broker that starts on such a log cuts
# it at the first (``cut``); after a salvage it starts without touching one byte, and survives another crash.
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


# ----------------------------------------------------------------------------------------------- consumer offsets drill
# A broker is killed, and its committed offsets are torn or lost: rebuild and publish make them anew, and every group
# gets each message that it has not read. What it reads again is no more than the report says.
#
# backup: consumerOffset.json torn, its ``.bak`` as the broker had written it before the last messages were read
# time: both sound, and all groups set to the time of a message
SENT_OFFSETS, FIRST, SECOND, MORE_OFFSETS = 60, 24, 12, 8
PULL: Mapping[str, Any] = {"command": "consume", "group": "readers", "topic": "Normal"}
ASK_OFFSETS: Mapping[str, Any] = {"command": "ask", "topics": ["Normal"]}
SEND_MORE: Mapping[str, Any] = {"command": "send", "round": "two", "create": [], "counts": {"normal": MORE_OFFSETS}}
NAME = "consumerOffset.json"
READER = Path(__file__).with_name("LightOffsets.java")

Place = tuple[int, int]


@dataclass(frozen=True)
class Night:
    """After the crash: (queue id, offset) the group had committed, store times of all messages, damaged copies."""

    site: BrokerSite
    stored: Mapping[Place, int]
    read: set[Place]
    copies: Mapping[str, Path]


def places_of(took: list[list[int]]) -> list[Place]:
    return [(queue_id, offset) for queue_id, offset in took]


@pytest.fixture(scope="module", params=SINCE_5)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    scratch = tmp_path_factory.mktemp(f"offsets-{request.param}")
    with BrokerSite(request.param, scratch) as site:
        store = site.scratch / "store"
        site.start(store)
        _, first = site.clients(
            {"command": "send", "round": "one", "create": ["Normal"], "counts": {"normal": SENT_OFFSETS}},
            {**PULL, "messages": FIRST},
        )
        await_numbers(store, NAME, "Normal@readers", first["committed"])
        backup = (store / "config" / NAME).read_bytes()
        second, _, answers = site.clients({**PULL, "messages": SECOND}, {"command": "pause", "ms": 3_000}, ASK_OFFSETS)
        site.kill()
        stored = {
            (int(name.rpartition(":")[2]), row["queueOffset"]): row["storeTimestamp"]
            for name, queue in answers["queues"].items()
            for row in queue["messages"]
        }
        copies = {name: copy_store(store, site.scratch / name) for name in ("backup", "time")}
        torn = copies["backup"] / "config" / NAME
        torn.write_bytes(torn.read_bytes()[:40])
        torn.with_name(NAME + ".bak").write_bytes(backup)
        whole = copies["time"] / "config" / NAME
        if not whole.exists():  # the broker was killed while it replaced the file
            shutil.copy(whole.with_name(NAME + ".bak"), whole)
        yield Night(site, stored, set(places_of(first["took"]) + places_of(second["took"])), copies)


def published(night: Night, name: str, *more: object) -> Done:
    """The report of the rebuild whose offsets are in the store now."""
    store, output = night.copies[name], night.site.scratch / f"rebuilt-{name}"
    conf = ("--broker-conf", night.site.broker_conf(store))
    torn = run_job("verify", "--store", store, *conf)
    assert torn.code == 0, torn.said
    hazards = {row["hazard"] for row in torn.report["hazards"]}
    assert ("offsets_from_backup" in hazards) == (name == "backup"), torn.said  # a broker takes it without us
    done = run_job("rebuild", "--store", store, *conf, "--only", "consumer-offsets", "--output", output, *more)
    assert "asking" in done.report["groups_without_offsets"], done.said  # the broker knows it, and it never committed
    assert done.code == int(name != "time"), done.said
    put = run_job("publish", "--store", store, "--from", output, "--after-crash")
    assert (put.code, put.report["replaced"]) == (0, [f"config/{NAME}"]), put.said
    assert run_job("verify", "--store", store, *conf).code == 0
    return done


def rows(done: Done, group: str) -> dict[int, dict[str, Any]]:
    return {
        row["queue_id"]: row
        for row in done.report["consumer_offsets"]
        if (row["group"], row["topic"]) == (group, "Normal")
    }


def bound(done: Done, group: str) -> int:
    return sum(row["read_again_at_most"] for row in rows(done, group).values())


def test_from_the_backup_nobody_skips_a_message(night: Night) -> None:
    done = published(night, "backup")
    found = rows(done, "readers")
    assert {row["source"] for row in found.values()} <= {".bak", "begin of the queue"}
    assert "readers" not in done.report["groups_without_offsets"]
    night.site.start(night.copies["backup"])
    more, group = night.site.clients(SEND_MORE, {**PULL, "messages": 1, "to_the_end": True})
    night.site.kill()
    took = places_of(group["took"])
    new = {(row["queueId"], row["queueOffset"]) for row in more}
    assert set(took) >= (set(night.stored) - night.read) | new
    again = Counter(took).keys() & night.read
    assert 0 < len(again) <= bound(done, "readers")
    assert again == {place for place in night.read if place[1] >= found[place[0]]["offset"]}, found


def test_set_to_a_time_groups_begin_with_its_first_message(night: Night) -> None:
    time = sorted(night.stored.values())[SENT_OFFSETS // 3]
    done = published(night, "time", "--consumer-offsets-at", time)
    night.site.start(night.copies["time"])
    (group,) = night.site.clients({**PULL, "messages": 1, "to_the_end": True})
    night.site.kill()
    assert set(places_of(group["took"])) == {place for place, stored in night.stored.items() if stored >= time}
    assert {row["source"] for row in rows(done, "readers").values()} == {"time"}


def test_with_light_groups_the_broker_reads_the_other_file(night: Night, tmp_path: Path) -> None:
    made = tmp_path / "lmqConsumerOffset.json"
    offsets = {("%LMQ%a", "%LMQ%one"): {0: 7}, ("Normal", "readers"): {0: 5, 3: 9}}
    made.write_bytes(consumer_offsets_json(offsets, DataVersion(), light_groups=True))
    said = night.site.run_java(str(READER), str(made))
    assert said.splitlines()[-1] == "{%LMQ%a@%LMQ%one=7} {Normal@readers={0=5, 3=9}}"


# -------------------------------------------------------------------------------------------------------- healthy drill
# No healthy store of a common set-up is kept down: ``preflight`` says "safe to start" of what a real broker with its
# settings leaves, after a clean stop and after ``kill -9``; and the broker then serves everything.
POP = Path(__file__).with_name("PopSome.java")
SENT, MORE_HEALTHY = 40, 5
USER, PASSWORD = "keeper", "keeper-secret"
NORMAL, TIMERS, HALVES = {"normal": SENT}, {"normal": SENT, "timed": 4, "brief": 3}, {"normal": SENT, "transaction": 9}
PLAIN = "updateTopic -b {broker} -t Normal -r 4 -w 4"
ROCKSDB = {"storeType": "defaultRocksDB"}
NOTES = {"index_deleted", "config_backup", "queues_fewer_than_configured"}
"""What any store may be told: of keys and of a file that kill -9 cut short, of a queue that got no message."""


@dataclass(frozen=True)
class SetUp:
    """Settings, what a store of theirs has that no other one has, and what is said of it."""

    settings: Mapping[str, Any]
    holds: str
    notes: frozenset[str] = frozenset()
    admin: Sequence[str] = (PLAIN,)
    """Commands of mqadmin before anything is sent."""
    kinds: Mapping[str, int] | None = None
    """What clients send; with ACL 2.0 mqadmin does that."""
    use: Sequence[str] = ()
    """Commands of mqadmin, or a Java program, after that and on the store that was started again."""
    delivered: int = 0
    """How many messages with a timer are delivered, once."""
    since: str = "5.3.3"


def acl() -> dict[str, Any]:
    made: dict[str, Any] = {
        "initAuthenticationUser": f'{{"username":"{USER}","password":"{PASSWORD}"}}',
        "innerClientAuthenticationCredentials": f'{{"accessKey":"{USER}","secretKey":"{PASSWORD}"}}',
    }
    for kind in ("authentication", "authorization"):
        provider = f"org.apache.rocketmq.auth.{kind}.provider"
        made[f"{kind}Enabled"] = True
        made[f"{kind}Provider"] = f"{provider}.Default{kind.title()}Provider"
        made[f"{kind}MetadataProvider"] = f"{provider}.Local{kind.title()}MetadataProvider"
    return made


TIERED = "org.apache.rocketmq.tieredstore"
SET_UPS: Mapping[str, SetUp] = {
    "ACL 2.0": SetUp(acl(), "config/acls/*.sst", kinds={}, admin=[
        PLAIN, "createUser -b {broker} -u reader -p reader-secret -t Normal",
        "createAcl -b {broker} -s User:reader -r Topic:Normal -a Sub -d Allow",
        "sendMessage -t Normal -k key -p body",
    ], use=["getUser -b {broker} -u reader", "getAcl -b {broker} -s User:reader", "consumeMessage -t Normal"]),
    "static topics": SetUp({}, "config/topicQueueMapping.json",
                           admin=["updateStaticTopic -b broker-a -t Normal -qn 4"]),
    "compaction": SetUp({"enableCompaction": True}, "compaction/compactionLog/Normal/0/*",
                        admin=[PLAIN + " -a +cleanup.policy=COMPACTION"]),
    "POP": SetUp({"popConsumerKVServiceInit": True, "popConsumerKVServiceEnable": True}, "kvStore/*.sst",
                 frozenset({"not_judged"}), admin=[PLAIN, "updateSubGroup -b {broker} -g poppers"],
                 use=["setConsumeMode -b {broker} -t Normal -g poppers -m POP -q 0", str(POP)]),
    "timers": SetUp({"timerRocksDBEnable": True}, "rocksdbstore/*.sst", frozenset({"not_judged"}),
                    [PLAIN, PLAIN.replace("Normal", "Delayed")], TIMERS, delivered=3, since="5.5.0"),
    "transactions and index": SetUp(
        {"transRocksDBEnable": True, "indexRocksDBEnable": True}, "rocksdbstore/*.sst", frozenset({"not_judged"}),
        [PLAIN, PLAIN.replace("Normal", "Transaction")], HALVES, since="5.5.0"),
    "tiered store": SetUp({
        "messageStorePlugIn": f"{TIERED}.TieredMessageStore", "tieredStorageLevel": "FORCE",
        "tieredBackendServiceProvider": f"{TIERED}.provider.PosixFileSegment"}, "config/tieredStoreMetadata.json"),
    "RocksDB": SetUp(ROCKSDB, "consumequeue/CURRENT", frozenset({"rocksdb_not_judged"})),
    "one database of settings": SetUp({**ROCKSDB, "useSingleRocksDBForAllConfigs": True}, "config/metadata/CURRENT",
                                      frozenset({"rocksdb_not_judged"}), since="5.5.0"),
    "second form of settings": SetUp({"configManagerVersion": "v2"}, "config/rdb/CURRENT"),
}  # fmt: skip
EACH = [(name, one) for name, set_up in SET_UPS.items() for one in RELEASES if one >= set_up.since]


def administer(site: BrokerSite, commands: Sequence[str]) -> None:
    """Runs commands of mqadmin as the first user, and the Java program."""
    home = site.scratch / "admin"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {USER}\nsecretKey: {PASSWORD}\n")
    for line in commands:
        if line == str(POP):
            site.run_java(line, site.name_server, "Normal", "poppers", "4")
            continue
        words = [*line.format(broker=site.address).split(), "-n", site.name_server]
        said = site.run_java(f"-Drocketmq.home.dir={home}", "org.apache.rocketmq.tools.command.MQAdminStartup", *words)
        done = ("success", "SEND_OK", "mapping data is written", "reader", "Consume ok")
        assert any(word in said for word in done), f"{line}: {said[-2000:]}"


def assert_safe(site: BrokerSite, conf: Path, store: Path, notes: frozenset[str] = frozenset()) -> None:
    answer = safe_to_start(str(store), read_settings(str(conf), ()), rules_of_release(site.release))
    assert answer.first_line.startswith("safe to start"), answer.lines()
    assert {reason.rule for reason in answer.reasons} <= NOTES | notes, answer.lines()


def send(round_: str, kinds: Mapping[str, int], create: Sequence[str] = ()) -> dict[str, Any]:
    return {"command": "send", "round": round_, "create": create, "counts": kinds}


def read(group: str, messages: int) -> dict[str, Any]:
    return {"command": "consume", "group": group, "topic": "Normal", "messages": messages}


@pytest.mark.parametrize(("name", "release"), EACH)
def test_what_a_broker_leaves_is_safe(name: str, release: str, tmp_path: Path) -> None:
    set_up, store = SET_UPS[name], tmp_path / "store"
    kinds = NORMAL if set_up.kinds is None else set_up.kinds
    late = {"command": "await", "topic": "Delayed", "messages": set_up.delivered}
    with BrokerSite(release, tmp_path, settings=set_up.settings) as site:
        site.start(store)
        administer(site, set_up.admin)
        if kinds:
            site.clients(send("one", kinds), read("readers", SENT // 2), *[late] * bool(set_up.delivered))
        administer(site, set_up.use)
        site.stop()
        assert_safe(site, site.broker_conf(store), store, set_up.notes)
        site.start(store)
        if kinds:
            site.clients(send("two", {"normal": MORE_HEALTHY}), read("everyone", SENT + MORE_HEALTHY))
        if set_up.delivered:
            _, asked = site.clients({"command": "pause", "ms": 5_000}, {"command": "ask", "topics": ["Delayed"]})
            assert sum(len(queue["messages"]) for queue in asked["queues"].values()) == set_up.delivered
        administer(site, set_up.use)
        site.kill()
        assert_safe(site, site.broker_conf(store), store, set_up.notes)
        assert list(store.glob(set_up.holds))


@pytest.mark.parametrize("release", RELEASES)
def test_what_members_of_a_controllers_group_leave_is_safe(release: str, tmp_path: Path) -> None:
    """A slave of 5.5.0 gets no offsets of its master's, and is not safe before somebody copies them."""
    copied = REPLICATED[2:] * (release == "5.5.0")
    stores = {name: tmp_path / name for name in ("one", "other")}
    with BrokerGroup(release, tmp_path, master="one") as group:
        for end in (group.stop_member, group.kill_member):
            group.start_member("one", stores["one"])
            create = ["Normal"] * (end == group.stop_member)
            group.clients(send(end.__name__, NORMAL, create), read("readers", SENT // 2))
            group.start_member("other", stores["other"])
            await_alike(*stores.values(), [name for name in REPLICATED if name not in copied])
            for name in ("other", "one"):
                end(name)
                assert (stores[name] / "epochFileCheckpoint").exists()
            for name in copied:
                shutil.copy(stores["one"] / name, stores["other"] / name)
            for name, store in stores.items():
                assert_safe(group, group.member_conf(name, store), store)
