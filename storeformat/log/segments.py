"""Segments of the commit log, and the splits in which they are read.

=============  ================================================================
segment name   20 decimal digits: the log offset of its first byte
BLANK          TOTALSIZE = rest of the segment, magic 0xCBD43194; closes a segment
unwritten      zeros from the log's end to the end of the last written segment
=============  ================================================================

Mirrors ``MappedFileQueue``.

How a segment holds records: the step from one to the next, and how one is recognised.

A segment is a sequence of *links*; each holds one record after a head of ``Framing.head_size`` bytes. In a broker's own
log a link is the record itself and TOTALSIZE leads to the next (``PLAIN``). In a DLedger log it is an entry with its
length, number and position (``storeformat.log.dledger``). Chain positions are those of links; record offsets, which
queues and index hold, are ``head_size`` bytes higher.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.errors import NotAStore, RecordDefect
from storeformat.kernels import active


class ChainEnd(IntEnum):
    """Why the chain of a split ended."""

    STOP = 0  # the next link begins at or after the split's stop
    BLANK = 1  # a BLANK closes the segment
    CUT = 2  # the next link ends after the requested limit
    DEFECT = 3  # the bytes there are no record


@dataclass(frozen=True)
class EntryNumber:
    """Index and term of a DLedger entry."""

    index: int
    term: int


Verdict = tuple[ChainEnd, RecordDefect] | int  # how a chain ends at a position, or the size of the link there

WRONG_BLANK = (ChainEnd.DEFECT, RecordDefect.LENGTH_MISMATCH)  # a BLANK that does not reach the end of its segment


@dataclass(frozen=True)
class Framing:
    """Consecutive records, as ``CommitLog`` writes them; base of the other framings."""

    head_size: ClassVar[int] = 0  # bytes of a link before its record
    certificate_size: ClassVar[int] = m.CERTIFICATE_SIZE  # bytes of a link needed to certify it
    judged_size: ClassVar[int] = m.BLANK_SIZE  # bytes of a link that ``judge`` reads, if present
    allows_foreign_records: ClassVar[bool] = True  # whether a sound log may hold records of another offset

    def walk(
        self, buffer: Bytes, stop: int, limit: int, buffer_offset: int, last: EntryNumber | None
    ) -> tuple[Int64s, int]:
        """Positions of consecutive links that begin below ``stop``, and where they end; ``last`` is the link before."""
        positions: Int64s
        positions, reached = active().walk_sizes(buffer, 0, stop, limit)
        return positions, reached

    def judge(self, head: bytes, position: int, room: int, allowed: int, last: EntryNumber | None) -> Verdict:
        """Size of the link that begins with ``head`` at a log offset, or how the chain ends there. ``room``: bytes left
        in the segment; ``allowed``: how many of them may be read, at least ``BLANK_SIZE``.
        """
        return judge_head(head, room, allowed)

    def blank_size(self, head: bytes) -> int:
        return int.from_bytes(head[:4], "big", signed=True)

    def find(self, data: bytes | bytearray, data_offset: int, length: int, start: int, stop: int) -> int | None:
        """First log offset in [start, stop) whose head is in the data and certifies a link."""
        at = start - data_offset + m.MAGIC_POSITION
        last = min(stop, data_offset + length - m.CERTIFICATE_SIZE + 1) - data_offset + m.MAGIC_POSITION
        while True:
            at = data.find(m.MAGIC_V1_BYTES[:3], at, last + 3)
            if at < 0 or at >= last:
                return None
            head = at - m.MAGIC_POSITION
            own = head + m.PHYSICAL_OFFSET_POSITION
            if data[at : at + 4] in (m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES) and (
                int.from_bytes(data[own : own + 8], "big", signed=True) == data_offset + head
            ):
                return data_offset + head
            at += 1

    def number_at(self, buffer: Bytes, position: int) -> EntryNumber | None:
        """Number of the link at a position, None where links have none."""
        return None

    def follows(self, last: EntryNumber | None, first: EntryNumber | None, *, gap: bool = False) -> bool:
        """True if a link may follow another; ``gap``: others may be missing between them."""
        return True


PLAIN = Framing()


def find_records(data: Bytes, data_offset: int, start: int, stop: int) -> Int64s:
    """All log offsets in [start, stop) that ``PLAIN.find`` would find one by one."""
    begin = start - data_offset
    end = max(min(stop - data_offset, len(data) - m.CERTIFICATE_SIZE + 1), begin)
    heads = begin + np.flatnonzero(data[begin + m.MAGIC_POSITION : end + m.MAGIC_POSITION] == m.MAGIC_V1_BYTES[0])
    for at in range(1, len(m.MAGIC_V1_BYTES)):
        found = data[heads + m.MAGIC_POSITION + at]
        heads = heads[(found == m.MAGIC_V1_BYTES[at]) | (found == m.MAGIC_V2_BYTES[at])]
    own = data[heads[:, np.newaxis] + np.arange(m.PHYSICAL_OFFSET_POSITION, m.CERTIFICATE_SIZE)].view(">i8").ravel()
    return data_offset + heads[own == heads + data_offset]


def judge_head(head: bytes, room: int, allowed: int) -> Verdict:
    """The record's size from TOTALSIZE and MAGICCODE, or how the chain ends; ``room`` and ``allowed`` as in ``judge``.
    A BLANK must end with its segment: the broker does not check, but a wrong one would silently hide records.
    """
    size = int.from_bytes(head[:4], "big", signed=True)
    magic = int.from_bytes(head[4:8], "big", signed=True)
    if magic == m.MAGIC_BLANK:
        return (ChainEnd.BLANK, RecordDefect.OK) if size == room else WRONG_BLANK
    if size == 0 and magic == 0:
        return ChainEnd.DEFECT, RecordDefect.UNWRITTEN
    if magic not in (m.MAGIC_V1, m.MAGIC_V2):
        return ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC
    return judge_size(size, m.MIN_RECORD_SIZE, room, allowed)


def judge_size(size: int, smallest: int, room: int, allowed: int) -> Verdict:
    """The size of a link if one of that size can begin here, else how the chain ends."""
    if size < smallest:
        return ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL
    if size > room:
        return ChainEnd.DEFECT, RecordDefect.TRUNCATED
    if size > allowed:
        return ChainEnd.CUT, RecordDefect.OK
    if size > m.MAX_RECORD_SIZE:
        return ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE
    return size


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
