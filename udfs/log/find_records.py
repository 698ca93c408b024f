"""Which log offsets are those of records, inside a Spark task: the chain tells, not what only looks like a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Int64s
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.segments import Split
from storeformat.record.decode import DecodeRules
from storeformat.storage import files


@dataclass(frozen=True)
class RecordsAsked:
    """Commit-log offsets in one split, whose chain begins at ``split.first_record``."""

    split: Split
    offsets: Int64s


@dataclass(frozen=True)
class RecordFound:
    """One record that the chain proves."""

    offset: int
    size: int
    topic: bytes
    queue_id: int


@dataclass(frozen=True)
class FindRecords:
    """Finds which offsets are records of the log: those to which the sizes lead, not what only looks like one."""

    decode_rules: DecodeRules

    def __call__(self, asked: Iterator[RecordsAsked]) -> Iterator[RecordFound]:
        for one in asked:
            split = one.split
            if split.first_record is None:
                continue
            with files.RangeReader(split.segment.path) as reader:
                walk = ChainWalk(BlockWindow(reader, split.segment), split, split.first_record, self.decode_rules)
                for block in walk:
                    for row in np.flatnonzero(~block.foreign & np.isin(block.offsets, one.offsets)).tolist():
                        yield RecordFound(
                            int(block.offsets[row]),
                            int(block.heads.total_size[row]),
                            block.topics[block.topic_codes[row]],
                            int(block.heads.queue_id[row]),
                        )
