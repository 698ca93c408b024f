"""Reading a whole commit log: scan the splits, prove the chain, account for every byte."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from jobs.contract.options import DamagePolicy
from jobs.contract.report import counted, losses_text, size_text
from jobs.log.losses import Losses, account_for_queues
from jobs.log.queue_runs import DamagedBytes, QueueRuns, all_runs, has_gaps
from jobs.log.verified_chain import ProvenLog, queue_runs, queues_must_tell, without_older_segments
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import DamagedLog, RecordDefect, TotalsDisagree
from storeformat.log.chain import Break, follow_chain
from storeformat.log.framing import EntryNumber
from storeformat.log.segments import WHOLE_LOG, LogPart, Segment, Split, plan_splits, segment_with
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, latest_time
from storeformat.salvage.queue_offsets import Queue
from storeformat.salvage.survey import Broken, DeadRange, Finding, Survey
from udfs.log.scan import ScanTask, SplitScan
from udfs.log.survey import SurveyTask

DEFAULT_SPLIT_SIZE = 256 << 20


@dataclass(frozen=True)
class LogRange:
    """Bytes [begin, end) of the log, and why they are named; ``held_record``: they certainly held a record."""

    begin: int
    end: int
    reason: str
    held_record: bool = True

    def as_row(self) -> dict[str, object]:
        return {"begin": self.begin, "end": self.end, "reason": self.reason}


@dataclass(frozen=True)
class LogReading:
    """A proven reading. ``scans`` are in log order and hold every record once; the byte counts add up to the log."""

    segments: list[Segment]
    scans: list[SplitScan]
    begin: int
    end: int
    damaged: list[LogRange]
    stale: list[LogRange]
    foreign_records: list[tuple[int, int]]
    unwritten_bytes: int
    whole: bool = False
    """The log begins at offset 0 and every queue was seen."""
    kept: list[LogRange] = field(default_factory=list)
    """Records that count although the CRC of their body fails."""
    blanks: list[tuple[int, int]] = field(default_factory=list)
    """Bytes of BLANKs, up to the ends of their segments."""
    unfinished: LogRange | None = None
    """The first bytes of a last record that the broker did not write completely; zeros follow."""
    healed: tuple[LogRange, ...] = ()
    salvaged: bool = False
    """Every survivor keeps its queue offset."""
    all_losses: Losses | None = None
    """The losses, if the rest of the store proves more than the log itself."""
    behind: frozenset[int] = frozenset()
    """Log offsets of messages with queue offset 0 that follow others in the store's own queue."""

    @property
    def blank_bytes(self) -> int:
        return sum(stop - start for start, stop in self.blanks)

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
        return sorted([*self.damaged, *self.kept, *self.healed], key=lambda item: item.begin)

    @property
    def losses(self) -> Losses:
        return self._queues[1] if self.all_losses is None else self.all_losses

    @property
    def queue_runs(self) -> QueueRuns:
        return self._queues[0]

    @property
    def is_damaged(self) -> bool:
        losses = self.losses
        return bool(self.damaged or self.kept or losses.at_least or (self.salvaged and losses.strays))

    @cached_property
    def _queues(self) -> tuple[QueueRuns, Losses]:
        ranges = [(item.begin, item.end, item.held_record) for item in self.damaged]
        ranges += [(item.begin, item.end, False) for item in self.stale]
        ranges += [(offset, offset + size, False) for offset, size in self.foreign_records]
        ranges += [(offset, offset + size, False) for scan in self.scans for offset, size in scan.fillers]
        return account_for_queues(
            self.scans,
            all_runs(self.scans),
            DamagedBytes.of(ranges),
            whole=self.whole,
            salvaging=self.salvaged,
            behind=self.behind,
        )

    @property
    def notes(self) -> list[str]:
        if self.unfinished is None:
            return []
        begin = self.unfinished.begin
        text = f"the last record, at offset {begin}, was not written to its end, and only zeros follow: the log ends"
        return [f"{text} before it, as with a broker; one message is lost that was not acknowledged or not yet flushed"]

    @property
    def figures(self) -> str:
        """Its messages and bytes, and what is lost, in words."""
        size = size_text(self.end - self.begin)
        sound = "damaged, and no message is lost" if self.is_damaged else "no message is lost"
        return f"{counted(self.records, 'message')} in {size} of log; {losses_text(self.losses.facts()) or sound}"

    def facts(self) -> dict[str, Any]:
        return {
            "log_begin": self.begin,
            "log_end": self.end,
            "bytes": sum(segment.size for segment in self.segments),
            "messages": self.records,
            "damaged_ranges": [item.as_row() for item in self.damaged],
            **self.losses.facts(),
            "kept_records": [item.as_row() for item in self.kept],
            "stale_ranges": [item.as_row() for item in self.stale],
            "unwritten_bytes": self.unwritten_bytes,
            "unfinished_record": None if self.unfinished is None else self.unfinished.as_row(),
            "ghosts": [{"offset": offset, "size": size} for offset, size in self.foreign_records[:1000]],
        }


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
    has_foreign_records = any(scan.foreign_records for scan in known.counted)
    if (salvages and chain.breaks) or has_foreign_records or queues_must_tell(known):
        known = see_all_queues(runner, known, task)
        known = replace(known, whole=from_zero)
    known = without_older_segments(known)
    survey = SurveyTask(task.decode_rules, keep_crc_failures and salvages)
    tail = find_tail(runner, known, survey)
    starts = [item.start for item in known.older]
    breaks = [item for item in (*known.chain.breaks, *starts) if item.offset < tail.offset]
    if fails:  # a broker reads a file of an older log: whether it belongs to this log, a person must say
        breaks += [start for start in starts if start not in breaks]
    if tail.damage is not None:
        breaks.append(tail.damage)
    breaks.sort(key=lambda item: item.offset)
    if breaks and fails:
        raise DamagedLog(
            f"the commit log is damaged: {breaks[0].defect}",
            path=breaks[0].segment.path,
            offset=breaks[0].offset,
            advice="--on-damage stop ends the log there as the broker would; salvage recovers what follows",
        )
    proven = replace(known, scans=scans)
    if breaks and salvages:
        reading = seen = _salvaged(runner, known, proven, tail, task, survey)
    else:
        reading, seen = (
            _stopped(log, breaks[0])
            if breaks
            else _reading(log, log.counted, log.chain.blanks, [], _older_bytes(tail), tail.offset)
            for log in (proven, known)
        )
    reading, seen = replace(reading, salvaged=salvages), replace(seen, salvaged=salvages)
    reading = _with_damaged_offsets(reading, seen)
    if tail.unfinished_end is not None and not (breaks and on_damage == "stop"):
        text = "a record that was not written to its end"
        unfinished = LogRange(tail.offset, tail.unfinished_end, text, held_record=False)
        reading = replace(reading, unfinished=unfinished)
    if fails:
        _refuse_damaged_offsets(reading)
        _refuse_stray_records(reading, _seen_whole(runner, known, task, reading))
    _check_tiling(reading)
    return reading


