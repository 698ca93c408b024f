"""Whether a log goes on from rows that were loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import LogBuilder

from jobs.contract.options import LoadOptions
from jobs.log.opening import open_store, read_log
from jobs.spark.runner import Runner
from jobs.table import continuation, messages_table
from jobs.table.load_window import Window
from udfs.table.proven_ranges import ReadRanges, proven_ranges
from udfs.table.rows import RowRules


@pytest.mark.parametrize(
    ("place", "last_ends", "inside"),
    [(0, None, False), (1, None, True), (0, 10, False), (1, 10, True), (1, 0, True), (1, -1, False)],
)
def test_rows_begin_where_a_record_does(tmp_path: Path, place: int, last_ends: int | None, inside: bool) -> None:
    """``place`` is relative to a record, ``last_ends`` how far before the rows' first offset the newest row ends."""
    log = LogBuilder(4096)
    for _ in range(5):
        log.message(topic="T")
    options = LoadOptions(store=str(log.write(tmp_path)), table="", cluster="", broker="")
    store = open_store(options)
    begin = log.records[3].offset + place
    last = None if last_ends is None else {"commit_log_offset": begin - 100, "size": 100 - last_ends - place}
    window = Window(0, begin, last=last)
    reading = read_log(store, options, Runner())
    assert continuation.begins_inside_a_record(store, window, reading) is inside


def test_rows_that_were_loaded_are_found_after_damage(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    while log.end_offset < 6000:
        log.message(topic="T", body=b"a body of some bytes")
    root, damaged = log.write(tmp_path), log.records[2]
    segment = root / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[damaged.offset + 4 : damaged.offset + 8] = b"oops"
    segment.write_bytes(content)
    options = LoadOptions(store=str(root), on_damage="salvage", table="", cluster="", broker="")
    store = open_store(options)
    whole = read_log(store, options, Runner())
    rules = RowRules(store.dispatch_rules(), columns=messages_table.IDENTITY)
    read = ReadRanges(proven_ranges(whole.scans), rules)
    rows = [row for proven in read.ranges for batch in read.chunks(proven) for row in batch.to_pylist()]
    rows.sort(key=lambda row: -row["commit_log_offset"])
    assert len(rows) == len(log.records) - 1
    for row in rows:
        assert continuation.newest_row_in_log(store, [row], whole) == row
    assert continuation.newest_row_in_log(store, rows, whole) == rows[0]
    other = [{**row, "body_crc": 1} for row in rows]
    assert continuation.newest_row_in_log(store, other, whole) is None
    assert continuation.newest_row_in_log(store, [*other[:3], *rows[3:]], whole) == rows[3]
    # Of segments that were not read again, only what the sizes lead to is sure.
    later = read_log(store, options, Runner(), begin=4096)
    assert continuation.newest_row_in_log(store, rows, later) == rows[0]
    first = [row for row in rows if row["commit_log_offset"] < 4096]
    assert continuation.newest_row_in_log(store, first, later) == first[-2]
