"""What ``inspect`` says of stores of real brokers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.golden import GoldenStore
from support.planting import flip
from support.store_builder import ROLLBACK, LogBuilder, Message, overwrite_log

from jobs.contract.options import InspectOptions, TopicFilter
from jobs.contract.report import Reporter
from jobs.log.opening import open_store, read_log
from jobs.query import inspection, offline_store
from jobs.spark.runner import Runner
from storeformat.errors import DamagedLog

pytestmark = pytest.mark.golden


def options_of(store: GoldenStore, **more: object) -> InspectOptions:
    sizes = tuple((name, str(store.settings[name])) for name in ("maxHashSlotNum", "maxIndexNum"))
    return InspectOptions(store=str(golden.unpack(store)), settings=sizes, **more)


def offsets_of(root: Path, store: GoldenStore) -> list[int]:
    return sorted(golden.chain(root, store))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ``inspect`` read the whole log in this process."""
    monkeypatch.setattr(inspection.session, "runner_for", lambda *_: nullcontext(Runner()))


def test_records_kept_in_spite_of_their_bodies(tmp_path: Path, here: None) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    first = next(at for at in offsets_of(root, store) if at > 0)
    flip(root / "commitlog" / f"{0:020d}", first + 90)
    sizes = tuple((name, str(store.settings[name])) for name in ("maxHashSlotNum", "maxIndexNum"))
    options = InspectOptions(store=str(root), settings=sizes, on_damage="salvage", keep_crc_failures=True)
    reading = read_log(open_store(options), options, Runner())
    assert reading.damaged == []
    assert [item.begin for item in reading.kept] == [first]
    without = read_log(open_store(options), replace(options, keep_crc_failures=False), Runner())
    assert [item.begin for item in without.damaged] == [first]
    assert inspection.run(options, Reporter(quiet=True)).exit_code == 1


@pytest.mark.parametrize("name", ["stale-mid-5.1.4", "stale-blank-5.3.3", "base-killed-5.3.3"])
def test_records_up_to_the_end_that_the_log_has(here: None, name: str) -> None:
    (store,) = golden.stores(name)
    report = inspection.run(options_of(store, limit=10_000), Reporter(quiet=True))
    assert report.exit_code == 0
    assert [row["commit_log_offset"] for row in report["records"]] == offsets_of(golden.unpack(store), store)


