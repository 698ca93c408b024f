"""``load``: brings the Delta table ``messages`` up to the end of the log (``jobs.table.loading``)."""

from __future__ import annotations

import time
import zoneinfo

from jobs.config import LoadOptions
from jobs.log.opening import open_store
from jobs.reporting import Report, Reporter
from jobs.spark import session
from jobs.table.loading import Load
from storeformat.errors import Refused, UsageError
from storeformat.storage import locations, outputs


def run(options: LoadOptions, reporter: Reporter) -> Report:
    """Returns the report of one load; its rows are in the table when it returns."""
    begun = time.monotonic()
    _check_time_zone(options.time_zone)
    store = open_store(options, needs_index_sizes=False)
    for note in store.notes:
        reporter.note(note)
    path = locations.absolute(options.table)
    if outputs.lies_inside(path, store.root):
        raise Refused("the table must not lie inside the store", path=path)
    with session.spark_session("rocketmq-store-spark load") as spark:
        load = Load(spark, store, options, path, reporter)
        facts = load.run()
    return Report("load", facts.pop("status"), store=store.root, **facts, seconds=round(time.monotonic() - begun, 3))


def _check_time_zone(zone: str | None) -> None:
    try:
        zoneinfo.ZoneInfo(zone or "UTC")
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise UsageError(f"--time-zone {zone}: no such time zone") from error
