"""What verify says of queues and of the index."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from support import golden
from support.planting import (
    FIRST_FILE,
    QUEUE,
    SEGMENT,
    SLOTS,
    SMALL,
    STORE,
    UNIT,
    end_of,
    entry_at,
    flip,
    index_files,
    only,
    rewrite,
    three_a_file,
    verdicts,
)
from support.rebuilding import rebuild_here, verify_here
from support.store_builder import LogBuilder

pytestmark = pytest.mark.golden


# --------------------------------------------------------------------------------------------------------- judge queues
def last_file(root: Path) -> Path:
    return max((root / QUEUE).iterdir())


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue" / "T" / "0").iterdir())


def test_unit_too_many(root: Path) -> None:
    """The unit of a record that lies elsewhere in the queue: no truncation leaves that."""
    file = last_file(root)
    content, end = bytearray(file.read_bytes()), end_of(file)
    content[end : end + 20] = content[end - 20 : end]
    file.write_bytes(content)
    only(root, "extra_unit", f"{QUEUE}/{file.name}", end)


@pytest.mark.parametrize("alone", [False, True])
def test_old_units_after_the_end_are_a_hazard(root: Path, alone: bool) -> None:
    """In the last file, or in one of their own."""
    file = last_file(root)
    content, end, length = bytearray(file.read_bytes()), end_of(file), file.stat().st_size
    offset, size, tags_code = UNIT.unpack_from(content, end - 20)
    if alone:
        file, content, end = file.with_name(f"{int(file.name) + length:020d}"), bytearray(length), 0
    UNIT.pack_into(content, end, offset + 1, size, tags_code)
    file.write_bytes(content)
    found = verdicts(root)
    assert not found.counts
    (hazard,) = found.hazards
    assert (hazard["hazard"], hazard["file"], hazard["position"]) == ("old_units", f"{QUEUE}/{file.name}", end)
    assert hazard["units"] == 1
    assert "A:0" in hazard["advice"]


@pytest.mark.parametrize(("record", "is_old"), [(1, True), (3, False)])
def test_units_of_an_earlier_life_are_old(tmp_path: Path, record: int, is_old: bool) -> None:
    log = LogBuilder(65536)
    for queue_id in (0, 0, 1, 0):
        log.message(topic="T", queue_id=queue_id, queue_offset=0 if len(log.records) == 3 else None)
    root = log.write(tmp_path / "store")
    made = Path(rebuild_here(root, tmp_path, SMALL).directory)
    (made / "consumequeue").rename(root / "consumequeue")
    (file,) = queue_files(root)
    placed = log.records[record]
    content = file.read_bytes()
    file.write_bytes(content[:20] + UNIT.pack(placed.offset, placed.size, 0) + content[40:])
    found = verify_here(root, SMALL, only=("consumequeue",)).verdicts
    assert found.counts == ({} if is_old else {"extra_unit": 1})
    assert [row["hazard"] for row in found.hazards] == (["old_units"] if is_old else [])


def test_units_that_the_next_start_removes_are_a_hazard(root: Path) -> None:
    file = last_file(root)
    content = bytearray(file.read_bytes())
    UNIT.pack_into(content, end_of(file), STORE.end_offset, 200, 0)
    file.write_bytes(content)
    found = verdicts(root)
    assert not found.counts
    ((hazard, path, advice),) = [(row["hazard"], row["file"], row["advice"]) for row in found.hazards]
    assert (hazard, path) == ("units_beyond_log", file.relative_to(root).as_posix())
    assert advice == f"rebuild --topic={file.parts[-3]}:{file.parts[-2]}, then publish"


@pytest.mark.parametrize("which", [slice(1), slice(1, 2), slice(-1, None), slice(None)])
def test_queue_files_deleted(root: Path, which: slice) -> None:
    files = sorted((root / QUEUE).iterdir())
    assert len(files) > 2
    for file in files[which]:
        file.unlink()
    only(root, "missing_file", f"{QUEUE}/{files[which][0].name}", None, len(files[which]))


@pytest.mark.parametrize(("table", "lost"), [('{"A":{}}', True), ("{}", True), ('{"TopicOrder":{}}', False)])
def test_topic_deleted(root: Path, table: str, lost: bool) -> None:
    """With the topic in topics.json its queues are lost; without, an administrator deleted it; an empty one is lost."""
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(f'{{"topicConfigTable":{table}}}')
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    shutil.rmtree(root / "consumequeue" / "A")
    found = verdicts(root)
    assert set(found.counts) == ({"missing_file"} if lost else set())
    assert any("its topic was deleted" in note for note in found.notes) != lost


def test_a_file_without_bytes_lacks_the_units_that_belong_there(tmp_path: Path) -> None:
    root = three_a_file(tmp_path, 6)
    last = queue_files(root)[-1]
    last.with_name(f"{120:020d}").touch()
    assert not verify_here(root, SMALL).verdicts.counts
    last.write_bytes(b"")
    assert verify_here(root, SMALL).verdicts.counts == {"missing_unit": 3}
    last.with_name(f"{120:020d}").unlink()
    assert verify_here(root, SMALL).verdicts.counts == {"missing_unit": 3}


def test_units_of_messages_that_retention_took_are_counted(tmp_path: Path) -> None:
    """Files of a queue go when their last message is gone; of a topic that nobody writes to any more, none does."""
    root = three_a_file(tmp_path, 9)
    shutil.copytree(root / "consumequeue" / "T", root / "consumequeue" / "quiet")
    for file in sorted((root / "consumequeue" / "quiet" / "0").iterdir())[1:]:
        file.unlink()
    shutil.rmtree(root / "index")
    min((root / "commitlog").iterdir()).unlink()
    found = verify_here(root, SMALL, only=("consumequeue",)).verdicts
    assert (found.counts, found.hazards) == ({}, [])
    assert found.notes == ["6 units are of messages before the log: retention deleted them, or they are lost"]
    queue_files(root)[0].unlink()
    found = verify_here(root, SMALL, only=("consumequeue",)).verdicts
    assert not found.counts
    assert found.notes == ["3 units are of messages before the log: retention deleted them, or they are lost"]


def test_files_before_a_damaged_queue_offset_are_counted_and_not_listed(tmp_path: Path) -> None:
    root = three_a_file(tmp_path, 1)
    segment = next((root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    struct.pack_into(">q", content, 20, 1 << 40)
    segment.write_bytes(content)
    found = verify_here(root, SMALL | {SEGMENT: 4096}).verdicts
    assert found.counts["missing_file"] == (1 << 40) // 3  # with its own, and without the one that is there
    assert [row["cause"] for row in found.differences].count("missing_file") == 2


def test_a_gap_between_files_of_deleted_messages_is_a_missing_file(tmp_path: Path) -> None:
    root = three_a_file(tmp_path, 12)
    for segment in sorted((root / "commitlog").iterdir())[:3]:
        segment.unlink()
    assert not verify_here(root, SMALL, only=("consumequeue",)).verdicts.counts
    gone = queue_files(root)[1]
    gone.unlink()
    found = verify_here(root, SMALL, only=("consumequeue",)).verdicts
    assert found.counts == {"missing_file": 1}
    assert found.differences[0]["file"] == gone.relative_to(root).as_posix()
    assert found.differences[0]["expected"] == "units of deleted messages"


@pytest.mark.parametrize("used_since", [True, False])
def test_a_queue_that_was_not_used_since_its_topic_was_created_anew(tmp_path: Path, used_since: bool) -> None:
    log = LogBuilder(65536)
    for queue_id in (0, 1, 0):
        log.message(topic="T", queue_id=queue_id)
    log.message(topic="T", queue_id=0, queue_offset=0)  # deleted and created anew
    if used_since:
        log.message(topic="T", queue_id=1, queue_offset=0)
    root = log.write(tmp_path / "store")
    made = Path(rebuild_here(root, tmp_path, SMALL).directory)
    (made / "consumequeue").rename(root / "consumequeue")
    (root / "consumequeue" / "T" / "1").rename(tmp_path / "gone")
    found = verify_here(root, SMALL, only=("consumequeue",)).verdicts
    assert found.counts == ({"missing_file": 1} if used_since else {})
    assert ("T:1 is missing: its topic was deleted" in found.notes) != used_since


@pytest.mark.parametrize("name", ["notes.txt", f"{20:020d}", "another queue", "too far"])
def test_stray_file_in_a_queue(root: Path, name: str) -> None:
    source, target = root / FIRST_FILE, root / QUEUE / name
    if name == "another queue":
        target = root / "consumequeue" / "nobody" / "0" / Path(FIRST_FILE).name
        target.parent.mkdir(parents=True)
    elif name == "too far":
        source = last_file(root)
        target = source.with_name(f"{int(source.name) + source.stat().st_size:020d}")
    shutil.copy(source, target)
    only(root, "extra_file", target.relative_to(root).as_posix(), None)


def test_what_a_broker_does_not_take_for_a_queue_is_left_alone(root: Path) -> None:
    (root / "consumequeue" / "readme").touch()
    (root / "consumequeue" / "A" / "readme").touch()
    for name in ("old", "-1", "1.bak"):
        shutil.copytree(root / QUEUE, root / "consumequeue" / "A" / name)
    found = verdicts(root)
    assert (found.counts, found.hazards) == ({}, [])


def test_queue_file_cut_short(root: Path) -> None:
    with (root / FIRST_FILE).open("r+b") as file:
        file.truncate(500)
    assert only(root, "wrong_size", FIRST_FILE, None)["found"] == 500


@pytest.fixture
def batch(tmp_path: Path) -> tuple[golden.GoldenStore, Path, Path]:
    (store,) = golden.stores("batch-cq-5.5.0")
    root = golden.unpack(store, tmp_path)
    return store, root, min(path for path in (root / "batchconsumequeue").rglob("*") if path.is_file())


def test_batch_queue_after_retention(batch: tuple[golden.GoldenStore, Path, Path]) -> None:
    """Units of deleted messages stay in front, and the others keep their places."""
    store, root, file = batch
    min((root / "commitlog").iterdir()).unlink()
    verified = verify_here(root, store.settings)
    assert not verified.verdicts.counts
    assert any("retention deleted" in note for note in verified.verdicts.notes)
    content = file.read_bytes()
    units = range(0, len(content) // 46 * 46, 46)
    alive = [at for at in units if struct.unpack_from(">q", content, at)[0] >= int(store.settings[SEGMENT])]
    flip(file, alive[0] + 15)
    assert verify_here(root, store.settings).verdicts.counts == {"wrong_unit": 1}


def test_a_hash_in_the_place_of_a_delivery_time_of_a_record_that_is_kept(tmp_path: Path) -> None:
    """The hash is taken from the record, whose body does not have its CRC."""
    log = LogBuilder()
    delayed = {"DELAY": "3", "REAL_TOPIC": "T"}
    for body in (b"first", b"second", b"third"):
        log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, tags="a", properties=delayed, body=body)
    root = log.write(tmp_path / "store")
    sizes = {"mappedFileSizeConsumeQueue": 200}
    (tmp_path / "work").mkdir()
    built = rebuild_here(root, tmp_path / "work", sizes, only=("consumequeue",))
    shutil.copytree(Path(built.directory) / "consumequeue", root / "consumequeue")
    (queue,) = (path for path in (root / "consumequeue").rglob("*") if path.is_file())
    content = bytearray(queue.read_bytes())
    struct.pack_into(">q", content, 20 + 12, ord("a"))
    queue.write_bytes(content)
    segment = root / "commitlog" / f"{0:020d}"
    segment.write_bytes(segment.read_bytes().replace(b"second", b"Second"))
    kept = {"only": ("consumequeue",), "on_damage": "salvage", "keep_crc_failures": True}
    assert not verify_here(root, sizes, **kept).verdicts.counts
    struct.pack_into(">q", content, 20 + 12, ord("b"))
    queue.write_bytes(content)
    assert verify_here(root, sizes, **kept).verdicts.counts == {"wrong_unit": 1}


BATCH = {**SMALL, "mapperFileSizeBatchConsumeQueue": 2 * 46}


@pytest.fixture
def of_two_units(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A batch queue of nine units in files of two, whose first six are of messages that retention took."""
    root = three_a_file(tmp_path, 9)
    shutil.rmtree(root / "consumequeue")
    (tmp_path / "batch").mkdir()
    made = rebuild_here(root, tmp_path / "batch", BATCH, batch_topics=("T",), only=("consumequeue",))
    (Path(made.directory) / "batchconsumequeue").rename(root / "batchconsumequeue")
    for segment in sorted((root / "commitlog").iterdir())[:2]:
        segment.unlink()
    return root, sorted((root / "batchconsumequeue" / "T" / "0").iterdir())