def test_records_do_not_pass_over_damage_in_silence(here: None, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    offsets = offsets_of(root, store)
    # the record, and the head of the next one
    overwrite_log(root / "commitlog", offsets[20] + 4, b"\xff" * (offsets[21] - offsets[20]))
    options = InspectOptions(store=str(root), from_offset=offsets[18], limit=10)
    with pytest.raises(DamagedLog) as damaged:
        inspection.run(options, Reporter(quiet=True))
    assert damaged.value.offset == offsets[20]
    before = inspection.run(replace(options, limit=2), Reporter(quiet=True))
    assert [row["commit_log_offset"] for row in before["records"]] == offsets[18:20]
    stopped = inspection.run(replace(options, on_damage="stop"), Reporter(quiet=True))
    assert [row["commit_log_offset"] for row in stopped["records"]] == offsets[18:20]
    saved = inspection.run(replace(options, on_damage="salvage"), Reporter(quiet=True))
    assert [row["commit_log_offset"] for row in saved["records"]] == [*offsets[18:20], *offsets[22:30]]
    assert saved["damaged_ranges"][0]["begin"] == offsets[20]
    assert stopped.exit_code == saved.exit_code == 1


def test_topics_with_batch_queues(tmp_path: Path) -> None:
    log = LogBuilder()
    for count in (3, 2, 1):
        log.inner_batch(Message(topic="Batched"), count)
    log.message(topic="Batched", queue_id=1)
    log.message(topic="Plain")
    log.message(topic="Plain", sys_flag=ROLLBACK)
    options = InspectOptions(store=str(log.write(tmp_path)), batch_topics=("Batched",))
    opened = open_store(options)
    assert inspection.contents(opened, read_log(opened, options, Runner()), options)["topics"] == [
        {"topic": "Batched", "queues": 2, "queued_messages": 7},
        {"topic": "Plain", "queues": 1, "queued_messages": 1},
    ]


@pytest.fixture
def placed(tmp_path: Path) -> tuple[Path, list[int]]:
    log = LogBuilder(4096)
    offsets = [log.message(topic="TU"[number % 2], body=bytes(200)).offset for number in range(25)]
    assert offsets[13] < 4096 <= offsets[14]
    return log.write(tmp_path), offsets


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"from_offset": 0}, slice(20)),
        ({"limit": 3}, slice(3)),
        ({"limit": 100}, slice(None)),
        ({"from_offset": 5, "limit": 2}, slice(5, 7)),
        ({"from_offset": 14, "limit": 2}, slice(14, 16)),
        ({"from_offset": 13, "limit": 2}, slice(13, 15)),
        ({"from_offset": 0, "until_offset": 3}, slice(3)),
        ({"from_offset": 0, "until_offset": 14}, slice(14)),
        ({"from_offset": 15, "until_offset": 17}, slice(15, 17)),
        ({"from_offset": 4, "limit": 3, "topics": (TopicFilter("T"),)}, slice(4, 10, 2)),
        ({"from_offset": 4, "limit": 3, "topics": (TopicFilter("T", 1),)}, slice(0)),
    ],
)
def test_which_are_shown(
    placed: tuple[Path, list[int]], given: dict[str, Any], expected: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, offsets = placed
    monkeypatch.setattr(inspection.session, "runner_for", lambda *_: pytest.fail("the whole log is not read"))
    places = {name: offsets[value] for name, value in given.items() if name in ("from_offset", "until_offset")}
    report = inspection.run(InspectOptions(store=str(root), **{**given, **places}), Reporter(quiet=True))
    assert [row["commit_log_offset"] for row in report["records"]] == offsets[expected]
    assert (report["job"], report["status"], report["messages"]) == ("inspect", "ok", len(offsets[expected]))


def test_records_from_within_one_on(placed: tuple[Path, list[int]]) -> None:
    root, offsets = placed
    options = InspectOptions(store=str(root), from_offset=offsets[4] + 1, limit=1)
    for bodies, body in ((False, None), (True, "\0" * 200)):
        (row,) = inspection.run(replace(options, bodies=bodies), Reporter(quiet=True))["records"]
        assert (row["commit_log_offset"], row["size"]) == (offsets[5], offsets[6] - offsets[5])
        assert (row.get("body"), "body" in row) == (body, bodies)


def test_a_report_of_all_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(4096)
    for number in range(3):
        log.message(topic="B", queue_id=number % 2, store_timestamp=1000 + number)
    log.message(topic="A", queue_id=5, store_timestamp=2000)
    log.message(topic="C", queue_id=5, store_timestamp=3000)
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(inspection.session, "runner_for", lambda *given: asked.append(given) or nullcontext(Runner()))
    options = InspectOptions(
        store=str(log.write(tmp_path)), topics=(TopicFilter("B", 1), TopicFilter("A"), TopicFilter("C")), split_size=100
    )
    (tmp_path / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))  # as a broker makes one ahead
    reporter = Reporter(quiet=True)
    report = inspection.run(options, reporter)
    facts = open_store(options).facts()
    assert {name: report[name] for name in facts} == facts
    expected = {
        "job": "inspect", "status": "ok", "messages": 5, "log": "460 B", "damaged_ranges": [],
        "segments": [{
            "file": f"{0:020d}", "messages": 5, "bytes": sum(placed.size for placed in log.records),
            "first_stored": "1970-01-01T00:00:01.000+00:00", "last_stored": "1970-01-01T00:00:03.000+00:00",
        }, {"file": f"{4096:020d}", "messages": 0, "bytes": 0, "first_stored": None, "last_stored": None}],
        "topics": [
            {"topic": "A", "queues": 1, "queued_messages": 1}, {"topic": "B", "queues": 1, "queued_messages": 1},
            {"topic": "C", "queues": 1, "queued_messages": 1},
        ],
    }  # fmt: skip
    assert {name: report[name] for name in expected} == expected
    assert asked == [(reporter, "inspect", 8192)]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-1, "1969-12-31T23:59:59.999+00:00"), (1, "1970-01-01T00:00:00.001+00:00"), (2**62, str(2**62))],
)
def test_times_of_no_calendar_are_numbers(milliseconds: int, text: str) -> None:
    assert offline_store.utc_text(milliseconds) == text
