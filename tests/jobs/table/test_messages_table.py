"""Where a table can be made, and what Spark must have for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from jobs.table import messages_table, plain_table
from jobs.table.messages_table import _is_free
from storeformat.errors import DependencyMissing, MissingInput, NotAStore, Refused, StoreFormatError
from udfs.table import schemas


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


def error_of(call: Callable[[], object]) -> tuple[type[StoreFormatError], str, str | None]:
    with pytest.raises(StoreFormatError) as caught:
        call()
    return type(caught.value), str(caught.value), caught.value.advice


def no_session() -> Any:
    raise AssertionError("a plain table needs no session")


@pytest.mark.parametrize("name", messages_table.REQUIRED)
def test_a_table_that_lacks_a_column_it_must_have(tmp_path: Path, name: str) -> None:
    path, kept = str(tmp_path / "t"), [one for one in schemas.MESSAGES.names if one != name]
    partition = ["store_date"] if name != "store_date" else []
    deltalake.DeltaTable.create(path, schemas.select(kept), partition_by=partition)
    said = f"this Delta table is not `messages`: it has no column {name} ({path})"
    assert error_of(lambda: messages_table.open_table(no_session, path)) == (NotAStore, said, None)


def test_a_table_with_a_column_of_another_type(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    fields = [pa.field("tags", pa.int64()) if field.name == "tags" else field for field in schemas.MESSAGES]
    deltalake.DeltaTable.create(path, pa.schema([*fields, pa.field("own", pa.int8())]), partition_by=["store_date"])
    said = f"this Delta table is not `messages`: the type of tags is wrong: found bigint, expected string ({path})"
    assert error_of(lambda: messages_table.open_table(no_session, path)) == (NotAStore, said, None)


@pytest.mark.parametrize("bodies", [True, False])
def test_a_table_that_was_made(tmp_path: Path, bodies: bool) -> None:
    path = str(tmp_path / "t")
    assert messages_table.open_table(no_session, path) is None
    made = messages_table.create_table(no_session, path, time_zone="Asia/Shanghai", bodies=bodies)
    for table in (made, messages_table.open_table(no_session, path, writes=True)):
        assert table is not None
        assert (table.path, table.version(), table.takes_files(), table.state("c", "b")) == (path, 0, True, None)
        assert table.properties == {
            "rocketmq.timeZone": "Asia/Shanghai",
            "delta.dataSkippingStatsColumns": ",".join(schemas.STATISTICS_COLUMNS),
        }
        assert table.schema().names == list((schemas.MESSAGES_WITH_BODY if bodies else schemas.MESSAGES).names)
        assert table.add_missing_columns(schemas.MESSAGES.names) == []
        assert table.last_rows("c", "b", 100, 5) == []
        for asked in (None, "Asia/Shanghai"):
            assert messages_table.refuse_time_zone(table, asked) == "Asia/Shanghai"
        said = f"the dates of the table are those of another time zone: found UTC, expected Asia/Shanghai ({path})"
        assert error_of(lambda table=table: messages_table.refuse_time_zone(table, "UTC")) == (  # type: ignore[misc]
            Refused, said, None,
        )  # fmt: skip


def test_a_table_without_a_time_zone_has_utc(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    plain_table.create(path, schemas.MESSAGES, {})
    table = messages_table.open_table(no_session, path)
    assert table is not None
    assert table.time_zone == "UTC"


def spark(
    kind: str = "JavaClass", catalog: str = "x.DeltaCatalog", extensions: str = "DeltaSparkSessionExtension"
) -> Any:
    """A session as far as it is asked for Delta."""
    settings = {"spark.sql.catalog.spark_catalog": catalog, "spark.sql.extensions": extensions}
    log = type(kind, (), {})()
    delta = SimpleNamespace(sql=SimpleNamespace(delta=SimpleNamespace(DeltaLog=log)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=delta)))
    return SimpleNamespace(_jvm=jvm, conf=SimpleNamespace(get=settings.get))


def test_what_spark_needs_for_delta(tmp_path: Path) -> None:
    advice = (
        "./spark-submit.sh brings it; elsewhere: --packages io.delta:delta-spark_4.2_2.13:4.4.0"
        " --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
        " --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    messages_table.require_delta(spark())
    lacks = "Spark has Delta's jar, but not its extension and catalog"
    for session, said in (
        (spark("JavaPackage"), "Spark has no Delta jar"),
        (spark(catalog=""), lacks),
        (spark(extensions=""), lacks),
    ):
        assert error_of(lambda session=session: messages_table.require_delta(session)) == (  # type: ignore[misc]
            DependencyMissing, said, advice,
        )  # fmt: skip
    path = str(tmp_path / "t")
    assert error_of(lambda: messages_table.existing_table(spark(), path)) == (
        MissingInput, f"there is no such table ({path})", "`load` makes one",
    )  # fmt: skip


def test_a_name_in_sql() -> None:
    assert messages_table._quoted("/a`b") == "`/a``b`"


def test_a_setting_that_holds_for_a_while() -> None:
    """A task keeps files of many dates open while rows are replaced, and what was set before comes back."""
    name = "spark.sql.maxConcurrentOutputFileWriters"
    for before in ({}, {name: "7"}):
        settings: dict[str, Any] = dict(before)
        conf = SimpleNamespace(
            get=lambda key, default, settings=settings: settings.get(key, default),
            set=settings.__setitem__, unset=settings.__delitem__,
        )  # fmt: skip
        session: Any = SimpleNamespace(conf=conf)
        with messages_table._no_sort_by_partition(session):
            assert settings == {name: 100}
        assert settings == before


def test_on_s3_what_needs_deltas_writer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table of another kind can be loaded into."""
    advice = "let Spark do it while nobody loads (./spark-submit.sh --setup --with s3), or keep the table elsewhere"
    why = "needs Delta's own writer, and on S3 that one may lose what others commit at the same time"
    path = "s3://b/t"
    monkeypatch.setattr(plain_table, "open_plain", lambda _: None)
    monkeypatch.setattr(messages_table, "_is_free", lambda _: False)
    assert error_of(lambda: messages_table.open_table(no_session, path, writes=True)) == (
        Refused, f"this table has properties or features that {why} ({path})", advice,
    )  # fmt: skip