def test_units_of_deleted_messages_fill_whole_files_of_a_batch_queue(of_two_units: tuple[Path, list[Path]]) -> None:
    root, files = of_two_units
    assert [int(file.name) for file in files] == [0, 92, 184, 276, 368]
    verified = verify_here(root, BATCH, only=("consumequeue",))
    assert (verified.verdicts.counts, verified.compared["consume_queue_units"]) == ({}, 3)
    assert verified.verdicts.notes == [
        "6 units are of messages before the log: retention deleted them, or they are lost"
    ]
    for file in files[:3]:  # retention takes whole files, too
        file.unlink()
        assert not verify_here(root, BATCH, only=("consumequeue",)).verdicts.counts
    flip(files[3], 10)
    found = verify_here(root, BATCH, only=("consumequeue",)).verdicts
    assert found.counts == {"wrong_unit": 1}


def test_a_file_of_a_batch_queue_that_is_cut_short_says_nothing_of_places(
    of_two_units: tuple[Path, list[Path]],
) -> None:
    root, files = of_two_units
    with files[1].open("r+b") as file:
        file.truncate(50)
    found = verify_here(root, BATCH, only=("consumequeue",)).verdicts
    assert found.counts == {"wrong_size": 1}
    assert found.differences[0]["file"] == files[1].relative_to(root).as_posix()


