"""Messages found in the log itself, by topic, key, place and time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.reading import read
from support.store_builder import PREPARED, LogBuilder, Message

from storeformat.record.dispatch import DispatchRules
from udfs.table import find_messages
from udfs.table.find_messages import FindEndedHalf, FindMessages, FindTime, TimePlace, Wanted
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


def ranges_of(log: LogBuilder, tmp_path: Path) -> list[ProvenRange]:
    """The whole log as one range a segment."""
    reading = read(log.write(tmp_path / "another"))
    return [ProvenRange.of(scan.report, scan.records) for scan in reading.scans if scan.records]


@pytest.mark.parametrize(
    ("topic", "body", "found"),
    [
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"7", [(1, 7)]),
        ("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", b"8,7,,x,9", [(1, 7)]),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"9,-7,7 ,7.0", []),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"", []),
        ("T", b"7", []),
    ],
)
def test_what_ends_a_half_message(tmp_path: Path, topic: str, body: bytes, found: list[tuple[int, int]]) -> None:
    log = LogBuilder()
    log.message(topic="T", queue_id=1, body=b"7")
    other = log.message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queue_id=2, body=b"5")
    record = log.message(topic=topic, queue_id=1, body=body)
    rules = replace(RULES, columns=("topic", "queue_id", "commit_log_offset", "body", "properties"))
    task = FindEndedHalf(((1, 7), (2, 5), (2, 7)), rules)
    given = list(task(iter(ranges_of(log, tmp_path))))
    assert given == [((2, 5), other.offset), *((place, record.offset) for place in found)]


def test_messages_that_wait_for_a_topic(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic="A", body=b"")
    delayed = {"REAL_TOPIC": "A", "REAL_QID": "1", "DELAY": "3"}
    log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=delayed)
    log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={**delayed, "REAL_TOPIC": "B"})
    log.message(topic="%RETRY%g", properties={"RETRY_TOPIC": "A"})
    log.message(topic="%RETRY%g", properties={"RETRY_TOPIC": "B"})
    log.message(topic="B", properties=delayed)
    given, at = ranges_of(log, tmp_path), [record.offset for record in log.records]

    def found(wanted: Wanted) -> list[int]:
        return [row["commit_log_offset"] for row in FindMessages(wanted, RULES, 10)(iter(given))]

    assert found(Wanted(topic="A", waiting=True)) == [at[0], at[1], at[3]]
    assert found(Wanted(topic="A")) == [at[0]]
    assert found(Wanted(topic="A", waiting=True, queue_id=2)) == [at[1]]
    assert found(Wanted(waiting=True)) == at


@pytest.mark.parametrize(("asked", "found"), [(4, False), (5, True), (7, True), (8, True), (9, True), (10, False)])
def test_a_place_in_an_inner_batch(tmp_path: Path, asked: int, found: bool) -> None:
    """Three messages at 5, one at 8 without a count, and one at 9 in a queue that is no batch queue."""
    log = LogBuilder()
    log.queue_offsets.update({("B", 0): 5, ("C", 0): 9})
    log.inner_batch(Message(topic="B"), 3)
    log.message(topic="B")
    log.message(topic="C")
    rules = replace(RULES, dispatch_rules=DispatchRules((), batch_topics=frozenset({b"B"})))
    given = ranges_of(log, tmp_path)
    assert bool(list(FindMessages(Wanted(queue_offset=asked), rules, 10)(iter(given)))) == found
    (place,) = FindTime("B", 0, FIRST, rules)(iter(given))
    assert (place.first, place.end, place.first_at_or_after, place.last_at_or_before) == (5, 9, 5, None)


def test_the_limit_is_of_each_range_over_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    for _ in range(6):
        log.message(topic="A")
    size = log.records[0].size
    blocks = find_messages.proven_blocks
    monkeypatch.setattr(find_messages, "proven_blocks", lambda *given: blocks(*given, block_size=2 * size))
    given = ranges_of(log, tmp_path)
    for limit in range(1, 8):
        found = [row["queue_offset"] for row in FindMessages(Wanted(), RULES, limit)(iter([*given, *given]))]
        assert found == [*range(min(limit, 6))] * 2
