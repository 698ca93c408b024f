"""Opening a store: settings, segments and rules, checked before anything heavy starts; and reading its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jobs.contract.options import DamagePolicy, LogOptions
from jobs.log.log_scan import DEFAULT_SPLIT_SIZE, LogRange, LogReading, RangeKind, damaged_log, scan_log
from jobs.log.losses_beside import with_losses_beside
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import MissingInput, UsageError, WrongSettings
from storeformat.log.log_end import growing_log_end
from storeformat.log.segments import LogPart, Segment
from storeformat.queues.consume_queue import PRE_BLANK_SIZE
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import DispatchRules, parse_delay_levels
from storeformat.storage import files, locations, rocksdb
from storeformat.store.broker_rules import EFFECTS
from storeformat.store.checkpoint import FIELDS, parse_checkpoint
from storeformat.store.config_files import find_batch_topics
from storeformat.store.layout import ABORT, CHECKPOINT, QueueStore, QueueStoreKind, file_name, queue_store
from storeformat.store.queue_ends import offset_at, queue_ends, units_at
from storeformat.store.segment_files import (
    commit_log_directories,
    find_segments,
    group_directories,
    groups_of,
    paths_unread_by_broker,
    with_committed,
)
from storeformat.store.settings import SEGMENT_SIZE, Settings, read_settings
from storeformat.store.store import Store, find_store, fit_to_store
from udfs.log.scan import ScanTask


@dataclass(frozen=True)
class OpenedStore(Store):
    """A store whose sizes and segments fit together."""

    segments: list[Segment]
    notes: tuple[str, ...] = ()
    batch_topics: frozenset[str] = frozenset()
    as_broker: bool = False
    """The log ends where a broker's recovery ends it (``--on-damage stop``)."""
    committed: int | None = None
    """End of the log that a DLedger group agrees on; None for all of it, or without a group."""
    healed: tuple[LogRange, ...] = ()
    missing_from: int | None = None
    """Offset from which entries are lost that the group's checkpoint counts as committed."""
    queues_in: QueueStore = field(default_factory=QueueStore)

    @property
    def log_size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def facts(self) -> dict[str, Any]:
        return {
            "store": self.root,
            "broker_version": self.rules.version,
            "broker_version_reason": self.release_reason,
        }

    def decode_rules(self, more_properties: tuple[bytes, ...] = ()) -> DecodeRules:
        """How records are decoded and checked; ``more_properties`` are those that no dispatch needs."""
        light = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET) if self.multi_dispatch else ()
        return DecodeRules(
            split_parser=self.rules.split_parser,
            as_broker=self.as_broker,
            properties=(*DISPATCH_PROPERTIES, *light, *more_properties),
        )

    def dispatch_rules(self) -> DispatchRules:
        settings, rules = self.settings, self.rules
        return DispatchRules(
            delay_millis=parse_delay_levels(settings.text("messageDelayLevel")),
            message_index_enable=settings.writes_index_files,
            index_tags=rules.index_tags,
            multi_dispatch=self.multi_dispatch,
            batch_topics=frozenset(topic.encode() for topic in self.batch_topics),
        )

    def is_read_to_its_end(self, until: int | None) -> bool:
        """Messages after the end of this reading are lost, not just unread."""
        return until is None and self.committed is None and not self.is_live

    def until(self, offset: int | None) -> int | None:
        """End of the reading: the given offset, else the committed end, with a live broker the current end."""
        offset = self.committed if offset is None else offset
        last = self.segments[-1]
        if last.missing:
            offset = min(last.end - last.missing, last.end if offset is None else offset)
        if not self.is_live:
            return offset
        end = growing_log_end(self.segments, self.decode_rules())
        return end if offset is None else min(offset, end)


