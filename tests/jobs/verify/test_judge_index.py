"""Damage in one place of the index: ``verify`` must name exactly that, with its cause, file and position."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from support.planting import (
    SLOTS,
    SMALL,
    STORE,
    entry_at,
    flip,
    index_files,
    only,
    rewrite,
    three_a_file,
    verdicts,
)
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder
from support.verifying import verify_here

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("killed", [False, True])
def test_of_a_healthy_store_nothing_is_said(root: Path, killed: bool) -> None:
    if killed:
        (root / "abort").touch()
    found = verdicts(root)
    assert (found.counts, found.differences, found.hazard_counts, found.hazards, found.notes) == ({}, [], {}, [], [])


EVERY_BYTE = [(3, 2, byte) for byte in range(20)]
FIRST_AND_LAST_FILE = [(which, number, byte) for which in (0, -1) for number in (1, 17, 59) for byte in (3, 7, 15, 19)]


@pytest.mark.parametrize(("which", "number", "byte"), EVERY_BYTE + FIRST_AND_LAST_FILE)
def test_a_bit_in_each_byte_of_an_entry(root: Path, which: int, number: int, byte: int) -> None:
    file = index_files(root)[which]
    (count,) = struct.unpack_from(">i", file.read_bytes(), 36)
    number = min(number, count - 1)
    flip(file, entry_at(number) + byte, 0x04)
    assert f"index/{file.name}" in {difference["file"] for difference in verdicts(root).differences}


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
        (["entries", "entries", "between"], None),
        (["between"], 0),
        (["used", "between"], 1),
        (["entries", "used", "between"], 2),
        (["entries", "between", "entries"], 1),
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


def test_entry_left_out(root: Path) -> None:
    rewrite(index_files(root)[-1], lambda entries: entries.pop(3) and None)
    found = verdicts(root)
    assert found.counts == {"missing_key": 1}
    assert found.differences[0]["file"] == f"index/{index_files(root)[-1].name}"


def test_entry_of_no_record(root: Path) -> None:
    file = index_files(root)[-1]
    rewrite(file, lambda entries: entries.insert(2, struct.pack(">i", 77) + entries[1][4:]))
    only(root, "extra_entry", f"index/{file.name}", entry_at(3))


def test_last_record_indexed_twice_is_fine(root: Path) -> None:
    def again(entries: list[bytes]) -> None:
        last = [entry for entry in entries if entry[4:12] == entries[-1][4:12]]
        assert 0 < len(last) < len(entries)
        entries += last

    rewrite(index_files(root)[-1], again)
    found = verdicts(root)
    assert not found.counts
    assert any("are there twice" in note for note in found.notes)


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
