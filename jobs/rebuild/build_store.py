"""From an opened store to checked files in a staging directory.

    segments --scan--> runs in staging --plan--> files --build--> staging --check--> ready to get their final name

Every unit and entry is counted again in the written files.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.consumer_offsets.plan import plan_offsets
from jobs.contract.options import CONSUMER_OFFSETS, DELAY_OFFSETS, TIMERS, RebuildOptions, VerifyOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, read_log
from jobs.rebuild import planning, rocksdb_database
from jobs.rebuild.manifest import manifest_of, write_pieces
from jobs.rebuild.timers import DelayOffsets, TimersPlan, plan_timers, timer_settings
from jobs.spark import session
from jobs.spark.runner import Runner
from storeformat.arrays import sum_of_offsets
from storeformat.errors import MissingInput, Refused, StoreFormatError, TotalsDisagree, WriteFailed, WrongSettings
from storeformat.message import LONGEST_V1_TOPIC
from storeformat.queues import consume_queue
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DISPATCH_PROPERTIES
from storeformat.storage import files, locations
from storeformat.storage.durable import content_of
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.config_files import DELAYS, TOPICS, number_of_queues, topic_configuration, topics_json
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CHECKPOINT, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from udfs.files.build import (
    SCHEMA,
    BuildFiles,
    OutputDirectory,
    PlannedIndexFile,
    PlannedQueueFiles,
    Totals,
    batch_of,
    file_row,
    rows_of,
    staged_timestamp,
    stored_size,
)
from udfs.files.rocksdb_pairs import UnitSlice
from udfs.log.scan import ScanTask
from udfs.log.subscriptions import SUBSCRIPTION_PROPERTIES
from udfs.log.timers import REAL_PROPERTIES, TIMER_PROPERTIES

_QUEUE_FILES_A_TASK = 256
_UNITS_A_TASK = (32 << 20) // consume_queue.UNIT_SIZE

CLAIM = ".claim-"


@dataclass(frozen=True)
class Built:
    """A finished and checked rebuild in staging."""

    directory: str
    reading: LogReading
    rows: pa.Table
    facts: dict[str, Any]
    notes: list[str]
    lacks_state: bool
    """Committed offsets of some groups, or timers, could not be rebuilt."""


def rebuild(
    options: RebuildOptions, store: OpenedStore, staging: str, runner: Runner, *, made: str | None = None
) -> Built:
    """Build and check a rebuild in ``staging``, or in ``made`` if no rename follows."""
    place = Workplace.within(staging, made)
    kept = store.queues_in
    with_times = (store.settings.flag("enableConsumeQueueExt") or kept.in_rocksdb) and "consumequeue" in options.only
    with_times |= options.consumer_offsets_at is not None
    reading = scan_store(options, store, place.runs, runner, with_times=with_times, looks_at=_looks_at(options))
    queues: list[planning.QueuesPlan] = []
    database = None
    if "consumequeue" in options.only and kept.in_rocksdb:
        database = rocksdb_database.plan_database(reading)
    elif "consumequeue" in options.only:
        queues.append(planning.plan_queue_files(reading.queue_runs, reading.scans, store.settings))
        if store.batch_topics:
            queues.append(planning.plan_batch_queue_files(reading.scans, store.settings))
    index = planning.plan_index_files(reading.scans, store.settings, staged_timestamp)
    wanted_index = index if "index" in options.only else None
    size = planning.planned_bytes(queues, wanted_index, store.settings)
    size += 0 if database is None else rocksdb_database.planned_bytes(database)
    if not (options.dry_run or options.ignore_free_space):
        planning.refuse_if_too_large(size, place.made, reading.end - reading.begin)
    parts: list[pa.RecordBatch] = []
    configuration, added, notes = _topics_json(store, reading) if options.topics_json else (None, [], [])
    offsets = timers = delays = None
    if CONSUMER_OFFSETS in options.only:
        stay = "consumequeue" not in options.only
        offsets = plan_offsets(store, reading, options.replicas, options.consumer_offsets_at, files_stay=stay)
    if TIMERS in options.only:
        timers = plan_timers(reading, timer_settings(store.settings), int(time.time() * 1000))
    if not options.dry_run:
        parts += [_write_whole(place.made, TOPICS, configuration)] if configuration else []
        parts += [_write_whole(place.made, offsets.path, offsets.content())] if offsets else []
        parts += [_write_timers(place, timers)] if timers else []
        if database is not None:
            parts.append(rocksdb_database.build(reading, database, place, runner, kept.database))
        parts += _build_files(runner, store, queues, wanted_index, place)
        if "checkpoint" in options.only:
            checkpoint = _checkpoint(store, reading, index.end_timestamp)
            parts.append(_write_whole(place.made, CHECKPOINT, checkpoint.to_bytes()))
    if DELAY_OFFSETS in options.only:  # last, as it reads the queues: those that were just made, else the store's own
        are_made = "consumequeue" in options.only and not options.dry_run
        delays = DelayOffsets.of(store.root, place.made if are_made else store.root, reading.last_timestamp)
        parts += [] if options.dry_run else [_write_whole(place.made, DELAYS, delays.content())]
    rows = pa.Table.from_batches(parts, SCHEMA).sort_by("path")
    if not options.dry_run:
        check_all_there(place.made, rows)
        write_pieces(place.made, manifest_of(options, store, reading, rows))
    files.remove_tree(place.runs)
    facts = {
        **_counted(queues, database, wanted_index),
        "topics_added": added,
        **(offsets.facts() if offsets else {}),
        **(delays.facts() if delays else {}),
        **(timers.facts() if timers else {}),
        "disk_bytes": size,
        "queue_notes": [note for plan in queues for note in plan.notes],
    }
    notes = [*(offsets.notes() if offsets else ()), *notes, *(timers.notes() if timers else ())]
    lacks_state = bool((offsets and offsets.lacks_offsets) or (timers and timers.unreadable))
    return Built(place.made, reading, rows, facts, notes, lacks_state)


def _counted(
    queues: Sequence[planning.QueuesPlan], database: Sequence[UnitSlice] | None, index: planning.IndexPlan | None
) -> dict[str, int]:
    files = Counter({table.directory: len(table) for plan in queues for table in plan.tables()})
    units = Counter({plan.files.directory: plan.units for plan in queues})
    return {
        "queues": queues[0].queues if queues else len({(part.topic, part.queue_id) for part in database or ()}),
        "consume_queue_files": files[CONSUME_QUEUE],
        "consume_queue_units": units[CONSUME_QUEUE],
        "consume_queue_ext_files": files[CONSUME_QUEUE_EXT],
        "batch_consume_queue_files": files[BATCH_CONSUME_QUEUE],
        "batch_consume_queue_units": units[BATCH_CONSUME_QUEUE],
        "index_files": len(index.files) if index else 0,
        "index_entries": sum(index.entries()) if index else 0,
    }


def _looks_at(options: RebuildOptions) -> tuple[bytes, ...]:
    names = dict.fromkeys(REAL_PROPERTIES if options.topics_json else ())
    names |= dict.fromkeys(SUBSCRIPTION_PROPERTIES if CONSUMER_OFFSETS in options.only else ())
    names |= dict.fromkeys(TIMER_PROPERTIES if TIMERS in options.only else ())
    return tuple(name for name in names if name not in DISPATCH_PROPERTIES)


def _write_timers(place: Workplace, plan: TimersPlan) -> pa.RecordBatch:
    """Files of full length; a hole follows the data."""
    return batch_of(
        place.output.make_of(path, [data], size, lambda stored: Totals(), what="timer file")
        for path, data, size in plan.files()
    )


def scan_store(
    options: RebuildOptions | VerifyOptions,
    store: OpenedStore,
    runs: str,
    runner: Runner,
    *,
    mark_tag_entries: bool = False,
    with_times: bool = False,
    looks_at: tuple[bytes, ...] = (),
) -> LogReading:
    """Read and prove the log, staging to ``runs``; ``looks_at``: properties that no dispatch needs."""
    unqueued = frozenset(topic.encode() for topic in store.compacted_topics)
    task = ScanTask(
        staging=runs,
        decode_rules=store.decode_rules(looks_at),
        dispatch_rules=replace(store.dispatch_rules(), unqueued_topics=unqueued),
        topics=options.topics,
        with_units=bool({"consumequeue", "checkpoint", CONSUMER_OFFSETS, DELAY_OFFSETS, TIMERS} & set(options.only)),
        with_entries="index" in options.only or "checkpoint" in options.only,
        with_times=with_times,
        mark_tag_entries=mark_tag_entries,
    )
    reading = read_log(store, options, runner, task)
    _refuse_unknown_queues(options.topics, store, reading)
    table = reading.queue_runs
    numbers = [] if store.rules.may_read_long_topics else np.unique(table.keys[~table.runs.light] >> 32).tolist()
    longest = max((len(table.topics[number]) for number in numbers), default=0)
    if longest > LONGEST_V1_TOPIC:
        raise WrongSettings(
            "brokers of this release cannot read this log: they end it at the first record of a topic of more than "
            f"{LONGEST_V1_TOPIC} bytes", path=store.root, found=f"{longest} bytes ({store.release_reason})",
            advice="--broker-version 5.1 or later",
        )  # fmt: skip
    return reading


def _refuse_unknown_queues(wanted: Sequence[TopicFilter], store: OpenedStore, reading: LogReading) -> None:
    if not wanted:
        return
    here = {queue for scan in reading.scans for queue in scan.staged.queues()}
    topics = {topic for topic, _ in here}
    for item in wanted:
        parts = (item.topic,) if item.queue_id is None else (item.topic, str(item.queue_id))
        places = [locations.join(store.root, kind, *parts) for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)]
        is_here = item.topic in topics if item.queue_id is None else (item.topic, item.queue_id) in here
        if not is_here and not any(files.exists(place) for place in places):
            raise MissingInput(
                "neither the log nor the store has this topic or queue", path=":".join(parts),
                advice="inspect lists the topics; names are case-sensitive",
            )  # fmt: skip


def _build_files(
    runner: Runner,
    store: OpenedStore,
    queues: Sequence[planning.QueuesPlan],
    index: planning.IndexPlan | None,
    place: Workplace,
) -> list[pa.RecordBatch]:
    """Write index and queue files in one stage: the few index files would leave cores idle."""
    build = BuildFiles(place.output, store.settings, tuple(store.segments), store.rules.count_every_put)
    index_files = index.files if index else []
    tables = [(table, table.batches(_QUEUE_FILES_A_TASK, _UNITS_A_TASK)) for plan in queues for table in plan.tables()]
    jobs: list[PlannedIndexFile | PlannedQueueFiles] = [*index_files]
    for _, batches in tables:
        jobs += batches
    made: list[pa.RecordBatch] = runner.map("write consume queues and index files", build, jobs)
    rest = iter(made)
    if index is not None:
        rows = pa.Table.from_batches(islice(rest, len(index_files)), SCHEMA)
        wanted = zip((file.path for file in index_files), index.entries(), strict=True)
        check_rows("index", rows, wanted, index.offset_sum)
    offset_sums = {plan.files.directory: plan.offset_sum for plan in queues}
    for table, batches in tables:
        rows = pa.Table.from_batches(islice(rest, len(batches)), SCHEMA)
        wanted = zip(table.paths(), table.counts().tolist(), strict=True)
        check_rows(table.directory, rows, wanted, offset_sums.get(table.directory))
    return made


def check_rows(what: str, rows: pa.Table, expected: Iterable[tuple[str, int]], offset_sum: int | None = None) -> None:
    """Check paths and counts of the written files, in order, and the sum of their offsets (None: any)."""
    for row, wanted in zip_longest(rows_of(rows), expected):
        if row is None or wanted is None or (row["path"], row["count"]) != wanted:
            raise TotalsDisagree(
                f"the {what} files do not match the log", path=row["path"] if row else wanted[0],
                found=row and row["count"], expected=wanted,
            )  # fmt: skip
    found = sum_of_offsets(rows["offset_sum"].to_numpy())
    if offset_sum not in (None, found):
        raise TotalsDisagree(f"the offsets in the {what} files do not add up", found=found, expected=offset_sum)


def _write_whole(made: str, path: str, content: bytes) -> pa.RecordBatch:
    files.write_bytes(locations.join(made, path), content)
    return batch_of([file_row(path, content_of(content))])


def _topics_json(store: OpenedStore, reading: LogReading) -> tuple[bytes, list[str], list[str]]:
    ids: dict[str, set[int]] = defaultdict(set)
    for scan in reading.scans:
        for topic, queue_id in (*scan.staged.queues(), *scan.properties.real_queues):
            ids[topic].add(queue_id)
    queues = {topic: count for topic, own in ids.items() if (count := number_of_queues(own))}
    known = topic_configuration(store.root)
    far = sorted((topic, queue) for topic, own in ids.items() for queue in own if not 0 <= queue < queues.get(topic, 0))
    notes = [
        f"topics.json leaves out {len(far)} queue ids far beyond the other queues of their topics (first: "
        f"{topic}:{queue}): a damaged bit makes such an id. If these queues are real, raise readQueueNums with mqadmin"
        for topic, queue in far[:1]
    ]
    return *topics_json(queues, store.batch_topics, known, reading.last_timestamp), notes


def _checkpoint(store: OpenedStore, reading: LogReading, index_end_timestamp: int) -> StoreCheckpoint:
    """A checkpoint for a short clean start that loses nothing if the broker crashes at once. The index time is that of
    the *last* file, where a broker writes that of the last full one: otherwise such a crash deletes the last file, and
    5.4.0 and later index at most ten segments again.
    """
    last_unit = max((scan.dispatched.last_unit for scan in reading.scans), default=0)
    return StoreCheckpoint(
        physic_msg_timestamp=reading.last_timestamp,
        logics_msg_timestamp=reading.last_timestamp,
        index_msg_timestamp=index_end_timestamp,
        logics_physical_offset=max(last_unit, 0) if store.rules.checkpoint_queue_offset else 0,
    )


def check_all_there(made: str, rows: pa.Table) -> None:
    """Check that this process sees exactly the files that the tasks wrote."""
    found = {path: size for path, size in files.tree_sizes(made).items() if not path.startswith(CLAIM)}
    written = {row["path"]: stored_size(made, row["data_size"], row["size"]) for row in rows_of(rows)}
    for path in (*written, *sorted(found.keys() - written.keys())):
        if found.get(path) != written.get(path):
            raise WriteFailed(
                "output file differs from what the task wrote", path=locations.join(made, path),
                found=found.get(path, "no file"), expected=written.get(path, "no file"),
                advice="every machine of the cluster must see the output, and nothing else may write to it",
            )  # fmt: skip


@dataclass(frozen=True)
class Workplace:
    """Directories for runs, for unchecked files and for checked ones."""

    runs: str
    drafts: str
    made: str

    @property
    def output(self) -> OutputDirectory:
        return OutputDirectory(self.made, self.drafts)

    @staticmethod
    def within(staging: str, made: str | None) -> Workplace:
        """Create the directories in ``staging``; checked files go to ``made`` if given."""
        runs, drafts, checked = (locations.join(staging, name) for name in ("runs", "drafts", "made"))
        place = Workplace(runs, drafts, made or checked)
        for directory in vars(place).values():
            files.make_directory(directory)
        return place


@contextmanager
def gone_on_failure(directory: str, parents: Sequence[str] = ()) -> Iterator[None]:
    """Remove the directory and its empty ``parents`` if the body fails; it was absent or empty before."""
    try:
        yield
    except BaseException:
        with suppress(StoreFormatError):  # what went wrong first is what counts
            files.remove_tree(directory)
            files.remove_empty(parents)
        raise


@contextmanager
def claimed(output: str) -> Iterator[None]:
    """Claim an output on an object store; Refused if anything else is there, and a failure removes it. Of two rebuilds
    that write a claim and then list, one at least sees the other. A killed rebuild's claim blocks the place.
    """
    claim = locations.join(output, CLAIM + uuid.uuid4().hex)
    files.write_bytes(claim, b"")
    others = sorted(files.tree_sizes(output).keys() - {locations.name_of(claim)})
    if others:
        files.remove_object(claim)
        advice = (
            f"{others[0]} belongs to a rebuild that is running or was killed: if none is running, remove the directory"
        )
        raise Refused(
            "the output directory is not empty", path=output, found=others[0], expected="nothing",
            advice=advice if others[0].startswith(CLAIM) else None,
        )  # fmt: skip
    with gone_on_failure(output):
        yield
        files.remove_object(claim)


def staging_for(output: str) -> AbstractContextManager[str]:
    """Staging beside the output; for an object store with local tasks, in the temporary directory."""
    if not locations.is_local(output) and session.on_one_machine():
        return staging_beside(locations.join(tempfile.gettempdir(), "rocketmq-store-spark-rebuild"))
    return staging_beside(output)


@contextmanager
def staging_beside(output: str) -> Iterator[str]:
    """Yield a new private directory beside the output; it and new empty parents are removed at the end."""
    staging = locations.join(
        locations.parent_of(output), f".{locations.name_of(output)}.{uuid.uuid4().hex[:12]}.staging"
    )
    made = files.missing_parents(staging)
    with gone_on_failure(staging, made):
        files.make_private_directory(staging)
        yield staging
    files.remove_tree(staging)
    files.remove_empty(made)
