"""Committed offsets: what is planned, and ranges of messages."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.drilling import Done, run_job
from support.offsets_model import History, pulled
from support.publishing import snapshot
from support.reading import opened
from support.store_builder import LogBuilder
from support.store_to_start import QUEUE_FILE, StoreToStart, finished, healthy_store

from jobs.consumer_offsets.plan import BEGIN, TIME, ChosenOffset, OffsetsCopy, OffsetsPlan, choose
from jobs.consumer_offsets.ranges import QueueRanges, offsets_at, queue_ranges
from jobs.log.log_scan import LogReading, scan_log
from jobs.spark.runner import Runner
from storeformat.record.decode import DecodeRules
from storeformat.store.config_files import REVIVE_GROUP, DataVersion, FileState, read_config
from storeformat.store.layout import QueueStore
from udfs.log.scan import ScanTask
from udfs.log.subscriptions import Subscription

# ---------------------------------------------------------------------------------------------------------- plan
ONLY = ("--only", "consumer-offsets")
SIZES = ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=60", "--set", f"mappedFileSizeConsumeQueue={QUEUE_FILE}")
TORN = '{"offsetTable":{"Orders@readers":{0:9,1:8},"Stock@readers":{0:'


def tear(store: StoreToStart, *, backup: dict[str, dict[int, int]] | None) -> None:
    store.config("consumerOffset.json").write_text(TORN)
    if backup is not None:
        found = store.write_config("consumerOffset.json.bak", {"offsetTable": backup})
        assert found.exists()


def rebuild(store: StoreToStart, *more: object, only: tuple[str, ...] = ONLY) -> Done:
    return run_job("rebuild", "--store", store.root, "--output", store.root.parent / "new", *only, *SIZES, *more)


def publish(store: StoreToStart, *more: object) -> Done:
    return run_job("publish", "--store", store.root, "--from", store.root.parent / "new", *more)


def committed(root: Path) -> Any:
    return read_config(str(root), "consumerOffset.json").value


def test_each_number_has_its_source(store: StoreToStart) -> None:
    tear(store, backup={"Stock@readers": {0: 4, 1: 77}, "Orders@readers": {0: 2}})
    done = rebuild(store)
    assert done.code == 0, done.said
    rows = {(row["topic"], row["queue_id"]): row for row in done.report["consumer_offsets"]}
    assert {key: (row["offset"], row["source"], row["read_again_at_most"]) for key, row in rows.items()} == {
        ("Orders", 0): (9, "file, before its tear", 1),
        ("Orders", 1): (8, "file, before its tear", 2),
        ("Stock", 0): (4, ".bak", 6),
        ("Stock", 1): (10, ".bak", 0),
    }
    assert done.report["read_again_at_most"] == 9
    assert [copy["content"] for copy in done.report["consumer_offset_copies"]] == ["torn", "sound"]
    assert "1 offsets were beyond the ends of their queues" in " ".join(done.report["notes"])
    assert committed(store.root.parent / "new") == {
        ("Orders", "readers"): {0: 9, 1: 8},
        ("Stock", "readers"): {0: 4, 1: 10},
    }


def test_publish_and_the_way_back(store: StoreToStart) -> None:
    tear(store, backup={"Orders@readers": {0: 2}, "Stock@readers": {0: 4}})
    (store.root / "abort").touch()
    before = snapshot(store.root)
    assert rebuild(store).code == 0
    assert publish(store).code == 2
    assert snapshot(store.root) == before
    dry = publish(store, "--after-crash", "--dry-run")
    assert (dry.code, dry.report["replaced"]) == (0, ["config/consumerOffset.json"])
    assert snapshot(store.root) == before
    done = publish(store, "--after-crash")
    assert (done.code, done.report["replaced"]) == (0, ["config/consumerOffset.json"]), done.said
    assert (store.root / "abort").exists()
    assert committed(store.root)["Orders", "readers"] == {0: 9, 1: 8}
    changed = {name for name, digest in snapshot(store.root).items() if before.get(name) != digest}
    assert changed == {"config/consumerOffset.json"}
    assert run_job("restore", "--store", store.root).code == 0
    assert snapshot(store.root) == before


def test_with_the_queues_it_is_all_or_nothing(store: StoreToStart) -> None:
    tear(store, backup={"Stock@readers": {0: 4}})
    done = rebuild(store, only=("--only", "consumequeue,index,checkpoint,consumer-offsets"))
    assert done.code == 0, done.said
    (store.root / "abort").touch()
    assert publish(store, "--after-crash").code == 0
    assert not (store.root / "abort").exists()
    assert committed(store.root)["Stock", "readers"] == {0: 4, 1: 0}
    assert run_job("verify", "--store", store.root, *SIZES).code == 0


def test_a_config_directory_that_is_gone_comes_back(store: StoreToStart, tmp_path: Path) -> None:
    replica = healthy_store(tmp_path / "slave")
    for path in store.root.joinpath("config").iterdir():
        path.unlink()
    store.root.joinpath("config").rmdir()
    nothing = rebuild(store)
    assert (nothing.code, "nothing shows how far any group has read" in nothing.report["error"]) == (66, True)
    assert not (tmp_path / "new").exists()
    done = rebuild(store, "--replica", replica.root)
    assert done.code == 0, done.said
    assert {row["source"] for row in done.report["consumer_offsets"]} == {f"replica {replica.root}"}
    assert publish(store).report["status"] == "unsafe", "topics and groups are gone, too"
    assert committed(store.root) == committed(replica.root)
    assert run_job("restore", "--store", store.root).report["status"] == "unsafe"
    assert not (store.root / "config").exists()


def test_all_groups_at_a_time(store: StoreToStart) -> None:
    time = store.log.records[20].message.store_timestamp
    done = rebuild(store, "--consumer-offsets-at", time)
    assert done.code == 0, done.said
    assert {(row["offset"], row["source"], row["skipped"]) for row in done.report["consumer_offsets"]} == {
        (5, "time", 0)
    }
    assert {row["found"] for row in done.report["consumer_offsets"]} == {9}


@pytest.mark.parametrize(("store_type", "is_told"), [("default", False), ("defaultRocksDB", True)])
def test_a_broker_with_a_database_of_offsets_takes_the_file_in(
    store: StoreToStart, store_type: str, is_told: bool
) -> None:
    before = snapshot(store.root.parent)
    done = rebuild(store, "--set", f"storeType={store_type}", "--broker-version", "5.5", "--dry-run")
    assert (done.code, len(done.report["consumer_offsets"])) == (0, 4), done.said
    assert snapshot(store.root.parent) == before
    assert any(note.startswith("the broker takes consumerOffset.json in") for note in done.report["notes"]) is is_told


def test_a_sound_file_without_groups_is_an_answer(store: StoreToStart) -> None:
    """Where no group is known; else its offsets are lost, and the exit code says so."""
    store.write_config("consumerOffset.json", {"offsetTable": {}})
    done = rebuild(store)
    assert (done.code, done.report["consumer_offsets"]) == (1, []), done.said
    assert (done.report["status"], done.report["groups_without_offsets"]) == ("damaged", ["readers"])
    assert committed(store.root.parent / "new") == {}
    shutil.rmtree(store.root.parent / "new")
    store.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {}})
    assert rebuild(store).code == 0


def test_a_replica_fills_an_empty_table(store: StoreToStart, tmp_path: Path) -> None:
    """5.3.3 writes groupTopicMap beside it."""
    shutil.copytree(store.root, tmp_path / "slave")
    store.write_config("consumerOffset.json", {"groupTopicMap": {}, "offsetTable": {}})
    done = rebuild(store, "--replica", tmp_path / "slave")
    assert (done.code, len(done.report["consumer_offsets"])) == (0, 4), done.said


def test_groups_of_which_nothing_is_known_are_named(store: StoreToStart) -> None:
    """A group without an offset in a whole file has none; in what is left of a torn one it may be lost."""
    store.write_config(
        "subscriptionGroup.json", {"subscriptionGroupTable": {"readers": {}, "new": {}, "TOOLS_CONSUMER": {}}}
    )
    done = rebuild(store)
    assert (done.code, done.report["groups_without_offsets"]) == (0, ["new"])
    assert "how far new had read" in " ".join(done.report["notes"])
    shutil.rmtree(store.root.parent / "new")
    offsets = store.config("consumerOffset.json")
    offsets.write_text(offsets.read_text()[:-3])
    assert rebuild(store).code == 1


def test_the_log_is_evidence(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for _ in range(6):
        log.message(topic="Orders")
    log.message(topic="%RETRY%readers", properties={"RETRY_TOPIC": "Orders"})
    store = finished(tmp_path / "store", log)
    store.config("consumerOffset.json").write_bytes(bytes(300))
    rows = rebuild(store).report["consumer_offsets"]
    assert {(row["group"], row["topic"], row["offset"], row["source"]) for row in rows} == {
        ("readers", "Orders", 0, "begin of the queue"),
        ("readers", "%RETRY%readers", 0, "begin of the queue"),
    }


def test_the_file_that_has_light_groups_too(store: StoreToStart) -> None:
    """With enableLmq=true: made from what is left of it, put in place, and taken back."""
    torn = store.config("lmqConsumerOffset.json")
    light = '"%LMQ%a@%LMQ%one":7,"%LMQ%a@%LMQ%two":1'
    torn.write_text(
        f'{{"lmqOffsetTable":{{{light}}},"offsetTable":{{"Orders@readers":{{0:9,1:8}},"Stock@readers":{{0:1,1:2'
    )
    other, before = committed(store.root), snapshot(store.root)
    done = rebuild(store, "--set", "enableLmq=true")
    assert (done.code, done.report["offsets_torn"]) == (1, True)
    made = json.loads((store.root.parent / "new" / "config" / torn.name).read_text())
    assert made["lmqOffsetTable"] == {"%LMQ%a@%LMQ%one": 7, "%LMQ%a@%LMQ%two": 1}
    assert made["offsetTable"] == {"Orders@readers": {"0": 9, "1": 8}, "Stock@readers": {"0": 1, "1": 0}}
    assert publish(store).report["replaced"] == ["config/lmqConsumerOffset.json"]
    taken = read_config(str(store.root), torn.name).value
    assert (taken["%LMQ%a", "%LMQ%two"], taken["Orders", "readers"]) == ({0: 1}, {0: 9, 1: 8})
    assert committed(store.root) == other
    assert run_job("restore", "--store", store.root).code == 0
    assert snapshot(store.root) == before


class TestRefused:
    def test_a_broker_that_has_them_in_another_database(self, store: StoreToStart) -> None:
        done = rebuild(store, "--set", "configManagerVersion=v2")
        assert (done.code, "found configManagerVersion=v2" in done.report["error"]) == (2, True)

    def test_a_database_that_takes_no_file_in(self, store: StoreToStart) -> None:
        done = rebuild(store, "--set", "storeType=defaultRocksDB", "--broker-version", "5.1")
        said = "before 5.3 a broker with storeType=defaultRocksDB reads committed offsets from its database alone"
        assert (done.code, said in done.report["error"]) == (2, True)

    def test_one_topic_and_a_time_without_the_artefact(self, store: StoreToStart) -> None:
        assert rebuild(store, "--topic", "Orders").code == 64
        assert rebuild(store, "--consumer-offsets-at", "1700000000000", only=()).code == 64


# ------------------------------------------------------------------------------------------------------- a plan by hand
def chosen(group: str, offset: int, found: int | None, source: str = "file", **more: Any) -> ChosenOffset:
    return ChosenOffset("T", group, 0, offset, source, found, **{"range": (2, 10), **more})


def test_all_that_a_plan_tells() -> None:
    plan = OffsetsPlan(
        (chosen("a", 7, 7), chosen("b", 10, 12), chosen("c", 9, 4, "time"), chosen("d", 3, None, range=None)),
        (),
        tuple("uvwxyz"),
        into_database=True,
    )
    row = {"topic": "T", "queue_id": 0, "begin": 2, "end": 10, "skipped": 0}
    assert plan.facts() == {
        "consumer_offsets": [
            {**row, "group": "a", "offset": 7, "source": "file", "found": 7, "read_again_at_most": 3},
            {**row, "group": "b", "offset": 10, "source": "file", "found": 12, "read_again_at_most": 0},
            {**row, "group": "c", "offset": 9, "source": "time", "found": 4, "read_again_at_most": 1, "skipped": 5},
            {**row, "group": "d", "offset": 3, "source": "file", "found": None, "begin": None, "end": None,
             "read_again_at_most": None},
        ],
        "consumer_offset_copies": [],
        "read_again_at_most": 4,
        "groups_without_offsets": list("uvwxyz"),
        "offsets_torn": False,
    }  # fmt: skip
    _, beyond, skipped, unknown = plan.notes()
    assert beyond.startswith("1 offsets were beyond the ends")
    assert skipped.startswith("groups skip 5 messages")
    assert unknown.startswith("nothing shows how far u, v, w, x, y and others had read")
    (five,) = OffsetsPlan((chosen("c", 3, 4, "time"),), (), tuple("uvwxy")).notes()
    assert five.startswith("nothing shows how far u, v, w, x, y had read")
    assert OffsetsPlan((chosen("a", 7, 7),), ()).notes() == []


@pytest.mark.parametrize(
    ("versions", "timestamp", "expected"),
    [
        ([], 0, (0, 1, 0)),
        ([None], 77, (0, 1, 77)),
        ([(2, 50, 9), (1, 900, 41)], 77, (2, 42, 77)),
        ([(2, 50, 9)], 77, (2, 10, 77)),
        ([(2, 500, 9)], 77, (2, 10, 500)),
    ],
)
def test_the_data_version_of_a_plan(
    versions: list[tuple[int, int, int] | None], timestamp: int, expected: tuple[int, int, int]
) -> None:
    """State version and time of the newest copy, above the counter of all."""
    copies = []
    for one in versions:
        version = None if one is None else DataVersion(state_version=one[0], timestamp=one[1], counter=one[2])
        copies.append(OffsetsCopy("file", "/f", FileState.SOUND, version=version))
    plan = OffsetsPlan((chosen("a", 7, 7), chosen("b", 3, 3)), tuple(copies), timestamp=timestamp)
    made = json.loads(plan.content())
    assert made["offsetTable"] == {"T@a": {"0": 7}, "T@b": {"0": 3}}
    version = made["dataVersion"]
    assert (version["stateVersion"], version["counter"], version["timestamp"]) == expected
    assert (plan.path, replace(plan, light_groups=True).path) == (
        "config/consumerOffset.json", "config/lmqConsumerOffset.json",
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------- plan choice
KEY = ("T", "readers")
RETRIED, NOTHING = frozenset({KEY}), frozenset[Subscription]()


def copy(
    source: str, queues: dict[int, int] | None, content: FileState = FileState.SOUND, group: str = "readers"
) -> Any:
    return OffsetsCopy(source, source, content, offsets={} if queues is None else {("T", group): queues})


def only(chosen: list[ChosenOffset]) -> ChosenOffset:
    (one,) = chosen
    return one


def ranges(begin: int = 0, end: int = 10, **more: Any) -> QueueRanges:
    return QueueRanges({("T", 0): (begin, end)}, **more)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_skips_a_message(seed: int) -> None:
    """File torn or gone; what else there is: older copies, a retried message, or some of them."""
    chance = random.Random(seed)
    for _ in range(50):
        history = pulled(chance)
        ages = sorted(chance.sample(range(len(history.commits)), min(chance.randrange(3), len(history.commits))))
        copies = [copy(f"copy {age}", {0: history.commits[age]}) for age in reversed(ages)]
        copies.insert(0, copy("file", None, FileState.TORN))
        one = only(choose(copies, ranges(history.begin, history.end), RETRIED))
        check(history, one)


def check(history: History, one: ChosenOffset) -> None:
    assert history.unread() <= set(range(one.offset, history.end)), (history, one)
    assert one.read_again_at_most is not None
    assert len(history.read_again(one.offset)) <= one.read_again_at_most, (history, one)
    assert one.offset <= history.end


class TestCopies:
    def test_a_sound_file_counts_first_and_the_log_does_not(self) -> None:
        chosen = choose([copy("file", {0: 4}), copy(".bak", {0: 3, 1: 5})], ranges(), RETRIED)
        assert [(one.queue_id, one.found, one.source) for one in chosen] == [(0, 4, "file"), (1, 5, ".bak")]
        assert chosen[0].read_again_at_most == 6

    def test_an_empty_table_proves_nothing(self) -> None:
        """A broker that was started without offsets leaves one: copies and the log count beside it."""
        empty = OffsetsCopy("file", "file", FileState.SOUND)
        assert only(choose([empty, copy("replica", {0: 5})], ranges(), NOTHING)).source == "replica"
        assert only(choose([empty], ranges(), RETRIED)).source == BEGIN

    def test_the_first_copy_with_the_queue_counts(self) -> None:
        copies = [copy("file", {1: 3}, FileState.TORN), copy("replica", {0: 5, 1: 1}), copy(".bak", {0: 6, 2: 2})]
        chosen = choose(copies, ranges(), NOTHING)
        assert [(one.queue_id, one.found, one.source) for one in chosen] == [
            (0, 5, "replica"),
            (1, 3, "file"),
            (2, 2, ".bak"),
        ]

    @pytest.mark.parametrize(
        ("queues", "ranges", "offset", "read_again"),
        [
            pytest.param({0: 17}, ranges(), 10, 0, id="beyond the end"),
            pytest.param({5: 17}, ranges(), 0, 0, id="a queue that is not there"),
            pytest.param({5: 17}, ranges(unknown=frozenset({"T"})), 17, None, id="a queue of which nothing is known"),
            pytest.param({0: 2}, ranges(begin=5), 2, 5, id="before the first message"),
        ],
    )
    def test_what_becomes_of_an_offset(
        self, queues: dict[int, int], ranges: QueueRanges, offset: int, read_again: int | None
    ) -> None:
        one = only(choose([copy("file", queues)], ranges, NOTHING))
        assert (one.offset, one.found, one.read_again_at_most) == (offset, *queues.values(), read_again)

    def test_the_revive_group_has_the_last_message_read(self) -> None:
        assert only(choose([copy("file", {0: 10}, group=REVIVE_GROUP)], ranges(), NOTHING)).offset == 9
        assert choose([copy("file", {5: 10}, group=REVIVE_GROUP)], ranges(), NOTHING) == []


class TestLog:
    def test_a_retried_message_proves_no_more_than_that_the_group_reads(self) -> None:
        one = only(choose([], ranges(begin=3), RETRIED))
        assert (one.offset, one.source, one.read_again_at_most) == (3, BEGIN, 7)

    def test_a_queue_that_a_copy_lacks_begins_with_its_first_message(self) -> None:
        """The group may have committed there after the copy was written, and may begin at the end without an offset."""
        copies = [copy("file", None, FileState.TORN), copy(".bak", {1: 0})]
        chosen = choose(copies, ranges(), NOTHING)
        assert [(one.queue_id, one.offset, one.source) for one in chosen] == [(0, 0, BEGIN), (1, 0, ".bak")]
        assert [one.queue_id for one in choose([copy("file", {1: 0})], ranges(), NOTHING)] == [1]

    def test_groups_of_the_broker_are_left_out(self) -> None:
        assert choose([], ranges(), frozenset({("T", REVIVE_GROUP)})) == []


class TestTime:
    def test_all_groups_begin_there(self) -> None:
        one = only(choose([copy("file", {0: 4})], ranges(), NOTHING, {("T", 0): 7}))
        assert (one.offset, one.source, one.skipped, one.read_again_at_most) == (7, TIME, 3, 3)
        assert only(choose([], ranges(), RETRIED, {("T", 0): 7})).skipped == 7

    def test_in_all_queues_of_its_topics(self) -> None:
        chosen = choose([copy("file", {1: 0})], ranges(), NOTHING, {("T", 0): 7})
        assert [(one.queue_id, one.offset) for one in chosen] == [(0, 7), (1, 0)]

    def test_retries_and_the_brokers_own_stay(self) -> None:
        retry = OffsetsCopy("file", "", FileState.SOUND, offsets={("%RETRY%readers", "readers"): {0: 4}})
        known = QueueRanges({("%RETRY%readers", 0): (0, 9), ("T", 0): (0, 10)})
        assert only(choose([retry], known, NOTHING, {("%RETRY%readers", 0): 7})).offset == 4
        revive = copy("file", {0: 5}, group=REVIVE_GROUP)
        assert only(choose([revive], known, NOTHING, {("T", 0): 7})).offset == 5


# --------------------------------------------------------------------------------------------------------------- ranges
def read(root: Path, staging: Path, split_size: int = 1 << 30) -> LogReading:
    store = opened(root, needs_index_sizes=False)
    task = ScanTask(str(staging), DecodeRules(), store.dispatch_rules(), with_entries=False, with_times=True)
    staging.mkdir(exist_ok=True)
    return scan_log(Runner(), store.segments, task, split_size=split_size)


def ranges_of_store(store: StoreToStart, tmp_path: Path, *, files_stay: bool = True) -> QueueRanges:
    return queue_ranges(
        opened(store.root, needs_index_sizes=False), read(store.root, tmp_path / "runs"), files_stay=files_stay
    )


def test_ranges_are_the_logs(store: StoreToStart, tmp_path: Path) -> None:
    expected = {queue: (0, end) for queue, end in store.log.queue_offsets.items()}
    assert ranges_of_store(store, tmp_path).known == expected
    shutil.rmtree(store.root / "consumequeue")
    assert ranges_of_store(store, tmp_path).known == expected


def test_after_retention_they_begin_later(store: StoreToStart, tmp_path: Path) -> None:
    store.segment(0).unlink()
    first: dict[Any, int] = {}
    for record in store.log.records:
        if record.offset >= int(store.segment(0).name):
            first.setdefault(record.message.queue, record.message.queue_offset or 0)
    assert {queue: begin for queue, (begin, _) in ranges_of_store(store, tmp_path).known.items()} == first


def test_a_damaged_queue_offset_moves_no_end(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for offset in (0, 1, 1 << 40, 3):
        log.message(topic="T", queue_offset=offset)
    assert ranges_of_store(finished(tmp_path / "store", log), tmp_path, files_stay=False).known["T", 0] == (0, 4)


def test_a_queue_whose_messages_are_all_deleted_ends_where_its_files_do(tmp_path: Path) -> None:
    """Where queues lie in RocksDB, files that were left tell nothing."""
    log = LogBuilder(4096)
    for number in range(60):
        log.message(topic="Quiet" if number < 5 else "Busy", body=bytes(200))
    store = finished(tmp_path / "store", log)
    store.segment(0).unlink()
    assert ranges_of_store(store, tmp_path).known["Quiet", 0] == (5, 5)
    assert ranges_of_store(store, tmp_path, files_stay=False).of("Quiet", 0) == (0, 0)
    in_rocksdb = replace(opened(store.root, needs_index_sizes=False), queues_in=QueueStore("rocksdb"))
    found = queue_ranges(in_rocksdb, read(store.root, tmp_path / "runs"), files_stay=True)
    assert (set(found.known), found.unknown) == ({("Busy", 0)}, frozenset())


def test_what_has_no_queue(store: StoreToStart, tmp_path: Path) -> None:
    found = ranges_of_store(store, tmp_path)
    assert found.of("Nobody", 3) == (0, 0)
    assert found.of("%LMQ%one", 0) is None
    assert QueueRanges(unknown=frozenset({"Batch"})).of("Batch", 0) is None
    assert found.queues("Orders") == [0, 1]
    assert found.queues("Nobody") == []


@pytest.mark.parametrize("seed", range(4))
def test_the_first_message_at_or_after_a_time(seed: int, tmp_path: Path) -> None:
    """Where the clock was set back, too: no message of that time or later lies before the offset."""
    chance = random.Random(seed)
    log = LogBuilder(4096)
    clock = 1_700_000_000_000
    for _ in range(80):
        clock += chance.choice([0, 1, 5, 5, 5, -40])
        log.message(topic=chance.choice("TU"), queue_id=chance.randrange(2), store_timestamp=clock, body=bytes(50))
    root = finished(tmp_path / "store", log).root
    reading = read(root, tmp_path / "runs", split_size=chance.choice([1000, 1 << 30]))
    found = queue_ranges(opened(root, needs_index_sizes=False), reading, files_stay=True)
    times = {record.message.store_timestamp or 0 for record in log.records}
    for time in (min(times) - 1, max(times) + 1, *chance.sample(sorted(times), 5)):
        at = offsets_at(reading, found, time)
        for queue, end in log.queue_offsets.items():
            own = [record.message for record in log.records if record.message.queue == queue]
            later = [one.queue_offset for one in own if (one.store_timestamp or 0) >= time]
            assert at[str(queue[0]), queue[1]] == min((one for one in later if one is not None), default=end)
