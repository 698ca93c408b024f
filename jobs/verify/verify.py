"""``verify``: compare consume queues, index, checkpoint and committed offsets with the log; nothing is changed.

    segments --scan--> runs in staging --plan--> files --compare--> findings --judge--> differences, hazards, notes

With a live broker the order matters: first the checkpoint, then the log up to its current end, then queues and index.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from jobs.consumer_offsets.ranges import queue_ranges
from jobs.contract.options import CONSUMER_OFFSETS, VerifyOptions, narrow_to_queues
from jobs.contract.report import Report, job_command
from jobs.contract.reporter import Reporter
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, with_queue_store
from jobs.log.restored_log import restored
from jobs.rebuild import planning
from jobs.rebuild.build_store import scan_store, staging_beside
from jobs.spark import session
from jobs.spark.runner import Runner
from jobs.verify.differences import Subject, Verdicts, Verification
from jobs.verify.judge_index import compare_index, judge_index
from jobs.verify.judge_queues import compare_queues, first_place, judge_queues
from jobs.verify.judge_rocksdb import judge_rocksdb
from storeformat.log.segments import segment_with
from storeformat.queues.queue_check import Finding
from storeformat.queues.queue_runs import DenseBlocks, QueueRuns
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.checkpoint import FIELDS, StoreCheckpoint, parse_checkpoint
from storeformat.store.config.config_files import (
    CONFIG,
    ConfigFile,
    FileState,
    highest_committed,
    known_groups,
    read_config,
    read_offsets,
)
from storeformat.store.layout import ABORT, CHECKPOINT, LOCK
from storeformat.store.queue_places import rocksdb_queues

_CHECKPOINT = Subject(CHECKPOINT, CHECKPOINT)
_SYSTEM_TOPICS = "rmq_sys_"


def run(options: VerifyOptions, reporter: Reporter) -> Report:
    """Verify a store; differences are in the report."""
    options = narrow_to_queues(options)
    store = open_store(options, needs_index_sizes="index" in options.only, restores=True)
    if "consumequeue" in options.only:
        store = with_queue_store(store)
    reporter.note(*store.notes)
    work = locations.join(tempfile.gettempdir(), "rocketmq-store-spark-verify")
    with (
        staging_beside(work) as staging,
        session.runner_for(reporter, "verify", store.log_size) as runner,
    ):
        whole = restored(store, options, runner, locations.join(staging, "log"), refuses=False)
        verified = compare_store(options, whole.store, staging, runner)
    verdicts, reading = verified.verdicts, verified.reading
    if (earlier := earlier_life_note(reading)) is not None:
        verdicts.note(earlier)
    reporter.note(*whole.notes, *reading.notes)
    compared = ", ".join(options.only).replace(CONSUMER_OFFSETS, "committed offsets")
    causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(verdicts.counts.items()))
    return reporter.report(
        "verify",
        verdict=f"differences from the log: {causes}" if causes else f"no difference from the log: {compared}",
        figures=reading.figures,
        differs=any(row["first_difference"] is not None for row in whole.replicas),
        damaged=reading.is_damaged or bool(whole.absent or whole.healed),
        **store.facts(),
        **reading.facts(),
        **verified.compared,
        **whole.facts(),
        counts=dict(sorted(verdicts.counts.items())),
        differences=verdicts.differences,
        hazard_counts=dict(sorted(verdicts.hazard_counts.items())),
        hazards=verdicts.hazards,
        notes=verdicts.notes,
        next=_next_step(options, reading, verdicts),
    )


def _next_step(options: VerifyOptions, reading: LogReading, verdicts: Verdicts) -> str:
    if reading.is_damaged:
        return job_command("recover", options.store, options.broker_conf)
    if verdicts.counts:
        output = locations.absolute(options.store) + ".rebuilt"
        return job_command("rebuild", options.store, options.broker_conf, "--output", output)
    return job_command("preflight", options.store, options.broker_conf)


@dataclass(frozen=True)
class Verified:
    """What a verification found, and how much it compared."""

    reading: LogReading
    verdicts: Verdicts
    compared: Mapping[str, Any]


def compare_store(options: VerifyOptions, store: OpenedStore, staging: str, runner: Runner) -> Verified:
    """Compare a store with its log; ``staging`` takes the output of the scan."""
    unclean = files.exists(locations.join(store.root, ABORT))
    verdicts = Verdicts()
    checkpoint = read_checkpoint(store.root, verdicts) if "checkpoint" in options.only else None
    offsets = read_stored_offsets(store, unclean=unclean) if CONSUMER_OFFSETS in options.only else None
    committed = store.committed
    if unclean:
        # The group may have agreed on more, and the broker dispatched more, than its checkpoint says.
        store = replace(store, committed=None)
    in_rocksdb = store.queues_in.in_rocksdb and "consumequeue" in options.only
    reading = scan_store(
        options, store, staging, runner, mark_tag_entries=store.rules.index_tags, with_times=in_rocksdb
    )
    if unclean and committed is not None and options.until_offset is None:
        _judge_tail(store, committed, reading.end, verdicts)
    cut = unclean or store.until(options.until_offset) is not None or bool(reading.damaged)
    run = Verification(store, reading, runner, verdicts, cut)
    queues = []
    if "consumequeue" in options.only and not store.queues_in.in_rocksdb:
        plans = [planning.plan_queue_files(reading.queue_runs, reading.scans, store.settings)]
        if store.batch_topics:
            plans.append(planning.plan_batch_queue_files(reading.scans, store.settings, partial(first_place, run)))
        queues = [compare_queues(run, plan, options.topics) for plan in plans]
    index = compare_index(run, growing=unclean) if "index" in options.only else None
    compared, unit_reach = judge_rocksdb(run, options.topics, unclean=unclean) if in_rocksdb else (Counter(), -1)
    unit_reach = max((those.reach for those in queues), default=unit_reach)
    entry_reach = max((one.last_offset for _, one in index.files), default=-1) if index else -1
    dispatched = max(unit_reach, entry_reach) + 1 if unclean else None
    for those in queues:
        compared.update(judge_queues(run, those, dispatched))
    if index is not None:
        # A record's entries follow its unit, so the last unit's record may still be without.
        compared.update(judge_index(run, index, max(unit_reach, 0) if unclean else None))
    if checkpoint is not None and options.until_offset is None:
        judge_checkpoint(checkpoint, reading, max(unit_reach, entry_reach) if unclean else None, verdicts)
    if offsets is not None and options.until_offset is None and (judged := judge_consumer_offsets(run, offsets)):
        compared["committed_offsets"] = judged
    return Verified(reading, verdicts, compared)


def _judge_tail(store: OpenedStore, committed: int, end: int, verdicts: Verdicts) -> None:
    """Such a start dispatches uncommitted entries (DLedgerCommitLog#dledgerRecoverAbnormally, 5.2.0 and later)."""
    if end <= committed or not store.rules.dispatch_uncommitted or is_live(locations.join(store.root, LOCK)):
        return
    verdicts.warn(
        Subject("consumequeue"),
        "uncommitted_tail",
        f"the group is not known to agree on the entries from offset {committed} to {end}: the next start puts them "
        "into queues and index, and they stay there when the group puts others in their place",
        advice="do not start the broker: rebuild, then publish --after-crash",
    )


def taken_from(table: QueueRuns) -> tuple[int, int] | None:
    """Log offset from which on all records claim queue offsets that were used before, and that of the record before."""
    blocks = DenseBlocks.of(table)
    ends = blocks.firsts + blocks.counts
    begins, stops = blocks.queues()
    is_taken = np.zeros(len(blocks.keys), bool)
    for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True):
        if stop - begin > 1:
            before = np.maximum.accumulate(ends[begin:stop])[:-1]
            is_taken[begin + 1 : stop] = (blocks.firsts[begin + 1 : stop] > 0) & (ends[begin + 1 : stop] <= before)
    if int(blocks.counts[is_taken].sum()) < 2:  # a single record may have a damaged queue offset
        return None
    offset, last = int(blocks.first_offsets[is_taken].min()), int(blocks.last_offsets[~is_taken].max())
    return (offset, last) if last < offset else None


