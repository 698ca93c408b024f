"""One whole log from several damaged copies: a slave's, another DLedger member's, a backup, a snapshot. Damage is
replaced from the first copy whose records there are sound (chain and CRCs). Copies must agree on all bytes that are
sound in both; otherwise a person must choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from jobs.log.log_scan import LogReading
from jobs.spark.runner import Runner
from storeformat.errors import Refused
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment, segment_at, segment_with
from storeformat.record.decode import HEADS_ONLY
from storeformat.storage import files, locations
from udfs.log.log_copies import MadeSegment, SharedRange, compare_copies, ranges_by_segment

ByteRange = tuple[int, int]

_LONGEST_PROPERTIES = (1 << 15) - 1
_OF_NO_PROPERTIES = 2
"""Length field (zeros) that ends a record without properties."""


def joined(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Sort ranges, merge those that touch or overlap, and drop empty ones."""
    found: list[ByteRange] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def common(one: Sequence[ByteRange], other: Sequence[ByteRange]) -> list[ByteRange]:
    """Bytes in both."""
    return without(one, without(one, other))


def without(ranges: Sequence[ByteRange], taken: Sequence[ByteRange]) -> list[ByteRange]:
    """Bytes of ``ranges`` that are not in ``taken``."""
    found: list[ByteRange] = []
    at = 0
    for first, end in ranges:
        begin = first
        while at < len(taken) and taken[at][1] <= begin:
            at += 1
        number = at
        while number < len(taken) and taken[number][0] < end:
            if begin < taken[number][0]:
                found.append((begin, taken[number][0]))
            begin = max(begin, taken[number][1])
            number += 1
        if begin < end:
            found.append((begin, end))
    return found


@dataclass(frozen=True)
class HealedRange:
    """Bytes [begin, end) of the log taken from a replica, by number and name."""

    begin: int
    end: int
    replica: int
    name: str

    def as_row(self) -> dict[str, object]:
        return {"begin": self.begin, "end": self.end, "replica": self.name}


@dataclass(frozen=True)
class LogCopy:
    """A copy of the log: name, segments and its salvaged reading."""

    name: str
    reading: LogReading
    absent: Sequence[ByteRange] = ()
    """Bytes that none of its files holds; they are read as zeros and are sound in no record."""

    @property
    def segments(self) -> Sequence[Segment]:
        return self.reading.segments

    @property
    def damaged(self) -> list[ByteRange]:
        return [(item.begin, item.end) for item in self.reading.damaged]

    @property
    def gaps(self) -> list[ByteRange]:
        """Bytes outside records: damage, remains of an older log, and absent bytes."""
        stale = [(item.begin, item.end) for item in self.reading.stale if item.begin < self.reading.end]
        return joined([*self.damaged, *stale, *self.absent])

    @cached_property
    def zeroed(self) -> list[ByteRange]:
        """Trailing zeros of records before damage or the log's end: nothing checks the properties, their last field."""
        found = []
        for end in {self.reading.end, *(begin for begin, _ in self.damaged)}:
            segment = segment_at(self.segments, end)
            if segment is None or not segment.base < end < segment.end - segment.missing:
                continue
            begin = max(end - _LONGEST_PROPERTIES, segment.base)
            data = files.read_range(segment.path, begin - segment.base, end + 1 - begin)  # and the byte that follows
            first_zero = begin + len(data.rstrip(b"\0"))
            if end - first_zero > _OF_NO_PROPERTIES:
                found.append((first_zero, end))
        return without(joined(found), self.gaps)

    @property
    def records(self) -> list[ByteRange]:
        scans = [scan.report for scan in self.reading.scans if scan.records or scan.foreign_records]
        found = joined((report.start, report.end) for report in scans if report.start is not None)
        return without(found, joined([*self.damaged, *self.absent, *self.zeroed]))

    @property
    def sound(self) -> list[ByteRange]:
        """Bytes of sound records, and of BLANKs to the ends of their segments."""
        return joined([*self.records, *self.reading.blanks])

    @property
    def lost(self) -> list[ByteRange]:
        """Bytes in which something may be lost; ``zeroed`` ranges are not merged with the gaps after them."""
        return sorted([*self.gaps, *self.zeroed])

    @property
    def held(self) -> list[ByteRange]:
        return without(joined((segment.base, segment.end) for segment in self.segments), self.absent)


def absent_in(segments: Iterable[Segment]) -> list[ByteRange]:
    """Bytes of segments that no file holds."""
    return [(segment.end - segment.missing, segment.end) for segment in segments if segment.missing]


@dataclass(frozen=True)
class Healing:
    """The ranges taken from copies, and the segments to make of them."""

    ranges: list[HealedRange] = field(default_factory=list)
    segments: list[MadeSegment] = field(default_factory=list)


def refuse_differing(runner: Runner, copies: Sequence[LogCopy]) -> None:
    """Raise Refused where two copies differ in records that are sound in both."""
    for one, other in combinations(copies, 2):
        first = compare(runner, one, other)
        if first is not None:
            raise differing_copies(one, other, first)


def differing_copies(one: LogCopy, other: LogCopy, offset: int) -> Refused:
    """The error for two copies that differ at ``offset``."""
    return Refused(
        f"two copies of the log differ in a sound record: {one.name} and {other.name}",
        path=other.name,
        offset=offset,
        advice="these are two logs, or a field that nothing checks is damaged in one: a person must choose",
    )


def compare(runner: Runner, one: LogCopy, other: LogCopy) -> int | None:
    """First log offset at which two copies differ in records sound in both."""
    shared = []
    for begin, end in common(one.records, other.records):
        for segment in one.segments:
            same = segment_at(other.segments, segment.base)
            if same is not None:
                shared += [SharedRange(segment, same, *part) for part in ranges_by_segment([(begin, end)], segment)]
    found = runner.map("compare copies of the log", compare_copies, shared)
    return min((offset for offset in found if offset is not None), default=None)


def plan_healing(own: LogCopy, replicas: Sequence[LogCopy], directory: str) -> Healing:
    """What to take from which replica, and the segments to make in ``directory``."""
    lost = own.lost
    ranges: list[HealedRange] = []
    for number, replica in enumerate(replicas):
        taken = [(begin, _whole_record(own, replica, begin, end)) for begin, end in common(lost, replica.sound)]
        lost = without(lost, taken)
        ranges += [HealedRange(begin, end, number, replica.name) for begin, end in taken]
    ranges.sort(key=lambda item: item.begin)
    made: list[MadeSegment] = []
    for segment in own.segments:
        parts = [
            (max(item.begin, segment.base), min(item.end, segment.end), same)
            for item in ranges
            if item.begin < segment.end and segment.base < item.end
            and (same := segment_at(replicas[item.replica].segments, segment.base)) is not None
        ]  # fmt: skip
        if parts or segment.missing:
            path = locations.join(directory, locations.name_of(segment.path))
            made.append(MadeSegment(segment, path, tuple(parts)))
    return Healing(ranges, made)


def _whole_record(own: LogCopy, replica: LogCopy, begin: int, end: int) -> int:
    """Extend a range beyond the end of the log to the end of its record: the log may end within one."""
    if end <= own.reading.end:
        return end
    segment = segment_with(replica.segments, end - 1)
    with files.RangeReader(segment.path) as reader:
        window = BlockWindow(reader, segment)
        walk = chain_from(window, max(begin, segment.base), HEADS_ONLY, stop=end).finish()
    return max(end, walk.position)
