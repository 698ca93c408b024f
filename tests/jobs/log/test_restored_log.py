"""A log made whole before it is read: missing and short segments, and damage healed from copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import entry_log
from support.drilling import run_job
from support.store_builder import LogBuilder, Message, overwrite_log

from jobs.contract.options import LogOptions
from jobs.contract.report import Reporter
from jobs.log.opening import counting_task, open_store, read_log
from jobs.log.restored_log import Restored, filled, restored
from jobs.rebuild.rebuild import repair_log
from jobs.spark import session
from jobs.spark.runner import Runner
from storeformat.errors import DamagedLog, MissingInput, NotAStore, Refused

SIZE = 4096


def a_log(segments: int = 5) -> LogBuilder:
    log = LogBuilder(SIZE)
    while log.end_offset < (segments - 1) * SIZE + 1_000:
        log.message(Message("Topic", len(log.records) % 2, body=b"x" * (len(log.records) % 50), property_crc=True))
    log.settle()
    return log


@pytest.fixture
def log() -> LogBuilder:
    return a_log()


def written(log: LogBuilder, root: Path) -> Path:
    log.write(root)
    return root


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SIZE:020d}"


def spoil(root: Path, offset: int, data: bytes = b"\xff" * 200) -> None:
    overwrite_log(root / "commitlog", offset, data[: SIZE - offset % SIZE])


def whole(root: Path, work: Path, *replicas: Path, refuses: bool = True, **more: Any) -> tuple[Restored, Any]:
    """What is done for a store's log, and the reading of it then."""
    options = LogOptions(store=str(root), replicas=tuple(map(str, replicas)), split_size=1_000, **more)
    store = open_store(options, restores=True)
    found = restored(store, options, Runner(), str(work), refuses=refuses)
    return found, read_log(found.store, options, Runner(), counting_task(found.store))


def contents(found: Restored) -> dict[int, bytes]:
    return {item.base: Path(item.path).read_bytes() for item in found.store.segments}


def test_a_sound_log_is_left_as_it_is(log: LogBuilder, tmp_path: Path) -> None:
    root = written(log, tmp_path / "root")
    found, reading = whole(root, tmp_path / "work")
    assert (found.facts(), found.made, reading.records) == ({}, [], len(log.records))
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("number", [1, 3])
def test_a_missing_segment_is_a_damaged_range_of_its_length(log: LogBuilder, tmp_path: Path, number: int) -> None:
    root = written(log, tmp_path / "root")
    segment(root, number).unlink()
    for policy in ("fail", "stop"):
        with pytest.raises(NotAStore, match="missing"):
            whole(root, tmp_path / "work", on_damage=policy)
    found, reading = whole(root, tmp_path / "work", on_damage="salvage")
    begin = number * SIZE
    assert [(item.begin, item.end) for item in reading.damaged] == [(begin, begin + SIZE)]
    lost = [placed for placed in log.records if begin <= placed.offset < begin + SIZE]
    assert (reading.losses.messages, reading.records) == (len(lost), len(log.records) - len(lost))
    assert len(found.notes) == 1
    row = {"begin": begin, "end": begin + SIZE, "reason": "no file holds these bytes"}
    assert found.facts() == {"absent_ranges": [row], "healed_ranges": [], "replicas": []}
    made = tmp_path / "work" / "filled" / segment(root, number).name
    assert (found.made, made.read_bytes()) == ([str(made)], bytes(SIZE))
    assert {item.missing for item in found.store.segments} == {0}
    (name,) = repair_log(reading, str(tmp_path / "repaired"), found.made)
    shutil.copy(tmp_path / "repaired" / name, segment(root, number))
    _, again = whole(root, tmp_path / "work2")
    assert (again.damaged, again.losses.messages) == ([], len(lost))


