"""Lag of groups, and copies of their offsets."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.reading import opened
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder
from support.store_to_start import StoreToStart

from jobs.consumer_offsets.lag import committed_offsets, offsets_in_database, version_of_database
from jobs.consumer_offsets.plan import OffsetsCopy, read_copies
from jobs.contract.options import LagOptions
from jobs.contract.report import Reporter
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore
from storeformat.errors import MissingInput, NotAStore
from storeformat.store.config_files import DataVersion, FileState


# ----------------------------------------------------------------------------------------------------------- lag
@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten messages in each of two queues; retention has taken the first segment."""
    log = LogBuilder(1024)
    for number in range(20):
        log.message(topic="T", queue_id=number % 2)
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", {}, only=("consumequeue",)).directory)
    (built / "consumequeue").rename(root / "consumequeue")
    (root / "commitlog" / ("0" * 20)).unlink()
    (root / "config").mkdir()
    return root


def lag(root: Path, **more: Any) -> dict[str, Any]:
    options = LagOptions(store=str(root), **more)
    return query.by_lag(options, OfflineStore(open_store(options)), None)


def commit(root: Path, table: dict[str, Any]) -> None:
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def test_lag(root: Path) -> None:
    commit(root, {"T@behind": {"0": 7, "1": 0}, "T@ahead": {"0": 12}, "Gone@behind": {"0": 5}})
    answer = lag(root)
    rows = {(row["group"], row["topic"], row["queue_id"]): row for row in answer["queues"]}
    begin = rows["behind", "T", 1]["begin"]
    assert 0 < begin < 7
    assert {key: (row["lag"], row["deleted"], row["beyond_end"]) for key, row in rows.items()} == {
        ("behind", "T", 0): (3, 0, False),
        ("behind", "T", 1): (10 - begin, begin, False),
        ("ahead", "T", 0): (0, 0, True),
        ("behind", "Gone", 0): (None, 0, False),
    }
    assert answer["groups"][0] == {"group": "behind", "topic": "T", "queues": 2, "lag": 13 - begin}
    assert answer["queues"][0]["lag"] == max(row["lag"] or 0 for row in rows.values())
    assert answer["groups"][-1] == {"group": "behind", "topic": "Gone", "queues": 1, "lag": None}
    assert [note.split(" ")[0] for note in answer["notes"]] == ["the", "1", str(begin)]
    assert {row["group"] for row in lag(root, group="ahead")["queues"]} == {"ahead"}
    assert lag(root, group="nobody")["found"] == 0


def test_an_offset_below_0_is_before_the_first_message(root: Path) -> None:
    commit(root, {"T@g": {"0": -(2**63), "1": 0}})
    for row in lag(root)["queues"]:
        assert (row["deleted"], row["lag"]) == (row["begin"], row["end"] - row["begin"])


def test_without_queues_no_lag_is_known(root: Path) -> None:
    """Nobody may take it for 0."""
    commit(root, {"T@g": {"0": 7, "1": 0}})
    shutil.rmtree(root / "consumequeue")
    report = query.run(LagOptions(store=str(root)), Reporter(quiet=True))
    assert (report.exit_code, report["groups"]) == (1, [{"group": "g", "topic": "T", "queues": 2, "lag": None}])
    (note,) = report["notes"]
    assert note.startswith("the lag of 2 committed offsets is not known")


def test_of_a_queue_whose_files_are_gone_no_lag_is_known(root: Path) -> None:
    commit(root, {"T@g": {"0": 7, "1": 7}})
    for path in (root / "consumequeue/T/0").iterdir():
        path.unlink()
    assert [(row["queue_id"], row["lag"]) for row in lag(root)["queues"]] == [(1, 3), (0, None)]


def test_a_queue_without_a_message_has_no_lag(root: Path) -> None:
    commit(root, {"T@g": {"0": 10}, "%RETRY%g@g": {"0": 0}})
    assert [(row["topic"], row["lag"]) for row in lag(root)["queues"]] == [("%RETRY%g", 0), ("T", 0)]


