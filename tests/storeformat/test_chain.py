"""The chain of records in a log: blocks, frames, walks, segments."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.in_memory import Bytes
from support.reading import read_segments
from support.refusals import refusal
from support.store_builder import COMMIT, PREPARED, ROLLBACK, Embedded, LogBuilder, Message, encode_record

from storeformat.errors import NotAStore, RecordDefect
from storeformat.log.chain import Break, Chain, ChainReport, EntryNumbers, follow_chain
from storeformat.log.chain_walk import BlockWindow, ChainWalk, search_certificate
from storeformat.log.dledger import ENTRIES
from storeformat.log.record_ref import RecordRef
from storeformat.log.segments import (
    PLAIN,
    ChainEnd,
    EntryNumber,
    Framing,
    LogPart,
    Segment,
    Split,
    find_records,
    judge_head,
    plan_splits,
    segment_at,
    segment_with,
)
from storeformat.record.decode import DecodeRules
from storeformat.storage import files


def segments_of(log: LogBuilder, root: Path) -> list[Segment]:
    """The segments, written below a directory."""
    log.write(root)
    return [Segment(str(path), int(path.name), log.segment_size) for path in sorted((root / "commitlog").iterdir())]


def walk(split: Split, block_size: int = 1 << 20, *, as_broker: bool = False) -> tuple[list[int], ChainWalk]:
    """Offsets of the records from the split's known first record on, and the walk when it is over."""
    assert split.first_record is not None
    with files.RangeReader(split.segment.path) as reader:
        rules = DecodeRules(as_broker=as_broker)
        chain = ChainWalk(BlockWindow(reader, split.segment), split, split.first_record, rules, block_size=block_size)
        return [int(offset) for block in chain for offset in block.offsets], chain


# --------------------------------------------------------------------------------------------------------- chain
SIZE = 4096


def scan(split: Split) -> ChainReport:
    """A split's report, with a guessed start where it has no known one."""
    with files.RangeReader(split.segment.path) as reader:
        start = split.first_record
        if start is None:
            start = search_certificate(BlockWindow(reader, split.segment), split.start, split.stop, split.limit).first
    if start is None:
        return ChainReport(split, None, split.start, ChainEnd.DEFECT)
    known = Split(split.number, split.segment, split.start, split.stop, split.limit, start)
    _, chain = walk(known)
    return ChainReport(split, start, chain.position, chain.ended, chain.defect)


def settled(segments: list[Segment], splits: list[Split], reports: list[ChainReport]) -> tuple[Chain, int]:
    """The chain once no split is to be read again, and how many rounds that took."""
    chain, rounds = follow_chain(segments, splits, reports), 0
    while chain.rescans:
        for split in chain.rescans:
            reports[split.number] = scan(split)
        chain, rounds = follow_chain(segments, splits, reports), rounds + 1
    return chain, rounds


@pytest.mark.parametrize("rejoins", [False, True])
@pytest.mark.parametrize("split_size", [90, 137, 512, SIZE])
def test_a_copy_in_a_body_is_no_record(tmp_path: Path, split_size: int, rejoins: bool) -> None:
    log = LogBuilder(SIZE)
    for _ in range(4):
        log.message(body=b"plain")
        log.message(body=Embedded((Message(body=b"false"), Message(body=b"false too")), lead=b"12345", rejoins=rejoins))
    segments = segments_of(log, tmp_path)
    splits = plan_splits(segments, split_size)
    chain, rounds = settled(segments, splits, [scan(split) for split in splits])
    assert rounds > 0 or split_size == SIZE
    starts: list[int] = []
    for report in chain.reports:
        assert report.start is not None
        split = report.split
        starts += walk(Split(0, split.segment, split.start, split.stop, split.limit, report.start))[0]
    assert starts == [placed.offset for placed in log.records]
    assert chain.end == log.end_offset


