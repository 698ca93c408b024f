"""Which bytes of the log are records, as the chain of sizes proves it.

A record exists if the sizes from its segment's first byte lead to it. A certificate (magic at +4, the record's own
PHYSICALOFFSET at +28) is necessary but not sufficient: old records with the right offset can follow a BLANK or the
true end, and a body can hold a copy of a record.

Each split finds its first record by certificate and reports the start and end of its chain; ``follow_chain`` walks
the reports from each segment's first byte. A split that guessed wrong is read again from the proven start. The result
equals the sequential one for every split size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from storeformat.errors import RecordDefect
from storeformat.log.segments import ChainEnd, EntryNumber, Segment, Split


@dataclass(frozen=True, slots=True)
class EntryNumbers:
    """Numbers of a chain's first and last DLedger entry; None where links have no numbers."""

    first: EntryNumber | None = None
    last: EntryNumber | None = None


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The chain [start, end) of one split; without a certified record ``start`` is None and ``end`` the split's start.
    ``rest_is_zero``: up to the split's stop. ``plausible``: the defect has a record's magic or own offset.
    """

    split: Split
    start: int | None
    end: int
    ended: ChainEnd
    defect: RecordDefect = RecordDefect.OK
    rest_is_zero: bool = True
    plausible: bool = False
    numbers: EntryNumbers = EntryNumbers()


@dataclass(frozen=True)
class Break:
    """Where the chain of a segment ended before the segment."""

    segment: Segment
    offset: int
    defect: RecordDefect
    report: ChainReport


@dataclass(frozen=True)
class Chain:
    """Accepted reports, splits to read again, breaks, [begin, end) of BLANKs, and the offset of the next record."""

    reports: list[ChainReport]
    rescans: list[Split]
    breaks: list[Break]
    blanks: list[tuple[int, int]]
    end: int


def follow_chain(segments: Sequence[Segment], splits: Sequence[Split], reports: Sequence[ChainReport]) -> Chain:
    """What the sizes prove from each segment's first split on. ``reports[i]`` belongs to ``splits[i]``. While
    ``rescans`` is not empty, read those splits again and call again: each call proves at least one more split.
    """
    accepted: list[ChainReport] = []
    rescans: list[Split] = []
    breaks: list[Break] = []
    blanks: list[tuple[int, int]] = []
    by_segment: dict[int, list[int]] = {segment.base: [] for segment in segments}
    for index, split in enumerate(splits):
        by_segment[split.segment.base].append(index)
    end = splits[0].start if splits else segments[0].base if segments else 0
    number: EntryNumber | None = None
    for segment in segments:
        own = by_segment[segment.base]
        position = known = splits[own[0]].start if own else segment.base
        for index in own:
            split, report = splits[index], reports[index]
            if position >= split.stop:
                continue
            if report.start != position:
                rescans.append(replace(split, first_record=position))
                break
            if not segment.framing.follows(number, report.numbers.first, gap=bool(breaks)):
                breaks.append(Break(segment, position, RecordDefect.ENTRY_OUT_OF_ORDER, report))
                break
            number = report.numbers.last or number
            accepted.append(report)
            position = report.end
            if report.ended == ChainEnd.BLANK:
                blanks.append((position, segment.end))
                position = segment.end
            if report.ended == ChainEnd.DEFECT:
                breaks.append(Break(segment, position, report.defect, report))
            if report.ended != ChainEnd.STOP:
                break
        if position > known:
            end = position
    return Chain(accepted, rescans, breaks, blanks, end)
