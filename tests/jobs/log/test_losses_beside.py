"""Lost messages that only the queues of a store prove."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import golden
from support.golden import GoldenStore
from support.reading import opened
from support.rebuilding import options_for, rebuild_here, rules_of_release
from support.rocksdb_stores import with_database
from support.store_builder import LogBuilder, Message

from jobs.contract.options import LogOptions
from jobs.log.log_scan import LogReading
from jobs.log.losses_beside import PROVEN, _alone
from jobs.log.opening import counting_task, open_store, read_log
from jobs.log.restored_log import restored
from jobs.rebuild.rebuild import repair_log
from jobs.spark.runner import Runner

SIZE = 4096


def read(root: Path, settings: Any = (), **more: Any) -> LogReading:
    """The reading of a store's log, made whole before."""
    settings = options_for(root, root, dict(settings)).settings
    more = {"on_damage": "salvage", "split_size": 3_000, **more}
    options = LogOptions(store=str(root), settings=settings, **more)
    store = open_store(options, restores=True, needs_index_sizes=False)
    work = root.parent / "work-of-log"
    shutil.rmtree(work, ignore_errors=True)
    made = restored(store, options, Runner(), str(work))
    assert any("goes on to offset" in note for note in made.notes) == bool(options.replicas and not made.healed)
    return read_log(made.store, options, Runner(), counting_task(made.store))


