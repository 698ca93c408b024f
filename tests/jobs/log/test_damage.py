"""What lies after the last sound record: a damaged message, or what an older log left there."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import golden
from support.golden import GoldenStore
from support.here import tasks_here
from support.reading import read_segments
from support.rebuilding import options_for, rebuild_here
from support.store_builder import Embedded, LogBuilder, Message, Placed

from jobs.contract.options import InspectOptions, KeyOptions, LoadOptions
from jobs.contract.report import Reporter
from jobs.log import log_scan
from jobs.log.log_scan import LogRange, LogReading, RangeKind
from jobs.log.opening import OpenedStore, open_store, read_log
from jobs.query import inspection, query
from jobs.query.offline_store import OfflineStore, row_rules
from jobs.spark.runner import Runner
from jobs.table import load
from jobs.table.datasource import proven_partitions
from storeformat.errors import DamagedLog, TotalsDisagree, WriteFailed
from storeformat.log.log_end import growing_log_end
from storeformat.record.decode import DecodeRules
from storeformat.storage.broker_lock import is_live
from udfs.table.datasource import LogReader
from udfs.table.find_messages import FindMessages, Wanted
from udfs.table.proven_ranges import proven_ranges
from udfs.table.rows import RowRules

SEGMENT = 4096
TIME = 1_700_000_000_000


@pytest.mark.parametrize(("later", "is_loss"), [(1, True), (0, True), (-1, False)])
@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_a_damaged_last_record_is_a_loss_unless_it_is_older_than_the_one_before(
    split_size: int, later: int, *, is_loss: bool
) -> None:
    """A broker stores many messages in one millisecond: the same time is no sign of an older log."""
    log = LogBuilder(SEGMENT)
    log.message(topic="A", body=b"sound", store_timestamp=TIME)
    last = log.message(topic="B", body=b"damaged", store_timestamp=TIME + later)
    changes = [(log.segments[0].index(b"damaged", last.offset), b"D")]
    reading = read_segments(log.segments, split_size, "salvage", changes=changes)
    assert bool(reading.damaged) is is_loss
    assert reading.records == 1


def claims(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.message(topic="A", queue_offset=number)


def salvaged(log: LogBuilder, split_size: int, *lost: Placed) -> LogReading:
    """The log with the heads of some records gone."""
    changes = [(placed.offset, b"\xff" * 88) for placed in lost]
    return read_segments(log.segments, split_size, "salvage", changes=changes)


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
@pytest.mark.parametrize("lie", [4, 19])
def test_one_wrong_queue_offset_before_damage_costs_no_survivor(split_size: int, lie: int) -> None:
    """Or a record of an older log that lies just where one must begin: the queue goes on from the record before it."""
    log = LogBuilder(SEGMENT)
    claims(log, 0, 1, 2, 3, 4, 5, lie)
    lost = log.message(topic="A", queue_offset=6)
    claims(log, 7, 8)
    reading = salvaged(log, split_size, lost)
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert reading.records == len(log.records) - 1


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
@pytest.mark.parametrize("lie", [3, 40])
def test_one_wrong_queue_offset_after_damage_costs_no_survivor(split_size: int, lie: int) -> None:
    log = LogBuilder(SEGMENT)
    claims(log, 0, 1, 2, 3, 4, 5)
    lost = log.message(topic="A", queue_offset=6)
    claims(log, 7, 8)
    log.blank()
    claims(log, lie, 9, 10)
    reading = salvaged(log, split_size, lost)
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert reading.records == len(log.records) - 1


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_survivors_of_one_damaged_segment_say_how_late_it_is_in_the_next(split_size: int) -> None:
    """Nothing is proven before either of the two: a record years older that lies in the lost body is no survivor."""
    log = LogBuilder(SEGMENT)
    first = log.message(topic="B")
    claims(log, 0, 1, 2)
    log.blank()
    old = Message(topic="B", queue_offset=1, store_timestamp=TIME - 100_000_000_000)
    holder = log.message(topic="B", body=Embedded((old,), rejoins=True))
    claims(log, 3)
    log.blank()
    log.message(topic="B")
    reading = salvaged(log, split_size, first, holder)
    assert [(item.begin, item.end) for item in reading.damaged] == [
        (first.offset, first.end), (holder.offset, holder.end),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------- nothing is left out


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, None),
        ({"at": 86}, "the records of the log leave gaps or overlap: found 99, expected 100"),
        ({"at": 84}, "the records of the log leave gaps or overlap: found 101, expected 100"),
        ({"at": 100}, "the records of the log leave gaps or overlap: found 85, expected 100"),
        ({"record_bytes": 61}, "the records of a split leave gaps or overlap: found 71, expected 80 (offset 10)"),
    ],
)
def test_every_byte_is_counted_once(change: dict[str, Any], text: str | None) -> None:
    """Of a log [0, 100): 60 bytes of records, 7 of heads, 3 foreign, 10 of a BLANK, 15 damaged, 5 more of records."""

    def scan(begin: int, end: int, record_bytes: int, head_bytes: int, foreign: list[tuple[int, int]]) -> Any:
        return SimpleNamespace(
            report=SimpleNamespace(start=begin, end=end), record_bytes=record_bytes, head_bytes=head_bytes,
            special=SimpleNamespace(foreign=foreign),
        )  # fmt: skip

    own, at = change.get("record_bytes", 60), change.get("at", 85)
    scans = [scan(10, 80, own, 7, [(70, 3)]), scan(0, 5, 5, 0, [])]
    places = ((80, 90, RangeKind.BLANK), (at, 100, RangeKind.DAMAGED), (100, 120, RangeKind.STALE))
    ranges = [LogRange(begin, end, kind, "") for begin, end, kind in places]
    reading = LogReading([], scans, 0, 100, 100, ranges)
    if text is None:
        log_scan._check_tiling(reading)
        return
    with pytest.raises(TotalsDisagree) as error:
        log_scan._check_tiling(reading)
    assert str(error.value) == text


# ------------------------------------------------------------------- a last record that was not written to its end
POLICIES = ("fail", "stop", "salvage")


def a_log(count: int = 5, **fields: object) -> LogBuilder:
    log = LogBuilder(SEGMENT)
    for number in range(count):
        log.message(Message("Topic", number % 2, body=b"body" * 10, tags="t", **fields))  # type: ignore[arg-type]
    return log


def torn(
    log: LogBuilder, written: int, policy: str, *changes: tuple[int, bytes], split_size: int = SEGMENT
) -> LogReading:
    """The log with no more than the first bytes of its last record, and some changes."""
    last = log.records[-1]
    begin = last.offset + written
    zeros = begin, bytes(SEGMENT - begin % SEGMENT)
    return read_segments(log.segments, split_size, policy, changes=(zeros, *changes))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("written", [4, 7, 9, 30, 36, 88, 100, 127, 130])
@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize("split_size", [100, SEGMENT])
def test_the_log_ends_before_it_under_every_policy(
    policy: str, written: int, property_crc: bool, split_size: int
) -> None:
    log = a_log(property_crc=property_crc)
    last = log.records[-1]
    reading = torn(log, written, policy, split_size=split_size)
    assert (reading.records, reading.end, reading.damaged, reading.losses.rows) == (4, last.offset, [], [])
    assert (reading.is_damaged, len(reading.notes)) == (False, 1)
    unfinished = reading.facts()["unfinished_record"]
    assert unfinished["begin"] == last.offset < unfinished["end"] <= last.offset + written
    assert reading.unwritten_bytes == SEGMENT - last.offset


def test_segments_made_ahead_do_not_matter() -> None:
    log = a_log()
    log.preallocate()
    assert torn(log, 60, "fail").notes


def test_a_sound_log_has_none() -> None:
    log = a_log()
    reading = read_segments(log.segments, SEGMENT)
    assert (reading.notes, reading.facts()["unfinished_record"]) == ([], None)


@pytest.mark.parametrize("what", ["a body", "a size", "a magic code", "an own offset", "bytes after", "a break before"])
def test_anything_else_is_damage(what: str) -> None:
    log = a_log()
    last = log.records[-1]
    size, body = last.size, last.offset + 90
    if what == "a body":
        change, written = (body, b"\xff"), size
    elif what == "a size":
        change, written = (last.offset, struct.pack(">i", size + 7)), size
    elif what == "an own offset":
        change, written = (last.offset + 28, struct.pack(">q", 1)), 60
    elif what == "bytes after":
        change, written = (last.end + 500, b"\1"), 60
    else:
        change, written = (log.records[1].offset + 90, b"\xff"), 60
    with pytest.raises(DamagedLog):
        torn(log, written, "fail", change)
    reading = torn(log, written, "salvage", change)
    assert reading.damaged
    assert not reading.notes


def test_it_is_damage_where_the_log_goes_on_in_the_next_segment() -> None:
    log = a_log(40)
    inner = max(placed.offset for placed in log.records if placed.offset < SEGMENT - 300)
    zeros = [(inner + 60, bytes(SEGMENT - inner - 60))]
    with pytest.raises(DamagedLog):
        read_segments(log.segments, SEGMENT, changes=zeros)
    assert read_segments(log.segments, SEGMENT, "salvage", changes=zeros).losses.messages > 0


def test_bytes_after_the_end_that_look_like_no_record_are_of_an_older_log() -> None:
    log = a_log()
    (stale,) = read_segments(log.segments, SEGMENT, changes=[(log.end_offset, b"\xa5" * 200)]).stale
    assert (stale.begin, stale.end, stale.held_record) == (log.end_offset, log.end_offset + 200, False)


# Ranges of the log that a scan has proven are read a second time: for rows, and for messages that are looked for
@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Six messages; the second segment begins with a record of another place, which a broker's recovery steps over."""
    log = LogBuilder(4096)
    first = log.message(topic="T", keys="k")
    log.blank()
    log.foreign_record(first)
    for _ in range(5):
        log.message(topic="T", keys="k")
    return log.write(tmp_path)


