"""What delta-rs is let to read and to commit to, and what it says of a table."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from support.patching import stand_in

from jobs.table import plain_table
from jobs.table.commits import BrokerRows, BrokerState, Commit, Overtaken
from jobs.table.messages_table import IDENTITY
from jobs.table.plain_table import NotPlain, PlainTable, open_plain
from storeformat.errors import MissingInput, WriteFailed
from udfs.table import schemas
from udfs.table.parquet_files import WrittenFile


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "messages")
    plain_table.create(found, schemas.MESSAGES, {"rocketmq.timeZone": "UTC"})
    return found


def rows_to(end: int, epoch: int = 0, broker: str = "b") -> BrokerRows:
    return BrokerRows("c", broker, 0, None, end, epoch, {"to": end})


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
    return PlainTable(path).append([written(path, *offsets, broker=broker)], what, seen, ()).version


def test_what_was_loaded_is_known(path: str) -> None:
    assert PlainTable(path).state("c", "b") is None
    assert load(path, 0, 10, 20) == 1
    assert load(path, 30, 40, seen=BrokerState(30, 0)) == 2
    load(path, 5, broker="other")
    table = PlainTable(path)
    assert (table.state("c", "b"), table.state("c", "x")) == (BrokerState(50, 0), None)
    information = DeltaTable(path).history(1)[0]
    assert json.loads(information["userMetadata"]) == {"to": 15}


def test_a_checkpoint_keeps_what_was_loaded(path: str) -> None:
    load(path, 0)
    load(path, 10, broker="other")
    DeltaTable(path).create_checkpoint()
    for version in range(2):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    load(path, 20, seen=BrokerState(20, 0), broker="other")
    table = PlainTable(path)
    assert (table.state("c", "b"), table.state("c", "other")) == (BrokerState(10, 0), BrokerState(30, 0))


def test_a_checkpoint_of_parts_keeps_it_too(path: str) -> None:
    """As Spark writes it where a table has many files."""
    load(path, 0)
    load(path, 10, broker="other")
    DeltaTable(path).create_checkpoint()
    log = Path(path, "_delta_log")
    (log / f"{2:020d}.checkpoint.parquet").rename(log / f"{2:020d}.checkpoint.{1:010d}.{1:010d}.parquet")
    told = json.loads((log / "_last_checkpoint").read_text())
    (log / "_last_checkpoint").write_text(json.dumps({"version": 2, "size": told["size"], "parts": 1}))
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    table = PlainTable(path)
    assert (table.state("c", "b"), table.state("c", "other")) == (BrokerState(10, 0), BrokerState(20, 0))


@pytest.mark.parametrize(("interval", "versions"), [(None, [10, 20]), ("7", [6, 13, 20])])
def test_loads_write_checkpoints(tmp_path: Path, interval: str | None, versions: list[int]) -> None:
    """Every tenth version as Delta does, or as the table says; delta-rs counts from the first version."""
    path = str(tmp_path / "messages")
    plain_table.create(path, schemas.MESSAGES, {"delta.checkpointInterval": interval} if interval else {})
    for number in range(23):
        load(path, number * 10, seen=BrokerState(number * 10, 0) if number else None)
    log = Path(path, "_delta_log")
    assert [int(file.name[:20]) for file in sorted(log.glob("*.checkpoint.parquet"))] == versions
    for version in range(versions[-1] + 1):
        (log / f"{version:020d}.json").unlink()
    assert PlainTable(path).state("c", "b") == BrokerState(230, 0)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 23


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_version_that_others_have_left_behind_is_read_as_it_was(path: str, cleaned: bool) -> None:
    """What tells the newest checkpoint tells one of a version after it."""
    for number in range(12):
        load(path, number * 10, seen=BrokerState(number * 10, 0) if number else None)
    table = PlainTable(path)
    if cleaned:
        for version in range(10):
            Path(path, "_delta_log", f"{version:020d}.json").unlink()
    for number in range(12, 21):
        load(path, number * 10, seen=BrokerState(number * 10, 0))
    assert json.loads(Path(path, "_delta_log", "_last_checkpoint").read_text())["version"] == 20
    table.require_whole_log()
    assert table.state("c", "b") == BrokerState(120, 0)


def test_a_checkpoint_that_fails_takes_no_load_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    monkeypatch.setattr(plain_table, "_VERSIONS_A_CHECKPOINT", 1)
    assert load(path, 0) == 1


def test_a_log_that_lacks_versions_is_deltas_own_affair(path: str) -> None:
    load(path, 0)
    load(path, 10, seen=BrokerState(10, 0))
    DeltaTable(path).create_checkpoint()
    load(path, 20, seen=BrokerState(20, 0))
    Path(path, "_delta_log", "_last_checkpoint").unlink()
    Path(path, "_delta_log", f"{0:020d}.json").unlink()
    assert open_plain(path) is None


def test_only_one_of_two_commits_passes(path: str) -> None:
    one, other, third = PlainTable(path), PlainTable(path), PlainTable(path)
    one.append([written(path, 0)], rows_to(10), None, ())
    with pytest.raises(Overtaken, match="c/b was loaded meanwhile"):
        other.append([written(path, 0)], rows_to(10), None, ())
    assert third.append([written(path, 0, broker="z")], rows_to(10, broker="z"), None, ()).version == 2
    late = PlainTable(path)
    PlainTable(path).append([], rows_to(0, epoch=1), None, ())  # what a repair records
    with pytest.raises(Overtaken):
        late.append([written(path, 10)], rows_to(20), BrokerState(10, 0), ())


def test_a_table_whose_properties_changed_takes_no_files(path: str) -> None:
    table = PlainTable(path)
    DeltaTable(path).alter.add_constraint({"positive": "size > 0"})
    with pytest.raises(Overtaken, match="properties"):
        table.append([written(path, 0)], rows_to(10), None, ())


def test_the_last_rows(path: str) -> None:
    load(path, *range(0, 1000, 10))
    load(path, 400, 990, broker="other")
    far = 40 << 30
    load(path, far, seen=BrokerState(1000, 0))
    table = PlainTable(path)
    found = table.last_rows("c", "b", far, 3, IDENTITY)
    assert [row["commit_log_offset"] for row in found] == [990, 980, 970]
    assert tuple(found[0]) == IDENTITY
    assert len(table.last_rows("c", "b", far + 1, 1000, IDENTITY)) == 101
    assert table.last_rows("c", "b", 0, 1, IDENTITY) == []


def test_a_copy_has_rows_and_no_transactions(path: str, tmp_path: Path) -> None:
    load(path, 0, 10, 70)
    copy = str(tmp_path / "copy")
    write_deltalake(copy, DeltaTable(path).to_pyarrow_table(), partition_by=["store_date"])
    assert PlainTable(copy).state("c", "b") == BrokerState(80, 0, recorded=False)
    assert PlainTable(copy).state("c", "x") is None


@pytest.mark.parametrize(
    ("readers", "writers", "features"),
    [(2, 5, None), (3, 7, ["deletionVectors"]), (1, 7, ["clustering"]), (1, 7, ["rowTracking", "appendOnly"])],
)
def test_features_that_are_not_known(path: str, readers: int, writers: int, features: list[str] | None) -> None:
    protocol: dict[str, Any] = {"minReaderVersion": readers, "minWriterVersion": writers}
    if features:
        protocol |= {"writerFeatures": features} | ({"readerFeatures": features} if readers == 3 else {})
    Path(path, "_delta_log", f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}), encoding="utf-8")
    with pytest.raises(NotPlain) as caught:
        PlainTable(path)
    unknown = sorted({*(features or ())} - {"appendOnly"})
    assert str(caught.value) == f"protocol {readers}, {writers}, {unknown}"


def test_features_that_bind_nobody(path: str) -> None:
    features = ["appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    Path(path, "_delta_log", f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}), encoding="utf-8")
    assert PlainTable(path).version == 1


def test_no_table(tmp_path: Path) -> None:
    assert open_plain(str(tmp_path)) is None
    assert open_plain("s3://bucket/messages") is None
    (tmp_path / "file").touch()
    with pytest.raises(WriteFailed, match=r"Not a directory|NotADirectory"):
        plain_table.create(str(tmp_path / "file" / "table"), schemas.MESSAGES, {})


@pytest.mark.parametrize("name", ["my table", "täble", "50%", "a#b?c", "a+b&c=d"])
def test_a_table_has_any_name(tmp_path: Path, name: str) -> None:
    found = str(tmp_path / name / "messages")
    plain_table.create(found, schemas.MESSAGES, {})
    load(found, 0, 10)
    load(found, 20, seen=BrokerState(20, 0))
    table = PlainTable(found)
    assert [row["commit_log_offset"] for row in table.last_rows("c", "b", 1000, 9, IDENTITY)] == [20, 10, 0]
    dates = table.rows().to_table(columns=["store_date"])["store_date"].to_pylist()
    assert dates == [date(2023, 11, 14)] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def actions_of(path: str, version: int) -> dict[str, list[dict[str, Any]]]:
    """What a version of Delta's log holds, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in Path(path, "_delta_log", f"{version:020d}.json").read_text().splitlines():
        ((kind, action),) = json.loads(line).items()
        found.setdefault(kind, []).append(action)
    return found


