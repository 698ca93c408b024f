"""Walks from a known record on."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support.store_builder import LogBuilder
from support.walking import segments_of, walk

from storeformat.errors import RecordDefect
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, Split, plan_splits

SIZE = 4096


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


def test_random_bytes_are_never_more_than_a_defect(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    path = tmp_path / "00000000000000000000"
    for _ in range(50):
        data = random.integers(0, 256, SIZE, dtype=np.uint8)
        data[:8] = np.frombuffer(bytes.fromhex("00000200daa320a7"), np.uint8)
        path.write_bytes(data.tobytes())
        _, chain = walk(Split(0, Segment(str(path), 0, SIZE), 0, SIZE, SIZE, 0))
        assert chain.ended == ChainEnd.DEFECT


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
@pytest.mark.parametrize("left", [4, 8, 91])
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
