"""The opening of a store, and records that their queue skips."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.entry_log import SIZE, EntryLogBuilder, a_log
from support.here import tasks_here
from support.reading import opened, queue_offsets, read_segments, rebuilt
from support.store_builder import LogBuilder, Message, Placed

from jobs.cli import command_line
from jobs.contract.options import LogOptions
from jobs.log import opening
from jobs.log.log_scan import LogReading
from jobs.log.opening import open_store, with_queue_store
from jobs.rebuild.rebuild import parts_not_rebuilt
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import DamagedLog, NotAStore, UsageError, WrongSettings
from storeformat.log.dledger import EntryFraming
from storeformat.log.segments import PLAIN
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DISPATCH_PROPERTIES
from storeformat.record.dispatch import MultiDispatchRules
from storeformat.store import store as store_module
from storeformat.store.broker_rules import DEFAULT, VERSIONS
from storeformat.store.settings import ENTRIES, SLOTS


# -------------------------------------------------------------------------------------------------------------- opening
@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LogBuilder()
    log.message(topic="T")
    root = log.write(tmp_path)
    for name in ("consumequeue/T/0", "batchconsumequeue"):
        (root / name).mkdir(parents=True)
    (root / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(bytes(200))
    return root


def test_a_stray_file_shows_no_size_of_queue_files(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / ".nfs0001").write_bytes(bytes(40))
    assert open_store(LogOptions(store=str(root))).settings.queue_file_size == 200


def test_a_stray_file_shows_no_topic_of_type_batch(root: Path) -> None:
    (root / "batchconsumequeue" / "T").write_bytes(b"")
    assert open_store(LogOptions(store=str(root))).batch_topics == frozenset()


@pytest.mark.parametrize("job", [["verify"], ["rebuild", "--output", "out"]])
@pytest.mark.parametrize("shown", ["config/topics/000009.sst", "consumequeue/CURRENT", "storeType"])
def test_a_database_that_would_be_needed_and_cannot_be_read_or_written_is_named(
    root: Path, job: list[str], shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    told = []
    if shown == "storeType":
        told = ["--set", "storeType=defaultRocksDB"]
    else:
        (root / shown).parent.mkdir(parents=True, exist_ok=True)
        (root / shown).write_bytes(b"pairs")
    more = [str(root.parent / part) if part == "out" else part for part in job[1:]]
    with tasks_here():
        assert command_line.main([job[0], "--store", str(root), *more, *told, "--json"]) == 69
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["status"] == "error"
    assert "RocksDB" in report["error"]
    assert not (root.parent / "out").exists()


def test_a_store_type_that_is_told_counts_before_what_lies_in_the_store(root: Path) -> None:
    (root / "config" / "topics").mkdir(parents=True)
    (root / "config" / "topics" / "000009.sst").write_bytes(b"pairs")
    store = open_store(LogOptions(store=str(root), settings=(("storeType", "default"),)))
    assert with_queue_store(store).queues_in.kind == "file"
    assert with_queue_store(open_store(LogOptions(store=str(root)))).queues_in.kind == "rocksdb"


def test_a_setting_of_brokers_without_effect_is_a_note(root: Path) -> None:
    settings = (("flushDiskType", "SYNC_FLUSH"), ("maxIndexNum", "20"), ("storeType", "default"))
    store = open_store(LogOptions(store=str(root), settings=settings), needs_index_sizes=False)
    assert [note.partition(":")[0] for note in store.notes if note.startswith("--set")] == ["--set flushDiskType"]


def test_the_size_of_an_only_segment_is_doubted_unless_it_is_told(root: Path) -> None:
    (segment,) = (root / "commitlog").iterdir()
    size = segment.stat().st_size
    said = f"the only segment has {size} bytes"
    assert any(said in note for note in open_store(LogOptions(store=str(root))).notes)
    told = (("mappedFileSizeCommitLog", str(size)),)
    assert not any(said in note for note in open_store(LogOptions(store=str(root), settings=told)).notes)
    with pytest.raises(NotAStore):
        open_store(LogOptions(store=str(root), settings=(("mappedFileSizeCommitLog", str(size + 1)),)))


def test_queues_in_rocksdb_are_plain_ones_of_every_topic(root: Path) -> None:
    pytest.importorskip("rocksdict")
    store = open_store(LogOptions(store=str(root), batch_topics=("B",)))
    assert with_queue_store(store, "file").batch_topics == frozenset({"B"})
    assert with_queue_store(store, "rocksdb").batch_topics == frozenset()
    with pytest.raises(WrongSettings, match=r"no broker before 5\.0\.0 reads queues of batches: found B"):
        open_store(LogOptions(store=str(root), batch_topics=("B",), broker_version="4.9.8"))


def test_light_queues_need_their_properties_and_a_release(root: Path) -> None:
    settings = (("enableMultiDispatch", "true"), ("enableLmq", "true"))
    with pytest.raises(WrongSettings, match="which records go to light queues depends on the broker's release"):
        open_store(LogOptions(store=str(root), settings=settings))
    store = open_store(LogOptions(store=str(root), settings=settings, broker_version="5.3"))
    for version, said in (("5.3.3", ""), ("5.5.1", "; beside these rules"), ("5.9.0", ", which this program")):
        given = open_store(LogOptions(store=str(root), broker_version=version)).release_reason
        assert given.startswith(f"as given by --broker-version {version}{said}")
    light = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
    assert store.decode_rules((b"more",)).properties == (*DISPATCH_PROPERTIES, *light, b"more")
    assert store.dispatch_rules().multi_dispatch == MultiDispatchRules(
        True, store.rules.no_light_topics, store.rules.no_light_prefixes
    )
    plain = open_store(LogOptions(store=str(root), broker_version="5.3"))
    assert plain.decode_rules((b"more",)).properties == (*DISPATCH_PROPERTIES, b"more")


def test_settings_of_a_file_stand_below_those_of_the_command_line(root: Path) -> None:
    conf = root / "broker.conf"
    conf.write_bytes(b"maxIndexNum = 7\nmaxHashSlotNum=9\nnobodys.setting = \xff\nflushDiskType=SYNC_FLUSH\n")
    options = LogOptions(store=str(root), broker_conf=str(conf), settings=(("maxIndexNum", "8"),))
    store = open_store(options)
    assert (store.settings.number(ENTRIES), store.settings.number(SLOTS)) == (8, 9)
    assert not [note for note in store.notes if "flushDiskType" in note], "a file says much that is not asked for here"
    conf.write_text("maxHashSlotNum = many\n")
    with pytest.raises(WrongSettings) as error:
        open_store(options)
    assert error.value.path == str(conf)


def test_a_release_that_the_store_contradicts_is_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "guess_version", lambda root, settings: ("5.1", "it has such a file"))
    store = open_store(LogOptions(store=str(root)))
    assert (store.rules.version, store.release_reason) == ("5.1", "it has such a file")
    said = [
        [note for note in open_store(LogOptions(store=str(root), broker_version=version)).notes if "rules" in note]
        for version in ("5.1", "5.3")
    ]
    assert said == [[], ["using the rules of 5.3, as requested; the store suggests 5.1: it has such a file"]]
    monkeypatch.setattr(store_module, "guess_version", lambda root, settings: (DEFAULT, "nothing"))
    version = next(version for version in VERSIONS if version != DEFAULT)
    notes = open_store(LogOptions(store=str(root), broker_version=version)).notes
    assert not [note for note in notes if "rules" in note]


def test_notes_of_segments(root: Path) -> None:
    empty = root / "commitlog" / f"{65536:020d}"
    empty.touch()
    died, cut = open_store(LogOptions(store=str(root))).notes[-2:]
    assert died.startswith(f"{empty} is empty and is ignored")
    assert cut.startswith("the only segment has 65536 bytes")


def test_of_queues_that_are_written_twice_the_files_count(root: Path) -> None:
    options = LogOptions(store=str(root), settings=(("rocksdbCQDoubleWriteEnable", "true"),), batch_topics=("B",))
    store = with_queue_store(open_store(options))
    assert (store.queues_in.kind, store.batch_topics) == ("file", {"B"})
    assert store.notes[-1].startswith("rocksdbCQDoubleWriteEnable=true: the database beside the queue files")
    assert with_queue_store(open_store(options), "file").notes == store.notes[:-1]


def test_a_reading_ends_where_it_is_asked_to_or_where_a_live_broker_writes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(LogOptions(store=str(root)))
    assert [store.until(None), store.until(7)] == [None, 7]
    agreed = replace(store, committed=50)
    assert [agreed.until(None), agreed.until(7)] == [50, 7]
    asked: list[str] = []
    monkeypatch.setattr(store_module.broker_lock, "is_live", lambda path: not asked.append(path))
    monkeypatch.setattr(opening, "growing_log_end", lambda segments, rules: 40 if rules == store.decode_rules() else 0)
    assert [store.until(None), store.until(39), store.until(41), agreed.until(None)] == [40, 39, 40, 40]
    assert set(asked) == {str(root / "lock")}


def test_more_splits_than_a_driver_keeps_in_mind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opening.MOST_SPLITS < 1 << 22
    monkeypatch.setattr(opening, "MOST_SPLITS", 10)
    options = LogOptions(store=str(root), split_size=5957)
    store = open_store(options)
    with pytest.raises(UsageError, match="found 11 splits, expected at most 10"):
        opening.read_log(store, options, Runner())
    assert opening.read_log(store, replace(options, split_size=None), Runner(), split_size=5958).records == 1


# ----------------------------- where a log lies: entries after an old log, one member of several, several paths
def old_log(root: Path, count: int = 20) -> LogBuilder:
    """What a broker wrote before it became a member, closed as it closes it then."""
    log = LogBuilder(SIZE)
    for number in range(count):
        log.message(topic="T", queue_id=number % 3, body=bytes(30))
    log.blank()
    (root / "commitlog").mkdir(parents=True)
    for base, data in log.segments.items():
        if base < log.end_offset:
            (root / "commitlog" / f"{base:020d}").write_bytes(data)
    return log


def mixed(root: Path) -> tuple[LogBuilder, EntryLogBuilder]:
    old = old_log(root)
    new = EntryLogBuilder(SIZE, old.end_offset)
    new.queue_offsets = dict(old.queue_offsets)
    for number in range(30):
        new.message(topic="T", queue_id=number % 3, body=bytes(30))
    new.write(root, 29)
    return old, new


@pytest.mark.parametrize("split_size", [100, 1 << 30])
def test_entries_after_an_old_log(tmp_path: Path, split_size: int) -> None:
    old, new = mixed(tmp_path / "store")
    assert {segment.framing for segment in opened(tmp_path / "store").segments} == {PLAIN, EntryFraming(29)}
    made = rebuilt(tmp_path / "store", tmp_path / "work", split_size=split_size)
    assert queue_offsets(made) == [placed.offset for placed in (*old.records, *new.records)]


def test_a_switch_that_is_off_leaves_entries_out_and_names_them(tmp_path: Path) -> None:
    old, _ = mixed(tmp_path / "store")
    store = opened(tmp_path / "store", settings=(("enableDLegerCommitLog", "false"),))
    assert {segment.framing for segment in store.segments} == {PLAIN}
    assert store.segments[-1].end == old.end_offset
    (part,) = parts_not_rebuilt(store.root, store.segments)
    assert part["part"] == "dledger-n0"


def test_entries_must_go_on_where_the_old_log_ends(tmp_path: Path) -> None:
    old_log(tmp_path / "store")
    a_log().write(tmp_path / "store", 59)
    with pytest.raises(NotAStore, match="the commit log has a segment twice") as refused:
        opened(tmp_path / "store")
    assert "commitlog" in str(refused.value)
    assert "dledger-n0" in str(refused.value)
    named = opened(tmp_path / "store", commitlog=(str(tmp_path / "store" / "dledger-n0" / "data"),))
    assert {segment.framing for segment in named.segments} == {EntryFraming(59)}


def test_of_several_members_one_must_be_named(tmp_path: Path) -> None:
    root = a_log().write(tmp_path / "store", 59)
    shutil.copytree(root / "dledger-n0", root / "dledger-n1")
    with pytest.raises(WrongSettings, match="several members"):
        opened(root)
    store = opened(root, settings=(("dLegerSelfId", "n1"),))
    assert {Path(segment.path).parent.parent.name for segment in store.segments} == {"dledger-n1"}
    assert [part["part"] for part in parts_not_rebuilt(store.root, store.segments)] == ["dledger-n0"]
    (root / "dledger-n1" / "checkpoint").write_text("committedIndex=10\n")
    store = opened(root, commitlog=(str(root / "dledger-n1" / "data"),))
    assert "committedIndex=10" in store.notes[-1]


# ------------------------------------------------------------------------------------------------------- several paths
def spread(tmp_path: Path, *names: str) -> tuple[LogBuilder, list[Path]]:
    """A log whose segments lie in several directories in turn, as the broker places them."""
    log = LogBuilder(SIZE)
    for number in range(80):
        log.message(queue_id=number % 2, body=bytes(60))
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.mkdir(parents=True)
    for base, data in log.segments.items():
        (paths[base // SIZE % len(paths)] / f"{base:020d}").write_bytes(data)
    (tmp_path / "store").mkdir(exist_ok=True)
    return log, paths


def test_a_log_on_several_paths(tmp_path: Path) -> None:
    log, (one, two) = spread(tmp_path, "one", "two")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={one},{two}\n")
    made = rebuilt(tmp_path / "store", tmp_path / "work", broker_conf=str(conf))
    assert queue_offsets(made) == [placed.offset for placed in log.records]
    for writable, served in ((f"{two},", True), (str(two), False)):
        conf.write_text(f"storePathCommitLog={writable}\nreadOnlyCommitLogStorePaths={one},{two}\n")
        store = opened(tmp_path / "store", broker_conf=str(conf))
        assert len(store.segments) == len(log.segments)
        assert ["does not serve" in note for note in store.notes] == ([] if served else [True])
    named = opened(tmp_path / "store", commitlog=(str(one), str(two)))
    assert len(named.segments) == len(log.segments)


# -------------------------------------------------------------------------------------------------------- stray records
ONE_SEGMENT = 1 << 16


def a_log_of_queues(count: int = 30) -> LogBuilder:
    log = LogBuilder(ONE_SEGMENT)
    for number in range(count):
        log.message(Message("Topic", number % 2, body=b"x" * number))
    return log


def read(log: LogBuilder, policy: str, *changes: tuple[int, bytes], **scan: Any) -> LogReading:
    return read_segments(log.segments, 500, policy, changes=changes, **scan)


def queue_id(placed: Placed, number: int) -> tuple[int, bytes]:
    return placed.offset + 12, struct.pack(">i", number)


def queue_offset(placed: Placed, number: int) -> tuple[int, bytes]:
    return placed.offset + 20, struct.pack(">q", number)


def queues(reading: LogReading) -> dict[int, list[tuple[int, int]]]:
    """Of each queue: where its runs lie, and how many units each has, fillers aside."""
    table, places = reading.queue_runs, reading.queue_runs.plan().runs
    found: dict[int, list[tuple[int, int]]] = {}
    for row in range(len(table.keys)):
        found.setdefault(table.queue_at(row)[1], []).append((int(places["position"][row]), int(places["count"][row])))
    return found


def units(reading: LogReading) -> dict[int, list[int]]:
    return {
        queue: sorted(place for begin, count in runs for place in range(begin, begin + count))
        for queue, runs in queues(reading).items()
    }


WHOLE = {0: list(range(15)), 1: list(range(15))}
WITHOUT_STRAY = {0: WHOLE[0], 1: [place for place in range(15) if place != 4]}
"""Without record 9."""


@pytest.mark.parametrize(
    ("topic", "queue", "number"),
    [("Topic", 2, 4), ("Topic", 77, 4), ("Topic", 1 << 30, 4), ("Uopic", 1, 4), ("Topic", 0, 9)],
)
def test_a_record_that_says_a_wrong_queue_is_left_out(topic: str, queue: int, number: int) -> None:
    log = a_log_of_queues()
    stray = log.records[9]
    at = log.segments[0].index(b"Topic", stray.offset)
    reading = read(log, "salvage", (at, topic.encode()), queue_id(stray, queue), queue_offset(stray, number))
    assert units(reading) == WITHOUT_STRAY
    assert (reading.losses.messages, reading.is_damaged, reading.queue_runs.left_out) == (1, True, 1)
    (row,) = reading.facts()["stray_records"]
    assert row == {"offset": stray.offset, "topic": topic, "queue_id": queue, "queue_offset": number}
    assert reading.losses.strays[0].moves_others == (number == 4)


@pytest.mark.parametrize("more", [1, 2])
def test_a_record_that_takes_just_the_next_place_of_another_queue_is_left_out(more: int) -> None:
    """The record of queue 1 lies just before the one whose place it claims in queue 0, the last one there or not."""
    log = LogBuilder(ONE_SEGMENT)
    for queue in (0, 0, 1, 1, 1, 1, *[0] * more, 1):
        log.message(Message("Topic", queue, body=b"x"))
    stray, twin = log.records[4], log.records[6]
    assert stray.message.queue_offset == twin.message.queue_offset == 2
    reading = read(log, "salvage", queue_id(stray, 0))
    assert units(reading) == {0: list(range(2 + more)), 1: [0, 1, 3, 4]}
    assert [item.offset for item in reading.losses.strays] == [stray.offset]


def test_of_two_records_with_one_claim_the_first_stays_where_either_may_be_the_stray_one() -> None:
    log = a_log_of_queues()
    reading = read(log, "salvage", queue_id(log.records[9], 0))
    assert units(reading) == WITHOUT_STRAY
    assert [(loss.queue_id, loss.first_queue_offset) for loss in reading.losses.rows] == [(1, 4)]


@pytest.mark.parametrize("number", [8, 9, 28, 29])
@pytest.mark.parametrize("claimed", [0, 3, 1 << 40])
def test_a_damaged_queue_offset_moves_nothing_else(number: int, claimed: int) -> None:
    log = a_log_of_queues()
    stray = log.records[number]
    reading = read(log, "salvage", queue_offset(stray, claimed))
    queue, own = stray.message.queue_id, stray.message.queue_offset
    expected = {queue: [place for place in WHOLE[queue] if place != own] for queue in WHOLE}
    found = units(reading)
    assert {other: found[other] for other in found if other != queue} == {1 - queue: WHOLE[1 - queue]}
    assert set(expected[queue]) <= set(found[queue])
    restarted = claimed == 0 and number < 29  # a broker appends it where it is, and the other queue goes on
    assert (own in found[queue]) == (restarted or (number >= 28 and claimed == 1 << 40))


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_a_gap_that_nothing_explains_is_filled_and_told(sys_flag: int) -> None:
    """A message whose flags make it a half message, or a rolled back one, takes no place in its queue."""
    log = a_log_of_queues()
    hidden = log.records[9]
    reading = read(log, "salvage", (hidden.offset + 36, struct.pack(">i", sys_flag)))
    assert units(reading)[1] == [place for place in range(15) if place != 4]
    assert reading.queue_runs.plan().runs["fill"].sum() == 1
    (loss,) = reading.losses.rows
    assert (loss.queue_id, loss.first_queue_offset, loss.messages) == (1, 4, 1)
    assert loss.begin <= hidden.offset < loss.end
    assert "no damaged bytes" in loss.cause


def test_two_records_that_claim_one_place_stay_where_they_are() -> None:
    log = LogBuilder(ONE_SEGMENT)
    for number in range(60):
        log.message(Message("Topic", number % 3, body=b"x"))
    strays = log.records[10], log.records[11]  # places 3 of queues 1 and 2
    reading = read(log, "salvage", *(queue_id(stray, 70 + n) for n, stray in enumerate(strays)))
    assert reading.losses.strays == []
    found = units(reading)
    assert {queue: len(found[queue]) for queue in found} == {0: 20, 1: 19, 2: 19, 70: 1, 71: 1}
    assert [max(found[queue]) for queue in range(3)] == [19, 19, 19]


@pytest.mark.parametrize("scan", [{}, {"topics": (TopicFilter("Topic", 1),)}])
def test_fail_refuses_a_stray_record_that_moves_others(scan: dict[str, Any]) -> None:
    log = a_log_of_queues()
    stray = log.records[9]
    with pytest.raises(DamagedLog, match=f"{stray.offset} says it is message 4 of Topic/77, which") as refused:
        read(log, "fail", queue_id(stray, 77), **scan)
    assert refused.value.offset == stray.offset
    assert int(refused.value.path) == max(base for base in log.segments if base <= stray.offset)
    assert re.search("salvage", refused.value.advice)


def test_stop_appends_as_a_broker_does() -> None:
    log = a_log_of_queues()
    found = units(read(log, "stop", queue_id(log.records[9], 77)))
    assert found == {0: WHOLE[0], 1: list(range(14)), 77: [4]}


def test_fail_takes_a_last_message_0_for_a_topic_created_anew_as_a_broker_does() -> None:
    log = LogBuilder(ONE_SEGMENT)
    for _ in range(2):
        log.message(Message("Topic", 0))
        log.delete_topic("Topic")
    assert read(log, "fail").queue_runs.plan().queues["end"].tolist() == [1]


@pytest.mark.parametrize(
    ("policies", "before", "after", "ends"),
    [
        pytest.param(["fail", "salvage"], [0, 1] * 8, [0, 1], [1, 1], id="both queues start over"),
        # one message 0 at the end may have a damaged queue offset; a message 1 after it says that it has not
        pytest.param(["fail", "stop", "salvage"], [0] * 5, [0, 0], [2], id="two messages"),
    ],
)
def test_a_topic_created_anew_is_no_stray_record(
    policies: list[str], before: list[int], after: list[int], ends: list[int]
) -> None:
    log = LogBuilder(ONE_SEGMENT)
    for queues in (before, after):
        for queue in queues:
            log.message(Message("Topic", queue))
        log.delete_topic("Topic")
    for policy in policies:
        reading = read(log, policy)
        assert reading.losses.strays == []
        assert reading.queue_runs.plan().queues["end"].tolist() == ends


@pytest.mark.parametrize(
    ("last", "ends", "left_out"), [([1], [5, 2], [0, 0]), ([], [5, 1], [3, 0]), ([0], [5, 1], [3, 1])]
)
def test_a_topic_was_deleted_where_none_of_its_queues_goes_on(
    last: list[int], ends: list[int], left_out: list[int]
) -> None:
    """Queue 0 starts over. Queue 1 goes on after that, as a lost counter has it, or is not used, or starts over."""
    log = LogBuilder(ONE_SEGMENT)
    for queue, number in ((1, 0), *((0, number) for number in (0, 1, 2, 0, 1, 2, 3, 4)), *((1, end) for end in last)):
        log.message(Message("Topic", queue, queue_offset=number))
    for split_size in (200, ONE_SEGMENT):
        plan = read_segments(log.segments, split_size).queue_runs.plan()
        assert (plan.queues["end"].tolist(), plan.queues["earlier_lives"].tolist()) == (ends, left_out)


def test_a_message_0_of_a_lost_counter_is_no_stray_record() -> None:
    """Queue 1 goes on after it, so the topic was not deleted."""
    log = LogBuilder(SIZE)
    for queue, number in ((1, 0), *((0, number) for number in (0, 1, 2, 0, 4, 5)), (1, 1)):
        log.message(Message("Topic", queue, queue_offset=number))
    reading = read(log, "salvage")
    assert (units(reading), reading.is_damaged) == ({0: list(range(6)), 1: [0, 1]}, False)


def test_the_first_message_of_a_new_life_is_no_stray_record_where_those_after_it_are_lost() -> None:
    """The old life has as many messages as the new one before its next survivor."""
    log = LogBuilder(ONE_SEGMENT)
    for number in range(10):
        log.message(Message("Topic", number % 2))
    log.delete_topic("Topic")
    for queue in (1, 0, 1, 1, 1, 1, 1):
        log.message(Message("Topic", queue))
    lost = log.records[12:16]
    reading = read(log, "salvage", (lost[0].offset, b"?" * sum(record.size for record in lost)))
    assert reading.losses.strays == []
    assert (reading.losses.messages, reading.queue_runs.plan().queues["end"].tolist()) == (4, [1, 6])


def test_two_strays_in_one_queue_are_left_out() -> None:
    log = LogBuilder(ONE_SEGMENT)
    for _ in range(10):
        log.message(Message("Topic", 1))
    for number in range(20):
        log.message(Message("Topic", number % 2))
    strays = [log.records[13], log.records[19]]
    reading = read(log, "salvage", *(queue_id(stray, 0) for stray in strays))
    assert units(reading) == {0: list(range(10)), 1: [place for place in range(20) if place not in (11, 14)]}
    assert [row["offset"] for row in reading.facts()["stray_records"]] == [stray.offset for stray in strays]