def test_a_commit_as_deltas_protocol_has_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, plain_table, "time", time=lambda: 7.5)
    one, two = written(path, 0, 10), written(path, 20)
    made = PlainTable(path).append([one, replace(two, delayed=True)], rows_to(30), None, ("T",))
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
        {"appId": "rocketmq-store-spark/c/b/0/T", "version": 30, "lastUpdated": 7500},
    ]
    (information,) = found["commitInfo"]
    assert information["operation"] == "WRITE"
    assert information["userMetadata"] == '{"to": 30}'
    size = str(one.size + two.size)
    assert information["operationMetrics"] == {"numFiles": "2", "numOutputBytes": size, "numOutputRows": "3"}


def test_a_commit_without_delayed_messages_says_so(path: str) -> None:
    assert PlainTable(path).append([written(path, 0)], rows_to(10), None, ()) == Commit(1, 1, delayed=False)
    assert PlainTable(path).append([], rows_to(0, broker="z"), None, ()) == Commit(2, 0, delayed=False)


def test_who_is_slower_each_time_gives_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt is made on the version that is the newest then, later and later."""
    slept: list[float] = []
    stand_in(monkeypatch, plain_table, "time", sleep=slept.append)
    seen: list[int] = []

    class Slow:
        """A table whose version someone else has always just made."""

        def __init__(self, real: DeltaTable) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def create_write_transaction(self, *_: Any, **more: Any) -> None:
            assert more["commit_properties"] is not None
            seen.append(self.real.version())
            load(path, 5, broker=f"other{len(seen)}")
            raise CommitFailedError("somebody was faster")

    table = PlainTable(path)
    opened: list[PlainTable] = [table]

    def reopened(where: str) -> PlainTable:
        assert where == path
        opened.append(PlainTable(where))
        opened[-1]._table = Slow(opened[-1]._table)
        return opened[-1]

    monkeypatch.setattr(plain_table, "_opened", reopened)
    monkeypatch.setattr(plain_table, "_ATTEMPTS", 3)
    table._table = Slow(table._table)
    with pytest.raises(Overtaken, match="other commits were faster"):
        table.append([written(path, 0)], rows_to(10), None, ())
    assert seen == [0, 1, 2]
    assert slept == pytest.approx([0, 0.01, 0.02])


def test_a_log_that_takes_no_version_is_an_error_of_the_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, real: DeltaTable) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def create_write_transaction(self, *_: Any, **__: Any) -> None:
            raise OSError("No space left on device (os error 28)")

    table = PlainTable(path)
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
    PlainTable(path).append([replace(file, size=whole.stat().st_size)], rows_to(10), None, ())
    table = PlainTable(path)
    assert [
        row["store_timestamp"] for row in table.last_rows("c", "b", 10, 1, ("store_timestamp", "commit_log_offset"))
    ] == [late]
    assert table.rows().to_table(columns=["store_timestamp"])["store_timestamp"].to_pylist() == [late]


@pytest.mark.parametrize(
    "told",
    ["", "[]", "1", "{}", '{"version": "x"}', '{"version": 1, "parts": "2"}', '{"version": 1, "parts": 30000000}',
     '{"version": null}', '{"version": 1, "parts": -1e400}'],
)  # fmt: skip
def test_what_tells_no_checkpoint_is_left_to_delta(path: str, told: str) -> None:
    """Thirty million parts would take gigabytes of names."""
    load(path, 0)
    DeltaTable(path).create_checkpoint()
    Path(path, "_delta_log", "_last_checkpoint").write_text(told)
    tracemalloc.start()
    try:
        assert open_plain(path) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "line",
    [b"{x", b"[", b"[1]", b"1", b'"text"', b"null", b"\xff", b'{"txn": {}}', b'{"txn": 1}', b'{"txn": {"appId": []}}',
     b'{"txn": {"appId": "a", "version": "x"}}'],
)  # fmt: skip
def test_a_log_that_delta_did_not_write_cannot_be_read(path: str, line: bytes) -> None:
    load(path, 0)
    table = PlainTable(path)
    with Path(path, "_delta_log", f"{1:020d}.json").open("ab") as commit:
        commit.write(b"\n" + line + b"\n")
    with pytest.raises(MissingInput, match="its log is not as Delta writes one"):
        _ = table.transactions
