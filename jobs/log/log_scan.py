"""Reading a whole commit log: scan the splits, prove the chain, account for every byte."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from jobs.contract.options import DamagePolicy
from jobs.contract.report import counted, losses_text, size_text
from jobs.log.losses import Losses, QueueRules, StrayRecord, account_for_queues
from jobs.log.verified_chain import ProvenLog, queue_runs, queues_must_tell, time_before, without_older_segments
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import DamagedLog, RecordDefect, TotalsDisagree
from storeformat.log.chain import Break, follow_chain
from storeformat.log.segments import WHOLE_LOG, EntryNumber, LogPart, Segment, Split, plan_splits, segment_at
from storeformat.queues.queue_runs import DamagedBytes, QueueRuns
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, Side
from storeformat.salvage.queue_offsets import Queue
from storeformat.salvage.survey import Broken, Finding, Survey
from udfs.log.log_copies import joined, without
from udfs.log.scan import ScanTask, SplitScan
from udfs.log.staged_runs import RUN
from udfs.log.survey import SurveyTask

DEFAULT_SPLIT_SIZE = 256 << 20


class RangeKind(Enum):
    """What a range of the log outside sound messages is."""

    DAMAGED = "damaged"
    KEPT = "kept"  # a record that counts although the CRC of its body fails
    STALE = "stale"  # of an older log
    BLANK = "blank"  # to the end of its segment
    UNFINISHED = "unfinished"  # first bytes of a last record that the broker did not write completely; zeros follow
    HEALED = "healed"  # taken from a replica


@dataclass(frozen=True)
class LogRange:
    """Bytes [begin, end) of the log, and why they are named; ``held_record``: they certainly held a record."""

    begin: int
    end: int
    kind: RangeKind
    reason: str
    held_record: bool = True

    def as_row(self) -> dict[str, object]:
        return {"begin": self.begin, "end": self.end, "reason": self.reason}


@dataclass(frozen=True)
class LogReading:
    """A proven reading [begin, end) of the log, which was read to ``limit``. ``scans`` are in log order and hold every
    record once; ``ranges`` begin in log order.
    """

    segments: list[Segment]
    scans: list[SplitScan]
    begin: int
    end: int
    limit: int
    ranges: list[LogRange]
    rules: QueueRules = field(default_factory=QueueRules)
    all_losses: Losses | None = None
    """The losses, if the rest of the store proves more than the log itself."""

    def of(self, *kinds: RangeKind) -> list[LogRange]:
        return [item for item in self.ranges if item.kind in kinds]

    def with_ranges(self, *more: LogRange) -> LogReading:
        return replace(self, ranges=sorted([*self.ranges, *more], key=lambda item: item.begin))

    @property
    def damaged(self) -> list[LogRange]:
        return self.of(RangeKind.DAMAGED)

    @property
    def stale(self) -> list[LogRange]:
        return self.of(RangeKind.STALE)

    @property
    def kept(self) -> list[LogRange]:
        return self.of(RangeKind.KEPT)

    @property
    def foreign_records(self) -> list[tuple[int, int]]:
        """Offsets and sizes of records of another place, without messages whose PHYSICALOFFSET is damaged."""
        damaged = {item.begin for item in self.damaged}
        return [item for scan in self.scans for item in scan.special.foreign if item[0] not in damaged]

    @property
    def unwritten_bytes(self) -> int:
        named = joined((item.begin, item.end) for item in self.of(RangeKind.DAMAGED, RangeKind.STALE))
        return sum(end - begin for begin, end in without([(self.end, self.limit)], named))

    @property
    def blank_bytes(self) -> int:
        return sum(item.end - item.begin for item in self.of(RangeKind.BLANK))

    @property
    def record_bytes(self) -> int:
        return sum(scan.record_bytes for scan in self.scans)

    @property
    def records(self) -> int:
        return sum(scan.records for scan in self.scans)

    @property
    def last_timestamp(self) -> int:
        return next((scan.times.last for scan in reversed(self.scans) if scan.times.last is not None), 0)

    @property
    def ends_with_segment(self) -> bool:
        """The log fills its last segment; a broker creates the next one in advance."""
        return self.end == self.segments[-1].end

    @property
    def damaged_places(self) -> list[LogRange]:
        """Where a broker would cut the log: damage, records kept despite damage, and healed ranges."""
        return self.of(RangeKind.DAMAGED, RangeKind.KEPT, RangeKind.HEALED)

    @property
    def losses(self) -> Losses:
        return self._queues[1] if self.all_losses is None else self.all_losses

    @property
    def left_out(self) -> list[StrayRecord]:
        """Stray records that a salvage leaves out of all queues."""
        return self.losses.strays if self.rules.salvaged else []

    @property
    def queue_runs(self) -> QueueRuns:
        return self._queues[0]

    @property
    def is_damaged(self) -> bool:
        losses = self.losses
        return bool(self.damaged or self.kept or losses.at_least or self.left_out)

    @cached_property
    def _queues(self) -> tuple[QueueRuns, Losses]:
        ranges = [(item.begin, item.end, item.held_record) for item in self.damaged]
        others = [(item.begin, item.end - item.begin) for item in self.stale] + self.foreign_records
        others += [filler for scan in self.scans for filler in scan.special.fillers]
        ranges += [(offset, offset + size, False) for offset, size in others]
        return account_for_queues(self.scans, all_runs(self.scans), DamagedBytes.of(ranges), self.rules)

    @property
    def notes(self) -> list[str]:
        text = (
            "the last record, at offset {}, was not written to its end, and only zeros follow: the log ends before "
            "it, as with a broker; one message is lost that was not acknowledged or not yet flushed"
        )
        return [text.format(item.begin) for item in self.of(RangeKind.UNFINISHED)]

    @property
    def figures(self) -> str:
        """Its messages and bytes, and what is lost, in words."""
        size = size_text(self.end - self.begin)
        sound = "damaged, and no message is lost" if self.is_damaged else "no message is lost"
        return f"{counted(self.records, 'message')} in {size} of log; {losses_text(self.losses.facts()) or sound}"

    def facts(self) -> dict[str, Any]:
        rows = {kind: [item.as_row() for item in self.of(kind)] for kind in RangeKind}
        return {
            "log_begin": self.begin,
            "log_end": self.end,
            "bytes": sum(segment.size for segment in self.segments),
            "messages": self.records,
            "damaged_ranges": rows[RangeKind.DAMAGED],
            **self.losses.facts(),
            "kept_records": rows[RangeKind.KEPT],
            "stale_ranges": rows[RangeKind.STALE],
            "unwritten_bytes": self.unwritten_bytes,
            "unfinished_record": next(iter(rows[RangeKind.UNFINISHED]), None),
            "ghosts": [{"offset": offset, "size": size} for offset, size in self.foreign_records[:1000]],
        }


def all_runs(scans: Sequence[SplitScan], *, of_batches: bool = False) -> QueueRuns:
    """The runs of scans in log order; ``of_batches``: those of BatchCQ topics, rows of ``BATCH_RUN``."""
    parts = [scan.staged.batch_runs if of_batches else scan.staged.unit_runs for scan in scans]
    topics: dict[bytes, int] = {}
    keys = [np.zeros(0, np.int64)]
    for scan, runs in zip(scans, parts, strict=True):
        codes = np.array([topics.setdefault(topic, len(topics)) for topic in scan.staged.topics], np.int64)
        keys.append((codes[runs.topic_codes] << 32) | runs.queue_ids)
    scan_of_run = np.repeat(np.arange(len(scans)), [len(runs) for runs in parts])
    rows = np.concatenate(parts) if parts else np.zeros(0, RUN)
    table = QueueRuns(list(topics), np.concatenate(keys), rows.view(np.recarray), scan_of_run)
    return table.take(np.argsort(table.keys, kind="stable"))


def scan_log(
    runner: Runner,
    segments: Sequence[Segment],
    task: ScanTask,
    *,
    split_size: int = DEFAULT_SPLIT_SIZE,
    part: LogPart = WHOLE_LOG,
    on_damage: DamagePolicy = "fail",
    keep_crc_failures: bool = False,
) -> LogReading:
    """Read and prove the log. At the first damage ``fail`` raises DamagedLog and ``stop`` ends the log as a broker's
    recovery does; ``salvage`` continues after it, with ``keep_crc_failures`` also with records of a wrong body CRC.
    """
    fails, salvages = on_damage == "fail", on_damage == "salvage"
    if salvages:
        task = replace(task, with_units=True)  # what a queue misses tells which messages are lost
    splits = plan_splits(segments, split_size, part)
    scans = sharing(runner.map("scan the commit log", task, splits), splits)
    chain = follow_chain(segments, splits, [scan.report for scan in scans])
    while chain.rescans:
        for scan in runner.map("scan again from proven starts", task, chain.rescans):
            scans[scan.report.split.number] = scan
        chain = follow_chain(segments, splits, [scan.report for scan in scans])
    from_zero = part.begin is None and segments[0].base == 0
    known = ProvenLog(
        segments, splits, scans, chain, part.end_in(segments), whole=from_zero and task.with_units and not task.topics
    )
    has_foreign_records = any(scan.special.foreign for scan in known.counted)
    if (salvages and chain.breaks) or has_foreign_records or queues_must_tell(known):
        known = see_all_queues(runner, known, task)
        known = replace(known, whole=from_zero)
    known = without_older_segments(known)
    survey = SurveyTask(task.decode_rules, keep_crc_failures and salvages)
    tail = find_tail(runner, known, survey)
    breaks = [(item.offset, item.defect) for item in known.chain.breaks if item.offset < tail.offset]
    # a broker reads a file of an older log: whether it belongs to this log, a person must say
    breaks += [(item.begin, item.defect) for item in known.older if item.begin < tail.offset or fails]
    breaks += [(tail.offset, tail.damage)] if tail.damage is not None else []
    first = min(breaks, key=lambda item: item[0], default=None)
    if first is not None and fails:
        raise damaged_log(segments, first[0], str(first[1]))
    proven = replace(known, scans=scans)
    if first is not None and salvages:
        reading = seen = _salvaged(runner, known, proven, tail, task, survey)
    else:
        reading, seen = (_ended(log, tail, first, salvaged=salvages) for log in (proven, known))
    explaining = seen.losses.explaining  # a foreign record where a message is missing has a damaged PHYSICALOFFSET
    places = [(at, at + size) for at, size in reading.foreign_records if at in explaining]
    reason = str(RecordDefect.FOREIGN_OFFSET)
    reading = reading.with_ranges(*(LogRange(*place, RangeKind.DAMAGED, reason) for place in places))
    if fails and places:
        raise damaged_log(segments, places[0][0], reason, "--on-damage salvage fills the place of the message")
    if fails:
        _refuse_stray_records(runner, known, task, reading)
    _check_tiling(reading)
    return reading


def damaged_log(
    segments: Sequence[Segment],
    offset: int,
    what: str,
    advice: str = "--on-damage stop ends the log there as the broker would; salvage recovers what follows",
) -> DamagedLog:
    """The error for the first damage of a log."""
    path = (segment_at(segments, offset) or segments[-1]).path
    return DamagedLog(f"the commit log is damaged: {what}", path=path, offset=offset, advice=advice)


def sharing(scans: Sequence[SplitScan], splits: Sequence[Split]) -> list[SplitScan]:
    """Share one object for equal splits, segments and topics: each task returns its own copies."""
    if [scan.report.split.number for scan in scans] != [split.number for split in splits]:
        raise TotalsDisagree("scans were lost", found=len(scans), expected=len(splits))
    known: dict[bytes, bytes] = {}
    lists: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
    shared: list[SplitScan] = []
    for scan, split in zip(scans, splits, strict=True):
        own = scan.staged.topics
        topics = lists.get(own) or tuple(known.setdefault(topic, topic) for topic in own)
        staged = replace(scan.staged, topics=lists.setdefault(topics, topics))
        shared.append(replace(scan, report=replace(scan.report, split=split), staged=staged))
    return shared


def _refuse_stray_records(runner: Runner, known: ProvenLog, task: ScanTask, reading: LogReading) -> None:
    """Refuse where a broker would append a stray record and move all later messages of its queue."""
    if task.topics and reading.queue_runs.has_gaps():  # records of queues that are not selected may explain them
        reading = replace(reading, scans=see_all_queues(runner, known, task).counted)
    for stray in reading.losses.strays:
        if stray.moves_others:
            raise damaged_log(
                reading.segments,
                stray.offset,
                f"the record at {stray.offset} says it is message {stray.queue_offset} of "
                f"{stray.topic}/{stray.queue_id}, which cannot be",
                "--on-damage salvage leaves it out; stop appends it where it says, and the messages after it move",
            )


def _ended(log: ProvenLog, tail: Tail, first: tuple[int, RecordDefect] | None, *, salvaged: bool) -> LogReading:
    """The log up to its ``first`` break, where a broker cuts it, or to its end."""
    if first is None:
        ranges = [*_blanks(log.chain.blanks), *tail.ranges]
        return _reading(log, log.counted, tail.offset, ranges, salvaged=salvaged)
    end, defect = first
    cut = LogRange(end, log.segments[-1].end, RangeKind.DAMAGED, f"{defect}; the log was ended here")
    blanks = _blanks(blank for blank in log.chain.blanks if blank[1] <= end)
    scans = [scan for scan in log.counted if scan.report.end <= end]
    return _reading(log, scans, end, [*blanks, cut], salvaged=salvaged)


def _blanks(blanks: Iterable[tuple[int, int]]) -> list[LogRange]:
    return [LogRange(begin, end, RangeKind.BLANK, "", held_record=False) for begin, end in blanks]


def _salvaged(
    runner: Runner, known: ProvenLog, proven: ProvenLog, tail: Tail, task: ScanTask, survey: SurveyTask
) -> LogReading:
    """The ``proven`` log and what survived after the breaks of its chain; ``known`` has the runs of all queues."""
    inner = [item for item in known.chain.breaks if item.offset < tail.offset]
    surveys = runner.map("survey damaged segments", survey, list(broken_places(known, inner)))
    surveys += tail.surveys
    survivors = _scan_pieces(runner, "scan what survived", task, surveys, len(known.splits))
    again = {place.segment.base: place for place in _later_places(known, surveys, survivors)}
    if again:
        seen = runner.map("survey again after survivors", survey, list(again.values()))
        surveys = [item for item in surveys if item.broken.segment.base not in again] + seen
        surveys.sort(key=lambda item: item.broken.start)
        survivors = _scan_pieces(runner, "scan what survived", task, surveys, len(known.splits))
    unchecked = replace(task, decode_rules=replace(task.decode_rules, check_crc=False))
    number = len(known.splits) + len(survivors)
    kept = _scan_pieces(runner, "scan what is kept", unchecked, surveys, number, kept=True)
    gaps = [item for item in known.older if item.begin < tail.offset or tail.damage is not None]
    gaps = [gap for gap in gaps if gap.begin < gap.end]  # else one record is all: the survey names what is left of it
    gaps += [gap for item in surveys for gap in item.gaps]
    scans = sorted([*proven.counted, *survivors, *kept], key=lambda scan: scan.report.start or 0)
    blanks = [*proven.chain.blanks, *(item.blank for item in surveys if item.blank is not None)]
    ends = [scan.report.end for scan in scans if scan.records or scan.special.foreign]
    ends += [blank[1] for blank in blanks] + [gap.end for gap in gaps if gap.finding == Finding.BLANK]
    end = max([tail.offset, *ends])
    ambiguous = "whole records that may be copies inside a lost message, left out"
    segment_ends = {segment.end for segment in proven.segments}  # up to there a BLANK may have been all
    ranges = [*tail.ranges]
    for gap in gaps:
        if gap.finding == Finding.STALE and gap.defect != RecordDefect.OLDER_LOG:
            ranges.append(LogRange(gap.begin, gap.end, RangeKind.STALE, "records of an older log"))
        elif gap.finding == Finding.BLANK:
            reach = min(gap.begin + m.BLANK_SIZE, gap.end)
            reason = f"the BLANK of a segment; {gap.defect}"
            ranges.append(LogRange(gap.begin, reach, RangeKind.DAMAGED, reason, held_record=False))
            blanks.append((reach, gap.end))
        elif gap.finding != Finding.ZEROS or gap.begin < end:
            certain = gap.finding == Finding.RECORD or gap.end not in segment_ends
            reason = ambiguous if gap.finding == Finding.AMBIGUOUS else str(gap.defect)
            ranges.append(LogRange(gap.begin, gap.end, RangeKind.DAMAGED, reason, certain))
    for scan in kept:
        start = scan.report.start or 0
        ranges.append(LogRange(start, scan.report.end, RangeKind.KEPT, str(RecordDefect.BODY_CRC)))
    return _reading(proven, scans, end, [*ranges, *_blanks(blanks)], salvaged=True)


def _reading(
    known: ProvenLog, scans: list[SplitScan], end: int, ranges: Sequence[LogRange], *, salvaged: bool
) -> LogReading:
    begin = known.splits[0].start if known.splits else known.segments[0].base
    reading = LogReading(list(known.segments), scans, begin, end, known.end, [], QueueRules(known.whole, salvaged))
    return reading.with_ranges(*ranges)


def _check_tiling(reading: LogReading) -> None:
    for scan in reading.scans:
        own = scan.record_bytes + scan.head_bytes + sum(size for _, size in scan.special.foreign)
        if scan.report.start is None or scan.report.end - scan.report.start != own:
            what, report = "the records of a split leave gaps or overlap", scan.report
            raise TotalsDisagree(what, offset=report.start, found=own, expected=report.end)
    total = sum(scan.record_bytes + scan.head_bytes for scan in reading.scans)
    total += sum(size for _, size in reading.foreign_records)
    tiles = reading.of(RangeKind.DAMAGED, RangeKind.STALE, RangeKind.BLANK)
    total += sum(item.end - item.begin for item in tiles if item.begin < reading.end)
    if total != (expected := reading.end - reading.begin):
        raise TotalsDisagree("the records of the log leave gaps or overlap", found=total, expected=expected)


@dataclass(frozen=True)
class Tail:
    """Where the proven log ends, and what follows: ``damage``, or an unfinished record or bytes of an older log."""

    offset: int
    surveys: tuple[Survey, ...] = ()
    damage: RecordDefect | None = None
    ranges: tuple[LogRange, ...] = ()


def find_tail(runner: Runner, known: ProvenLog, task: SurveyTask) -> Tail:
    """Find the end of the log. Zeros follow it, or bytes of an older log that a truncation left: certified records, but
    older than the last one, or with a used queue offset. Any other record proves damage.
    """
    ends = [scan.report.end for scan in known.counted if scan.records]
    proven = max([*ends, *(begin for begin, _ in known.chain.blanks)], default=-1)
    older = [item for item in known.older if item.begin >= proven]
    candidates = [item for item in known.chain.breaks if item.offset >= proven]
    end = min([item.offset for item in candidates] + [item.begin for item in older], default=None)
    if end is None:
        return Tail(known.chain.end)
    broken = next((item for item in candidates if item.offset == end), None)
    if broken is not None and known.is_zero_after(broken, known.segments[-1].end):
        return Tail(end)
    surveys = tuple(runner.map("look past the end", task, list(broken_places(known, candidates))))
    gaps = [gap for item in surveys for gap in item.gaps]
    survived = any(item.pieces or item.kept for item in surveys)
    found = [gap for gap in gaps if gap.finding != Finding.ZEROS]
    is_last = not (survived or known.older or any(item.blank for item in surveys) or known.chain.breaks[0].offset < end)
    if is_last and found == gaps[:1] and [gap.finding for gap in found] == [Finding.UNFINISHED]:
        reason = "a record that was not written to its end"
        return Tail(end, ranges=(LogRange(end, gaps[0].end, RangeKind.UNFINISHED, reason, held_record=False),))
    if survived or (broken is not None and _lost_a_message(broken, surveys[0])):
        return Tail(end, surveys, RecordDefect.OLDER_LOG if broken is None else broken.defect)
    used = max([item.end for item in (*found, *older)], default=end)
    if used <= end:
        return Tail(end)
    certified = any(gap.finding == Finding.STALE for gap in gaps)
    text = "bytes of an older log after the end of this one"
    return Tail(end, ranges=(LogRange(end, used, RangeKind.STALE, text, certified),))


def _lost_a_message(end: Break, survey: Survey) -> bool:
    near = survey.broken.neighbours
    record = survey.gaps[0].record if survey.gaps else None
    if record is not None:
        older = near.before.time is not None and record.store_timestamp < near.before.time
        used = record.queued and record.queue_offset < near.before.edges.get((record.topic, record.queue_id), 0)
        return not (older or used)
    findings = {gap.finding for gap in survey.gaps}
    if Finding.AMBIGUOUS in findings:
        return True
    return end.report.plausible and Finding.STALE not in findings


def broken_places(known: ProvenLog, breaks: Sequence[Break]) -> Iterator[Broken]:
    """What to survey for breaks in log order, with what is proven on both sides. Visits each scan twice."""
    scans = known.counted
    limits = {split.segment.base: split.limit for split in known.splits}
    lost = [(item.offset, item.segment.end) for item in known.chain.breaks]
    lost += [(item.begin, item.end) for item in known.older]
    lost += [(offset, offset + size) for scan in scans for offset, size in scan.special.foreign]
    begins = sorted(begin for begin, _ in lost)
    bytes_lost = [0, *accumulate(end - begin for begin, end in sorted(lost))]
    afters, side, at = [], _QueueEdges(begins, backwards=True), len(scans)
    for item in reversed(breaks):
        while at and scans[at - 1].report.split.start >= item.segment.end:
            at -= 1
            side.add(scans[at])
        afters.append(side.copy())
    side, at = _QueueEdges(begins), 0
    for item, after in zip(breaks, reversed(afters), strict=True):
        while at < len(scans) and scans[at].report.end <= item.offset:
            side.add(scans[at])
            at += 1
        before = side.copy()
        time, room = time_before(scans[:at], after.first_time), bytes_lost[bisect_left(begins, item.offset)]
        later_room = bytes_lost[-1] - bytes_lost[bisect_left(begins, item.segment.end)]
        near = Neighbours(
            Side(before.edges, time, room, before.others),
            Side(after.edges, after.first_time, later_room, after.others),
            known.whole,
        )
        yield Broken(item.segment, item.offset, item.defect, limits[item.segment.base], near, before.last_number)


class _QueueEdges:
    """What the proven records on one side of a break show. ``edges``: next free queue offset of each queue
    (``backwards``: the first one); ``others``: the same without the outermost record, where that contradicts its
    neighbour. ``doubts``: sorted log offsets where messages may be lost.
    """

    def __init__(self, doubts: Sequence[int], *, backwards: bool = False) -> None:
        self._doubts, self._backwards = doubts, backwards
        self.edges: dict[Queue, int] = {}
        self.others: dict[Queue, int] = {}
        self._places: dict[Queue, int] = {}
        self.first_time: int | None = None
        self.last_number: EntryNumber | None = None

    def copy(self) -> _QueueEdges:
        """Snapshot that later calls of ``add`` do not change."""
        known = copy(self)
        known.edges, known.others = dict(self.edges), dict(self.others)
        return known

    def add(self, scan: SplitScan) -> None:
        if scan.times.first is not None:
            self.first_time = scan.times.first
        self.last_number = scan.report.numbers.last or self.last_number
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


def _later_places(known: ProvenLog, surveys: Sequence[Survey], survivors: Sequence[SplitScan]) -> Iterator[Broken]:
    """Places surveyed without the latest time before them: survivors of other segments are known only afterwards."""
    scans = sorted([*known.counted, *survivors], key=lambda scan: scan.report.end)
    ends = [scan.report.end for scan in scans]
    for item in surveys:
        near = item.broken.neighbours
        before, time = near.before, time_before(scans[: bisect_right(ends, item.broken.start)], near.after.time)
        if time is not None and (before.time is None or time - CLOCK_SLACK > before.time):
            yield replace(item.broken, neighbours=replace(near, before=replace(before, time=time)))


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
