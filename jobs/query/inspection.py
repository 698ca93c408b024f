"""``inspect``: what is in the log, segment by segment; or the records from an offset on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jobs.contract.options import InspectOptions
from jobs.contract.report import Report, Reporter, job_command, size_text
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, read_log
from jobs.log.restored_log import restored
from jobs.query.offline_store import plain_row, row_rules, utc_text
from jobs.spark import session
from storeformat.log.chain_walk import BlockWindow, chain_from
from storeformat.log.segments import ChainEnd
from storeformat.queues.topic_filter import selects
from storeformat.record.decode import RecordBlock
from storeformat.record.dispatch import topic_names
from storeformat.storage import files, locations
from udfs.table.proven_ranges import proven_blocks, proven_ranges
from udfs.table.rows import record_batch

DEFAULT_LIMIT = 20


def run(options: InspectOptions, reporter: Reporter) -> Report:
    """Inspect the log, or list records if the options name an offset or a limit."""
    store = open_store(options, needs_index_sizes=False, restores=options.scans_log)
    reporter.note(*store.notes)
    if not options.scans_log:
        facts = _records(store, options, reporter)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-inspect-") as work,
            session.runner_for(reporter, "inspect", store.log_size) as runner,
        ):
            whole = restored(store, options, runner, work, refuses=False)
            reading = read_log(whole.store, options, runner)
        facts = {**reading.facts(), **whole.facts(), **contents(store, reading, options)}
        facts["verdict"] = "the log is damaged" if reading.is_damaged else "the log is sound"
        job = "recover" if reading.is_damaged else "verify"
        facts |= {"figures": reading.figures, "next": job_command(job, options)}
        reporter.note(*whole.notes, *reading.notes)
    damaged = any(facts.get(name) for name in ("absent_ranges", "healed_ranges"))
    return reporter.report("inspect", damaged=damaged, **store.facts(), **facts)


def contents(store: OpenedStore, reading: LogReading, options: InspectOptions) -> dict[str, Any]:
    """Rows of segments, and of the selected topics, largest first."""
    segments = []
    for segment in store.segments:
        scans = [scan for scan in reading.scans if scan.report.split.segment.base == segment.base]
        times = [at for scan in scans for at in (scan.times.first, scan.times.last) if at is not None]
        segments.append(
            {
                "file": locations.name_of(segment.path),
                "messages": sum(scan.records for scan in scans),
                "bytes": sum(scan.record_bytes for scan in scans),
                "first_stored": utc_text(times[0]) if times else None,
                "last_stored": utc_text(times[-1]) if times else None,
            }
        )
    topics: dict[str, dict[str, Any]] = {}
    for scan in reading.scans:
        names = topic_names(scan.staged.topics)
        units, batches = scan.staged.unit_runs, scan.staged.batch_runs
        for runs, messages in ((units, units.counts), (batches, batches.messages)):
            queues = zip(runs.topic_codes.tolist(), runs.queue_ids.tolist(), messages.tolist(), strict=True)
            for code, queue_id, count in queues:
                if selects(options.topics, names[code], queue_id):
                    row = topics.setdefault(names[code], {"topic": names[code], "queues": set(), "queued_messages": 0})
                    row["queues"].add(queue_id)
                    row["queued_messages"] += count
    by_size = sorted(topics.values(), key=lambda row: (-row["queued_messages"], row["topic"]))
    return {
        "log": size_text(reading.end - reading.begin),
        "segments": segments,
        "topics": [{**row, "queues": len(row["queues"])} for row in by_size],
    }


class NoPlainEnd(Exception):
    """More than unwritten bytes follow the last record of the chain: only a reading of the whole log tells what."""


def _records(store: OpenedStore, options: InspectOptions, reporter: Reporter) -> dict[str, Any]:
    limit = options.limit or DEFAULT_LIMIT
    try:
        rows = list(islice(records_from(store, options), limit))
        return {"records": rows, "messages": len(rows)}
    except NoPlainEnd:
        with session.runner_for(reporter, "inspect", store.log_size) as runner:
            reading = read_log(store, options, runner)
    proven = proven_ranges(reading.scans, options.from_offset or 0)
    blocks = (block for part in proven for block in proven_blocks(part, store.decode_rules()))
    rows = list(islice((row for block in blocks for row in _wanted_rows(block, store, options)), limit))
    return {**reading.facts(), "records": rows, "messages": len(rows)}


def records_from(store: OpenedStore, options: InspectOptions) -> Iterator[dict[str, Any]]:
    """Records from an offset on along the chain of sizes; NoPlainEnd unless it ends at unwritten bytes."""
    begin = options.from_offset if options.from_offset is not None else store.segments[0].base
    until = store.until(options.until_offset)
    for number, segment in enumerate(store.segments):
        limit = segment.end if until is None else min(segment.end, until)
        if limit <= begin:
            continue
        with files.RangeReader(segment.path) as reader:
            window = BlockWindow(reader, segment)
            walk = chain_from(window, segment.base, store.decode_rules(), stop=limit, limit=limit)
            for block in walk:
                if block.offsets[-1] >= begin:
                    yield from _wanted_rows(block, store, options)
            if walk.ended == ChainEnd.DEFECT:
                if not (window.is_zero(walk.position, limit) and number == len(store.segments) - 1):
                    raise NoPlainEnd
                return


def _wanted_rows(block: RecordBlock, store: OpenedStore, options: InspectOptions) -> Iterator[dict[str, Any]]:
    begin = options.from_offset or 0
    for row in record_batch(block, row_rules(store, bodies=options.bodies)).to_pylist():
        if row["commit_log_offset"] >= begin and selects(options.topics, row["topic"], row["queue_id"]):
            yield plain_row(row)
