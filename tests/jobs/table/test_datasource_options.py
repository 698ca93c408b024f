"""What the options of ``format("rocketmq-commitlog")`` mean, without a session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from support.store_builder import LogBuilder

from jobs.contract.options import LogOptions
from jobs.log.opening import OpenedStore, open_store
from jobs.table.datasource import CommitLogSource, defects, first_times, plan_partitions
from storeformat.errors import UsageError
from udfs.table import schemas
from udfs.table.rows import HEAD_COLUMNS


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
    """Begin and end of what tasks read, and whether that is proven."""
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