def test_old_records_under_a_blank_and_after_the_end_stay_out(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    records = [log.message(body=bytes(100)) for _ in range(6)]
    log.truncate(records[2].offset)
    log.message(body=bytes(10))
    log.blank()
    log.message(body=b"next")
    segments = segments_of(log, tmp_path)
    splits = plan_splits(segments, 200)
    reports = [scan(split) for split in splits]
    assert any(report.start is not None and report.start > log.records[2].end for report in reports[:20])
    chain, _ = settled(segments, splits, reports)
    assert sum(end - begin for begin, end in chain.blanks) == SIZE - log.records[2].end
    assert chain.end == log.end_offset


# ------------------------------------------------------------------------------------------------------- reports alone
def splits_of(*bases: int, framing: Framing = PLAIN) -> tuple[list[Segment], list[Split]]:
    """Segments of 300 bytes in splits of 100."""
    segments = [Segment("x", base, 300, framing) for base in bases]
    return segments, plan_splits(segments, 100)


def report(split: Split, start: int | None, end: int, ended: ChainEnd = ChainEnd.STOP, **more: Any) -> ChainReport:
    return ChainReport(split, start, end, ended, **more)


def test_a_log_of_nothing_ends_where_it_begins() -> None:
    assert follow_chain([], [], []) == Chain([], [], [], [], 0)
    assert follow_chain([Segment("x", 300, 300)], [], []) == Chain([], [], [], [], 300)


def test_splits_that_a_record_covers_are_passed_over() -> None:
    """Also where it ends just with one, whatever was found there."""
    segments, splits = splits_of(300)
    one = report(splits[0], 300, 500)
    three = report(splits[2], 500, 510, ChainEnd.DEFECT, defect=RecordDefect.UNWRITTEN)
    chain = follow_chain(segments, splits, [one, report(splits[1], 450, 480), three])
    assert chain == Chain([one, three], [], [Break(segments[0], 510, RecordDefect.UNWRITTEN, three)], [], 510)


def test_a_split_that_began_elsewhere_is_read_again() -> None:
    segments, splits = splits_of(300)
    one = report(splits[0], 300, 430)
    chain = follow_chain(segments, splits, [one, report(splits[1], 420, 500), report(splits[2], 500, 600)])
    again = Split(1, segments[0], 400, 500, 600, 430)
    assert (chain.reports, chain.rescans, chain.end) == ([one], [again], 430)


def test_a_blank_leads_to_the_end_of_its_segment() -> None:
    segments, splits = splits_of(0, 300)
    reports = [report(splits[0], 0, 70, ChainEnd.BLANK), *(report(split, None, split.start) for split in splits[1:3])]
    reports += [report(splits[3], 300, 390, ChainEnd.CUT), *(report(split, None, split.start) for split in splits[4:])]
    chain = follow_chain(segments, splits, reports)
    assert (chain.blanks, chain.breaks, chain.rescans, chain.end) == ([(70, 300)], [], [], 390)
    assert chain.reports == [reports[0], reports[3]]


@pytest.mark.parametrize(("first", "broken"), [(7, False), (8, True)])
def test_entries_go_on_from_segment_to_segment(first: int, broken: bool) -> None:
    """A number that does not follow ends the chain; once it has ended, a later one is enough."""
    segments, splits = splits_of(0, 300, framing=ENTRIES)
    ends = [100, 200, 300, 400, 500, 600]
    numbers = [EntryNumbers(EntryNumber(2 * at + 1, 0), EntryNumber(2 * at + 2, 0)) for at in range(6)]
    numbers[3] = EntryNumbers(EntryNumber(first, 0), EntryNumber(8, 0))
    reports = [
        report(split, split.start, end, numbers=own) for split, end, own in zip(splits, ends, numbers, strict=True)
    ]
    chain = follow_chain(segments, splits, reports)
    if broken:
        expected = Break(segments[1], 300, RecordDefect.ENTRY_OUT_OF_ORDER, reports[3])
        assert (chain.reports, chain.breaks, chain.end) == (reports[:3], [expected], 300)
    else:
        assert (chain.reports, chain.breaks, chain.end) == (reports, [], 600)


# ---------------------------------------------------------------------------------------------------- chain walk
@pytest.mark.parametrize("block_size", [64, 300, 1 << 20])
def test_records_larger_than_a_block(tmp_path: Path, block_size: int) -> None:
    log = LogBuilder(SIZE)
    for size in (0, 10, 900, 3, 1500, 1):
        log.message(body=bytes(size))
    (segment,) = segments_of(log, tmp_path)
    offsets, chain = walk(plan_splits([segment], SIZE)[0], block_size)
    assert offsets == [placed.offset for placed in log.records]
    assert (chain.position, chain.defect) == (log.end_offset, RecordDefect.UNWRITTEN)


def test_a_segment_that_begins_with_a_foreign_record_is_damage(tmp_path: Path) -> None:
    log = LogBuilder(SIZE, base=SIZE)
    log.message()
    log.write(tmp_path)
    (path,) = (tmp_path / "commitlog").iterdir()
    moved = path.with_name(f"{7 * SIZE:020d}")
    path.rename(moved)
    segment = Segment(str(moved), 7 * SIZE, SIZE)
    offsets, chain = walk(plan_splits([segment], SIZE)[0])
    assert offsets == []
    assert (chain.ended, chain.defect) == (ChainEnd.DEFECT, RecordDefect.FOREIGN_OFFSET)


# ----------------------------------------------------------------------------------------------------------- boundaries
SMALL = 1024
END = (ChainEnd.STOP, RecordDefect.OK)
BLANK, V1 = 0xCBD43194, 0xDAA320A7


def slow_walk(
    data: bytes, stop: int, limit: int, *, as_broker: bool
) -> tuple[list[int], int, tuple[ChainEnd, RecordDefect]]:
    """Where records begin, where the walk ends, and why: one head after the other, of a segment at offset 0."""
    at, found = 0, []
    while at < stop:
        if limit - at < 8:
            cut = limit < len(data)
            return found, at, (ChainEnd.CUT, RecordDefect.OK) if cut else (ChainEnd.DEFECT, RecordDefect.TRUNCATED)
        size, magic = struct.unpack_from(">iI", data, at)
        if magic == BLANK:
            whole = size <= len(data) - at if as_broker else size == len(data) - at
            wrong = (ChainEnd.DEFECT, RecordDefect.LENGTH_MISMATCH)
            return found, at, (ChainEnd.BLANK, RecordDefect.OK) if whole else wrong
        if size == magic == 0:
            return found, at, (ChainEnd.DEFECT, RecordDefect.UNWRITTEN)
        if magic != V1:
            return found, at, (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)
        if size < 91:
            return found, at, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)
        if size > len(data) - at:
            return found, at, (ChainEnd.DEFECT, RecordDefect.TRUNCATED)
        if size > limit - at:
            return found, at, (ChainEnd.CUT, RecordDefect.OK)
        found.append(at)
        at += size
    return found, at, END


