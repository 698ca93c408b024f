"""The verification itself: a store's queues, index and checkpoint against its log, both ways.

    segments --scan--> runs in staging --plan--> files --compare--> findings --judge--> differences, hazards, notes

It begins as a rebuild does, with the same scan and the same plan; where a rebuild writes a file, this compares. The
store is only read. Order matters with a live broker: the checkpoint is read first, then the log up to its end at that
moment, then queues and index, which have come at least that far by then or will be seen to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from jobs.config import VerifyOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.rebuild import planning
from jobs.rebuild.build_store import scan_store
from jobs.spark.runner import Runner
from jobs.verify.differences import Place, Verdicts
from jobs.verify.index_checks import compare_index, judge_index
from jobs.verify.queue_checks import QueuesCompared, compare_batch_queues, compare_queues
from jobs.verify.queue_verdicts import judge_queues
from storeformat.storage import files, locations
from storeformat.storage.durable import is_live
from storeformat.store.checkpoint import FIELDS, StoreCheckpoint, parse_checkpoint
from storeformat.store.layout import ABORT, CHECKPOINT, CONSUME_QUEUE, LOCK


@dataclass(frozen=True)
class Verified:
    """What a verification found, and how much it compared."""

    reading: LogReading
    verdicts: Verdicts
    compared: dict[str, int]


def verify(options: VerifyOptions, store: OpenedStore, staging: str, runner: Runner) -> Verified:
    """Returns what differs between a store and its log; ``staging`` is for what the scan leaves."""
    unclean = files.exists(locations.join(store.root, ABORT))
    verdicts = Verdicts()
    checkpoint = _read_checkpoint(store.root, verdicts) if "checkpoint" in options.only else None
    committed = store.committed
    if unclean:
        # The group may have agreed on more, and the broker dispatched more, than its checkpoint says.
        store = replace(store, committed=None)
    reading = scan_store(options, store, staging, runner, mark_tag_entries=store.rules.index_tags)
    if unclean and committed is not None and options.until_offset is None:
        _judge_tail(store, committed, reading.end, verdicts)
    cut = unclean or store.until(options.until_offset) is not None or bool(reading.damaged)
    compared: Counter[str] = Counter()
    index = None
    queues: list[tuple[QueuesCompared, Iterable[tuple[str, int]]]] = []
    if "consumequeue" in options.only and files.exists(locations.join(store.root, CONSUME_QUEUE, "CURRENT")):
        verdicts.note("the consume queues are in RocksDB and are not verified")
    elif "consumequeue" in options.only:
        plan = planning.plan_queues(reading.scans, store.layout, reading.losses)
        queues.append((compare_queues(store, reading, plan, options.topics, runner, verdicts), plan.created_anew))
        if store.batch_topics:
            batches = planning.plan_batch_queues(reading.scans, store.layout)
            queues.append((compare_batch_queues(store, reading, batches, options.topics, runner, verdicts), ()))
    if "index" in options.only:
        index = compare_index(store, reading, runner, verdicts, growing=unclean)
    unit_reach, entry_reach = max((those.reach for those, _ in queues), default=-1), (index.reach if index else -1)
    dispatched = max(unit_reach, entry_reach) + 1 if unclean else None
    for those, created_anew in queues:
        compared.update(judge_queues(store, reading, created_anew, those, dispatched, runner, verdicts, cut=cut))
    if index is not None:
        # A record's entries follow its unit, so the last unit's record may still be without.
        compared.update(judge_index(store, index, max(unit_reach, 0) if unclean else None, verdicts, cut=cut))
    if checkpoint is not None and options.until_offset is None:
        _judge_checkpoint(checkpoint, reading, max(unit_reach, entry_reach) if unclean else None, verdicts)
    return Verified(reading, verdicts, compared)


def _judge_tail(store: OpenedStore, committed: int, end: int, verdicts: Verdicts) -> None:
    """Warns of entries that a DLedger group may not agree on, where a start after a crash dispatches them all the same
    (DLedgerCommitLog#dledgerRecoverAbnormally, 5.2.0 and later).
    """
    if end <= committed or not store.rules.dispatch_uncommitted or is_live(locations.join(store.root, LOCK)):
        return
    verdicts.warn(
        Place("consumequeue"),
        "uncommitted_tail",
        f"the group is not known to agree on the entries from offset {committed} to {end}: the next start puts them "
        "into queues and index, and they stay there when the group puts others in their place",
        advice="do not start the broker: rebuild, then publish --after-crash",
    )


def _read_checkpoint(root: str, verdicts: Verdicts) -> StoreCheckpoint | None:
    path = locations.join(root, CHECKPOINT)
    size = files.size_of(path)
    place = Place(CHECKPOINT, CHECKPOINT)
    if size is None:
        verdicts.differ(place, "missing_file")
        return None
    if size < FIELDS.size:
        verdicts.differ(place, "wrong_size", expected=f"at least {FIELDS.size}", found=size)
        return None
    with files.RangeReader(path) as reader:
        page = bytearray(FIELDS.size)
        reader.read_into(0, memoryview(page))
    return parse_checkpoint(bytes(page))


def _judge_checkpoint(
    checkpoint: StoreCheckpoint, reading: LogReading, unit_reach: int | None, verdicts: Verdicts
) -> None:
    """Says where the checkpoint is ahead of what is there: a recovery would begin too late and lose what lies between.
    Behind is normal.
    """
    latest = max((scan.latest_timestamp for scan in reading.scans), default=0)
    limits: dict[str, int] = {
        "physic_msg_timestamp": latest,
        "logics_msg_timestamp": latest,
        "index_msg_timestamp": latest,
        "logics_physical_offset": max(reading.end - 1, 0) if unit_reach is None else max(unit_reach, 0),
    }
    if reading.damaged or not reading.scans:
        return
    values: dict[str, Any] = vars(checkpoint)
    for number, field in enumerate(fields(checkpoint)):
        limit = limits.get(field.name)
        if limit is not None and values[field.name] > limit:
            verdicts.differ(
                Place(CHECKPOINT, CHECKPOINT),
                "checkpoint_ahead",
                position=8 * number,
                expected={field.name: f"at most {limit}"},
                found={field.name: values[field.name]},
            )
