"""``verify``: compare consume queues, index, checkpoint and committed offsets with the log; nothing is changed.

    segments --scan--> runs in staging --plan--> files --compare--> findings --judge--> differences, hazards, notes

With a live broker the order matters: first the checkpoint, then the log up to its current end, then queues and index.

The index: the order of its files, by the offsets inside since names are wall-clock times, and what differences mean.

Together the files must hold the log's entries once, without a gap; healthy brokers cause three exceptions:

- retention deletes whole files, never the last one: entries older than the log stay, or are gone
- a crash costs the files after the checkpoint, and dispatch begins again at a segment: entries are missing from the
  end of a file up to the start of a segment
- the last record before a crash is indexed twice
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from jobs.consumer_offsets.ranges import queue_ranges
from jobs.contract.options import ARTEFACTS, CONSUMER_OFFSETS, VerifyOptions, narrow_to_queues
from jobs.contract.report import Report, Reporter, job_command
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, with_queue_store
from jobs.log.restored_log import restored
from jobs.rebuild import planning
from jobs.rebuild.build_store import scan_store, staging_beside
from jobs.spark import session
from jobs.spark.runner import Runner
from jobs.verify.differences import Subject, Verdicts, Verification
from jobs.verify.judge_queues import compare_queues, first_place, judge_queues, judge_rocksdb
from storeformat.index import index_file
from storeformat.index.index_check import IndexCheck, IndexComparison
from storeformat.queues.queue_check import Finding
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.checkpoint import FIELDS, StoreCheckpoint, parse_checkpoint
from storeformat.store.config_files import (
    CONFIG,
    ConfigFile,
    FileState,
    highest_committed,
    known_groups,
    read_config,
    read_offsets,
)
from storeformat.store.layout import ABORT, CHECKPOINT, INDEX, LOCK, rocksdb_queues
from storeformat.store.settings import ENTRIES, SEGMENT_SIZE, SLOTS
from udfs.files.verify import CompareIndexFiles
from udfs.log.staged_files import Readers

REPAIR = "rebuild --only index, then publish"


@dataclass(frozen=True)
class IndexCompared:
    """The index files in the order of their entries, with the findings of each."""

    files: list[tuple[IndexCheck, IndexComparison]]
    task: CompareIndexFiles


def compare_index(run: Verification) -> IndexCompared:
    """Compare all index files with the staged entries; of an unclean store the last file may be changing."""
    store, reading = run.store, run.reading
    heads = _read_heads(store, run.verdicts)
    # A broker orders files by name, and its search for a key ends at the first file that begins too early.
    for before, path in pairwise(path for path, header in heads.items() if header.entries):
        if path < before:
            run.verdicts.warn(
                Subject(INDEX, path),
                "index_order",
                f"the name is out of order: {before} has older entries and a greater name (a clock was set back, or "
                "files were exchanged); a broker that started since may not find a key within a time",
                advice=REPAIR,
            )
    ends = [None, *(header.end_timestamp for header in heads.values())]
    checks = [IndexCheck(path, ends[at], run.unclean and at == len(heads) - 1) for at, path in enumerate(heads)]
    staged = (scan.staged.entries for scan in reading.scans)
    sources = tuple((entries.path, entries.count) for entries in staged if entries.count)
    sizes = store.settings.number(SLOTS), store.settings.number(ENTRIES)
    task = CompareIndexFiles(store.root, sizes, sources, run.log)
    comparisons = run.runner.map("compare index files", task, checks)
    if run.unclean and comparisons and comparisons[-1].differences:
        comparisons[-1:] = run.runner.map("look again at the last index file", task, checks[-1:])
    return IndexCompared(list(zip(checks, comparisons, strict=True)), task)


def _read_heads(store: OpenedStore, verdicts: Verdicts) -> dict[str, index_file.IndexHeader]:
    """Headers by path, in the order of the files' entries."""
    settings = store.settings
    first_entry = index_file.entries_position(settings.number(SLOTS)) + index_file.ENTRY_SIZE
    heads = []
    for entry in files.list_directory(locations.join(store.root, INDEX)) or []:
        path = f"{INDEX}/{entry.name}"
        if entry.is_directory or not index_file.is_index_file_name(entry.name):
            verdicts.differ(Subject(INDEX, path), Finding("extra_file", found="no name of an index file"))
        elif entry.size != settings.index_file_size:
            verdicts.differ(Subject(INDEX, path), Finding("wrong_size", 1, None, settings.index_file_size, entry.size))
        else:
            with files.RangeReader(entry.path) as reader:
                header = index_file.parse_header(reader.read(0, index_file.HEADER_SIZE))
                first = index_file.parse_entries(reader.read(first_entry, index_file.ENTRY_SIZE))
            begin, end, first_offset = header.begin_phy_offset, header.end_phy_offset, int(first["phy_offset"][0])
            # The median, because one may be wrong; an empty file follows the one at whose end it begins.
            order = sorted((begin, end, first_offset))[1], header.entries == first_offset == 0, end, path
            heads.append((order, header))
    heads.sort(key=lambda head: head[0])
    return {path: header for (*_, path), header in heads}


