"""A snapshot of committed offsets per load, beside the table of messages."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pytest
from support.patching import stand_in
from support.store_to_start import StoreToStart, healthy_store

from jobs.contract.options import LoadOptions
from jobs.log.opening import open_store
from jobs.report import views
from jobs.table import load
from jobs.table.load import SCHEMA, add_snapshot
from storeformat.errors import NotAStore, WriteFailed


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
    together = threading.Barrier(4, timeout=120)

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
    assert note.startswith("committed offsets are not in messages_consumer_offsets: ")
    assert "consumerOffset.json is torn" in note


def test_a_whole_snapshot(store: StoreToStart, tmp_path: Path) -> None:
    """Of a group that lags behind the log's begin, what was deleted counts apart."""
    begun = datetime.now(timezone.utc)
    store.segment(0).unlink()
    store.commit({"Orders@readers": {0: 2}})
    assert add(store, tmp_path / "messages") == (1, [])
    (row,) = rows(tmp_path / "messages")
    assert begun <= row.pop("loaded_at") <= datetime.now(timezone.utc)
    assert row == {
        "cluster": "c", "broker": "a", "group": "readers", "topic": "Orders", "queue_id": 0, "committed": 2,
        "queue_begin": 6, "queue_end": 10, "lag": 4, "deleted": 4,
    }  # fmt: skip


def test_stores_and_tables_elsewhere_have_none(store: StoreToStart, tmp_path: Path) -> None:
    options = LoadOptions(store=str(store.root), table="s3://b/t", cluster="c", broker="b")
    opened = open_store(options, needs_index_sizes=False)
    assert add_snapshot(opened, options, "s3://b/t") == (0, [])
    assert add_snapshot(replace(opened, root="s3://b/s"), options, str(tmp_path / "t")) == (0, [])


@pytest.mark.parametrize(
    ("errors", "tries", "fails"),
    [([], 1, False), (["race"] * 4, 5, False), (["race"] * 5, 5, True), (["disk"], 1, True)],
)
def test_a_snapshot_that_others_hinder(
    monkeypatch: pytest.MonkeyPatch, errors: list[str], tries: int, fails: bool
) -> None:
    """Another load that makes the table is waited for, longer and longer; a disk is not."""
    calls: list[tuple[str, Any, dict[str, Any]]] = []
    slept: list[float] = []

    def write(path: str, table: Any, **more: Any) -> None:
        calls.append((path, table, more))
        if len(calls) <= len(errors):
            kind = deltalake.exceptions.DeltaError if errors[len(calls) - 1] == "race" else OSError
            raise kind("what it says\nand more")

    monkeypatch.setattr(load.deltalake, "write_deltalake", write)
    stand_in(monkeypatch, load, "time", sleep=slept.append)
    table = SCHEMA.empty_table()
    if fails:
        with pytest.raises(WriteFailed) as caught:
            load._append("/t", table)
        assert str(caught.value) == "a snapshot of committed offsets was not added: what it says (/t)"
    else:
        load._append("/t", table)
    assert calls == [("/t", table, {"mode": "append", "name": "consumer_offsets"})] * tries
    assert slept == pytest.approx([0.1, 0.2, 0.3, 0.4][: tries - 1])


@pytest.mark.spark
def test_the_view_lag_has_the_newest_snapshot_of_each_broker(spark: Any, store: StoreToStart, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    for broker in ("a", "a", "b"):
        add(store, table, broker)
    session = spark.newSession()
    found = session.createDataFrame(deltalake.DeltaTable(f"{table}_consumer_offsets").to_pyarrow_table())
    found.createOrReplaceTempView("consumer_offsets")
    (statement,) = views.statements(views.sql_text("views", "lag.sql"))
    session.sql(statement)
    counted = session.sql("SELECT broker, count(*) AS queues, sum(lag) AS lag FROM lag GROUP BY broker ORDER BY broker")
    assert [tuple(row) for row in counted.collect()] == [("a", 4, 4), ("b", 4, 4)]


def test_a_pipe_in_its_log_is_refused(store: StoreToStart, tmp_path: Path) -> None:
    """delta-rs would wait for somebody who writes into it."""
    log = tmp_path / "table_consumer_offsets" / "_delta_log"
    log.mkdir(parents=True)
    os.mkfifo(log / f"{0:020d}.json")
    with pytest.raises(NotAStore, match="this is not a file of Delta's log"):
        add(store, tmp_path / "table")