# ---------------------------------------------------------------------------------------------------------- judge index
@pytest.mark.parametrize("killed", [False, True])
def test_of_a_healthy_store_nothing_is_said(root: Path, killed: bool) -> None:
    if killed:
        (root / "abort").touch()
    found = verdicts(root)
    assert (found.counts, found.differences, found.hazard_counts, found.hazards, found.notes) == ({}, [], {}, [], [])


@pytest.mark.parametrize("which", [0, 1, 7, -1])
def test_index_file_deleted(root: Path, which: int) -> None:
    file = index_files(root)[which]
    begin, count = struct.unpack_from(">16xq12xi", file.read_bytes())
    file.unlink()
    found = verdicts(root)
    assert found.counts == {"missing_file": 1}
    assert found.differences[0]["artefact"] == "index"
    expected = found.differences[0]["expected"]
    assert (expected["entries"], expected["first"]["phy_offset"]) == (count - 1, begin)


def test_index_file_twice(root: Path) -> None:
    file = index_files(root)[3]
    shutil.copy(file, file.with_name(f"{int(file.name) + 1}"))
    entries = int.from_bytes(file.read_bytes()[36:40], "big") - 1
    assert verdicts(root).counts == {"extra_entry": entries}


def test_index_files_under_other_names(root: Path) -> None:
    """A clock that was set back: the order is in the headers."""
    names = [file.name for file in index_files(root)]
    for file, name in zip(index_files(root), reversed(names), strict=True):
        file.rename(file.with_name("x" + name))
    for file in index_files(root):
        file.rename(file.with_name(file.name[1:]))
    assert not verdicts(root).counts


