"""Offline answers against those of running brokers, and those from RocksDB queues against those from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import SETTINGS, rules_of_release

from jobs.contract.options import QUESTIONS, QueryOptions
from jobs.contract.report import Reporter
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore
from jobs.spark.runner import Runner
from storeformat.errors import MissingInput
from udfs.table.find_messages import Wanted

pytestmark = pytest.mark.golden

ANSWERED = golden.stores(lambda store: store.is_plain and "answers" in store.entry)
FEW = [store for store in ANSWERED if store.name in ("base-clean-5.3.3", "base-clean-5.5.0", "retention-5.1.4")]


def options_of(store: GoldenStore, kind: str, root: Path | None = None, **more: Any) -> Any:
    settings = tuple((name, str(store.settings[name])) for name in SETTINGS if name in store.settings)
    version = rules_of_release(store.version)
    return QUESTIONS[kind](store=str(root or golden.unpack(store)), settings=settings, broker_version=version, **more)


def ask(options: QueryOptions) -> dict[str, Any]:
    return query.run(options, Reporter(quiet=True))


@pytest.mark.parametrize("store", golden.stores(lambda store: "answers" in store.entry), ids=str)
def test_keys(store: GoldenStore) -> None:
    offline = OfflineStore(open_store(options_of(store, "lag")))
    answers = store.entry["answers"]["queries"]
    assert answers
    for answer in answers:
        found = offline.index_offsets(
            answer["topic"], answer["key"], max_num=answer["maxNum"], begin=answer["begin"], end=answer["end"]
        )
        # A broker only sends what its log still holds.
        assert [offset for offset in found if offset >= store.min_offset] == answer["commitLogOffsets"]


@pytest.mark.parametrize("store", FEW, ids=str)
def test_places_and_ids(store: GoldenStore) -> None:
    for queue in store.entry["answers"]["queues"]:
        place = {"topic": queue["topic"], "queue_id": queue["queueId"]}
        last = queue["maxOffset"] - 1
        (message,) = ask(options_of(store, "offset", offset=last, **place))["messages"]
        assert (message["topic"], message["queue_id"]) == (queue["topic"], queue["queueId"])
        assert message["queue_offset"] == last
        beyond = ask(options_of(store, "offset", offset=last + 1, **place))
        assert (beyond["found"], beyond.exit_code) == (0, 1)
        (by_id,) = ask(options_of(store, "id", message_id=message["offset_msg_id"], bodies=True))["messages"]
        assert {name: value for name, value in by_id.items() if name != "body"} == message
        if message["uniq_key"] is not None:
            by_key = ask(options_of(store, "id", message_id=message["uniq_key"], topic=queue["topic"]))["messages"]
            assert message["commit_log_offset"] in {row["commit_log_offset"] for row in by_key}


@pytest.mark.parametrize("store", FEW, ids=str)
def test_the_log_itself_says_the_same(store: GoldenStore) -> None:
    options = options_of(store, "key", topic="", key="", split_size=10_000, max_messages=1000)
    offline = OfflineStore(open_store(options))
    runner = Runner()
    for answer in store.entry["answers"]["queries"][:4]:
        wanted = Wanted(topic=answer["topic"], key=answer["key"])
        scanned = {row["commit_log_offset"] for row in query.find(options, offline, runner, wanted)}
        keyed = options_of(store, "key", topic=answer["topic"], key=answer["key"])
        assert {row["commit_log_offset"] for row in ask(keyed)["messages"]} <= scanned
        if answer["begin"] == 0 and answer["commitLogOffsets"]:
            assert scanned
    for queue in store.entry["answers"]["queues"][:2]:
        place = {"topic": queue["topic"], "queue_id": queue["queueId"]}
        for time, expected in zip(store.entry["answers"]["times"], queue.get("offsetByTime", []), strict=False):
            answer = query.by_time(options_of(store, "time", time=time, scan=True, **place), offline, runner)
            assert answer["queue_offset"] == expected


@pytest.mark.parametrize("store", golden.stores("batch-cq"), ids=str)
def test_batch_queues_and_the_log_say_the_same(store: GoldenStore) -> None:
    root = golden.unpack(store)
    for queue in sorted((root / "batchconsumequeue").glob("*/*"))[:3]:
        place: dict[str, Any] = {"topic": queue.parent.name, "queue_id": int(queue.name)}
        offline = OfflineStore(open_store(options_of(store, "lag")))
        with offline.view(**place) as view:
            begin, end = view.begin, view.end
        assert end - begin > len(list(queue.iterdir()))
        for offset in range(begin, end, 13):
            asked = options_of(store, "offset", offset=offset, **place)
            (row,) = ask(asked)["messages"]
            (scanned,) = query.by_offset(asked, offline, Runner())["messages"]
            assert row == scanned
            assert row["queue_offset"] <= offset < row["queue_offset"] + int(row["properties"].get("INNER_NUM", 1))
            at = options_of(store, "time", time=row["store_timestamp_ms"], **place)
            answer = ask(at)
            assert (answer["found"], answer["min_offset"], answer["max_offset"]) == (1, begin, end)
            assert answer["queue_offset"] <= offset
            later = query.by_time(at, offline, Runner())
            assert (later["min_offset"], later["max_offset"]) == (begin, end)
        beyond = ask(options_of(store, "offset", offset=end, **place))
        assert (beyond["found"], beyond.exit_code) == (0, 1)


def test_a_queue_whose_messages_are_gone_begins_at_its_end(tmp_path: Path) -> None:
    (store,) = golden.stores(lambda store: store.name == "base-clean-5.1.4")
    root = golden.unpack(store, tmp_path)
    for segment in sorted((root / "commitlog").iterdir())[:-1]:
        segment.unlink()
    answer = ask(options_of(store, "time", root, time=0, topic="TopicOrder", queue_id=2))
    assert (answer["min_offset"], answer["max_offset"]) == (13, 13)


# ---------------------------------------------------------------------------------------------------- queues in RocksDB
(STORE,) = golden.stores("base-clean-5.5.0")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The store as its broker left it, and the same with its queues in a database."""
    pytest.importorskip("rocksdict")
    from support.rocksdb_stores import with_database

    other, _ = with_database(STORE.name, tmp_path_factory.mktemp("rocksdb"))
    return golden.unpack(STORE, tmp_path_factory.mktemp("files")), other


