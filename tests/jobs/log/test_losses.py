"""How many messages are lost, by the log, by the store's own queues, and where queue offsets are damaged."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import golden
from support.golden import GoldenStore
from support.reading import opened, read_segments
from support.rebuilding import options_for, rebuild_here, rules_of_release
from support.rocksdb_stores import with_database
from support.store_builder import LogBuilder, Message, Placed, overwrite_log

from jobs.contract.options import LogOptions
from jobs.log.log_scan import LogReading
from jobs.log.losses import DAMAGE, NO_DAMAGE, Loss, Losses, StrayRecord
from jobs.log.losses_beside import PROVEN, _alone
from jobs.log.opening import counting_task, open_store, read_log
from jobs.log.restored_log import restored
from jobs.rebuild import planning
from jobs.rebuild.rebuild import repair_log
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import DamagedLog, RecordDefect
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import DispatchRules, MultiDispatchRules
from storeformat.store.settings import Settings

# --------------------------------------------------------------------------------------------------------------- losses
SEGMENT = 1 << 16
PROBED = 4
"""The record of queue 1 that comes to stand in another queue; it is the third of its own."""


def a_log_of_thirteen() -> tuple[bytearray, list[Placed]]:
    """Two records of queue 1, one of queue 0 with room for many messages, and ten of queue 1."""
    log = LogBuilder(SEGMENT)
    for number in range(13):
        log.clock += 1
        log.message(topic="Topic", queue_id=number != 2, body=bytes(5000 if number == 2 else 20))
    return bytearray(log.segments[0]), list(log.records)


def losses_of(data: bytearray, lost: Placed) -> list[Loss]:
    data[lost.offset : lost.end] = random.Random(1).randbytes(lost.size)
    one, other = (read_segments({0: data}, split_size, "salvage").losses.rows for split_size in (SEGMENT, 500))
    assert one == other
    return one


@pytest.mark.parametrize("field", ["topic", "queue id"])
def test_a_record_of_a_queue_that_is_not_there_is_lost_to_its_own(field: str) -> None:
    """It says topic "Uopic", or queue 77, and queue offset 3; no other record says so."""
    data, records = a_log_of_thirteen()
    at = data.index(b"Topic", records[PROBED].offset)
    if field == "topic":
        data[at] += 1
    else:
        data[records[PROBED].offset + 15] = 77
    assert records[PROBED].message.queue_offset == 3
    assert [(row.queue_id, row.first_queue_offset, row.messages) for row in losses_of(data, records[2])] == [(1, 3, 1)]


def test_a_record_that_comes_into_another_queue_makes_no_losses_there() -> None:
    """Queue 0 goes on after it as if nothing had been between."""
    log = LogBuilder(SEGMENT)
    for number, queue_id in enumerate((0, 1, 1, 1, 1, 1, 1, 1, 0, 1)):
        log.clock += 1
        log.message(topic="Topic", queue_id=queue_id, body=bytes(5000 if number == 2 else 20))
    data, records = bytearray(log.segments[0]), list(log.records)
    data[records[7].offset + 15] = 0
    assert (records[7].message.queue_offset, records[8].message.queue_offset) == (6, 1)
    assert [(row.queue_id, row.first_queue_offset) for row in losses_of(data, records[2])] == [(1, 1), (1, 6)]


def test_what_is_lost_before_the_only_survivor_of_a_queue_counts() -> None:
    """No other queue misses a message there, so queue 77 had 3 that lay in the damaged bytes."""
    log = LogBuilder(SEGMENT)
    for number in range(9):
        log.clock += 1
        log.message(topic="Topic", queue_id=1, body=bytes(500 if number == 2 else 20))
    log.message(topic="Topic", queue_id=77, queue_offset=3, body=b"alone")
    (lost,) = [row for row in losses_of(bytearray(log.segments[0]), log.records[2]) if row.queue_id == 77]
    assert (lost.first_queue_offset, lost.messages) == (0, 3)


def after_damage(size: int, before: int, *numbers: int) -> list[tuple[int | None, int, str]]:
    """What is lost of a queue with the messages 0 to ``before``, then ``size`` destroyed bytes, then some numbers."""
    log = LogBuilder(SEGMENT)
    for _ in range(before):
        log.message(topic="T")
        log.message(topic="another")
    bare = log.message(topic="T").size
    log.truncate(log.records[-1].offset)
    lost = log.message(topic="T", body=bytes(size - bare))
    assert lost.size == size
    for number in numbers:
        log.message(topic="T", queue_offset=number)
        log.message(topic="another")
    return [(row.first_queue_offset, row.messages, row.cause) for row in losses_of(bytearray(log.segments[0]), lost)]


def test_damaged_bytes_hold_a_message_for_each_91_of_them() -> None:
    """A gap of three in 273 bytes is theirs; one byte less explains two at most."""
    assert after_damage(273, 1, 4, 5) == [(1, 3, DAMAGE)]
    assert after_damage(272, 1, 4, 5) == [(1, 3, NO_DAMAGE)]


def many_queues(count: int, queue_offset: int, *, damaged: int) -> list[Loss]:
    """What ``count`` queues claim that begin at ``queue_offset`` after one damaged record."""
    log = LogBuilder(1 << 20)
    log.message(topic="Topic", body=bytes(10))
    lost = log.message(topic="Topic", body=bytes(damaged))
    for number in range(count):
        log.message(topic="Topic", queue_id=number + 1, queue_offset=queue_offset)
        log.message(topic="Topic", queue_id=number + 1, queue_offset=queue_offset + 1)
    changes = [(lost.offset, b"\xff" * 90)]
    return read_segments(log.segments, 1 << 20, "salvage", changes=changes).losses.rows


def test_all_queues_together_claim_no_more_than_damaged_bytes_can_have_held() -> None:
    rows = many_queues(300, 100, damaged=91 * 250)
    assert sum(row.messages for row in rows) <= 251
    assert {row.messages for row in rows} == {100}
    assert len(rows) == 2
    assert len(many_queues(300, 1, damaged=91 * 300)) == 300


def test_what_a_report_tells_of_losses() -> None:
    one, other = Loss("T", 1, 5, 2, 100, 400), Loss("U", 0, None, 1, 500, 600, NO_DAMAGE)
    stray = StrayRecord(7, "T", 1, 2, moves_others=True)
    facts = Losses([one, other], ((0, 1), (2, 3), (4, 5)), [stray]).facts()
    assert (facts["lost_messages"], facts["lost_messages_at_least"]) == (3, 6)
    assert facts["losses"] == [vars(one), vars(other)]
    assert facts["stray_records"] == [{"offset": 7, "topic": "T", "queue_id": 1, "queue_offset": 2}]
    many = Losses([one] * 1_001, strays=[stray] * 1_001).facts()
    assert (len(many["losses"]), len(many["stray_records"])) == (1_000, 1_000)  # type: ignore[arg-type]
    assert many["lost_messages"] == 2_002


@pytest.mark.parametrize("base", [0, SEGMENT])
def test_what_lay_in_segments_that_expired_is_not_lost(base: int) -> None:
    """Queue 1 has its first message after the damage. In a log from its start the seven before it lay there."""
    log = LogBuilder(SEGMENT, base=base)
    log.queue_offsets.update({("Topic", 0): 40 if base else 0, ("Topic", 1): 7})
    for number in range(12):
        log.clock += 1
        log.message(topic="Topic", queue_id=number > 6, body=bytes(5000 if number == 2 else 20))
    changes = [(log.records[2].offset, random.Random(1).randbytes(log.records[2].size))]
    rows = read_segments(log.segments, 500, "salvage", changes=changes).losses.rows
    assert {(row.queue_id, row.first_queue_offset): row.messages for row in rows} == (
        {(0, 42): 1} if base else {(0, 2): 1, (1, 0): 7}
    )


def test_a_message_that_light_queues_share_is_lost_once() -> None:
    """A light queue that misses it adds nothing, also where the loss is at the end of its own queue."""
    log = LogBuilder(SEGMENT)
    for queue_id in (0, 0, 1, 0):
        log.multi_dispatched(Message(topic="T", queue_id=queue_id), ["%LMQ%a", "%LMQ%b"])
    names = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
    rules = DecodeRules(properties=(*DISPATCH_PROPERTIES, *names))
    dispatch = DispatchRules((), multi_dispatch=MultiDispatchRules(enable_lmq=True))
    for number, said in ((1, (1, 1)), (2, (0, 1))):
        scan = {"changes": [(log.records[number].offset, random.Random(1).randbytes(log.records[number].size))]}
        scan |= {"decode_rules": rules, "dispatch_rules": dispatch}
        losses = read_segments(log.segments, SEGMENT, "salvage", **scan).losses
        assert {row.topic for row in losses.rows} <= {"T"}
        assert (losses.messages, losses.at_least) == said


# -------------------------------------------------------------------------------------------------------- losses beside
SIZE = 4096


def read_store(root: Path, settings: Any = (), **more: Any) -> LogReading:
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
    (store,) = golden.stores(name)
    root = golden.unpack(store, directory / "store")
    (root / "abort").unlink(missing_ok=True)
    reading = read_store(root, store.settings)
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
    losses = read_store(root, store.settings, broker_version=rules_of_release(store.version)).losses
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
    reading = read_store(root, settings, on_damage=policy)
    assert reading.losses.messages == units_from(root, cut) > 1
    assert reading.losses.at_least >= reading.losses.messages  # the index knows of those in no queue
    assert {row.cause for row in reading.losses.rows} == {PROVEN}
    assert reading.is_damaged
    (root / "abort").touch()
    assert read_store(root, settings, on_damage=policy).losses.rows == reading.losses.rows
    assert not read_store(root, settings, until_offset=reading.end, on_damage=policy).losses.rows


def test_what_is_no_older_log_after_the_end_is_lost_where_queues_say_so(tmp_path: Path) -> None:
    root, settings, _ = unpacked("base-clean-5.5.0", tmp_path)
    units = np.concatenate([np.frombuffer(path.read_bytes(), [("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
                            for path in (root / "consumequeue").glob("*/*/0*")])  # fmt: skip
    first, *_, end = sorted(int(at) for at in units["offset"][units["size"] > 0])[-3:]
    for at in (first, end):
        overwrite_log(root / "commitlog", at + 4, b"?")
    reading = read_store(root, settings)
    assert reading.losses.messages == 2  # the one between them survived
    assert reading.is_damaged


def test_a_database_of_queues_proves_it_as_files_do(tmp_path: Path) -> None:
    root, settings = with_database("base-clean-5.3.3", tmp_path)
    kept, _, places = unpacked("base-clean-5.3.3", tmp_path / "files")
    cut = places[len(places) // 2]
    zero_from(root, cut)
    assert read_store(root, settings).losses.messages == units_from(kept, cut) > 1


def test_queues_of_batches_prove_what_came_after_the_end(tmp_path: Path) -> None:
    root, settings, _ = unpacked("batch-cq-5.3.3", tmp_path)
    whole = read_store(root, settings)
    messages = sum(int(scan.staged.batch_runs.messages.sum()) for scan in whole.scans)
    zero_from(root, whole.begin + (whole.end - whole.begin) // 2)
    reading = read_store(root, settings)
    left = sum(int(scan.staged.batch_runs.messages.sum()) for scan in reading.scans)
    batches = [row for row in reading.losses.rows if row.topic in opened(root).batch_topics]
    assert sum(row.messages for row in batches) == messages - left > 0


@pytest.mark.parametrize("bit", [40, 62])
def test_one_bit_of_a_queue_offset_proves_no_more_messages_than_the_units_hold(bit: int, tmp_path: Path) -> None:
    root, settings, _ = unpacked("batch-cq-5.3.3", tmp_path)
    zero_from(root, read_store(root, settings).begin + SIZE)
    sound = read_store(root, settings).losses
    path = max((root / "batchconsumequeue").glob("*/*/0*"))
    content = bytearray(path.read_bytes())
    last = max(at for at in range(0, len(content), 46) if any(content[at + 8 : at + 12]))
    content[last + 28 + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert read_store(root, settings).losses.messages == sound.messages


def test_the_name_of_a_queue_file_proves_no_units_before_it(tmp_path: Path) -> None:
    root, settings, _ = unpacked("base-clean-5.3.3", tmp_path)
    zero_from(root, read_store(root, settings).begin + SIZE)
    sound = read_store(root, settings).losses
    queue = root / "consumequeue" / "A" / "0"
    (queue / f"{0:020d}").rename(queue / f"{(1 << 63) - 8:020d}")
    assert 0 < read_store(root, settings).losses.messages < sound.messages


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
    begin, end = damaged[0].offset, damaged[-1].end
    overwrite_log(root / "commitlog", begin, b"\xff" * (end - begin))
    return log


def test_the_last_messages_of_a_queue_count_when_damage_took_them(tmp_path: Path) -> None:
    messages = [Message("Last", number % 2, body=b"x" * 30) for number in range(5)]
    log = a_store(tmp_path / "store", *messages, after=Message("Other", body=b"x" * 30))
    losses = read_store(tmp_path / "store").losses
    assert sorted((row.queue_id, row.first_queue_offset, row.messages) for row in losses.rows) == [(0, 0, 3), (1, 0, 2)]
    assert (losses.messages, losses.at_least) == (5, 5)
    assert {row.begin for row in losses.rows} == {log.records[1].offset, log.records[2].offset}
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert read_store(tmp_path / "store").losses.at_least == 1


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
    reading = read_store(tmp_path / "store")
    assert reading.end == last.offset <= held
    assert [(item.begin, item.end) for item in reading.damaged] == [(last.offset, held)] * damaged
    assert (reading.losses.at_least, reading.is_damaged, reading.notes) == (at_least, damaged, [])
    assert reading.unwritten_bytes == 0
    (name,) = repair_log(reading, str(tmp_path / "repaired"), {reading.segments[-1].path})
    repaired = (tmp_path / "repaired" / name).read_bytes()
    assert repaired == path.read_bytes()[: last.offset - 2 * SIZE].ljust(SIZE, b"\0")  # zeros make no record whole


@pytest.mark.parametrize("left", ["gone", "empty", "zeros"])
@pytest.mark.parametrize(("name", "policy"), [("base-clean-5.3.3", "salvage"), ("sizes-5.5.0", "fail")])
def test_a_replica_has_the_tail_that_queues_prove(name: str, left: str, policy: str, tmp_path: Path) -> None:
    root, settings, places = unpacked(name, tmp_path)
    copy, splits = shutil.copytree(root, tmp_path / "copy"), 30_000
    sound = read_store(copy, settings, split_size=splits)
    last = max((root / "commitlog").iterdir())
    if left == "gone":
        last.unlink()
    elif left == "empty":
        last.write_bytes(b"")
    else:
        zero_from(root, places[len(places) // 2])
    reading = read_store(root, settings, replicas=(str(copy),), on_damage=policy, split_size=splits)
    assert (reading.end, reading.records) == (sound.end, sound.records)
    assert not reading.is_damaged
    for path in (copy / "commitlog").iterdir():
        same = next(segment for segment in reading.segments if segment.base == int(path.name))
        assert Path(same.path).read_bytes() == path.read_bytes()
    shutil.rmtree(root / "consumequeue")
    reading = read_store(root, settings, replicas=(str(copy),), on_damage=policy, split_size=splits)
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
    assert not read_store(root, settings).losses.at_least
    max((root / "commitlog").iterdir()).unlink()
    found = read_store(root, settings)
    assert (found.losses.messages, found.losses.at_least, found.is_damaged) == (0, 1, True)
    assert read_store(root, settings, on_damage="fail").losses.at_least == 1, "the log ends with a segment"


# ------------------------------------------------------------------------------------------------------ damaged offsets
# Damage that leaves the chain of sizes whole: a record's own offset, its place in its queue, a queue's first record.
#
# No broker looks at PHYSICALOFFSET when it recovers, so ``stop`` does not end the log there either; but the record goes
# to no queue, and every policy says so.
POLICIES = ("stop", "salvage")


def a_log(**fields: object) -> LogBuilder:
    """Two queues in turn, over three segments."""
    log = LogBuilder(SIZE)
    while log.end_offset < 2 * SIZE + 1000:
        log.message(Message(queue_id=len(log.records) % 2, body=b"x" * (len(log.records) % 40)), **fields)
    return log


def read(log: LogBuilder, on_damage: str, *changes: tuple[int, bytes], split_size: int = SIZE) -> LogReading:
    rules = DecodeRules(as_broker=on_damage == "stop")
    return read_segments(log.segments, split_size, on_damage, changes=changes, decode_rules=rules)


def own_offset(placed: Placed) -> tuple[int, bytes]:
    return placed.offset + 28, struct.pack(">q", placed.offset ^ 1 << 33)


def places_of(log: LogBuilder) -> dict[str, int]:
    """A record in the middle of a segment, the first of one, the last of its queue."""
    first = next(number for number, placed in enumerate(log.records) if placed.offset == SIZE)
    return {"middle": 8, "first of its segment": first, "last of its queue": len(log.records) - 2}


@pytest.mark.parametrize("where", ["middle", "first of its segment", "last of its queue"])
@pytest.mark.parametrize("property_crc", [False, True], ids=["plain", "property-crc"])
@pytest.mark.parametrize("split_size", [300, SIZE])
def test_a_damaged_own_offset_costs_that_record_under_every_policy(
    where: str, property_crc: bool, split_size: int
) -> None:
    log = a_log(property_crc=property_crc)
    lost = log.records[places_of(log)[where]]
    change = own_offset(lost)
    with pytest.raises(DamagedLog):
        read(log, "fail", change, split_size=split_size)
    for policy in POLICIES:
        reading = read(log, policy, change, split_size=split_size)
        assert (reading.end, reading.records) == (log.end_offset, len(log.records) - 1), policy
        assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)], policy
        assert reading.losses.facts()["lost_messages_at_least"] == 1
        if policy == "salvage" and property_crc and where == "last of its queue":
            continue  # nothing proves its head: one record is lost, but nobody knows which
        (loss,) = reading.losses.rows
        expected = (lost.message.queue_id, lost.message.queue_offset, 1)
        assert (loss.queue_id, loss.first_queue_offset, loss.messages) == expected


@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("task", [{"with_units": False}, {"topics": (TopicFilter("A", None),)},
                                  {"topics": (TopicFilter("B", None),)}])  # fmt: skip
def test_a_damaged_own_offset_is_told_whatever_queues_are_read(number: int, task: dict[str, Any]) -> None:
    """The first record of its queue, too; an index alone would miss the message without a word."""
    log = LogBuilder(SIZE)
    for _ in range(20):
        log.message(Message("AB"[len(log.records) % 2]))
    lost = log.records[number]
    task = {**task, "changes": [own_offset(lost)]}
    with pytest.raises(DamagedLog) as refused:
        read_segments(log.segments, SIZE, **task)
    assert str(refused.value) == f"the commit log is damaged: {RecordDefect.FOREIGN_OFFSET} (0, offset {lost.offset})"
    assert refused.value.advice == "--on-damage salvage fills the place of the message"
    reading = read_segments(log.segments, SIZE, "stop", **task)
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert (reading.foreign_records, reading.losses.facts()["lost_messages_at_least"]) == ([], 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_record_of_another_place_is_lost_where_its_own_queue_ends(policy: str) -> None:
    """And nowhere else: not in a queue of another topic with the same id."""
    log = LogBuilder(SIZE)
    for number in range(20):
        log.message(Message("AB"[number % 2], 1))
    reading = read(log, policy, own_offset(log.records[19]))
    (loss,) = reading.losses.rows
    assert (loss.topic, loss.queue_id, loss.first_queue_offset, loss.messages) == ("B", 1, 9, 1)

    other = log.message(Message("C", 1, queue_offset=10))
    log.message(Message("A", 0))
    reading = read(log, policy, own_offset(log.records[4]), own_offset(other))
    (loss,) = reading.losses.rows
    assert (loss.topic, loss.queue_id, loss.first_queue_offset, loss.messages) == ("A", 1, 2, 1)
    assert reading.foreign_records == [(other.offset, other.size)]


def test_stop_goes_on_after_a_property_crc_that_no_broker_looks_at() -> None:
    log = a_log(property_crc=True)
    flag = log.records[5].offset + 16
    reading = read(log, "stop", (flag, b"\1"))
    assert (reading.end, reading.records, reading.damaged) == (log.end_offset, len(log.records), [])
    assert read(log, "salvage", (flag, b"\1")).records == len(log.records) - 1


def test_stop_goes_on_after_a_blank_of_another_size() -> None:
    log = a_log()
    blank = next(placed.end for placed in log.records if placed.end + 200 > SIZE)
    for size, end in ((12, log.end_offset), (-3, log.end_offset), (SIZE, blank)):
        reading = read(log, "stop", (blank, struct.pack(">i", size)))
        assert reading.end == end


def test_a_segment_that_was_moved_is_stepped_over_by_stop_alone() -> None:
    """As a broker steps over it; it dispatches what lies there to places where something else is."""
    log = a_log()
    moved = (SIZE, log.segments[0])
    with pytest.raises(DamagedLog, match="FOREIGN_OFFSET"):
        read(log, "fail", moved)
    inside = [placed for placed in log.records if SIZE <= placed.offset < 2 * SIZE]
    reading = read(log, "stop", moved)
    assert reading.end == log.end_offset
    assert reading.records == len(log.records) - len(inside)
    assert reading.losses.messages == len(inside)
    assert reading.damaged


def test_zeros_before_a_segment_of_which_the_blank_is_damaged_are_lost_pages() -> None:
    log = LogBuilder(SIZE)
    record = log.message(body=b"x" * 100)
    log.blank()
    log.blank()
    tail = record.end, bytes(SIZE - record.end)
    reading = read(log, "salvage", (record.offset + 84, struct.pack(">i", 7)), tail, (SIZE, struct.pack(">i", 9)))
    named = [(item.begin, item.end) for item in reading.damaged]
    assert named == [(0, record.end), (record.end, SIZE), (SIZE, SIZE + 8)]
    assert (reading.end, reading.blank_bytes) == (2 * SIZE, SIZE - 8)


@pytest.mark.parametrize("follow", [1, 3])
@pytest.mark.parametrize("split_size", [100, 600, 1000, SIZE])
def test_a_log_does_not_end_at_zeros_that_records_follow(split_size: int, follow: int) -> None:
    """The zeros fill splits; what follows ends with a split, or is all that one holds."""
    log = LogBuilder(SIZE)
    for _ in range(15):
        log.message(body=b"x" * 20)
    assert log.end_offset == 3 * 600
    begin, end = log.records[5].offset, log.records[-follow].offset
    zeros = begin, bytes(end - begin)
    reading = read(log, "salvage", zeros, split_size=split_size)
    assert (reading.records, reading.losses.messages, reading.end) == (5 + follow, 10 - follow, log.end_offset)
    with pytest.raises(DamagedLog, match="zeros"):
        read(log, "fail", zeros, split_size=split_size)


# ------------------------------------------------------------------------------------------------ a topic created anew
def a_topic_created_anew(more: int) -> tuple[LogBuilder, list[Placed]]:
    """A queue of eight messages, and of ``more`` in its second life, with messages of another topic between all."""
    log = LogBuilder(SIZE)
    for _ in range(8):
        log.message(topic="T", body=b"old")
        log.message(topic="other", body=b"x")
    log.delete_topic("T")
    new = []
    for _ in range(more):
        log.message(topic="other", body=b"x")
        new.append(log.message(topic="T", body=b"new"))
    log.message(topic="other", body=b"x")
    log.settle()
    return log, new


def planned(reading: LogReading) -> planning.QueuesPlan:
    layout = Settings(observed={"mappedFileSizeConsumeQueue": 1000})
    return planning.plan_queue_files(reading.queue_runs, reading.scans, layout)


@pytest.mark.parametrize("destroyed", [1, 2])
@pytest.mark.parametrize("what", [pytest.param(b"\xa5" * 88, id="head"), pytest.param(b"\0\0\0\7", id="size")])
@pytest.mark.parametrize("split_size", [150, SIZE])
def test_a_topic_created_anew_stays_so_without_its_first_messages(destroyed: int, what: bytes, split_size: int) -> None:
    log, new = a_topic_created_anew(5)
    reading = read(log, "salvage", *((placed.offset, what) for placed in new[:destroyed]), split_size=split_size)
    assert reading.records == len(log.records) - destroyed
    plan = planned(reading)
    assert plan.created_anew == {("T", 0)}
    (loss,) = [row for row in reading.losses.rows if row.topic == "T"]
    assert (loss.first_queue_offset, loss.messages) == (0, destroyed)
    (file,) = [file for file in plan.files if file.path.startswith("consumequeue/T/")]
    table = file.slices.table
    assert (file.pre_blanks, file.slices.rows, table["count"][table["filler"]].sum()) == (0, 5, destroyed)
    assert [(note["note"].partition(":")[0], note["messages"]) for note in plan.notes] == [
        ("the topic was deleted and created again", 8)
    ]
    assert (plan.queues, plan.offset_sum) == (2, None)
    assert plan.units == sum(file.slices.rows for file in plan.files) == 5 + 8 + 5 + 1


def test_where_one_message_alone_is_left_of_a_new_life_the_report_says_that_nobody_can_tell() -> None:
    log, new = a_topic_created_anew(2)
    reading = read(log, "salvage", (new[0].offset, bytes(88)))
    plan = planned(reading)
    assert plan.created_anew == frozenset()
    (note,) = plan.notes
    assert "created again in what is lost" in note["note"]
    assert (note["topic"], note["messages"]) == ("T", 1)


def test_a_corrupt_queue_offset_is_no_new_life() -> None:
    log, new = a_topic_created_anew(0)
    old = [placed for placed in log.records if placed.message.topic == "T"]
    reading = read(log, "salvage", (old[3].offset, b"\xa5" * 88), (old[5].offset + 20, struct.pack(">q", 1)))
    assert planned(reading).created_anew == frozenset()
    assert not new


def test_a_record_of_another_place_may_be_all_that_lies_after_the_last_damage() -> None:
    log = a_log()
    damaged, last = log.records[-2:]
    body = damaged.offset + 88, b"\xff\xfe\xfd"
    reading = read(log, "salvage", body, own_offset(last))
    assert (reading.end, reading.records) == (log.end_offset, len(log.records) - 2)
