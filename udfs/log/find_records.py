"""Records at given offsets, original messages, and survivors of damage (one task a segment), in a Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from storeformat import message as m
from storeformat.arrays import Int64s
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.dledger import EntryFraming
from storeformat.log.segments import Split
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.record.message_ids import parse_offset_message_id
from storeformat.salvage.survey import Broken, Survey, survey, survey_entries
from storeformat.storage import files
from udfs.log.timers import texts_of


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


ORIGIN = b"ORIGIN_MESSAGE_ID"


@dataclass(frozen=True)
class FindOrigins:
    """Finds original offsets of messages, if the id is this broker's (SendMessageProcessor#consumerSendMsgBack)."""

    decode_rules: DecodeRules

    def __call__(self, splits: Iterator[Split]) -> Iterator[Int64s]:
        rules = replace(self.decode_rules, properties=(ORIGIN,), check_crc=False)
        for split in splits:
            found: set[int] = set()
            with files.RangeReader(split.segment.path) as reader:
                for block in ChainWalk(BlockWindow(reader, split.segment), split, split.first_record or 0, rules):
                    rows = np.flatnonzero(~block.foreign & (block.properties[ORIGIN].lengths > 0))
                    ids = map(parse_offset_message_id, texts_of(block, ORIGIN, rows))
                    for row, origin in zip(rows.tolist(), ids, strict=True):
                        if origin is not None and _store_host(block, row) == str(origin)[:-16]:
                            found.add(origin.commit_log_offset)
            yield np.array(sorted(found), np.int64)


def _store_host(block: RecordBlock, row: int) -> str:
    """STOREHOST as in an offset message id: address and port in hex."""
    end = int(block.heads.body_start[row]) - 16  # RECONSUMETIMES, Prepared Transaction Offset, BODYLEN
    size = m.HOST_V6 if int(block.heads.sys_flag[row]) & m.STORE_HOST_V6 else m.HOST_V4
    return block.buffer[end - size : end].tobytes().hex().upper()


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
