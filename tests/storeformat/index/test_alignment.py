"""An index file beside the log's entries, on bytes: how it is told where the two part, and where they meet again."""

from __future__ import annotations

import struct

import pytest
from support.index_sides import CAPACITY, ENTRIES_AT, SLOTS, Entry, compare, file_of, rows_of

from storeformat.arrays import LogExtent
from storeformat.index import alignment, index_check, index_file
from storeformat.index.alignment import FileContext, OmittedRows, keys_in
from storeformat.index.entries import TAG_MARK, hashes_of
from storeformat.index.index_check import IndexComparison, IndexFault, compare_index_file

T = 1_600_000_000_000
FIELDS = {"key_hash": range(4), "phy_offset": range(4, 12), "time_diff": range(12, 16)}


def key(record: int) -> Entry:
    return 0x100 + 37 * record, 100 * record, T + 1_000 * record


def tag(record: int) -> Entry:
    return (0x5000 + 41 * record) | TAG_MARK, 100 * record, T + 1_000 * record


KEYS = [key(record) for record in range(1, 8)]
WITH_TAGS = [entry for record in range(1, 6) for entry in (key(record), tag(record))]


def entry_of(content: bytearray, number: int) -> dict[str, int]:
    values = struct.unpack_from(">iqii", content, ENTRIES_AT + 20 * (number - 1))
    return dict(zip(("key_hash", "phy_offset", "time_diff", "prev_index"), values, strict=True))


def damaged(entries: list[Entry], wrong: dict[int, Entry]) -> bytearray:
    """The file of these entries, in which those numbers have another hash and offset, and nothing else is changed."""
    content = file_of(entries)
    for number, (key_hash, offset, _) in wrong.items():
        struct.pack_into(">iq", content, ENTRIES_AT + 20 * (number - 1), key_hash, offset)
    return content