def judge_index(run: Verification, compared: IndexCompared, dispatched: int | None) -> None:
    """Judge file by file, and the log's rows between them. ``dispatched``: offset below which all entries must exist,
    None for the whole log.
    """
    verdicts, segment_size = run.verdicts, run.store.settings.number(SEGMENT_SIZE)
    capacity, explained = run.store.settings.number(ENTRIES) - 1, Counter[str]()
    row, before, subject, with_tags = 0, IndexComparison(), Subject(INDEX), False
    with Readers() as readers:
        rows = compared.task.rows(readers)
        for check, one in compared.files:
            subject = Subject(INDEX, check.path)
            if with_tags and (absent := one.explained.pop("tags", 0)):  # from the upgrade on none may be absent
                one.differences.add(Finding("missing_key", absent, expected="entries of tags"))
            explained.update(one.explained)
            verdicts.differ(subject, *one.differences.values())
            if not one.rows:
                continue
            gap = IndexComparison(with_tags=one.with_tags and (with_tags or not before.rows))
            gap.miss_all(rows, row, one.rows.start)
            explained.update(gap.explained)
            missing, again = gap.missing, min(row, one.rows.stop) - one.rows.start
            last, first = rows.read(max(one.rows.start - 1, 0), one.rows.start + 1)["offset"][[0, -1]].tolist()
            is_segment_start = first // segment_size != last // segment_size
            if again > 0 and row <= rows.find(first + 1):
                explained["doubled"] += again
            elif again > 0:
                verdicts.differ(subject, Finding("extra_entry", again, found="entries that another file holds"))
            elif missing and is_segment_start and (before.rows or one.first_time_diff == 0):
                verdicts.warn(
                    subject,
                    "index_gap",
                    f"messages before offset {first} are not indexed: a broker lost this part of the index in a crash "
                    "and began again at the start of a segment; queries by key do not find them",
                    advice=REPAIR,
                    entries=missing,
                )
            else:
                _miss(run, subject, gap, missing % capacity == 0)
            row, before, with_tags = max(row, one.rows.stop), one, with_tags or one.with_tags
        stop = rows.total if dispatched is None else max(rows.find(dispatched), row)
        rest, lag = (IndexComparison(with_tags=with_tags) for _ in range(2))
        rest.miss_all(rows, row, stop)
        lag.miss_all(rows, stop, rows.total)
    explained.update(rest.explained)
    if lagging := lag.missing:
        verdicts.notes.append(f"the index lags: {lagging} entries are not made yet")
    _miss(run, subject, rest, not before.rows or before.entries >= capacity)
    comparisons, end = [one for _, one in compared.files], run.log.end
    reach = max((one.header["end_phy_offset"] for one in comparisons), default=-1)
    beyond = 0 if run.cut else explained.pop("beyond", 0)
    if reach >= end and not run.cut:
        verdicts.warn(
            subject,
            "index_beyond_log",
            f"the index reaches offset {reach}, past the end of the log at {end}: no new message before that offset is "
            "indexed",
            advice=REPAIR,
            entries=beyond,
        )
    for kind, text in (
        ("doubled", "index entries are there twice, as after a crash"),
        ("tags", "tags are not indexed: those files are of a broker before 5.4.0"),
        ("lost", "index entries are of messages that damage took from the log"),
        ("old", "index entries are of messages before the log: retention deleted them, or they are lost"),
        ("beyond", "index entries belong to messages after the part of the log that was read"),
    ):
        verdicts.note_count(explained[kind], text)
    run.compared.update(index_files=len(comparisons), index_entries=sum(one.compared for one in comparisons))


def _miss(run: Verification, subject: Subject, gap: IndexComparison, whole_files: bool) -> None:
    missing = gap.missing
    if missing and whole_files:
        count = -(-missing // (run.store.settings.number(ENTRIES) - 1))
        expected = {"entries": missing, "first": gap.differences["missing_key"].expected}
        run.verdicts.differ(Subject(INDEX), Finding("missing_file", count, expected=expected))
    else:
        run.verdicts.differ(subject, *gap.differences.values())


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
        **dict[str, Any](verified.compared),
        **whole.facts(),
        counts=dict(sorted(verdicts.counts.items())),
        differences=verdicts.differences,
        hazard_counts=dict(sorted(verdicts.hazard_counts.items())),
        hazards=verdicts.hazards,
        notes=verdicts.notes,
        next=_next_step(options, reading, verdicts),
    )


def _next_step(options: VerifyOptions, reading: LogReading, verdicts: Verdicts) -> str:
    if reading.damaged:
        return job_command("recover", options)
    if verdicts.counts:
        wrong = {difference["artefact"] for difference in verdicts.differences}
        only = (*(ARTEFACTS if wrong - {CONSUMER_OFFSETS} else ()), CONSUMER_OFFSETS)
        words = ("--only", ",".join(only)) if CONSUMER_OFFSETS in wrong else ()
        output = locations.absolute(options.store) + ".rebuilt"
        return job_command("rebuild", options, *words, "--output", output)
    return job_command("preflight", options)


