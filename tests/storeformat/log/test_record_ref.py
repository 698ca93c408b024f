"""What a record says of its own time and place."""

from __future__ import annotations

import pytest
from support.reading import read_segments
from support.store_builder import COMMIT, PREPARED, ROLLBACK, LogBuilder

from storeformat.log.record_ref import RecordRef


@pytest.mark.parametrize(("sys_flag", "queued"), [(0, True), (COMMIT, True), (PREPARED, False), (ROLLBACK, False)])
def test_a_record_says_where_it_belongs(sys_flag: int, queued: bool) -> None:
    """A scan keeps what foreign records say; the first of a block that is none tells its own place."""
    log = LogBuilder()
    first = log.message(topic="T", queue_id=3, sys_flag=sys_flag, queue_offset=7, store_timestamp=1_700_000_000_009)
    at = log.foreign_record(first)
    (scan,) = read_segments(log.segments, 1 << 30).scans
    assert scan.foreign_refs == (RecordRef(at, 1_700_000_000_009, b"T", 3, 7, queued),)
