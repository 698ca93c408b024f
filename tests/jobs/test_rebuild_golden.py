"""Golden stores: rebuilt byte for byte, and verified."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.broker_model import dispatch, read_segments
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.golden_differences import index_differences, queue_differences
from support.rebuilding import options_for, rebuild_here, rules_of_release, verify_here
from support.store_builder import LogBuilder, overwrite_log

from jobs.contract.options import PublishOptions, RestoreOptions, TopicFilter
from jobs.contract.report import Reporter
from jobs.log.opening import open_store
from jobs.log.restored_log import Restored
from jobs.publish import publish, restore
from jobs.rebuild import build_store, rebuild
from jobs.rebuild.rebuild import parts_not_rebuilt
from jobs.spark.runner import Runner
from jobs.verify.differences import Verification
from storeformat.errors import WrongSettings
from storeformat.store.settings import EXT_SIZE

pytestmark = pytest.mark.golden


# ------------------------------------------------------------------------------------------------------- rebuild golden
WHOLE = 1 << 30
SEGMENT = 65_536
SPLIT_SIZES = (1 << 10, 4 << 10, 64 << 10, WHOLE)
SPLIT_STORES = [
    pytest.param(store, size, id=f"{store}-{size}", marks=() if number % 3 == at or size == WHOLE else pytest.mark.slow)
    for number, store in enumerate(golden.stores("plain"))
    for at, size in enumerate(SPLIT_SIZES)
]
"""Each store whole, and cut in one way; in the slow run in each."""


def compare(store: GoldenStore, root: Path, built: Path) -> list[str]:
    differences = queue_differences(root, built, store) + index_differences(root, built, store)
    return [str(difference) for difference in differences]


@pytest.mark.parametrize(("store", "split_size"), SPLIT_STORES)
def test_files_are_the_brokers_own(store: GoldenStore, split_size: int, tmp_path: Path) -> None:
    root = golden.unpack(store)
    built = rebuild_here(root, tmp_path, store.settings, split_size=split_size, until_offset=store.dispatched_up_to)
    assert compare(store, root, Path(built.directory)) == []
    if store.dispatched_up_to is None:
        assert built.reading.end == store.end_offset
        assert built.reading.records == store.entry["counts"]["messages"]
    assert built.reading.damaged == []
    assert bool(built.reading.stale) == (store.scenario == "stale" and "mid" in store.name)


@pytest.mark.parametrize("split_size", [1 << 10, 5_000, WHOLE])
@pytest.mark.parametrize("store", golden.stores("lmq") + golden.stores("batch-cq"), ids=str)
def test_light_and_batch_queues(store: GoldenStore, split_size: int, tmp_path: Path) -> None:
    root, is_light = golden.unpack(store), store.scenario == "lmq"
    version = rules_of_release(store.version) if is_light else None
    built = Path(rebuild_here(root, tmp_path, store.settings, split_size=split_size, broker_version=version).directory)
    assert compare(store, root, built) == []
    assert list(built.glob("consumequeue/%LMQ%*" if is_light else "batchconsumequeue/*"))


def test_batch_topics_can_be_named_or_configured(tmp_path: Path) -> None:
    (store,) = golden.stores("batch-cq-5.3.3")
    root, log = golden.unpack(store), tmp_path / "log"
    shutil.copytree(root / "commitlog", log / "commitlog")
    topics = tuple(path.name for path in (root / "batchconsumequeue").iterdir())
    built = rebuild_here(log, tmp_path / "named", store.settings, batch_topics=topics)
    assert compare(store, root, Path(built.directory)) == []
    (log / "config").mkdir()
    entries = ",".join(f'"{name}":{{"attributes":{{"queue.type":"BatchCQ"}},"perm":6,1:2}}' for name in topics)
    (log / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{{entries}}}}}')
    built = rebuild_here(log, tmp_path / "configured", store.settings)
    assert compare(store, root, Path(built.directory)) == []


EXT_UNIT = struct.Struct(">hqqh")
CQ_UNIT = struct.Struct(">qiq")


def extended(root: Path) -> dict[str, list[tuple[int, ...]]]:
    """Of each queue, unit by unit: commit-log offset, size, and tags code and store time where its address leads."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for directory in sorted((root / "consumequeue").glob("*/*")):
        queue = directory.relative_to(root / "consumequeue").as_posix()
        units = found.setdefault(queue, [])
        ext = {int(path.name): path.read_bytes() for path in (root / "consumequeue_ext" / queue).glob("*")}
        for path in sorted(directory.iterdir()):
            for offset, size, address in CQ_UNIT.iter_unpack(path.read_bytes()):
                if size:
                    place = address + (1 << 63)
                    base = max(base for base in ext if base <= place)
                    length, tags_code, time, bit_map = EXT_UNIT.unpack_from(ext[base], place - base)
                    assert length == EXT_UNIT.size + bit_map
                    units.append((offset, size, tags_code, time))
    return found


@pytest.mark.parametrize("split_size", [1 << 10, WHOLE])
@pytest.mark.parametrize("store", golden.stores("cq-ext"), ids=str)
def test_addresses_lead_to_the_brokers_extended_units(store: GoldenStore, split_size: int, tmp_path: Path) -> None:
    """These have bit maps, which no log gives back: so places differ, but not what lies there."""
    root = golden.unpack(store)
    settings = {**store.settings, "mappedFileSizeConsumeQueueExt": 100}
    shutil.copytree(root / "commitlog", tmp_path / "log" / "commitlog")
    built = Path(rebuild_here(tmp_path / "log", tmp_path / "made", settings, split_size=split_size).directory)
    assert index_differences(root, built, store) == []
    assert extended(built) == extended(root)
    model = dispatch(read_segments(root), BrokerSettings.of(store.version, settings))
    ours = {path.relative_to(built).as_posix(): path.read_bytes() for path in built.glob("consumequeue*/*/*/*")}
    assert ours == model.files
    assert sum(name.startswith("consumequeue_ext/") for name in ours) > len(extended(root))


def test_what_is_extended_can_be_published_and_verified(tmp_path: Path) -> None:
    (store,) = golden.stores("cq-ext-5.3.3")
    root = Path(shutil.copytree(golden.unpack(store), tmp_path / "store"))
    built = rebuild_here(root, tmp_path / "work", store.settings)
    quiet = Reporter(quiet=True)
    report = publish.run(PublishOptions(store=str(root), rebuilt=built.directory), quiet)
    assert "consumequeue_ext" in report["replaced"]
    assert verify_here(root, store.settings).verdicts.counts == {}
    assert parts_not_rebuilt(str(root), extended=True) == []
    restore.run(RestoreOptions(store=str(root)), quiet)
    assert extended(root) == extended(golden.unpack(store))
    assert [part["part"] for part in parts_not_rebuilt(str(root), extended=True)] == ["consumequeue_ext"]


def test_the_place_of_a_lost_message_leads_to_its_neighbours_unit(tmp_path: Path) -> None:
    (store,) = golden.stores("cq-ext-5.3.3")
    root = Path(shutil.copytree(golden.unpack(store), tmp_path / "store"))
    before = extended(root)
    (queue, units) = max(before.items(), key=lambda item: len(item[1]))
    for offset, size, *_ in [units[5], units[6], units[-3]]:
        overwrite_log(root / "commitlog", offset, bytes(size))
    after = extended(Path(rebuild_here(root, tmp_path / "work", store.settings, on_damage="salvage").directory))
    assert after[queue] == [*units[:5], units[7], units[7], *units[7:-3], units[-2], *units[-2:]]
    assert {name: found for name, found in after.items() if name != queue} == {
        name: found for name, found in before.items() if name != queue
    }


def test_the_report_names_every_part_that_is_not_rebuilt(tmp_path: Path) -> None:
    (store,) = golden.stores("cq-ext-5.3.3")
    root = Path(shutil.copytree(golden.unpack(store), tmp_path / "store"))
    parts = {
        "compaction/compactionLog/T/0/0": "compaction", "timerwheel": "timerwheel", "timerlog/0": "timerlog",
        "kvStore/000009.sst": "kvStore", "consumequeue_rocksdb/000009.sst": "consumequeue_rocksdb",
        "rocksdbstore/000009.sst": "rocksdbstore", "consumequeue/CURRENT": "consumequeue/CURRENT",
        "config/topics/000009.sst": "config/topics", "epochFileCheckpoint": "epochFileCheckpoint",
        "transaction/statetable/0": "transaction", "tiered/T/0": "tiered", "timerwheel.1048576": "timerwheel.1048576",
        "config/rdb/000004.log": "config/rdb", "brokerIdentity": "brokerIdentity", "plugin/state": "plugin",
    }  # fmt: skip
    for path in parts:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    options = options_for(root, tmp_path / "out", store.settings, broker_version="5.3")
    opened = open_store(options)
    runner = Runner()
    built = build_store.rebuild(options, opened, str(tmp_path / "work"), runner)
    report = json.loads(rebuild._report(options, Restored(opened), built, [], runner, Reporter()).to_json())
    assert report["stages"].keys() > {"scan the commit log"}
    named = {part["part"] for part in report["not_rebuilt"] if len(part["reason"]) > 30}
    assert named == {"consumequeue_ext", *parts.values()}
    assert report["consume_queue_ext_files"] > 0


def test_extended_files_are_as_long_as_the_stores_own(tmp_path: Path) -> None:
    (store,) = golden.stores("cq-ext-5.3.3")
    root = golden.unpack(store)
    settings = {name: value for name, value in store.settings.items() if name != "mappedFileSizeConsumeQueueExt"}
    opened = open_store(options_for(root, tmp_path, settings))
    assert opened.settings.number(EXT_SIZE) == 2048
    assert any("consumequeue_ext files have 2048 bytes" in note for note in opened.notes)
    with pytest.raises(WrongSettings, match="makes files of 4096 bytes, the store's own have 2048"):
        open_store(options_for(root, tmp_path, {**settings, "mappedFileSizeConsumeQueueExt": 4096}))


@pytest.mark.parametrize("store", golden.stores("cq-ext"), ids=str)
def test_without_the_switch_extended_units_are_named_and_plain_ones_written(store: GoldenStore, tmp_path: Path) -> None:
    root = golden.unpack(store)
    settings = {**store.settings, "enableConsumeQueueExt": False}
    assert [part["part"] for part in parts_not_rebuilt(str(root))] == ["consumequeue_ext"]
    built = rebuild_here(root, tmp_path, settings)
    assert index_differences(root, Path(built.directory), store) == []
    for path in (root / "consumequeue").glob("*/*/*"):
        theirs = path.read_bytes()
        ours = (Path(built.directory) / path.relative_to(root)).read_bytes()
        # Offset and size of every unit; the tags code is an address there and a hash here.
        assert [theirs[at : at + 12] for at in range(0, len(theirs), 20)] == [
            ours[at : at + 12] for at in range(0, len(ours), 20)
        ]


def lost_older_index(store: GoldenStore) -> bool:
    return store.index_begins_at is not None and store.index_begins_at % SEGMENT == 0


@pytest.mark.parametrize("store", golden.stores(lambda s: s.is_plain and lost_older_index(s)), ids=str)
def test_index_of_the_log_that_the_broker_indexed(store: GoldenStore, tmp_path: Path) -> None:
    """A broker that recovered indexed only the last segments; cut there, the log gives its index byte for byte."""
    root = golden.unpack(store)
    shutil.copytree(root / "commitlog", tmp_path / "store" / "commitlog")
    for segment in (tmp_path / "store" / "commitlog").iterdir():
        if int(segment.name) < store.index_begins_at:
            segment.unlink()
    version = rules_of_release(store.version)
    built = rebuild_here(tmp_path / "store", tmp_path, store.settings, broker_version=version, only=("index",))
    assert index_differences(root, Path(built.directory), store, from_begin=False) == []


@pytest.mark.parametrize("store", golden.stores("base"), ids=str)
def test_the_store_shows_the_release_as_far_as_bytes_depend_on_it(store: GoldenStore, tmp_path: Path) -> None:
    built = rebuild_here(golden.unpack(store), tmp_path, store.settings)
    again = tmp_path / "again"
    named = rebuild_here(golden.unpack(store), again, store.settings, broker_version=rules_of_release(store.version))
    shown = [row for row in built.rows.to_pylist() if row["path"] != "checkpoint"]
    assert shown == [row for row in named.rows.to_pylist() if row["path"] != "checkpoint"]


class ShuffledRunner:
    """Runs items in a random order and hands the rows back in theirs, as a cluster does."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def map(self, what: str, task: Callable[[Iterator[Any]], Iterable[Any]], items: Sequence[Any]) -> list[Any]:
        order = list(range(len(items)))
        self.random.shuffle(order)
        rows = {number: list(task(iter([items[number]]))) for number in order}
        return [row for number in range(len(items)) for row in rows[number]]


@pytest.mark.parametrize("split_size", [300, 7_919, 65_537])
def test_bytes_do_not_depend_on_splits_or_order(split_size: int, tmp_path: Path) -> None:
    (store,) = golden.stores("embedded-5.5.0")
    root = golden.unpack(store)
    whole = rebuild_here(root, tmp_path / "whole", store.settings, Runner())
    cut = rebuild_here(root, tmp_path / "cut", store.settings, ShuffledRunner(split_size), split_size=split_size)
    assert cut.rows.to_pylist() == whole.rows.to_pylist()
    assert len(whole.rows) > 20


# -------------------------------------------------------------------------------------------------------- verify golden
def notes(verified: Verification) -> str:
    return "\n".join(verified.verdicts.notes)


@pytest.mark.parametrize(
    ("store", "split_size"),
    [
        pytest.param(store, size, id=f"{store}-{size}", marks=() if number % 2 == at else pytest.mark.slow)
        for number, store in enumerate(golden.stores())
        for at, size in enumerate((4 << 10, 1 << 30))
    ],
)
def test_no_false_alarm(store: GoldenStore, split_size: int) -> None:
    version = rules_of_release(store.version) if store.scenario == "lmq" else None
    verified = verify_here(golden.unpack(store), store.settings, split_size=split_size, broker_version=version)
    assert verified.verdicts.differences == []
    assert not verified.verdicts.counts
    assert verified.reading.records == store.entry["counts"]["messages"]
    assert verified.compared["index_files"] == store.entry["counts"]["index_files"]
    assert verified.compared["consume_queue_units"] > 0
    assert verified.compared["index_entries"] > 0
    assert ("queues lag" in notes(verified)) == (store.dispatched_up_to is not None)
    hazards = verified.verdicts.hazard_counts
    assert bool(hazards["index_gap"]) == (store.index_begins_at is not None)
    assert bool(hazards["old_units"] + hazards["units_beyond_log"]) == (store.scenario == "stale")
    assert "not verified" not in notes(verified).replace("bit maps are not verified", "")


@pytest.mark.parametrize("store", golden.stores("lmq"), ids=str)
def test_light_queues_that_nobody_asked_for(store: GoldenStore) -> None:
    sizes = {name: value for name, value in store.settings.items() if name[:6] != "enable"}
    verified = verify_here(golden.unpack(store), sizes)
    assert not verified.verdicts.counts
    assert "not verified without --set enableMultiDispatch" in notes(verified)


@pytest.mark.parametrize("store", golden.stores(lambda s: s.scenario in ("base", "lag", "retention")), ids=str)
def test_log_that_was_cut_while_the_rest_went_on(store: GoldenStore) -> None:
    """``--until-offset`` is what a live broker looks like: queues and index know more than was read."""
    until = (store.min_offset + store.end_offset) // 2
    verified = verify_here(golden.unpack(store), store.settings, until_offset=until)
    assert not verified.verdicts.counts
    assert not verified.verdicts.hazard_counts["units_beyond_log"]
    assert "after the part of the log that was read" in notes(verified)


@pytest.mark.parametrize("name", ["base-clean-4.9.8", "base-clean-5.5.0", "retention-5.1.4"])
def test_queues_of_one_topic(name: str) -> None:
    (store,) = golden.stores(name)
    root = golden.unpack(store)
    whole = verify_here(root, store.settings)
    one = verify_here(root, store.settings, topics=(TopicFilter("TopicOrder", 1),))
    all_of_it = verify_here(root, store.settings, topics=(TopicFilter("TopicOrder"),))
    assert not one.verdicts.counts
    assert one.compared["queues"] == 1
    assert all_of_it.compared["queues"] == len(list((root / "consumequeue" / "TopicOrder").iterdir()))
    units = [verified.compared["consume_queue_units"] for verified in (one, all_of_it, whole)]
    assert 0 < units[0] < units[1] < units[2]
    assert "index_files" not in one.compared


@pytest.fixture
def lagging(tmp_path: Path) -> tuple[GoldenStore, Path]:
    (store,) = golden.stores("lag-killed-5.1.4")
    return store, golden.unpack(store, tmp_path)


def test_lag_without_abort_is_loss(lagging: tuple[GoldenStore, Path]) -> None:
    """A store that was closed cleanly has dispatched everything: 5.0 to 5.3.1 would never queue the rest."""
    store, root = lagging
    (root / "abort").unlink()
    counts = verify_here(root, store.settings).verdicts.counts
    assert counts == {"missing_unit": 62, "missing_file": 1, "missing_key": 120}  # the file would hold 4 units


def test_queue_that_lags_behind_the_others_is_damaged(lagging: tuple[GoldenStore, Path]) -> None:
    store, root = lagging
    file = root / "consumequeue" / "A" / "0" / "00000000000000000000"
    units = file.read_bytes()
    last = max(at for at in range(0, len(units), 20) if any(units[at : at + 20]))
    (offset,) = struct.unpack_from(">q", units, last)
    assert offset < store.dispatched_up_to - 5_000
    file.write_bytes(units[:last] + bytes(len(units) - last))
    (difference,) = verify_here(root, store.settings).verdicts.differences
    assert (difference["cause"], difference["position"]) == ("missing_unit", last)
    assert difference["expected"]["phy_offset"] == offset


def test_lagging_store_without_an_index(lagging: tuple[GoldenStore, Path]) -> None:
    store, root = lagging
    shutil.rmtree(root / "index")
    verified = verify_here(root, store.settings)
    assert verified.verdicts.counts == {"missing_file": 1}
    # 120 and the two of the last record in a queue, whose turn in the index comes after that.
    assert "122 entries are not made yet" in notes(verified)


@pytest.mark.parametrize(("version", "segments"), [("5.3", 12), ("5.5", 9), ("5.5", 12)])
def test_queues_that_no_recovery_brings_back_are_a_hazard(tmp_path: Path, version: str, segments: int) -> None:
    """Until 5.3 a start after a crash dispatches the whole log again, from 5.4 on its last ten segments."""
    log = LogBuilder(4096)
    while log.end_offset < segments * 4096 - 1000:
        log.message(topic="T", body=bytes(100))
    root = log.write(tmp_path / "store")
    (root / "abort").touch()
    verified = verify_here(root, {"maxHashSlotNum": 100, "maxIndexNum": 400}, broker_version=version)
    assert "queues lag" in notes(verified)
    assert [difference["artefact"] for difference in verified.verdicts.differences] == ["checkpoint"]
    hazards = [row for row in verified.verdicts.hazards if row["hazard"] == "lag_beyond_recovery"]
    if (version, segments) != ("5.5", 12):
        assert hazards == []
        return
    (hazard,) = hazards
    assert "from offset 0 to 8192" in hazard["what"]
    assert "publish --after-crash" in hazard["advice"]