def units_from(root: Path, offset: int) -> int:
    """How many units of ordinary queues are of records from an offset on."""
    count = 0
    for path in (root / "consumequeue").glob("*/*/0*"):
        units = np.frombuffer(path.read_bytes(), [("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
        if not path.parts[-3].startswith("%LMQ%"):
            count += int(((units["offset"] >= offset) & (units["size"] > 0)).sum())
    return count


def zero_from(root: Path, offset: int) -> None:
    for path in (root / "commitlog").iterdir():
        content, kept = bytearray(path.read_bytes()), max(offset - int(path.name), 0)
        content[kept:] = bytes(max(len(content) - kept, 0))
        path.write_bytes(content)


def unpacked(name: str, directory: Path) -> tuple[Path, dict[str, Any], list[int]]:
    """A golden store, its settings and the offsets of the records of its queues."""
    (store,) = golden.stores(name)
    root = golden.unpack(store, directory / "store")
    (root / "abort").unlink(missing_ok=True)
    reading = read(root, store.settings)
    assert (reading.losses.rows, reading.losses.at_least, reading.is_damaged) == ([], 0, False)
    found = sorted({int(at) for at in reading.queue_runs.runs.last_offsets})
    return root, dict(store.settings), found


_NEWEST = golden.newest_of_each_scenario()


@pytest.mark.parametrize(
    "store",
    [store if store in _NEWEST else pytest.param(store, marks=pytest.mark.slow) for store in golden.stores()],
    ids=str,
)
def test_a_sound_store_has_lost_nothing(store: GoldenStore, tmp_path: Path) -> None:
    root = golden.unpack(store, tmp_path / "store")
    losses = read(root, store.settings, broker_version=rules_of_release(store.version)).losses
    assert (losses.rows, losses.at_least) == ([], 0)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *(("base-clean-5.3.3", policy) for policy in ("salvage", "fail", "stop")),
        *((name, "salvage") for name in ("retention-rebuilt-5.5.0", "lmq-5.5.0", "recreate-5.1.4")),
    ],
)
def test_queues_prove_exactly_what_zeros_at_the_end_of_the_log_took(name: str, policy: str, tmp_path: Path) -> None:
    root, settings, places = unpacked(name, tmp_path)
    cut = places[len(places) // 2]
    zero_from(root, cut)
    reading = read(root, settings, on_damage=policy)
    assert reading.losses.messages == units_from(root, cut) > 1
    assert reading.losses.at_least >= reading.losses.messages  # the index knows of those in no queue
    assert {row.cause for row in reading.losses.rows} == {PROVEN}
    assert reading.is_damaged
    (root / "abort").touch()
    assert read(root, settings, on_damage=policy).losses.rows == reading.losses.rows
    assert not read(root, settings, until_offset=reading.end, on_damage=policy).losses.rows


def test_what_is_no_older_log_after_the_end_is_lost_where_queues_say_so(tmp_path: Path) -> None:
    root, settings, _ = unpacked("base-clean-5.5.0", tmp_path)
    units = np.concatenate([np.frombuffer(path.read_bytes(), [("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
                            for path in (root / "consumequeue").glob("*/*/0*")])  # fmt: skip
    first, *_, end = sorted(int(at) for at in units["offset"][units["size"] > 0])[-3:]
    for path in (root / "commitlog").iterdir():
        content, begin = bytearray(path.read_bytes()), int(path.name)
        for at in (first, end):
            if begin <= at < begin + len(content):
                content[at - begin + 4] ^= 0xFF
        path.write_bytes(content)
    reading = read(root, settings)
    assert reading.losses.messages == 2  # the one between them survived
    assert reading.is_damaged


def test_a_database_of_queues_proves_it_as_files_do(tmp_path: Path) -> None:
    root, settings = with_database("base-clean-5.3.3", tmp_path)
    kept, _, places = unpacked("base-clean-5.3.3", tmp_path / "files")
    cut = places[len(places) // 2]
    zero_from(root, cut)
    assert read(root, settings).losses.messages == units_from(kept, cut) > 1


def test_queues_of_batches_prove_what_came_after_the_end(tmp_path: Path) -> None:
    root, settings, _ = unpacked("batch-cq-5.3.3", tmp_path)
    whole = read(root, settings)
    messages = sum(int(scan.batch_runs.messages.sum()) for scan in whole.scans)
    zero_from(root, whole.begin + (whole.end - whole.begin) // 2)
    reading = read(root, settings)
    left = sum(int(scan.batch_runs.messages.sum()) for scan in reading.scans)
    batches = [row for row in reading.losses.rows if row.topic in opened(root).batch_topics]
    assert sum(row.messages for row in batches) == messages - left > 0


@pytest.mark.parametrize("bit", [40, 62])
def test_one_bit_of_a_queue_offset_proves_no_more_messages_than_the_units_hold(bit: int, tmp_path: Path) -> None:
    root, settings, _ = unpacked("batch-cq-5.3.3", tmp_path)
    zero_from(root, read(root, settings).begin + SIZE)
    sound = read(root, settings).losses
    path = max((root / "batchconsumequeue").glob("*/*/0*"))
    content = bytearray(path.read_bytes())
    last = max(at for at in range(0, len(content), 46) if any(content[at + 8 : at + 12]))
    content[last + 28 + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert read(root, settings).losses.messages == sound.messages


def test_the_name_of_a_queue_file_proves_no_units_before_it(tmp_path: Path) -> None:
    root, settings, _ = unpacked("base-clean-5.3.3", tmp_path)
    zero_from(root, read(root, settings).begin + SIZE)
    sound = read(root, settings).losses
    queue = root / "consumequeue" / "A" / "0"
    (queue / f"{0:020d}").rename(queue / f"{(1 << 63) - 8:020d}")
    assert 0 < read(root, settings).losses.messages < sound.messages


def a_store(root: Path, *lost: Message, after: Message) -> LogBuilder:
    """A log in which some messages, those of their queues alone, are damaged, and its queues."""
    log = LogBuilder(SIZE)
    log.message(Message("Other", body=b"x" * 30))
    damaged = [log.message(message) for message in lost]
    log.message(after)
    log.settle()
    log.write(root)
    (root.parent / "made").mkdir()
    built = rebuild_here(root, root.parent / "made", {"mappedFileSizeCommitLog": SIZE, "maxHashSlotNum": 100,
                                                      "maxIndexNum": 100})  # fmt: skip
    shutil.copytree(Path(built.directory) / "consumequeue", root / "consumequeue")
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[damaged[0].offset : damaged[-1].end] = b"\xff" * (damaged[-1].end - damaged[0].offset)
    path.write_bytes(content)
    return log


def test_the_last_messages_of_a_queue_count_when_damage_took_them(tmp_path: Path) -> None:
    messages = [Message("Last", number % 2, body=b"x" * 30) for number in range(5)]
    log = a_store(tmp_path / "store", *messages, after=Message("Other", body=b"x" * 30))
    losses = read(tmp_path / "store").losses
    assert sorted((row.queue_id, row.first_queue_offset, row.messages) for row in losses.rows) == [(0, 0, 3), (1, 0, 2)]
    assert (losses.messages, losses.at_least) == (5, 5)
    assert {row.begin for row in losses.rows} == {log.records[1].offset, log.records[2].offset}
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert read(tmp_path / "store").losses.at_least == 1


@pytest.mark.parametrize(("keeps", "damaged", "at_least"), [(40, True, 1), (4, True, 1), (0, False, 0), (-1, True, 1)])
def test_a_last_file_that_is_cut_short_ends_the_log_where_it_ends(
    keeps: int, damaged: bool, at_least: int, tmp_path: Path
) -> None:
    log = LogBuilder(SIZE)
    while log.end_offset < 2 * SIZE + 1_000:
        log.message(Message("Topic", body=b"x" * 50))
    log.settle()
    log.write(tmp_path / "store")
    last = log.records[-1]
    held = (last.offset if keeps >= 0 else last.end) + keeps
    path = tmp_path / "store" / "commitlog" / f"{2 * SIZE:020d}"
    path.write_bytes(path.read_bytes()[: held - 2 * SIZE])
    reading = read(tmp_path / "store")
    assert reading.end == last.offset <= held
    assert [(item.begin, item.end) for item in reading.damaged] == [(last.offset, held)] * damaged
    assert (reading.losses.at_least, reading.is_damaged, reading.unfinished) == (at_least, damaged, None)
    assert reading.unwritten_bytes == 0
    (name,) = repair_log(reading, str(tmp_path / "repaired"), {reading.segments[-1].path})
    repaired = (tmp_path / "repaired" / name).read_bytes()
    assert repaired == path.read_bytes()[: last.offset - 2 * SIZE].ljust(SIZE, b"\0")  # zeros make no record whole


@pytest.mark.parametrize("left", ["gone", "empty", "zeros"])
@pytest.mark.parametrize(("name", "policy"), [("base-clean-5.3.3", "salvage"), ("sizes-5.5.0", "fail")])
def test_a_replica_has_the_tail_that_queues_prove(name: str, left: str, policy: str, tmp_path: Path) -> None:
    root, settings, places = unpacked(name, tmp_path)
    copy, splits = shutil.copytree(root, tmp_path / "copy"), 30_000
    sound = read(copy, settings, split_size=splits)
    last = max((root / "commitlog").iterdir())
    if left == "gone":
        last.unlink()
    elif left == "empty":
        last.write_bytes(b"")
    else:
        zero_from(root, places[len(places) // 2])
    reading = read(root, settings, replicas=(str(copy),), on_damage=policy, split_size=splits)
    assert (reading.end, reading.records) == (sound.end, sound.records)
    assert not reading.is_damaged
    for path in (copy / "commitlog").iterdir():
        same = next(segment for segment in reading.segments if segment.base == int(path.name))
        assert Path(same.path).read_bytes() == path.read_bytes()
    shutil.rmtree(root / "consumequeue")
    reading = read(root, settings, replicas=(str(copy),), on_damage=policy, split_size=splits)
    assert reading.end < sound.end  # nothing proves it now


def test_queues_in_two_places_prove_no_tail(tmp_path: Path) -> None:
    root, _, _ = unpacked("base-clean-5.3.3", tmp_path)
    copy = shutil.copytree(root, tmp_path / "copy")
    max((root / "commitlog").iterdir()).unlink()
    for light, taken in (("false", True), ("true", False)):
        settings = (("rocksdbCQDoubleWriteEnable", "true"), ("combineCQUseRocksdbForLmq", light))
        options = LogOptions(store=str(root), settings=settings, replicas=(str(copy),))
        store = open_store(options, restores=True, needs_index_sizes=False)
        assert bool(restored(store, options, Runner(), str(tmp_path / light)).healed) == taken


def test_units_of_a_log_that_was_cut_prove_nothing() -> None:
    parts = [([0, 10, 5, 30], [10, 10, 10, 10]), ([40, 50, 60], [10, 15, 10]), ([100], [5]), ([90], [11])]
    kept = _alone([(np.array(places), np.array(sizes)) for places, sizes in parts])
    assert [own.tolist() for own in kept] == [[True, True, False, False], [True, True, False], [False], [False]]
    assert _alone([]) == []


def test_an_index_that_goes_on_after_the_log_proves_that_some_are_lost(tmp_path: Path) -> None:
    root, settings, _ = unpacked("base-clean-5.3.3", tmp_path)
    shutil.rmtree(root / "consumequeue")
    assert not read(root, settings).losses.at_least
    max((root / "commitlog").iterdir()).unlink()
    found = read(root, settings)
    assert (found.losses.messages, found.losses.at_least, found.is_damaged) == (0, 1, True)
    assert read(root, settings, on_damage="fail").losses.at_least == 1, "the log ends with a segment"
