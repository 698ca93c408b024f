"""Framing: splits, certificates, the ends of a chain, and the proof that guesses were right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.store_builder import Embedded, LogBuilder, Message, encode_record

from storeformat.errors import RecordDefect
from storeformat.log.commit_log import (
    BlockWindow,
    ChainReport,
    ChainWalk,
    Segment,
    Split,
    follow_chain,
    plan_splits,
    search_certificate,
)
from storeformat.log.framing import PLAIN, ChainEnd, find_records, judge_head
from storeformat.record.decode import DecodeRules
from storeformat.storage import files

SIZE = 4096


def segments_of(log: LogBuilder, root: Path) -> list[Segment]:
    log.write(root)
    return [Segment(str(path), int(path.name), SIZE) for path in sorted((root / "commitlog").iterdir())]


def walk(split: Split, block_size: int = 1 << 20) -> tuple[list[int], ChainWalk]:
    """Offsets of the records from the split's known first record on, and the walk when it is over."""
    assert split.first_record is not None
    with files.RangeReader(split.segment.path) as reader:
        chain = ChainWalk(
            BlockWindow(reader, split.segment), split, split.first_record, DecodeRules(), block_size=block_size
        )
        return [int(offset) for block in chain for offset in block.offsets], chain


def test_splits_tile_every_segment() -> None:
    segments = [Segment("a", 0, 100), Segment("b", 100, 100)]
    splits = plan_splits(segments, 30, until=150)
    assert [(split.start, split.stop) for split in splits] == [
        (0, 30), (30, 60), (60, 90), (90, 100), (100, 130), (130, 150),
    ]  # fmt: skip
    assert [split.first_record for split in splits] == [0, None, None, None, 100, None]
    assert {split.limit for split in splits if split.segment.base == 100} == {150}


@pytest.mark.parametrize("block_size", [64, 300, 1 << 20])
def test_records_larger_than_a_block(tmp_path: Path, block_size: int) -> None:
    log = LogBuilder(SIZE)
    for size in (0, 10, 900, 3, 1500, 1):
        log.message(body=bytes(size))
    (segment,) = segments_of(log, tmp_path)
    offsets, chain = walk(plan_splits([segment], SIZE)[0], block_size)
    assert offsets == [placed.offset for placed in log.records]
    assert (chain.position, chain.defect) == (log.end_offset, RecordDefect.UNWRITTEN)


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
        ("00000000 00000000", 99, 99, (ChainEnd.DEFECT, RecordDefect.UNWRITTEN)),
        ("00000063 cbd43194", 99, 99, (ChainEnd.BLANK, RecordDefect.OK)),
        ("00000062 cbd43194", 99, 99, (ChainEnd.DEFECT, RecordDefect.LENGTH_MISMATCH)),
        ("00000000 daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("00000063 00000000", 99, 99, (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)),
        ("00000063 daa320a8", 99, 99, (ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC)),
        ("0000005a daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("80000000 daa320a7", 99, 99, (ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL)),
        ("00000064 daa320ab", 99, 99, (ChainEnd.DEFECT, RecordDefect.TRUNCATED)),
        ("00000063 daa320ab", 99, 98, (ChainEnd.CUT, RecordDefect.OK)),
        ("7fffffff daa320a7", 1 << 40, 1 << 40, (ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE)),
        ("10000001 daa320a7", 1 << 40, 1 << 40, (ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE)),
        ("10000000 daa320a7", 1 << 40, 1 << 40, 1 << 28),
        ("00000063 daa320ab", 99, 99, 99),
        ("00000062 daa320ab", 99, 98, 98),
        ("0000005b daa320a7", 99, 99, 91),
    ],
)
def test_heads(head: str, room: int, allowed: int, expected: object) -> None:
    assert judge_head(bytes.fromhex(head), room, allowed) == expected


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


@pytest.mark.parametrize("rejoins", [False, True])
@pytest.mark.parametrize("split_size", [90, 137, 512, SIZE])
def test_a_copy_in_a_body_is_no_record(tmp_path: Path, split_size: int, rejoins: bool) -> None:
    log = LogBuilder(SIZE)
    for _ in range(4):
        log.message(body=b"plain")
        log.message(body=Embedded((Message(body=b"false"), Message(body=b"false too")), lead=b"12345", rejoins=rejoins))
    segments = segments_of(log, tmp_path)
    splits = plan_splits(segments, split_size)
    reports = [scan(split) for split in splits]
    rounds = 0
    chain = follow_chain(segments, splits, reports)
    while chain.rescans:
        for split in chain.rescans:
            reports[split.number] = scan(split)
        chain = follow_chain(segments, splits, reports)
        rounds += 1
    assert rounds > 0 or split_size == SIZE
    starts: list[int] = []
    for report in chain.reports:
        assert report.start is not None
        split = report.split
        starts += walk(Split(0, split.segment, split.start, split.stop, split.limit, report.start))[0]
    assert starts == [placed.offset for placed in log.records]
    assert chain.end == log.end_offset


def test_old_records_under_a_blank_and_behind_the_end_stay_out(tmp_path: Path) -> None:
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
    chain = follow_chain(segments, splits, reports)
    while chain.rescans:
        for split in chain.rescans:
            reports[split.number] = scan(split)
        chain = follow_chain(segments, splits, reports)
    assert sum(end - begin for begin, end in chain.blanks) == SIZE - log.records[2].end
    assert chain.end == log.end_offset


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


def test_random_bytes_are_never_more_than_a_defect(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    path = tmp_path / "00000000000000000000"
    for _ in range(50):
        data = random.integers(0, 256, SIZE, dtype=np.uint8)
        data[:8] = np.frombuffer(bytes.fromhex("00000200daa320a7"), np.uint8)
        path.write_bytes(data.tobytes())
        _, chain = walk(Split(0, Segment(str(path), 0, SIZE), 0, SIZE, SIZE, 0))
        assert chain.ended == ChainEnd.DEFECT


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