def _with_damaged_offsets(reading: LogReading, seen: LogReading) -> LogReading:
    """Move foreign records to the damage where a message is missing; ``seen`` has the queues that show it."""
    explaining, reason = seen.losses.explaining, str(RecordDefect.FOREIGN_OFFSET)
    ranges = [LogRange(at, at + size, reason) for at, size in reading.foreign_records if at in explaining]
    return replace(
        reading,
        damaged=sorted([*reading.damaged, *ranges], key=lambda item: item.begin),
        foreign_records=sorted(item for item in reading.foreign_records if item[0] not in explaining),
    )


def sharing(scans: Sequence[SplitScan], splits: Sequence[Split]) -> list[SplitScan]:
    """Share one object for equal splits, segments and topics: each task returns its own copies."""
    if [scan.report.split.number for scan in scans] != [split.number for split in splits]:
        raise TotalsDisagree("scans were lost", found=len(scans), expected=len(splits))
    known: dict[bytes, bytes] = {}
    lists: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
    shared: list[SplitScan] = []
    for scan, split in zip(scans, splits, strict=True):
        topics = lists.get(scan.topics) or tuple(known.setdefault(topic, topic) for topic in scan.topics)
        shared.append(
            replace(
                scan,
                report=replace(scan.report, split=split),
                topics=lists.setdefault(topics, topics),
            )
        )
    return shared


def _older_bytes(tail: Tail) -> list[LogRange]:
    if tail.garbage_end <= tail.offset:
        return []
    certified = any(gap.finding == Finding.STALE for item in tail.surveys for gap in item.gaps)
    text = "bytes of an older log after the end of this one"
    return [LogRange(tail.offset, tail.garbage_end, text, held_record=certified)]


def _refuse_damaged_offsets(reading: LogReading) -> None:
    """A foreign record in place of a missing message is a message with a damaged PHYSICALOFFSET."""
    if reading.damaged:
        offset = reading.damaged[0].begin
        raise DamagedLog(
            f"the commit log is damaged: {RecordDefect.FOREIGN_OFFSET}",
            path=segment_with(reading.segments, offset).path,
            offset=offset,
            advice="--on-damage salvage fills the place of the message",
        )


def _seen_whole(runner: Runner, known: ProvenLog, task: ScanTask, reading: LogReading) -> LogReading:
    """The reading with all queues, if the selected ones have gaps: records of other queues may explain them."""
    if not task.topics or not has_gaps(reading.queue_runs):
        return reading
    known = see_all_queues(runner, known, task)
    return replace(reading, scans=known.counted)


def _refuse_stray_records(reading: LogReading, seen: LogReading) -> None:
    """Refuse where a broker would append a stray record and move all later messages of its queue."""
    stray = next((stray for stray in seen.losses.strays if stray.moves_others), None)
    if stray is None:
        return
    raise DamagedLog(
        f"the commit log is damaged: the record at {stray.offset} says it is message {stray.queue_offset} of "
        f"{stray.topic}/{stray.queue_id}, which cannot be",
        path=segment_with(reading.segments, stray.offset).path,
        offset=stray.offset,
        advice="--on-damage salvage leaves it out; stop appends it where it says, and the messages after it move",
    )


