"""Index files: from the hash of a key to the commit-log offsets of its messages.

FORMAT.md has the fields of header and entries, and where both and the slots lie. ``index_count`` is the number of the
next entry and begins at 1, so a file holds ``max_index_num - 1`` entries. Timestamps are milliseconds; those of the
header are the store times of the first and the last entry.

Mirrors IndexFile#putKey and IndexService#getAndCreateLastIndexFile (4.0.0 to 5.5.0), entries in commit-log order. The
one thing that crosses files: a new file starts with the end of the previous one as its start *and* end, the first
entry's ``time_diff`` is taken against that, and only then the start becomes the first entry's own.
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

ENTRIES_AT_ONCE = 1 << 16
"""Entries linked and packed at a time: keeps them in the processor's cache, and memory small."""

_SLOTS_AT_ONCE = 1 << 16

Write = Callable[[int, memoryview], object]
"""Takes a position and bytes of the file; must be done with the bytes when it returns."""

Read = Callable[[int, int], bytes | memoryview]
"""Takes a position and a length, returns these bytes of the file, fewer at its end."""


@dataclass(frozen=True)
class IndexHeader:
    """Header of an index file; the fields are the broker's."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @property
    def entries(self) -> int:
        """Number of entries: numbers 1 to this are used."""
        return max(self.index_count - 1, 0)

    def to_bytes(self) -> bytes:
        """Returns the 40 bytes on disk."""
        return np.array([astuple(self)], dtype=HEADER).tobytes()


def parse_header(content: bytes | memoryview) -> IndexHeader:
    """Returns the header from the first 40 bytes of a file; an index count of 0 or less reads as 1, as the broker's
    load does.

    Raises NotAStore when there are fewer bytes.
    """
    if len(content) < HEADER_SIZE:
        raise NotAStore("an index file is too short for its header", found=len(content), expected=HEADER_SIZE)
    fields = np.frombuffer(content, dtype=HEADER, count=1)[0].tolist()
    header = IndexHeader(*fields)
    return replace(header, index_count=max(header.index_count, 1))


def index_file_size(slots: int, max_index_num: int) -> int:
    """Returns the length in bytes of every index file with ``max_hash_slot_num`` slots and ``max_index_num`` entry
    places (one unused); raises WrongSettings where the broker could not map it.
    """
    size = entries_position(slots) + ENTRY_SIZE * max_index_num
    if slots < 1 or max_index_num < 2 or size > 0x7FFFFFFF:
        raise WrongSettings(
            "maxHashSlotNum and maxIndexNum make no index file",
            found=f"{slots} and {max_index_num}",
            expected="at least 1 and 2, and a file below 2 GiB",
        )
    return size


def sizes_shown(file_size: int, read: Read) -> tuple[int, int] | None:
    """Returns the slots and entry places of a *full* index file, told by the file itself; None for one that is not
    full.

    The count of a full file is ``max_index_num``, and the rest of its length is slots. That holds if the last entry
    then lies where it should: its slot names it as the newest, and the header has its offset. Raises NotAStore where
    there is no whole header.
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
    """Returns the position of entry 0; entry n lies ``ENTRY_SIZE * n`` after it."""
    return HEADER_SIZE + SLOT_SIZE * slots


