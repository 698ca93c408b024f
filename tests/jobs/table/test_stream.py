"""The stream of the data source, and its options."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.streaming.readwriter import DataStreamWriter
from support.store_builder import LogBuilder, overwrite_log

from jobs.contract.options import LogOptions
from jobs.log.opening import OpenedStore, open_store
from jobs.table import datasource
from jobs.table.datasource import CommitLogSource, LogStreamReader, defects, first_times, plan_partitions
from storeformat.errors import DamagedLog, Refused, UsageError
from udfs.table import schemas
from udfs.table.datasource import LogReader
from udfs.table.rows import HEAD_COLUMNS

# --------------------------------------------------------------------------------------------------------------- stream
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
    overwrite_log(growing.root / "commitlog", damaged.offset + 4, b"oops")
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


# --------------------------------------------------------------------------------------------------- datasource options


def log_options(**given: Any) -> LogOptions:
    return CommitLogSource(given)._log_options()


def test_the_least_that_is_needed() -> None:
    assert log_options(path="/s") == LogOptions(store="/s")
    with pytest.raises(UsageError, match="no store is named"):
        log_options()


@pytest.mark.parametrize(
    "spelled", [str, str.upper, lambda name: name.replace("_", ""), lambda name: name.replace("_", "-")]
)
def test_each_option_of_a_log(spelled: Any) -> None:
    given = {
        "path": "/s", "commitlog": "/a,/b", "broker_conf": "b.conf", "settings": "maxIndexNum=7, maxHashSlotNum=9",
        "broker_version": "4.9", "on_damage": "Salvage", "until_offset": "0", "split_size": "4096",
        "keep_crc_failures": "true",
    }  # fmt: skip
    found = CommitLogSource({spelled(name): value for name, value in given.items()})._log_options()
    assert found == LogOptions(
        store="/s", commitlog=("/a", "/b"), broker_conf="b.conf",
        settings=(("maxIndexNum", "7"), ("maxHashSlotNum", "9")), broker_version="4.9", on_damage="salvage",
        until_offset=0, split_size=4096, keep_crc_failures=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"brokerVersion": "4.7"}, "option brokerversion: releases of '4.7' have the rules of 4.6 or of 4.8: "),
        ({"onDamage": "ignore"}, "option ondamage: ignore is not one of fail, stop, salvage"),
        ({"untilOffset": "-1"}, "option untiloffset: "),
        ({"splitSize": "0"}, "option splitsize: "),
        ({"settings": "x"}, "option settings: "),
        ({"commitlog": ""}, "option commitlog: "),
        ({"nothing": "1", "also": "2"}, "rocketmq-commitlog has no option also"),
        ({"records": "all"}, "option records: all is not one of messages, defects"),
        ({"keepCrcFailures": "perhaps"}, "option keepcrcfailures: perhaps is not one of false, true"),
        ({"fromOffset": "x"}, "option fromoffset: "),
        ({"fromTime": "x"}, "option fromtime: "),
        ({"untilTime": "x"}, "option untiltime: "),
        ({"columns": "topic, nothing"}, "rocketmq-commitlog has no column nothing"),
        ({"columns": "topic,size,topic"}, "rocketmq-commitlog gives one column or more, each once"),
        ({"topic": "A, T:x"}, "option topic: 'T:x' is not a topic; one queue is TOPIC:QUEUE"),
        ({"timeZone": "Mars/Phobos"}, "option timezone: Mars/Phobos: no such time zone"),
        ({"path": None}, 'no store is named: .load("/path/to/store")'),
    ],
)
def test_values_that_mean_nothing(given: dict[str, Any], said: str) -> None:
    options = {name: value for name, value in {"path": "/s", **given}.items() if value is not None}

    def ask() -> None:
        source = CommitLogSource(options)
        source._log_options()
        source._filter()
        source.schema()

    with pytest.raises(UsageError) as caught:
        ask()
    assert str(caught.value) == said or (said.endswith(": ") and str(caught.value).startswith(said))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, schemas.MESSAGES.names),
        ({"withBodies": "true"}, schemas.MESSAGES_WITH_BODY.names),
        ({"withBodies": "false"}, schemas.MESSAGES.names),
        ({"columns": " topic,, size "}, ["topic", "size"]),
        ({"columns": "body"}, ["body"]),
        ({"columns": "heads"}, HEAD_COLUMNS),
        ({"records": "defects"}, schemas.DEFECTS.names),
    ],
)
def test_which_columns_there_are(given: dict[str, str], names: list[str]) -> None:
    assert CommitLogSource(given).schema().names == list(names)


@pytest.fixture
def log() -> LogBuilder:
    """Ten segments, of which each begins a second after the one before."""
    log = LogBuilder(1024)
    for number in range(10):
        log.message(topic="T", body=bytes(100), store_timestamp=1_700_000_000_000 + 1000 * number)
        if number < 9:
            log.blank()
    return log


def opened(log: LogBuilder, root: Path, **more: Any) -> tuple[OpenedStore, LogOptions]:
    options = LogOptions(store=str(log.write(root)), **more)
    return open_store(options, needs_index_sizes=False), options


def splits(store: OpenedStore, options: LogOptions) -> list[tuple[int, int, bool]]:
    return [(one.split.start, one.split.stop, one.records is not None) for one in plan_partitions(store, options)]


def test_only_the_last_segment_is_read_while_a_query_is_planned(log: LogBuilder, tmp_path: Path) -> None:
    store, options = opened(log, tmp_path)
    end = log.end_offset
    assert first_times(store.segments) == {1024 * number: 1_700_000_000_000 + 1000 * number for number in range(10)}
    *unproven, last = splits(store, options)
    assert unproven == [(1024 * number, 1024 * (number + 1), False) for number in range(9)]
    assert (last[0], last[2]) == (9 * 1024, True)
    assert end <= last[1]
    short, until = opened(log, tmp_path, until_offset=3 * 1024), 3 * 1024
    *unproven, last = splits(*short)
    assert [one[2] for one in (*unproven, last)] == [False, False, True]
    assert (unproven[0][0], last[0]) == (0, 2 * 1024)
    assert last[1] <= until


def test_a_log_whose_times_fall_is_proven_first(log: LogBuilder, tmp_path: Path) -> None:
    older = LogBuilder(1024)
    for number in range(3):
        older.message(topic="T", body=bytes(100), store_timestamp=1_700_000_000_000 - 1000 * (number == 1))
        older.blank() if number < 2 else None
    assert all(proven for _, _, proven in splits(*opened(older, tmp_path)))


def test_damage_as_rows(log: LogBuilder) -> None:
    def place(begin: int, end: int, reason: str) -> Any:
        return SimpleNamespace(begin=begin, end=end, reason=reason)

    reading: Any = SimpleNamespace(
        damaged=[place(9, 12, "zeros")], stale=[place(3, 5, "old")], foreign_records=[(4, 2)]
    )
    names = schemas.DEFECTS.names
    assert [tuple(row[name] for name in names) for row in defects(reading).to_pylist()] == [
        (3, 5, "stale", "old"), (4, 6, "ghost", "a record of another place"), (9, 12, "damaged", "zeros"),
    ]  # fmt: skip
