"""What a broken chain means: the end of the log, bytes of an older log after it, or damage; and what survived it.

The chain of sizes proves records up to the first break of each segment. What follows a break is surveyed
(``storeformat.salvage.survey``), one task a segment, with what the proven records on both sides say of queues and
times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jobs.log.verified_chain import ProvenLog, queue_runs, time_before
from jobs.spark.runner import Runner
from storeformat.errors import TotalsDisagree
from storeformat.log.chain import Break
from storeformat.log.segments import Split
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours
from storeformat.salvage.findings import Broken, DeadRange, Finding, Survey
from storeformat.salvage.queue_offsets import Queue
from udfs.log.find_records import SurveyTask
from udfs.log.scan import ScanTask, SplitScan


@dataclass(frozen=True)
class Tail:
    """Where the proven log ends, and the surveys of what follows (none where that is zeros).

    ``damage`` is the break at the end if it is damage and not the end; otherwise bytes of an older log reach up to
    ``garbage_end``.
    """

    offset: int
    garbage_end: int
    surveys: tuple[Survey, ...] = ()
    damage: Break | None = None
    unfinished_end: int | None = None
    """Where the bytes end of a last record that was not written to its end."""


def find_tail(runner: Runner, known: ProvenLog, task: SurveyTask) -> Tail:
    """Returns where the log ends, judging what follows the last proven record.

    After the end of a healthy log lie zeros, or bytes of an older log that a truncation left: its records are
    certified too, but older than the last one before them, or their place in a queue was used again. A record that is
    neither shows that the log goes on after damage.
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
    """Returns where the bytes of an unfinished record at the end end, None where something else lies there: only zeros
    follow, and the chain is sound up to it.
    """
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
    """Returns whether the bytes at the end are a damaged message, when no survivor follows them."""
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
    """Yields what to survey for some breaks (in log order), each with what is proven on both sides of it."""
    scans = known.counted
    limits = {split.segment.base: split.limit for split in known.splits}
    for item in breaks:
        before = [scan for scan in scans if scan.report.end <= item.offset]
        after = [scan for scan in scans if scan.report.split.start >= item.segment.end]
        lost = [(other.offset, other.segment.end) for other in known.chain.breaks]
        lost += [(other.start.offset, other.end) for other in known.older]
        ends, other_ends = _queue_edges(before, lost)
        firsts, other_firsts = _queue_edges(after, lost, backwards=True)
        next_time = next((scan.times.first for scan in after if scan.times.first is not None), None)
        near = Neighbours(
            ends=ends,
            firsts=firsts,
            before=time_before(before, next_time),
            after=next_time,
            room=_lost_bytes([(begin, end) for begin, end in lost if begin < item.offset], before),
            room_after=_lost_bytes([(begin, end) for begin, end in lost if begin >= item.segment.end], after),
            whole=known.whole,
            other_ends=other_ends,
            other_firsts=other_firsts,
        )
        numbers = (scan.report.last_number for scan in before[::-1])
        last_entry = next((number for number in numbers if number is not None), None)
        yield Broken(item.segment, item.offset, item.defect, limits[item.segment.base], near, last_entry)


def _queue_edges(
    scans: Sequence[SplitScan], lost: Sequence[tuple[int, int]], *, backwards: bool = False
) -> tuple[dict[Queue, int], dict[Queue, int]]:
    """Returns the next free place of each queue, and the one that its last record but one leaves where the last one
    contradicts it; ``backwards`` the first place of each, and that of its second record where the first contradicts it.
    """
    edges: dict[Queue, int] = {}
    others: dict[Queue, int] = {}
    places: dict[Queue, int] = {}
    for queue, first, count, (begin, last) in queue_runs(scans[::-1] if backwards else scans, backwards=backwards):
        known = edges.get(queue)
        others.pop(queue, None)
        if count == 1 and known is not None:
            end, following = (first + 1, known) if backwards else (known, first)
            gap = (last, places[queue]) if backwards else (places[queue], begin)
            if following not in (0, end) and not _is_lost(*gap, scans, lost):
                others[queue] = known
        edges[queue], places[queue] = (first, begin) if backwards else (first + count, last)
    return edges, others


def _is_lost(begin: int, end: int, scans: Sequence[SplitScan], lost: Sequence[tuple[int, int]]) -> bool:
    """Returns whether messages may be lost between two offsets."""
    foreign = (item for scan in scans for item in scan.foreign_records)
    return any(begin < first < end for first, _ in (*lost, *foreign))


def _lost_bytes(ranges: Sequence[tuple[int, int]], scans: Sequence[SplitScan]) -> int:
    """Returns how many bytes may hold lost messages: those of the ranges, and the foreign records."""
    return sum(end - begin for begin, end in ranges) + sum(size for scan in scans for _, size in scan.foreign_records)


def see_all_queues(runner: Runner, known: ProvenLog, task: ScanTask) -> ProvenLog:
    """Returns the proven log with the runs of every queue, which a scan of some queues or of none does not have."""
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
    """What surveys saved, and what they found instead of records."""

    scans: list[SplitScan]
    kept: list[SplitScan]
    blanks: list[tuple[int, int]]
    gaps: list[DeadRange]


def salvage(runner: Runner, known: ProvenLog, tail: Tail, task: ScanTask, survey: SurveyTask) -> Salvaged:
    """Returns what survived after the breaks of the chain, scanned as the rest of the log was."""
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
    """Yields the places of surveys that did not know how far time had gone on, each with the time of the
    survivors before it: those of other damaged segments are known when all are surveyed.
    """
    scans = sorted([*known.counted, *survivors], key=lambda scan: scan.report.end)
    for item in surveys:
        near = item.broken.neighbours
        before = time_before([scan for scan in scans if scan.report.end <= item.broken.start], near.after)
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
