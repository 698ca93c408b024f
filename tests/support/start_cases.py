"""What ``preflight`` says of small stores: a row for each damage, with the releases for which it says the same.

A row has the whole answer: the cases of ``rules.ini``, which of them are unsafe, and of their values those that matter.
``test_rules`` follows the cures of ``cured`` rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# isort: off
from support.start_damages import (
    ABORT, ALL_READ, CONTROLLER, FIRST, NO_GROUP, NO_OFFSET, NO_QUEUES, NO_SEGMENTS, NO_SUBSCRIPTIONS, ORDERS, ROCKSDB,
    V2, WHEEL_SIZE, Base, Damage, aged, check, checkpoint, commit, conf, config, copied, database, due, epochs,
    filled_to, flipped, flipped_record, folder, healthy, leftovers, linked, log_of, made_anew, moved, of, older_log,
    older_queues, orders, patched, put, relative_root, second_older, segments_swapped, sized, timer_units, timers,
    topics, torn_tail, unit, units, units_of, unset, with_databases, without,
)  # fmt: skip

# isort: on
from support.store_to_start import SEGMENT, StoreToStart

from jobs.preflight.stopped_store import ROWS as RULES
from jobs.preflight.stopped_store import Reason
from storeformat.storage.files import Space
from storeformat.store.checkpoint import StoreCheckpoint


@dataclass(frozen=True)
class Said:
    case: str
    unsafe: bool
    values: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, reason: Reason) -> bool:
        said = {name: reason.values.get(name) for name in self.values}
        return (self.case, self.unsafe, self.values) == (case_of(reason), reason.unsafe, said)


def case_of(reason: Reason) -> str:
    """The row of ``rules.ini`` whose sentences, with the reason's values, are the reason's."""
    own = [name for name in RULES.sections() if name.partition(".")[0] == reason.rule]
    cases = [name for name in own if reason.what == sentence(name, "what", reason.values)]
    if len(cases) > 1:
        cases = [name for name in cases if reason.cure == sentence(name, "cure", reason.values)]
    return cases[0] if len(cases) == 1 else f"{reason.rule}: {cases}"


def sentence(case: str, part: str, values: Mapping[str, Any]) -> str | None:
    try:
        return " ".join(RULES[case].get(part, "").split("\n")).format(**values)
    except KeyError:
        return None  # one of other values


def bad(case: str, **values: Any) -> Said:
    return Said(case, True, values)


def note(case: str, **values: Any) -> Said:
    return Said(case, False, values)


def are(reasons: Iterable[Reason], *said: Said) -> bool:
    """Whether reasons are just these, in any order."""
    left = list(reasons)
    for one in said:
        fitting = [reason for reason in left if one.fits(reason)]
        if not fitting:
            return False
        left.remove(fitting[0])
    return not left


@dataclass(frozen=True)
class Row:
    name: str
    damages: tuple[Damage, ...]
    said: tuple[Said, ...] = ()
    releases: str = "5.3"
    base: Base = healthy
    disk: Space | None = None
    cured: bool = False

    def made(self, root: Path, release: str) -> StoreToStart:
        """The healthy store."""
        store = self.base(root)
        store.version = release
        return store

    def damage(self, store: StoreToStart) -> StoreToStart:
        for damage in self.damages:
            damage(store)
        return store


def row(name: str, *parts: Damage | Said, **options: Any) -> Row:
    damages = tuple(part for part in parts if not isinstance(part, Said))
    return Row(name, damages, tuple(part for part in parts if isinstance(part, Said)), **options)


EIGHTY = of(80)


def cured(name: str, *parts: Damage | Said, base: Base = EIGHTY, **options: Any) -> Row:
    return row(name, *parts, base=base, cured=True, **options)


FROM_4_9, ALL = "4.9 5.1 5.3 5.5", "4.6 4.9 5.0 5.1 5.3 5.5"
SECOND = f"{SEGMENT:020d}"
LOST = {
    "topics.json": True, "consumerOffset.json": True, "subscriptionGroup.json": True, "delayOffset.json": False,
    "consumerFilter.json": False, "consumerOrderInfo.json": True, "topicQueueMapping.json": True, "timermetrics": False,
}  # fmt: skip
"""Whether a start without this file loses or repeats anything in a store without delayed messages."""

STRAY = "is not a segment: the broker does not start"
NO_SEGMENT = "is a directory in the place of a segment, whose messages are lost"
MADE = "; rebuild --topics-json makes one from the log"
LEFT = "; rebuild --only consumer-offsets makes it from what is left; mqadmin resetOffsetByTime sets other groups"
TAKEN_IN = "; rebuild --only consumer-offsets makes a file that 5.3.2 and later take in"
NONE_MADE = "none (5.3.2 and 5.3.3: from all of the log)"
STILL = ", and so do those that wait, for wheel and log still hold them"
NAMES, APART = ("topics", "subscriptionGroups", "consumerOffsets"), "useSeparateStorePathForRocksdbCQ"
CONFIG_DATABASES = tuple(f"config/{name}" for name in NAMES)
THIRD_LAST = f"commitlog/{6 * SEGMENT:020d}"
UNREAD = "; {} messages of them some group has not read, most of all {} in Orders ({})"

STORE_PATHS = (
    row("its root by another name", linked("../link", "."), conf(storePathRootDir="ROOT/../link")),
    row("its root and log, with a slash", conf(storePathRootDir="ROOT/", storePathCommitLog="ROOT/commitlog")),
    row("its root, with blanks", conf(storePathRootDir=" ROOT ")),
    row("another store", put("../other/x"), conf(storePathRootDir="ROOT/../other", storePathCommitLog="ROOT/../o"),
        bad("store_path.other", which="which is another store")),
    cured("no store", conf(storePathRootDir="/nowhere"), bad("store_path.other", which="which does not exist")),
    row("no store, and its log", conf(storePathRootDir="/nowhere", storePathCommitLog="/nowhere/commitlog"),
        bad("store_path.other", which="which does not exist")),
    cured("a relative root", relative_root, bad("store_path.other", which="a path relative to where it is started")),
    cured("no log there", conf(storePathCommitLog="/nowhere"), bad("store_path.log", which="does not exist")),
    row("an empty directory of the log", folder("../log"), conf(storePathCommitLog="ROOT/../log"),
        bad("store_path.log", which="holds no segment")),
    row("a second path, absent", conf(storePathCommitLog="ROOT/commitlog,ROOT/../second"),
        bad("store_path.log", which="does not exist")),
    row("a second path, empty", folder("../second"), conf(storePathCommitLog="ROOT/commitlog,ROOT/../second"),
        note("store_path.log", which="holds no segment")),
    row("a second path", moved("commitlog/*", f"../second/{SECOND}"),
        conf(storePathCommitLog="ROOT/commitlog,ROOT/../second")),
    row("read-only paths, absent", conf(readOnlyCommitLogStorePaths="ROOT/../old")),
    row("read-only paths without a comma", moved(f"commitlog/{FIRST}", f"../old/{FIRST}"),
        conf(storePathCommitLog="ROOT/commitlog", readOnlyCommitLogStorePaths="ROOT/../old"), bad("store_path.comma")),
    row("read-only paths with a comma", moved(f"commitlog/{FIRST}", f"../old/{FIRST}"),
        conf(storePathCommitLog="ROOT/commitlog,", readOnlyCommitLogStorePaths="ROOT/../old")),
    cured("a log path of nothing", conf(storePathCommitLog=""), bad("store_path.empty", name="storePathCommitLog")),
    cured("a root of nothing", conf(storePathRootDir=" "), bad("store_path.empty", name="storePathRootDir")),
    row("two paths before 4.9.2", conf(storePathCommitLog="ROOT/commitlog,/b"), bad("store_path.several"),
        bad("store_path.log"), releases="4.9.1"),
    cured("a root alone before 4.9.2", conf(storePathRootDir="ROOT"), bad("store_path.home"), releases="4.9.1"),
    row("a root alone", conf(storePathRootDir="ROOT"), releases="4.9.2 5.3"),
    cured("a plain log as a group's", conf(enableDLegerCommitLog="true", dLegerSelfId="n0"),
          bad("store_path.no_group", after=" after the 4 segments of a plain log")),
    row("an empty log of a group", conf(enableDLegerCommitLog="true", dLegerSelfId="n0"), folder("dledger-n0/data"),
        bad("store_path.no_group", after="")),
    row("a group's log as a plain one", moved("commitlog", "dledger-n0/data"),
        conf(storePathCommitLog="ROOT/dledger-n0/data"), bad("store_path.group_as_plain"), note("torn_tail", end=0)),
    row("a blank after a comma", moved("commitlog/*", f"../other/{SECOND}"),
        conf(storePathCommitLog="ROOT/commitlog, ROOT/../other"), bad("store_path.relative")),
    row("no blank after the comma", moved("commitlog/*", f"../other/{SECOND}"),
        conf(storePathCommitLog="ROOT/commitlog,ROOT/../other")),
)  # fmt: skip
SETTINGS = (
    row("a plug-in", conf(messageStorePlugIn="own.Store"), bad("not_judged.messages")),
    row("state elsewhere", conf(transRocksDBEnable="true"), note("not_judged.state"), releases="5.5"),
    cured("a blank after a number", conf(fileReservedTime="48 "), note("setting_not_taken.number", whole="48")),
    row("no number", conf(maxIndexNum="64K"), note("setting_not_taken.number", whole="a whole number"),
        note("index_size")),
    row("a role in small letters", conf(brokerRole="slave"), bad("setting_not_taken.word", taken="ASYNC_MASTER")),
    row("a role with a blank", conf(brokerRole="SLAVE ", brokerId="1"), bad("setting_not_taken.word"), releases="5.1"),
    row("a role whose blank goes", conf(brokerRole="SLAVE ", brokerId="1"), releases="5.3"),
    row("a role", conf(brokerRole="SYNC_MASTER"), releases="4.9"),
    row("a flush", conf(flushDiskType="sync"), note("setting_not_taken.word", taken="ASYNC_FLUSH")),
    row("property CRCs wanted", conf(forceVerifyPropCRC="true"), releases="5.1"),
    cured("no property CRC", conf(forceVerifyPropCRC="true"), bad("log_cut.no_property_CRC", first=4096, lost=56)),
    row("no property CRC in 5.5", conf(forceVerifyPropCRC="true"), bad("log_cut.no_property_CRC", first=12288, lost=8),
        base=of(80), releases="5.5"),
    row("no CRC is checked", conf(forceVerifyPropCRC="true", checkCRCOnRecover="false")),
    row("property CRCs not wanted", conf(forceVerifyPropCRC="false")),
    row("DUP_INFO wanted", conf(duplicationEnable="true"), releases="4.9"),
    cured("no DUP_INFO", conf(duplicationEnable="true"), bad("log_cut.no_DUP_INFO", first=4096, lost=56),
          releases="5.0"),
    row("no DUP_INFO in 5.5", conf(duplicationEnable="true"), bad("log_cut.no_DUP_INFO", first=12288, lost=8),
        base=of(80), releases="5.5"),
    row("DUP_INFO not wanted", conf(duplicationEnable="false")),
    row("a long topic", bad("log_cut.long_topic", lost=1), releases="4.9 5.0",
        base=log_of({"topic": "Orders"}, {"topic": "T" * 128})),
    row("a long topic that is read", releases="5.1 5.3",
        base=log_of({"topic": "Orders"}, {"topic": "T" * 128})),
)  # fmt: skip
FILES = (
    cured("a stray file", put("commitlog/it's $(notes)"), bad("stray_file", what=STRAY), releases="4.9 5.3"),
    row("stray files", put("commitlog/.DS_Store"), put("commitlog/a.txt"), bad("stray_file"), bad("stray_file")),
    cured("a directory in the log", folder("commitlog/old"), bad("stray_file"), releases="4.9 5.0"),  # 5.1.0 starts
    row("a directory that is passed over", folder("commitlog/old")),
    row("a directory for a segment", folder(f"commitlog/{FIRST}"), bad("stray_file", what=NO_SEGMENT)),
    cured("a directory for the checkpoint", folder("checkpoint"), bad("stray_file")),
    cured("a directory for an index file", folder("index/2026"), bad("stray_file")),
    cured("another size of segments", conf(mappedFileSizeCommitLog="8192"), bad("segment_size.all", size=4096)),
    row("no size of segments", unset("mappedFileSizeCommitLog"), bad("segment_size.all", size=4096)),
    cured("a cut segment", sized(f"commitlog/{FIRST}", 4000), bad("segment_size.one", size=4000, expected=4096)),
    cured("an empty last segment", put(f"commitlog/{4 * SEGMENT:020d}"), bad("segment_size.empty"), releases="4.9"),
    row("an empty last segment that goes", put(f"commitlog/{2 * SEGMENT:020d}"),
        note("segment_size.empty", then="deletes it")),
    row("a preallocated segment", filled_to(3)),
    cured("a segment in two paths", put(f"../second/{FIRST}", bytes(SEGMENT)),
          conf(storePathCommitLog="ROOT/commitlog,ROOT/../second"), bad("segment_twice")),
    row("a segment in two paths, the first one empty", put(f"../second/{FIRST}", bytes(SEGMENT)),
        conf(storePathCommitLog="ROOT/../second,ROOT/commitlog"), bad("segment_twice")),
    cured("a missing segment", without(f"commitlog/{SECOND}"), bad("segment_missing", after=f"{2 * SEGMENT:020d}")),
    cured("segments swapped", segments_swapped, bad("segment_misplaced", count=2)),
    row("no index", without("index"), note("index_deleted.absent")),
    cured("another length of index files", conf(maxIndexNum="61"), note("index_size", count=2)),
    row("lengths of no index", conf(maxIndexNum="61", messageIndexEnable="false")),
    row("one index file of three", without("index/*"), put("index/1", bytes(480)), put("index/2"),
        put("index/3", bytes(500)), conf(maxHashSlotNum="10", maxIndexNum="20"), note("index_size", count=1)),
    cured("an extended queue's file", put(f"consumequeue_ext/Orders/0/{FIRST}", bytes(400)),
          conf(enableConsumeQueueExt="true"), bad("mapped_file", size=400)),
    row("an empty file of a compacted topic", put(f"compaction/compactionLog/Orders/0/{FIRST}"), bad("mapped_file")),
    row("links", moved("commitlog", "../disk"), linked("commitlog", "../disk")),
    row("a disk with room for a segment", conf(cleanFileForciblyEnable="false"), disk=Space(8000, 4096, 4096)),
    row("a disk without room", conf(cleanFileForciblyEnable="false"), bad("free_space.segment", free=4095, needed=4096),
        disk=Space(8000, 4095, 4095)),
    row("a disk mounted read-only", bad("free_space.read_only"), disk=Space(10**5, 50_000, 50_000, takes_files=False)),
    row("a disk that is 90 % full", conf(cleanFileForciblyEnable="false"), disk=Space(10**5, 10_000, 10_000)),
    row("a disk that is 91 % full", conf(cleanFileForciblyEnable="false"),
        note("free_space.percent", used=91, stops=90), disk=Space(10**5, 9000, 9000)),
    row("a full disk without a log", NO_SEGMENTS, bad("log_missing.queues"), disk=Space(8000, 1, 1)),
)  # fmt: skip
RETENTION = (
    row("young segments", aged(40, 2)),
    cured("old segments", aged(100, 1), commit({"Orders@readers": {0: 1}}), bad("messages_deleted.age", count=1)),
    row("old segments, read", aged(100, 1), note("messages_deleted.age", count=1, all=2, begin=4096, unread="")),
    row("old segments, not read", aged(100, 1), commit({"Orders@readers": {0: 2, 1: 9}}),
        bad("messages_deleted.age", unread=UNREAD.format(4, "readers", 4))),
    row("old segments and several groups", aged(100, 1),  # one without an offset in a topic does not count for it
        commit({"Orders@a": {0: 6, 1: 9}, "Orders@b": {0: 5, 1: 0}, "Stock@c": {0: 7}, "Stock@d": {}, "No@e": {0: 1}}),
        bad("messages_deleted.age", unread=UNREAD.format(13, "b", 7)), note("committed_beyond_queue", topic="No")),
    row("old segments that are dispatched before", ABORT, aged(100, 1), commit({"Orders@readers": {0: 2, 1: 10}}),
        bad("messages_deleted.age", unread=UNREAD.format(4, "readers", 4)), base=of(40, 8), releases="5.5"),
    row("old segments and a queue without an offset", aged(100, 1), commit({"Orders@readers": {0: 10}}),
        bad("messages_deleted.age", unread=UNREAD.format(6, "readers", 6))),
    row("the last segment stays", aged(1000, 2), note("messages_deleted.age", count=1, all=2)),
    row("a young segment shields older ones", aged(1000, 2), aged(0, 1)),
    row("another reserved time", aged(100, 1), conf(fileReservedTime="200")),
    row("a tier", aged(100, 1), NO_GROUP, conf(messageStorePlugIn="x.TieredMessageStore"),
        note("messages_deleted.tiered", count=1)),
    row("a full disk", commit({"Orders@readers": {0: 0}}), bad("messages_deleted.forced"),
        disk=Space(10**6, 14 * 10**4, 14 * 10**4)),
    row("a full disk that is not cleaned", conf(cleanFileForciblyEnable="false"),
        disk=Space(10**6, 14 * 10**4, 14 * 10**4)),
    row("a disk above its ratio", commit({"Orders@readers": {0: 0}}), conf(diskSpaceCleanForciblyRatio="50"),
        bad("messages_deleted.forced"), disk=Space(10**6, 4 * 10**5, 4 * 10**5)),
    row("a low warning level", commit({"Orders@readers": {0: 1}}), conf(diskSpaceWarningLevelRatio="40"),
        bad("messages_deleted.forced"), note("free_space.percent", used=50, stops=40)),
    row("a low warning level before 5.0.0", conf(diskSpaceWarningLevelRatio="40"), releases="4.9"),
    row("a first segment gone", without(f"commitlog/{FIRST}")),
    row("a young first segment gone", without(f"commitlog/{FIRST}"), conf(fileReservedTime="999999"),
        note("log_begins_late", begin=4096, count=24)),
)  # fmt: skip
BAK = "consumerOffset.json.bak"
RENAMED = moved("config/consumerOffset.json", f"config/{BAK}")
CONFIG = (
    *(row(f"{name} torn, its .bak empty", put(f"config/{name}", '{"x":'), put(f"config/{name}.bak"),
          Said("config_lost.file", unsafe, {"name": name})) for name, unsafe in LOST.items()),
    *(row(f"{name} empty", put(f"config/{name}"),
          Said("config_lost.file", unsafe, {"name": name, "state": "empty, and its .bak absent"}))
      for name, unsafe in LOST.items()),
    *(row(f"{name} and its .bak torn", put(f"config/{name}"), put(f"config/{name}.bak", '{"x":'),
          bad("config_torn", name=name, state="empty"), cured=name == "topics.json") for name in LOST),
    *(cured(f"no {name}", without(f"config/{name}"),
            bad("config_lost.file", name=name, state="absent, and its .bak absent", made=made))
      for name, made in (("topics.json", MADE), ("consumerOffset.json", LEFT))),
    row("no subscriptionGroup.json", without("config/subscriptionGroup.json"), bad("config_lost.file")),
    row("no subscriptionGroup.json, and a cut last segment", without("config/subscriptionGroup.json"),
        sized(f"commitlog/{SECOND}", 4000), bad("config_lost.file"), bad("segment_size.one")),
    row("no groups, where nobody reads", without("config/subscriptionGroup.json"), NO_OFFSET, note("config_lost.file")),
    cured("topics.json without a topic", config("topics.json", {}), bad("config_lost.file", made=MADE)),
    row("static topics before 5.0.0", put("config/topicQueueMapping.json", "{"), releases="4.9"),
    *(row(f"offsets {state}, a sound .bak of {older} s before", RENAMED, put("config/consumerOffset.json", content),
          second_older(f"config/{BAK}", "config/consumerOffset.json", older),
          note("config_backup", state=state, older=said))
      for content, state, older, said in (
          (b"", "empty", -9, ""), (b"", "empty", 0.999, ""), (b"", "empty", 1, ", 1 s older"),
          (b"\0" * 50, "torn", 61.5, ", 61 s older"), (b'{"offsetTable":{', "torn", 1, ", 1 s older"))),
    row("a .bak alone", RENAMED, note("config_backup", state="absent", older="")),
    row("offsets of a .bak beyond their queue", without("config/consumerOffset.json"),
        config(BAK, {"offsetTable": {"Orders@readers": {0: 99}}}), note("config_backup"),
        bad("committed_beyond_queue", committed=99)),
    cured("no configuration", without("config"), bad("config_absent")),
    row("a new store", without("config"), NO_SEGMENTS, NO_QUEUES),
    row("no topics.json and no log", without("config/topics.json"), NO_SEGMENTS, NO_QUEUES, NO_GROUP,
        note("config_lost.file")),
    cured("another type of queues", topics("Orders", "Stock", attributes={"queue.type": "BatchCQ"}),
          bad("queue_type", count=2)),
    row("another type of queues before 5.0.0", topics("Orders", "Stock", attributes={"queue.type": "BatchCQ"}),
        releases="4.9"),
    cured("a topic that is not configured", topics("Orders"), note("topics_not_configured", count=1, first="Stock")),
    *(row(f"{topic} is the broker's", copied("consumequeue/Stock/0", f"consumequeue/{topic}/0"))
      for topic in ("TBW102", "rmq_sys_x", "RMQ_SYS_x", "%LMQ%x")),
    row("queues without files", topics("Orders", "Stock", "Unused", readQueueNums=3, writeQueueNums=3),
        note("queues_fewer_than_configured", count=2, first="Orders:2, Stock:2")),
    row("1024 queues", topics("Orders", "Stock", writeQueueNums=1024),
        note("queues_fewer_than_configured", count=2044)),
    *(row(f"{count} queues", topics("Orders", "Stock", writeQueueNums=count)) for count in (1025, 2**31 - 1)),
    cured("fewer queues", topics("Orders", "Stock", readQueueNums=1, writeQueueNums=1),
          bad("queues_not_read", count=2, first="Orders:1, Stock:1", messages=40)),
    row("fewer queues, read", topics("Orders", "Stock", readQueueNums=1, writeQueueNums=1), ALL_READ),
    row("fewer queues, one read", topics("Orders", "Stock", readQueueNums=1, writeQueueNums=1),
        commit({"Orders@readers": {1: 10}, "Stock@readers": {1: 10}, "Stock@late": {0: 3}}),
        bad("queues_not_read", count=1, first="Stock:1", messages=10)),
)  # fmt: skip
DATABASES = (
    *(row(f"queues in {place}", NO_QUEUES, database(place), bad("store_type.files", found="consume queues"),
          bad("messages_not_served", count=40)) for place in ("consumequeue", "consumequeue_rocksdb")),
    row("configuration in databases", without("config"), database("config/consumerOffsets", "config/topics"),
        bad("store_type.files", found="topics, consumerOffsets"), bad("config_absent")),
    row("queues and topics in databases", NO_QUEUES, database("consumequeue", "config/topics"),
        bad("store_type.files", found="consume queues, topics"), bad("messages_not_served", count=40)),
    row("queues in files, too", database("consumequeue")),
    row("topics in JSON, too", database("config/topics")),
    row("queues in RocksDB before 5.2.0", ROCKSDB, NO_QUEUES, database("consumequeue"), bad("store_type.older"),
        bad("messages_not_served"), releases="5.1.4"),
    *(row(f"no database in {release}, {count} segments", ROCKSDB, database(*CONFIG_DATABASES), filled_to(count),
          Said("store_type.no_database", unsafe, {"then": f"makes {made}; the 4 queues in files are not looked at"}),
          releases=release)
      for release, count, unsafe, made in (
          ("5.5", 2, False, "them from offset 0 on"), ("5.5", 10, False, "them from offset 0 on"),
          ("5.5", 11, True, "them from offset 4096 on"), ("5.3", 2, True, NONE_MADE))),
    row("no database and no queues", ROCKSDB, database(*CONFIG_DATABASES), NO_QUEUES,
        bad("store_type.no_database", then=f"makes {NONE_MADE}")),
    row("no database and no log", ROCKSDB, NO_SEGMENTS, bad("log_missing.queues")),
    *(row(f"no {name}", bad("config_lost.database", name=name, made=made), note("store_type.no_database"),
          base=with_databases(*sorted({*NAMES} - {name})), releases="5.5")
      for name, made in (("topics", ""), ("subscriptionGroups", ""), ("consumerOffsets", TAKEN_IN))),
    row("no databases and no log", NO_SEGMENTS, bad("log_missing.queues"), base=with_databases(), releases="5.5"),
    row("topics.json instead of a database", topics(), note("config_from_json", file="topics.json"),
        note("store_type.no_database"), base=with_databases(*NAMES[1:]), releases="5.5"),
    row("topics.json that is not taken", topics(), bad("config_lost.database"), bad("store_type.no_database"),
        base=with_databases(*NAMES[1:])),
    row("an empty topics.json instead of a database", put("config/topics.json"), bad("config_lost.database"),
        note("store_type.no_database"), base=with_databases(*NAMES[1:]), releases="5.5"),
    row("a torn file beside its database", put("config/consumerOffset.json", "{"), bad("config_torn.beside"),
        note("store_type.no_database"), base=with_databases(*NAMES), releases="5.5"),
    row("a torn file and a sound .bak beside its database", put("config/consumerOffset.json", "{"),
        config(BAK, {"offsetTable": {}}), bad("config_torn.beside"), note("store_type.no_database"),
        base=with_databases(*NAMES), releases="5.5"),
    row("delay offsets beside databases", put("config/delayOffset.json", "{"), put("config/delayOffset.json.bak", "{"),
        bad("config_torn", name="delayOffset.json"), note("store_type.no_database"),
        base=with_databases(*NAMES), releases="5.5"),
    row("one database for all", conf(useSingleRocksDBForAllConfigs="true"), note("store_type.no_database"),
        base=with_databases("metadata"), releases="5.5"),
    row("one database for nothing", *[bad("config_lost.database")] * 3, note("store_type.no_database"),
        base=with_databases("metadata"), releases="5.5"),
    row("the second form", V2, note("store_type.no_database"), base=with_databases("rdb"), releases="5.5"),
    row("the second form beside torn JSON", V2, put("config/consumerOffset.json", "{"), note("store_type.no_database"),
        base=with_databases("rdb"), releases="5.5"),
    row("no second form", V2, topics("Orders"), bad("config_lost.database", name="rdb")),  # whatever JSON there is
    cured("a broken database", put("kvStore/CURRENT"), bad("database_not_opened")),  # as a power failure leaves it
    row("a database without its MANIFEST", put("kvStore/CURRENT", "MANIFEST-000001\n"), bad("database_not_opened")),
    row("a database of the configuration without its MANIFEST", without("config/topics/MANIFEST-000004"),
        bad("database_not_opened"), note("store_type.no_database"), base=with_databases(*NAMES), releases="5.5"),
)  # fmt: skip
KNOWING = topics("Orders", "Stock", "%RETRY%readers", "%RETRY%poppers_Orders", "%RETRY%CID_RMQ_SYS_x")
RETRIED = log_of({"topic": "Orders"}, {"topic": "%RETRY%tried", "properties": {"RETRY_TOPIC": "Orders"}})
OFFSETS = (
    row("groups at the end", ALL_READ),
    row("a group beyond the end", commit({"Orders@readers": {0: 10, 1: 17}}),
        bad("committed_beyond_queue", group="readers", topic="Orders", queue_id=1, committed=17, end=10, skipped=7)),
    cured("groups beyond the end", commit({"Orders@readers": {0: 99, 1: 9}}), bad("committed_beyond_queue", end=20)),
    row("a slave's group beyond the end", commit({"Orders@readers": {1: 17}}), conf(brokerRole="SLAVE", brokerId="1"),
        note("committed_beyond_queue", end=10)),
    row("no offsets of groups that topics show", NO_SUBSCRIPTIONS, KNOWING, NO_OFFSET,
        bad("no_offsets.none", count=2, first="poppers, readers", held=40)),
    *(row(f"no offsets, and {name}", NO_SUBSCRIPTIONS, KNOWING,
          config("consumerOffset.json", {"offsetTable": {}, name: {}}),
          bad("no_offsets.none", count=2)) for name in ("pullOffsetTable", "groupTopicMap")),
    row("no offsets in JSON", NO_OFFSET, V2, bad("config_lost.database")),
    row("no offsets and no message", NO_OFFSET, NO_SEGMENTS, NO_QUEUES, note("log_missing.topics")),
    row("a slave without offsets", NO_OFFSET, conf(brokerRole="SLAVE", brokerId="1"), note("no_offsets.none", count=1)),
    cured("no offsets of configured groups", NO_OFFSET, bad("no_offsets.none", count=1, first="readers")),
    row("no offsets of groups that the log shows", NO_OFFSET, topics("Orders", writeQueueNums=1),
        bad("no_offsets.none", first="readers, tried"),
        note("topics_not_configured"), base=RETRIED),
    row("no offsets of groups that broadcast", bad("no_offsets.none", first="tried"),
        config("consumerOffset.json", {"offsetTable": {}, "pullOffsetTable": {"Orders@readers": {0: 3}}}),
        base=RETRIED),
    row("groups of a .bak", NO_SUBSCRIPTIONS, config(BAK, {"offsetTable": {"Orders@others": {0: 3}}}),
        note("no_offsets.lacking", first="others", count=1)),
    row("offsets of a .bak alone", NO_SUBSCRIPTIONS, NO_OFFSET,
        config(BAK, {"offsetTable": {"Orders@readers": {0: 3}, "Orders@others": {0: 3}}}),
        bad("no_offsets.none", first="others, readers", copies="its .bak has offsets")),
    row("a group of a queue that is not there", commit({"Stock@readers": {5: 3}}),
        bad("committed_beyond_queue", end=0)),
    row("a group of a lost queue", without("consumequeue/Stock/1"), bad("messages_not_served", queues="Stock:1"),
        note("queues_fewer_than_configured")),
    row("a group of a deleted topic", commit({f"{name}@readers": {0: 3} for name in ("Gone", "rmq_sys_x", "%LMQ%x")}),
        bad("committed_beyond_queue", topic="rmq_sys_x"), bad("committed_beyond_queue", topic="%LMQ%x"),
        note("committed_beyond_queue", topic="Gone", but=", but the topic is not configured")),
    row("a group of a topic in no topics.json", commit({"Gone@readers": {0: 3}}), without("config/topics.json"),
        bad("committed_beyond_queue"), bad("config_lost.file")),
    row("a group of a topic in a database", commit({"Gone@readers": {0: 3}}), V2, bad("config_lost.database")),
    row("a group of what is dispatched again", base=of(40, 36), releases="4.9"),
    row("groups before the first message", without(f"commitlog/{FIRST}", "consumequeue/Stock/0"),
        commit({"Orders@readers": {0: 6, 1: 5}, "Stock@readers": {0: 0, 1: 0}}),
        note("committed_before_queue", topic="Orders", queue_id=1, committed=5, begin=6, gone=1),
        note("committed_before_queue", topic="Stock", committed=0, begin=6, gone=6),
        bad("messages_not_served", queues="Stock:0"), note("queues_fewer_than_configured")),
    row("a group before the first message, in a database", without(f"commitlog/{FIRST}"), V2,
        commit({"Orders@readers": {0: 0}}), bad("config_lost.database")),
    row("no offsets of light queues", conf(enableLmq="true"),
        bad("config_lost.file", name="lmqConsumerOffset.json", state="absent, and its .bak absent")),
    row("offsets of light queues", conf(enableLmq="true"),
        config("lmqConsumerOffset.json", {"offsetTable": {"Orders@readers": {0: 99}}, "lmqOffsetTable": {}}),
        bad("committed_beyond_queue", committed=99)),
)  # fmt: skip
THREE = log_of(*[{"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2}] * 3)
DELAYS = (
    cured("a level without an offset", config("delayOffset.json", {"offsetTable": {}}),
          bad("delay_offset_behind.lost", levels=[3], count=2), base=due(2)),
    row("no delay offsets", without("config/delayOffset.json"), bad("delay_offset_behind.lost", levels=[3], count=2),
        base=due(2)),
    row("delay offsets torn", put("config/delayOffset.json", "{"), bad("delay_offset_behind.lost", levels=[3], count=2),
        note("config_lost.file"), base=due(2)),
    row("an offset of another level", config("delayOffset.json", {"offsetTable": {2: 0}}),
        bad("delay_offset_behind.lost", levels=[3], count=2), base=due(2)),
    row("a delay offset behind", note("delay_offset_behind.earlier", count=1), base=due(1)),
    row("a delay offset in time", base=due(2)),
    cured("a delay offset ahead", bad("delay_offset_ahead", offset=3, right=2, skipped=1), base=due(3)),
    row("a delay offset ahead and beyond", bad("delay_offset_ahead", offset=9, right=2, skipped=1), base=due(9)),
    row("a slave's delay offset ahead", conf(brokerRole="SLAVE", brokerId="1"), note("delay_offset_ahead"),
        base=due(3)),
    row("a delay offset beyond", config("delayOffset.json", {"offsetTable": {2: 0, 3: 8}}),
        note("delay_offset_beyond_queue", level=3, end=0, then="the broker sets it back")),
    cured("a delay offset beyond before 4.9.2", config("delayOffset.json", {"offsetTable": {2: 0, 3: 8}}),
          bad("delay_offset_beyond_queue", then="the level would skip the next 8 messages"), releases="4.8"),
    row("a delay offset beyond a database", config("delayOffset.json", {"offsetTable": {3: 8}}),
        bad("store_type.no_database"), base=with_databases(*NAMES)),
    row("delay offsets of the levels beside", config("delayOffset.json", {"offsetTable": {2: 1, 3: 3, 4: 1}}),
        *[note("delay_offset_beyond_queue", offset=1)] * 2, base=THREE),
    row("levels enough", conf(messageDelayLevel="1s 5s 10s"), base=due(2)),
    cured("too few levels", conf(messageDelayLevel="1s 5s"),
          bad("delay_level_absent", at=[3], levels=2, count=1, most=3), base=due(2)),
    row("too few levels for all", conf(messageDelayLevel="1s 5s"), bad("delay_level_absent", levels=2, count=3),
        bad("delay_offset_behind.lost", count=3), base=THREE),
    *(row(f"too few levels, {read} delivered", conf(messageDelayLevel=levels), *said,
          config("delayOffset.json", {"offsetTable": {3: read}}), base=THREE)
      for read, levels, *said in (
          (2, "1s", bad("delay_level_absent", count=1), note("delay_offset_behind.earlier")), (3, "1s 5s"))),
    cured("a level that is none", conf(messageDelayLevel="1s 5"), bad("delay_level_absent.setting", found="5"),
          base=due(2)),
    row("a blank in a level", conf(messageDelayLevel="1s 5 s"), bad("delay_level_absent.setting", found="5"),
        base=due(2)),
)  # fmt: skip
LATER = 1_700_000_100_000  # than the last record of these logs
LOG, WHEEL = without("timerlog/*"), without("timerwheel")
TIMERS = (
    row("timers", base=timers),
    row("no timers", check(0)),
    cured("timers beyond the log", timer_units(-9999, -100, -99, 5), check(7),
          bad("timer_beyond_log", units=2, offsets=2), base=timers),
    row("timers up to the log", timer_units(-9999, -100), base=timers),
    cured("timers whose delivered copies are lost", timer_units(-200, -100, slot=LATER), check(5, LATER + 1),
          bad("timer_beyond_log.delivered", count=2), base=timers),
    *(row(f"timers {name}", timer_units(-100, **units), check(5, read), base=timers) for name, read, units in (
        ("not delivered", LATER, {"slot": LATER}), ("delivered before the end", LATER, {}),
        ("due when written", LATER + 1, {"slot": LATER, "waited": 0}),
        ("recalled", LATER + 1, {"slot": LATER, "magics": (1, 5)}))),
    cured("no wheel, no timer log", WHEEL, LOG,
          bad("timer_state_lost.queued", lost="timerwheel and timerlog/", queued=5), base=timers),
    row("no timer log", LOG, bad("timer_state_lost.queued", lost="timerlog/", queued=5), base=timers),
    row("no timer log of some", LOG, check(2), bad("timer_state_lost.queued", queued=2), base=timers),
    row("more timers than there are", LOG, check(9), bad("timer_beyond_log", units=0, offsets=4), base=timers),
    row("timers in RocksDB", check(0), conf(timerRocksDBEnable="true"), note("not_judged.state"), releases="5.5",
        base=timers),
    row("timers off", LOG, conf(timerWheelEnable="false"), base=timers),
    row("timers before 5.0.0", LOG, releases="4.9", base=timers),
    *(row(f"no wheel, {count} files", put("timerwheel"),
          *(put(f"timerlog/{number * 1000:020d}", bytes(1000)) for number in range(count)),
          *[bad("timer_state_lost.queued", lost="timerwheel", queued=5)] * (count > 2), base=timers)
      for count in (1, 2, 3)),
    *(row(f"a timercheck of {len(content)} bytes", put("config/timercheck", content),
          note("timer_state_lost.check", waiting=5, still=STILL), base=timers)
      for content in (b"", bytes(10), bytes(4096))),
    row("no timercheck", without("config/timercheck"), note("timer_state_lost.check", still=STILL), base=timers),
    row("no timercheck, no wheel", without("config/timercheck"), WHEEL, note("timer_state_lost.check", still=""),
        base=timers),
    row("no timercheck, no wheel, no timer log", without("config/timercheck"), WHEEL, LOG,
        note("timer_state_lost.check", still=""), base=timers),
    *(row(f"a wheel of {size} bytes", sized("timerwheel", size), bad("timer_wheel_size", size=size), base=timers,
          cured=size == 100) for size in (1, 100, WHEEL_SIZE - 1, WHEEL_SIZE + 32)),
    cured("another length of timer logs", conf(mappedFileSizeTimerLog="2000"), bad("timer_log_size", size=1000),
          base=timers),
    row("a short timer log", sized("timerlog/*", 999), bad("timer_log_size", size=999), base=timers),
    row("no length of timer logs", unset("mappedFileSizeTimerLog"), bad("timer_log_size", size=1000), base=timers),
)  # fmt: skip
EPOCHS = "epochFileCheckpoint"
CRLF = epochs(crc=0).replace("\n", "\r\n")
CONTENTS: tuple[tuple[str | bytes | None, str], ...] = (
    (None, "absent"), (epochs(), "sound"), (epochs(crc=0), "sound"), (CRLF, "sound"),
    (epochs().rstrip("\n"), "sound"),  # the CRC is of lines, and the last one may lack its end
    (epochs("7-0-\n8-4096--\n"), "sound"),  # Java's split leaves out what is empty at the end
    (epochs("+7--0\n", count=1), "torn"), (epochs("-7-0\n", count=1), "torn"), (epochs("+7-0\n", count=1), "sound"),
    (epochs("", count=0), "absent"), ("0\n0", "absent"), ("1\n0", "torn"), (epochs(crc=5), "torn"),
    (epochs(count=3), "torn"), (epochs(count=1), "torn"), (epochs("7\n8-1\n"), "torn"),
    (epochs("7\n8-1\n", count=1), "sound"),  # lines of another form are passed over
    (epochs("7-0\n8-\n"), "torn"), ("2\n0\n", "torn"), (b"1\n0\n\xff-0\n", "torn"), ("", "not numbers"),
    ("2", "not numbers"), ("2\n", "not numbers"), ("x\n0\n", "not numbers"), ("0\ny\n", "not numbers"),
    ("2\n 5\n7-0\n", "not numbers"), (epochs("7-0\nx-1\n"), "not numbers"), (epochs("7-0\n1-x\n"), "not numbers"),
)  # fmt: skip


def said_of_epochs(state: str, backup: str) -> tuple[Said, ...]:
    if state == "sound":
        return ()
    if "not numbers" in (state, backup):
        is_sound = (state, backup) == ("not numbers", "sound")
        return (bad("epoch_file.not_numbers", also="" if is_sound else ", and put a sound copy in place"),)
    if backup == "sound":
        return (note("epoch_file.backup", state=state),)
    return (Said("epoch_file.lost", "torn" in (state, backup), {"state": state, "backup": backup}),)


CONTROLLERS = (
    *(row(f"epochs {number} ({state}), their .bak {backup}", CONTROLLER,
          *([] if content is None else [put(EPOCHS, content)]),
          *([] if other is None else [put(f"{EPOCHS}.bak", other)]), *said_of_epochs(state, backup))
      for number, (content, state) in enumerate(CONTENTS)
      for backup, other in (("sound", epochs()), ("absent", None), ("torn", "2\n0\n"), ("not numbers", "x"))),
    row("no controller", put(EPOCHS, "torn")),
    row("lost epochs of a member", CONTROLLER, put("brokerIdentity", "x"), bad("epoch_file.lost")),
    row("no epochs and no log", CONTROLLER, NO_SEGMENTS, NO_QUEUES, NO_GROUP, note("log_missing.topics")),
    row("epochs elsewhere", CONTROLLER, conf(storePathEpochFile="ROOT/../epochs"), put("../epochs", epochs())),
    row("no epochs elsewhere", CONTROLLER, conf(storePathEpochFile="ROOT/../epochs"), put(EPOCHS, epochs()),
        note("epoch_file.lost")),
    row("identity elsewhere", CONTROLLER, conf(storePathBrokerIdentity="ROOT/../id"), put("../id", "x"),
        bad("epoch_file.lost")),
    row("epochs of 16 MiB", CONTROLLER, put(EPOCHS), sized(EPOCHS, 16 << 20), bad("epoch_file.not_numbers")),
)  # fmt: skip
ALL_FOUR = "Orders:0, Orders:1, Stock:0, Stock:1"
NOTHING = "nothing is dispatched again; 5.3.2 and 5.3.3: all but the first of them"
GAPS = log_of(*orders(*range(20), *range(23, 50), *range(60, 100)))
GONE = log_of(*orders(0), *orders(1, 2, 0, 1, 2, 3, 4, queue_id=1))
AGAIN = log_of(*[one for n in (0, 1, 2, 0, 1, 2, 3, 4) for one in (*orders(n), {"topic": "Orders", "queue_id": 1})])
LATER_LIFE = log_of(*orders(0, 1, 2, 3), *({**one, "body": bytes(90)} for one in orders(2, 3)))
LIGHT_OFFSETS = config("lmqConsumerOffset.json", {"offsetTable": {"Orders@readers": {0: 6}}})
LIGHT = log_of(*({"topic": "Orders", "queue_id": 0, "properties": {
    "INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number)}} for number in range(6)))  # fmt: skip
NEXT = f"consumequeue/Orders/0/{400:020d}"
IN_FILES = "consumequeue/Orders/1/{:020d}".format
QUEUES = (
    row("a healthy store", releases=ALL),
    row("a lag, dispatched again", NO_GROUP, base=of(40, 36), releases="4.9"),
    row("a lag", NO_GROUP, bad("messages_not_served", count=4, first=6082, queues=ALL_FOUR, stop="a clean stop",
                               done=NOTHING), base=of(40, 36), releases="5.1 5.3"),
    row("a lag of one", NO_GROUP, bad("messages_not_served", count=1, first=6082, queues="Orders:0",
                                      done="it dispatches from offset 6082 on, but the first record"),
        base=of(40, 36), releases="5.5"),
    row("no queues, made again", NO_QUEUES, note("queues_made_again"), releases="4.6 4.9 5.5"),
    row("no queues", NO_QUEUES, bad("messages_not_served", count=40), releases="5.0 5.1 5.3"),
    row("no queues after a crash", NO_QUEUES, ABORT, note("queues_made_again"), releases=ALL),
    row("a lag after a crash", ABORT, base=of(40, 30), releases=FROM_4_9),
    row("a lag after a crash that the checkpoint hides", ABORT, checkpoint(5000), NO_GROUP,
        bad("messages_not_served", count=20, first=658, queues=ALL_FOUR, stop="a crash",
            done="it dispatches from offset 4096 on"), base=of(40, 4)),
    row("a lag of more than ten segments", ABORT, NO_GROUP, bad("messages_not_served", count=168),
        note("index_deleted.absent", then="only messages from offset 28672 on"), base=of(400, 0), releases="5.5"),
    row("a recovery of more than ten segments", ABORT, NO_GROUP, conf(commitLogRecoverMaxNum="1000"),
        note("queues_made_again"),
        base=of(400, 0), releases="5.5"),
    row("a lost queue", NO_GROUP, without("consumequeue/Orders/0"), note("queues_fewer_than_configured"),
        bad("messages_not_served", count=10, first=0, queues="Orders:0", done=NOTHING), releases=FROM_4_9),
    cured("a lost queue, rebuilt", without("consumequeue/Orders/0"), bad("messages_not_served", count=20),
          note("queues_fewer_than_configured"), releases="5.1"),
    row("queues of a deleted topic", NO_GROUP, without("consumequeue/Stock"), topics("Orders"),
        note("messages_not_served.doubtful", count=20, first=165, queues="Stock:0, Stock:1")),
    row("queues of a system topic", without("consumequeue/RMQ*"), topics("Orders"), bad("messages_not_served", count=2),
        note("queues_fewer_than_configured"),
        base=log_of(*orders(0), *({"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queue_id": 0},) * 2)),
    row("a topic made anew", NO_GROUP, without("consumequeue/Orders/0"), note("queues_fewer_than_configured"),
        note("messages_not_served.doubtful"), base=made_anew),
    row("a compacted topic", NO_GROUP, without("consumequeue/Stock"), bad("messages_not_served.compacted", count=20),
        topics("Orders", "Stock", attributes={"cleanup.policy": "COMPACTION"})),
    cured("no log", NO_SEGMENTS, bad("log_missing.queues", count=4)),
    row("no log, no queues, a group", NO_SEGMENTS, NO_QUEUES, bad("log_missing.topics")),
    row("no log, no queues", NO_SEGMENTS, NO_QUEUES, NO_GROUP,
        note("log_missing.topics", count=2, first="Orders, Stock")),
    row("no log, no topics", NO_SEGMENTS, NO_QUEUES, NO_GROUP, topics("TBW102", "shop-a"), conf(brokerName="shop-a")),
    row("zeros", patched(IN_FILES(400), 100, bytes(20)), bad("wrong_units", count=1, queues="Orders:1"),
        base=of(400), releases=FROM_4_9),
    row("a unit of another size", patched(IN_FILES(800), 148, struct.pack(">i", 7)), bad("wrong_units", count=1),
        base=of(400), releases=FROM_4_9),
    row("units of another message",
        unit(IN_FILES(400), 100, 14), unit(IN_FILES(400), 120, 14), bad("wrong_units", count=2),
        base=of(400),
        releases=FROM_4_9),
    row("no first file", without(IN_FILES(0)), bad("wrong_units", count=20), base=of(400), releases=FROM_4_9),
    cured("a wrong unit", flipped(ORDERS, 3 * 20 + 7), bad("wrong_units")),
    row("a hole", patched(IN_FILES(0), 60, bytes(20)), bad("messages_not_served", count=7)),
    row("gaps in queue offsets", NO_GROUP, base=GAPS),
    row("gaps, and a wrong unit", unit(NEXT, 60, 30, 7),
        bad("wrong_units", count=54), base=GAPS),
    row("gaps, and a file moved", moved(NEXT, f"consumequeue/Orders/0/{3600:020d}"), bad("queue_files.stray"),
        bad("wrong_units"), base=GAPS),
    row("a deleted topic's messages", without("consumequeue/Orders/0"), units_of(IN_FILES(0), 3, 4, 5, 6, 7),
        note("messages_not_served.doubtful"), note("queues_fewer_than_configured"), base=GONE),
    row("a deleted topic's messages, and a wrong unit", without("consumequeue/Orders/0"),
        units_of(IN_FILES(0), 4, 4, 5, 6, 7), bad("wrong_units", count=1),
        note("messages_not_served.doubtful", count=1), note("queues_fewer_than_configured"), base=GONE),
    row("queue offsets twice", note("queue_offsets_twice", count=2), base=log_of(*orders(0, 1, 2, 1, 2, 3))),
    row("a counter that began again", units_of(ORDERS, 0, 2, 4, 6, 14), note("queue_offsets_twice", count=4),
        base=AGAIN),
    row("a later life without its first messages", units_of(ORDERS, None, None, 4, 5), base=LATER_LIFE),
    row("a gap that is dispatched", NO_GROUP, bad("messages_not_served", count=3),
        base=log_of(*orders(*range(5), 7, 8, 9), dispatched=5), releases="5.0.0"),
    row("a gap that is closed", NO_GROUP, bad("messages_moved", count=3),
        base=log_of(*orders(*range(5), 7, 8, 9), dispatched=5), releases="4.9.8"),
    cured("queues older than the log", older_queues, NO_GROUP, bad("messages_moved"), releases="4.9"),
    cured("a checkpoint ahead", put("checkpoint", StoreCheckpoint(0, 0, 0, 0, 0, 1 << 40).to_bytes()),
          conf(enableAcceleratedRecovery="true"), bad("recovered_beyond_log"), releases="5.5"),
    row("a checkpoint in time", put("checkpoint", StoreCheckpoint(0, 0, 0, 0, 0, 6744).to_bytes()),
        conf(enableAcceleratedRecovery="true"), releases="5.5"),
    row("light queues", conf(enableMultiDispatch="true", enableLmq="true"), LIGHT_OFFSETS,
        bad("messages_not_served", count=6, queues="%LMQ%a:0"), base=LIGHT),
    row("light queues in a database", LIGHT_OFFSETS, conf(
            enableMultiDispatch="true", enableLmq="true", rocksdbCQDoubleWriteEnable="true",
            combineCQUseRocksdbForLmq="true"), bad("messages_not_served.light", queues="%LMQ%a:0"),
        base=LIGHT, releases="5.5.0"),
    row("queues in a database, too", conf(rocksdbCQDoubleWriteEnable="true"), releases="5.5.0"),
    row("queues read from a database", bad("messages_not_served.beside", count=40),
        conf(rocksdbCQDoubleWriteEnable="true", combineCQPreferCQType="defaultRocksDB"), releases="5.5.0"),
)  # fmt: skip
QUEUE_FILES = (
    cured("a stray queue file", put("consumequeue/Orders/0/0"), bad("queue_files.stray")),
    cured("a queue file at no place", moved(ORDERS, f"consumequeue/Orders/0/{20:020d}"), bad("queue_files.stray"),
        bad("wrong_units"), note("queue_offsets_twice")),
    row("a stray queue file and two of another length", put("consumequeue/Orders/0/notes.txt", "x"),
        sized(f"consumequeue/*/1/{FIRST}", 380), bad("queue_files.stray"),
        *[bad("queue_files.one", size=380, expected=400)] * 2),
    row("a directory in a queue", folder("consumequeue/Orders/0/old"), bad("queue_files.folder"), releases="4.9"),
    row("a directory in a queue that is passed over", folder("consumequeue/Orders/0/old")),
    cured("another size of queue files", conf(mappedFileSizeConsumeQueue="800"), bad("queue_files.all", size=400)),
    row("a size in the same unit", conf(mappedFileSizeConsumeQueue="381")),
    cured("a cut queue file", sized(ORDERS, 399), bad("queue_files.one", size=399),
          bad("messages_not_served", count=1)),
    cured("an empty last queue file", put(NEXT), bad("queue_files.empty"), releases="4.9 5.1"),
    row("an empty last queue file that goes", put(NEXT), note("queue_files.empty"), base=of(80), releases="5.3 5.5"),
    row("a last file without a unit", put(NEXT, bytes(400)), bad("queue_files.no_unit", name="queue 0 of Orders"),
        base=of(80)),
    row("a file without a unit alone", put(f"consumequeue/Orders/9/{FIRST}", bytes(400)), bad("queue_files.no_unit"),
        base=of(80)),
    row("a file without a unit after an unfinished one", put(NEXT, bytes(400))),
    row("a hole before the last file", patched(NEXT, 200, bytes(200)), bad("queue_files.unfinished", count=10),
        bad("messages_not_served", count=20),
        base=of(200)),
    row("a queue of fillers", units(f"consumequeue/New/0/{FIRST}", (0, 0x7FFFFFFF)), note("topics_not_configured"),
        bad("queue_files.fillers", name="queue 0 of New")),
)  # fmt: skip
LOG_ENDS = (
    cured("no last segment", without(f"commitlog/{3 * SEGMENT:020d}"), bad("units_beyond_log.gone", units=8)),
    row("no last segment of two", without(f"commitlog/{SECOND}"), bad("units_beyond_log.gone")),
    row("an older log", older_log, note("units_beyond_log.tail"), *[bad("committed_beyond_queue", end=5)] * 4),
    row("a log of zeros", patched(f"commitlog/{FIRST}", 0, bytes(4096)), patched(f"commitlog/{SECOND}", 0, bytes(4096)),
        note("units_beyond_log.tail", units=40), *[bad("committed_beyond_queue", end=0)] * 4),
    row("a torn tail", torn_tail, note("torn_tail", end=6744)),
    *(row(f"damage at record {number}", flipped_record(number, 95), bad("log_damaged", defect="BODY_CRC"))
      for number in (5, 20, 38)),
    cured("damage", flipped_record(30, 5), bad("log_damaged")),
    row("damage before what recovery reads", flipped(f"commitlog/{SECOND}", 95),
        note("log_damaged.passed", places=1, first=4096), base=of(180), releases=FROM_4_9),
    row("damage that a start after a crash reads", flipped(f"commitlog/{SECOND}", 95), ABORT, bad("log_damaged"),
        base=of(180), releases=FROM_4_9),
    row("damage in the third-last segment", flipped(THIRD_LAST, 95), bad("log_damaged"), base=of(180),
        releases="4.9 5.1 5.3"),
    row("damage before the segment of the furthest queue", flipped(THIRD_LAST, 95), note("log_damaged.passed"),
        base=of(180), releases="5.5"),
    row("damage, and transactions in a database", flipped(THIRD_LAST, 95), conf(transRocksDBEnable="true"),
        bad("log_damaged"), note("not_judged.state"), base=of(180), releases="5.5"),
    row("damage, and a lost queue", flipped(f"commitlog/{SECOND}", 95), without("consumequeue/Orders/0"), NO_GROUP,
        note("log_damaged.passed"), bad("messages_not_served", count=44), note("queues_fewer_than_configured"),
        base=of(180), releases="5.5"),
    row("zeros in the middle", patched(f"commitlog/{SECOND}", 0, bytes(400)), bad("log_damaged")),
    row("leftovers", note("torn_tail"), base=leftovers),
    row("a record of another offset", flipped_record(30, 33), bad("log_damaged.foreign")),
)  # fmt: skip
ROWS = (
    *STORE_PATHS, *SETTINGS, *FILES, *RETENTION, *CONFIG, *DATABASES, *OFFSETS, *DELAYS, *TIMERS, *CONTROLLERS, *QUEUES,
    *QUEUE_FILES, *LOG_ENDS,
)  # fmt: skip