def wrong_entries(found: IndexComparison) -> list[int]:
    """Numbers of the wrong entries, where there is no other fault."""
    assert found.counts == ({"wrong_entry": len(found.faults)} if found.faults else {})
    return [(fault.position - ENTRIES_AT) // 20 + 1 for fault in found.faults]


def test_each_byte_of_each_entry_is_one_fault() -> None:
    """The first one and the last one too: the rest agrees, whatever a wrong field leads to."""
    content = file_of(KEYS)
    for number in range(1, len(KEYS) + 1):
        good = entry_of(content, number)
        for field, places in FIELDS.items():
            for byte in places:
                bad = bytearray(content)
                bad[ENTRIES_AT + 20 * (number - 1) + byte] ^= 0x04
                found = compare(bad, KEYS)
                assert wrong_entries(found) == [number], (number, byte)
                assert found.faults[0].expected == good
                assert found.faults[0].found == {**good, field: entry_of(bad, number)[field]}
                assert (found.compared, found.gaps, found.rows_begin, found.rows_end) == (7, [], 0, 7)
                assert (found.old, found.beyond, found.doubled) == (0, 0, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_entries_that_are_all_wrong_are_told_by_their_places(count: int) -> None:
    wrong = {number: (number, key(number)[1], 0) for number in range(1, count + 1)}
    found = compare(damaged(KEYS[:count], wrong), KEYS)
    assert wrong_entries(found) == list(range(1, count + 1))
    assert (found.rows_begin, found.rows_end, found.gaps) == (0, count, [])


@pytest.mark.parametrize("last", [False, True])
def test_an_entry_of_a_later_record_where_the_next_ones_go_on_is_wrong(last: bool) -> None:
    """No gap: one entry after it suffices."""
    log = KEYS[:3] if last else KEYS
    found = compare(damaged(log, {2: KEYS[5]}), KEYS)
    assert wrong_entries(found) == [2]
    assert (found.gaps, found.rows_end) == ([], len(log))


def test_a_last_entry_of_a_later_record_leaves_a_gap() -> None:
    found = compare(file_of([*KEYS[:2], KEYS[5]]), KEYS)
    assert (found.counts, found.gaps, found.rows_end) == ({}, [OmittedRows(2, 5, with_tags=False)], 6)


def test_a_file_that_is_older_than_the_log() -> None:
    found = compare(file_of(KEYS[:3]), KEYS[4:], begin=450)
    assert (found.counts, found.gaps, found.entries, found.old) == ({}, [], 3, 3)
    assert (found.compared, found.rows_begin, found.rows_end, found.last_offset) == (0, -1, -1, -1)


def test_entries_of_no_record_may_look_like_the_next_one() -> None:
    """Each has one field of it: its hash, or its offset."""
    log = [*KEYS[:2], (9, 250, T), (key(3)[0], 250, T), (9, 300, T), *KEYS[2:]]
    found = compare(file_of(log), KEYS)
    assert found.counts == {"dangling_entry": 3}
    assert [fault.position for fault in found.faults] == [ENTRIES_AT + 20 * number for number in (2, 3, 4)]
    assert (found.gaps, found.compared) == ([], 7)


@pytest.mark.parametrize("wrong", [1, 2])
def test_first_entries_with_the_offset_of_an_older_record_are_wrong(wrong: int) -> None:
    """Two older ones, then those of the log, of which the first have a wrong offset: their hashes tell."""
    damage = {number: (KEYS[1 + number][0], 50, 0) for number in range(3, 3 + wrong)}
    found = compare(damaged(KEYS[2:], damage), KEYS[4:], begin=450)
    assert wrong_entries(found) == list(damage)
    assert (found.old, found.compared, found.rows_begin, found.gaps) == (2, 3, 0, [])


@pytest.mark.parametrize("previous", [None, T, T + 1])
def test_a_file_without_entries(previous: int | None) -> None:
    """A broker makes one for a record without keys after a full file; it begins at the end of that."""
    content = bytearray(index_file.index_file_size(SLOTS, CAPACITY))
    content[:40] = struct.pack(">qqqqii", T, T, 700, 700, 0, 1)
    context = FileContext(LogExtent(0, 1 << 40), previous, growing=False, with_tags=False)
    found = compare_index_file(lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(KEYS), context)
    assert (found.entries, found.compared, found.rows_begin, found.last_offset) == (0, 0, -1, -1)
    names = [] if previous != T + 1 else ["begin_timestamp", "end_timestamp"]
    assert found.faults == [
        IndexFault(8 * number, "wrong_header", {name: T + 1}, {name: T}) for number, name in enumerate(names)
    ]


def test_what_lies_in_a_file_that_counts_no_entries_is_nothing_if_the_log_does_not_make_it() -> None:
    content = bytearray(index_file.index_file_size(SLOTS, CAPACITY))
    content[:40] = struct.pack(">qqqqii", T, T, 700, 700, 0, 1)
    struct.pack_into(">iqii", content, ENTRIES_AT, 5, 350, 0, 0)
    found = compare(content, KEYS)
    assert (found.counts, found.entries, found.compared, found.rows_begin) == ({}, 0, 0, -1)


def test_of_two_equal_entries_of_a_record_a_file_may_begin_with_the_second() -> None:
    """A record may name a key twice: what follows tells which of them a file begins with."""
    log = [key(1), key(2), key(2), *KEYS[2:]]
    for first in (1, 2):
        found = compare(file_of(log[first:]), log)
        assert (found.counts, found.gaps, found.rows_begin, found.compared) == ({}, [], first, 8 - first)


def test_after_too_many_jumps_the_rest_is_told_entry_by_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [(key(record)[0], 100 * record + 1, key(record)[2]) for record in (3, 4, 5)]
    content = file_of([*KEYS[:2], *wrong, *[(9, 550, T + 5_000)] * 2])
    monkeypatch.setattr(alignment, "_MOST_JUMPS", 0)
    found = compare(content, KEYS[:5])
    assert found.counts == {"wrong_entry": 3, "dangling_entry": 2}
    assert [(fault.position - ENTRIES_AT) // 20 + 1 for fault in found.faults] == [3, 4, 5, 6, 7]


# --------------------------------------------------------------------------------------------------- entries of tags
def test_hashes_are_stored_without_the_mark_of_tags() -> None:
    hashes = [0, 1, 1 << 29, 1 << 30, (1 << 31) - 1]
    rows = rows_of([(value | mark, 0, 0) for mark in (0, TAG_MARK) for value in hashes]).read(0, 10)
    assert hashes_of(rows).tolist() == hashes * 2
    assert (rows["key_hash"] < 0).tolist() == [False] * 5 + [True] * 5


def test_a_hash_of_zero_is_no_tag() -> None:
    log = [(0, 100, T), *KEYS[1:]]
    assert compare(file_of(log), log, tags=True).first_tag is None
    log = [key(1), (0, 200, T), *KEYS[2:]]
    found = compare(damaged(log[1:], {1: (7, 150, 0)}), log)
    assert (wrong_entries(found), found.rows_begin) == ([1], 1)


@pytest.mark.parametrize("expected_first", [False, True])
def test_an_upgrade_within_a_file(expected_first: bool) -> None:
    found = compare(file_of([key(1), key(2), *WITH_TAGS[4:]]), WITH_TAGS, tags=expected_first)
    assert (found.counts, found.gaps, found.compared) == ({}, [], 8)
    assert (found.absent_tags, found.first_tag, found.with_tags) == (2, 300, True)
    assert (found.rows_begin, found.rows_end) == (0, 10)


def test_tags_that_are_missing_after_the_upgrade_are_gaps() -> None:
    found = compare(file_of([*WITH_TAGS[:2], key(2), *WITH_TAGS[4:6], key(4)]), WITH_TAGS, tags=True)
    assert (found.counts, found.absent_tags, found.rows_end) == ({}, 0, 7)
    assert found.gaps == [OmittedRows(3, 4, with_tags=True)]


def test_a_file_before_the_upgrade_has_no_tags() -> None:
    found = compare(file_of([key(record) for record in range(1, 6)]), WITH_TAGS)
    assert (found.counts, found.gaps, found.compared) == ({}, [], 5)
    assert (found.absent_tags, found.first_tag, found.with_tags, found.rows_end) == (5, None, False, 10)


def test_a_key_that_is_missing_before_the_upgrade_is_a_gap() -> None:
    found = compare(file_of([key(1), key(3), key(4)]), WITH_TAGS)
    (gap,) = found.gaps
    assert (found.counts, gap.with_tags) == ({}, False)
    assert keys_in(gap, rows_of(WITH_TAGS), 5) == (1, [{"key_hash": key(2)[0], "phy_offset": 200}])


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("wrong", [1, 2])
def test_a_wrong_begin_of_a_file_without_tags(first: int, wrong: int) -> None:
    entries = [key(record) for record in range(first, 6)]
    found = compare(
        damaged(entries, {number: (7, entries[number - 1][1], 0) for number in range(1, wrong + 1)}), WITH_TAGS
    )
    assert wrong_entries(found) == list(range(1, wrong + 1))
    assert (found.rows_begin, found.gaps, found.first_tag) == (2 * first - 2, [], None)


def test_a_wrong_tag_at_the_begin_of_a_file() -> None:
    found = compare(damaged(WITH_TAGS[1:], {1: (7, 100, 0)}), WITH_TAGS, tags=True)
    assert (wrong_entries(found), found.rows_begin, found.gaps) == ([1], 1, [])


@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_file_that_begins_with_a_tag(more: int) -> None:
    found = compare(file_of(WITH_TAGS[3 : 4 + more]), WITH_TAGS)
    assert (found.counts, found.gaps, found.compared) == ({}, [], 1 + more)
    assert (found.rows_begin, found.first_tag, found.with_tags, found.absent_tags) == (3, 200, True, 0)


def test_a_file_that_begins_with_a_tag_and_an_entry_of_no_record() -> None:
    found = compare(file_of([WITH_TAGS[3], (9, 250, T + 2_500), *WITH_TAGS[4:]]), WITH_TAGS)
    assert found.counts == {"dangling_entry": 1}
    assert [fault.position for fault in found.faults] == [ENTRIES_AT + 20]
    assert (found.rows_begin, found.rows_end, found.gaps) == (3, 10, [])


# ------------------------------------------------------------------------------------------------------ piece by piece
FOREIGN = (9, 250, T + 2_500)
FILES = {
    "whole": (file_of(KEYS), KEYS),
    "later part": (file_of(KEYS[2:]), KEYS),
    "wrong entries": (damaged(KEYS, {2: KEYS[5], 4: (7, 400, 0), 7: (7, 700, 0)}), KEYS),
    "gap": (file_of(KEYS[:2] + KEYS[5:]), KEYS),
    "foreign": (file_of([*KEYS[:2], FOREIGN, FOREIGN, *KEYS[2:]]), KEYS),
    "again": (file_of([*KEYS[:4], *KEYS[3:]]), KEYS),
    "upgrade": (file_of([key(1), key(2), *WITH_TAGS[4:]]), WITH_TAGS),
    "without tags": (file_of([key(record) for record in range(1, 6)]), WITH_TAGS),
}


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
@pytest.mark.parametrize("name", FILES)
def test_pieces_are_compared_as_the_whole(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content, log = FILES[name]
    whole = compare(content, log)
    monkeypatch.setattr(index_check, "CHUNK", chunk)
    assert compare(content, log) == whole


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_a_count_that_is_too_small_in_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "CHUNK", chunk)
    content = file_of(KEYS)
    content[36:40] = (3).to_bytes(4, "big")
    found = compare(content, KEYS)
    assert (found.entries, found.rows_end) == (7, 7)
    assert found.faults == [IndexFault(36, "wrong_header", {"index_count": 8}, {"index_count": 3})]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_entries_older_than_the_log_in_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "CHUNK", chunk)
    found = compare(file_of(KEYS), KEYS[4:], begin=450)
    assert (found.counts, found.gaps, found.old, found.compared) == ({}, [], 4, 3)
    assert (found.rows_begin, found.rows_end) == (0, 3)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_entries_after_the_part_of_the_log_that_was_read(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "CHUNK", chunk)
    found = compare(file_of(KEYS), KEYS[:4], end=450)
    assert (found.counts, found.gaps, found.beyond, found.compared) == ({}, [], 3, 4)
    assert (found.rows_begin, found.rows_end, found.last_offset) == (0, 4, 400)
    found = compare(file_of([*KEYS[4:6], *KEYS[3:]]), KEYS[:4], end=450)
    assert found.beyond == 3, "the first two are not at the end"


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("gone", [range(1, 3), range(3, 5), range(6, 8)])
def test_entries_of_messages_that_damage_took(gone: range, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "CHUNK", chunk)
    content = file_of(KEYS)
    context = FileContext(
        LogExtent(0, 1 << 40, ((100 * gone.start, 100 * gone.stop - 50),)), None, growing=False, with_tags=False
    )
    log = [key(record) for record in range(1, 8) if record not in gone]
    found = compare_index_file(lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(log), context)
    assert (found.counts, found.gaps, found.lost, found.compared, found.old) == ({}, [], 2, 5, 0)