def _stopped(known: ProvenLog, first: Break) -> LogReading:
    end = first.offset
    scans = [scan for scan in known.counted if scan.report.end <= end]
    blanks = [blank for blank in known.chain.blanks if blank[1] <= end]
    cut = LogRange(end, known.segments[-1].end, f"{first.defect}; the log was ended here")
    return _reading(known, scans, blanks, [cut], [], end)


def _salvaged(
    runner: Runner, known: ProvenLog, proven: ProvenLog, tail: Tail, task: ScanTask, survey: SurveyTask
) -> LogReading:
    """The ``proven`` log and what survived after the breaks of its chain; ``known`` has the runs of all queues."""
    inner = [item for item in known.chain.breaks if item.offset < tail.offset]
    surveys = runner.map("survey damaged segments", survey, list(broken_places(known, inner)))
    surveys += tail.surveys if tail.damage is not None else ()
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
    older = [item for item in known.older if item.start.offset < tail.offset or tail.damage is not None]
    gaps = [DeadRange(item.start.offset, item.end, Finding.STALE, item.start.defect) for item in older]
    gaps = [gap for gap in gaps if gap.begin < gap.end]  # else one record is all: the survey names what is left of it
    gaps += [gap for item in surveys for gap in item.gaps]
    scans = sorted([*proven.counted, *survivors, *kept], key=lambda scan: scan.report.start or 0)
    blanks = sorted([*proven.chain.blanks, *(item.blank for item in surveys if item.blank is not None)])
    damaged: list[LogRange] = []
    stale = _older_bytes(tail) if tail.damage is None else []
    ends = [scan.report.end for scan in scans if scan.records or scan.foreign_records]
    end = max([tail.offset, *ends, *(blank[1] for blank in blanks)])
    end = max([end, *(gap.end for gap in gaps if gap.finding == Finding.BLANK)])
    ambiguous = "whole records that may be copies inside a lost message, left out"
    segment_ends = {segment.end for segment in proven.segments}  # up to there a BLANK may have been all
    for gap in gaps:
        if gap.finding == Finding.STALE and gap.defect != RecordDefect.OLDER_LOG:
            stale.append(LogRange(gap.begin, gap.end, "records of an older log"))
        elif gap.finding == Finding.BLANK:
            reach = min(gap.begin + m.BLANK_SIZE, gap.end)
            damaged.append(LogRange(gap.begin, reach, f"the BLANK of a segment; {gap.defect}", False))
            blanks.append((reach, gap.end))
        elif gap.finding != Finding.ZEROS or gap.begin < end:
            certain = gap.finding == Finding.RECORD or gap.end not in segment_ends
            reason = ambiguous if gap.finding == Finding.AMBIGUOUS else str(gap.defect)
            damaged.append(LogRange(gap.begin, gap.end, reason, certain))
    for ranges in (damaged, stale):  # segments of an older log, those after breaks, and the tail come one by one
        ranges.sort(key=lambda item: item.begin)
    reading = _reading(proven, scans, blanks, damaged, stale, end)
    kept_ranges = [LogRange(scan.report.start or 0, scan.report.end, str(RecordDefect.BODY_CRC)) for scan in kept]
    return replace(reading, kept=kept_ranges)


def _reading(
    known: ProvenLog,
    scans: list[SplitScan],
    blanks: list[tuple[int, int]],
    damaged: list[LogRange],
    stale: list[LogRange],
    end: int,
) -> LogReading:
    segments = known.segments
    named = sum(item.end - max(item.begin, end) for item in (*damaged, *stale) if item.end > end)
    return LogReading(
        segments=list(segments),
        scans=scans,
        begin=known.splits[0].start if known.splits else segments[0].base,
        end=end,
        damaged=damaged,
        stale=stale,
        foreign_records=[item for scan in scans for item in scan.foreign_records],
        blanks=blanks,
        unwritten_bytes=max(known.end - end - named, 0),
        whole=known.whole,
    )


def _check_tiling(reading: LogReading) -> None:
    for scan in reading.scans:
        own = scan.record_bytes + scan.head_bytes + sum(size for _, size in scan.foreign_records)
        if scan.report.start is None or scan.report.end - scan.report.start != own:
            raise TotalsDisagree(
                "the records of a split leave gaps or overlap",
                offset=scan.report.start,
                found=own,
                expected=scan.report.end,
            )
    total = reading.record_bytes + sum(size for _, size in reading.foreign_records) + reading.blank_bytes
    total += sum(scan.head_bytes for scan in reading.scans)
    total += sum(item.end - item.begin for item in (*reading.damaged, *reading.stale) if item.begin < reading.end)
    if total != reading.end - reading.begin:
        raise TotalsDisagree(
            "the records of the log leave gaps or overlap", found=total, expected=reading.end - reading.begin
        )


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
