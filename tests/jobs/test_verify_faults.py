"""Damage in one place of a real store: ``verify`` must name exactly that, with its cause, file and position."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import golden
from support.verifying import verify_here

from jobs.verdicts import Verdicts

pytestmark = pytest.mark.golden

(STORE,) = golden.stores("base-clean-5.5.0")
SLOTS = int(STORE.settings["maxHashSlotNum"])
ENTRIES = 40 + 4 * SLOTS
UNIT = struct.Struct(">qiq")
SEGMENT = "mappedFileSizeCommitLog"
QUEUE = "consumequeue/A/0"
FIRST_FILE = f"{QUEUE}/00000000000000000000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return golden.unpack(STORE, tmp_path)


def verdicts(root: Path, **options: Any) -> Verdicts:
    return verify_here(root, STORE.settings, **options).verdicts


def flip(path: Path, position: int, mask: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


def only(root: Path, cause: str, file: str, position: int | None, count: int = 1) -> dict[str, Any]:
    """The one difference there is, which is as told."""
    found = verdicts(root)
    assert found.counts == {cause: count}, found.differences
    difference = found.differences[0]
    assert (difference["cause"], difference["file"], difference["position"]) == (cause, file, position)
    return difference


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


# --- consume queues -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("byte", range(20))
def test_a_bit_in_each_byte_of_a_unit(root: Path, byte: int) -> None:
    flip(root / FIRST_FILE, 3 * 20 + byte, 0x10)
    cause = "wrong_offset" if byte < 8 else "wrong_size" if byte < 12 else "wrong_tags_code"
    difference = only(root, cause, FIRST_FILE, 60)
    assert (difference["artefact"], difference["topic"], difference["queue_id"]) == ("consumequeue", "A", 0)
    wrong = [name for name, value in difference["expected"].items() if value != difference["found"][name]]
    assert wrong == [{"wrong_offset": "phy_offset"}.get(cause, cause.removeprefix("wrong_"))]


def test_unit_zeroed(root: Path) -> None:
    content = bytearray((root / FIRST_FILE).read_bytes())
    expected = UNIT.unpack_from(content, 100)
    content[100:120] = bytes(20)
    (root / FIRST_FILE).write_bytes(content)
    difference = only(root, "missing_unit", FIRST_FILE, 100)
    assert tuple(difference["expected"].values()) == expected
    assert difference["found"] is None


def end_of(file: Path) -> int:
    content = file.read_bytes()
    return next(at for at in range(0, len(content), 20) if not any(content[at : at + 20]))


def last_file(root: Path) -> Path:
    return max((root / QUEUE).iterdir())


def test_unit_too_many(root: Path) -> None:
    """The unit of a record that lies elsewhere in the queue: no truncation leaves that."""
    file = last_file(root)
    content, end = bytearray(file.read_bytes()), end_of(file)
    content[end : end + 20] = content[end - 20 : end]
    file.write_bytes(content)
    only(root, "extra_unit", f"{QUEUE}/{file.name}", end)


def test_old_unit_behind_the_end_is_a_hazard(root: Path) -> None:
    file = last_file(root)
    content, end = bytearray(file.read_bytes()), end_of(file)
    offset, size, tags_code = UNIT.unpack_from(content, end - 20)
    UNIT.pack_into(content, end, offset + 1, size, tags_code)
    file.write_bytes(content)
    found = verdicts(root)
    assert not found.counts
    (hazard,) = found.hazards
    assert (hazard["hazard"], hazard["file"], hazard["position"]) == ("old_units", f"{QUEUE}/{file.name}", end)
    assert "first 1 " in hazard["what"]
    assert "A:0" in hazard["advice"]


def test_unit_beyond_the_log_is_a_hazard(root: Path) -> None:
    file = last_file(root)
    content, end = bytearray(file.read_bytes()), end_of(file)
    UNIT.pack_into(content, end, STORE.end_offset, 200, 0)
    file.write_bytes(content)
    found = verdicts(root)
    assert not found.counts
    assert [hazard["hazard"] for hazard in found.hazards] == ["units_beyond_log"]


def test_zero_last_file_is_a_hazard(root: Path) -> None:
    file = last_file(root)
    name = f"{int(file.name) + len(file.read_bytes()):020d}"
    (root / QUEUE / name).write_bytes(bytes(file.stat().st_size))
    found = verdicts(root)
    assert not found.counts
    assert [(hazard["hazard"], hazard["file"]) for hazard in found.hazards] == [("zero_file", f"{QUEUE}/{name}")]


def test_queue_that_ends_in_a_pre_blank_is_a_hazard(root: Path) -> None:
    directory = root / "consumequeue" / "gone" / "3"
    directory.mkdir(parents=True)
    size = last_file(root).stat().st_size
    (directory / f"{0:020d}").write_bytes(UNIT.pack(0, 0x7FFFFFFF, 0).ljust(size, b"\0"))
    found = verdicts(root)
    assert not found.counts
    assert [hazard["hazard"] for hazard in found.hazards] == ["pre_blank_end"]


@pytest.mark.parametrize("which", [0, -1])
def test_queue_file_deleted(root: Path, which: int) -> None:
    file = sorted((root / QUEUE).iterdir())[which]
    assert len(list((root / QUEUE).iterdir())) > 1
    file.unlink()
    only(root, "missing_file", f"{QUEUE}/{file.name}", None)


def test_queue_deleted(root: Path) -> None:
    count = len(list((root / QUEUE).iterdir()))
    shutil.rmtree(root / QUEUE)
    only(root, "missing_file", FIRST_FILE, None, count)


@pytest.mark.parametrize("known", [True, False])
def test_topic_deleted(root: Path, known: bool) -> None:
    """With the topic in topics.json its queues are lost; without, an administrator deleted it."""
    (root / "config").mkdir()
    table = '{"topicConfigTable":{"%s":{"perm":6}}}' % ("A" if known else "TopicOrder")
    (root / "config" / "topics.json").write_text(table)
    shutil.rmtree(root / "consumequeue" / "A")
    found = verdicts(root)
    assert set(found.counts) == ({"missing_file"} if known else set())
    assert any("topics.json does not know it" in note for note in found.notes) != known


def test_queue_that_the_log_does_not_know(root: Path) -> None:
    directory = root / "consumequeue" / "nobody" / "0"
    directory.mkdir(parents=True)
    shutil.copy(root / FIRST_FILE, directory)
    only(root, "extra_file", f"consumequeue/nobody/0/{Path(FIRST_FILE).name}", None)


def test_queue_file_that_goes_on_too_far(root: Path) -> None:
    file = last_file(root)
    name = f"{int(file.name) + file.stat().st_size:020d}"
    shutil.copy(file, root / QUEUE / name)
    only(root, "extra_file", f"{QUEUE}/{name}", None)


@pytest.mark.parametrize("name", ["notes.txt", f"{20:020d}"])
def test_stray_file_in_a_queue(root: Path, name: str) -> None:
    shutil.copy(root / FIRST_FILE, root / QUEUE / name)
    only(root, "extra_file", f"{QUEUE}/{name}", None)


def test_queue_file_cut_short(root: Path) -> None:
    with (root / FIRST_FILE).open("r+b") as file:
        file.truncate(500)
    assert only(root, "wrong_size", FIRST_FILE, None)["found"] == 500


def test_units_swapped(root: Path) -> None:
    content = bytearray((root / FIRST_FILE).read_bytes())
    content[0:20], content[20:40] = content[20:40], content[0:20]
    (root / FIRST_FILE).write_bytes(content)
    only(root, "wrong_offset", FIRST_FILE, 0, 2)


# --- index ----------------------------------------------------------------------------------------------------------


def entry_at(number: int) -> int:
    return ENTRIES + 20 * number


EVERY_BYTE = [(3, number, byte) for number in (1, 2, 59) for byte in range(20)]
FIRST_AND_LAST_FILE = [(which, number, byte) for which in (0, -1) for number in (1, 17, 59) for byte in (3, 7, 15, 19)]


@pytest.mark.parametrize(("which", "number", "byte"), EVERY_BYTE + FIRST_AND_LAST_FILE)
def test_a_bit_in_each_byte_of_an_entry(root: Path, which: int, number: int, byte: int) -> None:
    file = index_files(root)[which]
    (count,) = struct.unpack_from(">i", file.read_bytes(), 36)
    number = min(number, count - 1)
    flip(file, entry_at(number) + byte, 0x04)
    cause = "wrong_entry" if byte < 16 else "broken_chain"
    difference = only(root, cause, f"index/{file.name}", entry_at(number))
    wrong = [name for name, value in difference["expected"].items() if value != difference["found"][name]]
    fields = ["key_hash"] * 4 + ["phy_offset"] * 8 + ["time_diff"] * 4 + ["prev_index"] * 4
    assert wrong == [fields[byte]]


@pytest.mark.parametrize(("which", "byte"), [(5, byte) for byte in range(40)] + [(0, byte) for byte in range(3, 40, 4)])
def test_a_bit_in_each_byte_of_a_header(root: Path, which: int, byte: int) -> None:
    file = index_files(root)[which]
    flip(file, byte, 0x02)
    position = byte // 8 * 8 if byte < 32 else byte // 4 * 4
    only(root, "wrong_header", f"index/{file.name}", position)


def test_slot_of_a_key(root: Path) -> None:
    file = index_files(root)[4]
    content = file.read_bytes()
    slot = next(slot for slot in range(SLOTS) if any(content[40 + 4 * slot : 44 + 4 * slot]))
    flip(file, 43 + 4 * slot)
    only(root, "broken_chain", f"index/{file.name}", 40 + 4 * slot)


def test_chain_cut(root: Path) -> None:
    file = index_files(root)[4]
    content = bytearray(file.read_bytes())
    number = next(n for n in range(1, 60) if any(content[entry_at(n) + 16 : entry_at(n) + 20]))
    content[entry_at(number) + 16 : entry_at(number) + 20] = bytes(4)
    file.write_bytes(content)
    difference = only(root, "broken_chain", f"index/{file.name}", entry_at(number))
    assert difference["found"]["prev_index"] == 0


@pytest.mark.parametrize("which", [0, 1, 7, -1])
def test_index_file_deleted(root: Path, which: int) -> None:
    index_files(root)[which].unlink()
    found = verdicts(root)
    assert found.counts == {"missing_file": 1}
    assert found.differences[0]["artefact"] == "index"


def test_index_file_twice(root: Path) -> None:
    file = index_files(root)[3]
    shutil.copy(file, file.with_name(f"{int(file.name) + 1}"))
    assert verdicts(root).counts == {"extra_file": 1}


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


def test_index_file_cut_short(root: Path) -> None:
    file = index_files(root)[2]
    with file.open("r+b") as opened:
        opened.truncate(1000)
    only(root, "wrong_size", f"index/{file.name}", None)


def rewrite(file: Path, change: Callable[[list[bytes]], None]) -> None:
    """Changes the entries of an index file as a broker would have written them: links, slots and header fit."""
    content = bytearray(file.read_bytes())
    (count,) = struct.unpack_from(">i", content, 36)
    entries = [bytes(content[entry_at(n) : entry_at(n) + 16]) for n in range(1, count)]
    change(entries)
    slots = [0] * SLOTS
    content[40:] = bytes(len(content) - 40)
    for number, entry in enumerate(entries, 1):
        (key_hash,) = struct.unpack_from(">i", entry)
        content[entry_at(number) : entry_at(number) + 20] = entry + struct.pack(">i", slots[key_hash % SLOTS])
        slots[key_hash % SLOTS] = number
    struct.pack_into(f">{SLOTS}i", content, 40, *slots)
    used = sum(map(bool, slots))
    (end,) = struct.unpack_from(">q", entries[-1], 4)
    struct.pack_into(">qii", content, 24, end, used, len(entries) + 1)
    file.write_bytes(content)


def test_entry_left_out(root: Path) -> None:
    rewrite(index_files(root)[-1], lambda entries: entries.pop(3) and None)
    found = verdicts(root)
    assert found.counts == {"missing_key": 1}
    assert found.differences[0]["file"] == f"index/{index_files(root)[-1].name}"


def test_entry_of_no_record(root: Path) -> None:
    file = index_files(root)[-1]
    foreign = struct.pack(">iqi", 77, STORE.end_offset - 5_000, 0)
    rewrite(file, lambda entries: entries.insert(2, foreign))
    only(root, "dangling_entry", f"index/{file.name}", entry_at(3))


def test_last_record_indexed_twice_is_fine(root: Path) -> None:
    def again(entries: list[bytes]) -> None:
        last = [entry for entry in entries if entry[4:12] == entries[-1][4:12]]
        assert 0 < len(last) < len(entries)
        entries += last

    rewrite(index_files(root)[-1], again)
    found = verdicts(root)
    assert not found.counts
    assert any("are there twice" in note for note in found.notes)


@pytest.mark.parametrize(("one", "other", "named"), [(1, 2, {2}), (2, 8, {2, 8})])
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


def test_index_beyond_the_log_is_a_hazard(root: Path) -> None:
    file = index_files(root)[-1]
    rewrite(file, lambda entries: entries.append(struct.pack(">iqi", 77, STORE.end_offset + 10, entries[-1][15])))
    found = verdicts(root)
    assert not found.counts
    assert [hazard["hazard"] for hazard in found.hazards] == ["index_beyond_log"]


# --- checkpoint -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 8, 16, 40])
def test_checkpoint_ahead(root: Path, position: int) -> None:
    content = bytearray((root / "checkpoint").read_bytes())
    struct.pack_into(">q", content, position, 1 << 60)
    (root / "checkpoint").write_bytes(content)
    only(root, "checkpoint_ahead", "checkpoint", position)


def test_checkpoint_behind_is_fine(root: Path) -> None:
    (root / "checkpoint").write_bytes(bytes(4096))
    assert not verdicts(root, broker_version="5.5").counts


def test_checkpoint_missing(root: Path) -> None:
    (root / "checkpoint").unlink()
    only(root, "missing_file", "checkpoint", None)


def test_artefacts_that_were_not_asked_for(root: Path) -> None:
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "index")
    assert not verdicts(root, only=("consumequeue",)).counts
    flip(root / FIRST_FILE, 70)
    assert verdicts(root, only=("index", "checkpoint")).counts.keys() == {"missing_file"}


# --- anything -------------------------------------------------------------------------------------------------------


def meaningless(file: str, position: int, content: bytes) -> bool:
    """Bytes that no broker reads: entry 0 of an index file, and everything behind the last entry."""
    if not file.startswith("index/"):
        return False
    (count,) = struct.unpack_from(">i", content, 36)
    return ENTRIES <= position < ENTRIES + 20 or position >= entry_at(count)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(STORE, tmp_path_factory.mktemp("any"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_byte_of_a_written_part(shared: Path, data: st.DataObject) -> None:
    files = sorted(
        path.relative_to(shared).as_posix()
        for directory in ("consumequeue", "index")
        for path in (shared / directory).rglob("*")
        if path.is_file()
    )
    file = data.draw(st.sampled_from(files))
    content = (shared / file).read_bytes()
    written = len(content) if file.startswith("index/") else end_of(shared / file) if b"\0" * 20 in content else 0
    position = data.draw(st.integers(0, (written or len(content)) - 1))
    mask = data.draw(st.integers(1, 255))
    try:
        flip(shared / file, position, mask)
        found = verdicts(shared)
    finally:
        (shared / file).write_bytes(content)
    if meaningless(file, position, content):
        assert not found.counts
        return
    assert sum(found.counts.values()) >= 1
    assert {difference["file"] for difference in found.differences} == {file}


# --- batch queues ---------------------------------------------------------------------------------------------------


@pytest.fixture
def batch(tmp_path: Path) -> tuple[golden.GoldenStore, Path, Path]:
    (store,) = golden.stores("batch-cq-5.5.0")
    root = golden.unpack(store, tmp_path)
    return store, root, min(path for path in (root / "batchconsumequeue").rglob("*") if path.is_file())


@pytest.mark.parametrize("byte", range(46))
def test_a_bit_in_each_byte_of_a_batch_unit(batch: tuple[golden.GoldenStore, Path, Path], byte: int) -> None:
    store, root, file = batch
    flip(file, 46 + byte, 0x20)
    found = verify_here(root, store.settings).verdicts
    causes = ["wrong_offset"] * 8 + ["wrong_size"] * 4 + ["wrong_tags_code"] * 8 + ["wrong_entry"] * 8
    causes += ["wrong_offset"] * 8 + ["wrong_size"] * 2 + ["wrong_entry"] * 8
    assert found.counts == {causes[byte]: 1}
    difference = found.differences[0]
    assert (difference["artefact"], difference["position"]) == ("batchconsumequeue", 46)
    assert difference["file"] == file.relative_to(root).as_posix()


def test_batch_queue_file_deleted(batch: tuple[golden.GoldenStore, Path, Path]) -> None:
    store, root, file = batch
    file.unlink()
    found = verify_here(root, store.settings).verdicts
    assert found.counts == {"missing_file": 1}
    assert found.differences[0]["file"] == file.relative_to(root).as_posix()


def test_batch_queue_after_retention(batch: tuple[golden.GoldenStore, Path, Path]) -> None:
    """Units of deleted messages stay in front, and the others keep their places."""
    store, root, file = batch
    min((root / "commitlog").iterdir()).unlink()
    verified = verify_here(root, store.settings)
    assert not verified.verdicts.counts
    assert any("retention took" in note for note in verified.verdicts.notes)
    content = file.read_bytes()
    units = range(0, len(content) // 46 * 46, 46)
    alive = [at for at in units if struct.unpack_from(">q", content, at)[0] >= int(store.settings[SEGMENT])]
    flip(file, alive[0] + 15)
    assert verify_here(root, store.settings).verdicts.counts == {"wrong_tags_code": 1}


# --- a damaged log --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["base-clean-4.6.1", "base-clean-5.5.0", "retention-5.1.4", "embedded-5.3.3"])
@pytest.mark.parametrize("seed", range(4))
def test_what_damage_took_from_the_log_is_no_difference(tmp_path: Path, name: str, seed: int) -> None:
    """Queues and index still know the lost records; nothing says what these should be, so nothing contradicts them."""
    (store,) = golden.stores(name)
    root = golden.unpack(store, tmp_path)
    chosen = random.Random(seed).sample(sorted(golden.chain(root, store).items()), 3)
    size = int(store.settings[SEGMENT])
    for offset, length in chosen:
        segment = root / "commitlog" / f"{offset // size * size:020d}"
        content = bytearray(segment.read_bytes())
        content[offset % size : offset % size + length] = bytes(length)
        segment.write_bytes(content)
    verified = verify_here(root, store.settings, on_damage="salvage")
    assert verified.reading.damaged
    assert not verified.verdicts.counts
    assert any("damage took from the log" in note for note in verified.verdicts.notes)
