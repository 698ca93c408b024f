"""What is left of a damaged log, inside a Spark task: which offsets are those of records, as the chain tells, and what
survived from where a chain broke to the end of its segment, one task a segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Int64s
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.dledger import EntryFraming
from storeformat.log.segments import Split
from storeformat.record.decode import DecodeRules
from storeformat.salvage.dledger_survey import survey_entries
from storeformat.salvage.findings import Broken, Survey
from storeformat.salvage.survey import survey
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


@dataclass(frozen=True)
class SurveyTask:
    """How to survey. An instance is called with an iterator of places where chains broke off."""

    decode_rules: DecodeRules
    keep_crc_failures: bool = False

    def __call__(self, places: Iterator[Broken]) -> Iterator[Survey]:
        for place in places:
            with files.RangeReader(place.segment.path) as reader:
                window = BlockWindow(reader, place.segment)
                look = survey_entries if isinstance(place.segment.framing, EntryFraming) else survey
                yield look(window, place, self.decode_rules, keep_crc_failures=self.keep_crc_failures)
