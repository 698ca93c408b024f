"""``rebuild``: consume queues, index files and checkpoint out of the commit log alone, byte for byte as the broker
would write them.

    segments --scan--> runs in staging --plan--> files --build--> staging --check--> the output, under its final name

The source is never touched. All work happens in a staging directory beside the output; it becomes the output by one
rename, after every unit and entry was counted a second time, in the bytes of the written files.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from jobs import planning, session
from jobs.config import ARTEFACTS, RebuildOptions
from jobs.logscan import DEFAULT_SPLIT_SIZE, LogReading, scan_log
from jobs.opening import OpenedStore, open_store
from jobs.reporting import Report, Reporter
from jobs.running import Runner, SparkRunner
from storeformat import __version__, files
from storeformat.checkpoint import StoreCheckpoint, for_rebuilt_store
from storeformat.errors import DependencyMissing, Refused, TotalsDisagree, UsageError
from storeformat.layout import CHECKPOINT
from udfs.build import BuildIndexFiles, BuildQueueFiles, FileRow, staged_timestamp
from udfs.scan import ScanTask, Selection

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
_QUEUE_FILES_A_TASK = 256
_QUEUE_BYTES_A_TASK = 64 << 20


def run(options: RebuildOptions, reporter: Reporter) -> Report:
    """Returns the report of one rebuild; the output is there when it returns."""
    begun = time.monotonic()
    options = _fit_selection(options)
    store = open_store(options)
    for note in store.notes:
        reporter.note(note)
    output = files.absolute(options.output)
    _refuse_output(output, store)
    size = sum(segment.size for segment in store.segments)
    with _staging(output) as staging, session.spark_context("rocketmq-store-spark rebuild") as context:
        with reporter.progress("rebuild", size) as progress, session.watching(context, progress):
            built = rebuild(options, store, staging, SparkRunner(context))
        if not options.dry_run:
            _publish(built, output)
    return _report(options, store, built, time.monotonic() - begun)


@dataclass(frozen=True)
class Built:
    """A finished and checked rebuild in staging."""

    directory: str
    reading: LogReading
    queues: planning.QueuesPlan | None
    index: planning.IndexPlan | None
    rows: list[FileRow]


def rebuild(options: RebuildOptions, store: OpenedStore, staging: str, runner: Runner) -> Built:
    """Returns the checked rebuild of a store, made in ``staging``."""
    runs, made = files.join(staging, "runs"), files.join(staging, "made")
    for directory in (runs, made):
        files.make_directory(directory)
    task = ScanTask(
        staging=runs,
        decode_rules=store.decode_rules(),
        dispatch_rules=store.dispatch_rules(),
        selection=Selection(tuple((item.topic, item.queue_id) for item in options.topics)),
        with_units=bool({"consumequeue", "checkpoint"} & set(options.only)),
        with_entries="index" in options.only,
    )
    reading = scan_log(
        runner,
        store.segments,
        task,
        split_size=options.split_size or DEFAULT_SPLIT_SIZE,
        until=options.until_offset,
        on_damage=options.on_damage,
    )
    queues = planning.plan_queues(reading.scans, store.layout) if "consumequeue" in options.only else None
    index = planning.plan_index(reading.scans, store.layout, staged_timestamp) if "index" in options.only else None
    rows: list[FileRow] = []
    if not options.dry_run:
        if queues is not None:
            rows += _build_queues(runner, store, queues, made)
        if index is not None:
            rows += _build_index(runner, store, index, made)
        if "checkpoint" in options.only:
            end_timestamp = max((row.end_timestamp for row in rows), default=0)
            rows.append(_write_checkpoint(made, _checkpoint(store, reading, end_timestamp)))
        manifest = _manifest(options, store, reading, rows)
        files.write_bytes(files.join(made, MANIFEST), (json.dumps(manifest, indent=1) + "\n").encode())
    files.remove_tree(runs)
    return Built(made, reading, queues, index, rows)


def _build_queues(runner: Runner, store: OpenedStore, plan: planning.QueuesPlan, made: str) -> list[FileRow]:
    file_size = store.layout.consume_queue_file_size
    build = BuildQueueFiles(made, file_size, tuple(store.segments))
    group = max(1, min(_QUEUE_FILES_A_TASK, _QUEUE_BYTES_A_TASK // file_size))
    batches = [plan.files[at : at + group] for at in range(0, len(plan.files), group)]
    rows = runner.map("write consume queues", build, batches)
    expected = {file.path: int(file.counts.sum()) for file in plan.files}
    _check_rows("consume queue", rows, expected, plan.offset_sum if plan.complete else None)
    return rows


def _build_index(runner: Runner, store: OpenedStore, plan: planning.IndexPlan, made: str) -> list[FileRow]:
    layout = store.layout
    build = BuildIndexFiles(made, layout.max_hash_slot_num, layout.max_index_num, store.rules.count_every_put)
    rows = runner.map("write index files", build, plan.files)
    expected = {file.path: entries for file, entries in zip(plan.files, plan.entries, strict=True)}
    _check_rows("index", rows, expected, plan.offset_sum)
    return rows


def _check_rows(what: str, rows: Sequence[FileRow], expected: dict[str, int], offset_sum: int | None) -> None:
    """Raises TotalsDisagree unless the written files hold exactly what the scan found."""
    found = {row.path: row.count for row in rows}
    if found != expected:
        wrong = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
        raise TotalsDisagree(
            f"the {what} files do not hold what the log does",
            path=wrong[0],
            found=found.get(wrong[0]),
            expected=expected.get(wrong[0]),
        )
    total = sum(row.offset_sum for row in rows) % (1 << 64)
    if offset_sum is not None and total != offset_sum:
        raise TotalsDisagree(f"the offsets in the {what} files do not add up", found=total, expected=offset_sum)


def _write_checkpoint(made: str, checkpoint: StoreCheckpoint) -> FileRow:
    page = checkpoint.to_bytes()
    files.write_bytes(files.join(made, CHECKPOINT), page)
    return FileRow(CHECKPOINT, len(page), hashlib.sha256(page).hexdigest(), 0, 0, 0, 0)


def _checkpoint(store: OpenedStore, reading: LogReading, index_end_timestamp: int) -> StoreCheckpoint:
    """Returns the checkpoint with which a clean start takes the short path and an immediate crash loses nothing."""
    last = [scan for scan in reading.scans if scan.last_timestamp is not None]
    last_unit = [scan.last_unit for scan in reading.scans if scan.last_unit >= 0]
    return for_rebuilt_store(
        tuple(int(number) for number in store.rules.version.split(".")),
        last_store_timestamp=last[-1].last_timestamp or 0 if last else 0,
        last_index_end_timestamp=index_end_timestamp,
        last_queued_phy_offset=last_unit[-1] if last_unit else 0,
    )


def _manifest(
    options: RebuildOptions, store: OpenedStore, built_from: LogReading, rows: Sequence[FileRow]
) -> dict[str, object]:
    """Returns what ``publish`` needs to know: which files with which bytes, of which range of which log, made how."""
    return {
        "format": MANIFEST_FORMAT,
        "program": "rocketmq-store-spark",
        "version": __version__,
        "log_begin": built_from.begin,
        "log_end": built_from.end,
        "messages": built_from.records,
        "broker_version": store.rules.version,
        "settings": store.layout.settings(),
        "on_damage": options.on_damage,
        "until_offset": options.until_offset,
        "artefacts": list(options.only),
        "topics": [item.topic if item.queue_id is None else f"{item.topic}:{item.queue_id}" for item in options.topics],
        "damaged_ranges": [item.as_row() for item in built_from.damaged],
        "files": [
            {"path": row.path, "size": row.size, "sha256": row.sha256} for row in sorted(rows, key=lambda row: row.path)
        ],
    }


def _fit_selection(options: RebuildOptions) -> RebuildOptions:
    """Returns the options with ``only`` narrowed to what a selection of topics can mean: their queues, nothing shared
    by all topics.
    """
    if not options.topics:
        return options
    if options.only == ARTEFACTS:
        return replace(options, only=("consumequeue",))
    if set(options.only) != {"consumequeue"}:
        raise UsageError("--topic rebuilds consume queues only: index and checkpoint belong to all topics")
    return options


def _refuse_output(output: str, store: OpenedStore) -> None:
    """Raises Refused where DIR is in use: it must be absent or empty, and not inside the store."""
    if not files.is_local(output):
        raise DependencyMissing("the output must be a local directory for now", path=output)
    if (output + "/").startswith(files.join(store.root, "")):
        raise Refused("the output must not lie inside the store", path=output, advice="rebuild beside it, then publish")
    entries = files.list_directory(output) if files.exists(output) else None
    if entries:
        raise Refused("the output directory is not empty", path=output, found=entries[0].name, expected="nothing")


@contextmanager
def _staging(output: str) -> Iterator[str]:
    """Yields a new directory beside the output, and removes it, whatever happens."""
    staging = files.join(files.parent_of(output), f".{files.name_of(output)}.{uuid.uuid4().hex[:12]}.staging")
    try:
        files.make_directory(staging)
        yield staging
    finally:
        files.remove_tree(staging)


def _publish(built: Built, output: str) -> None:
    """Gives the finished directory its final name; an empty directory of that name is replaced in the same step."""
    files.rename(built.directory, output)


def _report(options: RebuildOptions, store: OpenedStore, built: Built, seconds: float) -> Report:
    reading = built.reading
    status = "damaged" if reading.damaged else "ok"
    counted: dict[str, Any] = {
        "queues": built.queues.queues if built.queues else 0,
        "consume_queue_files": len(built.queues.files) if built.queues else 0,
        "consume_queue_units": built.queues.units if built.queues else 0,
        "index_files": len(built.index.files) if built.index else 0,
        "index_entries": sum(built.index.entries) if built.index else 0,
    }
    return Report(
        "rebuild",
        status,
        store=store.root,
        **reading.facts(),
        lost_messages=None,
        seconds=round(seconds, 3),
        **counted,
        output=None if options.dry_run else files.absolute(options.output),
        dry_run=options.dry_run,
        broker_version=store.rules.version,
        broker_version_reason=store.version_reason,
        queue_notes=[note.as_row() for note in built.queues.notes] if built.queues else [],
        notes=list(store.notes),
    )
