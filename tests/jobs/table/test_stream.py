"""``spark.readStream.format("rocketmq-commitlog")``: each record once, over restarts and new segments."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.streaming.readwriter import DataStreamWriter
from support.store_builder import LogBuilder

from jobs.table import datasource
from jobs.table.datasource import LogStreamReader
from storeformat.errors import DamagedLog, Refused, UsageError
from udfs.table.datasource import LogReader

SEGMENT = 1 << 14


class Growing:
    """A log that grows, and the reader of a stream over it."""

    def __init__(self, work: Path) -> None:
        self.log = LogBuilder(SEGMENT)
        self.root = work / "store"

    def grow(self, count: int) -> None:
        for number in range(count):
            self.log.clock += 1000
            self.log.message(topic=f"T{number % 3}", queue_id=number % 2, body=b"b" * (number % 60), keys=f"k{number}")
        self.log.write(self.root)

    def reader(self, **options: Any) -> LogStreamReader:
        given = {"path": str(self.root), "columns": "commit_log_offset, topic", **options}
        source = datasource.CommitLogSource({name: str(value) for name, value in given.items()})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, LogStreamReader)
        return reader

    def expected(self, begin: int = 0) -> list[int]:
        return [placed.offset for placed in self.log.records if placed.offset >= begin]


def rows(reader: LogStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """The offsets of a batch's rows, read as an executor does: by what is left of the reader after its way there."""
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    there = pickle.loads(pickle.dumps(reader))
    assert isinstance(there, LogReader)
    return [offset for part in parts for batch in there.read(part) for offset in batch["commit_log_offset"].to_pylist()]


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    found = Growing(tmp_path)
    found.grow(200)
    return found


def test_batches_tile_the_log(growing: Growing) -> None:
    reader = growing.reader(**{"split-size": 3000})
    at = reader.initialOffset()
    assert at == {"offset": 0}
    found: list[int] = []
    for count in (0, 1, 150, 0, 700):
        if count:
            growing.grow(count)
        end = reader.latestOffset(at, ReadAllAvailable())
        batch = rows(reader, at, end)
        assert rows(growing.reader(), at, end) == batch, "a restarted query plans the same batch"
        found += batch
        at = end
    assert len(growing.log.segments) > 3
    assert found == growing.expected()
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    assert reader.partitions(at, at) == []


@pytest.mark.parametrize(("most", "messages"), [(1, 40), (3000, 350), (SEGMENT, 350), (1 << 30, 350)])
def test_batches_of_bounded_size(tmp_path: Path, most: int, messages: int) -> None:
    growing = Growing(tmp_path)
    growing.grow(messages)
    reader = growing.reader(**{"max-bytes-per-trigger": most})
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(most)
    at, found, batches = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(at, limit)) != at:
        assert end["offset"] - at["offset"] <= max(most, 1000)
        found += rows(reader, at, end)
        at, batches = end, batches + 1
    assert found == growing.expected()
    assert (batches == 1) == (most > SEGMENT)


def test_from_an_offset_and_only_a_topic(growing: Growing) -> None:
    growing.grow(400)
    wanted = growing.log.records[350].offset
    reader = growing.reader(**{"from-offset": wanted, "topic": "T1"})
    start = reader.initialOffset()
    assert 0 < start["offset"] <= wanted
    found = rows(reader, start, reader.latestOffset(start, ReadAllAvailable()))
    assert found == [p.offset for p in growing.log.records if p.offset >= wanted and p.message.topic == "T1"]


def test_until_an_offset(growing: Growing) -> None:
    reader = growing.reader(**{"until-offset": growing.log.records[100].offset})
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["offset"] == growing.log.records[100].offset
    growing.grow(10)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_retention_before_the_stream(growing: Growing) -> None:
    growing.grow(600)
    reader = growing.reader()
    growing.log.remove_head(2)
    for name in sorted((growing.root / "commitlog").iterdir())[:2]:
        name.unlink()
    assert growing.reader().initialOffset() == {"offset": 2 * SEGMENT}
    with pytest.raises(Refused) as caught:
        reader.latestOffset({"offset": SEGMENT}, ReadAllAvailable())
    assert str(caught.value) == (
        "the log starts after the offset that the stream has reached: retention deleted what it had not read: found "
        f"{2 * SEGMENT}, expected {SEGMENT} ({growing.root})"
    )
    assert caught.value.advice == "a stream with a new checkpoint starts where the log starts"


