"""``verify``: compare consume queues, index, checkpoint and committed offsets with the log; nothing is changed.

    segments --scan--> runs in staging --plan--> files --compare--> findings --judge--> differences, hazards, notes

With a live broker the order matters: first the checkpoint, then the log up to its current end, then queues and index.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from jobs.contract.option_values import CONSUMER_OFFSETS
from jobs.contract.options import VerifyOptions, narrow_to_queues
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, with_queue_store
from jobs.log.restored_log import restored
from jobs.rebuild import planning
from jobs.rebuild.build_store import scan_store
from jobs.rebuild.staging import staging_beside
from jobs.spark import session
from jobs.spark.runner import Runner
from jobs.verify.compare_queues import QueuesCompared, TopicQueue, compare_batch_queues, compare_queues
from jobs.verify.differences import Subject, Verdicts, Verification
from jobs.verify.earlier_life import earlier_life_note
from jobs.verify.judge_checkpoint import judge_checkpoint, read_checkpoint
from jobs.verify.judge_consumer_offsets import judge_consumer_offsets, read_stored_offsets
from jobs.verify.judge_index import compare_index, judge_index
from jobs.verify.judge_queues import judge_queues
from jobs.verify.judge_rocksdb import RocksDbCompared, judge_rocksdb
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.layout import ABORT, LOCK


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
    facts: dict[str, Any] = {**reading.facts(), **verified.compared, **whole.facts()}
    return reporter.report(
        "verify",
        differs=any(row["first_difference"] is not None for row in whole.replicas),
        damaged=reading.is_damaged or bool(whole.absent or whole.healed),
        **store.facts(),
        **facts,
        counts=dict(sorted(verdicts.counts.items())),
        differences=verdicts.differences,
        hazard_counts=dict(sorted(verdicts.hazard_counts.items())),
        hazards=verdicts.hazards,
        notes=verdicts.notes,
        next="preflight says whether a broker may be started on this store",
    )


@dataclass(frozen=True)
class Verified:
    """What a verification found, and how much it compared."""

    reading: LogReading
    verdicts: Verdicts
    compared: dict[str, int]


def compare_store(options: VerifyOptions, store: OpenedStore, staging: str, runner: Runner) -> Verified:
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
    run = Verification(store, reading, runner, verdicts, cut)
    compared: Counter[str] = Counter()
    queues = _compare_all_queues(options, run)
    index = compare_index(run, growing=unclean) if "index" in options.only else None
    database = judge_rocksdb(run, options.topics, unclean=unclean) if in_rocksdb else RocksDbCompared({})
    compared.update(database.compared)
    unit_reach = max((those.reach for those, _ in queues), default=database.reach)
    entry_reach = index.reach if index else -1
    dispatched = max(unit_reach, entry_reach) + 1 if unclean else None
    for those, created_anew in queues:
        compared.update(judge_queues(run, those, created_anew, dispatched))
    if index is not None:
        # A record's entries follow its unit, so the last unit's record may still be without.
        compared.update(judge_index(run, index, max(unit_reach, 0) if unclean else None))
    if checkpoint is not None and options.until_offset is None:
        judge_checkpoint(checkpoint, reading, max(unit_reach, entry_reach) if unclean else None, verdicts)
    if offsets is not None and options.until_offset is None:
        judged = judge_consumer_offsets(run, offsets)
        compared.update({"committed_offsets": judged} if judged else {})
    return Verified(reading, verdicts, compared)


def _compare_all_queues(options: VerifyOptions, run: Verification) -> list[tuple[QueuesCompared, Iterable[TopicQueue]]]:
    if "consumequeue" not in options.only or run.store.queues_in.in_rocksdb:
        return []
    store, reading = run.store, run.reading
    plan = planning.plan_queue_files(reading.queue_runs, reading.scans, store.layout)
    queues: list[tuple[QueuesCompared, Iterable[TopicQueue]]] = [
        (compare_queues(run, plan, options.topics), plan.created_anew)
    ]
    if store.batch_topics:
        batches = planning.plan_batch_queue_files(reading.scans, store.layout)
        queues.append((compare_batch_queues(run, batches, options.topics), ()))
    return queues


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
