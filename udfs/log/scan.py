"""Commit-log splits -> packed runs, inside a Spark task.

A scan walks one split's chain block by block and leaves units and entries in the staging directory (``staged_runs``,
``batch_queues``). The driver only gets a summary: the chain, and one row a run. Memory: a block, and the buffers of run
writers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s, Table
from storeformat.errors import LISTED, RecordDefect, WriteFailed
from storeformat.kernels import PlainStop, Tally
from storeformat.log.chain import ChainReport, EntryNumbers
from storeformat.log.chain_walk import BLOCK_SIZE, BlockWindow, ChainWalk, search_certificate
from storeformat.log.record_ref import RecordRef, record_ref
from storeformat.log.segments import ChainEnd, Split
from storeformat.queues.topic_filter import TopicFilter, selected
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.record.dispatch import (
    BatchUnits,
    DispatchRules,
    PlainDispatch,
    batch_units,
    from_tags,
    index_entries,
    queue_units,
    topic_names,
)
from storeformat.salvage.repair import is_filler
from storeformat.storage import files, locations
from udfs.log.batch_queues import BATCH_RUN, BatchRunWriter
from udfs.log.staged_files import NOTHING_STAGED, Staged
from udfs.log.staged_runs import RUN, EntryWriter, RunWriter
from udfs.log.subscriptions import SUBSCRIPTION_PROPERTIES, Subscription, subscriptions_in
from udfs.log.timers import REAL_PROPERTIES, TIMER_PROPERTIES, TimerEvent, real_queues, timer_events

if TYPE_CHECKING:
    from typing_extensions import Self

_FOUND = (REAL_PROPERTIES, SUBSCRIPTION_PROPERTIES, TIMER_PROPERTIES)
_RECENT = slice(Tally.THIRD_TIME, Tally.LAST_TIME + 1)


@dataclass(frozen=True)
class ScanTask:
    """Scan configuration of every task; without ``staging`` runs are only counted."""

    staging: str
    decode_rules: DecodeRules
    dispatch_rules: DispatchRules
    topics: tuple[TopicFilter, ...] = ()  # queues whose units are wanted; empty: all
    with_units: bool = True
    with_entries: bool = True
    with_times: bool = False
    mark_tag_entries: bool = False

    def __call__(self, splits: Iterator[Split]) -> Iterator[SplitScan]:
        if self.staging and locations.is_local(self.staging) and not files.exists(self.staging):
            raise WriteFailed("not every machine of the cluster sees this directory", path=self.staging)
        for split in splits:
            yield scan_split(split, self)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Log offsets of the last record dispatched (even foreign), with a unit, and with an index entry; -1 for none."""

    last: int = -1
    last_unit: int = -1
    last_entry: int = -1


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """Store timestamps of a split's records in milliseconds: first, last, and the last three."""

    first: int | None = None
    last: int | None = None
    recent: tuple[int, ...] = ()
    latest: int = 0  # the highest: not the last if the clock was set back


@dataclass(frozen=True, slots=True)
class FromProperties:
    """Results from properties that only some scans decode."""

    real_queues: tuple[tuple[str, int], ...] = ()  # of waiting messages; with ``REAL_PROPERTIES``
    subscriptions: frozenset[Subscription] = frozenset()  # with ``SUBSCRIPTION_PROPERTIES``
    timers: tuple[TimerEvent, ...] = ()  # with ``TIMER_PROPERTIES``


@dataclass(frozen=True, slots=True)
class SpecialRecords:
    """Offsets and sizes of records that are no messages of this place."""

    foreign: tuple[tuple[int, int], ...] = ()
    foreign_refs: tuple[RecordRef, ...] = ()  # of the first of them
    fillers: tuple[tuple[int, int], ...] = ()  # that a repair wrote over lost records


@dataclass(frozen=True, slots=True)
class StagedRuns:
    """Units and index entries of a split, staged or only counted. ``topics`` are numbered by the runs."""

    topics: tuple[bytes, ...] = ()
    units: Staged = NOTHING_STAGED
    batches: Staged = NOTHING_STAGED
    entries: Staged = NOTHING_STAGED

    @property
    def unit_runs(self) -> Table:
        return np.frombuffer(self.units.runs, RUN).view(np.recarray)

    @property
    def batch_runs(self) -> Table:
        return np.frombuffer(self.batches.runs, BATCH_RUN).view(np.recarray)

    def queues(self) -> set[tuple[str, int]]:
        """Topic and queue id of all its units."""
        names = topic_names(self.topics)
        columns = [(runs.topic_codes.tolist(), runs.queue_ids.tolist()) for runs in (self.unit_runs, self.batch_runs)]
        return {(names[code], queue_id) for both in columns for code, queue_id in zip(*both, strict=True)}


