"""What a load reads, which rows it replaces, and what the table's history says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import LogBuilder

from jobs.contract.options import LoadOptions, TopicFilter
from jobs.contract.reporter import Reporter
from jobs.log.opening import open_store, read_log
from jobs.spark.runner import Runner
from jobs.table.commits import BrokerState
from jobs.table.load import Load
from jobs.table.load_window import Window, nothing_follows, plan_window, split_size_for
from storeformat.errors import Refused, UsageError
from storeformat.log.segments import Segment

SEGMENTS = [Segment("a", 1000, 1000), Segment("b", 2000, 1000), Segment("c", 3000, 1000)]
LAST = {"commit_log_offset": 2400, "size": 100}


def plan(end: int | None, last: dict[str, Any] | None = None, **options: Any) -> Window:
    state = None if end is None else BrokerState(end, 3)
    return plan_window(LoadOptions(store="", table="", cluster="", broker="", **options), SEGMENTS, state, last)


def test_a_first_load_takes_the_whole_log() -> None:
    assert plan(None) == Window(1000, 1000)
    with pytest.raises(UsageError, match=r"^--repair-from: nothing of this broker was loaded yet$"):
        plan(None, repair_from=1000)


def test_the_scan_begins_with_the_segment_of_the_newest_row() -> None:
    assert plan(2500, LAST) == Window(2000, 2500, 3, LAST)
    assert plan(3000, LAST) == Window(2000, 3000, 3, LAST)
    assert plan(3000) == Window(3000, 3000, 3)
    assert plan(4000) == Window(3000, 4000, 3)
    assert plan(1000, {"commit_log_offset": 999, "size": 1}) == Window(1000, 1000, 3)


def test_a_repair_begins_an_epoch() -> None:
    assert plan(2500, repair_from=2500) == Window(2000, 2500, 4, repair=True)
    with pytest.raises(UsageError, match=r"^--repair-from 2501: the loaded range ends at 2500$"):
        plan(2500, repair_from=2501)


def test_a_gap_must_be_allowed() -> None:
    with pytest.raises(Refused) as caught:
        plan(999)
    assert str(caught.value) == (
        "the log begins after the end of the last load: retention deleted records that were never loaded: found 1000, "
        "expected 999"
    )
    assert caught.value.advice == "--allow-gap continues and records the gap"
    assert plan(999, allow_gap=True) == Window(1000, 1000, 3, gap=(999, 1000))
    assert plan(500, repair_from=0, allow_gap=True) == Window(1000, 1000, 4, gap=(500, 1000), repair=True)


def test_a_repair_leaves_rows_alone_that_the_log_does_not_have() -> None:
    with pytest.raises(Refused, match="the rows before are in the table alone") as caught:
        plan(2500, repair_from=999, allow_gap=True)
    assert caught.value.advice == "--repair-from 1000 replaces what the log still has"


@pytest.mark.parametrize(
    ("size", "cores", "split"),
    [(0, 2, 64 << 20), (1 << 30, 2, 128 << 20), (1 << 40, 2, 1 << 30), (1 << 30, 64, 64 << 20)],
)
def test_splits_keep_all_cores_at_work(size: int, cores: int, split: int) -> None:
    assert split_size_for(size, cores) == split


def test_the_history_holds_no_secret_of_the_stores_location(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    log.message(topic="T")
    options = LoadOptions(store=str(log.write(tmp_path)), table="", cluster="c", broker="b")
    store = open_store(options)
    reading = read_log(store, options, Runner())
    elsewhere = replace(store, root="s3://KEY:SECRET@bucket/store?secret_key=SECRET&region=eu")
    one = Load(elsewhere, options, "", Reporter(quiet=True))
    said = json.dumps(one._metadata(Window(0, 0), reading.end, reading.damaged))
    assert "s3://***@bucket/store" in said
    assert "SECRET" not in said


@pytest.mark.parametrize(
    ("size", "rows_from", "byte_at", "follows"),
    [
        (1000, 1500, None, False),
        (1000, 1500, 1499, False),  # the end of what was loaded
        (1000, 1500, 1500, True),
        (1000, 1500, 1507, True),  # the last byte of a head
        (1000, 1500, 1508, False),
        (1000, 1995, None, False),  # less than a head is left
        (1000, 1995, 1999, True),
        (1000, 2000, None, False),  # the end of the log
        (1000, 2001, None, True),  # and beyond it
        (1000, 1000, 1000, True),
    ],
)
def test_a_log_seems_to_end_where_no_byte_of_a_head_is(
    tmp_path: Path, size: int, rows_from: int, byte_at: int | None, *, follows: bool
) -> None:
    content = bytearray(size)
    if byte_at is not None:
        content[byte_at - 1000] = 1
    path = tmp_path / "segment"
    path.write_bytes(content)
    segments = [Segment(str(path), 1000, size)]
    assert nothing_follows(segments, Window(0, rows_from, last=LAST)) is not follows


def test_of_several_segments_that_one_is_looked_at_which_the_last_load_ended_in(tmp_path: Path) -> None:
    for name, content in (("a", bytes(1000)), ("b", bytes(500) + b"x" + bytes(499)), ("c", bytes(1000))):
        (tmp_path / name).write_bytes(content)
    segments = [replace(segment, path=str(tmp_path / segment.path)) for segment in SEGMENTS]
    ends = (1500, 2000, 2500, 2501, 3000, 4000, 4001)
    assert [nothing_follows(segments, Window(0, end, last=LAST)) for end in ends] == [
        True, True, False, True, True, True, False,
    ]  # fmt: skip


def test_a_repair_a_log_elsewhere_and_a_first_load_are_read_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    segments = [Segment(str(tmp_path / "a"), 1000, 1000)]
    assert nothing_follows(segments, Window(0, 1500, last=LAST))
    assert not nothing_follows(segments, Window(0, 1500))
    assert not nothing_follows(segments, Window(0, 1500, last=LAST, repair=True))
    elsewhere = [*segments, Segment("s3://bucket/b", 2000, 1000)]
    assert not nothing_follows(elsewhere, Window(0, 1500, last=LAST))


def load_of(tmp_path: Path, **more: Any) -> Load:
    log = LogBuilder(4096)
    log.message(topic="T")
    options = LoadOptions(store=str(log.write(tmp_path)), table="", cluster="c", broker="b", **more)
    return Load(open_store(options), options, "/messages", Reporter(quiet=True))


def test_other_topics_than_those_of_the_loads_before_are_refused(tmp_path: Path) -> None:
    asked = (TopicFilter("b", 3), TopicFilter("a"))
    one = load_of(tmp_path, topics=asked)
    one._check_topics(None)
    one._check_topics(BrokerState(9, 0, ("a", "b:3")))
    for topics, expected in (((), "all topics"), (("a", "b"), "a, b")):
        with pytest.raises(Refused) as error:
            one._check_topics(BrokerState(9, 0, topics))
        assert (error.value.found, error.value.expected, error.value.path) == ("a, b:3", expected, "/messages")
    with pytest.raises(Refused) as error:
        load_of(tmp_path)._check_topics(BrokerState(9, 0, ("a",)))
    assert (error.value.found, error.value.expected) == ("all topics", "a")
    with pytest.raises(UsageError, match="leave out --topic"):
        load_of(tmp_path, topics=asked, repair_from=0)._check_topics(None)


def test_what_a_load_says_that_read_nothing(tmp_path: Path) -> None:
    facts = load_of(tmp_path)._facts(None, None, Window(7, 7), 9)
    assert facts == {
        "damaged": False, "log_begin": 0, "log_end": 9, "table": "/messages", "rows": 0, "version": None,
        "from_offset": 7, "to_offset": 9, "skipped": True, "gap": None, "dry_run": False,
    }  # fmt: skip
    gap = load_of(tmp_path, dry_run=True)._facts(None, None, Window(7, 7, gap=(3, 7)), 9)
    assert (gap["gap"], gap["skipped"], gap["dry_run"]) == ({"begin": 3, "end": 7}, False, True)
