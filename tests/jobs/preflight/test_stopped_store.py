"""What is gathered of a stopped store, and rules on what no small store on a disk shows."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.patching import stand_in
from support.start_cases import APART, Said, are, bad, note
from support.start_damages import ORDERS, check, database, put, timers, unit, without
from support.store_to_start import StoreToStart, healthy_store, lock_held

from jobs.preflight import configuration, files_and_space, offsets_and_timers, queues_and_log
from jobs.preflight.stopped_store import RocksDb, furthest_unit, read_stopped_store
from storeformat.errors import MissingInput, NotAStore, RecordDefect
from storeformat.log.log_tail import LogTail, TailDamage
from storeformat.queues.rocksdb_queues import StoredEnds
from storeformat.storage import broker_lock, files
from storeformat.storage.files import FileStatus, Space
from storeformat.store import recovery
from storeformat.store.broker_rules import rules_of
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.queue_ends import QueueEnd
from storeformat.store.recovery import Doomed, Redispatch, doomed
from storeformat.store.segment_files import LogFiles
from storeformat.store.settings import Settings

# ---------------------------------------------------------------------------------------------------- the stopped store
SETTINGS = Settings({}, from_file=False)
OFFSETS = {"consumerOffset.json", "lmqConsumerOffset.json"}
GROUP = ("/dledger-n0/data",)


def test_what_is_no_store(tmp_path: Path) -> None:
    for root, error, what in (
        ("s3://bucket/store", NotAStore, "a broker starts on a local disk only"),
        (f"{tmp_path}/nowhere", MissingInput, "there is no such store"),
        (str(tmp_path), MissingInput, "there is no commit log"),
    ):
        with pytest.raises(error, match=what):
            read_stopped_store(root, SETTINGS)


@pytest.mark.parametrize(
    ("page", "folder", "version"),
    [
        (None, False, "5.3"), (None, True, "5.5"), (StoreCheckpoint(1, 1, 1), False, "5.3"),
        (StoreCheckpoint(1, 1, 1, 0, 0, 5), False, "5.5"), (StoreCheckpoint(1, 1, 1, 5, 0, 0), False, "5.3"),
    ],
)  # fmt: skip
def test_the_release_that_a_store_shows(
    store: StoreToStart, page: StoreCheckpoint | None, folder: bool, version: str
) -> None:
    if page is not None:
        (store.root / "checkpoint").write_bytes(page.to_bytes())
    if folder:
        (store.root / "rocksdbstore").mkdir()
    assert read_stopped_store(str(store.root), SETTINGS).rules.version == version
    assert read_stopped_store(str(store.root), SETTINGS, "4.9").rules.version == "4.9"


def test_what_is_told_of_a_healthy_store(store: StoreToStart) -> None:
    found = read_stopped_store(str(store.root), Settings(store.conf), "5.5", now_ms=7)
    assert (found.after_crash, found.is_live, found.now_ms, found.rocksdb) == (False, False, 7, RocksDb())
    assert (furthest_unit(found.queues.values()), found.redispatch) == (6744, Redispatch(6744, 6744))
    assert OFFSETS & set(found.configs) == {"consumerOffset.json"}
    assert found.offsets_file.name == "consumerOffset.json"
    store.conf["enableLmq"] = "true"
    found = read_stopped_store(str(store.root), Settings(store.conf), "5.5")
    assert OFFSETS & set(found.configs) == {"lmqConsumerOffset.json"}
    assert found.offsets_file.name == "lmqConsumerOffset.json"
    assert found.now_ms > 1_600_000_000_000


def test_a_start_after_a_crash(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", version="5.3")
    (store.root / "abort").touch()
    found = store.stopped()
    assert (found.after_crash, found.redispatch) == (True, Redispatch(0))
    (store.root / "checkpoint").write_bytes(StoreCheckpoint(store.log.clock + 9000, store.log.clock + 9000).to_bytes())
    assert store.stopped().redispatch == Redispatch(4096)


@pytest.mark.parametrize(
    ("made", "filled", "expected"),
    [
        ("", "consumequeue", RocksDb(queues=True)), ("", "consumequeue_rocksdb", RocksDb(queues_apart=True)),
        ("rdb topics", "", RocksDb(made=("topics", "rdb"))),
        ("subscriptionGroups consumerOffsets metadata other", "config/metadata config/consumerOffsets",
         RocksDb(configuration=("consumerOffsets", "metadata"),
                 made=("subscriptionGroups", "consumerOffsets", "metadata"))),
    ],
)  # fmt: skip
def test_databases_that_hold_something(store: StoreToStart, made: str, filled: str, expected: RocksDb) -> None:
    for name in made.split():
        put(f"config/{name}/CURRENT")(store)
    for name in filled.split():
        put(f"{name}/000007.sst")(store)
    assert store.stopped().rocksdb == expected


# ----------------------------------------------------------------------------------------------------------- its files


@pytest.mark.parametrize(
    ("segments", "said"),
    [
        ([(0, 4096), (4096, 4096)], []),
        ([(0, 4096), (8192, 4096)], ["segment_missing"]),
        ([(0, 4096), (8192, 0)], ["segment_size", "segment_missing"]),
        ([(0, 4000), (8192, 4096)], ["segment_size"]),
        ([(0, 4096), (8192, 4000)], ["segment_size"]),
        ([(0, 0), (4096, 4096)], ["segment_size"]),
        ([(0, 4096), (0, 4096)], ["segment_missing"]),
    ],
)
def test_lengths_and_gaps(store: StoreToStart, segments: list[tuple[int, int]], said: list[str]) -> None:
    """Where a length is wrong, the gap after it or before it says nothing more."""
    found = tuple(FileStatus(f"{base:020d}", f"/{base}", size, 0, 0, 0, 0o100644) for base, size in segments)
    stopped = replace(store.stopped(), log=LogFiles(("/",), 4096, found))
    reasons = files_and_space.log_files(stopped)
    assert [reason.rule for reason in reasons] == said


def test_a_store_in_use(store: StoreToStart) -> None:
    with lock_held(store.root):
        assert are(store.answer().reasons, bad("store_in_use", lock=f"{store.root}/lock"))
    with broker_lock.hold(str(store.root / "lock"), create=False):
        assert store.reasons("store_in_use") == []  # its own


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_lock_of_root(store: StoreToStart) -> None:
    for path in (store.root, *store.root.rglob("*")):
        os.chown(path, 12_345, 12_345)
    assert store.answer().first_line == "safe to start"
    os.chown(store.root / "lock", 0, 0)
    (store.root / "lock").chmod(0o644)
    reason = store.only_reason("files_not_writable")
    assert reason.values["first"] == str(store.root / "lock")
    assert reason.cure == f"chown -R 12345:12345 -- {store.root}"


OPENED = (
    "", "lock", "checkpoint", "abort", "config", "index", "consumequeue", f"commitlog/{0:020d}", "config/topics.json",
    "index/00000000000000000", f"consumequeue/Orders/0/{0:020d}",
)  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "count"), [(0o644, 0), (0o644, 1), (0o644, 3), (0o644, 4), (0o644, len(OPENED)), (0o777, len(OPENED))]
)
def test_files_of_another_user(store: StoreToStart, monkeypatch: pytest.MonkeyPatch, mode: int, count: int) -> None:
    """As if all but some belonged to a user 12345; a folder of ``config/`` is a database's, which has its own rule."""
    for name in ("checkpoint", "abort", "config/topics"):
        (store.root / name).mkdir() if name == "config/topics" else (store.root / name).touch()
    shut = [str(store.root / name).rstrip("/") for name in OPENED[:count]]
    status_of, statuses_in = files.status_of, files.statuses_in

    def given(status: FileStatus) -> FileStatus:
        user = 0 if status.path in {*shut, str(store.root / "config" / "topics")} else 12_345
        return status._replace(owner=user, group=user + 1, mode=status.mode & ~0o777 | mode)

    monkeypatch.setattr(files, "status_of", lambda path: (found := status_of(path)) and given(found))
    monkeypatch.setattr(files, "statuses_in", lambda path: [given(found) for found in statuses_in(path)])
    if mode == 0o644:  # a directory has to let its owner search, too
        monkeypatch.setattr(
            FileStatus, "may_write", lambda status, user, group: (user, group) == (status.owner, 12_346)
        )
    reasons = tuple(files_and_space.not_the_brokers(store.stopped()))
    if not count or mode == 0o777:
        assert reasons == ()
        return
    first, change = (
        ", ".join(shut[:5]) + f" and {count - 5} more" * (count > 5),
        f"chown -R 12345:12346 -- {store.root}",
    )
    assert are(reasons, bad("files_not_writable", owner=12_345, count=count, first=first, change=change))


