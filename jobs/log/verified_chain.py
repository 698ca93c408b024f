"""The proven part of a log, and its segments that begin with an older log: earlier content of a file of the same name.

A page that was never written, or a file from an old backup, holds certified and chained records. Signs of them:

==============  ===================================================================================================
their times     all are older than the segment before; a clock that was set back may be the cause
their queues    in a continuous log the queue offsets of two segments join at the border; few do so by chance
what follows    the next segment is as recent as before, or survivors of this log follow a broken chain
==============  ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from storeformat.errors import RecordDefect
from storeformat.log.chain import Break, Chain
from storeformat.log.segments import Segment, Split
from storeformat.salvage.evidence import CLOCK_SLACK, latest_time
from storeformat.salvage.queue_offsets import Queue
from storeformat.salvage.survey import DeadRange, Finding
from udfs.log.scan import SplitScan


@dataclass(frozen=True)
class ProvenLog:
    """Segments, splits with their scans, and the chain through them up to ``end``; ``whole``: it begins at offset 0.
    ``older``: records of an older log, from the start of a segment to its end or to where their chain breaks.
    """

    segments: Sequence[Segment]
    splits: Sequence[Split]
    scans: Sequence[SplitScan]
    chain: Chain
    end: int
    whole: bool
    older: tuple[DeadRange, ...] = ()

    @property
    def counted(self) -> list[SplitScan]:
        return [self.scans[report.split.number] for report in self.chain.reports]

    def is_zero_after(self, end: Break, limit: int) -> bool:
        """True if only zeros follow a break up to the end ``limit`` of its segment."""
        if end.defect != RecordDefect.UNWRITTEN or not end.report.rest_is_zero:
            return False
        reports = (scan.report for scan in self.scans)
        return all(
            report.rest_is_zero
            and (report.start is None or (report.defect == RecordDefect.UNWRITTEN and report.end == report.start))
            for report in reports
            if end.report.split.stop <= report.split.start < limit
        )


def queue_runs(
    scans: Sequence[SplitScan], *, backwards: bool = False
) -> Iterator[tuple[Queue, int, int, tuple[int, int]]]:
    """Queue, first queue offset, count and log offsets of first and last record of all runs, in log order per queue."""
    columns = ["topic_codes", "queue_ids", "first_queue_offsets", "counts", "first_offsets", "last_offsets"]
    for scan in scans:
        for code, queue_id, first, count, *places in scan.staged.unit_runs[columns].tolist()[:: -1 if backwards else 1]:
            yield (scan.staged.topics[code], queue_id), first, count, tuple(places)


def time_before(scans: Sequence[SplitScan], after: int | None) -> int | None:
    """Time of the last records of these scans; ``after`` is the time after them, if known."""
    recent: list[int] = []
    for scan in reversed(scans):
        recent = [*scan.times.recent, *recent][-3:]
        if len(recent) == 3:
            break
    return latest_time(recent, after) if recent else None


def queues_must_tell(known: ProvenLog) -> bool:
    """True if times alone do not show which segments belong to this log; then all queues are needed."""
    written = _written(known)
    return _is_long_before(written) or any(_lag(before, scans)[1] > 0 for before, scans in pairwise(written))


def without_older_segments(known: ProvenLog) -> ProvenLog:
    """Remove segments that begin with an older log; where their chain breaks off is an ordinary break."""
    written = _written(known)
    breaks = {item.segment.base: item for item in known.chain.breaks}
    blanks = set(known.chain.blanks)
    older: dict[int, DeadRange] = {}
    before: list[SplitScan] = []
    for number, scans in enumerate(written):
        segment = scans[0].report.split.segment
        end = breaks.get(segment.base)
        is_broken = end is not None and not known.is_zero_after(end, segment.end)
        if not _is_of_another_life(before, scans, written[number + 1 :], blanks, is_broken=is_broken):
            before = scans
            continue
        if end is not None and is_broken:  # its last record may have lost its end to this log
            last = max(scan.dispatched.last for scan in scans)
            end = breaks[segment.base] = Break(segment, last, RecordDefect.OLDER_LOG, end.report)
        stop = segment.end if end is None else end.offset
        older[segment.base] = DeadRange(segment.base, stop, Finding.STALE, RecordDefect.OLDER_LOG)
    if not older:
        return known
    reports = [report for report in known.chain.reports if report.split.segment.base not in older]
    ranges = [(item.begin, item.end) for item in older.values()]
    kept = [blank for blank in known.chain.blanks if not any(begin <= blank[0] < end for begin, end in ranges)]
    chain = replace(known.chain, reports=reports, blanks=kept, breaks=list(breaks.values()))
    return replace(known, chain=chain, older=tuple(older.values()))


def _written(known: ProvenLog) -> list[list[SplitScan]]:
    by_segment: dict[int, list[SplitScan]] = {}
    for scan in known.counted:
        if scan.records:
            by_segment.setdefault(scan.report.split.segment.base, []).append(scan)
    return list(by_segment.values())


def _is_of_another_life(
    before: Sequence[SplitScan],
    scans: Sequence[SplitScan],
    later: Sequence[Sequence[SplitScan]],
    blanks: Collection[tuple[int, int]],
    *,
    is_broken: bool,
) -> bool:
    """True if a segment is older than the one before it and its queues do not continue from there. A clock that was set
    back explains a lag up to the log's end; beyond ``CLOCK_SLACK`` most queues must continue, after a broken chain all.
    """
    if not before:  # only the second segment's queues continue
        if not _is_long_before([scans, *later]):
            return False
        jumps, _, queues = _border(scans, later[0], blanks)
        jumps_after, joints_after, _ = _border(later[0], later[1], blanks)
        return jumps > 1 and 4 * jumps > queues and jumps_after < joints_after  # one may be a damaged queue offset
    time, lag = _lag(before, scans)
    if lag <= 0:
        return False
    is_next = bool(later) and _begins(later[0]) >= time - CLOCK_SLACK
    left, right = _border(before, scans, blanks), _border(scans, later[0] if is_next else (), blanks)
    jumps, joints, queues = (one + other for one, other in zip(left, right, strict=True))
    if lag > CLOCK_SLACK and is_broken:
        return joints < max(queues, 2)
    if lag > CLOCK_SLACK:
        return (4 * jumps > queues or 2 * joints <= queues) if queues else is_next
    return 2 * jumps > queues and (not later or any(_begins(other) >= time for other in later))


def _lag(before: Sequence[SplitScan], scans: Sequence[SplitScan]) -> tuple[int, int]:
    time = time_before(before, None) or 0
    return time, time - max(scan.times.latest for scan in scans)


def _is_long_before(written: Sequence[Sequence[SplitScan]]) -> bool:
    """The first segment is older than the second by more than a clock jumps; a third must follow."""
    if len(written) < 3:
        return False
    return _begins(written[1]) - max(scan.times.latest for scan in written[0]) > CLOCK_SLACK


def _begins(scans: Sequence[SplitScan]) -> int:
    return scans[0].times.first or 0


def _border(
    one: Sequence[SplitScan], other: Sequence[SplitScan], blanks: Collection[tuple[int, int]]
) -> tuple[int, int, int]:
    """Counts of queues: with a jump between two segments (forward: over just a BLANK), continuing, and in both."""
    if not one or not other:
        return 0, 0, 0
    ends = {queue: first + count for queue, first, count, _ in queue_runs(one)}
    firsts = {queue: first for queue, first, *_ in queue_runs(other[::-1], backwards=True)}
    is_dense = (one[-1].report.end, other[0].report.start) in blanks
    pairs = [(ends[queue], firsts[queue]) for queue in ends.keys() & firsts.keys() if firsts[queue]]
    jumps = sum(first < end or (is_dense and first > end) for end, first in pairs)
    return jumps, sum(first == end for end, first in pairs), len(pairs)
