"""Ranges of the log that a scan has proven are read a second time: for rows, and for messages that are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.here import tasks_here
from support.store_builder import LogBuilder

from jobs.contract.options import InspectOptions, LoadOptions, QueryOptions
from jobs.contract.reporter import Reporter
from jobs.log.opening import open_store, read_log
from jobs.query import inspection, query
from jobs.query.offline_store import OfflineStore, row_rules
from jobs.spark.runner import Runner
from jobs.table import load
from jobs.table.datasource import proven_partitions
from storeformat.errors import WriteFailed
from storeformat.record.decode import DecodeRules
from udfs.table.datasource import LogReader
from udfs.table.find_messages import FindMessages, Wanted
from udfs.table.proven_ranges import proven_ranges
from udfs.table.rows import RowRules


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Six messages; the second segment begins with a record of another place, which a broker's recovery steps over."""
    log = LogBuilder(4096)
    first = log.message(topic="T", keys="k")
    log.blank()
    log.foreign_record(first)
    for _ in range(5):
        log.message(topic="T", keys="k")
    return log.write(tmp_path)


def test_it_goes_on_where_the_scan_went_on(root: Path) -> None:
    options = LoadOptions(store=str(root), on_damage="stop", table="", cluster="", broker="")
    store = open_store(options)
    reading = read_log(store, options, Runner())
    assert reading.records == 6
    asked = QueryOptions(store=str(root), on_damage="stop", kind="key", topic="T", key="k", scan=True)
    assert query.by_key(asked, OfflineStore(store), Runner())["found"] == 6
    shown = InspectOptions(store=str(root), on_damage="stop", from_offset=0)
    with tasks_here():
        assert inspection.run(shown, Reporter(quiet=True))["messages"] == 6
    read = load.row_reader(store, options, reading, 0, "UTC")
    assert sum(batch.num_rows for proven in read.ranges for batch in read.chunks(proven)) == 6
    rules = RowRules(store.dispatch_rules(), columns=("topic",))
    source = LogReader(proven_partitions(reading, 0), rules, DecodeRules(properties=()))
    assert sum(batch.num_rows for partition in source.log_partitions for batch in source.read(partition)) == 6


def test_it_says_that_the_log_has_changed(root: Path) -> None:
    options = QueryOptions(store=str(root), on_damage="stop", kind="key", topic="T", key="k")
    store = open_store(options)
    ranges = proven_ranges(read_log(store, options, Runner()).scans)
    find = FindMessages(Wanted(topic="T"), row_rules(store, bodies=False), limit=10)
    assert len(list(find(iter(ranges)))) == 6
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    with pytest.raises(WriteFailed, match="the log changed while it was read"):
        list(find(iter(ranges)))
