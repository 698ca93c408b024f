"""Loads without Spark, and repairs of salvaged rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import numpy as np
import pytest
from support.here import tasks_here
from support.loading import ROOT, load_here
from support.patching import stand_in
from support.refusals import error_of
from support.store_builder import LogBuilder, overwrite_log

from jobs.contract.options import LoadOptions, TopicFilter
from jobs.contract.report import Reporter
from jobs.log.opening import open_store
from jobs.table import commits, load
from jobs.table.commits import BrokerRows, BrokerState, recorded_by, recorded_state
from jobs.table.load import Load, Window, first_doubt
from storeformat import __version__
from storeformat.errors import Refused, UsageError
from udfs.table import schemas
from udfs.table.rows import Doubt


# ------------------------------------------------------------------------------------------------------------ load here
# Loads into a plain table on this machine, without a JVM: what they report, what the table's history says of them, and
# what they refuse.
@pytest.fixture
def log() -> LogBuilder:
    """Thirty messages of two topics in several segments."""
    log = LogBuilder(4096)
    for number in range(60):
        log.message(topic=f"T{number % 2}", queue_id=0, body=b"x" * 100)
    return log


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def offsets(table: Path) -> list[int]:
    found = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["commit_log_offset"])
    return sorted(found["commit_log_offset"].to_pylist())


def history(table: Path) -> list[dict[str, Any]]:
    """What the commits say of themselves, the newest first, without the name of the run."""
    found = [
        json.loads(one["userMetadata"]) for one in deltalake.DeltaTable(str(table)).history() if "userMetadata" in one
    ]
    runs = [one.pop("run") for one in found]
    assert len(set(runs)) == len(runs)
    return found


def test_what_two_loads_say(log: LogBuilder, tmp_path: Path, table: Path) -> None:
    root = log.write(tmp_path / "s")
    first = load_here(root, table)
    middle = log.end_offset
    for _ in range(5):
        log.message(topic="T0", queue_id=0)
    log.write(tmp_path / "s")
    second, third = load_here(root, table), load_here(root, table)
    named = ("job", "status", "table", "rows", "version", "from_offset", "to_offset", "skipped", "gap", "dry_run",
             "consumer_offsets", "log_end")  # fmt: skip
    assert [[report[name] for name in named] for report in (first, second, third)] == [
        ["load", "ok", str(table), 60, 1, 0, middle, False, None, False, 0, middle],
        ["load", "ok", str(table), 5, 2, middle, log.end_offset, False, None, False, 0, log.end_offset],
        ["load", "ok", str(table), 0, 2, log.end_offset, log.end_offset, True, None, False, 0, log.end_offset],
    ]
    assert offsets(table) == [record.offset for record in log.records]
    said = {
        "program": "rocketmq-store-spark", "version": __version__, "cluster": "c", "broker": "b", "store": str(root),
        "broker_version": "5.3", "on_damage": "fail", "gap": None, "repair": False, "topics": [], "damaged_ranges": [],
    }  # fmt: skip
    assert history(table) == [
        said | {"from_offset": middle, "to_offset": log.end_offset},
        said | {"from_offset": 0, "to_offset": middle},
    ]
    properties = deltalake.DeltaTable(str(table)).metadata().configuration
    assert properties == {
        "rocketmq.timeZone": "UTC",
        "delta.dataSkippingStatsColumns": ",".join(schemas.STATISTICS_COLUMNS),
    }


def test_a_filter_finds_what_is_beyond_the_first_plane(tmp_path: Path, table: Path) -> None:
    """Statistics of a file are read as UTF-8 by some, who take surrogates for other letters."""
    log = LogBuilder(4096)
    for tags in ("a", "\U00020bb7"):
        log.message(topic="T", tags=tags)
    load_here(log.write(tmp_path / "s"), table)
    query = deltalake.QueryBuilder().register("messages", deltalake.DeltaTable(str(table)))
    found = query.execute("SELECT count(*) AS n FROM messages WHERE tags = '\U00020bb7'").read_all()
    assert found["n"].to_pylist() == [1]


def test_only_a_part_of_the_log(log: LogBuilder, tmp_path: Path, table: Path) -> None:
    root, until = log.write(tmp_path / "s"), log.records[20].offset
    dry = load_here(root, table, dry_run=True)
    assert (dry["rows"], dry["version"], dry["skipped"], dry["dry_run"]) == (0, None, False, True)
    assert not table.exists()
    assert "consumer_offsets" not in dry
    first = load_here(root, table, until_offset=until, with_bodies=True, time_zone="Asia/Shanghai")
    assert (first["rows"], first["to_offset"]) == (20, until)
    for before in (5, 20):
        assert load_here(root, table, until_offset=log.records[before].offset, with_bodies=True)["skipped"]
    dry = load_here(root, table, dry_run=True)
    assert (dry["rows"], dry["version"], dry["from_offset"]) == (0, 1, until)
    assert load_here(root, table, with_bodies=True, time_zone="Asia/Shanghai")["rows"] == 40
    found = deltalake.DeltaTable(str(table))
    assert found.metadata().configuration["rocketmq.timeZone"] == "Asia/Shanghai"
    assert set(found.to_pyarrow_table(columns=["body"])["body"].to_pylist()) == {b"x" * 100}
    said = "--time-zone Mars/Olympus: no such time zone"
    assert error_of(lambda: load_here(root, table, time_zone="Mars/Olympus")) == (UsageError, said, None)
    assert error_of(lambda: load_here(root, table, time_zone="UTC")) == (
        Refused,
        f"the dates of the table are those of another time zone: found UTC, expected Asia/Shanghai ({table})",
        None,
    )


def test_topics_that_no_new_message_is_of(log: LogBuilder, tmp_path: Path, table: Path) -> None:
    root = log.write(tmp_path / "s")
    topics = (TopicFilter("T1", 7), TopicFilter("Nothing"))
    found = load_here(root, table, topics=topics)
    assert (found["rows"], found["notes"][-1]) == (0, "no new message is of Nothing, T1:7")
    assert history(table)[0]["topics"] == ["Nothing", "T1:7"]
    assert error_of(lambda: load_here(root, table)) == (
        Refused,
        (
            "this broker was loaded with other topics: their rows could not be told from those that are missing: found "
            f"all topics, expected Nothing, T1:7 ({table})"
        ),
        "another --broker (or table) takes them; --repair-from 0 loads all topics again",
    )
    log.message(topic="T1", queue_id=7)
    log.write(tmp_path / "s")
    found = load_here(root, table, topics=topics)
    assert (found["rows"], [note for note in found["notes"] if "no new message" in note]) == (1, [])


@pytest.mark.parametrize("agreeing", [0, 5, 40])
def test_a_log_that_is_another_one_from_some_record_on(
    log: LogBuilder, tmp_path: Path, table: Path, agreeing: int
) -> None:
    load_here(log.write(tmp_path / "s"), table)
    other = LogBuilder(4096)
    for number in range(70):
        other.message(topic=f"T{number % 2}", queue_id=0, body=(b"x" if number < agreeing else b"y") * 100)
    root = other.write(tmp_path / "other")
    end = log.records[agreeing - 1].end
    advice = f"log and table agree up to {end}: --repair-from {end} replaces what was loaded after it"
    if not agreeing:
        advice = "none of the newest rows is in this log: another store needs another --broker (or --repair-from N)"
    said = "the log is not the one that was loaded: it is another store's, or it was truncated and rewritten"
    place = f"({root}, offset {log.records[-1].offset})"
    assert error_of(lambda: load_here(root, table)) == (Refused, f"{said} {place}", advice)
    assert offsets(table) == [record.offset for record in log.records]


@pytest.mark.parametrize("rows", ["deleted", "of some topics"])
def test_a_log_that_was_wiped_and_has_grown_as_long(log: LogBuilder, tmp_path: Path, table: Path, rows: str) -> None:
    """The rows cannot tell: none is left, or none is of a topic that changed. The bytes before the end do."""
    root = log.write(tmp_path / "s")
    topics = {"topics": (TopicFilter("T0"),)} if rows == "of some topics" else {}
    load_here(root, table, until_offset=log.records[50].offset, **topics)
    if rows == "deleted":
        deltalake.DeltaTable(str(table)).delete()
    other = LogBuilder(4096)
    for number in range(60):
        other.message(topic=f"T{number % 2}", queue_id=0, body=(b"x" if number % 2 == 0 else b"y") * 100)
    assert other.end_offset == log.end_offset
    assert (
        "the log is not the one that was loaded: it is another store's"
        in error_of(lambda: load_here(other.write(tmp_path / "other"), table, **topics))[1]
    )
    assert load_here(root, table, **topics)["rows"] == (5 if topics else 10)


def test_a_table_whose_lost_file_was_taken_out_of_its_log(log: LogBuilder, tmp_path: Path, table: Path) -> None:
    root, until = log.write(tmp_path / "s"), log.records[20].offset
    load_here(root, table, until_offset=until)
    load_here(root, table)
    rows = deltalake.DeltaTable(str(table)).count()
    Path(deltalake.DeltaTable(str(table)).file_uris()[-1]).unlink()
    assert "DeltaTable(...).repair()" in str(error_of(lambda: load_here(root, table))[2])
    deltalake.DeltaTable(str(table)).repair()
    assert error_of(lambda: load_here(root, table))[2] == "--repair-from 0 loads them again"
    load_here(root, table, repair_from=0)
    assert (deltalake.DeltaTable(str(table)).count(), load_here(root, table)["rows"]) == (rows, 0)


# ------------------------------------------------------------------------------------------------ parts of a load alone
@pytest.fixture
def one(log: LogBuilder, tmp_path: Path, table: Path) -> Load:
    options = LoadOptions(store=str(log.write(tmp_path / "s")), table=str(table), cluster="c", broker="b")
    return Load(open_store(options), options, str(table), Reporter(quiet=True))


@pytest.mark.parametrize("overtaken", [0, 1, 4, 5])
def test_a_load_that_others_overtake_tries_again(one: Load, monkeypatch: pytest.MonkeyPatch, overtaken: int) -> None:
    tries: list[int | None] = []
    slept: list[float] = []

    def attempt() -> dict[str, Any]:
        tries.append(one._commits_after)
        one._commits_after = 7
        if len(tries) <= overtaken:
            raise commits.Overtaken("c/b")
        return {"tries": len(tries)}

    said: list[str] = []
    monkeypatch.setattr(one, "_attempt", attempt)
    stand_in(monkeypatch, load, "time", sleep=slept.append)
    monkeypatch.setattr(one._reporter, "say", said.append)
    if overtaken < 5:
        assert one._with_attempts() == {"tries": overtaken + 1}
    else:
        assert error_of(one._with_attempts) == (
            Refused,
            f"other loads committed first, again and again ({one._path})",
            "if none is at work, one was killed as it made the table: remove the directory with its _delta_log",
        )
    assert slept == [0, 0.5, 1, 1.5, 2][:overtaken]
    assert said == ["another load committed first, trying again (c/b)"] * overtaken
    assert set(tries) == {None}


def test_files_of_a_commit_that_may_stand_are_kept(one: Load, log: LogBuilder, tmp_path: Path, table: Path) -> None:
    load_here(tmp_path / "s", table)
    assert not one._may_be_committed()
    for before, may in ((1, False), (0, True), (2, True)):
        one._commits_after = before
        assert one._may_be_committed() is may
    one._commits_after, one._path = 1, str(tmp_path / "nothing")
    assert one._may_be_committed()


@pytest.mark.parametrize(
    ("end", "inside", "agreeing"), [(300, False, None), (300, True, 150), (200, False, None), (199, True, 199)]
)
def test_how_far_log_and_table_agree(
    one: Load, monkeypatch: pytest.MonkeyPatch, end: int, inside: bool, agreeing: int | None
) -> None:
    """Rows are to begin at 200, and the newest one, which ends at 150, is in the log."""
    monkeypatch.setattr(load, "newest_row_in_log", lambda store, rows, reading: rows[0])
    monkeypatch.setattr(load, "begins_inside_a_record", lambda store, window, reading: inside)
    window, reading = Window(0, 200, last={"commit_log_offset": 100, "size": 50}), SimpleNamespace(end=end)
    found: Any = (window, reading)
    one._check_continues(None, *found)
    table: Any = SimpleNamespace()
    if agreeing is None:
        one._check_continues(table, *found)
    else:
        with pytest.raises(Refused, match="the log is not the one that was loaded") as caught:
            one._check_continues(table, *found)
        assert f"--repair-from {agreeing} replaces" in (caught.value.advice or "")


def test_the_program_for_several_brokers(
    log: LogBuilder, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README's lines, word for word."""
    (program,) = re.findall(r"```python\n(.*?load\.run.*?)```", (ROOT / "jobs/table/README.md").read_text(), re.DOTALL)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\n")
    brokers = [(str(log.write(tmp_path / name)), "c", name, str(conf)) for name in ("broker-a", "broker-b")]
    with tasks_here():
        exec(program, {"brokers": brokers, "table": str(table)})
    assert capsys.readouterr().out == "broker-a ok\nbroker-b ok\n"
    assert offsets(table) == sorted(2 * [record.offset for record in log.records])


