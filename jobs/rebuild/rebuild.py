"""``rebuild``: consume queues, index files and checkpoint from the commit log, byte for byte as the broker writes them.
Staging becomes the output by one rename after all checks; on an object store the manifest, written last, does that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import islice

import numpy as np

from jobs.consumer_offsets.plan import refuse_where_unread
from jobs.contract.options import CONSUMER_OFFSETS, RebuildOptions, narrow_to_queues
from jobs.contract.report import Report, Reporter, counted, job_command, size_text
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, with_queue_store
from jobs.log.restored_log import Restored, restored
from jobs.log.verified_chain import time_before
from jobs.rebuild.build_store import Built, claimed, gone_on_failure, rebuild, staging_for
from jobs.rebuild.planning import size_note
from jobs.spark import session
from jobs.spark.runner import Runner
from storeformat.errors import MissingInput, Refused, UsageError
from storeformat.log.segments import PLAIN, Segment, segment_with
from storeformat.queues.consume_queue_ext import UNIT_HEAD
from storeformat.salvage.repair import Patch, crc_patch, fill_range
from storeformat.storage import files, locations
from storeformat.store.layout import (
    ABORT,
    BACKUP,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DATA,
    GROUP_PREFIX,
    INDEX,
    LOCK,
    ROCKSDB_QUEUES,
    ROCKSDB_STORE,
    holds_pairs,
    queue_directories,
)
from storeformat.store.segment_files import group_directories
from udfs.log.log_copies import joined, ranges_by_segment

_CHUNK = 8 << 20


def run(options: RebuildOptions, reporter: Reporter) -> Report:
    """Rebuild into the output directory."""
    options = narrow_to_queues(options)
    if options.topics_json and (options.topics or "consumequeue" not in options.only):
        raise UsageError("--topics-json needs the consume queues of all topics")
    if options.consumer_offsets_at is not None and CONSUMER_OFFSETS not in options.only:
        raise UsageError("--consumer-offsets-at needs consumer-offsets in --only")
    store = open_store(options, needs_index_sizes=bool({"index", "checkpoint"} & set(options.only)), restores=True)
    store = _with_queue_store(options, store)
    if CONSUMER_OFFSETS in options.only:
        refuse_where_unread(store)
    reporter.note(*store.notes)
    if store.compacted_topics and "consumequeue" in options.only:
        reporter.note(
            f"{len(store.compacted_topics)} compacted topics get no queues ({min(store.compacted_topics)}): a broker "
            "fills compaction/ only from what it dispatches, as it does with the file abort in its store"
        )
    output = files.resolved(locations.absolute(options.output))
    _refuse_output(output, store)
    for left in _left_by_others(output):
        reporter.note(f"{left} belongs to a rebuild that is running or was killed: remove it if none is running")
    repaired_log = _repaired_log(options, store)
    renamed = locations.is_local(output)
    with (
        nullcontext() if renamed or options.dry_run else claimed(output),
        staging_for(output) as staging,
        session.runner_for(reporter, "rebuild", store.log_size) as runner,
    ):
        whole = restored(store, options, runner, locations.join(staging, "log"))
        built = rebuild(options, whole.store, staging, runner, made=None if renamed else output)
        repaired: list[str] = []
        if not options.dry_run:
            with gone_on_failure(repaired_log) if repaired_log is not None else nullcontext():
                if repaired_log is not None:
                    repaired = repair_log(built.reading, repaired_log, whole.made)
                if renamed:
                    files.rename(built.directory, output)
    return _report(options, whole, built, repaired, runner, reporter)


def _with_queue_store(options: RebuildOptions, store: OpenedStore) -> OpenedStore:
    if "consumequeue" not in options.only:
        if options.queue_store is not None:
            raise UsageError("--queue-store is for consume queues, which --only leaves out")
        return store
    store = with_queue_store(store, options.queue_store)
    if store.queues_in.in_rocksdb:
        if not locations.is_local(options.output):
            raise UsageError("RocksDB queues need an --output on a file system: no database can be made in a bucket")
        if options.topics:
            raise UsageError("--topic selects queues in files: a RocksDB database holds those of all topics")
    return store


def _refuse_output(output: str, store: OpenedStore) -> None:
    if not locations.is_local(output):
        if not locations.parent_of(output).partition("://")[2]:
            raise UsageError(f"{output}: name a directory in the bucket")
        files.refuse_missing_bucket(output)
    for directory in {store.root: None} | {locations.parent_of(segment.path): None for segment in store.segments}:
        if files.resolves_inside(output, directory) and not files.resolves_inside(output, store.place(BACKUP)):
            raise Refused(
                "the output must not lie inside the store", path=output, advice="rebuild beside it, then publish"
            )
    files.refuse_used_directory(output)


def _left_by_others(output: str) -> list[str]:
    begin, beside = f".{locations.name_of(output)}.", []
    if locations.is_local(output):
        with suppress(MissingInput):  # of a directory that may be entered, and not read
            beside = files.list_directory(locations.parent_of(output)) or []
    return [entry.path for entry in beside if entry.name.startswith(begin) and entry.name.endswith(".staging")]


def _repaired_log(options: RebuildOptions, store: OpenedStore) -> str | None:
    if options.repair_log is None:
        return None
    if any(segment.framing != PLAIN for segment in store.segments) and not options.replicas:
        raise UsageError(
            "--repair-log is not for the log of a DLedger group: its members repair it from each other, and so does"
            " --replica with the store of another member"
        )
    if options.on_damage != "salvage" and not options.replicas:
        raise UsageError(
            "--repair-log needs --on-damage salvage or a --replica: it makes a log that a broker can read past damage"
        )
    target, output = files.resolved(locations.absolute(options.repair_log)), locations.absolute(options.output)
    if files.resolves_inside(target, output) or files.resolves_inside(output, target):
        raise UsageError("--repair-log and --output must be two directories, neither inside the other")
    _refuse_output(target, store)
    return target


def _report(
    options: RebuildOptions, whole: Restored, built: Built, repaired: list[str], runner: Runner, reporter: Reporter
) -> Report:
    reading, store = built.reading, whole.store
    large = size_note(built.facts["disk_bytes"], reading.end - reading.begin)
    reporter.note(*whole.notes, *reading.notes, *([large] if large else []), *built.notes)
    damaged = reading.is_damaged or not whole.is_held
    verdict = "would be rebuilt" if options.dry_run else "rebuilt"
    verdict += " past damage" if damaged else ", but not all that the broker had is known" if built.lacks_state else ""
    entries = f"{counted(built.facts.get('queues', 0), 'queue')}, {built.facts.get('index_entries', 0):,} index entries"
    made = f"{entries}, {size_text(built.facts.get('disk_bytes', 0))} on disk"
    return reporter.report(
        "rebuild",
        verdict=f"{verdict}: {', '.join(options.only)}",
        figures=f"{reading.figures}; {made}",
        damaged=damaged or built.lacks_state,
        **store.facts(),
        **reading.facts(),
        **whole.facts(),
        stages=runner.stages,
        **built.facts,
        output=None if options.dry_run else locations.absolute(options.output),
        next=_next_step(options, store, repaired),
        repaired_segments=repaired,
        dry_run=options.dry_run,
        queue_store=store.queues_in.kind if "consumequeue" in options.only else None,
        not_rebuilt=parts_not_rebuilt(
            store.root, store.segments,
            extended=store.settings.flag("enableConsumeQueueExt"), in_rocksdb=store.queues_in.in_rocksdb,
        ),
    )  # fmt: skip


def _next_step(options: RebuildOptions, store: OpenedStore, repaired: list[str]) -> str | None:
    if options.dry_run or repaired:  # a person chooses where the repaired log goes
        return None
    crash = ["--after-crash"] if files.exists(store.place(ABORT)) else []
    output = locations.absolute(options.output)
    return job_command("publish", options, "--from", output, *crash)


def repair_log(reading: LogReading, directory: str, made: Collection[str] = ()) -> list[str]:
    """Write repaired copies of damaged segments, and all of ``made``; survivors keep their offsets. Returns names."""
    if reading.damaged and any(segment.framing != PLAIN for segment in reading.segments):
        # The members of a group agree on numbers, and no filler has one.
        begin = reading.damaged[0].begin
        raise Refused(
            "the log of a DLedger group is damaged where no copy of it is whole, and entries cannot be filled in",
            path=segment_with(reading.segments, begin).path, offset=begin,
            advice="name more members with --replica, or leave out --repair-log",
        )  # fmt: skip
    by_segment: dict[Segment, list[Patch]] = {segment: [] for segment in reading.segments if segment.path in made}
    for segment, patch in _patches(reading):
        by_segment.setdefault(segment, []).append(patch)
    if by_segment:
        files.make_directory(directory)
    for segment, patches in by_segment.items():
        _copy(segment, locations.join(directory, locations.name_of(segment.path)), patches)
    return [locations.name_of(segment.path) for segment in by_segment]


def _patches(reading: LogReading) -> Iterator[tuple[Segment, Patch]]:
    ranges = [(item.begin, item.end) for item in (*reading.damaged, *reading.stale) if item.begin < reading.end]
    for stray in (stray for stray in reading.losses.strays if stray.moves_others):
        size = int.from_bytes(_read(segment_with(reading.segments, stray.offset), stray.offset, 4), "big")
        ranges.append((stray.offset, stray.offset + size))
    records = [scan for scan in reading.scans if scan.records]
    ranges = joined(ranges)
    parts = [(segment, *part) for segment in reading.segments for part in ranges_by_segment(ranges, segment)]
    for segment, begin, end in parts:
        followed = any(scan.report.end > end and (scan.report.start or 0) < segment.end for scan in records)
        after = next((scan.times.first for scan in records if (scan.report.start or 0) >= end), None)
        time = time_before([scan for scan in records if scan.report.end <= begin], after) or after or 0
        for patch in fill_range(begin, end, segment, time, is_last=not followed):
            yield segment, patch
    last = reading.segments[-1]
    for item in reading.damaged:  # what is left of a record where the file was cut: zeros after it could make it whole
        if last.missing and reading.end <= item.begin:
            yield last, Patch(item.begin, bytes(item.end - item.begin))
    for item in reading.kept:
        segment = segment_with(reading.segments, item.begin)
        yield segment, crc_patch(_read(segment, item.begin, item.end - item.begin), item.begin)


def _read(segment: Segment, offset: int, size: int) -> bytes:
    return files.read_range(segment.path, offset - segment.base, size)


def _copy(segment: Segment, target: str, patches: list[Patch]) -> None:
    buffer = bytearray(_CHUNK)
    with files.RangeReader(segment.path) as reader, files.FileWriter(target) as writer:
        for at in range(0, segment.size, _CHUNK):
            chunk = memoryview(buffer)[: min(_CHUNK, segment.size - at)]
            reader.read_into(at, chunk)
            writer.write(chunk)
        for patch in patches:
            writer.write_at(patch.offset - segment.base, patch.data)


_PLAIN_EXT = "queues carry plain tags codes, which every broker accepts; --set enableConsumeQueueExt=true writes it"
_BIT_MAPS = "written, but without the filters' bit maps, which come from consumers and not from the log"
_TIMERS = "which timer messages wait is in no queue or index; --only timers makes a timer log of them"
_ROCKSDB_QUEUES = "consume queues in RocksDB are not made here, only those in files; --queue-store rocksdb makes them"
_DLEDGER = "this DLedger log was not read; records in it are in no queue and no index of this output"
_CONFIGURED = "topics are configured in RocksDB, which is not read: --batch-topic says which are of type BatchCQ"
_OTHER_LOG = "these segments were not read: the log was read from elsewhere"
_HISTORY = "who led the group of this broker, and until where: no log shows it, it is left as it is"
_UNKNOWN = "unknown to this program: neither read nor made"
_PARTS = {
    # CompactionStore 5.1.0, TimerMessageStore 5.0.0, PopConsumerService 5.3.2, RocksDBConsumeQueueStore 5.2.0,
    # MessageRocksDBStorage 5.4.0 (empty in most stores), AutoSwitchHAService and ReplicasManager 5.0.0
    "compaction": "queues of compaction topics are made again by the broker",
    "timerwheel": _TIMERS,
    "timerlog": _TIMERS,
    "kvStore": "what POP consumers hold and have not acknowledged is known to the broker alone",
    ROCKSDB_QUEUES: _ROCKSDB_QUEUES,
    ROCKSDB_STORE: "an index, half messages or timers in RocksDB are not rebuilt, only index files",
    "epochFileCheckpoint": _HISTORY,
    "brokerIdentity": _HISTORY,
}
_KNOWN = {
    COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CHECKPOINT, ABORT, f"{ABORT}.bak",
    LOCK, "config", BACKUP, "lost+found", "epochFileCheckpoint.bak", "brokerIdentity.bak", *_PARTS,
}  # fmt: skip


def parts_not_rebuilt(
    root: str, segments: Sequence[Segment] = (), *, extended: bool = False, in_rocksdb: bool = False
) -> list[dict[str, str]]:
    """``part`` and ``reason`` of everything in a store root that a rebuild does not make. ``extended``: it makes
    consumequeue_ext, without bit maps. ``in_rocksdb``: it makes the database of queues.
    """
    names = {entry.name: entry for entry in files.list_directory(root) or []}
    read = {locations.parent_of(segment.path) for segment in segments}
    found: dict[str, str] = {}
    if _holds_something(names.get(CONSUME_QUEUE_EXT)) and (not extended or _has_bit_maps(root)):
        found[CONSUME_QUEUE_EXT] = _BIT_MAPS if extended else _PLAIN_EXT
    for name, reason in _PARTS.items():
        is_database = name in (ROCKSDB_QUEUES, ROCKSDB_STORE, "kvStore")
        is_there = holds_pairs(locations.join(root, name)) if is_database else _holds_something(names.get(name))
        if is_there and not (in_rocksdb and name == ROCKSDB_QUEUES):
            found[name] = reason
    found |= {name: _TIMERS for name in sorted(names) if name.startswith("timerwheel.")}
    if not in_rocksdb and files.exists(locations.join(root, CONSUME_QUEUE, "CURRENT")):
        found[f"{CONSUME_QUEUE}/CURRENT"] = _ROCKSDB_QUEUES
    configured = (f"config/{name}" for name in ("topics", "metadata", "rdb"))
    found |= {name: _CONFIGURED for name in configured if holds_pairs(locations.join(root, name))}
    for group in group_directories(root):
        data = locations.join(group, DATA)
        if files.list_directory(data) and data not in read:
            found[locations.name_of(group)] = _DLEDGER
    commit_log = locations.join(root, COMMIT_LOG)
    if read and commit_log not in read and files.list_directory(commit_log):
        found[COMMIT_LOG] = _OTHER_LOG
    known = (".", GROUP_PREFIX, "timerwheel.")
    unknown = (name for name in sorted(names) if name not in _KNOWN and not name.startswith(known))
    found |= {name: _UNKNOWN for name in unknown if names[name].path not in read}
    return [{"part": part, "reason": reason} for part, reason in found.items()]


def _holds_something(entry: files.FileStatus | None) -> bool:
    if entry is None:
        return False
    return bool(files.list_directory(entry.path)) if entry.is_directory else entry.size != 0


def _has_bit_maps(root: str) -> bool:
    first_files = (entry for queue in queue_directories(root, CONSUME_QUEUE_EXT) for entry in queue.entries()[:1])
    asked = islice((entry for entry in first_files if entry.size >= UNIT_HEAD.itemsize), 64)
    heads = (np.frombuffer(files.read_range(entry.path, 0, UNIT_HEAD.itemsize), UNIT_HEAD) for entry in asked)
    return any(head["bit_map_size"][0] > 0 for head in heads)
