"""Input and output of a survey."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from storeformat.errors import RecordDefect
from storeformat.log.framing import EntryNumber
from storeformat.log.record_ref import RecordRef
from storeformat.log.segments import Segment
from storeformat.salvage.evidence import Neighbours


class Finding(Enum):
    """Kind of a range without a survivor."""

    RECORD = "record"  # one of proven length; ``DeadRange.record`` is set if its head is sound
    BYTES = "bytes"  # at least one record was here
    UNFINISHED = "unfinished"  # the first bytes of one record, then zeros to the end of the data
    ZEROS = "zeros"  # to the end of the data: unwritten at the end of the log, lost pages before it
    BLANK = "blank"  # a damaged BLANK and the rest of the segment: no message was here
    STALE = "stale"  # whole records of an older log
    AMBIGUOUS = "ambiguous"  # whole records: messages, or copies in a lost message's body


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
    """The rest of ``segment`` from ``start``, where ``defect`` says why no record begins, up to ``limit``."""

    segment: Segment
    start: int
    defect: RecordDefect
    limit: int
    neighbours: Neighbours = field(default_factory=Neighbours)
    last_entry: EntryNumber | None = None  # the last proven DLedger entry before


@dataclass(frozen=True)
class Survey:
    """Tiles of the range as log offsets: surviving chains, records kept despite their body CRC, a BLANK, and gaps."""

    broken: Broken
    pieces: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]
    blank: tuple[int, int] | None
    gaps: tuple[DeadRange, ...]
