"""The proven part of a log, as the scans of its splits and the chain through them show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storeformat.errors import RecordDefect
from storeformat.log.chain import Break, Chain, ChainReport
from storeformat.log.segments import Segment, Split
from storeformat.salvage.evidence import latest_time
from storeformat.salvage.queue_offsets import Queue
from udfs.log.scan import SplitScan


@dataclass(frozen=True)
class OlderRecords:
    """Records of an older log in this one's place, from the ``start`` of a segment to ``end``: to its end, or to where
    their chain breaks and survivors of this log may follow.
    """

    start: Break
    end: int


@dataclass(frozen=True)
class ProvenLog:
    """The proven part of a log: segments, splits with their scans, and the chain through them.

    What was to be read goes up to ``end``; ``whole`` says that it begins at offset 0.
    """

    segments: Sequence[Segment]
    splits: Sequence[Split]
    scans: Sequence[SplitScan]
    chain: Chain
    end: int
    whole: bool
    older: tuple[OlderRecords, ...] = ()
    """What the chain leaves out at the beginnings of segments."""

    @property
    def counted(self) -> list[SplitScan]:
        """The scans that the chain leads through, in log order."""
        return [self.scans[report.split.number] for report in self.chain.reports]

    def is_zero_after(self, end: Break, limit: int) -> bool:
        """Returns whether nothing but zeros lies from a break of the chain to the end ``limit`` of a segment."""
        if end.defect != RecordDefect.UNWRITTEN or not end.report.rest_is_zero:
            return False
        reports = (scan.report for scan in self.scans)
        return all(_is_zero(report) for report in reports if end.report.split.stop <= report.split.start < limit)


def _is_zero(report: ChainReport) -> bool:
    begins_unwritten = report.start is None or (report.defect == RecordDefect.UNWRITTEN and report.end == report.start)
    return begins_unwritten and report.rest_is_zero


def queue_runs(
    scans: Sequence[SplitScan], *, backwards: bool = False
) -> Iterator[tuple[Queue, int, int, tuple[int, int]]]:
    """Yields queue, first queue offset and count of all runs and the log offsets of their first and last records, in
    log order within a queue or in the opposite one.
    """
    for scan in scans:
        runs = scan.runs
        rows = zip(
            runs.topic_codes.tolist(),
            runs.queue_ids.tolist(),
            runs.first_queue_offsets.tolist(),
            runs.counts.tolist(),
            runs.first_offsets.tolist(),
            runs.last_offsets.tolist(),
            strict=True,
        )
        for code, queue_id, first, count, begin, last in list(rows)[:: -1 if backwards else 1]:
            yield (scan.topics[code], queue_id), first, count, (begin, last)


def time_before(scans: Sequence[SplitScan], after: int | None) -> int | None:
    """Returns the time of the last records of these scans; ``after`` is the time after them, if anything is."""
    recent: list[int] = []
    for scan in scans[::-1]:
        recent = [*scan.times.recent, *recent][-3:]
        if len(recent) == 3:
            break
    return latest_time(recent, after) if recent else None
