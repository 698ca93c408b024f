"""``verify``: does a store hold what its log says? Consume queues, index and checkpoint, both ways; nothing is changed.

Exit code 1 and status ``differences`` mean that something contradicts the log. What a healthy broker leaves behind is a
note, or a hazard where it may still hurt.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from jobs.config import VerifyOptions, narrow_to_queues
from jobs.log.earlier_life import earlier_life_note
from jobs.log.opening import OpenedStore, open_store, refuse_rocksdb_queues
from jobs.log.restored_log import Restored, restored
from jobs.rebuild.staging import staging_beside
from jobs.reporting import Report, Reporter
from jobs.safety.answer import start_facts
from jobs.spark import session
from jobs.spark.runner import SparkRunner
from jobs.verify.compare_store import Verified, compare_store
from storeformat.storage import locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.layout import LOCK


def run(options: VerifyOptions, reporter: Reporter) -> Report:
    """Returns the report of one verification."""
    begun = time.monotonic()
    options = narrow_to_queues(options)
    store = open_store(options, needs_index_sizes="index" in options.only, restores=True)
    refuse_rocksdb_queues(store, options.only, "judged")
    live = is_live(locations.join(store.root, LOCK))
    for note in store.notes:
        reporter.note(note)
    size = sum(segment.size for segment in store.segments)
    work = locations.join(tempfile.gettempdir(), "rocketmq-store-spark-verify")
    with (
        staging_beside(work) as staging,
        session.spark_context("rocketmq-store-spark verify") as context,
        reporter.progress("verify", size) as progress,
        session.watching(context, progress),
    ):
        runner = SparkRunner(context)
        whole = restored(store, options, runner, locations.join(staging, "log"), refuses=False)
        verified = compare_store(options, whole.store, staging, runner)
    if (earlier := earlier_life_note(verified.reading)) is not None:
        verified.verdicts.note(earlier)
    for note in (*whole.notes, *verified.reading.notes):
        reporter.note(note)
    report = report_of(store, verified, time.monotonic() - begun, whole)
    if not live:
        report |= start_facts(options.store, options.broker_conf, options.settings, store.rules.version)
    return report


def report_of(store: OpenedStore, verified: Verified, seconds: float, whole: Restored | None = None) -> Report:
    """Returns the report of what was found."""
    verdicts, reading = verified.verdicts, verified.reading
    whole = whole or Restored(store)
    facts: dict[str, Any] = {**reading.facts(), **verified.compared, **whole.facts()}
    differs = bool(verdicts.counts) or any(row["first_difference"] is not None for row in whole.replicas)
    status = "differences" if differs else "damaged" if reading.is_damaged or whole.absent or whole.healed else "ok"
    return Report(
        "verify",
        status,
        store=store.root,
        seconds=round(seconds, 3),
        **facts,
        counts=dict(sorted(verdicts.counts.items())),
        differences=verdicts.differences,
        hazard_counts=dict(sorted(verdicts.hazard_counts.items())),
        hazards=verdicts.hazards,
        broker_version=store.rules.version,
        broker_version_reason=store.version_reason,
        notes=[*store.notes, *whole.notes, *reading.notes, *verdicts.notes],
    )
