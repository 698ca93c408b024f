"""Ranges of queues, and the first message of each at or after a time."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.reading import opened
from support.store_builder import LogBuilder
from support.store_to_start import StoreToStart, finished

from jobs.consumer_offsets.ranges import QueueRanges, offsets_at, queue_ranges
from jobs.log.log_scan import LogReading, scan_log
from jobs.spark.runner import Runner
from storeformat.record.decode import DecodeRules
from storeformat.store.queue_places import QueueStore
from udfs.log.scan import ScanTask


def read(root: Path, staging: Path, split_size: int = 1 << 30) -> LogReading:
    store = opened(root, needs_index_sizes=False)
    task = ScanTask(str(staging), DecodeRules(), store.dispatch_rules(), with_entries=False, with_times=True)
    staging.mkdir(exist_ok=True)
    return scan_log(Runner(), store.segments, task, split_size=split_size)


def ranges(store: StoreToStart, tmp_path: Path, *, files_stay: bool = True) -> QueueRanges:
    return queue_ranges(
        opened(store.root, needs_index_sizes=False), read(store.root, tmp_path / "runs"), files_stay=files_stay
    )


def test_ranges_are_the_logs(store: StoreToStart, tmp_path: Path) -> None:
    expected = {queue: (0, end) for queue, end in store.log.queue_offsets.items()}
    assert ranges(store, tmp_path).known == expected
    shutil.rmtree(store.root / "consumequeue")
    assert ranges(store, tmp_path).known == expected


def test_after_retention_they_begin_later(store: StoreToStart, tmp_path: Path) -> None:
    store.segment(0).unlink()
    first: dict[Any, int] = {}
    for record in store.log.records:
        if record.offset >= int(store.segment(0).name):
            first.setdefault(record.message.queue, record.message.queue_offset or 0)
    assert {queue: begin for queue, (begin, _) in ranges(store, tmp_path).known.items()} == first


def test_a_damaged_queue_offset_moves_no_end(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for offset in (0, 1, 1 << 40, 3):
        log.message(topic="T", queue_offset=offset)
    assert ranges(finished(tmp_path / "store", log), tmp_path, files_stay=False).known["T", 0] == (0, 4)


def test_a_queue_whose_messages_are_all_deleted_ends_where_its_files_do(tmp_path: Path) -> None:
    """Where queues lie in RocksDB, files that were left tell nothing."""
    log = LogBuilder(4096)
    for number in range(60):
        log.message(topic="Quiet" if number < 5 else "Busy", body=bytes(200))
    store = finished(tmp_path / "store", log)
    store.segment(0).unlink()
    assert ranges(store, tmp_path).known["Quiet", 0] == (5, 5)
    assert ranges(store, tmp_path, files_stay=False).of("Quiet", 0) == (0, 0)
    in_rocksdb = replace(opened(store.root, needs_index_sizes=False), queues_in=QueueStore("rocksdb"))
    found = queue_ranges(in_rocksdb, read(store.root, tmp_path / "runs"), files_stay=True)
    assert (set(found.known), found.unknown) == ({("Busy", 0)}, frozenset())


def test_what_has_no_queue(store: StoreToStart, tmp_path: Path) -> None:
    found = ranges(store, tmp_path)
    assert found.of("Nobody", 3) == (0, 0)
    assert found.of("%LMQ%one", 0) is None
    assert QueueRanges(unknown=frozenset({"Batch"})).of("Batch", 0) is None
    assert found.queues("Orders") == [0, 1]
    assert found.queues("Nobody") == []


@pytest.mark.parametrize("seed", range(4))
def test_the_first_message_at_or_after_a_time(seed: int, tmp_path: Path) -> None:
    """Where the clock was set back, too: no message of that time or later lies before the offset."""
    chance = random.Random(seed)
    log = LogBuilder(4096)
    clock = 1_700_000_000_000
    for _ in range(80):
        clock += chance.choice([0, 1, 5, 5, 5, -40])
        log.message(topic=chance.choice("TU"), queue_id=chance.randrange(2), store_timestamp=clock, body=bytes(50))
    root = finished(tmp_path / "store", log).root
    reading = read(root, tmp_path / "runs", split_size=chance.choice([1000, 1 << 30]))
    found = queue_ranges(opened(root, needs_index_sizes=False), reading, files_stay=True)
    times = {record.message.store_timestamp or 0 for record in log.records}
    for time in (min(times) - 1, max(times) + 1, *chance.sample(sorted(times), 5)):
        at = offsets_at(reading, found, time)
        for queue, end in log.queue_offsets.items():
            own = [record.message for record in log.records if record.message.queue == queue]
            later = [one.queue_offset for one in own if (one.store_timestamp or 0) >= time]
            assert at[str(queue[0]), queue[1]] == min((one for one in later if one is not None), default=end)