def test_stray_file_in_the_index(root: Path) -> None:
    (root / "index" / "readme").write_text("x")
    only(root, "extra_file", "index/readme", None)


def test_the_entries_of_a_file_that_cannot_be_read_are_missing(root: Path) -> None:
    file = index_files(root)[2]
    with file.open("r+b") as opened:
        opened.truncate(1000)
    assert verdicts(root).counts == {"wrong_size": 1, "missing_file": 1}


def set_slot_count(file: Path, count: int | str) -> int:
    """Gives a header another hashSlotCount: that of brokers before 4.7.1, of later ones, or one; returns it."""
    content = bytearray(file.read_bytes())
    used = sum(any(content[at : at + 4]) for at in range(40, 40 + 4 * SLOTS, 4))
    entries = int.from_bytes(content[36:40], "big") - 1
    assert used + 2 < entries
    values: dict[int | str, int] = {"used": used, "entries": entries, "less": used - 1, "more": entries + 1}
    value = values.get(count, used + 1)
    content[32:36] = value.to_bytes(4, "big")
    file.write_bytes(content)
    return value


@pytest.mark.parametrize(
    ("counts", "wrong"),
    [
        (["entries", "between", "used"], None),
        (["entries", "less"], 1),
        (["entries", "more"], 1),
    ],
)
def test_slots_are_counted_with_every_entry_until_an_upgrade(root: Path, counts: list[str], wrong: int | None) -> None:
    """IndexFile#putKey before 4.7.1 counts a slot with every entry, from there on the slots in use."""
    values = [set_slot_count(file, count) for file, count in zip(index_files(root), counts, strict=False)]
    found = verdicts(root)
    if wrong is None:
        assert not found.counts
        return
    assert found.counts == {"wrong_header": 1}
    (difference,) = found.differences
    assert (difference["file"], difference["position"]) == (f"index/{index_files(root)[wrong].name}", 32)
    assert difference["found"] == {"hash_slot_count": values[wrong]}