def first_header(previous_end_timestamp: int = 0, previous_end_phy_offset: int = 0) -> IndexHeader:
    """Returns the header of a file that was just created, with the end of the full one before it (0 and 0 for the very
    first).

    This is also the whole content of an empty last file, which a broker leaves when a record comes after the last
    full file and has no keys.
    """
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
    """Returns the header of one index file, after everything in it went to ``write``: entries as they come, then slots
    and header.

    ``chunks`` hold key hashes (non-negative), commit-log offsets and store times of the file's entries, in commit-log
    order and in pieces of any size. ``start`` is the ``first_header`` made of the previous file's end.
    ``count_every_put`` counts slots as brokers before 4.7.1 did. What is not written must read as zero, up to
    ``index_file_size``. Raises TotalsDisagree for more entries than a file holds.
    """
    header, capacity = start or first_header(), max_index_num - 1
    slot_table = np.zeros(slots, dtype=np.int32)
    packed = np.empty(min(ENTRIES_AT_ONCE, capacity), dtype=ENTRY)
    put_entries = numpy_kernels.put_entries
    for key_hashes, phy_offsets, store_timestamps in _pieces(chunks):
        number, size = header.index_count, len(key_hashes)
        end = header.entries + size
        if end > capacity:
            raise TotalsDisagree("too many entries for one index file", found=end, expected=f"at most {capacity}")
        times, offsets = store_timestamps[[0, -1]].tolist(), phy_offsets[[0, -1]].tolist()
        if number == 1:
            first_diff = time_diff(times[0], header.begin_timestamp)
            header = replace(header, begin_timestamp=times[0], begin_phy_offset=offsets[0])
        entries = packed[:size]
        put_entries(key_hashes, phy_offsets, store_timestamps, header.begin_timestamp, number, slot_table, entries)
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
    """Returns the whole seconds from one time (milliseconds) to another, as IndexFile#putKey clamps them into
    [0, 2**31 - 1]; the difference has 64 bits, as in Java.
    """
    if begin_timestamp <= 0:
        return 0
    millis = (store_timestamp - begin_timestamp + (1 << 63)) % (1 << 64) - (1 << 63)
    return min(max(millis // 1000, 0), 0x7FFFFFFF)


def _pieces(
    chunks: Iterable[tuple[Int32s, Int64s, Int64s]],
) -> Iterable[tuple[Int32s, Int64s, Int64s]]:
    """Yields the chunks cut to ``ENTRIES_AT_ONCE``, without empty ones."""
    for key_hashes, phy_offsets, store_timestamps in chunks:
        for begin in range(0, len(key_hashes), ENTRIES_AT_ONCE):
            part = slice(begin, begin + ENTRIES_AT_ONCE)
            yield key_hashes[part], phy_offsets[part], store_timestamps[part]


_LAST_NAME_MS = int(
    (datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc) - EPOCH) / timedelta(milliseconds=1)
)
_WESTMOST_ZONE_MS = 12 * 3600 * 1000


def index_file_names(begin_timestamps: Sequence[int]) -> list[str]:
    """Returns the names of index files, from the begin timestamp of each: 17 digits yyyyMMddHHmmssSSS, strictly
    ascending.

    The broker loads the files in order of name, whatever their headers say, and names new ones with the wall clock in
    its own time zone. So that those come last, wherever it runs, the time is written as the westmost zone (UTC-12)
    shows it. Times that repeat, go backwards or are not times at all move to the next free millisecond.
    """
    names = []
    previous = -1
    for number, timestamp in enumerate(begin_timestamps):
        latest = _LAST_NAME_MS - (len(begin_timestamps) - 1 - number)
        previous = min(max(timestamp - _WESTMOST_ZONE_MS, previous + 1), latest)
        moment = EPOCH + timedelta(milliseconds=previous)
        names.append(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}")
    return names


def is_index_file_name(name: str) -> bool:
    """Returns whether a name can be that of an index file."""
    return name.isascii() and name.isdigit()


def key_hash(topic: str, key: str) -> int:
    """Returns the hash under which a key of a topic is indexed; tags are (5.4.0 and later) as the key ``T#tags``.

    The slot of the key is its hash modulo the number of slots.

    >>> key_hash("TopicT", "U0"), key_hash("TopicT", "T#a||b")
    (1902675303, 678982862)
    """
    return int(index_key_hashes(java_hash(f"{topic}#{key}")))


@dataclass(frozen=True)
class IndexEntry:
    """One entry of an index file, and its number there."""

    number: int
    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


def chain(read: Read, header: IndexHeader, slots: int, hashed: int) -> Iterator[IndexEntry]:
    """Yields the entries in the slot of a key hash, newest first, as far as a broker follows them; other keys' entries
    too.

    The walk ends at a link that is 0, points at itself or after the last entry, and where it meets an entry again (a
    broker would go round a longer circle for ever).
    """
    last = min(header.index_count, 0x7FFFFFFF // ENTRY_SIZE)  # of a file that a broker can map
    seen = np.zeros(last + 1, bool)
    number = _int32(read(HEADER_SIZE + SLOT_SIZE * (hashed % slots), SLOT_SIZE))
    while 0 < number <= last and not seen[number]:
        seen[number] = True
        content = read(entries_position(slots) + ENTRY_SIZE * number, ENTRY_SIZE)
        if len(content) < ENTRY_SIZE:
            return
        entry = IndexEntry(number, *np.frombuffer(content, dtype=ENTRY)[0].tolist())
        if entry.time_diff < 0:
            return
        yield entry
        number = entry.prev_index


def is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """Returns whether a query from begin to end (milliseconds, both included) looks into a file
    (IndexFile#isTimeMatched).
    """
    return (
        (begin < header.begin_timestamp and end > header.end_timestamp)
        or header.begin_timestamp <= begin <= header.end_timestamp
        or header.begin_timestamp <= end <= header.end_timestamp
    )


def select_phy_offsets(
    read: Read, header: IndexHeader, slots: int, hashed: int, *, max_num: int, begin: int, end: int
) -> list[int]:
    """Returns the commit-log offsets of one file's entries with this key hash and a time in [begin, end], newest first.

    At most ``max_num``. Times are whole seconds after the header's start, so a message may fall out of tight bounds;
    other keys with the same hash are in (IndexFile#selectPhyOffset).
    """
    found: list[int] = []
    for entry in chain(read, header, slots, hashed):
        if len(found) >= max_num:
            break
        time = header.begin_timestamp + entry.time_diff * 1000
        if entry.key_hash == hashed and begin <= time <= end:
            found.append(entry.phy_offset)
        if time < begin:
            break
    return found


def query_offsets(
    files: Sequence[tuple[IndexHeader, Read]], slots: int, hashed: int, *, max_num: int, begin: int, end: int
) -> list[int]:
    """Returns the commit-log offsets over all files, newest first (IndexService#queryOffset).

    ``files`` are in the order of their names. A broker takes no ``max_num`` above its ``maxMsgsNumBatch`` (64).
    """
    found: list[int] = []
    for header, read in reversed(files):
        if is_time_matched(header, begin, end):
            found += select_phy_offsets(read, header, slots, hashed, max_num=max_num - len(found), begin=begin, end=end)
        if header.begin_timestamp < begin or len(found) >= max_num:
            break
    return found


def parse_slots(content: bytes | memoryview, slots: int) -> Int32s:
    """Returns the slot table of a file, in native byte order: what ``put_entries`` leaves when all entries went
    through it.
    """
    return np.frombuffer(content, dtype=SLOT, count=slots, offset=HEADER_SIZE).astype(np.int32)


def parse_entries(content: bytes | memoryview) -> Structs:
    """Returns the entries in a piece of a file that begins with one: ``ENTRY`` over its bytes (not copied)."""
    return np.frombuffer(content, dtype=ENTRY, count=len(content) // ENTRY_SIZE)


def _int32(content: bytes | memoryview) -> int:
    return int.from_bytes(content, "big", signed=True) if len(content) == SLOT_SIZE else 0
