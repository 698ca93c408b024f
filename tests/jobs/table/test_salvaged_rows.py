"""Rows of a damaged log say so, and a log that is sound again names the repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from support.loading import load_here
from support.store_builder import LogBuilder

from jobs.table.commits import BrokerRows, BrokerState, recorded_by, recorded_state
from jobs.table.load import first_doubt
from udfs.table import schemas
from udfs.table.rows import Doubt

Row = dict[str, Any]
SEGMENT = 4096


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(SEGMENT)
    for number in range(60):
        log.message(topic=f"T{number % 2}", queue_id=number % 3, body=b"x" * 100, keys=f"k{number}")
    return log


def damage(root: Path, offset: int, content: bytes) -> None:
    base = offset - offset % SEGMENT
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(offset - base)
        file.write(content)


def rows(table: Path) -> list[Row]:
    found: list[Row] = deltalake.DeltaTable(str(table)).to_pyarrow_table().sort_by("commit_log_offset").to_pylist()
    return found


def values(found: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in ("salvaged", *schemas.RUNS)} for row in found]


def broken(log: LogBuilder, root: Path) -> tuple[int, int]:
    """Damages a record's head, and another one's queue id, which nothing checks; returns their offsets."""
    head, stray = log.records[10].offset, log.records[31].offset
    damage(root, head, b"\xff" * 30)
    damage(root, stray + 12, (77).to_bytes(4, "big"))
    return head, stray


def test_a_salvage_is_marked_and_put_right(log: LogBuilder, tmp_path: Path) -> None:
    root, table, sound = log.write(tmp_path / "s"), tmp_path / "t", tmp_path / "sound"
    load_here(root, sound)
    head, stray = broken(log, root)
    report = load_here(root, table, on_damage="salvage")
    assert (report["status"], report["rows"]) == ("damaged", 58)
    found = rows(table)
    there = [record.offset for record in log.records if record.offset not in (head, stray)]
    assert [row["commit_log_offset"] for row in found] == there
    past = {offset for offset in there if head < offset < head - head % SEGMENT + SEGMENT}
    assert {row["commit_log_offset"] for row in found if row["salvaged"]} == past
    assert {row["salvaged"] for row in found} == {True, False}

    again = load_here(root, table, on_damage="salvage")
    assert (again["rows"], again["skipped"], again.exit_code, "repair_from" in again) == (0, True, 0, False)

    log.message(topic="T0", queue_id=0, body=b"new")
    log.write(root)
    load_here(root, sound)
    said = load_here(root, table)
    assert (said["status"], said.exit_code, said["rows"], said["repair_from"]) == ("differences", 1, 1, head)
    assert (
        f"rows from offset {head} on were read past damage of the log, which is sound again: --repair-from {head}"
        in (" ".join(said["notes"]))
    )
    assert values(rows(table)) != values(rows(sound))
    repaired = load_here(root, table, repair_from=head)
    assert (repaired["status"], repaired["skipped"], "repair_from" in repaired) == ("ok", False, False)
    assert values(rows(table)) == values(rows(sound))
    assert not any(row["salvaged"] for row in rows(table))
    assert "repair_from" not in load_here(root, table)


def test_an_older_table_gets_the_column(log: LogBuilder, tmp_path: Path) -> None:
    root, table = log.write(tmp_path / "s"), tmp_path / "t"
    older = pa.schema([field for field in schemas.MESSAGES if field.name != "salvaged"])
    properties = {"rocketmq.timeZone": "UTC"}
    deltalake.DeltaTable.create(
        str(table), older, partition_by=["store_date"], configuration=properties, raise_if_key_not_exists=False
    )
    report = load_here(root, table)
    assert "the table got the column salvaged, which older rows do not have" in report["notes"]
    assert {row["salvaged"] for row in rows(table)} == {False}
    assert "notes" not in load_here(root, table) or "salvaged" not in str(load_here(root, table)["notes"])
    comments = {field.name: field.metadata.get("comment") for field in deltalake.DeltaTable(str(table)).schema().fields}
    assert comments["salvaged"] == schemas.MESSAGES.field("salvaged").metadata[b"comment"].decode()


def test_where_a_salvage_is_recorded() -> None:
    what = BrokerRows("c", "b", 0, 900, 2, {}, salvaged_from=300)
    name = "rocketmq-store-spark/c/b/salvaged/2"
    assert recorded_by(what, (), {}.get)[name] == 300
    assert recorded_by(what, (), {name: 100}.get)[name] == 100
    assert name not in recorded_by(BrokerRows("c", "b", 0, 900, 2, {}), (), {name: 100}.get)
    recorded = {
        "rocketmq-store-spark/c/b/1": 7,
        "rocketmq-store-spark/c/b/2": 900,
        name: 100,
        "rocketmq-store-spark/c/b/salvaged/1": 5,
    }
    assert recorded_state(recorded.get, "c", "b") == BrokerState(900, 2, salvaged_from=100)


def test_what_is_doubted() -> None:
    doubt = Doubt(((10, 20), (40, 50)), (33,))
    assert doubt.salvaged(np.array([9, 10, 19, 20, 33, 40, 50])).tolist() == [
        False,
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert [first_doubt(doubt, begin) for begin in (0, 15, 20, 34, 50)] == [10, 15, 33, 40, None]
    assert [doubt.meets(*span) for span in ((0, 10), (0, 11), (20, 33), (20, 34), (50, 60))] == [
        False, True, False, True, False,
    ]  # fmt: skip
