"""Index files: key hash to commit-log offsets of messages.

FORMAT.md has the layout. ``index_count`` is the number of the next entry and begins at 1, so a file holds
``max_index_num - 1`` entries. Timestamps are milliseconds; the header has the store times of the first and last entry.

Mirrors IndexFile#putKey and IndexService#getAndCreateLastIndexFile (4.0.0 to 5.5.0), entries in commit-log order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta, timezone

import numpy as np

from storeformat.arrays import Int32s, Int64s, Structs
from storeformat.errors import NotAStore, TotalsDisagree, WrongSettings
from storeformat.javacompat import EPOCH, index_key_hashes, java_hash
from storeformat.kernels import numpy_kernels

ROW = np.dtype([("key_hash", "<i4"), ("offset", "<i8"), ("store_timestamp", "<i8")])
"""An entry before it has a number and a file, as scans stage it in ``putKey`` order."""
TAG_MARK = -(1 << 31)  # set in the key_hash of TAGS rows; stored hashes are never negative


def hashes_of(rows: Structs) -> Int32s:
    """Hashes as stored in files, without ``TAG_MARK``."""
    return np.asarray(rows["key_hash"] & 0x7FFFFFFF, np.int32)


HEADER = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_phy_offset", ">i8"),
        ("end_phy_offset", ">i8"),
        ("hash_slot_count", ">i4"),
        ("index_count", ">i4"),
    ]
)
SLOT = np.dtype(">i4")
ENTRY = np.dtype([("key_hash", ">i4"), ("phy_offset", ">i8"), ("time_diff", ">i4"), ("prev_index", ">i4")])
HEADER_SIZE, SLOT_SIZE, ENTRY_SIZE = HEADER.itemsize, SLOT.itemsize, ENTRY.itemsize

ENTRIES_AT_ONCE = 1 << 16  # entries linked and packed at a time: few enough for the processor's cache
_SLOTS_AT_ONCE = 1 << 16

Write = Callable[[int, memoryview], object]  # writes bytes at a position of the file; must not keep the buffer
Read = Callable[[int, int], bytes | memoryview]  # reads a length at a position of the file, fewer at its end


@dataclass(frozen=True)
class IndexHeader:
    """Header of an index file, fields as in the broker."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @property
    def entries(self) -> int:
        """Number of entries, numbered from 1."""
        return max(self.index_count - 1, 0)

    def to_bytes(self) -> bytes:
        return np.array([astuple(self)], dtype=HEADER).tobytes()


def parse_header(content: bytes | memoryview) -> IndexHeader:
    """Parse the first 40 bytes. An index count of 0 or less reads as 1, as in the broker's load."""
    if len(content) < HEADER_SIZE:
        raise NotAStore("an index file is too short for its header", found=len(content), expected=HEADER_SIZE)
    fields = np.frombuffer(content, dtype=HEADER, count=1)[0].tolist()
    header = IndexHeader(*fields)
    return replace(header, index_count=max(header.index_count, 1))


def index_file_size(slots: int, max_index_num: int) -> int:
    """Length in bytes of an index file. Raises WrongSettings where a broker could not map it."""
    size = entries_position(slots) + ENTRY_SIZE * max_index_num
    if slots < 1 or max_index_num < 2 or size > 0x7FFFFFFF:
        raise WrongSettings(
            "maxHashSlotNum and maxIndexNum make no index file", found=f"{slots} and {max_index_num}",
            expected="at least 1 and 2, and a file below 2 GiB",
        )  # fmt: skip
    return size