def earlier_life_note(reading: LogReading) -> str | None:
    """Note on a log that continues into an earlier life of its file, a segment recycled before a power cut."""
    places = taken_from(reading.queue_runs)
    times = []
    for place in places or ():
        segment = segment_with(reading.segments, place)
        with files.RangeReader(segment.path) as reader:
            times.append(store_timestamp_at(reader, place - segment.base))
    if places is None or times[0] >= times[1]:
        return None
    return (
        f"from offset {places[0]} on the log runs into records of an earlier life of its file: store times go back by "
        f"{times[1] - times[0]} ms, and all queue offsets were taken before; a broker reads these records, too, so "
        "units and keys after that offset may differ for this reason"
    )


def read_checkpoint(root: str, verdicts: Verdicts) -> StoreCheckpoint | None:
    """The store's checkpoint; None, and a difference, if it is missing or too short."""
    path = locations.join(root, CHECKPOINT)
    size = files.size_of(path)
    if size is None:
        verdicts.differ(_CHECKPOINT, Finding("missing_file"))
        return None
    if size < FIELDS.size:
        verdicts.differ(_CHECKPOINT, Finding("wrong_size", expected=f"at least {FIELDS.size}", found=size))
        return None
    return parse_checkpoint(files.read_range(path, 0, FIELDS.size))