def open_store(options: LogOptions, *, needs_index_sizes: bool = True, restores: bool = False) -> OpenedStore:
    """Open the named store; ``restores``: missing or short segments are accepted with salvage or replicas."""
    if options.keep_crc_failures and options.on_damage != "salvage":
        raise UsageError("--keep-crc-failures needs --on-damage salvage, which alone keeps damaged records")
    settings = read_settings(options.broker_conf, options.settings).checked()
    store = find_store(options.store, settings, options.broker_version)
    root, settings, given = store.root, store.settings, store.settings.given
    directories = commit_log_directories(root, settings, options.commitlog)
    size = settings.number(SEGMENT_SIZE) if SEGMENT_SIZE in given else None
    may_miss = restores and (options.on_damage == "salvage" or bool(options.replicas))
    segments = find_segments(directories, size, with_missing=may_miss)
    settings = settings.showing(**{SEGMENT_SIZE: segments[0].size})
    settings, notes = fit_to_store(root, settings, needs_index_sizes=needs_index_sizes)
    notes += [
        f"--set {name}: "
        + ("the files of a store do not depend on it" if name in given else f"unknown to {store.rules.version}")
        for name, _ in options.settings
        if not EFFECTS[name] or name not in given
    ]
    notes += [
        f"{path} is empty and is ignored: the broker died while it created the file, or its content is lost"
        for directory in directories
        if files.size_of(path := locations.join(directory, file_name(segments[-1].end))) == 0
    ]
    if store.suggests is not None:
        notes.append(f"using the rules of {store.rules.version}, as requested; the store suggests {store.suggests}")
    if store.release_assumed and settings.flag("enableMultiDispatch"):
        raise WrongSettings(
            "which records go to light queues depends on the broker's release, and the store does not show it",
            path=root,
            advice="give --broker-version 4.9, 5.1, 5.3 or 5.5",
        )
    if len(segments) == 1 and size is None and segments[0].size != Settings().number(SEGMENT_SIZE):
        notes.append(
            f"the only segment has {segments[0].size} bytes: if the broker's mappedFileSizeCommitLog is another, the "
            "file was cut or is still being copied"
        )
    batch_topics = find_batch_topics(root, options.batch_topics)
    if batch_topics and not store.rules.reads_batches_and_timers:
        what = "no broker before 5.0.0 reads queues of batches"
        raise WrongSettings(what, path=root, found=f"{min(batch_topics)}, rules of {store.rules.version}")
    as_broker = options.on_damage == "stop"
    groups = groups_of(directories) or group_directories(root, settings.text("dLegerSelfId"))
    segments, committed = with_committed(segments, groups)
    unread = None if options.commitlog else paths_unread_by_broker(settings)
    notes += [note for note in (committed.note, unread) if note]
    if committed.missing_from is not None and options.on_damage == "fail":
        raise damaged_log(segments, committed.missing_from, str(committed.note))
    return OpenedStore(
        root, settings, store.rules, store.release_reason, store.suggests, segments, tuple(notes), batch_topics,
        as_broker, committed.end, missing_from=committed.missing_from,
    )  # fmt: skip


_BESIDE = "the database beside the queue files is neither made nor checked; rebuild --queue-store rocksdb makes it"


def with_queue_store(store: OpenedStore, kind: QueueStoreKind | None = None) -> OpenedStore:
    """Decide where the queues are kept: ``kind``, else settings and store. BatchCQ queues in RocksDB are plain."""
    kept = queue_store(store.root, store.settings, kind)
    if kept.in_rocksdb:
        rocksdb.require()
        return replace(store, queues_in=kept, batch_topics=frozenset())
    beside = (f"{kept.evidence}: {_BESIDE}",) if kept.written_twice else ()
    return replace(store, queues_in=kept, notes=(*store.notes, *beside))


MOST_SPLITS = 1_000_000
"""The driver keeps about 5 kB for each."""


