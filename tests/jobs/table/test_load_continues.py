"""``load`` of a log that may not be the continuation of what was loaded."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from support.store_builder import LogBuilder
from support.table_bench import SEGMENT, Bench

from storeformat.errors import Refused, UsageError


def test_retention_took_what_was_never_loaded(bench: Bench) -> None:
    bench.messages(500)
    bench.load()
    loaded = bench.expected
    while len(bench.log.segments) < 4:
        bench.messages(100)
    end = bench.load(dry_run=True)["from_offset"]
    bench.log.remove_head(2)
    with pytest.raises(Refused, match="never loaded") as refused:
        bench.load("later")
    assert "--allow-gap" in (refused.value.advice or "")
    report = bench.load("later", allow_gap=True)
    begin = min(bench.log.segments)
    assert report["gap"] == {"begin": end, "end": begin}
    assert bench.metadata()["gap"] == [end, begin]
    assert bench.rows() == loaded + bench.expected
    assert bench.load("later")["skipped"]


def test_retention_took_only_what_was_loaded(bench: Bench) -> None:
    while len(bench.log.segments) < 3:
        bench.messages(100)
    bench.load()
    loaded = bench.expected
    bench.messages(30)
    bench.log.remove_head(1)
    bench.load("later")
    assert bench.rows() == sorted(set(loaded) | set(bench.expected))


def test_a_log_that_was_truncated_and_rewritten(bench: Bench) -> None:
    """What was truncated away still lies after the new end, the newest loaded record whole and at its place."""
    bench.messages(200)
    bench.load()
    newest = bench.log.records[-1]
    cut = bench.log.records[150].offset
    bench.log.truncate(cut)
    bench.messages(20, flag=7)
    bench.log.settle()
    assert newest in bench.log.stale_records
    with pytest.raises(Refused, match="truncated") as refused:
        bench.load()
    assert f"--repair-from {cut}" in (refused.value.advice or "")
    report = bench.load(repair_from=cut)
    assert (report["from_offset"], report["rows"]) == (cut, len(bench.log.records) - 150)
    assert bench.rows() == bench.expected
    assert bench.metadata()["repair"] is True
    bench.messages(100)
    bench.load()
    assert bench.rows() == bench.expected


def test_a_shorter_log(bench: Bench) -> None:
    bench.messages(150)
    bench.log.write(bench.work / "shorter")
    shorter, end = bench.expected, bench.log.end_offset
    bench.messages(500)
    bench.load()
    with pytest.raises(Refused, match="truncated") as refused:
        bench.load_of(bench.work / "shorter")
    assert f"--repair-from {end}" in (refused.value.advice or "")
    bench.load_of(bench.work / "shorter", repair_from=bench.log.records[149].offset - 5)
    assert bench.rows() == shorter
    assert bench.load_of(bench.work / "shorter")["skipped"]


def test_repair_leaves_other_brokers_alone(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    bench.load(broker="other")
    bench.load(repair_from=0)
    assert bench.rows() == bench.rows("other") == bench.expected


def test_repair_cannot_leave_a_gap(bench: Bench) -> None:
    bench.messages(50)
    end = bench.load()["to_offset"]
    with pytest.raises(UsageError, match="ends at"):
        bench.load(repair_from=end + 1)


def test_a_repair_leaves_rows_alone_whose_bytes_are_no_more(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    before = bench.rows()
    bench.log = LogBuilder(SEGMENT, clock=1_800_000_000_000)
    while len(bench.log.segments) < 3:
        bench.messages(90, flag=3)
    bench.log.remove_head(1)
    report = bench.load("other", repair_from=0, allow_gap=True)
    assert (report["rows"], bench.rows()) == (len(bench.expected), before + bench.expected)


@pytest.mark.parametrize("to", [pytest.param("first", marks=[pytest.mark.slow, pytest.mark.spark]), "nothing"])
def test_a_table_that_was_restored_to_an_older_version(bench: Bench, to: str, request: pytest.FixtureRequest) -> None:
    """RESTORE takes rows away and leaves the transactions: these still say that all was loaded."""
    bench.messages(40)
    bench.load(broker="other")
    before = DeltaTable(bench.table).version()
    first = bench.load()
    bench.messages(50)
    second = bench.load()
    reached = first["to_offset"] if to == "first" else 0
    if to == "first":
        spark = request.getfixturevalue("spark")
        spark.sql(f"RESTORE TABLE delta.`{bench.table}` TO VERSION AS OF {first['version']}")
    else:
        DeltaTable(bench.table).restore(before)
    for _ in range(2):
        with pytest.raises(Refused, match="RESTORE of the table") as refused:
            bench.load()
        assert (refused.value.found, refused.value.expected) == (reached, second["to_offset"])
        bench.messages(10)
    assert f"--repair-from {reached} " in (refused.value.advice or "")
    with pytest.raises(Refused, match="RESTORE"):
        bench.load(repair_from=reached + 1)
    bench.load(broker="other")
    bench.load(repair_from=reached)
    assert bench.rows() == bench.expected
    bench.messages(10)
    bench.load()
    bench.load(broker="other")
    assert bench.rows() == bench.rows("other") == bench.expected


def test_rows_that_a_person_deleted_stay_deleted(bench: Bench) -> None:
    bench.messages(40)
    bench.load()
    DeltaTable(bench.table).delete(f"commit_log_offset > {bench.expected[9]}")
    kept = bench.expected[:10]
    bench.messages(5)
    assert bench.load()["rows"] == 5
    assert bench.rows() == kept + bench.expected[-5:]