def test_offsets_that_cannot_be_read(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    with pytest.raises(MissingInput, match="there are no committed offsets"):
        lag(root)
    path.write_text('{"offsetTable": {"T@g"')
    with pytest.raises(MissingInput, match="is torn, and its backup cannot be used"):
        lag(root)
    (root / "config" / "consumerOffsets").mkdir()
    (root / "config" / "consumerOffsets" / "000009.sst").write_bytes(b"pairs")
    with pytest.raises(MissingInput, match="there is no RocksDB database"):
        lag(root)


def write_database(path: Path, pairs: dict[bytes, bytes], version: bytes | None = None) -> str:
    rocksdict = pytest.importorskip("rocksdict")
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    for key, value in pairs.items():
        database[key] = value
    if version is not None:
        family = database.create_column_family("kvDataVersion", rocksdict.Options(raw_mode=True))
        family[b"kvDataVersionKey"] = version
    database.flush()
    database.close()
    return str(path)


def test_offsets_in_a_database(root: Path) -> None:
    write_database(root / "config" / "consumerOffsets", {b"T@g": b'{"offsetTable":{0:7,1:9}}'})  # as fastjson writes it
    assert [(row["queue_id"], row["committed"]) for row in lag(root)["queues"]] == [(0, 7), (1, 9)]
    commit(root, {"T@g": {"0": 8}})  # what a broker with queues in files reads
    found = lag(root)
    assert [(row["queue_id"], row["committed"]) for row in found["queues"]] == [(0, 8)]
    assert "of another storeType" in found["notes"][-1]


def test_what_is_no_text_in_a_database_costs_no_group(tmp_path: Path) -> None:
    """A broker never writes such; what is shown of it has U+FFFD in its place."""
    pairs = {b"T\xff@g\xfe": b'{"offsetTable":{0:7},"x":"\xff"}', b"U@g": b"[1]"}
    path = write_database(tmp_path / "offsets", pairs, b'{"counter":41,"stateVersion":2,"timestamp":5,"x":"\xff"}')
    assert offsets_in_database(path) == {("T\ufffd", "g\ufffd"): {0: 7}, ("U", "g"): {}}
    assert version_of_database(path) == DataVersion(2, 41, 5)


def test_offsets_are_read_from_a_local_disk_alone(root: Path) -> None:
    store = replace(opened(root), root="s3://bucket/store")
    for read in (committed_offsets, read_copies):
        with pytest.raises(NotAStore, match="can only be read from a local disk"):
            read(store)


@pytest.mark.parametrize("value", [b'{"offsetTable":{"x":7}}', b"", b"{", b"[" * 100_000])
def test_a_database_without_offsets(tmp_path: Path, value: bytes) -> None:
    path = write_database(tmp_path / "offsets", {b"T@g": value})
    with pytest.raises(NotAStore, match="these are not committed offsets") as caught:
        offsets_in_database(path)
    assert caught.value.path == path
    assert version_of_database(path) is None


def test_with_light_queues_offsets_are_in_a_file_of_their_own(root: Path) -> None:
    commit(root, {"T@behind": {"0": 9}})
    (root / "config" / "lmqConsumerOffset.json").write_text(json.dumps({"offsetTable": {"T@behind": {"0": 7}}}))
    assert [row["lag"] for row in lag(root, settings=(("enableLmq", "true"),))["queues"]] == [3]
    assert [row["lag"] for row in lag(root)["queues"]] == [1]


# -------------------------------------------------------------------------------------------------------- copies
NAME = "consumerOffset.json"


def write(root: Path, name: str, offset: int | None, counter: int | None = None, age: float = 0) -> None:
    """A copy whose one offset tells it from the others; None for a torn one."""
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    version = {} if counter is None else {"dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1}}
    text = json.dumps({**version, "offsetTable": {"Orders@readers": {"0": offset or 1}}})
    path.write_text(text[:-2] if offset is None else text)
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))


def copies(store: StoreToStart, *replicas: Path) -> list[OffsetsCopy]:
    return read_copies(opened(store.root, needs_index_sizes=False), [str(root) for root in replicas])


def order(found: list[OffsetsCopy]) -> list[Any]:
    return [(copy.source.rpartition("/")[2], copy.offsets.get(("Orders", "readers"), {}).get(0)) for copy in found]


def test_the_file_and_its_backup(store: StoreToStart) -> None:
    write(store.root, NAME, 5)
    write(store.root, NAME + ".bak", 4)
    found = copies(store)
    assert order(found) == [("file", 5), (".bak", 4)]
    assert found[0].as_row() | {"path": None} == {
        "source": "file", "path": None, "content": "sound", "modified_ms": 1_700_000_000_000, "version": None,
        "groups": 1,
    }  # fmt: skip


def test_a_file_that_is_torn_or_empty(store: StoreToStart) -> None:
    write(store.root, NAME, None)
    assert order(copies(store)) == [("file, before its tear", 1)]
    (store.root / "config" / NAME).write_bytes(b"")
    assert [copy.content for copy in copies(store)] == [FileState.EMPTY]
    (store.root / "config" / NAME).write_bytes(bytes(100))
    assert [copy.content for copy in copies(store)] == [FileState.TORN]
    (store.root / "config" / NAME).unlink()
    assert copies(store) == []


def test_versions_tell_the_newer_one_and_not_the_times_of_files(store: StoreToStart, tmp_path: Path) -> None:
    """A slave goes on writing what its master last said."""
    write(store.root, NAME, None)
    write(store.root, NAME + ".bak", 7, counter=9, age=600)
    write(tmp_path / "slave", NAME, 6, counter=8)
    assert order(copies(store, tmp_path / "slave")) == [("file, before its tear", 1), (".bak", 7), ("slave", 6)]


def test_without_versions_times_tell(store: StoreToStart, tmp_path: Path) -> None:
    (store.root / "config" / NAME).unlink()
    write(store.root, NAME + ".bak", 7, age=600)
    write(tmp_path / "slave", NAME, 6, age=100)
    write(tmp_path / "slave", NAME + ".bak", 5, age=200)
    assert order(copies(store, tmp_path / "slave")) == [("slave", 6), ("slave .bak", 5), (".bak", 7)]


def test_a_replica_without_offsets(store: StoreToStart, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="this replica has no committed offsets"):
        copies(store, tmp_path / "slave")


def test_a_database_is_what_the_broker_read(store: StoreToStart) -> None:
    write_database(store.root / "config" / "consumerOffsets", {b"Orders@readers": b'{"offsetTable":{0:3}}'})
    write(store.root, NAME, 5)
    told = opened(store.root, needs_index_sizes=False, settings=(("storeType", "defaultRocksDB"),))
    assert order(read_copies(told)) == [("database", 3), ("file", 5)]
    told = opened(store.root, needs_index_sizes=False, settings=(("storeType", "default"),))
    assert order(read_copies(told)) == [("file", 5)]
