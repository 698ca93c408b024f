"""Which bytes of the log are records, as the chain of sizes proves it.

A record exists if the sizes from its segment's first byte lead to it. A certificate (magic at +4, the record's own
PHYSICALOFFSET at +28) is necessary but not sufficient: old records with the right offset can lie after a BLANK or after
the true end, and a body can hold a copy of a record.

So each split finds its first record by certificate and reports where its chain started and where it ended;
``follow_chain`` walks these reports from each segment's first byte. A split whose guess was wrong is read again from
the start that the chain proves. The result is the sequential one, for every split size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from storeformat.errors import RecordDefect
from storeformat.log.framing import ChainEnd, EntryNumber
from storeformat.log.segments import Segment, Split


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What one split found: the chain from ``start`` to ``end``.

    ``start`` is None if no record was certified in the split; then ``end`` is the split's start. ``rest_is_zero``
    speaks of the bytes from ``end`` to the split's stop.
    ``plausible`` says that the bytes at a defect carry a record's magic or their own offset: something was meant to be
    there. ``first_number`` and ``last_number`` are those of its links, where they have any.
    """

    split: Split
    start: int | None
    end: int
    ended: ChainEnd
    defect: RecordDefect = RecordDefect.OK
    rest_is_zero: bool = True
    plausible: bool = False
    first_number: EntryNumber | None = None
    last_number: EntryNumber | None = None


@dataclass(frozen=True)
class Break:
    """A place where the chain of a segment ended before the segment did."""

    segment: Segment
    offset: int
    defect: RecordDefect
    report: ChainReport


@dataclass(frozen=True)
class Chain:
    """The proven chain: reports that count, splits to be read again from a known start, and where segments broke off.

    ``blanks`` holds the [begin, end) of the BLANKs, ``end`` is where the next record would be appended.
    """

    reports: list[ChainReport]
    rescans: list[Split]
    breaks: list[Break]
    blanks: list[tuple[int, int]]
    end: int


def follow_chain(segments: Sequence[Segment], splits: Sequence[Split], reports: Sequence[ChainReport]) -> Chain:
    """Returns what the sizes prove from each segment's first split on. ``reports[i]`` belongs to ``splits[i]``.

    If ``rescans`` is not empty, read those splits again, put the new reports in place and call again: each call proves
    at least one more split of every segment that was not done.
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
            if not segment.framing.follows(number, report.first_number, gap=bool(breaks)):
                breaks.append(Break(segment, position, RecordDefect.ENTRY_OUT_OF_ORDER, report))
                break
            number = report.last_number or number
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
