"""A store's log made whole before it is read: missing and short segments filled, damage healed from replicas.

A replica is a slave's log, another DLedger member's, a backup, a snapshot. Damage is replaced from the first one whose
records there are sound (chain and CRCs). Copies must agree on all bytes that are sound in both; otherwise a person must
choose.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from jobs.contract.options import LogOptions
from jobs.contract.report import Reporter
from jobs.log.log_scan import LogRange, LogReading, RangeKind
from jobs.log.losses_beside import end_of_units
from jobs.log.opening import OpenedStore, counting_task, read_log
from jobs.spark import session
from jobs.spark.runner import Runner
from storeformat.errors import LISTED, MissingInput, NotAStore, Refused, WrongSettings
from storeformat.log.chain_walk import BlockWindow, chain_from
from storeformat.log.dledger import EntryFraming
from storeformat.log.segments import Segment, segment_at, segment_with
from storeformat.record.decode import HEADS_ONLY
from storeformat.storage import files, locations
from storeformat.store.layout import file_name
from storeformat.store.segment_files import commit_log_directories, find_segments
from storeformat.store.settings import SEGMENT_SIZE, Settings
from udfs.log.log_copies import (
    ByteRange,
    MadeSegment,
    SharedRange,
    common,
    compare_copies,
    joined,
    make_segment,
    ranges_by_segment,
    without,
)

_LONGEST_PROPERTIES = (1 << 15) - 1
_OF_NO_PROPERTIES = 2
"""Length field (zeros) that ends a record without properties."""


@dataclass(frozen=True)
class Restored:
    """A store with a log that can be read from end to end, and what was done for it."""

    store: OpenedStore
    absent: list[ByteRange] = field(default_factory=list)
    healed: list[dict[str, object]] = field(default_factory=list)
    """Begin and end of each range taken from a replica."""
    made: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    replicas: list[dict[str, object]] = field(default_factory=list)
    """For each replica: begin and end of its log, and where it first differs in a sound record."""
    is_held: bool = True
    """The store or a replica has every byte of the log."""

    def facts(self) -> dict[str, Any]:
        if not (self.absent or self.replicas):
            return {}
        return {
            "absent_ranges": [
                {"begin": begin, "end": end, "reason": "no file holds these bytes"} for begin, end in self.absent
            ],
            "healed_ranges": self.healed,
            "replicas": self.replicas,
        }


def restored(
    store: OpenedStore, options: LogOptions, runner: Runner, directory: str, *, refuses: bool = True
) -> Restored:
    """Fill missing bytes and heal damage from replicas; without ``refuses`` those that differ are ignored."""
    absent = absent_in(store.segments)
    if not absent and not options.replicas:
        return Restored(store)
    filled = _filled(store, locations.join(directory, "filled"))
    if not options.replicas:
        made = [one.path for one, segment in zip(filled.segments, store.segments, strict=True) if segment.missing]
        return Restored(filled, absent, made=made, notes=list(map(_note_of, absent)), is_held=False)
    own = _with_segments(LogCopy(store.root, _salvaged(filled, options, runner)), store.segments)
    replicas = [
        _replica(root, store, options, runner, locations.join(directory, f"replica-{number}"))
        for number, root in enumerate(options.replicas)
    ]
    if refuses:
        refuse_differing(runner, [own, *replicas])
    compared = [(replica, None if refuses else compare(runner, own, replica)) for replica in replicas]
    fitting = [replica for replica, offset in compared if offset is None]
    if not refuses:
        refuse_differing(runner, fitting)
    own = _with_lost_tail(store, own, fitting, options)
    store = replace(store, segments=[*_missing_head(store, own, fitting), *own.segments])
    own = _with_segments(own, store.segments)
    absent = absent_in(store.segments)
    notes = [*map(_note_of, absent), *_told(store, own, compared)]
    rows: list[dict[str, object]] = [
        {
            "replica": replica.name,
            "log_begin": replica.reading.begin,
            "log_end": replica.reading.end,
            "damaged_ranges": [item.as_row() for item in replica.reading.damaged],
            "first_difference": offset,
        }
        for replica, offset in compared
    ]
    healed, segments = plan_healing(own, fitting, locations.join(directory, "healed"))
    named = tuple(LogRange(begin, end, RangeKind.HEALED, f"taken from {copy.name}") for begin, end, copy in healed)
    whole = replace(_with_made(store, segments), healed=named)
    if absent and options.on_damage != "salvage":
        left = [(item.begin, item.end) for item in _salvaged(whole, options, runner).damaged]
        if nowhere := common(left, own.absent):
            raise NotAStore(
                "bytes of the commit log are missing, and no replica has them without damage",
                path=store.root,
                offset=nowhere[0][0],
                advice="name a copy that has them (--replica ROOT), or --on-damage salvage goes on without them",
            )
    nowhere = list(own.absent)
    for replica in fitting:
        nowhere = without(nowhere, replica.held)
    made = [item.path for item in segments]
    taken = [{"begin": begin, "end": end, "replica": copy.name} for begin, end, copy in healed]
    return Restored(whole, absent, taken, made, notes, rows, is_held=not nowhere)


def _with_segments(own: LogCopy, segments: Sequence[Segment]) -> LogCopy:
    return replace(own, reading=replace(own.reading, segments=list(segments)), absent=absent_in(segments))


@contextmanager
def filled(store: OpenedStore, reporter: Reporter) -> Iterator[OpenedStore]:
    """Yield the store with zeros for missing bytes; Refused if tasks run on other machines, which cannot see them."""
    absent = absent_in(store.segments)
    if not absent:
        yield store
        return
    if not session.on_one_machine():
        raise Refused(
            "bytes of the log are missing, and other machines cannot see what replaces them",
            path=store.root,
            offset=absent[0][0],
            advice="rebuild --on-damage salvage --repair-log DIR writes them first; --master local needs no more",
        )
    for item in absent:
        reporter.note(_note_of(item))
    with tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-log-") as directory:
        yield _filled(store, directory)


def _missing_head(store: OpenedStore, own: LogCopy, copies: Sequence[LogCopy]) -> list[Segment]:
    """Earlier segments that copies have and retention would still keep (MappedFileQueue#deleteExpiredFileByTime)."""
    first = store.segments[0].base
    kept_from = own.reading.last_timestamp - store.settings.reserved_ms
    scans = [scan for copy in copies for scan in copy.reading.scans if scan.records and scan.times.latest >= kept_from]
    return _missing(store, min([first, *(scan.report.split.segment.base for scan in scans)]), first)


def _with_lost_tail(store: OpenedStore, own: LogCopy, copies: Sequence[LogCopy], options: LogOptions) -> LogCopy:
    """Mark bytes after the end as damage if a copy has records there and the store's queues have units of them."""
    reading, last = own.reading, store.segments[-1]
    end = max((copy.reading.end for copy in copies), default=0)
    if not store.is_read_to_its_end(options.until_offset) or end <= reading.end or not locations.is_local(store.root):
        return own
    proven = reading.end
    with suppress(WrongSettings):  # queues in two places at once prove nothing
        proven = end_of_units(store, reading)
    if proven == reading.end:
        return own
    end = min(proven, end)
    segments = [*store.segments, *_missing(store, last.end, end)]
    lost = LogRange(reading.end, segments[-1].end, RangeKind.DAMAGED, "the store's own queues have units of them")
    return replace(own, reading=replace(reading, segments=segments).with_ranges(lost))


def _missing(store: OpenedStore, begin: int, end: int) -> list[Segment]:
    first = store.segments[0]
    directory, size = locations.parent_of(first.path), first.size
    if end - begin > LISTED * size:
        raise NotAStore(
            f"the log and what its copies and queues show lie more than {LISTED} segments apart",
            path=store.root, offset=begin, advice="these are two logs, or one damaged number: leave out the --replica",
        )  # fmt: skip
    return [
        Segment(locations.join(directory, file_name(base)), base, size, first.framing, missing=size)
        for base in range(begin, end, size)
    ]


def _told(store: OpenedStore, own: LogCopy, compared: Sequence[tuple[LogCopy, int | None]]) -> Iterator[str]:
    own_begin, hours = store.segments[0].base, store.settings.number("fileReservedTime")
    for replica, offset in compared:
        begin, end = replica.reading.begin, replica.reading.end
        if end > max([own.reading.end, *(stop for _, stop in own.lost)]):
            yield f"{replica.name} goes on to offset {end}, after the end of this log at {own.reading.end}"
        if begin < own_begin:
            why = f": what is between is older than the {hours} hours of fileReservedTime" if offset is None else ""
            yield f"{replica.name} begins at offset {begin}, this log at {own_begin}{why}"
        if offset is not None:
            yield f"{replica.name} differs from this log in a sound record at {offset}"


def _with_made(store: OpenedStore, plans: Sequence[MadeSegment]) -> OpenedStore:
    """Make segments. The last one is read only up to the end of its file, unless a copy continues."""
    segments = {segment.base: segment for segment in store.segments}
    for plan in plans:
        make_segment(plan)
        own, held = plan.own, plan.own.end - plan.own.missing
        ends_early = own.end == store.segments[-1].end and all(end <= held for _, end, _ in plan.taken)
        segments[own.base] = replace(own, path=plan.path, missing=own.missing if ends_early else 0)
    return replace(store, segments=list(segments.values()))


def _note_of(absent: ByteRange) -> str:
    return f"the log has no bytes from offset {absent[0]} to {absent[1]}: a segment is missing, or short"


def _filled(store: OpenedStore, directory: str) -> OpenedStore:
    missing = [segment for segment in store.segments if segment.missing]
    return _with_made(
        store, [MadeSegment(own, locations.join(directory, locations.name_of(own.path))) for own in missing]
    )


def _salvaged(store: OpenedStore, options: LogOptions, runner: Runner) -> LogReading:
    plain = replace(options, keep_crc_failures=False)
    checked = replace(store, as_broker=False)
    return read_log(checked, plain, runner, counting_task(checked), on_damage="salvage", from_log_only=True)


def _replica(root: str, store: OpenedStore, options: LogOptions, runner: Runner, directory: str) -> LogCopy:
    root = locations.absolute(root)
    if not files.exists(root):
        raise MissingInput("there is no such replica", path=root, advice="ROOT is its storePathRootDir")
    directories = commit_log_directories(root, Settings())
    segments = find_segments(directories, store.settings.number(SEGMENT_SIZE), with_missing=True)
    if isinstance(segments[0].framing, EntryFraming) != isinstance(store.segments[0].framing, EntryFraming):
        raise Refused(
            "one of the two logs is that of a DLedger group, the other is not: they are not copies of each other",
            path=root,
            advice="--replica must name a copy of this log: another member's, a slave's, a backup",
        )
    copy = replace(store, root=root, segments=segments, committed=None, missing_from=None)
    reading = _salvaged(_filled(copy, directory), replace(options, until_offset=None), runner)
    return LogCopy(root, reading, absent_in(segments))


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

    def _of(self, kind: RangeKind) -> list[ByteRange]:
        return [(item.begin, item.end) for item in self.reading.of(kind)]

    @property
    def damaged(self) -> list[ByteRange]:
        return self._of(RangeKind.DAMAGED)

    @property
    def gaps(self) -> list[ByteRange]:
        """Bytes outside records: damage, remains of an older log, and absent bytes."""
        stale = [item for item in self._of(RangeKind.STALE) if item[0] < self.reading.end]
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
        scans = [scan.report for scan in self.reading.scans if scan.records or scan.special.foreign]
        found = joined((report.start, report.end) for report in scans if report.start is not None)
        return without(found, joined([*self.damaged, *self.absent, *self.zeroed]))

    @property
    def sound(self) -> list[ByteRange]:
        """Bytes of sound records, and of BLANKs to the ends of their segments."""
        return joined([*self.records, *self._of(RangeKind.BLANK)])

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


def refuse_differing(runner: Runner, copies: Sequence[LogCopy]) -> None:
    """Raise Refused where two copies differ in records that are sound in both."""
    for one, other in combinations(copies, 2):
        offset = compare(runner, one, other)
        if offset is not None:
            raise Refused(
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


def plan_healing(
    own: LogCopy, replicas: Sequence[LogCopy], directory: str
) -> tuple[list[tuple[int, int, LogCopy]], list[MadeSegment]]:
    """What to take from which replica, and the segments to make in ``directory``."""
    lost = own.lost
    ranges: list[tuple[int, int, LogCopy]] = []
    for replica in replicas:
        taken = [(begin, _whole_record(own, replica, begin, end)) for begin, end in common(lost, replica.sound)]
        lost = without(lost, taken)
        ranges += [(*part, replica) for part in taken]
    ranges.sort(key=lambda item: item[0])
    made: list[MadeSegment] = []
    for segment in own.segments:
        parts = [
            (*part, same)
            for begin, end, replica in ranges
            for part in ranges_by_segment([(begin, end)], segment)
            if (same := segment_at(replica.segments, segment.base)) is not None
        ]
        if parts or segment.missing:
            path = locations.join(directory, locations.name_of(segment.path))
            made.append(MadeSegment(segment, path, tuple(parts)))
    return ranges, made


def _whole_record(own: LogCopy, replica: LogCopy, begin: int, end: int) -> int:
    """Extend a range beyond the end of the log to the end of its record: the log may end within one."""
    if end <= own.reading.end:
        return end
    segment = segment_with(replica.segments, end - 1)
    with files.RangeReader(segment.path) as reader:
        window = BlockWindow(reader, segment)
        walk = chain_from(window, max(begin, segment.base), HEADS_ONLY, stop=end).finish()
    return max(end, walk.position)