@pytest.mark.usefixtures("each_kernels")
@pytest.mark.parametrize("as_broker", [False, True])
@pytest.mark.parametrize("left", [4, pytest.param(8, marks=pytest.mark.slow), 91])
@pytest.mark.parametrize("head", ["zeros", "blank", "short blank", "long blank", "small", "large", "magic", "half"])
def test_every_end_is_that_of_a_slow_walk(tmp_path: Path, left: int, head: str, as_broker: bool) -> None:
    """Stop and limit at every record and BLANK, one byte before and one after; and what may stand at the end, where
    there may be no room for a BLANK. A broker does not look whether one reaches the end.
    """
    log = LogBuilder(SMALL)
    log.message(body=b"")
    log.message(body=b"a")
    log.fill(max(left, 8))
    heads = {"zeros": (0, 0), "blank": (left, BLANK), "short blank": (left - 1, BLANK), "long blank": (left + 1, BLANK),
             "small": (90, V1), "large": (left + 1, V1), "magic": (left, V1 + 1), "half": (0, V1)}  # fmt: skip
    data = bytearray(log.segments[0])
    struct.pack_into(">iI", data, SMALL - max(left, 8), *heads[head])
    del data[SMALL - max(8 - left, 0) :]
    path = tmp_path / f"{0:020d}"
    path.write_bytes(data)
    edges = [edge for placed in log.records for edge in (placed.offset, placed.end)] + [len(data)]
    near = sorted({edge + step for edge in edges for step in (-1, 0, 1, 8)} & set(range(1, len(data) + 1)))
    segment = Segment(str(path), 0, len(data))
    for limit in near:
        for stop in (edge for edge in near if edge <= limit):
            offsets, chain = walk(Split(0, segment, 0, stop, limit, 0), 300, as_broker=as_broker)
            found = offsets, chain.position, (chain.ended, chain.defect)
            assert found == slow_walk(data, stop, limit, as_broker=as_broker), (stop, limit)


