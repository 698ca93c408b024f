"""Queues in RocksDB by what their database says, without the library that reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.store_to_start import StoreToStart

from jobs.preflight.queues_and_log import database_not_read, not_dispatched
from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import RocksDb
from storeformat.store.broker_rules import rules_of

REBUILD = "rebuild --queue-store rocksdb, then publish"


@pytest.mark.parametrize("broken", [True, False])
def test_a_database_that_could_not_be_read(store: StoreToStart, broken: bool) -> None:
    stopped = store.stopped()
    assert list(database_not_read(stopped)) == []
    assert list(database_not_read(replace(stopped, rocksdb=RocksDb(unread="no library", broken=broken)))) == [
        Reason(
            "database_not_read",
            "whether the queues in RocksDB fit the log is not known: no library",
            REBUILD if broken else "",
            unsafe=broken,
        )
    ]


@pytest.mark.parametrize(
    ("most", "dispatched", "after_crash", "found"),
    [
        ("1", None, False, None),
        ("1", 0, False, "before"),
        ("1", 4095, True, "before"),
        ("1", 4096, False, "record"),
        ("1", 4096, True, None),
        ("2", 0, False, None),
        ("2", 165, False, "record"),
        ("2", 164, False, None),
        ("2", 6744, False, None),
    ],
)
def test_where_the_database_ends(
    store: StoreToStart, most: str, dispatched: int | None, after_crash: bool, found: str | None
) -> None:
    """Segments begin at 0 and 4096, the second record at 165, and the log ends at 6744."""
    store.conf["commitLogRecoverMaxNum"], store.version = most, "5.5"
    stopped = replace(store.stopped(), rocksdb=RocksDb(dispatched=dispatched), after_crash=after_crash)
    end = f"the queues in RocksDB end at offset {dispatched}, and the start"
    before = f"{end} goes back to 4096 only: the messages between are in no queue"
    passed = f"{end} skips the record there and dispatches those after it"
    said = {
        None: [],
        "before": [Reason("messages_not_served", before, REBUILD)],
        "record": [Reason("messages_not_served", passed, REBUILD)],
    }
    assert list(not_dispatched(stopped)) == said[found]
    assert list(not_dispatched(replace(stopped, log=replace(stopped.log, segments=())))) == []


def test_a_log_that_begins_later_is_dispatched_whole(store: StoreToStart) -> None:
    """What the database lacks before the first segment is no loss of this start."""
    stopped = replace(store.stopped(), rules=rules_of("5.5"), rocksdb=RocksDb(dispatched=0))
    assert list(not_dispatched(replace(stopped, log=replace(stopped.log, segments=stopped.log.segments[1:])))) == []