def test_entry_of_no_record(root: Path) -> None:
    file = index_files(root)[-1]
    rewrite(file, lambda entries: entries.insert(2, struct.pack(">i", 77) + entries[1][4:]))
    only(root, "extra_entry", f"index/{file.name}", entry_at(3))


@pytest.mark.parametrize(("one", "other", "named"), [(1, 2, {1}), (2, 8, {2, 3})])
def test_two_index_files_under_each_others_names_are_a_hazard(
    root: Path, one: int, other: int, named: set[int]
) -> None:
    files = index_files(root)
    contents = files[one].read_bytes(), files[other].read_bytes()
    files[other].write_bytes(contents[0])
    files[one].write_bytes(contents[1])
    found = verdicts(root)
    assert not found.counts
    assert {(row["hazard"], row["file"]) for row in found.hazards} == {
        ("index_order", f"index/{files[number].name}") for number in named
    }


def test_only_the_last_index_file_is_in_motion(root: Path) -> None:
    """Of a broker that was killed; the files before were written to their end."""
    (root / "abort").touch()
    assert not verdicts(root).counts
    flip(index_files(root)[0], 39, 2)
    only(root, "wrong_header", f"index/{index_files(root)[0].name}", 36)


def test_an_empty_last_file_follows_the_one_at_whose_end_it_begins(tmp_path: Path) -> None:
    """Whatever its name: both begin at the same record here, which fills a file by itself."""
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 4}
    log = LogBuilder(4096)
    for number in range(3):
        log.message(
            topic="T", keys=f"a{number} b{number} c{number}", store_timestamp=1_600_000_000_000 + 5_000 * number
        )
    log.message(topic="T")
    root = log.write(tmp_path / "store")
    made = Path(rebuild_here(root, tmp_path, sizes).directory)
    for name in ("consumequeue", "index", "checkpoint"):
        (made / name).rename(root / name)
    files = index_files(root)
    counts = [int.from_bytes(file.read_bytes()[36:40], "big") for file in files]
    assert counts == [4, 4, 4, 1]
    files[3].rename(root / "index" / "1")
    verified = verify_here(root, sizes)
    assert (verified.verdicts.counts, verified.verdicts.hazards) == ({}, [])
    assert verified.compared["index_entries"] == 9


