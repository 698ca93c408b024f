"""The end of a log that is being written, and whether it has moved.

Queues, index and checkpoint fit a log only up to one offset. A broker with fewer units than records never queues the
rest, or queues it with a gap, depending on its release. So the offset must be exact: the sizes of the segment's
records lead to it, and no record begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storeformat.errors import NotAStore
from storeformat.log.chain_walk import BlockWindow, chain_from, search_certificate
from storeformat.log.segments import ChainEnd, Segment, segment_at
from storeformat.message import BLANK_SIZE
from storeformat.record.decode import DecodeRules
from storeformat.storage.files import RangeReader, read_range


def growing_log_end(segments: Sequence[Segment], rules: DecodeRules) -> int:
    """Offset after the last complete record of a log that a broker is writing. Recovery found the log sound before the
    broker wrote, so the first bytes that are no record are the end, even if they are of an older log.
    """
    written = [segment for segment in segments if any(read_range(segment.path, 0, BLANK_SIZE))]
    if not written:
        return segments[0].base
    at = segments.index(written[-1])
    end = segments[at].base
    for segment in segments[at:]:  # the next one may have been created meanwhile
        with RangeReader(segment.path) as reader:
            walk = chain_from(BlockWindow(reader, segment), segment.base, replace(rules, check_crc=False)).finish()
        end = walk.position
        if walk.ended != ChainEnd.BLANK:
            return end
        end = segment.end
    return end


def check_log_end(
    segments: Sequence[Segment],
    end: int,
    rules: DecodeRules,
    *,
    past_damage: bool = False,
    committed: int | None = None,
) -> None:
    """Raise NotAStore unless the log's records lead to ``end`` and none follows. ``past_damage``: the chain may break
    and continue at the next certified record. ``committed``: the group's committed end; later records are ignored.
    """
    if not segments[0].base <= end <= segments[-1].end:
        raise NotAStore("the log does not reach its recorded end", path=segments[-1].path, offset=end)
    reached = next(segment for segment in segments if end <= segment.end)
    with RangeReader(reached.path) as reader:
        _walk_to(BlockWindow(reader, reached), reached, end, rules, past_damage)
    following = segment_at(segments, end)
    if following is None or end == committed:
        return
    with RangeReader(following.path) as reader:
        if _goes_on(BlockWindow(reader, following), following, end, rules):
            raise NotAStore("the log has grown past its recorded end", path=following.path, offset=end)


def _walk_to(window: BlockWindow, segment: Segment, end: int, rules: DecodeRules, past_damage: bool) -> None:
    position = segment.base
    while position < end:
        walk = chain_from(window, position, rules, stop=end).finish()
        position = segment.end if walk.ended == ChainEnd.BLANK else walk.position
        if walk.ended == ChainEnd.DEFECT:
            found = search_certificate(window, position + 1, end, segment.end).first if past_damage else end + 1
            position = end if found is None else found
            if position > end:
                raise NotAStore("the log ends before its recorded end", path=segment.path, offset=walk.position)
    if position != end:
        raise NotAStore("a record spans the recorded end of the log", path=segment.path, offset=end)


def _goes_on(window: BlockWindow, segment: Segment, end: int, rules: DecodeRules) -> bool:
    walk = chain_from(window, end, rules, stop=min(end + 1, segment.end))
    return any(len(block) for block in walk) or walk.ended == ChainEnd.BLANK
