"""Walks from a known record on."""

from __future__ import annotations

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
