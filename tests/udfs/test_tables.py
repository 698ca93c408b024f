"""Table files and the data source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import InputPartition
from support.reading import read
from support.store_builder import PREPARED, LogBuilder, Message

from jobs.report import views
from storeformat.errors import DamagedLog, TotalsDisagree, WriteFailed
from storeformat.log.chain_walk import BlockWindow
from storeformat.log.segments import Segment, Split, plan_splits
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.storage import files
from udfs.log import scan
from udfs.log.scan import ScanTask
from udfs.table import find_messages, parquet_files, schemas
from udfs.table import rows as row_makers
from udfs.table.datasource import ALWAYS, HeadFilter, LogPartition, LogReader, TableReader, chain_reaches
from udfs.table.find_messages import FindEndedHalf, FindMessages, FindTime, TimePlace, Wanted
from udfs.table.parquet_files import PARTITION, DraftTask, WriteFiles, WrittenFile, by_date, file_statistics
from udfs.table.proven_ranges import ProvenRange, ReadRanges
from udfs.table.rows import RowRules

# ---------------------------------------------------------------------------------------------------- datasource
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


def test_offsets_are_half_open(log: LogBuilder, tmp_path: Path) -> None:
    part, second, last = partition(log, tmp_path), log.records[1].offset, log.records[3].offset
    for begin, end in ((0, 0), (0, 1), (1, 0), (1, 1)):
        given = reader(part, filter=HeadFilter(offsets=(second + begin, last + end)))
        assert offsets(given, part) == [placed.offset for placed in log.records[1 + begin : 3 + end]]


@pytest.mark.parametrize(
    ("offsets_asked", "read"),
    [(ALWAYS, [0, 1, 2]), ((100, 200), [1]), ((99, 200), [0, 1]), ((100, 201), [1, 2]), ((300, 400), []), ((0, 0), [])],
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


# ------------------------------------------------------------------------------------------------- find messages
FIND_RULES = RowRules(
    DispatchRules(()),
    columns=("topic", "queue_offset", "commit_log_offset", "keys", "uniq_key", "tags_code", "properties"),
)


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
    rows = list(FindMessages(wanted, FIND_RULES, 10)(iter(ranges)))
    assert [row["queue_offset"] for row in rows] == found


@pytest.mark.parametrize(
    ("time", "at_or_after", "at_or_before"),
    [(FIRST - 1, 0, None), (FIRST, 0, 0), (FIRST + 11, 2, 1), (FIRST + 41, None, 2)],
)
def test_where_a_time_lies_in_a_queue(
    ranges: list[ProvenRange], time: int, at_or_after: int | None, at_or_before: int | None
) -> None:
    places: list[TimePlace] = list(FindTime("A", 0, time, FIND_RULES)(iter(ranges)))
    assert (min(place.first for place in places), max(place.end for place in places)) == (0, 3)
    after = [place.first_at_or_after for place in places if place.first_at_or_after is not None]
    before = [place.last_at_or_before for place in places if place.last_at_or_before is not None]
    assert (min(after, default=None), max(before, default=None)) == (at_or_after, at_or_before)


def ranges_of(log: LogBuilder, tmp_path: Path) -> list[ProvenRange]:
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
    rules = replace(FIND_RULES, columns=("topic", "queue_id", "commit_log_offset", "body", "properties"))
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
        return [row["commit_log_offset"] for row in FindMessages(wanted, FIND_RULES, 10)(iter(given))]

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
    rules = replace(FIND_RULES, dispatch_rules=DispatchRules((), batch_topics=frozenset({b"B"})))
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
        found = [row["queue_offset"] for row in FindMessages(Wanted(), FIND_RULES, limit)(iter([*given, *given]))]
        assert found == [*range(min(limit, 6))] * 2


# ------------------------------------------------------------------------------------------------- parquet files
DAY = 86_400_000


def range_of(log: LogBuilder, work: Path) -> ProvenRange:
    (path,) = (log.write(work / "store") / "commitlog").iterdir()
    segment = Segment(str(path), 0, path.stat().st_size)
    return ProvenRange(Split(7, segment, 0, log.end_offset, log.end_offset, 0), len(log.records))


def a_log(work: Path, *times: int, **fields: Any) -> tuple[LogBuilder, ProvenRange]:
    log = LogBuilder(1 << 20)
    for number, time in enumerate(times):
        log.message(topic=f"T{number % 2}", store_timestamp=time, keys=f"k{number}", **fields)
    return log, range_of(log, work)


def written(table: Path, wanted: ProvenRange, *, encoded: bool = True, codec: str = "zstd") -> list[WrittenFile]:
    rules = RowRules(DispatchRules(()), cluster="c", broker="b", encoded=encoded)
    return list(WriteFiles(str(table), ReadRanges((), rules), codec)([wanted]))


def rows_of(table: Path, files: list[WrittenFile]) -> list[dict[str, Any]]:
    found = []
    for file in files:
        rows = pq.read_table(table / file.path, partitioning=None)
        assert (rows.num_rows, (table / file.path).stat().st_size) == (file.rows, file.size)
        assert rows.schema.names == [name for name in schemas.MESSAGES.names if name != "store_date"]
        found += rows.to_pylist()
    return sorted(found, key=lambda row: int(row["commit_log_offset"]))


@pytest.mark.parametrize("encoded", [False, True])
def test_a_file_for_each_date(tmp_path: Path, encoded: bool) -> None:
    log, wanted = a_log(tmp_path, 0, DAY, 1, -1, (1 << 62), 2)
    files = written(tmp_path / "t", wanted, encoded=encoded)
    assert {file.store_date: file.rows for file in files} == {
        "1970-01-01": 3, "1970-01-02": 1, "1969-12-31": 1, None: 1,
    }  # fmt: skip
    assert {file.path.split("/")[0] for file in files if file.store_date is None} == {
        "store_date=__HIVE_DEFAULT_PARTITION__"
    }
    rows = rows_of(tmp_path / "t", files)
    assert [row["commit_log_offset"] for row in rows] == [placed.offset for placed in log.records]
    assert [(row["topic"], row["keys"], dict(row["properties"])) for row in rows] == [
        (f"T{number % 2}", [f"k{number}"], {"KEYS": f"k{number}"}) for number in range(6)
    ]


def test_many_dates_keep_few_files_open(tmp_path: Path) -> None:
    _, wanted = a_log(tmp_path, *(number * DAY for number in range(170)))
    files, first = written(tmp_path / "t", wanted), date(1970, 1, 1).toordinal()
    assert [file.store_date for file in files] == [date.fromordinal(first + day).isoformat() for day in range(170)]
    assert len(rows_of(tmp_path / "t", files)) == 170


def test_the_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    _, wanted = a_log(tmp_path, 5, 6, 7, tags="é" * 40, uniq_key="u")
    (file,) = written(tmp_path / "t", wanted)
    rows = rows_of(tmp_path / "t", [file])
    statistics = json.loads(file.statistics)
    assert statistics["numRecords"] == 3
    assert set(statistics["nullCount"]) == set(schemas.STATISTICS_COLUMNS)
    assert set(statistics["nullCount"].values()) == {0}
    assert statistics["minValues"]["store_timestamp"] == "1970-01-01T00:00:00.005Z"
    assert statistics["maxValues"]["store_timestamp"] == "1970-01-01T00:00:00.007Z"
    for name in ("cluster", "broker", "commit_log_offset", "size", "topic", "queue_id", "queue_offset", "uniq_key"):
        values = [row[name] for row in rows]
        assert (statistics["minValues"][name], statistics["maxValues"][name]) == (min(values), max(values))


def test_statistics_over_row_groups(tmp_path: Path) -> None:
    """NULLs, row groups of nothing else, and texts too long to be compared."""
    values = pa.table({
        "some": [3, None, None, None, 1, 9],
        "none": pa.nulls(6, pa.string()),
        "long": ["a", "b", "c" * 5000, "d", "e", "f"],
        "top": ["\U0010ffff" * 40] * 6,
    })  # fmt: skip
    pq.write_table(values, tmp_path / "file", row_group_size=2)
    found = file_statistics(pq.read_metadata(tmp_path / "file"), ("some", "none", "long", "top", "absent"))
    assert found["nullCount"] == {"some": 3, "none": 6, "long": 0, "top": 0}
    assert found["minValues"] == {"some": 1, "top": "\U0010ffff" * 32}
    assert found["maxValues"] == {"some": 9, "top": "\U0010ffff" * 40}
    extremes = {(1, "long"): {"min": "b", "max": "c" * 5000}}
    told = file_statistics(pq.read_metadata(tmp_path / "file"), ("long",), extremes)
    assert (told["minValues"], told["maxValues"]) == ({"long": "a"}, {"long": "f"})


@pytest.mark.parametrize("encoded", [False, True])
def test_a_long_value_hides_no_file(encoded: bool, tmp_path: Path) -> None:
    _, wanted = a_log(tmp_path, 1, 2, tags="b" * 5000, uniq_key="u" * 5000)
    (file,) = written(tmp_path / "t", wanted, encoded=encoded)
    statistics = json.loads(file.statistics)
    for name, least in (("tags", "b" * 32), ("uniq_key", "u" * 32)):
        assert (statistics["minValues"][name], statistics["maxValues"][name]) == (least, least + "\U0010ffff")


@pytest.mark.parametrize("after", [0, 1])
def test_a_failed_task_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    _, wanted = a_log(tmp_path, 1, 2, DAY)
    chunks = ReadRanges.chunks

    def failing(self: ReadRanges, given: ProvenRange) -> Iterator[pa.Table]:
        for number, chunk in enumerate(chunks(self, given)):
            if number == after:
                raise WriteFailed("the log changed while it was read")
            yield chunk
        raise WriteFailed("the log changed while it was read")

    monkeypatch.setattr(ReadRanges, "chunks", failing)
    with pytest.raises(WriteFailed):
        written(tmp_path / "t", wanted)
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wanted = a_log(tmp_path, 1)

    def full(*unused: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_files.pq.ParquetWriter, "write_table", full)
    with pytest.raises(WriteFailed, match="No space left"):
        written(tmp_path / "t", wanted)
    assert not list((tmp_path / "t").rglob("*.parquet"))


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_how_columns_lie_in_a_file(tmp_path: Path, codec: str) -> None:
    """Compressed as asked for; extremes of what filters look at; no schema of Arrow's, which readers would need."""
    _, wanted = a_log(tmp_path, 1, 2)
    (file,) = written(tmp_path / "t", wanted, codec=codec)
    footer = pq.read_metadata(tmp_path / "t" / file.path)
    columns = [footer.row_group(0).column(at) for at in range(footer.num_columns)]
    assert {column.compression for column in columns} == {codec.upper()}
    assert {column.path_in_schema for column in columns if column.statistics is None} == {
        "offset_msg_id", "keys.list.element", "properties.key_value.key", "properties.key_value.value",
    }  # fmt: skip
    assert footer.metadata is None or b"ARROW:schema" not in footer.metadata
    assert all(column.has_column_index and column.has_offset_index for column in columns if column.statistics)


