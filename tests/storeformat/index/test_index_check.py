"""Index files against the log's entries, on bytes: every healthy deviation is explained, every other one is a fault."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.index_sides import CAPACITY, ENTRIES_AT, SLOTS, Entry, compare, file_of, rows_of

from storeformat.arrays import LogExtent
from storeformat.index import index_file
from storeformat.index.entries import TAG_MARK
from storeformat.index.index_check import FileContext, IndexComparison, IndexFault, compare_index_file


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


@settings(deadline=None)
@given(groups=records(), first=st.integers(0, 10))
def test_whole_and_later_part(groups: list[list[Entry]], first: int) -> None:
    groups_in_file = groups[min(first, len(groups) - 1) :]
    found = compare(file_of(flat(groups_in_file)), flat(groups))
    assert (found.counts, found.missing) == ({}, 0)
    assert (found.rows_begin, found.rows_end) == (len(flat(groups)) - len(flat(groups_in_file)), len(flat(groups)))
    assert (found.compared, found.last_offset) == (len(flat(groups_in_file)), groups[-1][0][1])


@settings(deadline=None)
@given(groups=records(), gone=st.integers(0, 30))
def test_entries_older_than_the_log(groups: list[list[Entry]], gone: int) -> None:
    kept = groups[min(gone, len(groups) - 1) :]
    found = compare(file_of(flat(groups)), flat(kept), begin=kept[0][0][1])
    assert (found.counts, found.missing) == ({}, 0)
    assert found.old == len(flat(groups)) - len(flat(kept))
    assert (found.rows_begin, found.rows_end) == (0, len(flat(kept)))


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_record_indexed_again_after_a_crash(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(groups) - 1))
    whole = data.draw(st.integers(1, len(groups[at])), "entries that the crash left of the first time")
    written = flat(groups[:at]) + groups[at][:whole] + flat(groups[at:])
    found = compare(file_of(written), flat(groups))
    assert (found.counts, found.missing) == ({}, 0)
    assert found.doubled == whole


@settings(deadline=None)
@given(groups=records(tags=True), data=st.data())
def test_upgrade_to_tags(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(groups)), "first record after the upgrade")
    older = [[entry for entry in group if entry[0] >= 0] for group in groups[:at]]
    written = flat(older) + flat(groups[at:])
    if not written:
        return
    found = compare(file_of(written), flat(groups))
    assert (found.counts, found.missing) == ({}, 0)
    # At most: a file can also be taken to begin after tags that are absent before its first entry.
    assert found.absent_tags <= len(flat(groups)) - len(written)


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_records_that_are_missing(groups: list[list[Entry]], data: st.DataObject) -> None:
    begin = data.draw(st.integers(1, len(groups) - 1))
    end = data.draw(st.integers(begin, len(groups) - 1))
    log = flat(groups)
    found = compare(file_of(flat(groups[:begin] + groups[end:])), log)
    missing = len(flat(groups[begin:end]))
    assert (found.counts, found.missing) == ({}, missing)
    shown = [(row["key_hash"], row["phy_offset"]) for row in found.missing_shown]
    assert sorted(shown) == sorted((key, offset) for key, offset, _ in flat(groups[begin:end]))


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
    lost = ((groups[begin][0][1], groups[end - 1][0][1] + 1),)
    found = compare(file_of(flat(groups)), flat(kept), lost=lost)
    assert (found.counts, found.missing) == ({}, 0)
    assert (found.compared, found.lost) == (len(flat(kept)), len(flat(groups)) - len(flat(kept)))


@settings(deadline=None)
@given(groups=records(), count=st.integers(-5, 300) | st.sampled_from([CAPACITY, (1 << 31) - 1, -(1 << 31)]))
def test_a_wrong_count_of_entries_is_one_fault(groups: list[list[Entry]], count: int) -> None:
    log = flat(groups)
    content = file_of(log)
    content[36:40] = count.to_bytes(4, "big", signed=True)
    found = compare(content, log)
    assert (found.entries, found.compared, found.missing) == (len(log), len(log), 0)
    assert (found.rows_begin, found.rows_end) == (0, len(log))
    if count == len(log) + 1:
        assert found.faults == []
    else:
        assert found.faults == [IndexFault(36, "wrong_header", {"index_count": len(log) + 1}, {"index_count": count})]
        assert found.counts == {"wrong_header": 1}


@settings(deadline=None)
@given(groups=records(), data=st.data(), bits=st.integers(1, 255))
def test_any_byte_of_a_file_is_looked_at(groups: list[list[Entry]], data: st.DataObject, bits: int) -> None:
    log = flat(groups)
    content = file_of(log)
    kind = data.draw(
        st.sampled_from(["times and offsets", "slot", "time_diff", "prev_index", "key_hash", "phy_offset"])
    )
    entry = data.draw(st.integers(0, len(log) - 1))
    begin, size = {
        "times and offsets": (8 * (entry % 4), 8),
        "slot": (40 + 4 * (entry % SLOTS), 4),
        "key_hash": (ENTRIES_AT + 20 * entry, 4),
        "phy_offset": (ENTRIES_AT + 20 * entry + 4, 8),
        "time_diff": (ENTRIES_AT + 20 * entry + 12, 4),
        "prev_index": (ENTRIES_AT + 20 * entry + 16, 4),
    }[kind]
    content[begin + data.draw(st.integers(0, size - 1))] ^= bits
    found = compare(content, log)
    cause = {"times and offsets": "wrong_header", "slot": "broken_chain", "prev_index": "broken_chain"}.get(kind)
    if cause is None and kind == "time_diff":
        cause = "wrong_entry"
    if cause is not None:
        position = begin if cause == "wrong_header" or kind == "slot" else ENTRIES_AT + 20 * entry
        assert (found.counts, [fault.position for fault in found.faults]) == ({cause: 1}, [position])
    else:
        assert found.counts or found.missing


T = 1_600_000_000_000
LOG = [(11, 100, T), (12, 200, T + 7_000), (13, 300, T + 9_500), (14, 400, T + 11_000)]


def second_file(previous_end: int) -> bytearray:
    """The file of all entries of ``LOG`` but the first, made when the file before ended at that time."""
    content = bytearray(index_file.index_file_size(SLOTS, CAPACITY))

    def write(position: int, data: memoryview) -> None:
        content[position : position + len(data)] = data

    hashes, offsets, times = (np.array(column, np.int64) for column in zip(*LOG[1:], strict=True))
    chunk = (hashes.astype(np.int32), offsets, times)
    index_file.build_index_file([chunk], SLOTS, CAPACITY, write, start=index_file.first_header(previous_end, 100))
    return content


@pytest.mark.parametrize(
    ("made_after", "said", "expected"),
    [
        (T, T, None),
        (T, T + 3_000, None),  # the file before was lost and made again: the log's own entry before counts, too
        (T + 3_000, T + 3_000, None),
        (T + 3_000, T, 7),
        (T + 3_000, T + 1_000, 7),  # the log is right, whatever the file before says
        (T + 3_000, None, None),  # nobody knows how the file before ended
    ],
)
def test_the_first_time_is_counted_from_the_end_of_the_file_before(
    made_after: int, said: int | None, expected: int | None
) -> None:
    content = second_file(made_after)
    context = FileContext(LogExtent(0, 1 << 40), said, growing=False)
    found = compare_index_file(lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(LOG), context)
    assert found.first_time_diff == (T + 7_000 - made_after) // 1000
    assert found.counts == ({} if expected is None else {"wrong_entry": 1})
    for fault in found.faults:
        assert fault.position == ENTRIES_AT
        assert isinstance(fault.expected, dict)
        assert fault.expected["time_diff"] == expected


def test_a_wrong_begin_is_one_fault_though_it_shifts_all_times() -> None:
    """Also where the entry whose time it was is not in the log any more."""
    content = file_of(LOG)
    content[:8] = (T - 5_000).to_bytes(8, "big")
    for log, begin in ((LOG, 0), (LOG[1:], 150)):
        found = compare(content, log, begin=begin)
        assert found.counts == {"wrong_header": 1}
        (fault,) = found.faults
        assert (fault.position, fault.found) == (0, {"begin_timestamp": T - 5_000})
        assert isinstance(fault.expected, dict)
        assert T - 1_000 < fault.expected["begin_timestamp"] < T + 1_000


def test_each_field_of_a_header_is_looked_at() -> None:
    log = [(5, 100, T), (6, 200, T + 1_000)]
    fields = ("begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset")
    values = T, T + 1_000, 100, 200
    for number, (name, value) in enumerate(zip(fields, values, strict=True)):
        content = file_of(log)
        content[8 * number : 8 * number + 8] = struct.pack(">q", value + 7)
        found = compare(content, log)
        assert found.faults == [IndexFault(8 * number, "wrong_header", {name: value}, {name: value + 7})]
        assert (found.hash_slot_count, found.used_slots) == (2, 2)
        assert (found.end_timestamp, found.end_phy_offset) == (T + 1_000, 200)


def test_the_header_of_a_file_without_entries_ends_where_it_begins() -> None:
    content = bytearray(len(file_of([(5, 100, T)])))
    content[:40] = struct.pack(">4q2i", T, T + 1, 700, 701, 3, 6)
    found = compare(content, [(5, 100, T)])
    assert found.faults == [
        IndexFault(8, "wrong_header", {"end_timestamp": T}, {"end_timestamp": T + 1}),
        IndexFault(24, "wrong_header", {"end_phy_offset": 700}, {"end_phy_offset": 701}),
        IndexFault(36, "wrong_header", {"index_count": 1}, {"index_count": 6}),
    ]
    assert (found.entries, found.hash_slot_count, found.used_slots) == (0, 3, 0)
    assert (found.end_timestamp, found.end_phy_offset) == (T + 1, 701)


def test_entries_that_a_growing_file_does_not_count_yet() -> None:
    """A broker writes entries and slots at once, the header when it flushes: slots are followed down to what counts."""
    log = [(hashed, 100 * n, T + 1_000 * n) for n, hashed in enumerate([1, 8, 2, 1, 15, 9, 3], 1)]
    content = file_of(log)
    header = index_file.IndexHeader(T + 1_000, T + 3_000, 100, 300, hash_slot_count=2, index_count=4)
    content[:40] = header.to_bytes()
    context = FileContext(LogExtent(0, 1 << 40), None, growing=True)

    def found() -> IndexComparison:
        return compare_index_file(
            lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(log), context
        )

    assert (found().counts, found().entries, found().rows_end, found().used_slots) == ({}, 3, 3, 2)
    content[40 + 4 : 40 + 8] = (6).to_bytes(4, "big")  # slot 1 (hashes 1, 8, 15) names an entry of slot 2
    (fault,) = found().faults
    assert (fault.position, fault.cause, fault.expected, fault.found) == (44, "broken_chain", {"slot": 2}, {"slot": 6})
    content[40 + 4 : 40 + 8] = ((1 << 31) - 1).to_bytes(4, "big")  # no entry of this file
    (fault,) = found().faults
    assert (fault.position, fault.cause, fault.expected) == (44, "broken_chain", {"slot": 2})


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_records_in_another_order_are_counted(groups: list[list[Entry]], data: st.DataObject) -> None:
    if len(groups) < 4:
        return
    at = data.draw(st.integers(1, len(groups) - 3))
    swapped = [*groups[:at], groups[at + 1], groups[at], *groups[at + 2 :]]
    found = compare(file_of(flat(swapped)), flat(groups))
    assert (found.missing, found.disordered > 0) == (0, True)
    assert set(found.counts) <= {"wrong_entry", "wrong_header"}, "times and ends of the file"


@settings(deadline=None)
@given(groups=records(tags=True), data=st.data())
def test_files_that_are_cut_anywhere(groups: list[list[Entry]], data: st.DataObject) -> None:
    """Each holds a part of the log's entries, from the middle of a record to the middle of another."""
    log = flat(groups)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(log) - 1), max_size=4)))
    row = 0
    for begin, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        found = compare(file_of(log[begin:end]), log)
        assert (found.missing, found.compared, found.disordered) == (0, end - begin, 0)
        assert not found.counts.keys() - {"wrong_entry"}, "the first time, which the file before ends with"
        assert found.rows_begin == row or (log[found.rows_begin][0] < 0 and found.rows_begin == row - 1), "tags alone"
        row = found.rows_end
