"""A store of RocksDB queues against its log: a rebuilt database is as it should be, and every fault in it is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import golden
from support.verifying import verify_here

from storeformat.queues import rocksdb_pairs
from storeformat.queues.topic_filter import TopicFilter
from storeformat.store import recovery

pytest.importorskip("rocksdict")
from support.rocksdb_stores import ChangedDatabase, empty, with_database

pytestmark = pytest.mark.golden

(STORE,) = golden.stores("base-clean-5.5.0")
SETTINGS = {**STORE.settings, "storeType": "defaultRocksDB"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_database(STORE.name, tmp_path_factory.mktemp("healthy"))[0]


@pytest.fixture
def root(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def test_a_rebuilt_database_is_as_it_should_be(root: Path) -> None:
    verified = verify_here(root, SETTINGS)
    assert verified.verdicts.counts == {}
    assert verified.compared["consume_queue_units"] > 100
    assert verified.compared["queues"] == STORE.entry["counts"]["queues"]
    (root / "abort").touch()
    assert verify_here(root, SETTINGS).verdicts.counts == {}


@pytest.mark.parametrize(("most", "hazards"), [(1, ["lag_beyond_recovery"]), (1000, [])])
def test_an_empty_database_of_a_killed_broker_lags_as_files_do(
    root: Path, most: int, hazards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MOST_RECOVERED_SEGMENTS", most)
    empty(root / "consumequeue")
    units = verify_here(root, SETTINGS).verdicts.counts["missing_unit"]
    (root / "abort").touch()
    verdicts = verify_here(root, SETTINGS).verdicts
    assert verdicts.counts == {}
    assert [row["hazard"] for row in verdicts.hazards] == hazards
    assert f"the queues lag: {units} messages from offset 0 on" in " ".join(verdicts.notes)


def lose(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units.delete(pairs[2][0])


def point_elsewhere(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units[pairs[2][0]] = pairs[1][1]


def change_time(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units[pairs[2][0]] = pairs[2][1][:-1] + b"\1"


def add(database: ChangedDatabase) -> None:
    topic, queue_id, pairs = database.queue()
    database.ends[rocksdb_pairs.end_key(topic, queue_id, "max")] = rocksdb_pairs.end_value(0, 1 << 40)
    database.units[rocksdb_pairs.unit_key(topic, queue_id, 1 << 40)] = pairs[0][1]


def add_queue(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units[rocksdb_pairs.unit_key(b"Unknown", 0, 0)] = pairs[0][1]
    database.ends[rocksdb_pairs.end_key(b"Unknown", 0, "max")] = rocksdb_pairs.end_value(0, 0)


def shorten(database: ChangedDatabase) -> None:
    topic, queue_id, pairs = database.queue()
    last, _ = pairs[-2]
    database.ends[rocksdb_pairs.end_key(topic, queue_id, "max")] = pairs[-2][1][:8] + last[-8:]


def hide_the_first(database: ChangedDatabase) -> None:
    topic, queue_id, pairs = database.queue()
    second, value = pairs[1]
    database.ends[rocksdb_pairs.end_key(topic, queue_id, "min")] = value[:8] + second[-8:]


def forget_the_end(database: ChangedDatabase) -> None:
    topic, queue_id, _ = database.queue()
    database.ends.delete(rocksdb_pairs.end_key(topic, queue_id, "max"))


def be_ahead(database: ChangedDatabase) -> None:
    database.ends[rocksdb_pairs.checkpoint_key()] = rocksdb_pairs.checkpoint_value(1 << 50)


def forget_the_checkpoint(database: ChangedDatabase) -> None:
    database.ends.delete(rocksdb_pairs.checkpoint_key())


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (lose, {"missing_unit": 1}),
        (point_elsewhere, {"wrong_offset": 1}),
        (change_time, {"wrong_store_time": 1}),
        (add, {"extra_unit": 1, "wrong_end": 1}),
        (add_queue, {"extra_unit": 1}),
        (shorten, {"wrong_end": 1}),
        (hide_the_first, {"wrong_end": 1}),
        (forget_the_end, {"wrong_end": 1}),
        (be_ahead, {"checkpoint_ahead": 1}),
        (forget_the_checkpoint, {"wrong_end": 1}),
    ],
)
@pytest.mark.parametrize("unclean", [False, True])
def test_faults_are_named(
    root: Path, spoil: Callable[[ChangedDatabase], None], counts: dict[str, int], unclean: bool
) -> None:
    with ChangedDatabase(root) as database:
        spoil(database)
    if unclean:
        (root / "abort").touch()
    found = verify_here(root, SETTINGS).verdicts
    if unclean and spoil in (forget_the_checkpoint, be_ahead):
        # everything is dispatched again; the ends are cut back to the log
        assert found.counts == {}
    else:
        assert found.counts == counts
        assert {row["artefact"] for row in found.differences} == {"consumequeue"}


def test_what_was_not_flushed_is_no_difference_after_a_crash(root: Path) -> None:
    with ChangedDatabase(root) as database:
        topic, queue_id, pairs = database.queue()
        key, value = pairs[-1]
        database.units.delete(key)
        last, before = pairs[-2]
        database.ends[rocksdb_pairs.end_key(topic, queue_id, "max")] = before[:8] + last[-8:]
        database.ends[rocksdb_pairs.checkpoint_key()] = value[:8]
    assert verify_here(root, SETTINGS).verdicts.counts == {"missing_unit": 1, "wrong_end": 1}
    (root / "abort").touch()
    found = verify_here(root, SETTINGS).verdicts
    assert found.counts == {}
    assert any("the queues lag: 1 messages" in note for note in found.notes)


def test_one_topic_is_judged_alone(root: Path) -> None:
    with ChangedDatabase(root) as database:
        topic, queue_id, _ = database.queue()
        lose(database)
        other = next(
            end[:2]
            for end in map(rocksdb_pairs.parse_end, database.ends.keys())
            if end and end[0] not in (topic, rocksdb_pairs.CHECKPOINT_TOPIC)
        )
    own = verify_here(root, SETTINGS, topics=(TopicFilter(topic.decode(), queue_id),))
    assert own.verdicts.counts == {"missing_unit": 1}
    assert verify_here(root, SETTINGS, topics=(TopicFilter(other[0].decode(), other[1]),)).verdicts.counts == {}


def test_a_database_that_is_gone_is_one_missing_file(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    counts = verify_here(root, SETTINGS).verdicts.counts
    assert counts["missing_file"] == 1
    assert counts["missing_unit"] > 100
