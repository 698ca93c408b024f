"""Where a survey starts, and what it finds: survivors, and what every other range is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from storeformat.errors import RecordDefect
from storeformat.log.framing import EntryNumber
from storeformat.log.record_ref import RecordRef
from storeformat.log.segments import Segment
from storeformat.salvage.evidence import Neighbours


class Finding(Enum):
    """What a range is that holds no survivor."""

    RECORD = "record"
    """One record whose length is proven; ``DeadRange.record`` says which message it was, if its head is sound."""
    BYTES = "bytes"
    """Bytes in which at least one record lay."""
    UNFINISHED = "unfinished"
    """The first bytes of one record, and zeros from there to the end of what can be read."""
    ZEROS = "zeros"
    """Zeros to the end of what can be read: unwritten at the end of the log, lost pages before it."""
    BLANK = "blank"
    """A damaged BLANK with the rest of the segment: no message was there."""
    STALE = "stale"
    """Whole records of an older log."""
    AMBIGUOUS = "ambiguous"
    """Whole records that may be messages, or copies in a lost message's body: nothing tells which."""


@dataclass(frozen=True)
class DeadRange:
    """Bytes [begin, end) in which no record survived."""

    begin: int
    end: int
    finding: Finding
    defect: RecordDefect
    record: RecordRef | None = None


@dataclass(frozen=True)
class Broken:
    """Where to survey: the rest of ``segment`` from ``start``, where a record should begin and ``defect`` says why none
    does; nothing is read after ``limit``.
    """

    segment: Segment
    start: int
    defect: RecordDefect
    limit: int
    neighbours: Neighbours = field(default_factory=Neighbours)
    last_entry: EntryNumber | None = None
    """The last proven DLedger entry before, in a log of such."""


@dataclass(frozen=True)
class Survey:
    """What lies in [start, limit): pieces of chain that survived, records kept in spite of their body's CRC, a BLANK,
    and everything else, as log offsets [begin, end). Together they tile the range.
    """

    broken: Broken
    pieces: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]
    blank: tuple[int, int] | None
    gaps: tuple[DeadRange, ...]
