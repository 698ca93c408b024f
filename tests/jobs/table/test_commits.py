"""What a table's transactions and properties say, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jobs.table.commits import (
    BrokerRows,
    BrokerState,
    code_of,
    loads_of,
    obstacle,
    recorded_by,
    recorded_state,
    taken_away,
)
from udfs.table import schemas


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


def load(end: int, broker: str = "b") -> dict[str, Any]:
    said = {"program": "rocketmq-store-spark", "cluster": "c", "broker": broker, "to_offset": end}
    return {"operation": "WRITE", "userMetadata": json.dumps(said)}


def restore(version: int | None) -> dict[str, Any]:
    return {"operation": "RESTORE", "operationParameters": {"version": version}}


FSCK = {"operation": "FSCK", "operationParameters": {"dry_run": "false"}}
DELETE = {"operation": "DELETE", "userMetadata": "by hand"}
OTHER = load(2000, "other")


def history(*commits: dict[str, Any], first: int = 0) -> list[dict[str, Any]]:
    """Commits from a version on, as they are read: the newest first."""
    return [{**commit, "version": version} for version, commit in enumerate(commits, first)][::-1]


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
        ([load(1000), load(2000), FSCK], 2),
        ([load(1000), load(2000), restore(0), FSCK], 3),
        ([load(1000), FSCK, load(2000)], None),
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
