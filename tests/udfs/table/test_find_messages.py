"""Messages found in the log itself, by topic, key, place and time."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.reading import read
from support.store_builder import PREPARED, LogBuilder

from storeformat.record.dispatch import DispatchRules
from udfs.table.find_messages import FindMessages, FindTime, TimePlace, Wanted
from udfs.table.proven_ranges import ProvenRange
from udfs.table.rows import RowRules

RULES = RowRules(
    DispatchRules(()),
    columns=("topic", "queue_offset", "commit_log_offset", "keys", "uniq_key", "tags_code", "properties"),
)
FIRST = 1_700_000_000_000


@pytest.fixture
def ranges(tmp_path: Path) -> list[ProvenRange]:
    log = LogBuilder(4096)
    log.message(topic="A", keys="x y", store_timestamp=FIRST)
    log.message(topic="A", uniq_key="x", store_timestamp=FIRST + 10)
    log.message(topic="B", keys="x", store_timestamp=FIRST + 20)
    log.message(topic="A", keys="xy", sys_flag=PREPARED, store_timestamp=FIRST + 30)
    log.message(topic="A", keys="z", store_timestamp=FIRST + 40)
    reading = read(log.write(tmp_path / "store"), split_size=300)
    return [ProvenRange.of(scan.report, scan.records) for scan in reading.scans if scan.records]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(topic="A", key="x"), [0, 1]),
        (Wanted(key="x"), [0, 1, 0]),
        (Wanted(topic="A", queue_id=0, queue_offset=0), [0]),
        (Wanted(topic="A", queue_id=0, queue_offset=2), [2]),
        (Wanted(topic="A", queue_id=1), []),
        (Wanted(topic="A", begin=FIRST + 10, end=FIRST + 30), [1, 0]),
        (Wanted(topic="A", begin=FIRST + 11, end=FIRST + 29), []),
    ],
)
def test_what_is_wanted_is_found(ranges: list[ProvenRange], wanted: Wanted, found: list[int]) -> None:
    rows = list(FindMessages(wanted, RULES, 10)(iter(ranges)))
    assert [row["queue_offset"] for row in rows] == found


def test_no_more_than_the_limit_of_each_range(ranges: list[ProvenRange]) -> None:
    assert all(len(list(FindMessages(Wanted(), RULES, 1)(iter([one])))) == 1 for one in ranges)


@pytest.mark.parametrize(
    ("time", "at_or_after", "at_or_before"),
    [(FIRST - 1, 0, None), (FIRST, 0, 0), (FIRST + 11, 2, 1), (FIRST + 41, None, 2)],
)
def test_where_a_time_lies_in_a_queue(
    ranges: list[ProvenRange], time: int, at_or_after: int | None, at_or_before: int | None
) -> None:
    places: list[TimePlace] = list(FindTime("A", 0, time, RULES)(iter(ranges)))
    assert (min(place.first for place in places), max(place.end for place in places)) == (0, 3)
    after = [place.first_at_or_after for place in places if place.first_at_or_after is not None]
    before = [place.last_at_or_before for place in places if place.last_at_or_before is not None]
    assert (min(after, default=None), max(before, default=None)) == (at_or_after, at_or_before)