@pytest.mark.parametrize(("length", "largest"), [(31, "é" * 31), (32, "é" * 32), (33, "é" * 32 + "\U0010ffff")])
def test_texts_are_cut_after_32_characters(tmp_path: Path, length: int, largest: str) -> None:
    _, wanted = a_log(tmp_path, 5, tags="é" * length)
    (file,) = written(tmp_path / "t", wanted)
    statistics = json.loads(file.statistics)
    assert (statistics["minValues"]["tags"], statistics["maxValues"]["tags"]) == ("é" * min(length, 32), largest)


def test_a_file_tells_whether_a_message_waits_in_it(tmp_path: Path) -> None:
    log = LogBuilder(1 << 20)
    for topic, time in (("T", 5), ("SCHEDULE_TOPIC_XXXX", DAY), ("T", DAY)):
        log.message(topic=topic, store_timestamp=time)
    wanted = range_of(log, tmp_path)
    files = written(tmp_path / "t", wanted, encoded=False)
    assert {file.store_date: file.delayed for file in files} == {"1970-01-01": False, "1970-01-02": True}
    assert [file.delayed for file in written(tmp_path / "u", wanted) if file.store_date == "1970-01-02"] == [True]


def draft(work: Path) -> tuple[scan.SplitScan, list[WrittenFile]]:
    log = LogBuilder(1 << 20)
    for number in range(5):
        log.message(topic="A", keys=f"k{number}")
    (path,) = (log.write(work / "store") / "commitlog").iterdir()
    write = WriteFiles(str(work / "t"), ReadRanges((), RowRules(DispatchRules(()), cluster="c", broker="b")), "zstd")
    task = ScanTask("", DecodeRules(properties=RowRules(DispatchRules(())).properties), DispatchRules(()))
    (found,) = DraftTask(task, write)(iter(plan_splits([Segment(str(path), 0, path.stat().st_size)], 1 << 30)))
    return found


