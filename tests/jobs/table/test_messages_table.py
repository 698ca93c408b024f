"""The table of messages, and what its commits say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support.patching import stand_in
from support.refusals import error_of

from jobs.table import messages_table
from jobs.table.commits import (
    BrokerRows,
    BrokerState,
    Commit,
    Overtaken,
    code_of,
    loads_of,
    obstacle,
    recorded_by,
    recorded_state,
    taken_away,
)
from jobs.table.messages_table import IDENTITY, MessagesTable, _is_free, create_table, open_table
from storeformat.errors import MissingInput, NotAStore, Refused, WriteFailed
from storeformat.record.dispatch import DispatchRules
from udfs.table import schemas
from udfs.table.parquet_files import WriteFiles, WrittenFile, dataset_of
from udfs.table.proven_ranges import ReadRanges
from udfs.table.rows import RowRules


# ------------------------------------------------------------------------------------------------------- messages table
@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "messages")
    create_table(found, time_zone="UTC", bodies=False)
    return found


def rows_to(end: int, epoch: int = 0, broker: str = "b") -> BrokerRows:
    return BrokerRows("c", broker, 0, end, epoch, {"to": end})


def written(path: str, *offsets: int, broker: str = "b") -> WrittenFile:
    """A file with rows of these offsets, 10 bytes each."""
    name = f"store_date=2023-11-14/{broker}-{offsets[0]}.parquet"
    schema = pa.schema([field for field in schemas.MESSAGES if field.name != "store_date"])
    given = {"cluster": "c", "broker": broker, "size": 10, "topic": "T", "queue_id": 0, "magic_code": 1}
    rows = pa.Table.from_pylist([{**given, "commit_log_offset": offset} for offset in offsets], schema)
    Path(path, name).parent.mkdir(exist_ok=True)
    pq.write_table(rows, Path(path, name))
    bounds = {"numRecords": len(offsets), "minValues": {"commit_log_offset": min(offsets)},
              "maxValues": {"commit_log_offset": max(offsets)}, "nullCount": {"commit_log_offset": 0}}  # fmt: skip
    return WrittenFile(name, "2023-11-14", len(offsets), Path(path, name).stat().st_size, json.dumps(bounds))


def load(path: str, *offsets: int, seen: BrokerState | None = None, broker: str = "b", **more: Any) -> int:
    what = rows_to(offsets[-1] + 10, broker=broker, **more)
    return MessagesTable(path).append([written(path, *offsets, broker=broker)], what, seen, ()).version


def test_what_was_loaded_is_known(path: str) -> None:
    assert MessagesTable(path).state("c", "b") is None
    assert load(path, 0, 10, 20) == 1
    assert load(path, 30, 40, seen=BrokerState(30, 0)) == 2
    load(path, 5, broker="other")
    table = MessagesTable(path)
    assert (table.state("c", "b"), table.state("c", "x")) == (BrokerState(50, 0), None)
    information = DeltaTable(path).history(1)[0]
    assert json.loads(information["userMetadata"]) == {"to": 15}


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_checkpoint_keeps_what_was_loaded(path: str, in_parts: bool) -> None:
    """In parts as Spark writes it where a table has many files."""
    load(path, 0)
    load(path, 10, broker="other")
    DeltaTable(path).create_checkpoint()
    log = Path(path, "_delta_log")
    if in_parts:
        (log / f"{2:020d}.checkpoint.parquet").rename(log / f"{2:020d}.checkpoint.{1:010d}.{1:010d}.parquet")
        told = json.loads((log / "_last_checkpoint").read_text())
        (log / "_last_checkpoint").write_text(json.dumps({"version": 2, "size": told["size"], "parts": 1}))
    for version in range(3 if in_parts else 2):
        (log / f"{version:020d}.json").unlink()
    if not in_parts:
        load(path, 20, seen=BrokerState(20, 0), broker="other")
    table = MessagesTable(path)
    assert (table.state("c", "b"), table.state("c", "other")) == (
        BrokerState(10, 0), BrokerState(20 if in_parts else 30, 0),
    )  # fmt: skip


@pytest.mark.parametrize(("interval", "versions"), [(None, [10, 20]), ("7", [6, 13, 20])])
def test_loads_write_checkpoints(tmp_path: Path, interval: str | None, versions: list[int]) -> None:
    """Every tenth version as Delta does, or as the table says; delta-rs counts from the first version."""
    path = str(tmp_path / "messages")
    configuration = {"delta.checkpointInterval": interval} if interval else {}
    DeltaTable.create(path, schemas.MESSAGES, partition_by=["store_date"], configuration=configuration)
    for number in range(23):
        load(path, number * 10, seen=BrokerState(number * 10, 0) if number else None)
    log = Path(path, "_delta_log")
    assert [int(file.name[:20]) for file in sorted(log.glob("*.checkpoint.parquet"))] == versions
    for version in range(versions[-1] + 1):
        (log / f"{version:020d}.json").unlink()
    assert MessagesTable(path).state("c", "b") == BrokerState(230, 0)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 23


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_version_that_others_have_left_behind_is_read_as_it_was(path: str, cleaned: bool) -> None:
    """What tells the newest checkpoint tells one of a version after it."""
    for number in range(12):
        load(path, number * 10, seen=BrokerState(number * 10, 0) if number else None)
    table = MessagesTable(path)
    if cleaned:
        for version in range(10):
            Path(path, "_delta_log", f"{version:020d}.json").unlink()
    for number in range(12, 21):
        load(path, number * 10, seen=BrokerState(number * 10, 0))
    assert json.loads(Path(path, "_delta_log", "_last_checkpoint").read_text())["version"] == 20
    assert table.is_plain
    assert table.state("c", "b") == BrokerState(120, 0)


def test_a_checkpoint_that_fails_takes_no_load_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    monkeypatch.setattr(messages_table, "_VERSIONS_A_CHECKPOINT", 1)
    assert load(path, 0) == 1


def test_a_log_that_lacks_versions(path: str) -> None:
    load(path, 0)
    load(path, 10, seen=BrokerState(10, 0))
    Path(path, "_delta_log", f"{1:020d}.json").unlink()
    with pytest.raises(MissingInput, match="found gap"):
        messages_table.open_table(path)


def test_where_a_transaction_has_expired_the_rows_are_there(path: str) -> None:
    load(path, 0)
    DeltaTable(path).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    log = Path(path, "_delta_log", f"{1:020d}.json")
    log.write_text(re.sub(r'"lastUpdated":[0-9]+', '"lastUpdated":1', log.read_text()))
    table = MessagesTable(path)
    assert table.state("c", "b") == BrokerState(10, 0, recorded=False)
    assert load(path, 10, broker="other") == 3
    assert load(path, 10, seen=table.state("c", "b")) == 4


def test_only_one_of_two_commits_passes(path: str) -> None:
    one, other, third = MessagesTable(path), MessagesTable(path), MessagesTable(path)
    one.append([written(path, 0)], rows_to(10), None, ())
    with pytest.raises(Overtaken, match="Concurrent transaction"):
        other.append([written(path, 0)], rows_to(10), None, ())
    with pytest.raises(Overtaken, match="c/b was loaded meanwhile"):
        MessagesTable(path).append([written(path, 0)], rows_to(10), None, ())
    assert third.append([written(path, 0, broker="z")], rows_to(10, broker="z"), None, ()).version == 2
    late = MessagesTable(path)
    MessagesTable(path).append([], rows_to(0, epoch=1), BrokerState(10, 0), ())  # what a repair records
    with pytest.raises(Overtaken, match="Concurrent transaction"):
        late.append([written(path, 10)], rows_to(20), BrokerState(10, 0), ())


def test_a_table_whose_properties_changed_takes_no_files(path: str) -> None:
    table = MessagesTable(path)
    DeltaTable(path).alter.add_constraint({"positive": "size > 0"})
    with pytest.raises(Overtaken, match="Protocol changed since last commit"):
        table.append([written(path, 0)], rows_to(10), None, ())


def test_the_last_rows(path: str) -> None:
    load(path, *range(0, 1000, 10))
    load(path, 400, 990, broker="other")
    far = 40 << 30
    load(path, far, seen=BrokerState(1000, 0))
    table = MessagesTable(path)
    found = table.last_rows("c", "b", far, 3)
    assert [row["commit_log_offset"] for row in found] == [990, 980, 970]
    assert tuple(found[0]) == IDENTITY
    assert len(table.last_rows("c", "b", far + 1, 1000)) == 101
    assert table.last_rows("c", "b", 0, 1) == []


def test_a_copy_has_rows_and_no_transactions(path: str, tmp_path: Path) -> None:
    load(path, 0, 10, 70)
    copy = str(tmp_path / "copy")
    write_deltalake(copy, DeltaTable(path).to_pyarrow_table(), partition_by=["store_date"])
    assert MessagesTable(copy).state("c", "b") == BrokerState(80, 0, recorded=False)
    assert MessagesTable(copy).state("c", "x") is None


def with_features(path: str, *features: str, readers: int = 1) -> None:
    protocol: dict[str, Any] = {"minReaderVersion": readers, "minWriterVersion": 7, "writerFeatures": features}
    protocol |= {"readerFeatures": features} if readers == 3 else {}
    Path(path, "_delta_log", f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}), encoding="utf-8")


@pytest.mark.parametrize(
    ("feature", "readers"),
    [("rowTracking", 1), ("clustering", 1), ("inCommitTimestamp", 1), ("domainMetadata", 1), ("typeWidening", 3)],
)
def test_a_feature_with_which_delta_rs_does_not_commit(path: str, feature: str, readers: int) -> None:
    with_features(path, *(["appendOnly"] if readers == 1 else []), feature, readers=readers)
    with pytest.raises(MissingInput) as caught:
        open_table(path, writes=True)
    said = f"the table has the table feature {feature}, and `load` cannot write into one with that ({path})"
    assert (str(caught.value), caught.value.exit_code) == (said, 66)
    assert "load into a new --table" in str(caught.value.advice)
    assert open_table(path) is not None, "who only reads it may"


@pytest.mark.parametrize(
    ("features", "readers"),
    [(["appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"], 1),
     (["deletionVectors", "v2Checkpoint", "timestampNtz"], 3)],
)  # fmt: skip
def test_features_with_which_it_commits(path: str, features: list[str], readers: int) -> None:
    with_features(path, *features, readers=readers)
    assert open_table(path, writes=True) is not None
    assert load(path, 0) == 2
    assert MessagesTable(path).state("c", "b") == BrokerState(10, 0)


def test_no_table(tmp_path: Path) -> None:
    assert open_table(str(tmp_path)) is None
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore, match="this exists and is not a Delta table"):
        open_table(str(tmp_path))
    with pytest.raises(WriteFailed, match=r"Not a directory|NotADirectory"):
        create_table(str(tmp_path / "file" / "table"), time_zone="UTC", bodies=False)


@pytest.mark.parametrize("name", ["my table", "täble", "50%", "a#b?c", "a+b&c=d"])
def test_a_table_has_any_name(tmp_path: Path, name: str) -> None:
    found = str(tmp_path / name / "messages")
    create_table(found, time_zone="UTC", bodies=False)
    load(found, 0, 10)
    load(found, 20, seen=BrokerState(20, 0))
    table = MessagesTable(found)
    assert [row["commit_log_offset"] for row in table.last_rows("c", "b", 1000, 9)] == [20, 10, 0]
    assert table.answer("SELECT store_date FROM mine", "c", "b")["store_date"].to_pylist() == [date(2023, 11, 14)] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def actions_of(path: str, version: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in Path(path, "_delta_log", f"{version:020d}.json").read_text().splitlines():
        ((kind, action),) = json.loads(line).items()
        found.setdefault(kind, []).append(action)
    return found


def test_a_commit_as_deltas_protocol_has_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, messages_table, "time", time=lambda: 7.5)
    one, two = written(path, 0, 10), written(path, 20)
    made = MessagesTable(path).append([one, replace(two, delayed=True)], rows_to(30), None, ("T",))
    assert made == Commit(1, 3, delayed=True)
    found = actions_of(path, 1)
    for file, action in zip((one, two), found["add"], strict=True):
        kept = {name: value for name, value in action.items() if value is not None}
        assert kept == {
            "path": file.path, "size": file.size, "partitionValues": {"store_date": "2023-11-14"}, "dataChange": True,
            "stats": file.statistics, "modificationTime": 7500,
        }  # fmt: skip
    assert found["txn"] == [
        {"appId": "rocketmq-store-spark/c/b/0", "version": 30, "lastUpdated": 7500},
        {"appId": "rocketmq-store-spark/c/b/topics/0", "version": code_of(("T",)), "lastUpdated": 7500},
    ]
    (information,) = found["commitInfo"]
    assert information["operation"] == "WRITE"
    assert information["userMetadata"] == '{"to": 30}'
    size = str(one.size + two.size)
    assert information["operationMetrics"] == {"numFiles": "2", "numOutputBytes": size, "numOutputRows": "3"}


def test_a_commit_without_delayed_messages_says_so(path: str) -> None:
    assert MessagesTable(path).append([written(path, 0)], rows_to(10), None, ()) == Commit(1, 1, delayed=False)
    assert MessagesTable(path).append([], rows_to(0, broker="z"), None, ()) == Commit(2, 0, delayed=False)


class StandIn:
    """A table of delta-rs; a subclass overrides single methods."""

    def __init__(self, real: DeltaTable) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_a_log_that_takes_no_version_is_an_error_of_the_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(StandIn):
        def create_write_transaction(self, *_: Any, **__: Any) -> None:
            raise OSError("No space left on device (os error 28)")

    table = MessagesTable(path)
    table._table = Full(table._table)
    with pytest.raises(WriteFailed, match="the table cannot be written: No space left") as error:
        table.append([written(path, 0)], rows_to(10), None, ())
    assert error.value.path == path


def test_files_with_times_of_96_bits_are_read_to_the_end_of_time(path: str) -> None:
    """Spark may write such; as nanoseconds of 64 bits they would end in 2262."""
    late = datetime(3000, 1, 2, 3, 4, 5, 6, timezone.utc)
    file = written(path, 0)
    whole = Path(path, file.path)
    rows = pq.read_table(whole, partitioning=None)
    column = rows.schema.get_field_index("store_timestamp")
    rows = rows.set_column(column, rows.schema.field(column), pa.array([late], rows.schema.field(column).type))
    pq.write_table(rows, whole, use_deprecated_int96_timestamps=True)
    assert pq.read_schema(whole).field("store_timestamp").type.unit == "ns"
    MessagesTable(path).append([replace(file, size=whole.stat().st_size)], rows_to(10), None, ())
    table = MessagesTable(path)
    assert [row["store_timestamp"] for row in table.last_rows("c", "b", 10, 1)] == [late]
    assert dataset_of(table.files, table.schema).to_table()["store_timestamp"].to_pylist() == [late]


@pytest.mark.parametrize(
    ("there", "free"),
    [
        ([], True),
        (["_delta_log/"], True),
        (["_delta_log/_commits/"], True),
        (["_delta_log/00000000000000000000.json#1"], True),
        (["_delta_log/00000000000000000000.json"], False),
        (["_delta_log/00000000000000000010.checkpoint.parquet"], False),
        (["_delta_log/", "part-0.parquet"], False),
        (["notes.txt"], False),
    ],
)
def test_a_table_is_made_where_there_is_nothing_or_a_log_without_a_version(
    there: list[str], free: bool, tmp_path: Path
) -> None:
    for name in there:
        path = tmp_path / "messages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=True) if name.endswith("/") else path.touch()
    assert _is_free(str(tmp_path / "messages")) is free


@pytest.mark.parametrize("name", messages_table.REQUIRED)
def test_a_table_that_lacks_a_column_it_must_have(tmp_path: Path, name: str) -> None:
    path, kept = str(tmp_path / "t"), [one for one in schemas.MESSAGES.names if one != name]
    partition = ["store_date"] if name != "store_date" else []
    DeltaTable.create(path, schemas.select(kept), partition_by=partition)
    said = f"this Delta table is not `messages`: it has no column {name} ({path})"
    assert error_of(lambda: open_table(path)) == (NotAStore, said, None)


def test_a_table_with_a_column_of_another_type(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    fields = [pa.field("tags", pa.int64()) if field.name == "tags" else field for field in schemas.MESSAGES]
    DeltaTable.create(path, pa.schema([*fields, pa.field("own", pa.int8())]), partition_by=["store_date"])
    said = f"this Delta table is not `messages`: the type of tags is wrong: found int64, expected string ({path})"
    assert error_of(lambda: open_table(path)) == (NotAStore, said, None)


@pytest.mark.parametrize("bodies", [True, False])
def test_a_table_that_was_made(tmp_path: Path, bodies: bool) -> None:
    path = str(tmp_path / "t")
    assert open_table(path) is None
    made = create_table(path, time_zone="Asia/Shanghai", bodies=bodies)
    for table in (made, open_table(path, writes=True)):
        assert table is not None
        assert (table.path, table.version, table.obstacle(), table.state("c", "b")) == (path, 0, None, None)
        assert table.properties == {
            "rocketmq.timeZone": "Asia/Shanghai",
            "delta.dataSkippingStatsColumns": ",".join(schemas.STATISTICS_COLUMNS),
        }
        assert table.schema.names == list((schemas.MESSAGES_WITH_BODY if bodies else schemas.MESSAGES).names)
        assert table.with_columns(schemas.MESSAGES.names) == (table, [])
        assert table.last_rows("c", "b", 100, 5) == []
        for asked in (None, "Asia/Shanghai"):
            assert messages_table.refuse_time_zone(table, asked) == "Asia/Shanghai"
        said = f"the dates of the table are those of another time zone: found UTC, expected Asia/Shanghai ({path})"
        assert error_of(lambda table=table: messages_table.refuse_time_zone(table, "UTC")) == (  # type: ignore[misc]
            Refused, said, None,
        )  # fmt: skip


def test_a_table_without_a_time_zone_has_utc(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, schemas.MESSAGES, partition_by=["store_date"])
    table = open_table(path)
    assert table is not None
    assert table.time_zone == "UTC"


def replaced(path: str, begin: int) -> tuple[list[str], list[int]]:
    """Names of the files that a repair removes, and offsets of the rows that it writes again, a row group each."""
    write = WriteFiles(path, ReadRanges((), RowRules(DispatchRules(()))), "zstd")
    removed, kept = MessagesTable(path).replaced_files(replace(rows_to(99), begin=begin), write)
    groups = [pq.ParquetFile(Path(path, file.path)) for file in kept]
    found = [
        one.read_row_group(number, ["commit_log_offset"])["commit_log_offset"].to_pylist()
        for one in groups
        for number in range(one.num_row_groups)
    ]
    assert not any(set(schemas.RUNS) & set(one.schema_arrow.names) for one in groups)
    return [action.path for action in removed], found


def test_what_a_repair_replaces(path: str) -> None:
    """Files with rows of another broker are written again; a file whose rows all go only goes."""
    mixed = written(path, 0, 10)
    whole = pq.read_table(Path(path, mixed.path), partitioning=None)
    other = whole.set_column(1, whole.schema.field(1), pa.array(["z", "b"]))
    pq.write_table(other, Path(path, mixed.path))
    MessagesTable(path).append([mixed, written(path, 20, 30)], rows_to(40), None, ())
    assert replaced(path, 10) == (["store_date=2023-11-14/b-0.parquet", "store_date=2023-11-14/b-20.parquet"], [[0]])
    assert replaced(path, 40) == ([], [])


def test_rows_that_stay_come_a_row_group_at_a_time(path: str) -> None:
    """A compacted file may have more bodies than memory holds, or than one Arrow array takes (2 GiB)."""
    one = written(path, *range(0, 50, 10))
    pq.write_table(pq.read_table(Path(path, one.path), partitioning=None), Path(path, one.path), row_group_size=2)
    MessagesTable(path).append([one], rows_to(50), None, ())
    assert replaced(path, 40)[1] == [[0, 10], [20, 30]]


def test_rows_that_only_come_are_not_replaced(path: str) -> None:
    load(path, 0)
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(Refused, match=r"delta\.appendOnly keeps the rows that a repair replaces"):
        replaced(path, 0)


# -------------------------------------------------------------------------------------------------------------- commits
@pytest.mark.parametrize(
    ("recorded", "state"),
    [
        ({}, None),
        ({"c/other/0": 7, "c/b/": 1}, None),
        ({"c/other/0": 7, "c/b/0": 5}, BrokerState(5, 0)),
        ({"c/b/0": 900, "c/b/1": 300, "c/b/2": 200}, BrokerState(200, 2)),  # the last, also if it ends further back
        ({"c/b/1": 300}, BrokerState(300, 1)),  # a repair of a table that was copied without transactions
        ({"c/b/0": 900, "c/b/topics/0": 77}, BrokerState(900, 0, 77)),
        ({"c/b/0": 900, "c/b/topics/0": 77, "c/b/1": 950}, BrokerState(950, 1)),  # a repair, of all topics
    ],
)
def test_what_transactions_say_of_a_broker(recorded: dict[str, int], state: BrokerState | None) -> None:
    found = {"stream-4": 9, **{f"rocketmq-store-spark/{name}": end for name, end in recorded.items()}}
    assert recorded_state(found.get, "c", "b") == state


def test_the_names_under_which_an_end_is_recorded() -> None:
    what = BrokerRows("a/b", "it's", 3, 9, 0, {})
    prefix, topics = "rocketmq-store-spark/a%2Fb/it%27s", ("%RETRY%g/h", "a,b:3")
    assert recorded_by(what, (), {}.get) == {f"{prefix}/0": 9}
    found = recorded_by(replace(what, tail=77, salvaged_from=5), topics, {f"{prefix}/salvaged/0": 4}.get)
    expected = {f"{prefix}/topics/0": code_of(topics), f"{prefix}/tail/0": 77, f"{prefix}/salvaged/0": 4}
    assert found == {f"{prefix}/0": 9, **expected}
    state = BrokerState(9, 0, code_of(topics), salvaged_from=4, tail=77)
    assert recorded_state(found.get, "a/b", "it's") == state
    assert recorded_state(found.get, "a", "b") is None
    assert len({code_of(()), code_of(topics), code_of(topics[:1])}) == 3


def metadata(*fields: dict[str, Any], partition: str = "store_date", **configuration: str) -> dict[str, Any]:
    ours = [
        {"name": name, "type": "string", "nullable": True, "metadata": {"comment": "c"}}
        for name in schemas.MESSAGES.names
        if name not in {field["name"] for field in fields}
    ]
    return {
        "properties": {f"delta.{name.replace('_', '.')}": value for name, value in configuration.items()},
        "schema": json.dumps({"type": "struct", "fields": [*ours, *fields]}),
        "partition_columns": [partition],
    }


def field(name: str, *, nullable: bool = True, **more: str) -> dict[str, Any]:
    return {"name": name, "type": "string", "nullable": nullable, "metadata": more}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (metadata(), None),
        (metadata(field("note")), None),
        (metadata(appendOnly="true", columnMapping_mode="none", isolationLevel="WriteSerializable"), None),
        (metadata(columnMapping_mode="name"), "column mapping"),
        (metadata(constraints_positive="size > 0"), "the constraint positive"),
        (metadata(field("note", nullable=False)), "NOT NULL of column note"),
        (metadata(field("day", **{"delta.generationExpression": "x"})), "delta.generationExpression of column day"),
        (metadata(partition="topic"), "other partitions than store_date (topic)"),
    ],
)
def test_what_keeps_files_from_being_rows(found: dict[str, Any], expected: str | None) -> None:
    assert obstacle(**found) == expected


def load_commit(end: int, broker: str = "b") -> dict[str, Any]:
    said = {"program": "rocketmq-store-spark", "cluster": "c", "broker": broker, "to_offset": end}
    return {"operation": "WRITE", "userMetadata": json.dumps(said)}


def restore(version: int | None) -> dict[str, Any]:
    return {"operation": "RESTORE", "operationParameters": {"version": version}}


FSCK = {"operation": "FSCK", "operationParameters": {"dry_run": "false"}}
DELETE = {"operation": "DELETE", "userMetadata": "by hand"}
OTHER = load_commit(2000, "other")


def history(*commits: dict[str, Any], first: int = 0) -> list[dict[str, Any]]:
    """Commits from a version on, as they are read: the newest first."""
    return [{**commit, "version": version} for version, commit in enumerate(commits, first)][::-1]


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        ([load_commit(1000), load_commit(2000)], None),
        ([load_commit(1000), load_commit(2000), DELETE], None),
        ([load_commit(1000), load_commit(2000), restore(0)], 2),
        ([load_commit(1000), load_commit(2000), restore(0), OTHER], 2),
        ([load_commit(1000), load_commit(2000), OTHER, restore(1)], None),
        ([load_commit(1000), load_commit(2000), OTHER, restore(2), DELETE], None),
        ([load_commit(1000), load_commit(2000), restore(0), restore(1)], None),
        ([load_commit(1000), load_commit(2000), restore(0), restore(1), restore(2)], 4),
        ([load_commit(1000), load_commit(2000), restore(None)], 2),
        ([load_commit(1000), restore(0), load_commit(2000)], None),
        ([DELETE, restore(0)], None),
        ([load_commit(1000), load_commit(2000), FSCK], 2),
        ([load_commit(1000), load_commit(2000), restore(0), FSCK], 3),
        ([load_commit(1000), FSCK, load_commit(2000)], None),
    ],
)
def test_which_restore_took_the_rows_of_a_load(commits: list[dict[str, Any]], found: int | None) -> None:
    taken = taken_away(history(*commits), "c", "b", 2000)
    assert taken == (None if found is None else (found, commits[found]["operation"]))


@pytest.mark.parametrize(("target", "found"), [(2, (5, "RESTORE")), (4, None)])
def test_a_restore_to_a_version_that_delta_cleaned_up(target: int, found: tuple[int, str] | None) -> None:
    """The load's own commit is gone from the log."""
    assert taken_away(history(OTHER, restore(target), first=4), "c", "b", 2000) == found


@pytest.mark.parametrize("said", ["null", "7", "[]", "{}", '"x"', "{x", None])
def test_metadata_of_others_is_no_load(said: str | None) -> None:
    assert loads_of({"version": 1, "userMetadata": said}, "c", "b") is None