@dataclass(frozen=True, slots=True)
class SplitScan:
    """Result of one split. Totals are of the chain from ``report.start`` to ``report.end``."""

    report: ChainReport
    records: int = 0
    record_bytes: int = 0
    special: SpecialRecords = SpecialRecords()
    properties: FromProperties = FromProperties()
    staged: StagedRuns = StagedRuns()
    dispatched: Dispatched = Dispatched()
    times: StoreTimes = StoreTimes()

    @property
    def head_bytes(self) -> int:
        """Bytes of DLedger entry heads before the records."""
        return self.report.split.segment.framing.head_size * self.records


def scan_split(split: Split, task: ScanTask, also: Callable[[RecordBlock], None] | None = None) -> SplitScan:
    """Scan one split and stage its runs; ``also`` gets all its records, decoded, block by block."""
    with files.RangeReader(split.segment.path) as reader:
        window = BlockWindow(reader, split.segment)
        start, zero = split.first_record, True
        if start is None:
            search = search_certificate(window, split.start, split.stop, split.limit)
            start, zero = search.first, search.all_zero
        if start is None:
            return SplitScan(
                ChainReport(split, None, split.start, ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC, rest_is_zero=zero)
            )
        with _Dispatch(task, split, takes_plain=also is None) as writer:
            walk = ChainWalk(window, split, start, task.decode_rules, BLOCK_SIZE, writer.take)
            for block in walk:
                writer.add(block)
                if also is not None:
                    also(block)
        report = _report(split, start, walk, window)
    return writer.summary(report)


def _report(split: Split, start: int, walk: ChainWalk, window: BlockWindow) -> ChainReport:
    rest_is_zero, plausible = True, False
    if walk.ended == ChainEnd.DEFECT:
        rest = search_certificate(window, walk.position, split.stop, split.limit)
        plausible = rest.first == walk.position or walk.defect not in (
            RecordDefect.UNWRITTEN,
            RecordDefect.ILLEGAL_MAGIC,
            RecordDefect.TRUNCATED,
        )
        rest_is_zero = rest.first is None and rest.all_zero
    numbers = EntryNumbers(walk.first, walk.last)
    return ChainReport(split, start, walk.position, walk.ended, walk.defect, rest_is_zero, plausible, numbers)