def test_it_goes_on_where_the_scan_went_on(root: Path) -> None:
    options = LoadOptions(store=str(root), on_damage="stop", table="", cluster="", broker="")
    store = open_store(options)
    reading = read_log(store, options, Runner())
    assert reading.records == 6
    asked = KeyOptions(store=str(root), on_damage="stop", topic="T", key="k", scan=True)
    assert query.by_key(asked, OfflineStore(store), Runner())["found"] == 6
    shown = InspectOptions(store=str(root), on_damage="stop", from_offset=0)
    with tasks_here():
        assert inspection.run(shown, Reporter(quiet=True))["messages"] == 6
    read = load.row_reader(store, options, reading, 0, "UTC")
    assert sum(batch.num_rows for proven in read.ranges for batch in read.chunks(proven)) == 6
    rules = RowRules(store.dispatch_rules(), columns=("topic",))
    source = LogReader(proven_partitions(reading, 0), rules, DecodeRules(properties=()))
    assert sum(batch.num_rows for partition in source.log_partitions for batch in source.read(partition)) == 6


def test_it_says_that_the_log_has_changed(root: Path) -> None:
    options = KeyOptions(store=str(root), on_damage="stop", topic="T", key="k")
    store = open_store(options)
    ranges = proven_ranges(read_log(store, options, Runner()).scans)
    find = FindMessages(Wanted(topic="T"), row_rules(store, bodies=False), limit=10)
    assert len(list(find(iter(ranges)))) == 6
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    with pytest.raises(WriteFailed, match="the log changed while it was read"):
        list(find(iter(ranges)))


