"""Units and files of queues, against the end of the log and as a start takes them."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from support.planting import flip
from support.store_builder import LogBuilder
from support.store_to_start import QUEUE_FILE, SEGMENT, StoreToStart, finished, healthy_store

from jobs.preflight import queues_and_log
from jobs.preflight.reason import Reason
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import rules_of
from storeformat.store.rocksdb_queues import StoredEnds

UNIT = struct.Struct(">qiq")
NOT_SERVED = "messages_not_served"
VERIFY = "rebuild and publish before the start; verify names every message"


SPOILT = {
    "zeros": ((25,), bytes(20)),
    "another's": ((25, 26), None),
    "size": ((47,), UNIT.pack(0, 7, 0)),
    "first file": (tuple(range(20)), b""),
}


@pytest.mark.parametrize("case", SPOILT)
@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_units_of_other_messages(tmp_path: Path, version: str, case: str) -> None:
    """100 messages a queue, five files: recovery looks at the last three, and puts no unit right."""
    store = healthy_store(tmp_path / "store", 400, version=version)
    numbers, content = SPOILT[case]
    own = [record for record in store.log.records if (record.message.topic, record.message.queue_id) == ("Orders", 1)]
    for number in numbers:
        path = store.queue_directory("Orders", 1) / f"{number // 20 * QUEUE_FILE:020d}"
        if content == b"":
            path.unlink(missing_ok=True)
            continue
        data = bytearray(path.read_bytes())
        at = number % 20 * 20
        if content is None:
            data[at : at + 8] = struct.pack(">q", own[3].offset)
        elif any(content):
            data[at + 8 : at + 12] = content[8:12]
        else:
            data[at : at + 20] = content
        path.write_bytes(bytes(data))
    what = (
        f"{len(numbers)} messages from offset {own[numbers[0]].offset} on are not at their place in their queue "
        "(Orders:1): the unit there is missing or is that of another message, and no start mends it"
    )
    assert store.reasons("wrong_units") == [Reason("wrong_units", what, VERIFY)]
    stopped = store.stopped()
    assert list(queues_and_log.wrong_units(replace(stopped, log=replace(stopped.log, of_group=True)))) == []
    batches = {key: replace(queue, batch=True) for key, queue in stopped.queues.items()}
    assert list(queues_and_log.wrong_units(replace(stopped, queues=batches))) == []


def test_a_hole_ends_the_queue_for_a_start(tmp_path: Path) -> None:
    """What comes after it in the file is not served, though its units are there."""
    store = healthy_store(tmp_path / "store", 40, version="5.3")
    path = store.queue_directory("Orders", 1) / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes(20) + data[80:])
    assert store.only_reason(NOT_SERVED).values["count"] == 7
    assert store.reasons("wrong_units") == []


def test_gaps_in_queue_offsets_leave_none_in_a_queue(tmp_path: Path) -> None:
    """As brokers of 5.0.0 left them: later units lie before their places. One that is missing is missed there, too."""
    log = LogBuilder(SEGMENT)
    for number in (*range(20), *range(23, 50), *range(60, 100)):
        log.message(topic="Orders", queue_id=0, queue_offset=number, body=bytes(60))
    store = finished(tmp_path / "store", log)
    assert store.reasons("wrong_units") == []
    path = store.queue_directory("Orders", 0) / f"{QUEUE_FILE:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:60] + UNIT.pack(log.records[30].offset, 7, 0) + data[80:])
    assert store.only_reason("wrong_units").values["count"] == 27 + 27, (
        "all at earlier places, but those after the queue's end"
    )
    path.write_bytes(data)
    path.rename(path.with_name(f"{9 * QUEUE_FILE:020d}"))
    assert store.only_reason("wrong_units").values["count"] >= 20


def test_messages_of_a_deleted_topic_have_no_units(tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT)
    log.message(topic="Orders", queue_id=0, body=bytes(60))
    for number in (1, 2, 0, 1, 2, 3, 4):
        log.message(topic="Orders", queue_id=1, queue_offset=number, body=bytes(60))
    store = finished(tmp_path / "store", log)
    shutil.rmtree(store.queue_directory("Orders", 0))
    path = store.queue_directory("Orders", 1) / f"{0:020d}"
    units = [UNIT.pack(record.offset, record.size, 0) for record in log.records[3:]]
    path.write_bytes(b"".join(units).ljust(QUEUE_FILE, b"\0"))
    assert store.reasons("wrong_units") == []
    path.write_bytes(b"".join([units[1], *units[1:]]).ljust(QUEUE_FILE, b"\0"))
    assert store.only_reason("wrong_units").values["count"] == 1


def test_queue_offsets_given_twice(tmp_path: Path) -> None:
    """The first message of each keeps the place (apache/rocketmq #7689): a note, for a rebuild makes the same bytes."""
    log = LogBuilder(SEGMENT)
    for number in (0, 1, 2, 1, 2, 3):
        log.message(topic="Orders", queue_id=0, queue_offset=number, body=bytes(60))
    store = finished(tmp_path / "store", log)
    note = store.only_reason("queue_offsets_twice")
    assert (note.values["count"], note.unsafe, store.reasons("wrong_units")) == (2, False, [])


def test_a_counter_that_began_again(tmp_path: Path) -> None:
    """The new 0 is appended after the old 2, and the new 3 comes too late for its place."""
    log = LogBuilder(SEGMENT)
    for number in (0, 1, 2, 0, 1, 2, 3, 4):
        log.message(topic="Orders", queue_id=0, queue_offset=number, body=bytes(60))
        log.message(topic="Orders", queue_id=1, body=bytes(60))
    store = finished(tmp_path / "store", log)
    path = store.queue_directory("Orders", 0) / f"{0:020d}"
    own = [record for record in log.records if record.message.queue_id == 0]
    units = [UNIT.pack(own[number].offset, own[number].size, 0) for number in (0, 1, 2, 3, 7)]
    path.write_bytes(b"".join(units).ljust(QUEUE_FILE, b"\0"))
    assert store.reasons("wrong_units") == []
    assert store.only_reason("queue_offsets_twice").values["count"] == 4


def test_a_later_life_of_a_topic_whose_first_messages_are_lost(tmp_path: Path) -> None:
    """The older life's messages have no place: the later one's 2 is there, and so were its 0 and 1."""
    log = LogBuilder(SEGMENT)
    for number in (0, 1, 2, 3):
        log.message(topic="Orders", queue_id=0, queue_offset=number, body=bytes(60))
    for number in (2, 3):
        log.message(topic="Orders", queue_id=0, queue_offset=number, body=bytes(90))
    store = finished(tmp_path / "store", log)
    path = store.queue_directory("Orders", 0) / f"{0:020d}"
    filler = UNIT.pack(0, 0x7FFFFFFF, 0)
    units = [UNIT.pack(record.offset, record.size, 0) for record in log.records[4:]]
    path.write_bytes(b"".join([filler, filler, *units]).ljust(QUEUE_FILE, b"\0"))
    assert store.reasons("wrong_units") == []


@pytest.mark.parametrize(("version", "moved"), [("5.0.0", 0), ("4.9.8", 3)])
def test_what_is_dispatched_goes_to_the_end_of_its_queue(tmp_path: Path, version: str, moved: int) -> None:
    """After a gap that is not in the queue yet; 5.0.0 leaves such gaps itself."""
    log = LogBuilder(SEGMENT)
    for number in (*range(5), 7, 8, 9):
        log.message(topic="Orders", queue_id=0, queue_offset=number, body=bytes(60))
    store = finished(tmp_path / "store", log, version, dispatched=5)
    store.commit({})
    found = store.reasons("messages_moved")
    assert [(reason.values["count"], reason.unsafe) for reason in found] == [(moved, True)] * bool(moved)


def test_light_queues_are_queues(tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT)
    for number in range(6):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number)}
        log.message(topic="Orders", queue_id=0, body=bytes(60), properties=light)
    store = finished(tmp_path / "store", log, "5.3")
    store.conf |= {"enableMultiDispatch": "true", "enableLmq": "true"}
    reason = store.only_reason(NOT_SERVED)
    assert (reason.values["count"], reason.values["queues"], reason.unsafe) == (6, "%LMQ%a:0", True)
    store.conf |= {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}
    store.version = "5.5.0"
    assert "in which this broker keeps light queues (%LMQ%a:0)" in store.only_reason(NOT_SERVED).what


