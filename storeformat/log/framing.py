"""How records lie in a segment: what leads from one to the next, and how one is recognised.

A segment holds *links*, one after the other; each holds one record, after a head of ``Framing.head_size`` bytes. In a
broker's own log a link is the record itself and TOTALSIZE leads to the next (``PLAIN``, here). In a DLedger log it is
an entry, which says its length, its number and its place itself (``storeformat.log.dledger``). Positions of a chain are
those of links; offsets of records, which queues and index hold, lie ``head_size`` bytes after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.errors import RecordDefect
from storeformat.kernels import active


class ChainEnd(IntEnum):
    """Why the chain of a split ended."""

    STOP = 0
    """The next link begins at or after the split's stop."""
    BLANK = 1
    """A BLANK closes the segment."""
    CUT = 2
    """The next link ends after the limit that was asked for."""
    DEFECT = 3
    """The bytes there are no record."""


@dataclass(frozen=True)
class EntryNumber:
    """The place of a DLedger entry in the log of its group: index and term."""

    index: int
    term: int


Verdict = tuple[ChainEnd, RecordDefect] | int
"""How a chain ends at a place, or the size of the link that begins there."""

WRONG_BLANK = (ChainEnd.DEFECT, RecordDefect.LENGTH_MISMATCH)
"""A BLANK that does not reach to the end of its segment."""


@dataclass(frozen=True)
class Framing:
    """Records one after the other, as ``CommitLog`` writes them; the base of every other framing."""

    head_size: ClassVar[int] = 0
    """Bytes of a link before its record."""
    certificate_size: ClassVar[int] = m.CERTIFICATE_SIZE
    """Bytes of a link that are needed to certify it."""
    judged_size: ClassVar[int] = m.BLANK_SIZE
    """Bytes of a link that ``judge`` looks at where they are there."""
    allows_foreign_records: ClassVar[bool] = True
    """Whether a foreign record, one with the offset of another place, may lie in a sound log."""

    def walk(
        self, buffer: Bytes, stop: int, limit: int, buffer_offset: int, last: EntryNumber | None
    ) -> tuple[Int64s, int]:
        """Returns the positions of the links that follow each other from the buffer's first byte on and begin below
        ``stop``, and the position after the last of them. ``last`` is the number of the link before.
        """
        positions: Int64s
        positions, reached = active().walk_sizes(buffer, 0, stop, limit)
        return positions, reached

    def judge(self, head: bytes, position: int, room: int, allowed: int, last: EntryNumber | None) -> Verdict:
        """Returns the size of the link that begins with ``head`` at an offset of the log, or how the chain ends there.

        ``room`` is what the segment has left, ``allowed`` what may be read of it: at least ``BLANK_SIZE`` bytes.
        """
        return judge_head(head, room, allowed)

    def blank_size(self, head: bytes) -> int:
        """Returns the size that a BLANK with this head has."""
        return int.from_bytes(head[:4], "big", signed=True)

    def find(self, data: bytes | bytearray, data_offset: int, length: int, start: int, stop: int) -> int | None:
        """Returns the first log offset p in [start, stop) whose head is in the data and certifies a link at p."""
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
        """Returns the number of the link at a position, None where links have none."""
        return None

    def follows(self, last: EntryNumber | None, first: EntryNumber | None, *, gap: bool = False) -> bool:
        """Returns whether a link may follow another; with ``gap`` others may have lain between."""
        return True


PLAIN = Framing()


def find_records(data: Bytes, data_offset: int, start: int, stop: int) -> Int64s:
    """Returns every log offset p in [start, stop) whose head is in the data and certifies a record at p: what
    ``PLAIN.find`` finds one by one.
    """
    begin = start - data_offset
    end = max(min(stop - data_offset, len(data) - m.CERTIFICATE_SIZE + 1), begin)
    heads = begin + np.flatnonzero(data[begin + m.MAGIC_POSITION : end + m.MAGIC_POSITION] == m.MAGIC_V1_BYTES[0])
    for at in range(1, len(m.MAGIC_V1_BYTES)):
        found = data[heads + m.MAGIC_POSITION + at]
        heads = heads[(found == m.MAGIC_V1_BYTES[at]) | (found == m.MAGIC_V2_BYTES[at])]
    own = data[heads[:, np.newaxis] + np.arange(m.PHYSICAL_OFFSET_POSITION, m.CERTIFICATE_SIZE)].view(">i8").ravel()
    return data_offset + heads[own == heads + data_offset]


def judge_head(head: bytes, room: int, allowed: int) -> Verdict:
    """Returns what TOTALSIZE and MAGICCODE say: the record's size if one can begin here, else how the chain ends.

    ``room`` is what the segment has left, ``allowed`` what may be read of it. A BLANK must reach exactly to the end of
    its segment: the broker does not look, but what a wrong one hides would be lost without a word.
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
    """Returns the size of a link if one of that size can begin here, else how the chain ends."""
    if size < smallest:
        return ChainEnd.DEFECT, RecordDefect.SIZE_TOO_SMALL
    if size > room:
        return ChainEnd.DEFECT, RecordDefect.TRUNCATED
    if size > allowed:
        return ChainEnd.CUT, RecordDefect.OK
    if size > m.MAX_RECORD_SIZE:
        return ChainEnd.DEFECT, RecordDefect.RECORD_TOO_LARGE
    return size
