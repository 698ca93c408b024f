"""Reading a whole commit log: scan the splits, prove the chain, and account for every byte.

``scan_log`` is the front half of every job on a log. It returns the scans that count, in log order, and says of each
byte of the log what it is: message, ghost, blank, unwritten, stale or damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.running import Runner
from storeformat.commitlog import Break, Chain, ChainReport, Segment, Sight, Split, follow_chain, plan_splits
from storeformat.errors import DamagedLog, RecordDefect, TotalsDisagree
from udfs.scan import SplitScan

DEFAULT_SPLIT_SIZE = 256 << 20


@dataclass(frozen=True)
class Range:
    """Bytes [begin, end) of the log, and what is wrong or old about them."""

    begin: int
    end: int
    reason: str

    def as_row(self) -> dict[str, object]:
        return {"begin": self.begin, "end": self.end, "reason": self.reason}


@dataclass(frozen=True)
class LogReading:
    """A proven reading of the log. ``scans`` are in log order and hold every record once; the byte counts add up to the
    log.
    """

    segments: list[Segment]
    scans: list[SplitScan]
    begin: int
    end: int
    damaged: list[Range]
    stale: list[Range]
    ghosts: list[tuple[int, int]]
    blank_bytes: int
    unwritten_bytes: int

    @property
    def record_bytes(self) -> int:
        return sum(scan.record_bytes for scan in self.scans)

    @property
    def records(self) -> int:
        return sum(scan.records for scan in self.scans)

    def facts(self) -> dict[str, Any]:
        """Returns the part of the report that every job on a log has in common."""
        return {
            "log_begin": self.begin,
            "log_end": self.end,
            "bytes": sum(segment.size for segment in self.segments),
            "messages": self.records,
            "damaged_ranges": [item.as_row() for item in self.damaged],
            "stale_ranges": [item.as_row() for item in self.stale],
            "unwritten_bytes": self.unwritten_bytes,
            "ghosts": [{"offset": offset, "size": size} for offset, size in self.ghosts[:1000]],
        }


def scan_log(
    runner: Runner,
    segments: Sequence[Segment],
    task: Callable[[Iterator[Split]], Iterable[SplitScan]],
    *,
    split_size: int = DEFAULT_SPLIT_SIZE,
    until: int | None = None,
    begin: int | None = None,
    on_damage: str = "fail",
) -> LogReading:
    """Returns the proven reading of the log; raises DamagedLog where it is damaged and ``on_damage`` is ``fail``.

    ``begin`` is where a record is known to begin: what lies before it is not read.
    With ``stop`` the log ends at the first damage, as the broker's recovery ends it.
    """
    splits = plan_splits(segments, split_size, until, begin)
    scans = runner.map("scan the commit log", task, splits)
    if [scan.report.split.number for scan in scans] != [split.number for split in splits]:
        raise TotalsDisagree("scans were lost", found=len(scans), expected=len(splits))
    chain = follow_chain(segments, splits, [scan.report for scan in scans])
    while chain.rescans:
        for scan in runner.map("scan again from proven starts", task, chain.rescans):
            scans[scan.report.split.number] = scan
        chain = follow_chain(segments, splits, [scan.report for scan in scans])
    return _account(segments, splits, scans, chain, until, on_damage)


def _account(
    segments: Sequence[Segment],
    splits: Sequence[Split],
    scans: list[SplitScan],
    chain: Chain,
    until: int | None,
    on_damage: str,
) -> LogReading:
    counted = {report.split.number for report in chain.reports}
    accepted = [scans[number] for number in sorted(counted)]
    tail = _find_tail(splits, scans, chain)
    damage = [item for item in chain.breaks if item.offset < tail.offset]
    if tail.damage is not None:
        damage.append(tail.damage)
    damaged: list[Range] = []
    end, blanks = tail.offset, chain.blanks
    if damage:
        first = min(damage, key=lambda item: item.offset)
        if on_damage == "fail":
            raise DamagedLog(
                f"the commit log is damaged: {describe(first.defect)}",
                path=first.segment.path,
                offset=first.offset,
                advice="--on-damage stop ends the log there as the broker would; salvage reads on behind it",
            )
        end = first.offset
        accepted = [scan for scan in accepted if scan.report.end <= end]
        blanks = [blank for blank in blanks if blank[1] <= end]
        damaged.append(Range(end, segments[-1].end, f"{describe(first.defect)}; the log was ended here"))
    log_end = segments[-1].end if until is None else min(segments[-1].end, max(until, segments[0].base))
    behind = 0 if damage else max(log_end - end, 0)
    stale = (
        []
        if damage or tail.clean
        else [Range(end, tail.garbage_end, "bytes of an older log behind the end of this one")]
    )
    reading = LogReading(
        segments=list(segments),
        scans=accepted,
        begin=splits[0].start if splits else segments[0].base,
        end=end,
        damaged=damaged,
        stale=stale,
        ghosts=[ghost for scan in accepted for ghost in scan.ghosts],
        blank_bytes=sum(stop - start for start, stop in blanks),
        unwritten_bytes=behind - sum(item.end - item.begin for item in stale),
    )
    _check_tiling(reading)
    return reading


def _check_tiling(reading: LogReading) -> None:
    """Every byte from the log's begin to its end is a record, a ghost or a blank, exactly once."""
    for scan in reading.scans:
        own = scan.record_bytes + sum(size for _, size in scan.ghosts)
        if scan.report.start is None or scan.report.end - scan.report.start != own:
            raise TotalsDisagree(
                "the records of a split do not tile it", offset=scan.report.start, found=own, expected=scan.report.end
            )
    total = reading.record_bytes + sum(size for _, size in reading.ghosts) + reading.blank_bytes
    if total != reading.end - reading.begin:
        raise TotalsDisagree("the records do not tile the log", found=total, expected=reading.end - reading.begin)