def test_a_log_that_was_truncated(growing: Growing) -> None:
    reader = growing.reader()
    end = reader.latestOffset({"offset": 0}, ReadAllAvailable())
    growing.log.truncate(growing.log.records[150].offset)
    growing.log.message(topic="other", body=b"z" * 333)
    growing.log.settle()
    growing.log.write(growing.root)
    with pytest.raises(Refused) as caught:
        growing.reader().partitions({"offset": 0}, end)
    assert str(caught.value) == (
        "the log is not the one that was read: it was truncated, or is another store's: found "
        f"{growing.log.end_offset}, expected {end['offset']} ({growing.root})"
    )
    assert caught.value.advice == "a stream with a new checkpoint starts over; the option from-offset sets where"
    beyond = 8 * SEGMENT
    with pytest.raises(Refused, match=f"found {beyond}, expected {beyond + 5}"):
        growing.reader().partitions({"offset": beyond}, {"offset": beyond + 5})


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("what", ["shorter", "as long", "one segment less"])
def test_a_log_that_went_back(what: str, restarted: bool, growing: Growing) -> None:
    """Salvaged, restored or another broker's: whatever is there now, nothing that was not read goes unnoticed."""
    reader = growing.reader()
    growing.log.message(topic="T1", body=b"a" * 100)
    growing.log.settle()
    growing.log.write(growing.root)
    end = reader.latestOffset({"offset": 0}, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    if what == "one segment less":
        newest = sorted((growing.root / "commitlog").iterdir())[-1]
        newest.unlink()
        found = int(newest.name)
    else:
        growing.log.truncate(growing.log.records[-1].offset)
        if what == "as long":
            growing.log.message(topic="T1", body=b"z" * 100)
        growing.log.settle()
        found = growing.log.end_offset
        growing.log.write(growing.root)
    said = f"it was truncated, or is another store's: found {found}, expected {end['offset']} "
    with pytest.raises(Refused, match=said):
        (growing.reader() if restarted else reader).latestOffset(end, ReadAllAvailable())


def test_a_record_that_spans_the_offset_of_a_checkpoint(growing: Growing) -> None:
    with pytest.raises(Refused, match="is another store's: found"):
        growing.reader().latestOffset({"offset": growing.log.records[60].offset + 8}, ReadAllAvailable())


def test_damage_ends_a_stream(growing: Growing) -> None:
    growing.grow(300)
    damaged = growing.log.records[60]
    with (growing.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(damaged.offset + 4)
        file.write(b"oops")
    with pytest.raises(DamagedLog):
        growing.reader().latestOffset({"offset": 0}, ReadAllAvailable())


@pytest.mark.parametrize("options", [{"records": "defects"}, {"on-damage": "stop"}, {"trust-store-times": "true"}])
def test_what_a_stream_does_not_take(growing: Growing, options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        growing.reader(**options)
    assert str(caught.value) == "a stream takes neither records=defects nor on-damage nor trust-store-times"


def test_a_log_that_was_wiped_and_has_grown_as_long(growing: Growing) -> None:
    """Also where the stream has come to a segment's end, and where it had planned a batch before it was ended."""
    reader = growing.reader(**{"until-offset": SEGMENT})
    at_the_end = reader.latestOffset({"offset": 0}, ReadAllAvailable())
    assert at_the_end["offset"] == SEGMENT
    end = growing.reader().latestOffset(at_the_end, ReadAllAvailable())
    growing.log = LogBuilder(SEGMENT, clock=growing.log.clock)
    growing.grow(200)
    assert growing.log.end_offset == end["offset"]
    for offset in (at_the_end, end):
        with pytest.raises(Refused, match="is another store's"):
            growing.reader().latestOffset(offset, ReadAllAvailable())
    with pytest.raises(Refused, match="found other bytes before it, expected"):
        growing.reader().partitions(at_the_end, end)


def test_an_offset_of_an_older_version_leads_by_the_sizes(growing: Growing) -> None:
    end = growing.reader().latestOffset({"offset": 0}, ReadAllAvailable())
    older = {"offset": end["offset"]}
    assert growing.reader().latestOffset(older, ReadAllAvailable()) == older


def test_a_query_of_what_is_there_now_ends(growing: Growing) -> None:
    """In batches of their size, and without what comes meanwhile."""
    reader = growing.reader(**{"max-bytes-per-trigger": 2000})
    reader.prepareForTriggerAvailableNow()
    there = growing.expected()
    growing.grow(100)
    at, found, batches = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        found += rows(reader, at, end)
        at, batches = end, batches + 1
    assert found == there
    assert batches > 3


@pytest.mark.spark
def test_exactly_once_over_restarts(spark: SparkSession, growing: Growing, tmp_path: Path) -> None:
    """Three runs of one query: the second finds nothing new, the third new segments, in batches of their size."""
    datasource.register(spark)
    given = {"columns": "topic, commit_log_offset", "max-bytes-per-trigger": str(SEGMENT)}
    sink = tmp_path / "rows"
    for more in (0, 0, 300):
        if more:
            growing.grow(more)
        stream = spark.readStream.format("rocketmq-commitlog").options(**given).load(str(growing.root))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_to_the_end(writer.trigger(availableNow=True), str(sink))
        found = spark.read.parquet(str(sink))
        assert sorted(row[1] for row in found.collect()) == growing.expected()


def run_to_the_end(writer: DataStreamWriter, sink: str) -> None:
    """Spark gives the process that reads ten seconds to come up: on a busy machine the query is started once more."""
    for left in (4, 3, 2, 1, 0):
        query = writer.start(sink)
        try:
            assert query.awaitTermination(120)
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            return
