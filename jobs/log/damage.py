"""What a broken chain means: the end of the log, bytes of an older log after it, or damage; and what survived it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate

from jobs.log.verified_chain import ProvenLog, queue_runs
from jobs.spark.runner import Runner
from storeformat.errors import TotalsDisagree
from storeformat.log.chain import Break
from storeformat.log.framing import EntryNumber
from storeformat.log.segments import Split
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, latest_time
from storeformat.salvage.findings import Broken, DeadRange, Finding, Survey
from storeformat.salvage.queue_offsets import Queue
from udfs.log.find_records import SurveyTask
from udfs.log.scan import ScanTask, SplitScan


@dataclass(frozen=True)
class Tail:
    """Where the proven log ends, and what follows: ``damage``, or bytes of an older log up to ``garbage_end``."""

    offset: int
    garbage_end: int
    surveys: tuple[Survey, ...] = ()
    damage: Break | None = None
    unfinished_end: int | None = None
    """End of the bytes of a last record that was not written completely."""


def find_tail(runner: Runner, known: ProvenLog, task: SurveyTask) -> Tail:
    """Find the end of the log. Zeros follow it, or bytes of an older log that a truncation left: certified records, but
    older than the last one, or with a used queue offset. Any other record proves damage.
    """
    ends = [scan.report.end for scan in known.counted if scan.records]
    proven = max([*ends, *(begin for begin, _ in known.chain.blanks)], default=-1)
    older = [item for item in known.older if item.start.offset >= proven]
    candidates = [item for item in known.chain.breaks if item.offset >= proven]
    end = min((*candidates, *(item.start for item in older)), key=lambda item: item.offset, default=None)
    if end is None:
        return Tail(known.chain.end, known.chain.end)
    if known.is_zero_after(end, known.segments[-1].end):
        return Tail(end.offset, end.offset)
    surveys = runner.map("look past the end", task, list(broken_places(known, candidates)))
    used = [gap.end for item in surveys for gap in item.gaps if gap.finding != Finding.ZEROS]
    unfinished = _unfinished_record(known, end, surveys)
    if unfinished is not None:
        return Tail(end.offset, end.offset, unfinished_end=unfinished)
    is_damage = any(item.pieces or item.kept for item in surveys)
    is_damage |= end in candidates and _lost_a_message(end, surveys[0])
    garbage_end = max([*used, *(item.end for item in older)], default=end.offset)
    return Tail(end.offset, garbage_end, tuple(surveys), end if is_damage else None)


def _unfinished_record(known: ProvenLog, end: Break, surveys: Sequence[Survey]) -> int | None:
    if known.older or any(item.offset < end.offset for item in known.chain.breaks):
        return None
    gaps = [gap for item in surveys for gap in item.gaps]
    if any(item.pieces or item.kept or item.blank for item in surveys) or not gaps:
        return None
    first, *others = gaps
    if first.finding != Finding.UNFINISHED or first.begin != end.offset:
        return None
    return first.end if all(gap.finding == Finding.ZEROS for gap in others) else None


def _lost_a_message(end: Break, survey: Survey) -> bool:
    near = survey.broken.neighbours
    record = survey.gaps[0].record if survey.gaps else None
    if record is not None:
        older = near.before is not None and record.store_timestamp < near.before
        used = record.queued and record.queue_offset < near.ends.get((record.topic, record.queue_id), 0)
        return not (older or used)
    findings = {gap.finding for gap in survey.gaps}
    if Finding.AMBIGUOUS in findings:
        return True
    return end.report.plausible and Finding.STALE not in findings


def broken_places(known: ProvenLog, breaks: Sequence[Break]) -> Iterator[Broken]:
    """What to survey for breaks in log order, with what is proven on both sides. Visits each scan twice."""
    scans = known.counted
    limits = {split.segment.base: split.limit for split in known.splits}
    lost = sorted(
        [(item.offset, item.segment.end) for item in known.chain.breaks]
        + [(item.start.offset, item.end) for item in known.older]
    )
    begins = [begin for begin, _ in lost]
    bytes_lost = [0, *accumulate(end - begin for begin, end in lost)]
    doubts = sorted([*begins, *(first for scan in scans for first, _ in scan.foreign_records)])
    afters, side, at = [], _Side(doubts, backwards=True), len(scans)
    for item in reversed(breaks):
        while at and scans[at - 1].report.split.start >= item.segment.end:
            at -= 1
            side.add(scans[at])
        afters.append(side.copy())
    side, at = _Side(doubts), 0
    for item, after in zip(breaks, reversed(afters), strict=True):
        while at < len(scans) and scans[at].report.end <= item.offset:
            side.add(scans[at])
            at += 1
        before = side.copy()
        near = Neighbours(
            ends=before.edges,
            firsts=after.edges,
            before=latest_time(before.recent, after.first_time) if before.recent else None,
            after=after.first_time,
            room=bytes_lost[bisect_left(begins, item.offset)] + before.foreign_bytes,
            room_after=bytes_lost[-1] - bytes_lost[bisect_left(begins, item.segment.end)] + after.foreign_bytes,
            whole=known.whole,
            other_ends=before.others,
            other_firsts=after.others,
        )
        yield Broken(item.segment, item.offset, item.defect, limits[item.segment.base], near, before.last_number)


class _Side:
    """What the proven records on one side of a break show. ``edges``: next free queue offset of each queue
    (``backwards``: the first one); ``others``: the same without the outermost record, where that contradicts its
    neighbour. ``doubts``: sorted log offsets where messages may be lost.
    """

    def __init__(self, doubts: Sequence[int], *, backwards: bool = False) -> None:
        self._doubts, self._backwards = doubts, backwards
        self.edges: dict[Queue, int] = {}
        self.others: dict[Queue, int] = {}
        self._places: dict[Queue, int] = {}
        self.recent: list[int] = []
        """Store times of the last three records."""
        self.first_time: int | None = None
        self.last_number: EntryNumber | None = None
        self.foreign_bytes = 0

    def copy(self) -> _Side:
        """Snapshot that later calls of ``add`` do not change."""
        known = copy(self)
        known.edges, known.others = dict(self.edges), dict(self.others)
        return known

    def add(self, scan: SplitScan) -> None:
        self.recent = [*self.recent, *scan.times.recent][-3:]
        if scan.times.first is not None:
            self.first_time = scan.times.first
        if scan.report.last_number is not None:
            self.last_number = scan.report.last_number
        self.foreign_bytes += sum(size for _, size in scan.foreign_records)
        for queue, first, count, (begin, last) in queue_runs([scan], backwards=self._backwards):
            known = self.edges.get(queue)
            self.others.pop(queue, None)
            if count == 1 and known is not None:
                end, following = (first + 1, known) if self._backwards else (known, first)
                place = self._places[queue]
                gap = (last, place) if self._backwards else (place, begin)
                if following not in (0, end) and not self._is_lost(*gap):
                    self.others[queue] = known
            self.edges[queue], self._places[queue] = (first, begin) if self._backwards else (first + count, last)

    def _is_lost(self, begin: int, end: int) -> bool:
        at = bisect_right(self._doubts, begin)
        return at < len(self._doubts) and self._doubts[at] < end


def see_all_queues(runner: Runner, known: ProvenLog, task: ScanTask) -> ProvenLog:
    """Scan again for the runs of every queue, if the task selected some queues or none."""
    if task.with_units and not task.topics:
        return known
    everything = replace(task, staging="", topics=(), with_units=True, with_entries=False)
    splits = [replace(report.split, first_record=report.start) for report in known.chain.reports]
    scans = list(known.scans)
    for scan in runner.map("see what all queues prove", everything, splits):
        scans[scan.report.split.number] = scan
    return replace(known, scans=scans)


@dataclass(frozen=True)
class Salvaged:
    """Survivors found by surveys, and what they found instead of records."""

    scans: list[SplitScan]
    kept: list[SplitScan]
    blanks: list[tuple[int, int]]
    gaps: list[DeadRange]


def salvage(runner: Runner, known: ProvenLog, tail: Tail, task: ScanTask, survey: SurveyTask) -> Salvaged:
    """Scan what survived after the breaks of the chain."""
    inner = [item for item in known.chain.breaks if item.offset < tail.offset]
    surveys = runner.map("survey damaged segments", survey, list(broken_places(known, inner)))
    surveys += tail.surveys if tail.damage is not None else ()
    scans = _scan_pieces(runner, "scan what survived", task, surveys, len(known.splits))
    again = {place.segment.base: place for place in _later_places(known, surveys, scans)}
    if again:
        seen = runner.map("survey again after survivors", survey, list(again.values()))
        surveys = [item for item in surveys if item.broken.segment.base not in again] + seen
        surveys.sort(key=lambda item: item.broken.start)
        scans = _scan_pieces(runner, "scan what survived", task, surveys, len(known.splits))
    older = [item for item in known.older if item.start.offset < tail.offset or tail.damage is not None]
    whole = [DeadRange(item.start.offset, item.end, Finding.STALE, item.start.defect) for item in older]
    whole = [gap for gap in whole if gap.begin < gap.end]  # else one record is all: the survey names what is left of it
    unchecked = replace(task, decode_rules=replace(task.decode_rules, check_crc=False))
    return Salvaged(
        scans=scans,
        kept=_scan_pieces(runner, "scan what is kept", unchecked, surveys, len(known.splits) + len(scans), kept=True),
        blanks=[item.blank for item in surveys if item.blank is not None],
        gaps=whole + [gap for item in surveys for gap in item.gaps],
    )


def _later_places(known: ProvenLog, surveys: Sequence[Survey], survivors: Sequence[SplitScan]) -> Iterator[Broken]:
    """Places surveyed without the latest time before them: survivors of other segments are known only afterwards."""
    scans = sorted([*known.counted, *survivors], key=lambda scan: scan.report.end)
    recent: list[int] = []
    at = 0
    for item in sorted(surveys, key=lambda item: item.broken.start):
        near = item.broken.neighbours
        while at < len(scans) and scans[at].report.end <= item.broken.start:
            recent = [*recent, *scans[at].times.recent][-3:]
            at += 1
        before = latest_time(recent, near.after) if recent else None
        if before is not None and (near.before is None or before - CLOCK_SLACK > near.before):
            yield replace(item.broken, neighbours=replace(near, before=before))


def _scan_pieces(
    runner: Runner, what: str, task: ScanTask, surveys: Sequence[Survey], number: int, *, kept: bool = False
) -> list[SplitScan]:
    pieces = [(item.broken, piece) for item in surveys for piece in (item.kept if kept else item.pieces)]
    splits = [
        Split(number + index, broken.segment, start, end, broken.limit, start)
        for index, (broken, (start, end)) in enumerate(pieces)
    ]
    scans = runner.map(what, task, splits) if splits else []
    for split, scan in zip(splits, scans, strict=True):
        if scan.report.start != split.start or scan.report.end != split.stop:
            raise TotalsDisagree(
                "two reads of the same part of the log differ",
                path=split.segment.path, offset=split.start, found=scan.report.end, expected=split.stop,
            )  # fmt: skip
    return scans