def test_queues_that_are_read_from_a_database_beside_files(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", version="5.5.0")
    store.conf["rocksdbCQDoubleWriteEnable"] = "true"
    assert store.answer().safe
    store.conf["combineCQPreferCQType"] = "defaultRocksDB"
    stopped = store.stopped()
    assert [reason.values["count"] for reason in queues_and_log.queues_read_beside(stopped)] == [40]
    ends = {key: StoredEnds((queue.end_offset, queue.end - 1), (0, 4)) for key, queue in stopped.queues.items()}
    held = replace(stopped, rocksdb=replace(stopped.rocksdb, ends=ends))
    assert [reason.values["count"] for reason in queues_and_log.queues_read_beside(held)] == [16]


def test_a_record_that_names_another_offset_as_its_own(store: StoreToStart) -> None:
    record = store.log.records[30]
    flip(store.segment(record.offset // SEGMENT), record.offset % SEGMENT + 33)
    assert store.only_reason("log_damaged").values == {"at": record.offset}


def not_loaded(path: Path, why: str) -> Reason:
    cure = f"mv --backup=numbered -t {path.parents[3]}/.. -- {path}; rebuild makes the queue again"
    return Reason("queue_files", f"{path} {why}", cure)


def test_files_that_are_not_of_a_queue(store: StoreToStart) -> None:
    """All of them, in all queues."""
    stray = store.queue_directory("Orders", 0) / "notes.txt"
    stray.write_text("x")
    short = [store.queue_directory(topic, 1) / f"{0:020d}" for topic in ("Orders", "Stock")]
    for path in short:
        path.write_bytes(path.read_bytes()[:-20])
    wrong = "has 380 bytes and should have 400: the broker does not start"
    assert tuple(store.reasons("queue_files")) == (
        *(not_loaded(path, wrong) for path in short),
        not_loaded(stray, "is not a queue file"),
    )


def test_lengths_of_queue_files_without_a_broker_conf_are_those_of_most(store: StoreToStart) -> None:
    path = store.queue_directory("Orders", 0) / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-20])
    stopped = store.stopped()
    shown = replace(stopped, conf=BrokerConf({}, from_file=False))
    wrong = "has 380 bytes and should have 400: the broker does not start"
    assert list(queues_and_log.queue_files(shown)) == [not_loaded(path, wrong)]
    for given, count in (
        ({"mappedFileSizeConsumeQueue": "361"}, 3),
        ({"mappedFileSizeConsumeQueue": "381"}, 1),
        ({}, 4),
    ):
        for from_file in (True, False) if given else (True,):
            settings = BrokerConf(given, from_file=from_file)
            assert len(list(queues_and_log.queue_files(replace(stopped, conf=settings)))) == count
    (reason, *_) = queues_and_log.queue_files(replace(stopped, conf=BrokerConf()))
    assert reason.values["expected"] == 6000000


def test_a_file_of_the_wrong_length_is_one_reason(store: StoreToStart) -> None:
    """Without a broker.conf the length is that of all queues, not that of its own."""
    path = store.queue_directory("Orders", 0) / f"{0:020d}"
    path.write_bytes(bytes(380))
    shown = replace(store.stopped(), conf=BrokerConf({}, from_file=False))
    assert [reason.values["size"] for reason in queues_and_log.queue_files(shown)] == [380]


def test_batch_queues_have_a_length_of_their_own(store: StoreToStart) -> None:
    stopped = store.stopped()
    queues = {key: replace(queue, batch=key == ("Stock", 1)) for key, queue in stopped.queues.items()}
    for given, wrong in (({}, True), ({"mapperFileSizeBatchConsumeQueue": "400"}, False)):
        settings = BrokerConf({**store.conf, **given})
        found = list(queues_and_log.queue_files(replace(stopped, queues=queues, conf=settings)))
        assert [reason.values["expected"] for reason in found] == [13800000] * wrong
    shown = replace(stopped, queues=queues, conf=BrokerConf({}, from_file=False))
    assert list(queues_and_log.queue_files(shown)) == []
    (reason,) = queues_and_log.queue_files(replace(shown, rules=rules_of("4.9")))
    assert (reason.values["first"], reason.unsafe) == ("Stock", True)


@pytest.mark.parametrize("is_first", [False, True])
def test_an_empty_file_after_a_full_one_or_alone(tmp_path: Path, is_first: bool) -> None:
    """Alone it gives the first message queue offset 1 (4.9.8 to 5.5.0, clean and after a crash)."""
    store = healthy_store(tmp_path / "store", messages=80)
    path = store.queue_directory("Orders", 9 if is_first else 0) / f"{0 if is_first else 400:020d}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(400))
    assert store.answer().reasons == (
        Reason(
            "queue_files",
            f"queue {path.parent.name} of Orders has a last file without a message: the broker does not start, or the "
            "next message gets a queue offset that is one too high",
            f"rm -- {path}",
        ),
    )


@pytest.mark.parametrize(("version", "kept"), [("4.9", True), ("5.1", True), ("5.3", False), ("5.5", False)])
def test_a_last_file_of_no_length(store: StoreToStart, version: str, kept: bool) -> None:
    """As a kill -9 leaves it: 5.1.1 does not start, 5.3.3 and 5.5.0 delete it."""
    store.version = version
    path = store.queue_directory("Orders", 0) / f"{4 * QUEUE_FILE:020d}"
    path.touch()
    reason = store.only_reason("queue_files")
    assert (reason.cure, reason.unsafe) == (f"rm -- {path}", kept)
    path.unlink()
    assert store.reasons("queue_files") == []


def test_an_empty_file_after_an_unfinished_one(store: StoreToStart) -> None:
    """The broker deletes it."""
    (store.queue_directory("Orders", 0) / f"{400:020d}").write_bytes(bytes(400))
    assert store.answer().safe


def test_a_hole_before_the_last_file(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=200)
    path = store.queue_directory("Orders", 0) / f"{400:020d}"
    path.write_bytes(path.read_bytes()[:200].ljust(400, b"\0"))
    assert store.only_reason("queue_files") == Reason(
        "queue_files",
        "queue 0 of Orders has an unfinished file before its last one: the broker deletes the files after it, 10 "
        "messages are not served",
        VERIFY,
    )


def test_a_queue_of_fillers(store: StoreToStart) -> None:
    directory = store.queue_directory("New", 0)
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)).ljust(400, b"\0"))
    assert store.only_reason("queue_files") == Reason(
        "queue_files",
        "queue 0 of New holds only fillers: it takes no new message, and up to 4.9.8 no queue does",
        VERIFY,
    )
