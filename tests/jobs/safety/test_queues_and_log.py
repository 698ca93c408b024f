"""Queues against the end of the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, finished, healthy_store

from storeformat.store.checkpoint import StoreCheckpoint

NOT_SERVED = "messages_not_served"


@pytest.mark.parametrize("version", ["4.6", "4.9", "5.0", "5.1", "5.3", "5.5"])
def test_a_healthy_store(tmp_path: Path, version: str) -> None:
    store = healthy_store(tmp_path / "store", version=version)
    assert store.answer().lines() == ["safe to start"]


@pytest.mark.parametrize(
    ("version", "lost"), [("4.9", 0), ("5.1", 4), ("5.3", 4), ("5.5", 1)], ids=["4.9", "5.1", "5.3", "5.5"]
)
def test_a_lag_after_a_clean_stop(tmp_path: Path, version: str, lost: int) -> None:
    """4.9 goes on where the queues end, 5.0 to 5.3.1 nowhere, 5.4 and later after the first record there."""
    store = healthy_store(tmp_path / "store", dispatched=36, version=version)
    store.commit({})
    reasons = store.reasons(NOT_SERVED)
    assert [reason.found for reason in reasons] == [lost] * bool(lost)
    assert all("a start after a clean stop does not put them there" in reason.what for reason in reasons)
    assert store.answer().safe is not bool(lost)


@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_a_lag_after_a_crash_is_made_good(tmp_path: Path, version: str) -> None:
    store = healthy_store(tmp_path / "store", dispatched=30, version=version)
    (store.root / "abort").touch()
    assert store.answer().first_line == "safe to start"


def test_a_lag_after_a_crash_that_the_checkpoint_hides(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=4)
    (store.root / "abort").touch()
    time = store.log.clock + 5000
    (store.root / "checkpoint").write_bytes(StoreCheckpoint(time, time).to_bytes())
    store.commit({})
    assert store.only_reason(NOT_SERVED).found > 4
    assert "a start after a crash does not put them there" in store.only_reason(NOT_SERVED).what


def test_recovery_goes_back_ten_segments_at_most(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=400, dispatched=0, version="5.5")
    (store.root / "abort").touch()
    store.commit({})
    reason = store.only_reason(NOT_SERVED)
    first_seen = int(store.segment(-10).name)
    assert reason.found == sum(record.offset < first_seen for record in store.log.records)
    store.conf["commitLogRecoverMaxNum"] = "1000"
    assert store.answer().safe


@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_one_queue_lost(store: StoreToStart, version: str) -> None:
    store.version = version
    store.commit({})
    shutil.rmtree(store.queue_directory("Orders", 0))
    reason = store.only_reason(NOT_SERVED)
    assert (reason.found, reason.unsafe) == (10, True)


def test_a_deleted_topic_is_no_lost_queue(store: StoreToStart) -> None:
    shutil.rmtree(store.root / "consumequeue" / "Stock")
    store.write_config("topics.json", {"topicConfigTable": {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}}})
    store.commit({})
    assert not store.only_reason(NOT_SERVED).unsafe


def test_a_topic_made_anew_is_no_lost_queue(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "first")
    store.log.delete_topic("Orders")
    for _ in range(3):
        store.log.message(topic="Orders", queue_id=1)
    again = finished(tmp_path / "store", store.log)
    shutil.rmtree(again.queue_directory("Orders", 0))
    again.commit({})
    assert not again.only_reason(NOT_SERVED).unsafe


def test_a_log_without_segments(store: StoreToStart) -> None:
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert store.only_reason("log_missing").unsafe


# -------------------------------------------------------------------------------------------------- the end of the log
def test_a_torn_tail_is_a_note(store: StoreToStart) -> None:
    end = store.log.end_offset
    record = store.segment(0).read_bytes()[:100]
    last = store.segment(-1)
    data = bytearray(last.read_bytes())
    place = end % store.log.segment_size
    data[place : place + len(record)] = record
    last.write_bytes(bytes(data))
    reason = store.only_reason("torn_tail")
    assert not reason.unsafe
    assert f"offset {end}" in reason.what
    assert store.answer().safe


@pytest.mark.parametrize("number", [5, 20, 38])
def test_damage_with_records_after_it(store: StoreToStart, number: int) -> None:
    record = store.log.records[number]
    path = store.root / "commitlog" / f"{record.offset // 4096 * 4096:020d}"
    data = bytearray(path.read_bytes())
    data[record.offset % 4096 + 95] ^= 1
    path.write_bytes(bytes(data))
    reason = store.only_reason("log_damaged")
    assert f"damaged at offset {record.offset}" in reason.what
    assert reason.unsafe


def many_segments(root: Path, version: str, damaged: int) -> StoreToStart:
    """A store of some eight segments, with a damaged record in one of them."""
    store = healthy_store(root, 180, version=version)
    path = store.segment(damaged)
    data = bytearray(path.read_bytes())
    data[95] ^= 1
    path.write_bytes(bytes(data))
    return store


@pytest.mark.parametrize("version", ["4.9", "5.1", "5.3", "5.5"])
def test_damage_before_what_recovery_reads(tmp_path: Path, version: str) -> None:
    """Nothing is cut, and what lies after it is judged; a start after a crash may go back that far."""
    store = many_segments(tmp_path, version, 1)
    reason = store.only_reason("log_damaged")
    assert (reason.unsafe, reason.found) == (False, [4096])
    assert store.answer().safe
    assert store.evidence().tail.end == store.log.end_offset
    (store.root / "abort").touch()
    assert store.only_reason("log_damaged").unsafe


@pytest.mark.parametrize(("version", "unsafe"), [("4.9", True), ("5.1", True), ("5.3", True), ("5.5", False)])
def test_how_far_back_recovery_reads(tmp_path: Path, version: str, unsafe: bool) -> None:
    """The third-last segment; 5.3.2 and later that in which the furthest queue ends, but 5.3.1 has the same rules."""
    store = many_segments(tmp_path, version, -3)
    assert store.only_reason("log_damaged").unsafe is unsafe


def test_a_later_database_of_transactions_goes_back_further(tmp_path: Path) -> None:
    store = many_segments(tmp_path, "5.5", -3)
    store.conf["transRocksDBEnable"] = "true"
    assert store.only_reason("log_damaged").unsafe


def test_messages_after_damage_that_recovery_does_not_read_are_looked_for(tmp_path: Path) -> None:
    store = many_segments(tmp_path, "5.5", 1)
    shutil.rmtree(store.queue_directory("Orders", 0))
    (reason,) = store.reasons("messages_not_served")
    assert reason.unsafe
    assert reason.found > 30


def test_zeros_in_the_middle_are_damage(store: StoreToStart) -> None:
    path = store.segment(-1)
    data = bytearray(path.read_bytes())
    data[:400] = bytes(400)
    path.write_bytes(bytes(data))
    assert not store.answer().safe


def test_leftovers_after_the_end_are_none(store: StoreToStart) -> None:
    """A broker that cut its log wrote on; records of the old log lie after its end, older than the last one."""
    store.log.truncate(store.log.records[36].offset)
    store.log.message(topic="Orders", queue_id=0, body=bytes(45), store_timestamp=store.log.clock + 10_000)
    shutil.rmtree(store.root)
    again = finished(store.root, store.log)
    assert again.answer().safe


# ------------------------------------------------------------------------------------------------------ files of queues
def test_a_stray_file_in_a_queue(store: StoreToStart) -> None:
    (store.queue_directory("Orders", 0) / "notes.txt").write_text("x")
    assert store.only_reason("queue_files").what.endswith("notes.txt is not a queue file")


def test_a_queue_file_of_another_length(store: StoreToStart) -> None:
    path = store.queue_directory("Orders", 0) / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-20])
    assert store.only_reason("queue_files").expected.startswith("400 bytes")
    assert store.only_reason("queue_files").what.endswith("has the wrong length: the broker does not start")


def test_an_empty_file_after_a_full_one(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=80)
    (store.queue_directory("Orders", 0) / f"{400:020d}").write_bytes(bytes(400))
    assert "without a message" in store.only_reason("queue_files").what


def test_an_empty_file_after_an_unfinished_one(store: StoreToStart) -> None:
    """The broker deletes it."""
    (store.queue_directory("Orders", 0) / f"{400:020d}").write_bytes(bytes(400))
    assert store.answer().safe


def test_a_hole_before_the_last_file(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=200)
    path = store.queue_directory("Orders", 0) / f"{400:020d}"
    path.write_bytes(path.read_bytes()[:200].ljust(400, b"\0"))
    assert store.only_reason("queue_files").found == 10


def test_a_queue_of_fillers(store: StoreToStart) -> None:
    directory = store.queue_directory("New", 0)
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)).ljust(400, b"\0"))
    assert "fillers" in store.only_reason("queue_files").what