# -------------------------------------------------------------------------------------------------------- salvaged rows
Row = dict[str, Any]
SEGMENT = 4096


@pytest.fixture
def damaged_log() -> LogBuilder:
    log = LogBuilder(SEGMENT)
    for number in range(60):
        log.message(topic=f"T{number % 2}", queue_id=number % 3, body=b"x" * 100, keys=f"k{number}")
    return log


def rows(table: Path) -> list[Row]:
    found: list[Row] = deltalake.DeltaTable(str(table)).to_pyarrow_table().sort_by("commit_log_offset").to_pylist()
    return found


def values(found: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in ("salvaged", *schemas.RUNS)} for row in found]


def broken(log: LogBuilder, root: Path) -> tuple[int, int]:
    """Damages a record's head, and another one's queue id, which nothing checks; returns their offsets."""
    head, stray = log.records[10].offset, log.records[31].offset
    overwrite_log(root / "commitlog", head, b"\xff" * 30)
    overwrite_log(root / "commitlog", stray + 12, (77).to_bytes(4, "big"))
    return head, stray


def test_a_salvage_is_marked_and_put_right(damaged_log: LogBuilder, tmp_path: Path) -> None:
    root, table, sound = damaged_log.write(tmp_path / "s"), tmp_path / "t", tmp_path / "sound"
    load_here(root, sound)
    head, stray = broken(damaged_log, root)
    report = load_here(root, table, on_damage="salvage")
    assert (report["status"], report["rows"]) == ("damaged", 58)
    found = rows(table)
    there = [record.offset for record in damaged_log.records if record.offset not in (head, stray)]
    assert [row["commit_log_offset"] for row in found] == there
    past = {offset for offset in there if head < offset < head - head % SEGMENT + SEGMENT}
    assert {row["commit_log_offset"] for row in found if row["salvaged"]} == past
    assert {row["salvaged"] for row in found} == {True, False}

    again = load_here(root, table, on_damage="salvage")
    assert (again["rows"], again["skipped"], again.exit_code, "repair_from" in again) == (0, True, 0, False)

    damaged_log.message(topic="T0", queue_id=0, body=b"new")
    damaged_log.write(root)
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
