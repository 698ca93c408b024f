"""No healthy store of a common set-up is kept down: ``preflight`` says "safe to start" of what a real broker with its
settings leaves, after a clean stop and after ``kill -9``; and the broker then serves everything.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.real_broker import RELEASES, REPLICATED, BrokerGroup, BrokerSite, await_alike
from support.rebuilding import rules_of_release

from jobs.preflight.preflight import safe_to_start
from storeformat.store.settings import read_settings

pytestmark = pytest.mark.broker

POP = Path(__file__).with_name("PopSome.java")
SENT, MORE = 40, 5
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
            site.clients(send("two", {"normal": MORE}), read("everyone", SENT + MORE))
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