@dataclass(frozen=True)
class _Tail:
    """Where the log ends: ``offset``; whether only zeros follow; how far other bytes reach; and the damage, if the end
    is one.
    """

    offset: int
    clean: bool
    garbage_end: int
    damage: Break | None = None


def _find_tail(splits: Sequence[Split], scans: Sequence[SplitScan], chain: Chain) -> _Tail:
    """Returns where the log ends, judging what lies behind the last proven record.

    Behind the end of a healthy log lie zeros, or bytes of an older log that a truncation left. The older log's records
    are certified too, but they are older than the last record before them, or their queue offset was used again; a
    record that is neither shows that the log goes on behind damage.
    """
    numbers = {report.split.number for report in chain.reports}
    counted = [scan for scan in scans if scan.report.split.number in numbers]
    last_records = max((scan.report.end for scan in counted if scan.records), default=-1)
    candidates = [item for item in chain.breaks if item.offset >= last_records]
    if not candidates:
        return _Tail(chain.end, clean=True, garbage_end=chain.end)
    end = candidates[0]
    follower = [scans[index] for index, split in enumerate(splits) if split.start >= end.report.split.stop]
    zeros = end.report.rest_is_zero and all(_is_zero(scan.report) for scan in follower)
    if zeros and end.defect == RecordDefect.UNWRITTEN:
        return _Tail(end.offset, clean=True, garbage_end=end.offset)
    sights = [sight for sight in (end.report.behind, *(scan.report.first for scan in follower)) if sight is not None]
    damaged = end.report.plausible if not sights else not _is_stale(sights[0], counted)
    garbage = [scan.report.split.stop for scan in follower if not _is_zero(scan.report)]
    return _Tail(
        end.offset,
        clean=False,
        garbage_end=max([min(end.report.split.stop, end.report.split.limit), *garbage]),
        damage=end if damaged else None,
    )


def _is_zero(report: ChainReport) -> bool:
    begins_unwritten = report.start is None or (report.defect == RecordDefect.UNWRITTEN and report.end == report.start)
    return begins_unwritten and report.rest_is_zero


def _is_stale(sight: Sight, counted: Sequence[SplitScan]) -> bool:
    """Returns whether a certified record behind the end belongs to an older log than the records before the end."""
    times = [scan.last_timestamp for scan in counted if scan.last_timestamp is not None]
    if times and sight.store_timestamp < times[-1]:
        return True
    for scan in reversed(counted):
        if sight.topic not in scan.topics:
            continue
        code = scan.topics.index(sight.topic)
        mine = (scan.runs.topic_codes == code) & (scan.runs.queue_ids == sight.queue_id)
        if mine.any():
            return bool(sight.queue_offset < (scan.runs.first_queue_offsets + scan.runs.counts)[mine].max())
    return False


_WORDS = {
    RecordDefect.UNWRITTEN: "zeros where a record should be",
    RecordDefect.TRUNCATED: "a record reaches past the end of its segment",
    RecordDefect.ILLEGAL_MAGIC: "no record begins where the one before ends (illegal magic code)",
    RecordDefect.SIZE_TOO_SMALL: "a record's size is too small",
    RecordDefect.LENGTH_MISMATCH: "the lengths inside a record do not add up to its size",
    RecordDefect.BODY_CRC: "a body does not match its CRC",
    RecordDefect.PROPERTY_CRC: "a record does not match its property CRC",
    RecordDefect.BAD_DELAY: "a delayed message has a delay level that is no number",
    RecordDefect.BAD_INNER_BATCH: "an inner batch has no proper count or base",
    RecordDefect.BAD_NAME: "a record's topic or queue id cannot be a directory",
    RecordDefect.FOREIGN_OFFSET: "the segment begins with a record of another place (was it renamed or moved?)",
    RecordDefect.RECORD_TOO_LARGE: "a record claims more than 256 MiB",
}


def describe(defect: RecordDefect) -> str:
    """Returns a defect in words, with its code in capitals for those who search."""
    return f"{_WORDS[defect]} [{defect.name}]"