# ------------------------------------------------------------------------------------------------------ queues and log


def test_one_queue_with_messages_is_enough(store: StoreToStart) -> None:
    store.commit({})
    stopped = store.stopped()
    queues = {key: replace(queue, end_offset=-1) for key, queue in stopped.queues.items()}
    gone = replace(stopped, log=replace(stopped.log, files=()), queues=queues)
    assert not any(reason.unsafe for reason in queues_and_log.log_missing(gone))
    queues["Stock", 1] = replace(queues["Stock", 1], end_offset=0)
    (reason,) = queues_and_log.log_missing(gone)
    assert bad("log_missing.queues", count=1).fits(reason)
    assert list(queues_and_log.log_missing(replace(gone, log=stopped.log))) == []


def test_a_member_of_a_group_is_told_what_its_queues_lack(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=38)
    stopped = store.stopped()
    member = replace(stopped, log=replace(stopped.log, directories=GROUP))
    assert are(queues_and_log.messages_not_served(member), note("messages_not_served.group", count=2))
    whole = healthy_store(tmp_path / "whole").stopped()
    assert list(queues_and_log.messages_not_served(replace(whole, log=replace(whole.log, directories=GROUP)))) == []


def test_units_of_groups_and_batches_are_not_judged(store: StoreToStart) -> None:
    unit(ORDERS, 20, 0)(store)
    stopped = store.stopped()
    assert are(queues_and_log.wrong_units(stopped), bad("wrong_units", count=1))
    batches = {key: replace(queue, batch=True) for key, queue in stopped.queues.items()}
    for other in (replace(stopped, log=replace(stopped.log, directories=GROUP)), replace(stopped, queues=batches)):
        assert list(queues_and_log.wrong_units(other)) == []