# ------------------------------------------------------------------------------------------------------- framing
def test_a_certificate_is_a_whole_magic_and_the_own_offset() -> None:
    head = bytearray(encode_record(Message(), 1000))
    own_offset, magic = slice(28, 36), slice(4, 8)

    def found(place: slice, value: bytes, base: int = 1000) -> int | None:
        data = head.copy()
        data[place] = value
        return PLAIN.find(data, base, len(data), base, base + len(data))

    assert found(magic, b"\xda\xa3\x20\xa7") == 1000
    assert found(magic, b"\xda\xa3\x20\xab") == 1000
    assert found(magic, b"\xda\xa3\x20\xa8") is None
    assert found(own_offset, (1001).to_bytes(8, "big")) is None
    assert found(own_offset, (-1000).to_bytes(8, "big", signed=True)) is None
    assert found(own_offset, (1000).to_bytes(8, "big"), base=2000) is None


@pytest.mark.parametrize(
    ("head", "room", "allowed", "expected"),
    [
        ("00000063 00000000", 99, 99, (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)),
        ("80000000 daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("7fffffff daa320a7", 1 << 40, 1 << 40, (ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE)),
        ("10000001 daa320a7", 1 << 40, 1 << 40, (ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE)),
        ("10000000 daa320a7", 1 << 40, 1 << 40, 1 << 28),
        ("00000063 daa320ab", 99, 99, 99),
        ("0000005b daa320a7", 99, 99, 91),
    ],
)
def test_heads_of_extreme_sizes(head: str, room: int, allowed: int, expected: object) -> None:
    """The others are those of the slow walk."""
    assert judge_head(bytes.fromhex(head), room, allowed) == expected


MAGIC = st.sampled_from([b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xda\xa3\x20\xa8", b"\xda\xda\xa3\x20\xab"])


@given(
    noise=st.binary(max_size=200),
    heads=st.lists(st.tuples(st.integers(0, 270), MAGIC, st.booleans()), max_size=6),
    base=st.sampled_from([0, 1 << 40]),
    start=st.integers(0, 260),
    length=st.integers(0, 260),
)
@example(noise=b"", heads=[(264, b"\xda\xa3\x20\xa7", True)], base=0, start=264, length=1)
@example(noise=b"", heads=[(265, b"\xda\xa3\x20\xa7", True)], base=0, start=0, length=300)
def test_certified_heads_are_found_at_once_as_one_by_one(
    noise: bytes, heads: list[tuple[int, bytes, bool]], base: int, start: int, length: int
) -> None:
    data = bytearray(noise.ljust(400, b"\0"))
    for at, magic, own in heads:
        head = at + len(magic) - 4
        data[at + 4 : at + 4 + len(magic)] = magic
        data[head + 28 : head + 36] = (base + head + (not own)).to_bytes(8, "big")
    del data[300:]
    stop = base + start + length
    one_by_one = []
    place = PLAIN.find(data, base, len(data), base + start, stop)
    while place is not None:
        one_by_one.append(place)
        place = PLAIN.find(data, base, len(data), place + 1, stop)
    assert find_records(np.frombuffer(data, np.uint8), base, base + start, stop).tolist() == one_by_one


# ------------------------------------------------------------------------------------------------------ segments
def test_splits_tile_every_segment() -> None:
    segments = [Segment("a", 0, 100), Segment("b", 100, 100)]
    splits = plan_splits(segments, 30, LogPart(until=150))
    assert [(split.start, split.stop) for split in splits] == [
        (0, 30), (30, 60), (60, 90), (90, 100), (100, 130), (130, 150),
    ]  # fmt: skip
    assert [split.first_record for split in splits] == [0, None, None, None, 100, None]
    assert {split.limit for split in splits if split.segment.base == 100} == {150}


def test_a_part_ends_in_a_log_where_it_is_told_to() -> None:
    segments = [Segment("a", 100, 100), Segment("b", 200, 100)]
    ends = {until: LogPart(until=until).end_in(segments) for until in (None, 0, 100, 150, 299, 300, 400)}
    assert ends == {None: 300, 0: 100, 100: 100, 150: 150, 299: 299, 300: 300, 400: 300}


def test_a_part_begins_where_it_is_told_to() -> None:
    segments = [Segment("a", 100, 100), Segment("b", 200, 100)]
    splits = plan_splits(segments, 60, LogPart(begin=150))
    assert [(split.number, split.start, split.stop, split.limit, split.first_record) for split in splits] == [
        (0, 150, 200, 200, 150), (1, 200, 260, 300, 200), (2, 260, 300, 300, None),
    ]  # fmt: skip


def test_a_segment_holds_the_offsets_from_its_base_up_to_its_end() -> None:
    segments = [Segment("a", 100, 50), Segment("b", 150, 50), Segment("d", 250, 50)]
    places = {offset: segment_at(segments, offset) for offset in (99, 100, 149, 150, 199, 200, 249, 250, 299, 300)}
    names = {offset: segment.path for offset, segment in places.items() if segment is not None}
    assert names == {100: "a", 149: "a", 150: "b", 199: "b", 250: "d", 299: "d"}
    said = {"what": "no segment of the log holds this offset", "offset": 200}
    assert refusal(NotAStore, lambda: segment_with(segments, 200)) == said


# ---------------------------------------------------------------------------------------------------- record ref
@pytest.mark.parametrize(("sys_flag", "queued"), [(0, True), (COMMIT, True), (PREPARED, False), (ROLLBACK, False)])
def test_a_record_says_where_it_belongs(sys_flag: int, queued: bool) -> None:
    """A scan keeps what foreign records say; the first of a block that is none tells its own place."""
    log = LogBuilder()
    first = log.message(topic="T", queue_id=3, sys_flag=sys_flag, queue_offset=7, store_timestamp=1_700_000_000_009)
    at = log.foreign_record(first)
    (scan,) = read_segments(log.segments, 1 << 30).scans
    assert scan.special.foreign_refs == (RecordRef(at, 1_700_000_000_009, b"T", 3, 7, queued),)


# -------------------------------------------------------------------------------------------------- block window
def test_a_certificate_over_the_end_of_a_block_is_found(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.message(body=bytes(700))
    second = log.message()
    (segment,) = segments_of(log, tmp_path)
    with files.RangeReader(segment.path) as reader:
        window = BlockWindow(reader, segment)
        for block_size in range(60, 120):
            assert search_certificate(window, 1, SIZE, SIZE, block_size).first == second.offset
        assert search_certificate(window, 1, second.offset, SIZE).first is None
        assert search_certificate(window, second.end, SIZE, SIZE).all_zero
        assert not search_certificate(window, 1, second.offset, SIZE).all_zero


def a_window(data: bytes, base: int = 0) -> BlockWindow:
    return BlockWindow(Bytes(data), Segment("x", base, len(data)))  # type: ignore[arg-type]


def test_a_window_holds_what_was_loaded_and_zeros_after_it() -> None:
    window = a_window(bytes(range(1, 101)), base=1000)
    window.load(1010, 20)
    assert (window.offset, window.length) == (1010, 20)
    assert bytes(window.bytes) == bytes(range(11, 31)) + bytes(len(window.bytes) - 20)
    window.load(1005, 3)
    assert bytes(window.bytes) == bytes([6, 7, 8]) + bytes(len(window.bytes) - 3)
    other = window.another()
    other.load(1000, 1)
    assert (other.segment, other.length, window.length) == (window.segment, 1, 3)


@pytest.mark.parametrize("block_size", [1, 7, 10, 11, 100])
@pytest.mark.parametrize("at", [9, 10, 19, 20])
def test_bytes_of_a_range_are_zero(at: int, block_size: int) -> None:
    """Here [10, 20), with one other byte in it or beside it."""
    window = a_window(bytes(at) + b"\1" + bytes(40), base=0)
    assert window.is_zero(10, 20, block_size) == (at in (9, 20))
    assert window.is_zero(at, at)


@pytest.mark.parametrize("loaded", [(0, 400), (100, 100), (350, 10)])
def test_what_is_certified_in_a_range_is_seen_and_the_window_stays(loaded: tuple[int, int]) -> None:
    """A head at 250, which may end where the limit is; what is loaded already ends there at the latest."""
    data = bytearray(400)
    data[250:350] = encode_record(Message(body=b""), 250)
    window = a_window(bytes(data))
    window.load(*loaded)
    for start, stop, limit, certified in (
        (200, 251, 400, True),
        (200, 250, 400, False),
        (250, 251, 286, True),
        (251, 300, 400, False),
        *([] if loaded == (0, 400) else [(200, 260, 285, False)]),
    ):
        assert window.certifies_inside(start, stop, limit) == certified, (start, stop, limit)
        assert (window.offset, window.length) == loaded


def test_a_range_at_the_end_of_a_file_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(bytes(300) + encode_record(Message(), 300))
    with files.RangeReader(str(path)) as reader:
        window = BlockWindow(reader, Segment(str(path), 0, path.stat().st_size))
        assert window.certifies_inside(250, 350, path.stat().st_size)


class Counting(files.RangeReader):
    count = 0

    def read_into(self, offset: int, target: memoryview) -> None:
        self.count += len(target)
        super().read_into(offset, target)


@pytest.mark.parametrize("head_in_hole", range(3))
def test_holes_are_not_read(tmp_path: Path, head_in_hole: int) -> None:
    """Not even where the zeros in which a record begins lie in one."""
    size, begin = 64 << 20, (48 << 20) - head_in_hole
    record = encode_record(Message(body=bytes(10)), begin)
    assert not any(record[:2])
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as file:
        file.write(b"\1")
        file.seek(begin + head_in_hole)
        file.write(record[head_in_hole:])
        file.truncate(size)
    with Counting(str(path)) as reader:
        if reader.next_data(1 << 20) == 1 << 20:
            pytest.skip("this file system does not tell of holes")
        window = BlockWindow(reader, Segment(str(path), 0, size))
        found = search_certificate(window, 1, size, size, 1 << 16)
        assert (found.first, found.all_zero) == (begin, True)
        assert not search_certificate(window, begin + 1, size, size, 1 << 16).all_zero
        assert window.is_zero(1, begin, 1 << 16)
        assert not window.is_zero(1, size, 1 << 16)
        assert window.is_zero(begin + len(record), size, 1 << 16)
        assert reader.count < 2 << 20
        assert reader.next_data(begin + (1 << 20)) == size
        assert reader.next_data(size + 5) == size + 5


def test_holes_are_told_by_offsets_of_the_log() -> None:
    class Holes(Bytes):
        def next_data(self, offset: int) -> int:
            return max(offset, 40)

    window = BlockWindow(Holes(bytes(100)), Segment("x", 1000, 100))  # type: ignore[arg-type]
    assert [window.next_data(offset) for offset in (1000, 1039, 1041)] == [1040, 1040, 1041]
