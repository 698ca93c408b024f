"""Files of the table, and what Delta's log is told of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.store_builder import LogBuilder

from storeformat.errors import TotalsDisagree, WriteFailed
from storeformat.log.segments import Segment, Split, plan_splits
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from udfs.log import scan
from udfs.log.scan import ScanTask
from udfs.table import parquet_files, schemas
from udfs.table.parquet_files import PARTITION, DraftTask, WriteFiles, WrittenFile, by_date, file_statistics
from udfs.table.proven_ranges import ProvenRange, ReadRanges
from udfs.table.rows import RowRules

DAY = 86_400_000


def a_log(work: Path, *times: int, **fields: Any) -> tuple[LogBuilder, ProvenRange]:
    log = LogBuilder(1 << 20)
    for number, time in enumerate(times):
        log.message(topic=f"T{number % 2}", store_timestamp=time, keys=f"k{number}", **fields)
    (path,) = (log.write(work / "store") / "commitlog").iterdir()
    segment = Segment(str(path), 0, path.stat().st_size)
    return log, ProvenRange(Split(7, segment, 0, log.end_offset, log.end_offset, 0), len(times))


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
    files = written(tmp_path / "t", wanted)
    assert [file.store_date for file in files] == [
        date.fromordinal(date(1970, 1, 1).toordinal() + day).isoformat() for day in range(170)
    ]
    assert len(rows_of(tmp_path / "t", files)) == 170


def test_the_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    _, wanted = a_log(tmp_path, 5, 6, 7, tags="é" * 40, uniq_key="u")
    (file,) = written(tmp_path / "t", wanted)
    rows = rows_of(tmp_path / "t", [file])
    statistics = json.loads(file.statistics)
    assert statistics["numRecords"] == 3
    assert set(statistics["nullCount"]) == set(schemas.STATISTICS_COLUMNS)
    assert set(statistics["nullCount"].values()) == {0}
    assert statistics["minValues"]["tags"] == "é" * 32
    assert statistics["maxValues"]["tags"] == "é" * 32 + "\U0010ffff"
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
    for name, letter in (("tags", "b"), ("uniq_key", "u")):
        assert (statistics["minValues"][name], statistics["maxValues"][name]) == (
            letter * 32,
            letter * 32 + "\U0010ffff",
        )


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
    log.message(topic="T", store_timestamp=5)
    log.message(topic="SCHEDULE_TOPIC_XXXX", store_timestamp=DAY)
    log.message(topic="T", store_timestamp=DAY)
    (path,) = (log.write(tmp_path / "store") / "commitlog").iterdir()
    segment = Segment(str(path), 0, path.stat().st_size)
    wanted = ProvenRange(Split(7, segment, 0, log.end_offset, log.end_offset, 0), 3)
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