def capacity_of_file(file_size: int, read: Read) -> tuple[int, int] | None:
    """Slots and entry places of a *full* index file (``index_count == max_index_num``), else None: the slot of the last
    entry names it as the newest, and the header has its offset.
    """
    header = parse_header(read(0, HEADER_SIZE))
    max_index_num = header.index_count
    slots, rest = divmod(file_size - HEADER_SIZE - ENTRY_SIZE * max_index_num, SLOT_SIZE)
    if rest or slots < 1 or header.entries < 1:
        return None
    last = np.frombuffer(read(entries_position(slots) + ENTRY_SIZE * header.entries, ENTRY_SIZE), dtype=ENTRY)
    if len(last) != 1 or int(last["key_hash"][0]) < 0 or int(last["phy_offset"][0]) != header.end_phy_offset:
        return None
    newest = _int32(read(HEADER_SIZE + SLOT_SIZE * (int(last["key_hash"][0]) % slots), SLOT_SIZE))
    return (slots, max_index_num) if newest == header.entries else None


def entries_position(slots: int) -> int:
    """Position of entry 0."""
    return HEADER_SIZE + SLOT_SIZE * slots


def first_header(previous_end_timestamp: int = 0, previous_end_phy_offset: int = 0) -> IndexHeader:
    """Header of a new file, from the previous file's end; also the whole content of an empty last file."""
    timestamp, phy_offset = max(previous_end_timestamp, 0), max(previous_end_phy_offset, 0)
    return IndexHeader(timestamp, timestamp, phy_offset, phy_offset)