def ask_root(root: Path, kind: str, **question: Any) -> dict[str, Any]:
    settings = tuple((name, str(STORE.settings[name])) for name in SETTINGS if name in STORE.settings)
    options = QUESTIONS[kind](store=str(root), settings=settings, **question)
    return dict(query.run(options, Reporter(quiet=True)))


def alike(roots: tuple[Path, Path], **question: Any) -> dict[str, Any]:
    first, second = (ask_root(root, **question) for root in roots)
    for report in (first, second):
        report.pop("store")
        report.pop("seconds", None)
    assert first == second
    return first


@pytest.mark.thorough
def test_offsets_and_times(roots: tuple[Path, Path]) -> None:
    asked = 0
    for queue in STORE.entry["answers"]["queues"]:
        name = {"topic": queue["topic"], "queue_id": queue["queueId"]}
        for offset in {0, queue["minOffset"], queue["maxOffset"] - 1, queue["maxOffset"]}:
            alike(roots, kind="offset", offset=offset, **name)
        for time, expected in zip(STORE.entry["answers"]["times"][:3], queue["offsetByTime"][:3], strict=True):
            assert ask_root(roots[1], kind="time", time=time, **name)["queue_offset"] in (expected, -1)
            asked += 1
    assert asked > 10


def test_lag_from_rocksdb(roots: tuple[Path, Path]) -> None:
    queues = {queue["topic"]: {queue["queueId"]: queue["minOffset"] + 1} for queue in STORE.entry["answers"]["queues"]}
    table = {f"{topic}@readers": offsets for topic, offsets in queues.items()} | {"Nobody@readers": {0: 5}}
    for root in roots:
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    rows = alike(roots, kind="lag")["queues"]
    assert [row["topic"] for row in rows if row["lag"] is None] == ["Nobody"]
    assert len(rows) == len(table) > 2


def test_lists_from_rocksdb(roots: tuple[Path, Path]) -> None:
    topics = {queue["topic"] for queue in STORE.entry["answers"]["queues"]}
    assert sum(alike(roots, kind="list", topic=topic)["found"] for topic in topics) > 100


def test_a_queue_that_is_not_there_is_said(roots: tuple[Path, Path]) -> None:
    with pytest.raises(MissingInput, match="no such consume queue"):
        ask_root(roots[1], kind="offset", topic="Nobody", queue_id=0, offset=0)
