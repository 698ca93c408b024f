"""Segments of a built log on disk, and walks of their chains."""

from __future__ import annotations

from pathlib import Path

from support.store_builder import LogBuilder

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.segments import Segment, Split
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