def test_plain_records_become_rows_too(tmp_path: Path) -> None:
    scanned, files = draft(tmp_path)
    assert scanned.records == sum(file.rows for file in files) == 5


def test_records_that_become_no_rows_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_blocks(split: Any, task: ScanTask, also: Any) -> scan.SplitScan:
        return scan.scan_split(split, task)

    monkeypatch.setattr(parquet_files, "scan_split", without_blocks)
    with pytest.raises(TotalsDisagree, match="other records than became rows"):
        draft(tmp_path)


@pytest.mark.parametrize(
    ("named", "codec"),
    [(None, "zstd"), ("snappy", "snappy"), ("UNCOMPRESSED", "none"), ("lz4_raw", "lz4"), ("GZIP", "GZIP")],
)
def test_a_codec_is_parquets_or_the_users(named: str | None, codec: str) -> None:
    asked = []

    def setting(name: str, default: str) -> str:
        asked.append(name)
        return default if named is None else named

    read = ReadRanges((1, 2), RowRules(None, columns=("topic",)))  # type: ignore[arg-type]
    writer = WriteFiles.of(setting, "/table", read, "run")
    assert asked == ["spark.sql.parquet.compression.codec"]
    assert (writer.table, writer.codec, writer.run) == ("/table", codec, "run")
    assert (writer.read.ranges, writer.read.rules.encoded, writer.read.rules.columns) == ((), True, ("topic",))
    assert not read.rules.encoded


def test_no_rows_have_no_date() -> None:
    """As a repair has them where nothing differs."""
    assert list(by_date(pa.table({PARTITION: pa.array([], pa.date32()), "queue_id": pa.array([], pa.int32())}))) == []


def test_a_column_is_made_and_older_tables_lack_it() -> None:
    """Views put SQL in the place of columns that came after the first release, whose last column was ``dispatched``."""
    names = schemas.MESSAGES_WITH_BODY.names
    later = set(names[names.index("dispatched") + 1 :])
    assert set(row_makers._MAKERS) == set(names)
    assert set(views._LONG_WAY) == later - {"salvaged"}
