"""Index files: bytes against a broker that puts one key at a time, and against the files of real brokers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import golden

from storeformat import indexfile as ix
from storeformat.errors import NotAStore, TotalsDisagree, WrongSettings

Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass
class PutKey:
    """One index file written as IndexFile#putKey does, entry after entry."""

    slots: int
    capacity: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    count_every_put: bool = False
    hash_slot_count: int = 0
    index_count: int = 1
    content: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.content = bytearray(40 + 4 * self.slots + 20 * self.capacity)

    def put(self, key_hash: int, phy_offset: int, store_timestamp: int) -> None:
        slot_at = 40 + 4 * (key_hash % self.slots)
        (prev,) = struct.unpack_from(">i", self.content, slot_at)
        diff = int((store_timestamp - self.begin_timestamp) / 1000)
        diff = 0 if self.begin_timestamp <= 0 else min(max(diff, 0), 0x7FFFFFFF)
        entry_at = 40 + 4 * self.slots + 20 * self.index_count
        struct.pack_into(">iqii", self.content, entry_at, key_hash, phy_offset, diff, prev)
        struct.pack_into(">i", self.content, slot_at, self.index_count)
        if self.index_count <= 1:
            self.begin_phy_offset, self.begin_timestamp = phy_offset, store_timestamp
        self.hash_slot_count += self.count_every_put or prev == 0
        self.index_count += 1
        self.end_phy_offset, self.end_timestamp = phy_offset, store_timestamp

    def flushed(self) -> bytes:
        struct.pack_into(
            ">qqqqii",
            self.content,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count,
        )
        return bytes(self.content)


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

    header = ix.build_index_file(chunks, slots, max_index_num, write, start=start, count_every_put=every)
    return header, bytes(content)


key_hashes = st.one_of(st.integers(0, 12), st.integers(0, 0x7FFFFFFF))
timestamps = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-5000, 5000), st.just(1 << 45), st.just(0)
)


@settings(max_examples=300, deadline=None)
@given(
    entries=st.lists(st.tuples(key_hashes, st.integers(0, 1 << 50), timestamps), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    slots=st.integers(1, 30),
    previous=st.tuples(timestamps, st.integers(0, 1 << 40)),
    every=st.booleans(),
    at_once=st.sampled_from([1, 3, 1 << 16]),
)
def test_bytes_are_those_of_one_put_after_the_other(
    *,
    entries: list[tuple[int, int, int]],
    cuts: list[int],
    slots: int,
    previous: tuple[int, int],
    every: bool,
    at_once: int,
) -> None:
    start = ix.first_header(*previous)
    model = PutKey(slots, 61, *struct.unpack(">qqqq", start.to_bytes()[:32]), count_every_put=every)
    for entry in entries:
        model.put(*entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ix, "ENTRIES_AT_ONCE", at_once)
        header, content = build(chunked(entries, cuts), slots, 61, start, every)
    assert content == model.flushed()
    assert ix.parse_header(content) == header
    assert header.entries == len(entries)


def test_first_entry_after_a_full_file_counts_from_its_end() -> None:
    """Seen in real brokers: time_diff 97 of the first entry, while the header's begin is its own store time."""
    header, content = build([columns([(5, 900, 1_700_000_097_999)])], 3, 5, ix.first_header(1_700_000_000_000, 800))
    assert header.begin_timestamp == 1_700_000_097_999
    assert struct.unpack_from(">iqii", content, 40 + 12 + 20) == (5, 900, 97, 0)


def test_empty_file_after_a_full_one_holds_its_end_only() -> None:
    header, content = build([], 3, 5, ix.first_header(1_700_000_000_000, 800))
    assert header == ix.IndexHeader(1_700_000_000_000, 1_700_000_000_000, 800, 800, 0, 1)
    assert content[:40] == ix.first_header(1_700_000_000_000, 800).to_bytes()
    assert not any(content[40:])
    assert ix.first_header(-3, -4) == ix.IndexHeader()


def test_a_full_file_counts_to_its_configured_number() -> None:
    entries = columns([(n, n, n) for n in range(4)])
    assert build([entries], 3, 5)[0].index_count == 5
    with pytest.raises(TotalsDisagree, match="found 5"):
        build([entries, columns([(1, 1, 1)])], 3, 5)


def test_many_entries_in_few_slots_and_few_in_many() -> None:
    rng = np.random.default_rng(11)
    for slots, values in ((100_003, 1 << 31), (7, 1 << 31), (100_003, 50)):
        hashes = rng.integers(0, values, 300_000, dtype=np.int64).astype(np.int32)
        table = np.zeros(slots, dtype=np.int32)
        links = [
            ix.link_entries(ix.key_slots(hashes[begin : begin + 70_000], slots), begin + 1, table)
            for begin in range(0, len(hashes), 70_000)
        ]
        newest = dict[int, int]()
        expected = []
        for number, slot in enumerate((hashes % slots).tolist(), 1):
            expected.append(newest.get(slot, 0))
            newest[slot] = number
        assert np.concatenate(links).tolist() == expected
        assert {slot: number for slot, number in enumerate(table.tolist()) if number} == newest


def test_sizes() -> None:
    assert ix.index_file_size(5_000_000, 20_000_000) == 420_000_040
    for slots, max_index_num in ((0, 10), (10, 1), (-5, 10), (1 << 30, 10)):
        with pytest.raises(WrongSettings):
            ix.index_file_size(slots, max_index_num)
    with pytest.raises(NotAStore):
        ix.parse_header(bytes(39))


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
