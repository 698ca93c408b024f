"""A store's queues, index and checkpoint against its log, both ways.

    segments --scan--> runs in staging --plan--> files --compare--> findings --judge--> differences, hazards, notes

It begins as a rebuild does, with the same scan and the same plan; where a rebuild writes a file, this compares. The
store is only read. Order matters with a live broker: the checkpoint is read first, then the log up to its end at that
moment, then queues and index, which have come at least that far by then or will be seen to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.contract.option_values import CONSUMER_OFFSETS
from jobs.contract.options import VerifyOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.rebuild import planning
from jobs.rebuild.build_store import scan_store
from jobs.spark.runner import Runner
from jobs.verify.compare_index import compare_index
from jobs.verify.compare_queues import QueuesCompared, TopicQueue, compare_batch_queues, compare_queues
from jobs.verify.differences import Subject, Verdicts
from jobs.verify.judge_checkpoint import judge_checkpoint, read_checkpoint
from jobs.verify.judge_consumer_offsets import judge_consumer_offsets, read_stored_offsets
from jobs.verify.judge_index import judge_index
from jobs.verify.judge_queues import judge_queues
from jobs.verify.judge_rocksdb import RocksDbCompared, judge_rocksdb
from jobs.verify.verification import Verification
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.layout import ABORT, LOCK


@dataclass(frozen=True)
class Verified:
    """What a verification found, and how much it compared."""

    reading: LogReading
    verdicts: Verdicts
    compared: dict[str, int]


def compare_store(options: VerifyOptions, store: OpenedStore, staging: str, runner: Runner) -> Verified:
    """Returns what differs between a store and its log; ``staging`` is for what the scan leaves."""
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
    compared.update({} if queues else database.compared)
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
    """Returns the comparison of each kind of queues, with the queues that keep only their last life."""
    if "consumequeue" not in options.only or not run.store.queues_in.in_files:
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
    """Warns of entries that a DLedger group may not agree on, where a start after a crash dispatches them all the same
    (DLedgerCommitLog#dledgerRecoverAbnormally, 5.2.0 and later).
    """
    if end <= committed or not store.rules.dispatch_uncommitted or is_live(locations.join(store.root, LOCK)):
        return
    verdicts.warn(
        Subject("consumequeue"),
        "uncommitted_tail",
        f"the group is not known to agree on the entries from offset {committed} to {end}: the next start puts them "
        "into queues and index, and they stay there when the group puts others in their place",
        advice="do not start the broker: rebuild, then publish --after-crash",
    )