def test_what_was_not_read_may_lack_more(tmp_path: Path) -> None:
    """Nothing is dispatched of what lies before the part of the log that was read, and queues do not reach it."""
    stopped = healthy_store(tmp_path / "store", dispatched=0).stopped()
    part = replace(stopped, tail=replace(stopped.tail, begin=1))
    for given, said in (
        (stopped, [{"at_least": "", "count": 40}]),
        (part, [{"at_least": "at least ", "count": 40, "first": 0}]),
        (replace(part, redispatch=Redispatch(0)), []),
        (replace(part, redispatch=Redispatch(0, skipped=0)), [{"at_least": "at least ", "count": 1, "first": 0}]),
    ):
        expected = [bad("messages_not_served", **values) for values in said]
        assert are(queues_and_log.messages_not_served(given), *expected)


def test_whose_lack_a_deleted_topic_may_explain(store: StoreToStart, tmp_path: Path) -> None:
    """Rows of messages that are surely lost, and of those whose topic may have been deleted."""
    stopped = store.stopped()
    rows = np.arange(40)
    orders, stock, second_life = rows[rows % 2 == 0], rows[rows % 2 == 1], stopped.tail.rows.queue_offsets.copy()
    second_life[26] = 0  # the seventh message of a queue of Orders begins it again
    again = replace(stopped.tail, rows=replace(stopped.tail.rows, queue_offsets=second_life))
    other = healthy_store(tmp_path / "topics are not known")
    other.config("topics.json").write_text("{", encoding="utf-8")
    unknown = other.stopped()
    queues = {key: queue for key, queue in stopped.queues.items() if key[0] == "Stock"}
    half = {key: queue for key, queue in stopped.queues.items() if key == ("Orders", 0)}
    for given, sure, doubtful in (
        (stopped, rows, []),
        (replace(stopped, queues={}), rows, []),
        (replace(unknown, queues={}), rows, []),
        (replace(unknown, queues=queues), stock, orders),
        (replace(unknown, queues=half), orders, stock),
        (replace(stopped, tail=again), rows, []),
        (replace(stopped, tail=again, queues={}), [*stock, *orders[13:]], orders[:13]),
        (replace(stopped, tail=again, queues=queues), [*stock, *orders[13:]], orders[:13]),
        (replace(stopped, tail=again, queues=half),
         [row for row in rows if row % 4 != 2 or row >= 26], [row for row in orders[:13] if row % 4 == 2]),
    ):  # fmt: skip
        found = queues_and_log._by_certainty(given, np.ones(40, np.bool_))
        assert [part.tolist() for part in found] == [sorted(sure), sorted(doubtful)]
    none = queues_and_log._by_certainty(stopped, rows == 3)
    assert [part.tolist() for part in none] == [[3], []]


