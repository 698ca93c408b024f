"""Segments of the commit log, and the splits in which they are read.

=============  ================================================================
segment name   20 decimal digits: the log offset of its first byte
BLANK          TOTALSIZE = rest of the segment, magic 0xCBD43194; closes a segment
unwritten      zeros from the log's end to the end of the last written segment
=============  ================================================================

Mirrors ``MappedFileQueue``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from storeformat.errors import NotAStore
from storeformat.log.framing import PLAIN, Framing


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the commit log: ``base`` is the log offset of its first byte, ``size`` its length."""

    path: str
    base: int
    size: int
    framing: Framing = PLAIN
    missing: int = 0  # bytes at its end that no file holds: all of them if there is no file

    @property
    def end(self) -> int:
        return self.base + self.size


def segment_at(segments: Sequence[Segment], offset: int) -> Segment | None:
    """The segment that holds the byte at a log offset."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base) - 1
    return segments[at] if at >= 0 and offset < segments[at].end else None


def segment_with(segments: Sequence[Segment], offset: int) -> Segment:
    """The segment that holds the byte at a log offset. Raises NotAStore without one."""
    segment = segment_at(segments, offset)
    if segment is None:
        raise NotAStore("no segment of the log holds this offset", offset=offset)
    return segment


@dataclass(frozen=True, slots=True)
class Split:
    """The part [start, stop) of a segment, with the records that begin there. ``limit``: end of the data (the segment's
    end, or ``--until-offset``). ``first_record``: known position of a record, None if it must be searched.
    """

    number: int
    segment: Segment
    start: int
    stop: int
    limit: int
    first_record: int | None = None


@dataclass(frozen=True)
class LogPart:
    """Part [begin, until) of a log, None: open. ``begin`` must be a proven record position or the log's end."""

    begin: int | None = None
    until: int | None = None

    def end_in(self, segments: Sequence[Segment]) -> int:
        end = segments[-1].end
        return end if self.until is None else min(end, max(self.until, segments[0].base))


WHOLE_LOG = LogPart()


def plan_splits(segments: Sequence[Segment], split_size: int, part: LogPart = WHOLE_LOG) -> list[Split]:
    """Splits of a part of the log, in log order; ``split_size`` may be smaller than a record."""
    splits: list[Split] = []
    for segment in segments:
        limit = segment.end if part.until is None else min(segment.end, part.until)
        known = segment.base if part.begin is None else max(segment.base, part.begin)
        for start in range(known, limit, split_size):
            stop = min(start + split_size, limit)
            first = start if start == known else None
            splits.append(Split(len(splits), segment, start, stop, limit, first))
    return splits
