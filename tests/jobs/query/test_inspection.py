"""What ``inspect`` says of stores of real brokers."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from support import broker_model, golden
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.store_builder import LogBuilder, Message

from jobs.contract.options import InspectOptions, TopicFilter
from jobs.contract.reporter import Reporter
from jobs.log.opening import open_store
from jobs.log.store_log import read_log
from jobs.query import inspection
from jobs.spark.runner import LocalRunner
from storeformat.errors import DamagedLog

pytestmark = pytest.mark.golden

STORES = [store for store in golden.stores("plain") if store.name in ("base-clean-5.3.3", "stale-blank-4.9.8")]


def options_of(store: GoldenStore, **more: object) -> InspectOptions:
    sizes = tuple((name, str(store.settings[name])) for name in ("maxHashSlotNum", "maxIndexNum"))
    return InspectOptions(store=str(golden.unpack(store)), settings=sizes, **more)


@pytest.mark.parametrize("store", STORES, ids=str)
def test_contents(store: GoldenStore) -> None:
    options = options_of(store, split_size=5_000)
    opened = open_store(options)
    reading = read_log(opened, options, LocalRunner())
    contents = inspection.contents(opened, reading, options)
    settings = BrokerSettings.of(store.version, store.settings)
    requests = list(broker_model.walk(broker_model.read_segments(golden.unpack(store)), settings))
    assert sum(row["messages"] for row in contents["segments"]) == store.entry["counts"]["messages"]
    assert sum(row["bytes"] for row in contents["segments"]) == sum(request.msg_size for request in requests)
    queued = [request for request in requests if request.transaction_type in (0, 8)]
    assert {row["topic"]: (row["queues"], row["queued_messages"]) for row in contents["topics"]} == {
        topic: (
            len({request.queue_id for request in queued if request.topic == topic}),
            sum(request.topic == topic for request in queued),
        )
        for topic in {request.topic for request in queued}
    }


def offsets_of(root: Path, store: GoldenStore) -> list[int]:
    return sorted(golden.chain(root, store))


@pytest.mark.parametrize("store", STORES, ids=str)
def test_records_from_an_offset(store: GoldenStore) -> None:
    root = golden.unpack(store)
    offsets = offsets_of(root, store)
    opened = open_store(options_of(store))
    rows = list(inspection.records_from(opened, options_of(store)))
    assert [row["commit_log_offset"] for row in rows] == offsets
    middle = offsets[len(offsets) // 2]
    later = list(inspection.records_from(opened, options_of(store, from_offset=middle - 1, bodies=True)))
    assert [row["commit_log_offset"] for row in later] == offsets[len(offsets) // 2 :]
    segment = (root / "commitlog" / f"{later[0]['commit_log_offset'] // 65_536 * 65_536:020d}").read_bytes()
    (size,) = struct.unpack_from(">i", segment, later[0]["commit_log_offset"] % 65_536)
    assert later[0]["size"] == size
    assert "body" in later[0]
    assert "body" not in rows[0]
    topic = rows[0]["topic"]
    one_queue = options_of(store, topics=(TopicFilter(topic, rows[0]["queue_id"]),))
    assert [row for row in rows if (row["topic"], row["queue_id"]) == (topic, rows[0]["queue_id"])] == list(
        inspection.records_from(opened, one_queue)
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ``inspect`` read the whole log in this process."""
    monkeypatch.setattr(inspection.session, "spark_runner", lambda *_: nullcontext(LocalRunner()))


def test_records_kept_in_spite_of_their_bodies(tmp_path: Path, here: None) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    first = next(at for at in offsets_of(root, store) if at > 0)
    log = root / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[first + 90] ^= 1
    log.write_bytes(content)
    sizes = tuple((name, str(store.settings[name])) for name in ("maxHashSlotNum", "maxIndexNum"))
    options = InspectOptions(store=str(root), settings=sizes, on_damage="salvage", keep_crc_failures=True)
    reading = read_log(open_store(options), options, LocalRunner())
    assert reading.damaged == []
    assert [item.begin for item in reading.kept] == [first]
    without = read_log(open_store(options), replace(options, keep_crc_failures=False), LocalRunner())
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
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offsets[20] + 4)
        file.write(b"\xff" * (offsets[21] - offsets[20]))  # the record, and the head of the next one
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
    options = InspectOptions(store=str(log.write(tmp_path)), batch_topics=("Batched",))
    opened = open_store(options)
    assert inspection.contents(opened, read_log(opened, options, LocalRunner()), options)["topics"] == [
        {"topic": "Batched", "queues": 2, "queued_messages": 7},
        {"topic": "Plain", "queues": 1, "queued_messages": 1},
    ]


def test_a_segment_without_a_record_has_no_times(tmp_path: Path) -> None:
    """As a broker makes one ahead."""
    log = LogBuilder(4096)
    log.message(topic="T", store_timestamp=1000)
    log.message(topic="T", store_timestamp=3000)
    root = log.write(tmp_path)
    (root / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))
    options = InspectOptions(store=str(root))
    opened = open_store(options)
    first, empty = inspection.contents(opened, read_log(opened, options, LocalRunner()), options)["segments"]
    assert (first["first_stored"], first["last_stored"]) == (
        "1970-01-01T00:00:01.000+00:00", "1970-01-01T00:00:03.000+00:00",
    )  # fmt: skip
    assert empty == {"file": f"{4096:020d}", "messages": 0, "bytes": 0, "first_stored": None, "last_stored": None}