def test_a_first_index_file_that_is_gone_is_missing_if_the_next_one_knows_its_time(tmp_path: Path) -> None:
    """Where a broker begins an index anew, with a segment after a crash, the first time is counted from itself."""
    root = three_a_file(tmp_path, 9, step=5_000)
    min((root / "index").iterdir()).unlink()
    found = verify_here(root, SMALL).verdicts
    assert (found.counts, found.hazards) == ({"missing_file": 1}, [])


def test_an_index_that_begins_anew_with_a_segment_is_a_hazard(tmp_path: Path) -> None:
    root = three_a_file(tmp_path, 9)
    min((root / "index").iterdir()).unlink()
    found = verify_here(root, SMALL).verdicts
    assert (found.counts, [hazard["hazard"] for hazard in found.hazards]) == ({}, ["index_gap"])
    assert found.hazards[0]["entries"] == 3


def test_the_index_alone_of_a_killed_broker_may_lag_by_all(tmp_path: Path) -> None:
    """Without the queues nothing says how far it came."""
    root = three_a_file(tmp_path, 9)
    (root / "abort").touch()
    shutil.rmtree(root / "index")
    found = verify_here(root, SMALL, only=("index",)).verdicts
    assert (found.counts, found.notes) == ({}, ["the index lags: 9 entries are not made yet"])


def test_last_record_indexed_again_in_the_next_file_is_fine(tmp_path: Path) -> None:
    root = three_a_file(tmp_path, 5)
    first, second = index_files(root)
    last = first.read_bytes()[entry_at(3) : entry_at(3) + 16]
    rewrite(second, lambda entries: entries.insert(0, last))
    found = verify_here(root, SMALL).verdicts
    assert (found.counts, found.hazards) == ({}, [])
    assert found.notes == ["1 index entries are there twice, as after a crash"]


def test_an_index_of_a_broker_before_the_upgrade_to_tags(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for number in range(9):
        log.message(topic="T", keys=f"k{number}", tags="red")
    root = log.write(tmp_path / "store")
    made = Path(rebuild_here(root, tmp_path, SMALL, broker_version="5.3").directory)
    for name in ("consumequeue", "index", "checkpoint"):
        (made / name).rename(root / name)
    found = verify_here(root, SMALL, broker_version="5.5").verdicts
    assert (found.counts, found.hazards) == ({}, [])
    assert found.notes == ["9 tags are not indexed: those files are of a broker before 5.4.0"]


def test_an_empty_index_file_after_the_end_of_the_log_is_a_hazard(tmp_path: Path) -> None:
    """IndexService#buildIndex leaves out what lies in front of the last file's end."""
    root = three_a_file(tmp_path, 3)
    (file,) = index_files(root)
    empty = bytearray(file.stat().st_size)
    struct.pack_into(">qqqqii", empty, 0, 1_600_000_000_000, 1_600_000_000_000, 5_000, 5_000, 0, 1)
    file.with_name(f"{int(file.name) + 1}").write_bytes(empty)
    found = verify_here(root, SMALL).verdicts
    assert not found.counts
    assert [(hazard["hazard"], hazard["entries"]) for hazard in found.hazards] == [("index_beyond_log", 0)]


def test_index_beyond_the_log_is_a_hazard(root: Path) -> None:
    file = index_files(root)[-1]
    rewrite(file, lambda entries: entries.append(struct.pack(">iqi", 77, STORE.end_offset + 10, entries[-1][15])))
    found = verdicts(root)
    assert not found.counts
    assert [hazard["hazard"] for hazard in found.hazards] == ["index_beyond_log"]
