"""``verify``: does a store hold what its log says? Consume queues, index and checkpoint, both ways, and whether the
committed offsets of groups fit the queues; nothing is changed.

Exit code 1 and status ``differences`` mean that something contradicts the log. What a healthy broker leaves behind is a
note, or a hazard where it may still hurt.
"""

from __future__ import annotations

import tempfile
from typing import Any

from jobs.contract.options import VerifyOptions, narrow_to_queues
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.log.opening import open_store, with_queue_store
from jobs.log.restored_log import restored
from jobs.rebuild.staging import staging_beside
from jobs.safety.answer import start_facts
from jobs.spark import session
from jobs.verify.compare_store import compare_store
from jobs.verify.earlier_life import earlier_life_note
from storeformat.storage import locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.layout import LOCK


def run(options: VerifyOptions, reporter: Reporter) -> Report:
    """Returns the report of one verification; differences are in it. Raises as ``open_store``, ``restored`` and
    ``read_log``.
    """
    options = narrow_to_queues(options)
    store = open_store(options, needs_index_sizes="index" in options.only, restores=True)
    if "consumequeue" in options.only:
        store = with_queue_store(store)
    live = is_live(locations.join(store.root, LOCK))
    reporter.note(*store.notes)
    work = locations.join(tempfile.gettempdir(), "rocketmq-store-spark-verify")
    with (
        staging_beside(work) as staging,
        session.spark_runner("verify", reporter, store.log_size, *store.places, *options.replicas) as runner,
    ):
        whole = restored(store, options, runner, locations.join(staging, "log"), refuses=False)
        verified = compare_store(options, whole.store, staging, runner)
    verdicts, reading = verified.verdicts, verified.reading
    if (earlier := earlier_life_note(reading)) is not None:
        verdicts.note(earlier)
    reporter.note(*whole.notes, *reading.notes)
    facts: dict[str, Any] = {**reading.facts(), **verified.compared, **whole.facts()}
    if not live:
        facts |= start_facts(options.store, options.broker_conf, options.settings, store.rules.version)
    differs = bool(verdicts.counts) or any(row["first_difference"] is not None for row in whole.replicas)
    status = "differences" if differs else "damaged" if reading.is_damaged or whole.absent or whole.healed else "ok"
    return reporter.report(
        "verify",
        status,
        **store.facts(),
        **facts,
        counts=dict(sorted(verdicts.counts.items())),
        differences=verdicts.differences,
        hazard_counts=dict(sorted(verdicts.hazard_counts.items())),
        hazards=verdicts.hazards,
        notes=verdicts.notes,
    )
