"""Light queues (LMQ): one record in several consume queues, named in its own properties.

============================  ====================================================================
property                      holds
============================  ====================================================================
``INNER_MULTI_DISPATCH``      queue names, separated by commas
``INNER_MULTI_QUEUE_OFFSET``  a queue offset for each, as the broker that stored the record counted
============================  ====================================================================

Mirrors ``ConsumeQueue#multiDispatchLmqQueue`` (4.9.3) to ``LmqDispatch`` (5.5.0). A record whose two lists do not have
the same length, as Java's ``split`` counts, goes to none of them. A unit goes to the end of its queue whatever its
offset says, by the same rules as any other; of a name that occurs twice in a record only the first counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storeformat import javacompat
from storeformat import message as m
from storeformat.kernels import Int32s, Int64s
from storeformat.records import RecordBlock, is_directory_name, span_texts

LIGHT_PREFIX = "%LMQ%"


@dataclass(frozen=True)
class MultiDispatchRules:
    """Whose records are dispatched to further queues. ``enable_lmq`` puts ``%LMQ%`` names into queue 0, instead of the
    record's own queue id; records of the excluded topics go nowhere else.
    """

    enable_lmq: bool
    excluded_topics: tuple[str, ...] = ()
    excluded_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LightUnits:
    """One further unit a row: row of the record in its block, name, queue id and queue offset of the queue."""

    rows: Int64s
    names: list[bytes]
    queue_ids: Int32s
    queue_offsets: Int64s


def light_units(block: RecordBlock, queued: Int64s, rules: MultiDispatchRules) -> LightUnits:
    """Returns the further units of the ``queued`` rows, in their order.

    One row at a time: only records that carry the two properties come here. Names that cannot be a directory have no
    queue (a broker of 4.9 would make a nested one, and then not start).
    """
    names, offsets = block.properties[m.INNER_MULTI_DISPATCH], block.properties[m.INNER_MULTI_QUEUE_OFFSET]
    rows = queued[(names.lengths[queued] > 0) & (offsets.lengths[queued] > 0)]
    topics = [javacompat.decode_java_utf8(topic) for topic in block.topics]
    found: list[tuple[int, bytes, int, int]] = []
    texts = zip(
        rows.tolist(), span_texts(block.buffer, names, rows), span_texts(block.buffer, offsets, rows), strict=True
    )
    for row, name_list, offset_list in texts:
        topic, queue_id = topics[block.topic_codes[row]], int(block.heads.queue_id[row])
        if topic in rules.excluded_topics or topic.startswith(rules.excluded_prefixes or ("\0",)):
            continue
        seen = {(topic, queue_id)}
        parsed = _pairs(name_list, offset_list)
        for name, offset in parsed:
            place = (name, 0 if rules.enable_lmq and name.startswith(LIGHT_PREFIX) else queue_id)
            if place in seen or not is_directory_name(name.encode()):
                continue
            seen.add(place)
            found.append((row, name.encode(), place[1], offset))
    return LightUnits(
        rows=np.array([row for row, _, _, _ in found], np.int64),
        names=[name for _, name, _, _ in found],
        queue_ids=np.array([queue_id for _, _, queue_id, _ in found], np.int32),
        queue_offsets=np.array([offset for _, _, _, offset in found], np.int64),
    )


def _pairs(name_list: str, offset_list: str) -> list[tuple[str, int]]:
    """Returns names and offsets side by side; the broker throws at the first offset that is no number and stops."""
    if not name_list.strip() or not offset_list.strip():
        return []
    names, offsets = javacompat.java_split(name_list, ","), javacompat.java_split(offset_list, ",")
    if len(names) != len(offsets):
        return []
    pairs = []
    for name, text in zip(names, offsets, strict=True):
        offset = javacompat.parse_long(text)
        if offset is None:
            break
        pairs.append((name, offset))
    return pairs