def test_units_are_not_cut(store: StoreToStart) -> None:
    stopped = store.stopped()
    shorter = replace(stopped, tail=replace(stopped.tail, end=6000))
    said = note("units_beyond_log.tail", end=6000, queues=4, furthest=6744, units=4)
    assert are(queues_and_log.units_beyond_log(shorter), said)
    for other in (
        replace(shorter, settings=Settings({"storeType": "defaultRocksDB"})),
        replace(shorter, log=replace(shorter.log, directories=GROUP)),
        replace(shorter, log=replace(shorter.log, files=())),
        replace(shorter, tail=replace(shorter.tail, damage=TailDamage(goes_on_at=6500))),
    ):
        assert list(queues_and_log.units_beyond_log(other)) == []


def test_a_last_file_that_ends_within_a_record_is_cut(store: StoreToStart) -> None:
    log = store.stopped().log
    torn = LogTail(end=6000, damage=TailDamage(RecordDefect.TRUNCATED))
    cut = replace(log, size=6050, files=(log.files[0]._replace(size=6050),))
    for segments, unsafe in ((cut, True), (log, False)):
        (reason,) = queues_and_log.units_beyond_log(replace(store.stopped(), tail=torn, log=segments))
        assert reason.unsafe == unsafe


@pytest.mark.parametrize(("end", "queues"), [(6744, 0), (6743, 1), (6579, 1), (6578, 2)])
def test_a_unit_ends_with_the_log_or_after_it(store: StoreToStart, end: int, queues: int) -> None:
    """The last records end at 6579 and 6744; fillers do not count."""
    stopped = store.stopped()
    filler = QueueEnd("New", 0, end=20, end_offset=0x7FFFFFFF)
    shorter = replace(stopped, tail=replace(stopped.tail, end=end), queues={**stopped.queues, ("New", 0): filler})
    said = note("units_beyond_log.tail", queues=queues, furthest=6744, units=queues)
    assert are(queues_and_log.units_beyond_log(shorter), *[said] * (queues > 0))


def test_lengths_of_queue_files_without_a_broker_conf_are_those_of_most(store: StoreToStart) -> None:
    path = store.queue_directory("Orders", 0) / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-20])
    stopped = store.stopped()
    shown = replace(stopped, settings=Settings({}, from_file=False))
    one = bad("queue_files.one", path=str(path), size=380, expected=400)
    assert are(queues_and_log.queue_files(shown), one)
    assert list(files_and_space.index_sizes(shown)) == []
    path.write_bytes(bytes(380))
    assert are(queues_and_log.queue_files(replace(store.stopped(), settings=shown.settings)), one)
    for given, count in (
        ({"mappedFileSizeConsumeQueue": "361"}, 3),
        ({"mappedFileSizeConsumeQueue": "381"}, 1),
        ({}, 4),
    ):
        for from_file in (True, False) if given else (True,):
            settings = Settings(given, from_file=from_file)
            assert len(list(queues_and_log.queue_files(replace(stopped, settings=settings)))) == count
    (reason, *_) = queues_and_log.queue_files(replace(stopped, settings=Settings()))
    assert reason.values["expected"] == 6000000