def compare_store(options: VerifyOptions, store: OpenedStore, staging: str, runner: Runner) -> Verification:
    """Compare a store with its log; ``staging`` takes the output of the scan."""
    unclean = files.exists(locations.join(store.root, ABORT))
    verdicts = Verdicts()
    checkpoint = read_checkpoint(store.root, verdicts) if "checkpoint" in options.only else None
    offsets = read_stored_offsets(store) if CONSUMER_OFFSETS in options.only else None
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
    run = Verification(store, reading, runner, options.topics, unclean, cut, verdicts)
    queues = []
    if "consumequeue" in options.only and not store.queues_in.in_rocksdb:
        plans = [planning.plan_queue_files(reading.queue_runs, reading.scans, store.settings)]
        if store.batch_topics:
            plans.append(planning.plan_batch_queue_files(reading.scans, store.settings, partial(first_place, run)))
        queues = [compare_queues(run, plan) for plan in plans]
    index = compare_index(run) if "index" in options.only else None
    database_reach = judge_rocksdb(run) if in_rocksdb else -1
    unit_reach = max((those.reach for those in queues), default=database_reach)
    entry_reach = max((one.last_offset for _, one in index.files), default=-1) if index else -1
    dispatched = max(unit_reach, entry_reach) + 1 if unclean else None
    for those in queues:
        judge_queues(run, those, dispatched)
    if index is not None:
        # A record's entries follow its unit, so the last unit's record may still be without.
        judge_index(run, index, max(unit_reach, 0) if unclean else None)
    if checkpoint is not None and options.until_offset is None:
        judge_checkpoint(checkpoint, reading, max(unit_reach, entry_reach) if unclean else None, verdicts)
    if offsets is not None and options.until_offset is None:
        judge_consumer_offsets(run, offsets)
    return run


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


def read_checkpoint(root: str, verdicts: Verdicts) -> StoreCheckpoint | None:
    """The store's checkpoint; None, and a difference, if it is missing or too short."""
    path = locations.join(root, CHECKPOINT)
    size = files.size_of(path)
    if size is None or size < FIELDS.size:
        cause = "missing_file" if size is None else "wrong_size"
        verdicts.differ(_CHECKPOINT, Finding(cause, expected=f"at least {FIELDS.size} bytes", found=size))
        return None
    return parse_checkpoint(files.read_range(path, 0, FIELDS.size))


def judge_checkpoint(
    checkpoint: StoreCheckpoint, reading: LogReading, unit_reach: int | None, verdicts: Verdicts
) -> None:
    """Report fields ahead of the log, or of ``unit_reach``, its last dispatched record (None: all are)."""
    if reading.damaged or not reading.scans:
        return
    times = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
    limits = dict.fromkeys(times, max(scan.times.latest for scan in reading.scans))
    limits["logics_physical_offset"] = max(reading.end - 1 if unit_reach is None else unit_reach, 0)
    for number, (name, value) in enumerate(vars(checkpoint).items()):
        if name in limits and value > limits[name]:
            ahead = Finding("checkpoint_ahead", 1, 8 * number, {name: f"at most {limits[name]}"}, {name: value})
            verdicts.differ(_CHECKPOINT, ahead)


@dataclass(frozen=True)
class StoredOffsets:
    """The file as its broker would load it, the configured topics if known, and the groups that the store knows.

    ``live``: a broker runs; it first writes the file about ten seconds after its start.
    """

    file: ConfigFile
    topics: Mapping[str, Any] | None
    groups: list[str]
    live: bool

    @property
    def subject(self) -> Subject:
        return Subject(CONSUMER_OFFSETS, locations.join(CONFIG, self.file.name))


def read_stored_offsets(store: OpenedStore) -> StoredOffsets | None:
    """Committed offsets of a store; None if they are not in a local file."""
    if not locations.is_local(store.root) or rocksdb_queues(store.root, store.settings):
        return None
    topics, subscriptions = (read_config(store.root, name).value for name in ("topics.json", "subscriptionGroup.json"))
    file = read_offsets(store.root, enable_lmq=store.settings.flag("enableLmq"))
    groups = known_groups(topics or {}, subscriptions or {}, file.backup.value)
    return StoredOffsets(file, topics, groups, is_live(locations.join(store.root, LOCK)))


def judge_consumer_offsets(run: Verification, stored: StoredOffsets) -> None:
    """Judge the file and its offsets."""
    verdicts = run.verdicts
    _judge_file(run, stored)
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
    if count:
        run.compared["committed_offsets"] = count


def _judge_file(run: Verification, stored: StoredOffsets) -> None:
    verdicts, main, backup = run.verdicts, stored.file.main, stored.file.backup
    sound = main.content is FileState.SOUND
    if sound or stored.file.is_absent:
        if not main.value and stored.groups and not stored.live:
            found = {"offsets": 0} if sound else {"file": "absent"}
            groups = {"groups": stored.groups}
            verdicts.differ(stored.subject, Finding("no_committed_offsets", expected=groups, found=found))
        return
    if run.unclean and stored.file.taken is backup:
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
