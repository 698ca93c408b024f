"""Queues of a store: where they are, where they end, and the delay levels that they show."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support import golden
from support.store_builder import LogBuilder

from jobs.table.load import contradicted, observed_delays
from storeformat.errors import WrongSettings
from storeformat.log.segments import Segment
from storeformat.queues.consume_queue import PRE_BLANK, pack_units
from storeformat.record.dispatch import parse_delay_levels
from storeformat.store import queue_ends
from storeformat.store.broker_rules import DEFAULTS
from storeformat.store.layout import QueueStore, queue_directories, queue_store, rocksdb_queues
from storeformat.store.queue_ends import QueueEnd, offset_at, units_at
from storeformat.store.segment_files import find_segments
from storeformat.store.settings import Settings

# --------------------------------------------------------------------------------------------------------- queue places
FILE = "consumequeue/T/0/" + "0" * 20


def store_with(root: Path, *paths: str) -> str:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    return str(root)


@pytest.mark.parametrize(
    ("paths", "settings", "shown"),
    [
        ([FILE], {"storeType": "DefaultRocksDB"}, "storeType=DefaultRocksDB"),
        (["consumequeue/CURRENT"], {}, "consumequeue/ is a RocksDB database"),
        (["consumequeue_rocksdb/CURRENT"], {},
         "consumequeue_rocksdb/ is a RocksDB database, and consumequeue/ has no queue"),
        (["config/topics/000012.sst"], {}, "config/topics/ is a RocksDB database"),
        (["config/consumerOffsets/000004.log"], {}, "config/consumerOffsets/ is a RocksDB database"),
        ([FILE, "config/subscriptionGroups/000004.log"], {}, "config/subscriptionGroups/ is a RocksDB database"),
    ],
)  # fmt: skip
def test_queues_in_rocksdb(tmp_path: Path, paths: list[str], settings: dict[str, str], shown: str) -> None:
    root = store_with(tmp_path, *paths)
    assert rocksdb_queues(root, Settings(settings)) == queue_store(root, Settings(settings)).evidence == shown


@pytest.mark.parametrize(
    ("paths", "settings"),
    [
        ([], {}),
        ([FILE, "rocksdbstore/CURRENT", "rocksdbstore/000009.sst", "config/topics.json", "config/topics/CURRENT"], {}),
        (["consumequeue/CURRENT", "config/topics/000012.sst"], {"storeType": "default"}),
        ([FILE, "consumequeue/CURRENT"], {"rocksdbCQDoubleWriteEnable": "true"}),
        ([FILE, "consumequeue_rocksdb/CURRENT"], {}),
    ],
)
def test_queues_in_files(tmp_path: Path, paths: list[str], settings: dict[str, str]) -> None:
    assert rocksdb_queues(store_with(tmp_path, *paths), Settings(settings)) is None


def test_directories_and_their_files(tmp_path: Path) -> None:
    for path in ("A/0/" + "0" * 20, "A/0/notes", "A/x/" + "0" * 20, "B/1/" + "0" * 18 + "20", "B/1/" + "0" * 20):
        file = tmp_path / "consumequeue" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    (tmp_path / "consumequeue" / "B" / "stray").touch()
    found = list(queue_directories(str(tmp_path), "consumequeue"))
    assert [(one.topic, one.queue_id) for one in found] == [("A", 0), ("A", None), ("B", 1)]
    assert [[int(file.name) for file in one.files()] for one in found] == [[0], [0], [0, 20]]
    assert len(found[0].entries()) == 2
    assert [one.topic for one in queue_directories(str(tmp_path), "consumequeue", {"B"})] == ["B"]
    assert list(queue_directories(str(tmp_path), "batchconsumequeue")) == []


DOUBLE = {"rocksdbCQDoubleWriteEnable": "true"}
SEPARATE = {"useSeparateStorePathForRocksdbCQ": "true"}


@pytest.mark.parametrize(
    ("paths", "settings", "kind", "database"),
    [
        ([], {}, "file", "consumequeue"),
        ([], {"storeType": "defaultRocksDB"}, "rocksdb", "consumequeue"),
        ([], {"storeType": "defaultRocksDB", **SEPARATE}, "rocksdb", "consumequeue_rocksdb"),
        (["consumequeue_rocksdb/CURRENT"], {}, "rocksdb", "consumequeue_rocksdb"),
        (["consumequeue_rocksdb/CURRENT", "consumequeue/CURRENT"], {}, "rocksdb", "consumequeue"),
        (["consumequeue_rocksdb/CURRENT"], {**DOUBLE}, "file", "consumequeue_rocksdb"),
        ([], {**DOUBLE, "storeType": "defaultRocksDB"}, "rocksdb", "consumequeue"),
        ([], {**DOUBLE, "combineCQLoadingCQTypes": "default"}, "file", "consumequeue"),
        ([], {**DOUBLE, "combineCQLoadingCQTypes": " defaultrocksdb;"}, "rocksdb", "consumequeue"),
        ([], {**DOUBLE, "combineCQLoadingCQTypes": "defaultRocksDB; default"}, "file", "consumequeue"),
    ],
)
def test_where_queues_are(tmp_path: Path, paths: list[str], settings: dict[str, str], kind: str, database: str) -> None:
    found = queue_store(store_with(tmp_path, *paths), Settings(settings))
    assert (found.kind, found.database) == (kind, database)
    assert found.in_rocksdb == (kind == "rocksdb")


def test_another_kind_is_asked_for(tmp_path: Path) -> None:
    root = store_with(tmp_path, FILE)
    assert queue_store(root, Settings({}), "rocksdb") == QueueStore("rocksdb", "consumequeue")
    assert queue_store(root, Settings({"storeType": "defaultRocksDB"}), "file").kind == "file"


def test_light_queues_in_rocksdb_alone_are_refused_by_name(tmp_path: Path) -> None:
    light = {"combineCQUseRocksdbForLmq": "TRUE"}
    with pytest.raises(WrongSettings, match="with combineCQUseRocksdbForLmq=true light queues are in RocksDB only"):
        queue_store(store_with(tmp_path), Settings({**DOUBLE, **light}))
    assert queue_store(str(tmp_path), Settings({**DOUBLE, "combineCQUseRocksdbForLmq": "yes"})).written_twice
    assert queue_store(str(tmp_path), Settings(light), "rocksdb").kind == "rocksdb"


def test_what_shows_that_queues_are_kept_twice(tmp_path: Path) -> None:
    shown = "rocksdbCQDoubleWriteEnable=true"
    assert queue_store(store_with(tmp_path), Settings(DOUBLE)) == QueueStore("file", evidence=shown, written_twice=True)
    one = {**DOUBLE, "combineCQLoadingCQTypes": "default"}
    assert queue_store(str(tmp_path), Settings(one)) == QueueStore("file", evidence=shown)
    assert queue_store(str(tmp_path), Settings({})).evidence is None


# ----------------------------------------------------------------------------------------------------------- queue ends
UNIT = struct.Struct(">qiq")
BATCH = struct.Struct(">qiqqqhii")
QUEUE_FILE = 400


def write(root: Path, *files: tuple[int, bytes], kind: str = "consumequeue", size: int = QUEUE_FILE) -> QueueEnd:
    directory = root / kind / "T" / "3"
    directory.mkdir(parents=True)
    for base, content in files:
        (directory / f"{base:020d}").write_bytes(content.ljust(size, b"\0"))
    (found,) = queue_ends.queue_ends(str(root))
    assert (found.topic, found.queue_id, found.batch) == ("T", 3, kind != "consumequeue")
    return found


def units(first: int, count: int) -> bytes:
    """Units of records of 100 bytes, one after the other."""
    return b"".join(UNIT.pack(number * 100, 100, 7) for number in range(first, first + count))


@pytest.fixture(params=[queue_ends.READ_WHOLE, 0], ids=["whole", "bisected"])
def _reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_ends, "READ_WHOLE", request.param)


@pytest.mark.usefixtures("_reading")
@pytest.mark.parametrize("count", [1, 7, 19, 20])
def test_one_file(tmp_path: Path, count: int) -> None:
    found = write(tmp_path, (0, units(0, count)))
    assert (found.begin, found.end, found.end_offset) == (0, count, count * 100)


@pytest.mark.usefixtures("_reading")
def test_many_files(tmp_path: Path) -> None:
    found = write(tmp_path, *((base * QUEUE_FILE, units(base * 20, 20)) for base in range(2, 6)), (2400, units(120, 3)))
    assert (found.begin, found.end, found.end_offset) == (40, 123, 12_300)
    places = [offset_at(found, place) for place in (0, 4_000, 7_950, 12_200, 12_201, 99_999)]
    assert places == [40, 40, 80, 122, 123, 123]
    some = units_at(found, np.array([122, 39, 1 << 40, 40, 81, 60]))
    assert some.tolist() == [(12_200, 100, 7), (0, 0, 0), (0, 0, 0), (4_000, 100, 7), (8_100, 100, 7), (6_000, 100, 7)]
    assert units_at(found, np.zeros(0, np.int64)).tolist() == []


@pytest.mark.usefixtures("_reading")
def test_fillers_at_the_head_are_no_messages(tmp_path: Path) -> None:
    found = write(tmp_path, (0, UNIT.pack(0, 0x7FFFFFFF, 0) * 5 + units(5, 4)))
    assert (found.begin, found.end, found.end_offset) == (5, 9, 900)
    assert (offset_at(found, 0), offset_at(found, 500)) == (0, 5)
    assert write(tmp_path / "alone", (0, UNIT.pack(0, 0x7FFFFFFF, 0) * 5)).ends_in_pre_blank


@pytest.mark.usefixtures("_reading")
def test_an_unfinished_file_ends_the_queue(tmp_path: Path) -> None:
    found = write(tmp_path / "late", (0, units(0, 20)), (400, units(20, 8)), (800, units(40, 5)))
    assert (found.end, found.files.lost_units, found.files.empty_last) == (28, 5, False)
    found = write(tmp_path, (0, units(0, 20)), (400, b""), (800, units(40, 20)), (1200, units(60, 5)))
    assert (found.end, found.files.lost_units, found.files.empty_last) == (20, 25, False)


@pytest.mark.usefixtures("_reading")
def test_an_empty_last_file(tmp_path: Path) -> None:
    found = write(tmp_path / "one", (0, units(0, 20)), (400, b""))
    assert (found.end, found.end_offset, found.files.empty_last) == (20, 2_000, True)
    found = write(tmp_path / "other", (0, b""))
    assert (found.end, found.end_offset, found.files.empty_last) == (0, -1, True)


@pytest.mark.usefixtures("_reading")
def test_batch_units(tmp_path: Path) -> None:
    content = b"".join(BATCH.pack(number * 100, 100, 7, 1, number * 4, 4, -1, 0) for number in range(6))
    found = write(tmp_path, (0, content), kind="batchconsumequeue", size=460)
    assert (found.end, found.end_offset) == (24, 600)
    assert [offset_at(found, place) for place in (0, 101, 600)] == [0, 8, 24]


@pytest.mark.usefixtures("_reading")
def test_batch_units_after_the_end(tmp_path: Path) -> None:
    """A file that is not full, and one of three units after it."""
    one, other = (
        b"".join(BATCH.pack(number * 100, 100, 7, 1, number * 4, 4, -1, 0) for number in numbers)
        for numbers in (range(6), range(10, 13))
    )
    found = write(tmp_path, (0, one), (460, other), kind="batchconsumequeue", size=460)
    assert (found.end, found.end_offset, found.files.lost_units, found.files.empty_last) == (24, 600, 3, False)


@pytest.mark.usefixtures("_reading")
@pytest.mark.parametrize("count", [0, 1, 203, 204, 205, 3_277])
def test_a_file_that_ends_in_a_hole(tmp_path: Path, count: int) -> None:
    directory = tmp_path / "consumequeue" / "T" / "3"
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}").open("wb") as file:
        file.write(units(0, count))
        file.truncate(6_000_000)
    (found,) = queue_ends.queue_ends(str(tmp_path))
    assert (found.end, found.end_offset) == (count, count * 100 if count else -1)


def test_all_queues_but_some(tmp_path: Path) -> None:
    write(tmp_path, (0, units(0, 1)))
    assert queue_ends.queue_ends(str(tmp_path), but={("T", 3), ("T", 4)}) == []


def test_stray_files_and_names(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "T" / "x").mkdir(parents=True)
    (tmp_path / "consumequeue" / "CURRENT").touch()
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir()
    (directory / "a.bak").touch()
    (found,) = queue_ends.queue_ends(str(tmp_path))
    assert [file.name for file in found.files.stray] == ["a.bak"]
    assert (found.files.own, found.end, found.end_offset) == ([], 0, -1)


# --------------------------------------------------------------------------------------------------------- delay levels
DEFAULT = parse_delay_levels(DEFAULTS["messageDelayLevel"])


def write_queue(log: LogBuilder, root: Path, queue_id: int, delays: list[int], blanks: int = 0) -> list[Segment]:
    """Writes one queue whose newest units have these delays, in a file with room after them."""
    placed = [log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=queue_id) for _ in delays]
    times = [(one.message.store_timestamp or 0) + delay for one, delay in zip(placed, delays, strict=True)]
    units = pack_units([one.offset for one in placed], [one.end - one.offset for one in placed], times)
    directory = log.write(root) / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(queue_id)
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((PRE_BLANK * blanks + units.tobytes()).ljust(200_000, b"\0"))
    (directory / f"{200_000:020d}").write_bytes(bytes(200_000))
    return find_segments([str(root / "commitlog")], None)


@pytest.mark.parametrize("blanks", [0, 3, 6_500])
def test_the_newest_unit_tells(tmp_path: Path, blanks: int) -> None:
    segments = write_queue(LogBuilder(), tmp_path, 2, [10_000, 10_000, 2_000], blanks)
    assert observed_delays(str(tmp_path), segments) == {3: 2_000}


def test_units_that_show_nothing(tmp_path: Path) -> None:
    """Of an extended unit, and of a record that is not there."""
    log = LogBuilder()
    segments = write_queue(log, tmp_path, 0, [1_000, -(1 << 62)])
    assert observed_delays(str(tmp_path), segments) == {1: 1_000}
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(bytes(path.stat().st_size))
    assert observed_delays(str(tmp_path), segments) == {}
    assert observed_delays(str(tmp_path / "nowhere"), segments) == {}
    other = tmp_path / "other"
    assert observed_delays(str(other), write_queue(LogBuilder(), other, 2, [5, 0])) == {3: 0}, "none is a delay, too"


@pytest.mark.golden
@pytest.mark.parametrize("name", ["base-clean-4.6.1", "base-killed-5.1.4", "base-larger-5.3.3", "base-clean-5.5.0"])
def test_real_brokers_queues_show_the_default(name: str) -> None:
    root = golden.unpack(name)
    shown = observed_delays(str(root), find_segments([str(root / "commitlog")], None))
    assert len(shown) > 3
    assert contradicted(shown, DEFAULT) == []
    assert contradicted(shown, DEFAULT[:-2]) == [level for level in shown if level > 16]
    assert contradicted({1: 1_000, 3: 2_000, 19: 5}, DEFAULT) == [3, 19]