def test_batch_queues_have_a_length_of_their_own(store: StoreToStart) -> None:
    stopped = store.stopped()
    queues = {key: replace(queue, batch=key == ("Stock", 1)) for key, queue in stopped.queues.items()}
    for given, wrong in (({}, True), ({"mapperFileSizeBatchConsumeQueue": "400"}, False)):
        settings = Settings({**store.conf, **given})
        found = list(queues_and_log.queue_files(replace(stopped, queues=queues, settings=settings)))
        assert [reason.values["expected"] for reason in found] == [13800000] * wrong
    shown = replace(stopped, queues=queues, settings=Settings({}, from_file=False))
    assert list(queues_and_log.queue_files(shown)) == []
    (reason,) = queues_and_log.queue_files(replace(shown, rules=rules_of("4.9")))
    assert (reason.values["first"], reason.unsafe) == ("Stock", True)


def test_queues_that_are_read_from_a_database_beside_files(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", version="5.5.0")
    store.conf |= {"rocksdbCQDoubleWriteEnable": "true", "combineCQPreferCQType": "defaultRocksDB"}
    stopped = store.stopped()
    ends = {key: StoredEnds((queue.end_offset, queue.end - 1), (0, 4)) for key, queue in stopped.queues.items()}
    held = replace(stopped, rocksdb=replace(stopped.rocksdb, ends=ends))
    assert are(queues_and_log.queues_read_beside(held), bad("messages_not_served.beside", count=16))
    unread = replace(stopped, rocksdb=replace(stopped.rocksdb, unread="no library"))
    assert list(queues_and_log.queues_read_beside(unread)) == []


@pytest.mark.parametrize("broken", [True, False])
def test_a_database_that_could_not_be_read(store: StoreToStart, broken: bool) -> None:
    stopped = store.stopped()
    assert list(queues_and_log.database_not_read(stopped)) == []
    said = bad("database_not_read.broken" if broken else "database_not_read.unknown")
    unread = replace(stopped, rocksdb=RocksDb(unread="no library", broken=broken))
    assert are(queues_and_log.database_not_read(unread), said)


BEFORE = "the start goes back to 4096 only: the messages between are in no queue"
RECORD = "the start skips the record there and dispatches those after it"


@pytest.mark.parametrize(
    ("most", "dispatched", "after_crash", "what"),
    [
        ("1", None, False, None), ("1", 0, False, BEFORE), ("1", 4095, True, BEFORE), ("1", 4096, False, RECORD),
        ("1", 4096, True, None), ("2", 0, False, None), ("2", 165, False, RECORD), ("2", 164, False, None),
        ("2", 6744, False, None),
    ],
)  # fmt: skip
def test_where_the_database_ends(
    store: StoreToStart, most: str, dispatched: int | None, after_crash: bool, what: str | None
) -> None:
    """Segments begin at 0 and 4096, the second record at 165, and the log ends at 6744."""
    store.conf["commitLogRecoverMaxNum"], store.version = most, "5.5"
    stopped = replace(store.stopped(), rocksdb=RocksDb(dispatched=dispatched), after_crash=after_crash)
    said = bad("messages_not_served.rocksdb", dispatched=dispatched, what=what)
    assert are(queues_and_log.not_dispatched(stopped), *[said] * (what is not None))
    assert list(queues_and_log.not_dispatched(replace(stopped, log=replace(stopped.log, files=())))) == []


def test_a_log_that_begins_later_is_dispatched_whole(store: StoreToStart) -> None:
    """What the database lacks before the first segment is no loss of this start."""
    stopped = replace(store.stopped(), rules=rules_of("5.5"), rocksdb=RocksDb(dispatched=0))
    later = replace(stopped, log=replace(stopped.log, files=stopped.log.files[1:]))
    assert list(queues_and_log.not_dispatched(later)) == []


@pytest.mark.parametrize(
    ("folder", "apart", "said"),
    [
        ("consumequeue", "false", note("rocksdb_not_judged")),
        ("consumequeue_rocksdb", "true", note("rocksdb_not_judged")),
        ("consumequeue", "true", bad("store_type.apart", right=f"{APART}=false")),
        ("consumequeue_rocksdb", "false", bad("store_type.apart", right=f"{APART}=true")),
    ],
)  # fmt: skip
def test_the_path_of_the_database(store: StoreToStart, folder: str, apart: str, said: Said) -> None:
    store.conf |= {"storeType": "defaultRocksDB", APART: apart}
    store.version = "5.5"
    database(folder, "config/topics")(store)
    assert are(configuration.store_type(store.stopped()), said)


@pytest.mark.parametrize(
    ("version", "form", "said"),
    [
        ("5.5", "v2", []),
        ("5.5", "v1", [bad("store_type.second_form")]),
        ("5.3.3", "v2", []),
        ("4.9", "v2", [bad("store_type.older")]),
    ],
)
def test_the_second_form_of_settings_beside_queues_in_files(
    store: StoreToStart, version: str, form: str, said: list[Said]
) -> None:
    store.conf["configManagerVersion"] = form
    store.version = version
    without("config/[tsc]*.json")(store)
    database("config/rdb")(store)
    assert are(configuration.store_type(store.stopped()), *said)


# ------------------------------------------------------------------------------------------------------------- timers


def test_a_timer_queue_that_began_later_has_fewer_messages(tmp_path: Path) -> None:
    """What ``timercheck`` says, and how many there are, counts from the queue's first message."""
    store, key = timers(tmp_path / "store"), ("rmq_sys_wheel_timer", 0)
    given = replace(
        store.stopped(), settings=Settings({**store.conf, "mappedFileSizeTimerLog": "2000"}, from_file=False)
    )
    assert list(offsets_and_timers.timer_state(given)) == []
    without("timerlog/*")(store)
    for begin, queued, said in (
        (3, 5, [bad("timer_state_lost.queued", lost="timerlog/", queued=2)]),
        (3, 3, [note("timer_state_lost.check", waiting=2)]),
        (5, 5, []),
    ):
        check(queued)(store)
        stopped = store.stopped()
        later = replace(stopped, queues={key: replace(stopped.queues[key], begin=begin)})
        assert are(offsets_and_timers.timer_state(later), *said)


# ----------------------------------------------------------------------------------------------------------- retention


def test_what_of_a_queue_goes_with_the_first_segments(store: StoreToStart) -> None:
    """First queue offset and that of the first message from a log offset on; a queue of Orders has its seventh message
    at 4096. Messages that are in no queue yet count where they are dispatched again.
    """
    stopped = store.stopped()
    key, begin = ("Orders", 0), 4096
    none = replace(stopped, queues={})
    shorter = replace(stopped, queues={key: replace(stopped.queues[key], begin=2, end=4)})
    for given, expected in (
        (stopped, (0, 6)),
        (none, (0, 0)),
        (replace(none, redispatch=Redispatch(0)), (0, 6)),
        (replace(none, redispatch=Redispatch(0, skipped=0)), (1, 6)),
        (replace(none, redispatch=Redispatch(4096)), (0, 0)),
        (shorter, (2, 4)),
        (replace(shorter, redispatch=Redispatch(0)), (2, 6)),
        (replace(shorter, redispatch=Redispatch(3300, 3300)), (2, 4)),
        (replace(shorter, redispatch=Redispatch(3300)), (2, 6)),
    ):
        assert files_and_space._deleted(given, key, begin) == expected
    assert files_and_space._deleted(stopped, ("Orders", 7), begin) == (0, 0)


HOUR = 3_600_000
MOST, CLEAN, FORCIBLY = "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "cleanFileForciblyEnable"


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> int:
    """Twelve o'clock of the machine, in milliseconds."""
    stand_in(monkeypatch, recovery, "time", localtime=time.gmtime)
    return 1_717_070_400_000


def segments_of(now: int, *ages: int) -> list[FileStatus]:
    """Segments of 4096 bytes that were changed so many milliseconds ago."""
    return [
        FileStatus(f"{4096 * number:020d}", f"/{number}", 4096, now - age, 0, 0, 0) for number, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ([73 * HOUR], None), ([72 * HOUR, 0], (1, 4096)), ([72 * HOUR - 1, 0], None), ([], None),
        ([72 * HOUR, 72 * HOUR], (1, 4096)), ([72 * HOUR, 72 * HOUR, 0], (2, 8192)),
        ([72 * HOUR, 0, 72 * HOUR, 0], (1, 4096)),
    ],
)  # fmt: skip
def test_segments_that_are_old_enough(noon: int, ages: list[int], expected: tuple[int, int] | None) -> None:
    found = doomed(segments_of(noon, *ages), ["/"], Settings({"deleteWhen": "12"}), rules_of("5.3"), noon)
    assert found == (None if expected is None else Doomed(*expected, forced=False, hours=0))


