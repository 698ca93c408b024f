"""What a task of the data source reads: the partitions that may hold what is asked for, and of them only that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from support.store_builder import LogBuilder

from storeformat.errors import DamagedLog, WriteFailed
from storeformat.log.block_window import BlockWindow
from storeformat.log.segments import Segment, Split
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.storage import files
from udfs.table.datasource import ALWAYS, HeadFilter, LogPartition, LogReader, TableReader, chain_reaches
from udfs.table.rows import RowRules

BASE, SIZE = 8192, 4096
FIRST = 1_700_000_000_000
RULES = RowRules(DispatchRules(()), columns=("topic", "queue_id", "commit_log_offset"))


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(SIZE, base=BASE)
    for number, (topic, queue_id) in enumerate((("A", 0), ("A", 1), ("B", 1), ("A", 0))):
        log.message(topic=topic, queue_id=queue_id, store_timestamp=FIRST + 10 * number)
    log.foreign_record(log.records[0])
    return log


def segment(content: bytes, tmp_path: Path) -> Segment:
    path = tmp_path / f"{BASE:020d}"
    path.write_bytes(content)
    return Segment(str(path), BASE, SIZE)


def partition(
    log: LogBuilder, tmp_path: Path, start: int = BASE, stop: int | None = None, records: int | None = None
) -> LogPartition:
    stop = log.end_offset if stop is None else stop
    return LogPartition(Split(0, segment(log.segments[BASE], tmp_path), start, stop, log.end_offset, None), records)


def reader(*partitions: LogPartition, **more: object) -> LogReader:
    return LogReader(partitions, RULES, DecodeRules(), **more)  # type: ignore[arg-type]


def offsets(given: LogReader, part: LogPartition) -> list[int]:
    return [row["commit_log_offset"] for batch in given.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (HeadFilter(), [0, 1, 2, 3]),
        (HeadFilter(topics=(TopicFilter("A"),)), [0, 1, 3]),
        (HeadFilter(topics=(TopicFilter("A", 1), TopicFilter("B"))), [1, 2]),
        (HeadFilter(topics=(TopicFilter("C"),)), []),
        (HeadFilter(times=(FIRST + 10, FIRST + 30)), [1, 2]),
        (HeadFilter(times=(FIRST + 11, FIRST + 31)), [2, 3]),
        (HeadFilter(times=(FIRST, ALWAYS[1])), [0, 1, 2, 3]),
        (HeadFilter(times=(FIRST + 1, ALWAYS[1]), topics=(TopicFilter("A", 0),)), [3]),
        (HeadFilter(times=(ALWAYS[0], FIRST)), []),
    ],
)
def test_records_that_pass_become_rows(log: LogBuilder, tmp_path: Path, wanted: HeadFilter, rows: list[int]) -> None:
    part = partition(log, tmp_path)
    assert offsets(reader(part, filter=wanted), part) == [log.records[row].offset for row in rows]


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("end", [0, 1])
def test_offsets_are_half_open(log: LogBuilder, tmp_path: Path, begin: int, end: int) -> None:
    part, second, last = partition(log, tmp_path), log.records[1].offset, log.records[3].offset
    given = reader(part, filter=HeadFilter(offsets=(second + begin, last + end)))
    assert offsets(given, part) == [placed.offset for placed in log.records[1 + begin : 3 + end]]


@pytest.mark.parametrize(
    ("offsets_asked", "read"),
    [
        (ALWAYS, [0, 1, 2]),
        ((100, 200), [1]),
        ((99, 200), [0, 1]),
        ((100, 201), [1, 2]),
        ((300, 400), []),
        ((0, 0), []),
    ],
)
def test_partitions_by_offset(offsets_asked: tuple[int, int], read: list[int]) -> None:
    one = Segment("x", 0, 300)
    parts = [LogPartition(Split(n, one, 100 * n, 100 * n + 100, 300)) for n in range(3)]
    assert reader(*parts, filter=HeadFilter(offsets=offsets_asked)).partitions() == [parts[number] for number in read]


@pytest.mark.parametrize(
    ("times", "read"),
    [
        (ALWAYS, [0, 1, 2]),
        ((0, 10), []),
        ((0, 11), [0]),
        ((19, 20), [0]),
        ((20, 21), [0, 1]),  # the last of a segment may be of the time of the next one's first
        ((21, 22), [1]),
        ((31, 99), [2]),
        ((5, 31), [0, 1, 2]),
    ],
)
def test_partitions_by_the_times_of_their_segments(times: tuple[int, int], read: list[int]) -> None:
    parts = [LogPartition(Split(n, Segment(f"{n}", 100 * n, 100), 100 * n, 100 * n + 100, 300)) for n in range(3)]
    given = reader(*parts, first_times={200: 30, 0: 10, 100: 20}, filter=HeadFilter(times=times))
    assert given.partitions() == [parts[number] for number in read]
    unknown = reader(*parts, filter=HeadFilter(times=times))
    assert unknown.partitions() == parts


def test_partitions_share_the_records_of_a_segment(log: LogBuilder, tmp_path: Path) -> None:
    """Wherever they are cut; a record is of the partition in which it begins."""
    bounds = {placed.offset + step for placed in log.records[1:] for step in (-1, 0, 1)}
    for cut in sorted({*bounds, *range(BASE + 1, log.end_offset, 17)}):
        left, right = partition(log, tmp_path, stop=cut), partition(log, tmp_path, start=cut)
        both = reader(left, right)
        assert offsets(both, left) == [placed.offset for placed in log.records if placed.offset < cut]
        assert offsets(both, right) == [placed.offset for placed in log.records if placed.offset >= cut]


def test_a_partition_that_is_proven_is_read_at_once(log: LogBuilder, tmp_path: Path) -> None:
    second = log.records[1].offset
    part = partition(log, tmp_path, start=second, records=3)
    assert offsets(reader(part), part) == [placed.offset for placed in log.records[1:]]
    with pytest.raises(WriteFailed, match="changed while it was read"):
        offsets(reader(part), replace(part, records=2))


def test_damage_is_the_affair_of_the_partition_that_has_it(log: LogBuilder, tmp_path: Path) -> None:
    content = bytearray(log.segments[BASE])
    second, third = (log.records[number].offset for number in (1, 2))
    content[second - BASE + 4] ^= 0xFF
    found = segment(bytes(content), tmp_path)
    parts = [LogPartition(Split(0, found, start, stop, log.end_offset))
             for start, stop in ((BASE, second), (second, third), (third, log.end_offset))]  # fmt: skip
    assert offsets(reader(*parts), parts[0]) == [BASE]
    with pytest.raises(DamagedLog, match="ILLEGAL_MAGIC") as raised:
        offsets(reader(*parts), parts[1])
    assert (raised.value.path, raised.value.offset) == (found.path, second)
    assert offsets(reader(*parts), parts[2]) == []
    with files.RangeReader(found.path) as opened:
        reached = [chain_reaches(BlockWindow(opened, found), part.split) for part in parts]
    assert reached == [BASE, second, None]


def test_rows_that_are_there_already() -> None:
    rows = pa.table({"a": [1, 2]})
    assert list(TableReader(rows).read(InputPartition(None))) == rows.to_batches()
    assert list(reader().read(InputPartition(None))) == []
