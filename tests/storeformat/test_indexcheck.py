"""Index files against the log's entries, on bytes: every healthy deviation is explained, every other one is a fault."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from storeformat import indexfile
from storeformat.indexalignment import FileContext, Gap, keys_in
from storeformat.indexcheck import IndexComparison, compare_index_file
from storeformat.indexrows import ROW, TAG_MARK, Rows

SLOTS, CAPACITY = 7, 4_000
Entry = tuple[int, int, int]
"""Key hash, commit-log offset, store timestamp."""


@st.composite
def records(draw: st.DrawFn, *, tags: bool = False) -> list[list[Entry]]:
    """Entries of some records, record by record; with ``tags`` the last entry of some carries the mark."""
    result, offset, time = [], draw(st.integers(0, 5)) * 100, 1_600_000_000_000
    for _ in range(draw(st.integers(2, 40))):
        offset += draw(st.integers(91, 500))
        time += draw(st.integers(0, 5_000))
        keys = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=tags))
        group = [(key, offset, time) for key in keys]
        if tags and draw(st.booleans()):
            group[-1] = (group[-1][0] | TAG_MARK, offset, time)
        result.append(group)
    return result


def flat(groups: list[list[Entry]]) -> list[Entry]:
    return [entry for group in groups for entry in group]


def rows_of(entries: list[Entry]) -> Rows:
    table = np.array(entries, ROW)
    return Rows(
        len(table), lambda begin, end: table[begin:end], lambda offset: int(np.searchsorted(table["offset"], offset))
    )


def file_of(entries: list[Entry]) -> bytearray:
    """The file that a broker makes of these entries; the first timestamp of all files is its own."""
    content = bytearray(indexfile.index_file_size(SLOTS, CAPACITY))

    def write(position: int, data: memoryview) -> None:
        content[position : position + len(data)] = data

    hashes, offsets, times = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    chunk = ((hashes & 0x7FFFFFFF).astype(np.int32), offsets, times)
    indexfile.build_index_file([chunk], SLOTS, CAPACITY, write)
    return content


def compare(
    content: bytearray, log: list[Entry], *, begin: int = 0, end: int = 1 << 40, tags: bool = False
) -> IndexComparison:
    context = FileContext(begin, end, None, growing=False, with_tags=tags)
    return compare_index_file(lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(log), context)


@settings(deadline=None)
@given(groups=records(), first=st.integers(0, 10))
def test_whole_and_later_part(groups: list[list[Entry]], first: int) -> None:
    groups_in_file = groups[min(first, len(groups) - 1) :]
    found = compare(file_of(flat(groups_in_file)), flat(groups))
    assert (found.counts, found.gaps) == ({}, [])
    assert (found.rows_begin, found.rows_end) == (len(flat(groups)) - len(flat(groups_in_file)), len(flat(groups)))
    assert found.compared == len(flat(groups_in_file))


@settings(deadline=None)
@given(groups=records(), gone=st.integers(0, 30))
def test_entries_older_than_the_log(groups: list[list[Entry]], gone: int) -> None:
    kept = groups[min(gone, len(groups) - 1) :]
    found = compare(file_of(flat(groups)), flat(kept), begin=kept[0][0][1])
    assert (found.counts, found.gaps) == ({}, [])
    assert found.old == len(flat(groups)) - len(flat(kept))
    assert (found.rows_begin, found.rows_end) == (0, len(flat(kept)))


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_record_indexed_again_after_a_crash(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(groups) - 1))
    whole = data.draw(st.integers(1, len(groups[at])), "entries that the crash left of the first time")
    written = flat(groups[:at]) + groups[at][:whole] + flat(groups[at:])
    found = compare(file_of(written), flat(groups))
    assert (found.counts, found.gaps) == ({}, [])
    assert found.doubled == whole


@settings(deadline=None)
@given(groups=records(tags=True), data=st.data())
def test_upgrade_to_tags(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(groups)), "first record after the upgrade")
    older = [[entry for entry in group if entry[0] >= 0] for group in groups[:at]]
    written = flat(older) + flat(groups[at:])
    if not written:
        return
    found = compare(file_of(written), flat(groups), tags=True)
    assert (found.counts, found.gaps) == ({}, [])
    # At most: a file can also be taken to begin behind tags that are absent in front of its first entry.
    assert found.absent_tags <= len(flat(groups)) - len(written)


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_records_that_are_missing(groups: list[list[Entry]], data: st.DataObject) -> None:
    begin = data.draw(st.integers(1, len(groups) - 1))
    end = data.draw(st.integers(begin, len(groups) - 1))
    log = flat(groups)
    found = compare(file_of(flat(groups[:begin] + groups[end:])), log)
    missing = len(flat(groups[begin:end]))
    assert found.counts == {}
    assert sum(gap.end - gap.begin for gap in found.gaps) == missing
    for gap in found.gaps:
        count, shown = keys_in(gap, rows_of(log), 1_000)
        assert (count, len(shown)) == (gap.end - gap.begin,) * 2


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_entries_of_no_record(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(groups) - 1))
    between = groups[at - 1][0][1] + 1, groups[at][0][1] - 1
    foreign = [(5, data.draw(st.integers(*between)), groups[at][0][2])] * data.draw(st.integers(2, 6))
    found = compare(file_of(flat(groups[:at]) + foreign + flat(groups[at:])), flat(groups))
    assert found.counts == {"dangling_entry": len(foreign)}


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_records_that_damage_took(groups: list[list[Entry]], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(groups) - 1))
    end = data.draw(st.integers(begin + 1, len(groups)))
    kept = groups[:begin] + groups[end:]
    if not kept:
        return
    context = FileContext(
        0, 1 << 40, None, growing=False, with_tags=False, damaged=((groups[begin][0][1], groups[end - 1][0][1] + 1),)
    )
    content = file_of(flat(groups))
    found = compare_index_file(
        lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(flat(kept)), context
    )
    assert (found.counts, found.gaps) == ({}, [])
    assert found.compared == len(flat(kept))


def test_gap_counts_tags_only_where_they_are_expected() -> None:
    log = [(1, 100, 0), (2 | TAG_MARK, 100, 0), (3, 200, 0)]
    assert keys_in(Gap(0, 3, 1, with_tags=True), rows_of(log), 5)[0] == 3
    assert keys_in(Gap(0, 3, 1, with_tags=False), rows_of(log), 5) == (
        2,
        [{"key_hash": 1, "phy_offset": 100}, {"key_hash": 3, "phy_offset": 200}],
    )