@pytest.mark.parametrize(
    ("when", "hours"),
    [
        ("12", 0), ("13", 1), ("11", 23), ("04", 16), ("11;14", 2), ("00", 12), ("23;x;", 11), ("24", 24), ("x", 24),
        ("²", 24), ("9" * 5000, 24), ("", 24),
    ],
)  # fmt: skip
def test_the_hour_in_which_segments_are_deleted(noon: int, when: str, hours: int) -> None:
    """What becomes old enough until then goes, too."""
    settings = Settings({"deleteWhen": when, "fileReservedTime": "30"})
    aged, younger = ((30 - hours) * HOUR, (30 - hours) * HOUR - 1)
    found = doomed(segments_of(noon, aged, younger, 0), ["/"], settings, rules_of("4.9"), noon)
    assert found == Doomed(1, 4096, forced=False, hours=hours)


@pytest.mark.parametrize(
    ("used", "given", "version", "expected"),
    [
        (75, {}, "5.3", None), (76, {}, "5.3", (False, 0)), (76, {MOST: "76"}, "5.3", None),
        (95, {MOST: "99", FORCIBLY: "false"}, "4.9", None), (96, {MOST: "99", FORCIBLY: "false"}, "4.9", (False, 0)),
        (10, {MOST: "5"}, "5.3", None), (11, {MOST: "5"}, "5.3", (False, 0)), (85, {MOST: "95"}, "5.3", None),
        (86, {MOST: "95"}, "5.3", (True, 0)), (86, {MOST: "95"}, "4.9", (True, 1)),
        (86, {MOST: "95", FORCIBLY: "false"}, "5.3", (False, 0)), (41, {CLEAN: "40"}, "5.3", (True, 0)),
        (40, {CLEAN: "40"}, "5.3", None), (41, {CLEAN: "40"}, "4.9", None), (30, {CLEAN: "20"}, "5.3", None),
        (31, {CLEAN: "20"}, "5.3", (True, 0)), (86, {CLEAN: "99", MOST: "95"}, "5.0", (True, 0)),
    ],
)  # fmt: skip
def test_how_full_a_disk_may_be(
    noon: int,
    monkeypatch: pytest.MonkeyPatch,
    used: int,
    given: dict[str, str],
    version: str,
    expected: tuple[bool, int] | None,
) -> None:
    """Segments that are old enough at noon, and not at one, which is when they are deleted; forced, all but the last
    go.
    """
    monkeypatch.setattr(files, "space_of", lambda path: Space(100, 100 - used, 100 - used))
    settings = Settings({"deleteWhen": "13", **given})
    found = doomed(segments_of(noon, 72 * HOUR, 70 * HOUR, 0), ["/"], settings, rules_of(version), noon)
    on_time = Doomed(1, 4096, forced=False, hours=1)
    count = 2 if expected and expected[0] else 1
    assert found == (on_time if expected is None else Doomed(count, 4096 * count, *expected))


@pytest.mark.parametrize(
    ("log", "queues", "at_once"), [((80, 10), 10, False), ((80, 80), 10, True), ((10, 10), 80, True)]
)
def test_the_emptiest_disk_of_the_log_counts(
    noon: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: tuple[int, ...], queues: int, at_once: bool
) -> None:
    used = {str(tmp_path / name): percent for name, percent in zip(("a", "b", "q"), (*log, queues), strict=True)}
    for name in used:
        Path(name).mkdir()
    monkeypatch.setattr(files, "space_of", lambda path: Space(100, 100 - used[path], 100 - used[path]))
    settings = Settings({"deleteWhen": "13"})
    paths = list(used)
    for given in (paths, [*paths[:2], paths[2] + "/absent"]):
        found = doomed(segments_of(noon, 72 * HOUR, 0), given, settings, rules_of("5.3"), noon)
        now = at_once and (given is paths or log == (80, 80))
        assert found == Doomed(1, 4096, forced=False, hours=0 if now else 1)