class _Dispatch:
    """Dispatches blocks to the staging writers and counts; ``takes_plain``: plain records bypass the blocks."""

    def __init__(self, task: ScanTask, split: Split, *, takes_plain: bool) -> None:
        self._task = task
        name = f"split-{split.number:06d}-{uuid.uuid4().hex[:12]}"
        self._units = RunWriter(task.staging, name, with_times=task.with_times)
        self._entries = EntryWriter(task.staging, f"{name}.entries")
        self._batches = BatchRunWriter(task.staging, name)
        self._topics: dict[bytes, int] = {}
        self._tally = Tally.start()
        self._foreign: list[tuple[int, int]] = []
        self._foreign_refs: list[RecordRef] = []
        self._fillers: list[tuple[int, int]] = []
        finds = [set(names) <= set(task.decode_rules.properties) for names in _FOUND]
        self._finds_real_queues, self._finds_subscriptions, self._finds_timers = finds
        self._real_queues: set[tuple[str, int]] = set()
        self._subscriptions: set[Subscription] = set()
        self._timers: list[TimerEvent] = []
        self._plain: PlainDispatch | None = None
        special = task.topics or task.mark_tag_entries or any(finds)
        if takes_plain and not special and PlainDispatch.serves(task.dispatch_rules):
            self._plain = PlainDispatch(
                task.decode_rules,
                task.dispatch_rules,
                partial(_code, self._topics) if task.with_units else lambda topic: 0,
                is_filler,
                with_units=task.with_units,
                with_entries=task.with_entries,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                self._take_entries()
                self._units.flush()
                self._batches.flush()
        finally:
            for writer in (self._units, self._entries, self._batches):
                writer.close(kind, error)

    def take(self, buffer: Bytes, positions: Int64s, buffer_offset: int) -> int:
        """Dispatch plain records from the front in one pass."""
        plain, units, taken = self._plain, self._units, 0
        while plain is not None and taken < len(positions):
            self._tally[Tally.UNITS] = units.waiting
            taken += plain.take(buffer, positions[taken:], buffer_offset, units.room, self._tally)
            units.waiting = int(self._tally[Tally.UNITS])
            if self._tally[Tally.STOP] != PlainStop.FULL:
                break
            self._take_entries()
            units.make_room()
        return taken

    def _take_entries(self) -> None:
        """Move buffered index entries of the plain pass: before others, and before the buffer is full."""
        if self._plain is not None:
            self._entries.add_rows(self._plain.entries(self._tally))

    def add(self, block: RecordBlock) -> None:
        tally, heads = self._tally, block.heads
        own = ~block.foreign
        times = heads.store_timestamp[own]
        if len(times):
            if not tally[Tally.RECORDS]:
                tally[Tally.FIRST_TIME] = times[0]
            tally[_RECENT] = np.concatenate([tally[_RECENT], times[-3:]])[-3:]
            tally[Tally.LATEST_TIME] = max(tally[Tally.LATEST_TIME], times.max())
        tally[Tally.RECORDS] += len(times)
        tally[Tally.RECORD_BYTES] += heads.total_size[own].sum(dtype=np.int64)
        tally[Tally.LAST_RECORD] = block.offsets[-1]
        foreign = np.flatnonzero(block.foreign)
        self._foreign += [(int(block.offsets[row]), int(heads.total_size[row])) for row in foreign]
        room = LISTED - len(self._foreign_refs)
        self._foreign_refs += [record_ref(block, row) for row in foreign[:room].tolist()]
        self._fillers += _fillers(block)
        if self._finds_real_queues:
            self._real_queues |= real_queues(block)
        if self._finds_subscriptions:
            self._subscriptions.update(subscriptions_in(block))
        if self._finds_timers:
            self._timers += timer_events(block)
        if self._task.with_units:
            self._add_units(block)
        if self._task.with_entries:
            self._add_entries(block)

    def _add_units(self, block: RecordBlock) -> None:
        if self._task.dispatch_rules.batch_topics:
            self._add_batches(block)
        found = queue_units(block, self._task.dispatch_rules)
        units, light = found.columns, found.light
        if len(light):
            self._tally[Tally.LAST_UNIT] = max(self._tally[Tally.LAST_UNIT], units.offsets[-1])
        if self._task.topics:
            keep = selected(self._task.topics, found.topics, units.topic_codes, units.queue_ids)
            units, light = units.rows(keep), light[keep]
        codes = np.array([_code(self._topics, topic) for topic in found.topics], np.int32)
        self._units.add(units._replace(topic_codes=codes[units.topic_codes]), light)

    def _add_batches(self, block: RecordBlock) -> None:
        units = batch_units(block, self._task.dispatch_rules)
        if len(units.units):
            self._tally[Tally.LAST_UNIT] = max(self._tally[Tally.LAST_UNIT], units.units["phy_offset"][-1])
        if self._task.topics:
            keep = selected(self._task.topics, block.topics, units.topic_codes, units.queue_ids)
            units = BatchUnits(units.topic_codes[keep], units.queue_ids[keep], units.units[keep])
        codes = np.array([_code(self._topics, topic) for topic in block.topics], np.int32)
        self._batches.add(replace(units, topic_codes=codes[units.topic_codes]))

    def _add_entries(self, block: RecordBlock) -> None:
        self._take_entries()
        entries = index_entries(block, self._task.dispatch_rules)
        if len(entries.offsets):
            tags = from_tags(block, entries) if self._task.mark_tag_entries else None
            self._entries.add(entries, tags)
            self._tally[Tally.LAST_ENTRY] = entries.offsets[-1]

    def summary(self, report: ChainReport) -> SplitScan:
        sums = dict(zip(Tally, self._tally.tolist(), strict=True))
        records = sums[Tally.RECORDS]
        return SplitScan(
            report=report,
            records=records,
            record_bytes=sums[Tally.RECORD_BYTES],
            special=SpecialRecords(tuple(self._foreign), tuple(self._foreign_refs), tuple(self._fillers)),
            properties=FromProperties(
                tuple(sorted(self._real_queues)), frozenset(self._subscriptions), tuple(self._timers)
            ),
            staged=StagedRuns(
                tuple(self._topics), self._units.staged(), self._batches.staged(), self._entries.totals()
            ),
            dispatched=Dispatched(sums[Tally.LAST_RECORD], sums[Tally.LAST_UNIT], sums[Tally.LAST_ENTRY]),
            times=StoreTimes(
                first=sums[Tally.FIRST_TIME] if records else None,
                last=sums[Tally.LAST_TIME] if records else None,
                recent=tuple(self._tally[_RECENT].tolist()[-records:] if records else ()),
                latest=sums[Tally.LATEST_TIME],
            ),
        )


def _code(topics: dict[bytes, int], topic: bytes) -> int:
    return topics.setdefault(topic, len(topics))


def _fillers(block: RecordBlock) -> list[tuple[int, int]]:
    """Offset and size of records that a repair wrote over lost ones."""
    codes = [code for code, topic in enumerate(block.topics) if is_filler(topic)]
    if not codes:
        return []
    rolled_back = (block.heads.sys_flag & m.TRANSACTION_MASK) == m.TRANSACTION_ROLLBACK
    rows = np.flatnonzero(~block.foreign & rolled_back & np.isin(block.topic_codes, codes))
    return list(zip(block.offsets[rows].tolist(), block.heads.total_size[rows].tolist(), strict=True))
