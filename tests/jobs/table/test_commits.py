"""What a table's transactions and properties say, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException

from jobs.table.commits import (
    Actions,
    BrokerRows,
    BrokerState,
    Overtaken,
    _added,
    append,
    commits_back_from,
    plain_trouble,
    recorded_state,
    restored_before,
    takes_files,
    transaction_names,
    understanding,
)
from storeformat.errors import MissingInput, NotAStore
from udfs.table import schemas
from udfs.table.parquet_files import WrittenFile


def test_no_transaction_of_the_broker() -> None:
    others = {"rocketmq-store-spark/c/other/0": 7, "rocketmq-store-spark/c/b/": 1, "stream-4": 9}
    assert recorded_state({}, "c", "b") is None
    assert recorded_state(others, "c", "b") is None


def test_the_last_epoch_counts_also_where_it_ends_further_back() -> None:
    found = {f"rocketmq-store-spark/c/b/{epoch}": end for epoch, end in ((0, 900), (9, 300), (10, 200))}
    assert recorded_state(found, "c", "b") == BrokerState(200, 10)


def test_the_topics_of_an_epoch() -> None:
    found = {
        "rocketmq-store-spark/c/b/0": 900,
        "rocketmq-store-spark/c/b/0/%25RETRY%25g,a%2Cb%3A3": 900,
    }
    assert recorded_state(found, "c", "b") == BrokerState(900, 0, ("%RETRY%g", "a,b:3"))
    repaired = {**found, "rocketmq-store-spark/c/b/1": 950}
    assert recorded_state(repaired, "c", "b") == BrokerState(950, 1)


def test_a_broker_that_comes_after_others() -> None:
    found = {"stream-4": 9, "rocketmq-store-spark/c/other/0": 7, "rocketmq-store-spark/c/b/0": 5}
    assert recorded_state(found, "c", "b") == BrokerState(5, 0)


def test_the_names_under_which_an_end_is_recorded() -> None:
    what = BrokerRows("a/b", "it's", 3, None, 9, 4, {})
    assert transaction_names(what, ()) == ["rocketmq-store-spark/a%2Fb/it%27s/4"]
    assert transaction_names(what, ("%RETRY%g/h", "a,b:3")) == [
        "rocketmq-store-spark/a%2Fb/it%27s/4",
        "rocketmq-store-spark/a%2Fb/it%27s/4/%25RETRY%25g%2Fh,a%2Cb%3A3",
    ]


def test_an_added_file_as_deltas_protocol_has_it() -> None:
    file = WrittenFile("store_date=2026-11-21/part-0.parquet", "2026-11-21", 7, 900, '{"numRecords":7}')
    assert _added(file, 1_700_000_000_000) == {
        "add": {
            "path": "store_date=2026-11-21/part-0.parquet",
            "partitionValues": {"store_date": "2026-11-21"},
            "size": 900,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": '{"numRecords":7}',
        }
    }


def test_names_with_slashes_and_quotes() -> None:
    found = {"rocketmq-store-spark/a%2Fb/it%27s/0": 5}
    assert recorded_state(found, "a/b", "it's") == BrokerState(5, 0)
    assert recorded_state(found, "a", "b") is None
    what = BrokerRows("a\\b", "it's", 3, None, 9, 1, {})
    assert what.condition == "cluster = 'a\\\\b' AND broker = 'it\\'s' AND commit_log_offset >= 3"


def metadata(*fields: dict[str, Any], partition: str = "store_date", **configuration: str) -> dict[str, Any]:
    ours = [
        {"name": name, "type": "string", "nullable": True, "metadata": {"comment": "c"}}
        for name in schemas.MESSAGES.names
        if name not in {field["name"] for field in fields}
    ]
    return {
        "configuration": {f"delta.{name.replace('_', '.')}": value for name, value in configuration.items()},
        "schemaString": json.dumps({"type": "struct", "fields": [*ours, *fields]}),
        "partitionColumns": [partition],
    }


def field(name: str, *, nullable: bool = True, **more: str) -> dict[str, Any]:
    return {"name": name, "type": "string", "nullable": nullable, "metadata": more}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (metadata(), True),
        (metadata(field("note")), True),
        (metadata(appendOnly="true", columnMapping_mode="none", isolationLevel="Serializable"), True),
        (metadata(columnMapping_mode="name"), False),
        (metadata(isolationLevel="WriteSerializable"), False),
        (metadata(enableRowTracking="true"), False),
        (metadata(constraints_positive="size > 0"), False),
        (metadata(field("note", nullable=False)), False),
        (metadata(field("day", **{"delta.generationExpression": "store_date"})), False),
        (metadata(partition="topic"), False),
    ],
)
def test_which_tables_take_files_as_they_are(found: dict[str, Any], expected: bool) -> None:
    assert takes_files(found) is expected


def test_a_table_without_a_column_takes_none() -> None:
    found = metadata()
    schema = json.loads(found["schemaString"])
    schema["fields"].pop()
    assert not takes_files({**found, "schemaString": json.dumps(schema)})


PREFIX = "rocketmq-store-spark/c/b/"


@pytest.mark.parametrize(
    ("epoch", "seen", "recorded", "overtaken"),
    [
        (3, BrokerState(900, 3), {"3": 900}, False),
        (3, BrokerState(900, 3), {"3": 950}, True),
        (3, BrokerState(900, 3), {"3": 900, "4": 0}, True),
        (3, BrokerState(900, 3), {}, True),
        (0, None, {}, False),
        (0, None, {"0": 0}, True),
        (0, None, {"1": 5}, True),
    ],
)
def test_rows_are_added_only_to_the_state_they_were_made_for(
    epoch: int, seen: BrokerState | None, recorded: dict[str, int], *, overtaken: bool
) -> None:
    """Another load of the broker, or a repair, which begins the next epoch, may have been committed meanwhile."""
    log = MagicMock()
    transaction = log.startTransaction()
    transaction.txnVersion = lambda name: recorded.get(name.removeprefix(PREFIX), -1)
    what = BrokerRows("c", "b", 900, None, 1000, epoch, {})
    if overtaken:
        with pytest.raises(Overtaken, match="c/b was loaded meanwhile"):
            append(MagicMock(), log, [], what, seen, [])
        transaction.commit.assert_not_called()
    else:
        append(MagicMock(), log, [], what, seen, [])
        transaction.commit.assert_called_once()


LOAD = "rocketmq-store-spark/c/b/0"


def load(end: int, name: str = LOAD) -> dict[str, Any]:
    return {"txn": {"appId": name, "version": end}}


def restore(version: int | None) -> dict[str, Any]:
    return {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": version}}}


DELETE = {"commitInfo": {"operation": "DELETE", "operationParameters": {"predicate": "[]"}}}
OTHER = load(2000, "rocketmq-store-spark/c/other/0")


def history(*commits: dict[str, Any]) -> Sequence[tuple[int, Actions]]:
    """Commits from version 0 on, as they are read: the newest first."""
    return [(version, [action]) for version, action in enumerate(commits)][::-1]


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        ([load(1000), load(2000)], None),
        ([load(1000), load(2000), DELETE], None),
        ([load(1000), load(2000), restore(0)], 2),
        ([load(1000), load(2000), restore(0), OTHER], 2),
        ([load(1000), load(2000), OTHER, restore(1)], None),
        ([load(1000), load(2000), OTHER, restore(2), DELETE], None),
        ([load(1000), load(2000), restore(0), restore(1)], None),
        ([load(1000), load(2000), restore(0), restore(1), restore(2)], 4),
        ([load(1000), load(2000), restore(None)], 2),
        ([load(1000), restore(0), load(2000)], None),
        ([DELETE, restore(0)], None),
    ],
)
def test_which_restore_took_the_rows_of_a_load(commits: list[dict[str, Any]], found: int | None) -> None:
    assert restored_before(history(*commits), LOAD, 2000) == found


def test_commits_are_read_as_far_back_as_delta_kept_them(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for version in (3, 4):
        text = "".join(f"{json.dumps(action)}\n" for action in (load(version), DELETE))
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(text, encoding="utf-8")
    assert list(commits_back_from(str(tmp_path), 4)) == [(4, [load(4), DELETE]), (3, [load(3), DELETE])]


@pytest.mark.parametrize("sign", ["DELTA_REPLACE_WHERE_MISMATCH", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"])
def test_rows_that_a_constraint_forbids_are_no_defect(sign: str) -> None:
    with pytest.raises(NotAStore, match="a constraint of the table forbids rows of this log"), plain_trouble("/t"):
        raise PySparkException(f"[{sign}] CHECK constraint positive (size > 100) violated by row")


@pytest.mark.parametrize(
    "actions",
    [
        [{"txn": {"appId": LOAD}}],
        [{"commitInfo": 1}],
        [{"commitInfo": {"operation": "RESTORE", "operationParameters": 1}}],
        [{"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": "x"}}}],
        [{"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": 7}}}],
    ],
)  # fmt: skip
def test_a_history_that_delta_did_not_write(actions: list[dict[str, Any]]) -> None:
    with pytest.raises(MissingInput, match="not as Delta writes one"), understanding("/table"):
        restored_before([(7, actions)], LOAD, 2000)