@pytest.mark.parametrize("length", [0, 1, 1_000, SIZE - 8])
def test_a_short_segment_is_damaged_from_where_it_ends(log: LogBuilder, tmp_path: Path, length: int) -> None:
    root = written(log, tmp_path / "root")
    segment(root, 2).write_bytes(segment(root, 2).read_bytes()[:length])
    with pytest.raises(NotAStore, match="length"):
        whole(root, tmp_path / "work")
    found, reading = whole(root, tmp_path / "work", on_damage="salvage")
    held = [placed for placed in log.records if not 2 * SIZE + length < placed.end <= 3 * SIZE]
    assert reading.records == len(held)
    assert reading.losses.messages == len(log.records) - len(held)
    assert found.absent[0][0] == 2 * SIZE + length
    assert all(2 * SIZE + length - 200 < item.begin < item.end <= 3 * SIZE for item in reading.damaged)


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("copied", [True, False])
def test_a_file_that_ends_within_the_properties_of_a_record_holds_no_sound_record_there(
    number: int, copied: bool, tmp_path: Path
) -> None:
    """Zeros in place of its last bytes would pass each check."""
    log = LogBuilder(SIZE)
    while log.end_offset < 4 * SIZE + 1_000:
        log.message(Message("Topic", body=b"x" * 50, properties={"long": "y" * 50}))
    log.settle()
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    last = [record for record in log.records if record.offset // SIZE == number][-1]
    os.truncate(segment(root, number), last.end - 20 - number * SIZE)
    found, reading = whole(root, tmp_path / "work", *([slave] * copied), on_damage="salvage")
    assert found.is_held == copied
    if copied:
        assert (reading.records, reading.is_damaged, found.notes[1:]) == (len(log.records), False, [])


@pytest.mark.parametrize("policy", ["fail", "salvage"])
def test_two_copies_damaged_in_different_places_make_one_whole_log(
    log: LogBuilder, tmp_path: Path, policy: str
) -> None:
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    spoil(root, log.records[5].offset + 10)
    segment(root, 2).unlink()
    segment(root, 3).write_bytes(segment(root, 3).read_bytes()[:500])
    spoil(slave, log.records[12].offset + 40)
    spoil(slave, 4 * SIZE + 3)
    found, reading = whole(root, tmp_path / "work", slave, on_damage=policy)
    assert (reading.damaged, reading.losses.rows, reading.records) == ([], [], len(log.records))
    assert contents(found) == log.segments
    assert {item.missing for item in found.store.segments} == {0}
    assert (found.healed[0]["begin"], found.healed[0]["replica"]) == (log.records[5].offset, str(slave))
    assert not reading.is_damaged
    assert reading.damaged_places, "a broker would still cut the store's own log there"
    names = repair_log(reading, str(tmp_path / "repaired"), found.made)
    assert {name: (tmp_path / "repaired" / name).read_bytes() for name in names} == {
        segment(root, number).name: log.segments[number * SIZE] for number in (0, 2, 3)
    }


def test_three_copies_heal_range_by_range(log: LogBuilder, tmp_path: Path) -> None:
    roots = [written(log, tmp_path / name) for name in ("root", "one", "two")]
    for root in roots[:2]:
        spoil(root, log.records[5].offset + 10, b"\xff" * 20)
    for root in (roots[0], roots[2]):
        spoil(root, log.records[30].offset + 10, b"\xff" * 20)
    found, reading = whole(roots[0], tmp_path / "work", *roots[1:])
    assert reading.records == len(log.records)
    assert [(item["begin"], item["replica"]) for item in found.healed] == [
        (log.records[5].offset, str(roots[2])), (log.records[30].offset, str(roots[1])),
    ]  # fmt: skip


def test_what_is_damaged_in_all_copies_is_salvaged(log: LogBuilder, tmp_path: Path) -> None:
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    spoil(root, log.records[5].offset + 10, b"\xff" * (log.records[8].offset - log.records[5].offset))
    spoil(slave, log.records[7].offset + 10, b"\xff" * 20)
    found, reading = whole(root, tmp_path / "work", slave, on_damage="salvage")
    (lost,) = reading.losses.rows
    assert (lost.begin, lost.end, lost.messages) == (log.records[7].offset, log.records[7].end, 1)
    assert reading.records == len(log.records) - 1
    assert found.healed


def test_a_segment_that_no_copy_has_is_refused_as_before(log: LogBuilder, tmp_path: Path) -> None:
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    segment(root, 2).unlink()
    segment(slave, 2).unlink()
    with pytest.raises(NotAStore, match="missing"):
        whole(root, tmp_path / "work", slave)


def test_copies_that_differ_in_sound_records_are_refused_with_the_first_such_offset(tmp_path: Path) -> None:
    one, other = a_log(), LogBuilder(SIZE)
    for placed in one.records:
        other.message(placed.message if placed.offset < 2 * SIZE else Message("Other", 0, property_crc=True))
    root, split = written(one, tmp_path / "root"), written(other, tmp_path / "split")
    spoil(root, one.records[3].offset + 10)
    with pytest.raises(Refused, match="differ") as refused:
        whole(root, tmp_path / "work", split)
    pairs = zip(one.segments[2 * SIZE], other.segments[2 * SIZE], strict=True)
    first = 2 * SIZE + next(at for at, (left, right) in enumerate(pairs) if left != right)
    assert (refused.value.path, refused.value.offset) == (str(split), first)
    found, reading = whole(root, tmp_path / "work2", split, refuses=False, on_damage="salvage")
    assert found.replicas[0]["first_difference"] == first
    assert (found.healed, len(reading.damaged)) == ([], 1)
    assert f"{split} differs from this log in a sound record at {first}" in found.notes


def test_a_longer_replica_is_told_and_not_taken(log: LogBuilder, tmp_path: Path) -> None:
    root = written(log, tmp_path / "root")
    end = log.end_offset
    log.message(Message("Topic", 0, body=b"later"))
    slave = written(log, tmp_path / "slave")
    found, reading = whole(root, tmp_path / "work", slave)
    assert (found.healed, reading.end, len(found.notes)) == ([], end, 1)
    assert found.replicas == [{
        "replica": str(slave), "log_begin": 0, "log_end": log.end_offset, "damaged_ranges": [],
        "first_difference": None,
    }]  # fmt: skip
    assert found.facts() == {"absent_ranges": [], "healed_ranges": [], "replicas": found.replicas}


@pytest.mark.parametrize("hours", [None, 0])
def test_a_missing_head_is_taken_from_a_replica_where_retention_would_have_kept_it(
    log: LogBuilder, tmp_path: Path, hours: int | None
) -> None:
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    for number in (0, 1):
        segment(root, number).unlink()
    settings = () if hours is None else (("fileReservedTime", str(hours)),)
    found, reading = whole(root, tmp_path / "work", slave, settings=settings)
    if hours is None:
        assert contents(found) == log.segments
        assert (reading.begin, reading.records, reading.rules.whole) == (0, len(log.records), True)
        assert [(item["begin"], item["end"]) for item in found.healed] == [(0, 2 * SIZE)]
        assert found.absent == [(0, SIZE), (SIZE, 2 * SIZE)]
    else:
        assert (reading.begin, found.healed, found.absent) == (2 * SIZE, [], [])
        (note,) = found.notes
        assert note.startswith(f"{slave} begins at offset 0, this log at {2 * SIZE}: what is between is older")


def test_a_replica_that_begins_far_away_is_of_another_log(log: LogBuilder, tmp_path: Path) -> None:
    far = LogBuilder(SIZE, 1 << 50)
    far.message(Message("Topic", 0, queue_offset=len(log.records)))
    far.settle()
    root, slave = written(far, tmp_path / "root"), written(log, tmp_path / "slave")
    with pytest.raises(NotAStore, match="more than 1000 segments apart"):
        whole(root, tmp_path / "work", slave)


def test_of_a_missing_head_a_salvage_takes_what_a_replica_has_without_damage(log: LogBuilder, tmp_path: Path) -> None:
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    for number in (0, 1):
        segment(root, number).unlink()
    spoil(slave, log.records[2].offset + 4, b"\xff" * 4)
    with pytest.raises(NotAStore) as refused:
        whole(root, tmp_path / "work", slave)
    assert (refused.value.what, refused.value.offset) == (
        "bytes of the commit log are missing, and no replica has them without damage",
        log.records[2].offset,
    )
    found, reading = whole(root, tmp_path / "salvaged", slave, on_damage="salvage")
    assert (reading.begin, reading.records) == (0, len(log.records) - 1)
    lost = log.records[2]
    assert [(item["begin"], item["end"]) for item in found.healed] == [
        (0, lost.offset),
        (lost.offset + lost.size, 2 * SIZE),
    ]


def test_a_replica_must_be_there(log: LogBuilder, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="there is no such replica"):
        whole(written(log, tmp_path / "root"), tmp_path / "work", tmp_path / "nowhere")


@pytest.mark.parametrize("field", ["queue id", "queue offset", "topic"])
def test_repair_log_fills_the_place_of_a_stray_record(tmp_path: Path, field: str) -> None:
    log = LogBuilder(SIZE)
    for number in range(30):
        log.message(Message("Topic", number % 2, body=b"x" * number))
    log.settle()
    root, stray = written(log, tmp_path / "root"), log.records[9]
    at, data = {"queue id": (12, b"\0\0\0\7"), "queue offset": (27, b"\2"), "topic": (89 + 9, b"Uopic")}[field]
    spoil(root, stray.offset + at, data)
    with pytest.raises(DamagedLog):
        whole(root, tmp_path / "work")
    found, reading = whole(root, tmp_path / "work", on_damage="salvage")
    assert reading.is_damaged
    (name,) = repair_log(reading, str(tmp_path / "repaired"), found.made)
    repaired = (tmp_path / "repaired" / name).read_bytes()
    sound = log.segments[0]
    assert (repaired[: stray.offset], repaired[stray.end :]) == (sound[: stray.offset], sound[stray.end :])
    (root / "commitlog" / name).write_bytes(repaired)
    _, again = whole(root, tmp_path / "work")
    assert again.queue_runs.plan().queues["end"].tolist() == [15, 15]


def entry_segment(root: Path, number: int) -> Path:
    return root / "dledger-n0" / "data" / f"{number * SIZE:020d}"


def test_members_of_a_group_heal_each_other(tmp_path: Path) -> None:
    """Entries of all members are the same bytes."""
    log = entry_log.a_log()
    root, other = log.write(tmp_path / "root", 59), log.write(tmp_path / "other", 59)
    for place in (root, other):
        spoiled = bytearray(entry_segment(place, 0).read_bytes())
        at = log.records[3 if place == root else 7].offset
        spoiled[at + 90 : at + 95] = b"\xff" * 5
        entry_segment(place, 0).write_bytes(spoiled)
    entry_segment(root, 1).unlink()
    (other / "dledger-n0").rename(other / "dledger-n1")
    found, reading = whole(root, tmp_path / "work", other)
    assert (reading.damaged, reading.records) == ([], len(log.records))
    assert contents(found) == log.segments
    names = repair_log(reading, str(tmp_path / "repaired"), found.made)
    assert names == [entry_segment(root, number).name for number in (0, 1)]


def test_entries_that_no_member_has_are_not_filled_in(tmp_path: Path) -> None:
    log = entry_log.a_log()
    root, other = log.write(tmp_path / "root", 59), log.write(tmp_path / "other", 59)
    for place in (root, other):
        entry_segment(place, 1).write_bytes(b"\xff" * 300 + entry_segment(place, 1).read_bytes()[300:])
    found, reading = whole(root, tmp_path / "work", other, on_damage="salvage")
    with pytest.raises(Refused, match="entries cannot be filled in"):
        repair_log(reading, str(tmp_path / "repaired"), found.made)


def test_a_log_without_entries_is_no_replica_of_one_with_them(log: LogBuilder, tmp_path: Path) -> None:
    root, other = entry_log.a_log().write(tmp_path / "root", 59), written(log, tmp_path / "other")
    for own, copy in ((root, other), (other, root)):
        with pytest.raises(Refused, match="DLedger"):
            whole(own, tmp_path / "work", copy)


def test_a_sound_record_is_not_replaced_by_one_with_a_fitting_crc(tmp_path: Path) -> None:
    """The log of a release that writes no property CRC is sound; a forged copy may have any properties, and a CRC."""
    log, forged = LogBuilder(SIZE), LogBuilder(SIZE)
    for number in range(9):
        log.message(topic="T", tags="mine", keys="k" * 21, body=b"x")
        crc = number == 5
        forged.message(topic="T", tags="mine", keys="k" if crc else "k" * 21, body=b"x", property_crc=crc)
    assert forged.end_offset == log.end_offset
    root, slave = written(log, tmp_path / "root"), written(forged, tmp_path / "slave")
    with pytest.raises(Refused, match="differ in a sound record") as error:
        whole(root, tmp_path / "work", slave)
    placed = log.records[5]
    assert placed.offset < (error.value.offset or 0) < placed.end


@pytest.mark.parametrize(
    ("property_crc", "at"), [pytest.param(False, -19, id="no CRC"), pytest.param(True, 40, id="another head")]
)
def test_where_nothing_shows_which_copy_is_right_a_person_must_choose(
    tmp_path: Path, at: int, *, property_crc: bool
) -> None:
    log = LogBuilder(SIZE)
    for _ in range(9):
        log.message(topic="T", tags="some tags of it", keys="a key", body=b"x", property_crc=property_crc)
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    placed = log.records[5]
    spoil(root, placed.end - 19, b"y")
    spoil(root, placed.end + at if at < 0 else placed.offset + at, b"x")
    with pytest.raises(Refused, match="differ"):
        whole(root, tmp_path / "work", slave)


@pytest.mark.parametrize("length", [None, 700])
def test_a_query_scans_past_bytes_that_no_file_holds(log: LogBuilder, tmp_path: Path, length: int | None) -> None:
    root, placed = written(log, tmp_path / "root"), log.records[-1]
    data = segment(root, 2).read_bytes()
    segment(root, 2).unlink()
    if length is not None:
        segment(root, 2).write_bytes(data[:length])
    place = ("--topic", "Topic", "--queue", placed.message.queue_id, "--offset", placed.message.queue_offset)
    asked = ("query", "offset", "--scan", "--store", root, *place)
    assert run_job(*asked).code == 65
    done = run_job(*asked, "--on-damage", "salvage")
    assert [row["commit_log_offset"] for row in done.report["messages"]] == [placed.offset]
    assert done.code == 0
    assert str(2 * SIZE + (length or 0)) in done.said


def test_on_other_machines_nobody_sees_what_is_filled(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = written(log, tmp_path / "root")
    segment(root, 2).unlink()
    store = open_store(LogOptions(store=str(root), on_damage="salvage"), restores=True)
    monkeypatch.setattr(session, "on_one_machine", lambda: False)
    with pytest.raises(Refused, match="other machines cannot see"), filled(store, Reporter(quiet=True)):
        pass
    reporter = Reporter(quiet=True)
    monkeypatch.setattr(session, "on_one_machine", lambda: True)
    with filled(store, reporter) as there:
        assert [item.missing for item in there.segments] == [0] * 5
        path = Path(there.segments[2].path)
        assert path.read_bytes() == bytes(SIZE)
        assert path.parent.name.startswith("rocketmq-store-spark-log-")
    assert not path.parent.exists()
    assert reporter.notes == [
        f"the log has no bytes from offset {2 * SIZE} to {3 * SIZE}: a segment is missing, or short"
    ]


@pytest.mark.parametrize(("after", "copied"), [(1_000, True), (0, True), (1_000, False)])
def test_zeros_that_begin_in_a_records_properties_are_healed(*, after: int, copied: bool, tmp_path: Path) -> None:
    """Its CRC holds, and what follows is damage, or the end of the log. In both copies, it is as it is."""
    log = LogBuilder(SIZE)
    for _ in range(40):
        log.message(Message("Topic", body=b"x" * 50, properties={"long": "y" * 50}))
    log.settle()
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    zeroed = [record for record in log.records if record.offset // SIZE == 1][-1 if after == 0 else 3]
    for store in (root, slave)[: 1 if copied else 2]:
        spoil(store, zeroed.end - 21, bytes(21 + after))
    found, reading = whole(root, tmp_path / "work", slave, on_damage="salvage")
    assert (reading.is_damaged, contents(found) == log.segments) == (not copied, copied)


def test_damage_at_the_end_of_a_log_takes_whole_records_from_a_replica(log: LogBuilder, tmp_path: Path) -> None:
    """The last records of this log are zeros from the middle of one on, but for a few bytes in the next one."""
    root, slave = written(log, tmp_path / "root"), written(log, tmp_path / "slave")
    first, last = log.records[-2:]
    spoil(root, first.offset + 30, bytes(first.size - 30))
    spoil(root, last.offset, bytes(last.size))
    spoil(root, last.offset + 50, b"\xff" * 20)
    found, reading = whole(root, tmp_path / "work", slave)
    assert reading.records == len(log.records)
    assert contents(found) == log.segments
