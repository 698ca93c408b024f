"""Index files: their bytes, and checks of them."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import golden
from support.broker_index import IndexFile
from support.refusals import refusal

from storeformat.arrays import LogExtent
from storeformat.errors import NotAStore, TotalsDisagree, WrongSettings
from storeformat.index import index_check, index_file
from storeformat.index import index_file as ix
from storeformat.index.index_check import IndexCheck, IndexComparison, IndexFileComparer, Rows
from storeformat.index.index_file import ROW, TAG_MARK
from storeformat.queues.queue_check import Finding
from storeformat.storage import durable, files

SLOTS, CAPACITY = 7, 4_000
ENTRIES_AT = 40 + 4 * SLOTS + 20
"""Of entry 1: number 0 is never used, and nobody looks at it."""

Entry = tuple[int, int, int]
"""Key hash, commit-log offset, store timestamp."""


def counts(found: IndexComparison) -> dict[str, int]:
    return {cause: one.count for cause, one in found.differences.items()}


def file_of(entries: list[Entry], start: index_file.IndexHeader | None = None) -> bytearray:
    """The file that a broker makes of these entries; the first timestamp of all files is its own."""
    content = bytearray(index_file.index_file_size(SLOTS, CAPACITY))

    def write(position: int, data: memoryview) -> None:
        content[position : position + len(data)] = data

    hashes, offsets, times = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    chunk = ((hashes & 0x7FFFFFFF).astype(np.int32), offsets, times)
    index_file.build_index_file([chunk], SLOTS, CAPACITY, write, start=start)
    return content


def compare(
    content: bytearray,
    log: list[Entry],
    *,
    begin: int = 0,
    end: int = 1 << 40,
    lost: tuple[tuple[int, int], ...] = (),
    previous_end: int | None = None,
    growing: bool = False,
) -> IndexComparison:
    """The same in one chunk and in many: at least that something is wrong."""

    def compared() -> IndexComparison:
        check = IndexCheck("20231114221320000", previous_end, growing)
        extent = LogExtent(begin, end, lost)
        read, table = reader(bytes(content)), np.array(log, ROW)
        rows = Rows([("", len(log))], lambda _, first, count: table[first : first + count])
        found = IndexFileComparer(read, (SLOTS, CAPACITY), rows, extent, check).compare()
        return replace(found, explained=+found.explained)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_check, "CHUNK", 16)
        patch.setattr(index_check, "_EDGE", 3)
        in_chunks = compared()
    whole = compared()
    assert bool(in_chunks.differences) == bool(whole.differences)
    assert in_chunks == whole or whole.differences
    return whole


# ---------------------------------------------------------------------------------------------------- index file
Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]


def columns(entries: list[tuple[int, int, int]]) -> Chunk:
    table = np.array(entries, dtype=np.int64).reshape(-1, 3)
    return table[:, 0].astype(np.int32), table[:, 1], table[:, 2]


def chunked(entries: list[tuple[int, int, int]], cuts: list[int]) -> list[Chunk]:
    borders = sorted({0, len(entries), *(cut for cut in cuts if cut < len(entries))})
    return [columns(entries[a:b]) for a, b in zip(borders, [*borders[1:], len(entries)], strict=True)]


def build(
    chunks: list[Chunk], slots: int, max_index_num: int, start: ix.IndexHeader | None = None, every: bool = False
) -> tuple[ix.IndexHeader, bytes]:
    content = bytearray(ix.index_file_size(slots, max_index_num))

    def write(position: int, data: memoryview) -> None:
        content[position : position + len(data)] = data

    chunks = [chunk for chunk in chunks if len(chunk[0])]
    header = ix.build_index_file(chunks, slots, max_index_num, write, start=start, count_every_put=every)
    return header, bytes(content)


key_hashes = st.one_of(st.integers(0, 12), st.integers(0, 0x7FFFFFFF))
timestamps = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-5000, 5000), st.just(1 << 45), st.just(0)
)


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(
    entries=st.lists(st.tuples(key_hashes, st.integers(0, 1 << 50), timestamps), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    slots=st.integers(1, 30),
    previous=st.tuples(timestamps, st.integers(0, 1 << 40)),
    every=st.booleans(),
    at_once=st.sampled_from([1, 3, 1 << 16]),
)
def test_bytes_are_those_of_one_put_after_the_other(
    entries: list[tuple[int, int, int]],
    cuts: list[int],
    slots: int,
    previous: tuple[int, int],
    every: bool,
    at_once: int,
) -> None:
    start = ix.first_header(*previous)
    model = IndexFile([0] * slots, 61, every, *struct.unpack(">qqqq", start.to_bytes()[:32]))
    for entry in entries:
        model.put_hash(*entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ix, "_SLOTS_AT_ONCE", at_once)
        header, content = build(chunked(entries, cuts), slots, 61, start, every)
    assert content == model.to_bytes()
    assert ix.parse_header(content) == header
    assert header.entries == len(entries)


def test_slots_that_nobody_uses_stay_holes(tmp_path: Path) -> None:
    """A broker maps the file and touches only the pages of the slots and entries that it writes."""
    slots, max_index_num = 5_000_000, 20_000_000
    model = IndexFile([0] * slots, 4, counts_every_put=False)
    entries = [(5, 900, 1_700_000_000_000), (4_999_999, 950, 1_700_000_000_500), (2_500_000, 999, 1_700_000_001_000)]
    for entry in entries:
        model.put_hash(*entry)
    path = tmp_path / "20231114221320000"
    size = ix.index_file_size(slots, max_index_num)
    with files.FileWriter(str(path)) as writer:
        ix.build_index_file([columns(entries)], slots, max_index_num, writer.write_at)
        writer.finish(size)
    assert (path.stat().st_size, path.stat().st_blocks * 512 < 2 << 20) == (size, True)
    with path.open("rb") as file:
        wanted = model.to_bytes()
        assert file.read(len(wanted)) == wanted
    assert durable.stray_byte(str(path), 40 + 4 * slots + 20 * 4) is None


def test_a_full_file_counts_to_its_configured_number() -> None:
    entries = columns([(n, n, n) for n in range(4)])
    assert build([entries], 3, 5)[0].index_count == 5
    said = {"what": "too many entries for one index file", "found": 5, "expected": "at most 4"}
    assert refusal(TotalsDisagree, lambda: build([entries, columns([(1, 1, 1)])], 3, 5)) == said


def test_sizes() -> None:
    assert ix.index_file_size(5_000_000, 20_000_000) == 420_000_040
    for slots, max_index_num in ((0, 10), (10, 1), (-5, 10), (1 << 30, 10)):
        with pytest.raises(WrongSettings, match=f"make no index file: found {slots} and {max_index_num}"):
            ix.index_file_size(slots, max_index_num)
    assert ix.index_file_size(1, 2) == 84
    most = (0x7FFFFFFF - 40 - 2 * 20) // 4
    assert ix.index_file_size(most, 2) <= 0x7FFFFFFF
    with pytest.raises(WrongSettings):
        ix.index_file_size(most + 1, 2)
    said = {"what": "an index file is too short for its header", "found": 39, "expected": 40}
    assert refusal(NotAStore, lambda: ix.parse_header(bytes(39))) == said


@pytest.mark.parametrize(("slots", "max_index_num"), [(1, 2), (1, 5), (7, 5), (100, 60)])
def test_a_full_file_shows_its_sizes(slots: int, max_index_num: int) -> None:
    entries = [(5 * n, 100 * n, 1_700_000_000_000 + n) for n in range(1, max_index_num)]
    _, content = build([columns(entries)], slots, max_index_num)
    assert ix.capacity_of_file(len(content), reader(content)) == (slots, max_index_num)
    for more in (1, 2, 3, 4):
        assert ix.capacity_of_file(len(content) + more, reader(content + bytes(more))) is None
    for count in range(max_index_num - 1):  # what is not written looks like an entry of hash 0
        _, not_full = build([columns(entries[:count])], slots, max_index_num)
        assert ix.capacity_of_file(len(not_full), reader(not_full)) is None, count
    last = ix.entries_position(slots) + 20 * (max_index_num - 1)
    negative = content[:last] + b"\xff" + content[last + 1 :]
    assert ix.capacity_of_file(len(content), reader(negative)) is None
    assert ix.capacity_of_file(len(content), reader(content[:40])) is None
    content = ix.first_header().to_bytes() + bytes(4 * 3 + 20)
    assert ix.capacity_of_file(len(content), reader(content)) is None
    _, content = build([columns([(5, 100, 1), (0, 200, 2)])], 3, 3)
    assert ix.capacity_of_file(len(content), reader(content)) == (3, 3), "its last hash is 0"


def test_a_count_of_nothing_is_that_of_an_empty_file() -> None:
    for count in (-1, 0, 1):
        content = struct.pack(">4q2i", 1, 2, 3, 4, 5, count)
        assert ix.parse_header(content) == ix.IndexHeader(1, 2, 3, 4, 5, 1)
    assert ix.parse_header(struct.pack(">4q2i", 1, 2, 3, 4, 5, 2)).index_count == 2
    assert ix.first_header(-3, -4) == ix.IndexHeader()
    assert ix.first_header(7_000, 800) == ix.IndexHeader(7_000, 7_000, 800, 800, 0, 1)


def test_names_ascend_whatever_the_times_are() -> None:
    day = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC, 10:13:20 in the westmost zone
    names = ix.index_file_names([day, day + 5, day + 5, day - 1000, day + 10, 0, -7, 1 << 62, 1 << 62])
    assert names[:4] == ["20231114101320000", "20231114101320005", "20231114101320006", "20231114101320007"]
    assert names[4:7] == ["20231114101320010", "20231114101320011", "20231114101320012"]
    assert names[7:] == ["99991231235959998", "99991231235959999"]
    assert ix.index_file_names([0, -1, 3]) == ["19700101000000000", "19700101000000001", "19700101000000002"]
    assert ix.index_file_names([]) == []


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_names_are_17_digits_in_strict_order(times: list[int]) -> None:
    names = ix.index_file_names(times)
    assert all(len(name) == 17 and name.isascii() and name.isdigit() for name in names)
    assert names == sorted(set(names))


def with_live_header(content: bytes) -> bytes:
    """A file that was created and never flushed counts from 0 on disk; the broker reads that as 1."""
    return content[:36] + struct.pack(">i", max(struct.unpack_from(">i", content, 36)[0], 1)) + content[40:]


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_files_rebuilt_from_the_entries_of_real_brokers(store: golden.GoldenStore) -> None:
    """Key hashes, offsets and times of each real file come back as the same bytes, header and links included.

    An entry does not hold its exact time, only seconds; the header has that of the first and of the last entry.
    """
    slots, max_index_num = int(store.settings["maxHashSlotNum"]), int(store.settings["maxIndexNum"])
    files = [path.read_bytes() for path in sorted((golden.unpack(store) / "index").iterdir())]
    previous = ix.IndexHeader()
    after_lost_file = store.compare == "from_min"  # what the first file's first entry counts from is gone
    differing = []
    for number, content in enumerate(files):
        header = ix.parse_header(content)
        entries = np.frombuffer(content, ix.ENTRY, header.entries + 1, ix.entries_position(slots))[1:]
        times = header.begin_timestamp + entries["time_diff"].astype(np.int64) * 1000
        times[:1], times[-1:] = header.begin_timestamp, header.end_timestamp
        start = ix.first_header(previous.end_timestamp, previous.end_phy_offset)
        if previous.entries != max_index_num - 1:  # not made after a full file: the first of all, or after a recovery
            start = ix.first_header()
        cuts = [header.entries // 3, header.entries // 2]
        rows = list(zip(entries["key_hash"].tolist(), entries["phy_offset"].tolist(), times.tolist(), strict=True))
        _, built = build(chunked(rows, cuts), slots, max_index_num, start, every=store.version_tuple < (4, 7, 1))
        if built != with_live_header(content) and not (after_lost_file and number == 0):
            differing.append(number)
        previous = header
    assert files
    assert differing == []


def reader(content: bytes) -> ix.Read:
    return lambda position, length: content[position : position + length]


ENTRIES = [(hashed, 100 * n, 1_700_000_000_000 + 700 * n) for n, hashed in enumerate([7, 4, 1, 7, 7, 4, 7])]


def test_walk_of_a_slot_is_newest_first_with_strangers() -> None:
    header, content = build([columns(ENTRIES)], 3, 9)  # 7, 4 and 1 share slot 1
    walked = list(ix.chain(reader(content), header, 3, 7))
    assert [(key_hash, offset) for key_hash, offset, _ in walked] == [entry[:2] for entry in ENTRIES[::-1]]
    assert list(ix.chain(reader(content), header, 3, 2)) == []

    def select(max_num: int, begin: int, end: int) -> list[int]:
        return ix.select_phy_offsets(reader(content), header, 3, 7, max_num=max_num, begin=begin, end=end)

    assert select(32, 0, 1 << 62) == [600, 400, 300, 0]
    assert select(2, 0, 1 << 62) == [600, 400]
    # the messages of 2.1 s and 2.8 s after the begin both count as 2 s
    assert select(32, 1_700_000_002_000, 1_700_000_003_999) == [400, 300]
    assert select(32, 1_700_000_002_001, 1_700_000_003_999) == []


def test_walk_ends_where_links_are_broken() -> None:
    header, content = build([columns(ENTRIES)], 3, 9)
    entry_7 = ix.entries_position(3) + 20 * 7
    # Entry 8 was never written, but a broker follows a link to it: the header's count is the number of the next entry.
    for prev, offsets in ((7, [600]), (99, [600]), (9, [600]), (8, [600, 0]), (-1, [600]), (0, [600])):
        broken = content[: entry_7 + 16] + struct.pack(">i", prev) + content[entry_7 + 20 :]
        assert [offset for _, offset, _ in ix.chain(reader(broken), header, 3, 7)] == offsets
    entry_6 = entry_7 - 20
    circle = content[: entry_6 + 16] + struct.pack(">i", 7) + content[entry_6 + 20 :]
    for count in (8, 1 << 20, 2**31 - 1):
        walked = ix.chain(reader(circle), replace(header, index_count=count), 3, 7)
        assert [offset for _, offset, _ in walked] == [600, 500]
    before_begin = content[: entry_6 + 12] + struct.pack(">i", -1) + content[entry_6 + 16 :]
    assert [offset for _, offset, _ in ix.chain(reader(before_begin), header, 3, 7)] == [600]
    assert list(ix.chain(reader(content[: entry_7 + 3]), header, 3, 7)) == []
    assert list(ix.chain(reader(content[:41]), header, 3, 7)) == []


def test_query_stops_at_the_first_file_older_than_its_begin() -> None:
    built = [build([columns([(7, 10 + n, 1_700_000_000_000 + n * 60_000)])], 3, 9) for n in range(4)]
    files = [(header, reader(content)) for header, content in built]
    ever = {"begin": 0, "end": (1 << 63) - 1}
    assert ix.query_offsets(files, 3, 7, max_num=64, **ever) == [13, 12, 11, 10]
    assert ix.query_offsets(files, 3, 7, max_num=2, **ever) == [13, 12]
    assert ix.query_offsets(files, 3, 7, max_num=64, begin=1_700_000_060_000, end=1_700_000_120_000) == [12, 11]
    # a file that begins just at the asked time is not older
    twins = [build([columns([(7, 20 + n, 1_700_000_000_000)])], 3, 9) for n in range(2)]
    same = [(header, reader(content)) for header, content in twins]
    assert ix.query_offsets(same, 3, 7, max_num=64, begin=1_700_000_000_000, end=1 << 62) == [21, 20]
    # a newer file whose clock was wrong hides all older ones, as in a broker
    late = build([columns([(7, 14, 5_000)])], 3, 9)
    files.append((late[0], reader(late[1])))
    assert ix.query_offsets(files, 3, 7, max_num=64, begin=1_700_000_000_000, end=1 << 62) == []


def test_a_query_looks_into_each_file_that_has_a_time_of_its_own() -> None:
    for first, last, begin, end in itertools.product(range(5), repeat=4):
        if first <= last and begin <= end:
            common = set(range(first, last + 1)) & set(range(begin, end + 1))
            header = ix.IndexHeader(first, last)
            assert ix.is_time_matched(header, begin, end) == bool(common), (first, last, begin, end)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.binary(min_size=40, max_size=400), st.integers(1, 20), st.integers(0, 100))
def test_queries_of_any_bytes_end(content: bytes, slots: int, hashed: int) -> None:
    header = ix.parse_header(content)
    number_of_entries = len(list(ix.chain(reader(content), header, slots, hashed)))
    assert number_of_entries <= header.entries


# --------------------------------------------------------------------------------------------------- index check
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
    assert not found.differences
    assert found.rows == range(len(flat(groups)) - len(flat(groups_in_file)), len(flat(groups)))
    assert (found.compared, found.last_offset) == (len(flat(groups_in_file)), groups[-1][0][1])


@settings(deadline=None)
@given(groups=records(), gone=st.integers(0, 30))
def test_entries_older_than_the_log(groups: list[list[Entry]], gone: int) -> None:
    kept = groups[min(gone, len(groups) - 1) :]
    found = compare(file_of(flat(groups)), flat(kept), begin=kept[0][0][1])
    assert not found.differences
    assert found.explained["old"] == len(flat(groups)) - len(flat(kept))
    assert found.rows == range(len(flat(kept)))


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_record_indexed_again_after_a_crash(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(groups) - 1))
    whole = data.draw(st.integers(1, len(groups[at])), "entries that the crash left of the first time")
    written = flat(groups[:at]) + groups[at][:whole] + flat(groups[at:])
    found = compare(file_of(written), flat(groups))
    assert not found.differences
    assert found.explained["doubled"] == whole


@settings(deadline=None)
@given(groups=records(tags=True), data=st.data())
def test_upgrade_to_tags(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(groups)), "first record after the upgrade")
    older = [[entry for entry in group if entry[0] >= 0] for group in groups[:at]]
    written = flat(older) + flat(groups[at:])
    if not written:
        return
    found = compare(file_of(written), flat(groups))
    assert not found.differences
    # At most: a file can also be taken to begin after tags that are absent before its first entry.
    assert found.explained["tags"] <= len(flat(groups)) - len(written)


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_records_that_are_missing(groups: list[list[Entry]], data: st.DataObject) -> None:
    begin = data.draw(st.integers(1, len(groups) - 1))
    end = data.draw(st.integers(begin, len(groups) - 1))
    log = flat(groups)
    found = compare(file_of(flat(groups[:begin] + groups[end:])), log)
    missing = len(flat(groups[begin:end]))
    assert counts(found) == ({"missing_key": missing} if missing else {})
    for one in found.differences.values():
        key, offset, _ = groups[begin][0]
        assert one.expected == {"key_hash": key, "phy_offset": offset}


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_entries_of_no_record(groups: list[list[Entry]], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(groups) - 1))
    between = groups[at - 1][0][1] + 1, groups[at][0][1] - 1
    foreign = [(5, data.draw(st.integers(*between)), groups[at][0][2])] * data.draw(st.integers(2, 6))
    found = compare(file_of(flat(groups[:at]) + foreign + flat(groups[at:])), flat(groups))
    assert counts(found) == {"extra_entry": len(foreign)}


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
    assert not found.differences
    assert (found.compared, found.explained["lost"]) == (len(flat(kept)), len(flat(groups)) - len(flat(kept)))


@settings(deadline=None)
@given(groups=records(), count=st.integers(-5, 300) | st.sampled_from([CAPACITY, (1 << 31) - 1, -(1 << 31)]))
def test_a_wrong_count_of_entries(groups: list[list[Entry]], count: int) -> None:
    log = flat(groups)
    content = file_of(log)
    content[36:40] = count.to_bytes(4, "big", signed=True)
    found = compare(content, log)
    assert bool(counts(found)) == (count != len(log) + 1)
    if count > len(log):
        assert (found.entries, found.compared, found.rows) == (len(log), len(log), range(len(log)))


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
    assert compare(content, log).differences


T = 1_600_000_000_000
LOG = [(11, 100, T), (12, 200, T + 7_000), (13, 300, T + 9_500), (14, 400, T + 11_000)]


def second_file(previous_end: int) -> bytearray:
    """The file of all entries of ``LOG`` but the first, made when the file before ended at that time."""
    return file_of(LOG[1:], index_file.first_header(previous_end, 100))


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
    found = compare(content, LOG, previous_end=said)
    assert found.first_time_diff == (T + 7_000 - made_after) // 1000
    assert counts(found) == ({} if expected is None else {"wrong_entry": 1})
    for fault in found.differences.values():
        assert (fault.position, fault.expected["time_diff"]) == (ENTRIES_AT, expected)


def test_a_wrong_begin_is_noticed_by_the_times() -> None:
    """Also where the entry whose time it was is not in the log any more."""
    content = file_of(LOG)
    content[:8] = (T - 5_000).to_bytes(8, "big")
    assert counts(compare(content, LOG)) == {"wrong_header": 1}
    assert counts(compare(content, LOG[1:], begin=150)) == {"wrong_entry": 3}


def test_the_header_of_a_file_without_entries_ends_where_it_begins() -> None:
    content = bytearray(len(file_of([(5, 100, T)])))
    content[:40] = struct.pack(">4q2i", T, T + 1, 700, 701, 3, 6)
    found = compare(content, [(5, 100, T)])
    first = Finding("wrong_header", 4, 8, {"end_timestamp": T}, {"end_timestamp": T + 1})
    assert list(found.differences.values()) == [first]
    assert found.entries == 0


def test_entries_that_a_growing_file_does_not_count_yet() -> None:
    """A broker writes entries and slots at once, the header when it flushes: slots are followed down to what counts."""
    log = [(hashed, 100 * n, T + 1_000 * n) for n, hashed in enumerate([1, 8, 2, 1, 15, 9, 3], 1)]
    content = file_of(log)
    header = index_file.IndexHeader(T + 1_000, T + 3_000, 100, 300, hash_slot_count=2, index_count=4)
    content[:40] = header.to_bytes()

    def found() -> IndexComparison:
        return compare(content, log, growing=True)

    assert (found().differences, found().entries, found().rows.stop) == ({}, 3, 3)
    content[40 + 4 : 40 + 8] = (6).to_bytes(4, "big")  # slot 1 (hashes 1, 8, 15) names an entry of slot 2
    (fault,) = found().differences.values()
    assert (fault.position, fault.cause, fault.expected, fault.found) == (44, "broken_chain", {"slot": 2}, {"slot": 6})
    content[40 + 4 : 40 + 8] = ((1 << 31) - 1).to_bytes(4, "big")  # no entry of this file
    (fault,) = found().differences.values()
    assert (fault.position, fault.cause, fault.expected) == (44, "broken_chain", {"slot": 2})


@settings(deadline=None)
@given(groups=records(), data=st.data())
def test_records_in_another_order_are_noticed(groups: list[list[Entry]], data: st.DataObject) -> None:
    if len(groups) < 4:
        return
    at = data.draw(st.integers(1, len(groups) - 3))
    swapped = [*groups[:at], groups[at + 1], groups[at], *groups[at + 2 :]]
    assert "wrong_entry" in compare(file_of(flat(swapped)), flat(groups)).differences


@settings(deadline=None)
@given(groups=records(tags=True), data=st.data())
def test_files_that_are_cut_anywhere(groups: list[list[Entry]], data: st.DataObject) -> None:
    """Each holds a part of the log's entries, from the middle of a record to the middle of another."""
    log = flat(groups)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(log) - 1), max_size=4)))
    row = 0
    for begin, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        found = compare(file_of(log[begin:end]), log)
        assert found.compared == end - begin
        assert found.differences.keys() <= {"wrong_entry"}, "the first time, which the file before ends with"
        assert found.rows.start == row
        row = found.rows.stop