def build_index_file(
    chunks: Iterable[tuple[Int32s, Int64s, Int64s]],
    slots: int,
    max_index_num: int,
    write: Write,
    *,
    start: IndexHeader | None = None,
    count_every_put: bool = False,
) -> IndexHeader:
    """Write entries, slots and header of one index file; unwritten bytes must read as zero. ``chunks``: up to
    ENTRIES_AT_ONCE key hashes (non-negative), commit-log offsets and store times in commit-log order. ``start``: the
    ``first_header``. ``count_every_put``: count slots as brokers before 4.7.1.
    """
    header, capacity = start or first_header(), max_index_num - 1
    slot_table = np.zeros(slots, dtype=np.int32)
    packed = np.empty(min(ENTRIES_AT_ONCE, capacity), dtype=ENTRY)
    for key_hashes, phy_offsets, store_timestamps in chunks:
        number, size = header.index_count, len(key_hashes)
        end = header.entries + size
        if end > capacity:
            raise TotalsDisagree("too many entries for one index file", found=end, expected=f"at most {capacity}")
        times, offsets = store_timestamps[[0, -1]].tolist(), phy_offsets[[0, -1]].tolist()
        if number == 1:
            first_diff = time_diff(times[0], header.begin_timestamp)
            header = replace(header, begin_timestamp=times[0], begin_phy_offset=offsets[0])
        entries = packed[:size]
        numpy_kernels.put_entries(
            key_hashes, phy_offsets, store_timestamps, header.begin_timestamp, number, slot_table, entries
        )
        if number == 1:
            entries["time_diff"][0] = first_diff
        write(entries_position(slots) + ENTRY_SIZE * number, entries.view(np.uint8).data)
        header = replace(header, end_timestamp=times[1], end_phy_offset=offsets[1], index_count=end + 1)
    used_slots = int(np.count_nonzero(slot_table))
    header = replace(header, hash_slot_count=header.entries if count_every_put else used_slots)
    for first in range(0, slots, _SLOTS_AT_ONCE):
        part = slot_table[first : first + _SLOTS_AT_ONCE]
        if part.any():  # else it stays a hole
            write(HEADER_SIZE + SLOT_SIZE * first, part.astype(SLOT).view(np.uint8).data)
    write(0, memoryview(header.to_bytes()))
    return header


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Seconds between times in milliseconds, clamped to [0, 2**31 - 1] as in IndexFile#putKey (64-bit wrap-around)."""
    if begin_timestamp <= 0:
        return 0
    millis = (store_timestamp - begin_timestamp + (1 << 63)) % (1 << 64) - (1 << 63)
    return min(max(millis // 1000, 0), 0x7FFFFFFF)


_LAST_NAME_MS = int(
    (datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc) - EPOCH) / timedelta(milliseconds=1)
)
_WESTMOST_ZONE_MS = 12 * 3600 * 1000


def index_file_names(begin_timestamps: Sequence[int]) -> list[str]:
    """Ascending file names (yyyyMMddHHmmssSSS) from begin timestamps. The broker loads files by name and names new ones
    with its local wall clock, so these use the westmost zone (UTC-12). Repeated or invalid times move on.
    """
    names, previous = [], -1
    for number, timestamp in enumerate(begin_timestamps):
        latest = _LAST_NAME_MS - (len(begin_timestamps) - 1 - number)
        previous = min(max(timestamp - _WESTMOST_ZONE_MS, previous + 1), latest)
        moment = EPOCH + timedelta(milliseconds=previous)
        names.append(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}")
    return names


def is_index_file_name(name: str) -> bool:
    """True if an index file can have this name."""
    return name.isascii() and name.isdigit()


def key_hash(topic: str, key: str) -> int:
    """Hash of a topic's key in the index, modulo the slots its slot; tags are the key ``T#tags`` (5.4.0 and later).

    >>> key_hash("TopicT", "U0"), key_hash("TopicT", "T#a||b")
    (1902675303, 678982862)
    """
    return int(index_key_hashes(java_hash(f"{topic}#{key}")))


def chain(read: Read, header: IndexHeader, slots: int, hashed: int) -> Iterator[tuple[int, int, int]]:
    """Yield key hash, offset and ``time_diff`` of the entries in a slot, newest first. Stops at a loop, which a broker
    can follow for ever.
    """
    last = min(header.index_count, 0x7FFFFFFF // ENTRY_SIZE)  # of a file that a broker can map
    seen = np.zeros(last + 1, bool)
    number = _int32(read(HEADER_SIZE + SLOT_SIZE * (hashed % slots), SLOT_SIZE))
    while 0 < number <= last and not seen[number]:
        seen[number] = True
        content = read(entries_position(slots) + ENTRY_SIZE * number, ENTRY_SIZE)
        if len(content) < ENTRY_SIZE:
            return
        key_hash, phy_offset, seconds, number = np.frombuffer(content, dtype=ENTRY)[0].tolist()
        if seconds < 0:
            return
        yield key_hash, phy_offset, seconds


def is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """True if a query for [begin, end] in milliseconds searches this file (IndexFile#isTimeMatched)."""
    return (
        (begin < header.begin_timestamp and end > header.end_timestamp)
        or header.begin_timestamp <= begin <= header.end_timestamp
        or header.begin_timestamp <= end <= header.end_timestamp
    )


def select_phy_offsets(
    read: Read, header: IndexHeader, slots: int, hashed: int, *, max_num: int, begin: int, end: int
) -> list[int]:
    """Commit-log offsets of one file's entries for a key hash and time range, newest first (IndexFile#selectPhyOffset).
    Times have whole seconds, so tight bounds can miss a message. Other keys with the same hash are included.
    """
    found: list[int] = []
    for key_hash, phy_offset, seconds in chain(read, header, slots, hashed):
        if len(found) >= max_num:
            break
        time = header.begin_timestamp + seconds * 1000
        if key_hash == hashed and begin <= time <= end:
            found.append(phy_offset)
        if time < begin:
            break
    return found


def query_offsets(
    files: Sequence[tuple[IndexHeader, Read]], slots: int, hashed: int, *, max_num: int, begin: int, end: int
) -> list[int]:
    """Offsets over ``files`` (by name), newest first (IndexService#queryOffset). Brokers cap ``max_num`` at 64."""
    found: list[int] = []
    for header, read in reversed(files):
        if is_time_matched(header, begin, end):
            found += select_phy_offsets(read, header, slots, hashed, max_num=max_num - len(found), begin=begin, end=end)
        if header.begin_timestamp < begin or len(found) >= max_num:
            break
    return found


def parse_entries(content: bytes | memoryview) -> Structs:
    """``ENTRY`` view over bytes that begin with an entry; not copied."""
    return np.frombuffer(content, dtype=ENTRY, count=len(content) // ENTRY_SIZE)


def _int32(content: bytes | memoryview) -> int:
    return int.from_bytes(content, "big", signed=True) if len(content) == SLOT_SIZE else 0
