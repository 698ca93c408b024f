"""What a table's transactions and properties say, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.table.commits import (
    Actions,
    BrokerRows,
    BrokerState,
    Overtaken,
    commits_back_from,
    obstacle,
    recorded_by,
    recorded_state,
    refuse_overtaken,
    taken_away,
    understanding,
)
from storeformat.errors import MissingInput
from udfs.table import schemas


@pytest.mark.parametrize(
    ("recorded", "state"),
    [
        ({}, None),
        ({"c/other/0": 7, "c/b/": 1}, None),
        ({"c/other/0": 7, "c/b/0": 5}, BrokerState(5, 0)),
        ({"c/b/0": 900, "c/b/9": 300, "c/b/10": 200}, BrokerState(200, 10)),  # the last, also if it ends further back
        ({"c/b/0": 900, "c/b/0/%25RETRY%25g,a%2Cb%3A3": 900}, BrokerState(900, 0, ("%RETRY%g", "a,b:3"))),
        ({"c/b/0": 900, "c/b/0/T": 900, "c/b/1": 950}, BrokerState(950, 1)),  # a repair, of all topics
    ],
)
def test_what_transactions_say_of_a_broker(recorded: dict[str, int], state: BrokerState | None) -> None:
    found = {"stream-4": 9, **{f"rocketmq-store-spark/{name}": end for name, end in recorded.items()}}
    assert recorded_state(found, "c", "b") == state


def test_the_names_under_which_an_end_is_recorded() -> None:
    what = BrokerRows("a/b", "it's", 3, 9, 4, {})
    prefix = "rocketmq-store-spark/a%2Fb/it%27s"
    assert recorded_by(what, (), {}) == {f"{prefix}/4": 9}
    found = recorded_by(replace(what, tail=77), ("%RETRY%g/h", "a,b:3"), {})
    assert found == {f"{prefix}/4": 9, f"{prefix}/4/%25RETRY%25g%2Fh,a%2Cb%3A3": 9, f"{prefix}/tail/4": 77}
    assert recorded_state(found, "a/b", "it's") == BrokerState(9, 4, ("%RETRY%g/h", "a,b:3"), tail=77)
    assert recorded_state(found, "a", "b") is None


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
    assert obstacle(found) == expected


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
    what = BrokerRows("c", "b", 900, 1000, epoch, {})
    transactions = {f"{PREFIX}{name}": end for name, end in recorded.items()}
    with pytest.raises(Overtaken, match="c/b was loaded meanwhile") if overtaken else nullcontext():
        refuse_overtaken(transactions, what, seen)


LOAD = "rocketmq-store-spark/c/b/0"


def load(end: int, name: str = LOAD) -> dict[str, Any]:
    return {"txn": {"appId": name, "version": end}}


def restore(version: int | None) -> dict[str, Any]:
    return {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": version}}}


FSCK = {"commitInfo": {"operation": "FSCK", "operationParameters": {"dry_run": "false"}}}
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
        ([load(1000), load(2000), FSCK], 2),
        ([load(1000), load(2000), restore(0), FSCK], 3),
        ([load(1000), FSCK, load(2000)], None),
    ],
)
def test_which_restore_took_the_rows_of_a_load(commits: list[dict[str, Any]], found: int | None) -> None:
    taken = taken_away(history(*commits), LOAD, 2000)
    assert taken == (None if found is None else (found, commits[found]["commitInfo"]["operation"]))


@pytest.mark.parametrize(("target", "found"), [(2, (5, "RESTORE")), (4, None)])
def test_a_restore_to_a_version_that_delta_cleaned_up(target: int, found: tuple[int, str] | None) -> None:
    """The load's own commit is gone from the log."""
    assert taken_away([(5, [restore(target)]), (4, [OTHER])], LOAD, 2000) == found


def test_commits_are_read_as_far_back_as_delta_kept_them(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for version in (3, 4):
        text = "".join(f"{json.dumps(action)}\n" for action in (load(version), DELETE))
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(text, encoding="utf-8")
    assert list(commits_back_from(str(tmp_path), 4)) == [(4, [load(4), DELETE]), (3, [load(3), DELETE])]


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
        taken_away([(7, actions)], LOAD, 2000)