def read_log(
    store: OpenedStore,
    options: LogOptions,
    runner: Runner,
    task: ScanTask | None = None,
    *,
    split_size: int = DEFAULT_SPLIT_SIZE,
    begin: int | None = None,
    on_damage: DamagePolicy | None = None,
    from_log_only: bool = False,
) -> LogReading:
    """Read and prove a log; ``split_size`` is a default in bytes; ``from_log_only`` ignores losses found beside it."""
    wanted = options.split_size or split_size
    if (count := store.log_size // wanted) > MOST_SPLITS:
        raise UsageError(
            "--split-size is in bytes, and this one makes too many splits",
            found=f"{count:,} splits", expected=f"at most {MOST_SPLITS:,}",
        )  # fmt: skip
    reading = scan_log(
        runner,
        store.segments,
        task or counting_task(store),
        split_size=wanted,
        part=LogPart(begin, store.until(options.until_offset)),
        on_damage=on_damage or options.on_damage,
        keep_crc_failures=options.keep_crc_failures,
    )
    reading = reading.with_ranges(*store.healed, *_lost_at_end(store, reading, options.until_offset))
    if from_log_only or not locations.is_local(store.root):
        return reading
    if births := reading.queue_runs.births():
        reading = replace(reading, rules=replace(reading.rules, behind=_behind_others(store, reading, births)))
    if store.is_live or not (reading.rules.salvaged or (begin is None and _may_have_lost(store, reading))):
        return reading
    with suppress(WrongSettings):  # queues in two places at once are neither read nor made
        return with_losses_beside(store, reading, open_end=store.is_read_to_its_end(options.until_offset))
    return reading


def _behind_others(
    store: OpenedStore, reading: LogReading, births: Mapping[tuple[str, int], Sequence[int]]
) -> frozenset[int]:
    """Find messages of queue offset 0 behind others in the store's queues: so their topic was not deleted."""
    behind: set[int] = set()
    with suppress(MissingInput):  # what cannot be read shows nothing
        for queue in queue_ends(store.root, but=reading.queue_runs.ranges().keys() - births.keys()):
            for offset in () if queue.batch else births.get((queue.topic, queue.queue_id), ()):
                place = offset_at(queue, offset)
                before, unit = units_at(queue, np.array([place - 1, place]))
                has_older = 0 < before["size"] < PRE_BLANK_SIZE and before["phy_offset"] < offset
                if has_older and unit["phy_offset"] == offset:
                    behind.add(offset)
    return frozenset(behind)


def _may_have_lost(store: OpenedStore, reading: LogReading) -> bool:
    """A cheap check whether the broker may have had more messages: reading the ends of all queues takes seconds."""
    if reading.damaged or reading.ends_with_segment or files.exists(locations.join(store.root, ABORT)):
        return True
    path = locations.join(store.root, CHECKPOINT)
    size = files.size_of(path)
    known = parse_checkpoint(files.read_range(path, 0, min(size, FIELDS.size))) if size else None
    latest = max((scan.times.latest for scan in reading.scans), default=0)
    times = () if known is None else (known.physic_msg_timestamp, known.logics_msg_timestamp, known.index_msg_timestamp)
    return not times or max(times) > latest


def _lost_at_end(store: OpenedStore, reading: LogReading, until: int | None) -> Iterator[LogRange]:
    """Committed entries lost at the end of a group's log, which only its checkpoint proves; else the rest of a record
    in which the last file ends.
    """
    begin, last, end = store.missing_from, store.segments[-1], reading.end
    held = last.end - last.missing
    named = reading.of(RangeKind.DAMAGED, RangeKind.STALE)
    is_short = begin is not None and end <= begin < (begin + 1 if until is None else until)
    if begin is not None and is_short and not any(item.end > begin for item in reading.damaged):
        stop = store.committed or next(segment.end for segment in store.segments if begin <= segment.end)
        reason = "committed entries are lost here, as the group's checkpoint shows"
        named.append(LogRange(begin, max(begin, stop), RangeKind.DAMAGED, reason))
        yield named[-1]
    is_cut = last.missing and last.base <= end < held and (until is None or until >= held)
    if not is_cut or any(item.begin <= end < item.end for item in named):
        return
    if any(files.read_range(last.path, end - last.base, min(held - end, m.BLANK_SIZE))):
        yield LogRange(end, held, RangeKind.DAMAGED, "the file ends within this record")


def counting_task(store: OpenedStore, *, with_units: bool = True) -> ScanTask:
    """A scan that proves and counts records and optionally the units of each queue; it writes nothing."""
    return ScanTask("", store.decode_rules(), store.dispatch_rules(), with_units=with_units, with_entries=False)
