"""To which topics the messages belong that wait under topics of the broker's own, inside a Spark task.

They are delivered to REAL_TOPIC, queue REAL_QID: a topic may have such messages alone (``storeformat.record.pending``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from storeformat.javacompat import parse_int
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.segments import Split
from storeformat.record.decode import DecodeRules, RecordBlock, span_texts
from storeformat.record.pending import HOLDING_TOPICS
from storeformat.storage import files
from udfs.scan import SplitScan

_REAL_TOPIC, _REAL_QUEUE = b"REAL_TOPIC", b"REAL_QID"
MOST_QUEUES = 1 << 16
"""A larger number in REAL_QID is not believed: a broker would make so many queues."""


@dataclass(frozen=True)
class FindRealTopics:
    """Yields topic and queue id, of each split every pair once. Splits are proven: nothing is checked again."""

    rules: DecodeRules

    def __call__(self, splits: Iterator[Split]) -> Iterator[tuple[str, int]]:
        rules = replace(self.rules, check_crc=False, as_broker=True, properties=(_REAL_TOPIC, _REAL_QUEUE))
        for split in splits:
            found: set[tuple[str, int]] = set()
            with files.RangeReader(split.segment.path) as reader:
                for block in ChainWalk(BlockWindow(reader, split.segment), split, split.start, rules):
                    found |= _real_queues(block)
            yield from sorted(found)


def holds_waiting(scan: SplitScan) -> bool:
    """Returns whether a scan found messages under topics of the broker's own."""
    return any(topic.decode(errors="replace") in HOLDING_TOPICS for topic in scan.topics)


def proven_split(scan: SplitScan) -> Split:
    """Returns the part of the log in which a scan found records."""
    split, start, end = scan.report.split, scan.report.start or 0, scan.report.end
    return Split(split.number, split.segment, start, end, end, start)


def _real_queues(block: RecordBlock) -> set[tuple[str, int]]:
    codes = [code for code, topic in enumerate(block.topics) if topic.decode(errors="replace") in HOLDING_TOPICS]
    topics, queues = block.properties[_REAL_TOPIC], block.properties[_REAL_QUEUE]
    told = (topics.lengths > 0) & (queues.lengths > 0)
    rows = np.flatnonzero(~block.foreign & told & np.isin(block.topic_codes, codes))
    names, ids = span_texts(block.buffer, topics, rows), span_texts(block.buffer, queues, rows)
    pairs = ((name, parse_int(text)) for name, text in zip(names, ids, strict=True))
    return {(name, queue_id) for name, queue_id in pairs if queue_id is not None and 0 <= queue_id < MOST_QUEUES}
