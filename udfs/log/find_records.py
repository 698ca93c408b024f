"""Records at given offsets, original messages, and survivors of damage (one task a segment), in a Spark task."""

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
from storeformat.salvage.survey import Broken, Survey, survey, survey_entries
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
    """Finds which offsets are records by the chain of sizes, not by certificate."""

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
    """Surveys places where chains broke off."""

    decode_rules: DecodeRules
    keep_crc_failures: bool = False

    def __call__(self, places: Iterator[Broken]) -> Iterator[Survey]:
        for place in places:
            with files.RangeReader(place.segment.path) as reader:
                window = BlockWindow(reader, place.segment)
                look = survey_entries if isinstance(place.segment.framing, EntryFraming) else survey
                yield look(window, place, self.decode_rules, keep_crc_failures=self.keep_crc_failures)
