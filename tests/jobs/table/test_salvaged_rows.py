"""Rows of a damaged log say so, and a log that is sound again puts them right: those that differ, and no other."""

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
from jobs.table.salvaged_rows import _differing, first_doubt
from storeformat.errors import MissingInput, Refused, UsageError
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
    assert (again["rows"], again["skipped"]) == (0, True)
    assert "differing_rows" not in again
    with pytest.raises(Refused, match="the log is still damaged: nothing shows what the rows should be"):
        load_here(root, table, repair_damaged=True)

    log.message(topic="T0", queue_id=0, body=b"new")
    log.write(root)
    load_here(root, sound)
    said = load_here(root, table)
    assert (said["status"], said.exit_code, said["rows"], said["differing_rows"]) == ("differences", 1, 1, 2)
    assert "2 committed rows differ from the log, which is sound again: --repair-damaged replaces them" in said["notes"]
    assert values(rows(table)) != values(rows(sound))

    version = deltalake.DeltaTable(str(table)).version()
    dry = load_here(root, table, repair_damaged=True, dry_run=True)
    assert (dry["differing_rows"], deltalake.DeltaTable(str(table)).version()) == (2, version)
    repaired = load_here(root, table, repair_damaged=True)
    assert [repaired[name] for name in ("status", "rows", "differing_rows", "version", "skipped")] == [
        "ok", 2, 2, version + 1, False,
    ]  # fmt: skip
    assert values(rows(table)) == values(rows(sound))
    assert {row["commit_log_offset"] for row in rows(table) if row["salvaged"]} == past

    idle = load_here(root, table, repair_damaged=True)
    assert [idle[name] for name in ("status", "rows", "differing_rows", "version", "skipped")] == [
        "ok", 0, 0, version + 1, True,
    ]  # fmt: skip
    log.message(topic="T1", queue_id=1, body=b"newer")
    log.write(root)
    last = load_here(root, table)
    assert (last["status"], last["rows"]) == ("ok", 1)
    load_here(root, sound)
    assert values(rows(table)) == values(rows(sound))


def test_only_files_with_wrong_rows_are_written_again(log: LogBuilder, tmp_path: Path) -> None:
    root, table = log.write(tmp_path / "s"), tmp_path / "t"
    load_here(root, table, broker="other")
    head, _ = broken(log, root)
    load_here(root, table, on_damage="salvage", until_offset=log.records[20].offset)
    before = set(deltalake.DeltaTable(str(table)).file_uris())
    others = [row for row in rows(table) if row["broker"] == "other"]
    log.write(root)
    report = load_here(root, table, repair_damaged=True)
    assert report["differing_rows"] == 1
    after = set(deltalake.DeltaTable(str(table)).file_uris())
    assert before < after, "the lost record is added, and no row is replaced"
    assert [row for row in rows(table) if row["broker"] == "other"] == others
    found = [row["commit_log_offset"] for row in rows(table) if row["broker"] == "b"]
    assert found == [record.offset for record in log.records[:20]]
    assert head in found


def test_a_row_that_is_wrong_is_replaced(log: LogBuilder, tmp_path: Path) -> None:
    """Nothing showed it as it was loaded: where no salvage is recorded, --repair-damaged compares all of the log."""
    root, table, sound = log.write(tmp_path / "s"), tmp_path / "t", tmp_path / "sound"
    load_here(root, sound)
    damage(root, log.records[3].offset + 16, b"\x00\x00\x00\x09")  # the flag
    load_here(root, table)
    log.write(root)
    assert load_here(root, table)["status"] == "ok", "it costs a reading of the log, and is asked for"
    assert load_here(root, table, repair_damaged=True)["differing_rows"] == 1
    assert values(rows(table)) == values(rows(sound))
    runs = {row["commit_log_offset"]: (row["queue_run"], row["log_run"]) for row in rows(table)}
    first = {record.offset for record in log.records if record.offset < SEGMENT}
    assert {offset for offset, run in runs.items() if run == (None, None)} == first, "nothing is known of a file's rows"


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


def test_what_cannot_be_repaired(log: LogBuilder, tmp_path: Path) -> None:
    root, table = log.write(tmp_path / "s"), tmp_path / "t"
    with pytest.raises(UsageError, match="--repair-damaged: nothing of this broker was loaded yet"):
        load_here(root, table, repair_damaged=True)
    load_here(root, table)
    with pytest.raises(UsageError, match="neither with --repair-from nor with --topic"):
        load_here(root, table, repair_damaged=True, repair_from=0)
    deltalake.DeltaTable(str(table)).alter.add_constraint({"positive": "size > 0"})
    with pytest.raises(MissingInput, match="the table has the constraint positive"):
        load_here(root, table, repair_damaged=True)


def test_where_a_salvage_is_recorded() -> None:
    what = BrokerRows("c", "b", 0, 900, 2, {}, salvaged_from=300)
    name = "rocketmq-store-spark/c/b/salvaged/2"
    assert recorded_by(what, (), {})[name] == 300
    assert recorded_by(what, (), {name: 100})[name] == 100
    assert name not in recorded_by(BrokerRows("c", "b", 0, 900, 2, {}), (), {name: 100})
    recorded = {"rocketmq-store-spark/c/b/2": 900, name: 100, "rocketmq-store-spark/c/b/salvaged/1": 5}
    assert recorded_state(recorded, "c", "b") == BrokerState(900, 2, salvaged_from=100)


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


def test_rows_that_differ() -> None:
    def table(*given: tuple[int, str]) -> pa.Table:
        return pa.table({"commit_log_offset": [offset for offset, _ in given], "topic": [topic for _, topic in given]})

    there, logged = table((1, "a"), (3, "x"), (4, "d"), (9, "z")), table((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    gone, new = _differing(there, logged)
    assert (gone.tolist(), new.tolist()) == ([False, True, False, True], [False, True, True, False])
    gone, new = _differing(table((1, "a"), (1, "a"), (4, "d")), table((1, "a"), (4, "d")))
    assert (gone.tolist(), new.tolist()) == ([True, True, False], [True, False])