# ------------------------------ A log that a broker is writing: where it ends now, and that nothing after that is read
HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
input()
"""


def opened(store: GoldenStore, root: Path) -> OpenedStore:
    return open_store(options_for(root, root.parent / "none", store.settings, broker_version="5.3"))


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[GoldenStore, Path]]:
    """A store whose lock another process holds, as a broker's does."""
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield store, root
        holder.communicate("\n")


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_end_of_every_store(store: GoldenStore) -> None:
    """Only zeros, unwritten segments and bytes of older logs follow: there the broker's log ended."""
    found = opened(store, golden.unpack(store))
    assert growing_log_end(found.segments, found.decode_rules()) == store.end_offset


def test_log_that_is_not_written_has_no_such_end(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    assert not is_live(str(root / "lock"))
    assert opened(store, root).until(None) is None
    assert opened(store, root).until(77) == 77


def test_log_of_a_live_broker_ends_where_it_ends_now(held: tuple[GoldenStore, Path]) -> None:
    store, root = held
    assert is_live(str(root / "lock"))
    assert opened(store, root).until(None) == store.end_offset
    assert opened(store, root).until(77) == 77


def test_half_a_record_at_the_end_is_no_damage(held: tuple[GoldenStore, Path], tmp_path: Path) -> None:
    store, root = held
    last = max((root / "commitlog").iterdir())
    content = bytearray(last.read_bytes())
    size = int.from_bytes(content[:4], "big")
    at = store.end_offset - int(last.name)
    content[at : at + size // 2] = content[: size // 2]
    last.write_bytes(content)
    built = rebuild_here(root, tmp_path / "work", store.settings)
    assert built.reading.end == store.end_offset
    assert built.reading.damaged == []
    assert built.reading.records == store.entry["counts"]["messages"]
