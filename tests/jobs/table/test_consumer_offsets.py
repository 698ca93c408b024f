"""A snapshot of committed offsets per load, beside the table of messages."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pytest
from support.store_to_start import StoreToStart, healthy_store

from jobs.contract.options import LoadOptions
from jobs.log.opening import open_store
from jobs.report import functions
from jobs.table.consumer_offsets import SCHEMA, add_snapshot


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    return healthy_store(tmp_path / "store")


def add(store: StoreToStart, table: Path, broker: str = "a") -> tuple[int, list[str]]:
    options = LoadOptions(
        store=str(store.root), table=str(table), cluster="c", broker=broker, settings=tuple(store.conf.items())
    )
    return add_snapshot(open_store(options, needs_index_sizes=False), options, str(table))


def rows(table: Path) -> list[dict[str, Any]]:
    return list(deltalake.DeltaTable(f"{table}_consumer_offsets").to_pyarrow_table().to_pylist())


def test_each_load_adds_a_snapshot(store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    assert add(store, table) == (4, [])
    store.commit({"Orders@readers": {0: 2, 1: 99}})
    assert add(store, table) == (2, [])
    found = rows(table)
    assert list(found[0]) == SCHEMA.names
    newest = max(row["loaded_at"] for row in found)
    assert [
        (row["group"], row["topic"], row["queue_id"], row["committed"], row["queue_end"], row["lag"])
        for row in sorted(found, key=lambda row: row["queue_id"])
        if row["loaded_at"] == newest
    ] == [("readers", "Orders", 0, 2, 10, 8), ("readers", "Orders", 1, 99, 10, 0)]


def test_loads_of_several_brokers_may_make_the_table_at_once(store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    together = threading.Barrier(4, timeout=20)

    def one(number: int) -> tuple[int, list[str]]:
        together.wait()
        return add(store, table, f"broker-{number}")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [(4, [])] * 4
    assert len(rows(table)) == 16


def test_without_offsets_there_is_no_table(store: StoreToStart, tmp_path: Path) -> None:
    store.config("consumerOffset.json").unlink()
    assert add(store, tmp_path / "messages") == (0, [])
    assert not (tmp_path / "messages_consumer_offsets").exists()


def test_torn_offsets_are_a_note(store: StoreToStart, tmp_path: Path) -> None:
    store.config("consumerOffset.json").write_text("{")
    count, (note,) = add(store, tmp_path / "messages")
    assert count == 0
    assert "consumerOffset.json is torn" in note


@pytest.mark.spark
def test_the_view_lag_has_the_newest_snapshot_of_each_broker(spark: Any, store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    for broker in ("a", "a", "b"):
        add(store, table, broker)
    session = spark.newSession()
    found = session.createDataFrame(deltalake.DeltaTable(f"{table}_consumer_offsets").to_pyarrow_table())
    found.createOrReplaceTempView("consumer_offsets")
    (statement,) = functions.statements(functions.sql_text("views", "lag.sql"))
    session.sql(statement)
    counted = session.sql("SELECT broker, count(*) AS queues, sum(lag) AS lag FROM lag GROUP BY broker ORDER BY broker")
    assert [tuple(row) for row in counted.collect()] == [("a", 4, 4), ("b", 4, 4)]