def judge_checkpoint(
    checkpoint: StoreCheckpoint, reading: LogReading, unit_reach: int | None, verdicts: Verdicts
) -> None:
    """Report fields ahead of the log, or of ``unit_reach``, its last dispatched record (None: all are)."""
    latest = max((scan.times.latest for scan in reading.scans), default=0)
    limits: dict[str, int] = {
        "physic_msg_timestamp": latest,
        "logics_msg_timestamp": latest,
        "index_msg_timestamp": latest,
        "logics_physical_offset": max(reading.end - 1, 0) if unit_reach is None else max(unit_reach, 0),
    }
    if reading.damaged or not reading.scans:
        return
    for number, (name, value) in enumerate(vars(checkpoint).items()):
        limit = limits.get(name)
        if limit is not None and value > limit:
            ahead = Finding("checkpoint_ahead", 1, 8 * number, {name: f"at most {limit}"}, {name: value})
            verdicts.differ(_CHECKPOINT, ahead)


@dataclass(frozen=True)
class StoredOffsets:
    """The file as its broker would load it, the configured topics if known, and the groups that the store knows.

    ``live``: a broker runs; it first writes the file about ten seconds after its start. ``unclean``: it runs or was
    killed.
    """

    file: ConfigFile
    topics: Mapping[str, Any] | None
    groups: list[str]
    live: bool
    unclean: bool

    @property
    def subject(self) -> Subject:
        return Subject(CONSUMER_OFFSETS, locations.join(CONFIG, self.file.name))


def read_stored_offsets(store: OpenedStore, *, unclean: bool) -> StoredOffsets | None:
    """Committed offsets of a store; None if they are not in a local file."""
    if not locations.is_local(store.root) or rocksdb_queues(store.root, store.settings):
        return None
    topics, subscriptions = (read_config(store.root, name).value for name in ("topics.json", "subscriptionGroup.json"))
    file = read_offsets(store.root, enable_lmq=store.settings.flag("enableLmq"))
    groups = known_groups(topics or {}, subscriptions or {}, file.backup.value)
    return StoredOffsets(file, topics, groups, is_live(locations.join(store.root, LOCK)), unclean)


def judge_consumer_offsets(run: Verification, stored: StoredOffsets) -> int:
    """Judge the file and its offsets; returns their number."""
    verdicts = run.verdicts
    _judge_file(stored, verdicts)
    ranges = queue_ranges(run.store, run.reading, files_stay=True)
    count = below = deleted = 0
    for (topic, group), offsets in sorted((stored.file.value or {}).items()):
        for queue_id, committed in sorted(offsets.items()):
            count += 1
            known = ranges.of(topic, queue_id)
            if known is None:
                continue
            highest = highest_committed(group, known[1])
            if committed <= max(highest, 0):
                below += committed < known[0]
            elif stored.topics is not None and topic not in stored.topics and not topic.startswith(_SYSTEM_TOPICS):
                deleted += 1
            else:
                subject = replace(stored.subject, topic=topic, queue_id=queue_id)
                found = {"group": group, "committed": committed}
                verdicts.differ(subject, Finding("beyond_end", 1, None, {"at most": highest}, found))
    verdicts.note_count(below, "committed offsets are before the first message of their queue: groups read from there")
    verdicts.note_count(deleted, "committed offsets are of topics that are not configured, and beyond their queues")
    return count


def _judge_file(stored: StoredOffsets, verdicts: Verdicts) -> None:
    main, backup = stored.file.main, stored.file.backup
    sound = main.content is FileState.SOUND
    if sound or stored.file.is_absent:
        if not main.value and stored.groups and not stored.live:
            found = {"offsets": 0} if sound else {"file": "absent"}
            groups = {"groups": stored.groups}
            verdicts.differ(stored.subject, Finding("no_committed_offsets", expected=groups, found=found))
        return
    if stored.unclean and stored.file.taken is backup:
        verdicts.warn(
            stored.subject,
            "offsets_from_backup",
            f"the broker was killed while it wrote the file, which is {main.content.value}; it will take the .bak",
            entries=len(backup.value),
            advice="groups read again what they committed after it; a --replica may know newer offsets",
        )
        return
    cause = "missing_file" if main.content is FileState.ABSENT else "torn_file"
    said = {"file": main.content.value, ".bak": backup.content.value}
    if main.why:
        said["why"] = main.why
    if stored.file.taken is backup:
        said[".bak entries"] = str(len(backup.value))
    verdicts.differ(stored.subject, Finding(cause, expected="JSON", found=said))
