"""One index file against the log's entries, both as multisets of (commit-log offset, key hash).

A file must hold the log's entries from its first one to its last one, each as often as in the log; where it was cut
depends on where the index once began. Links and slots follow from the file's own hashes: IndexFile#putKey puts them
again. What healthy brokers cause is explained, and no fault:

- doubled: entries of the last record before a crash (IndexService#buildIndex skips smaller offsets, not equal ones)
- old, beyond, lost: entries of a record before the log, after the part that was read, or in a damaged range
- tags: rows from TAGS before the file's first one, as a broker before 5.4.0 wrote the file up to there
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Bools, Int32s, Int64s, LogExtent, Structs, as_fields, leading
from storeformat.index import index_file
from storeformat.index.index_file import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, ROW, SLOT_SIZE, Read, hashes_of
from storeformat.kernels import numpy_kernels
from storeformat.queues.queue_check import Finding, Findings, first_of

CHUNK = 1 << 17  # entries, and rows, compared at a time: more than one record has

_EDGE = 256  # entries at an end of a chunk: their offsets say where the chunk is in the log, though some are wrong


class Rows:
    """The log's entries in order. ``sources``: path and number of entries of each staging file; ``read_rows`` reads one
    from a row on, a number of rows.
    """

    def __init__(self, sources: Sequence[tuple[str, int]], read_rows: Callable[[str, int, int], Structs]) -> None:
        self._sources, self._read_rows = sources, read_rows
        self._ends = np.cumsum([entries for _, entries in sources], dtype=np.int64)
        self.total = sum(entries for _, entries in sources)

    def read(self, begin: int, end: int) -> Structs:
        parts = [np.zeros(0, ROW)]
        source = int(np.searchsorted(self._ends, begin, "right"))
        while begin < end:
            (path, entries), source_end = self._sources[source], int(self._ends[source])
            stop = min(end, source_end)
            parts.append(self._read_rows(path, begin - source_end + entries, stop - begin))
            begin, source = stop, source + 1
        return np.concatenate(parts)

    def find(self, offset: int) -> int:
        """First row at or after a commit-log offset."""
        return bisect_left(range(self.total), offset, key=lambda row: int(self.read(row, row + 1)["offset"][0]))


@dataclass(frozen=True)
class IndexCheck:
    """An index file to check, the end timestamp of the one before it, and whether a broker may still write to it."""

    path: str
    previous_end: int | None = None
    growing: bool = False


@dataclass
class IndexComparison:
    """A file and the range of the log's rows that it covers; or rows that no file covers."""

    header: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    rows: range = range(0)
    last_offset: int = -1  # commit-log offset of the last of ``rows``
    with_tags: bool = False  # entries of TAGS are there
    first_time_diff: int = 0
    differences: Findings = field(default_factory=Findings)
    explained: Counter[str] = field(default_factory=Counter)

    @property
    def missing(self) -> int:
        return self.differences["missing_key"].count if "missing_key" in self.differences else 0

    @property
    def compared(self) -> int:
        return len(self.rows) - self.missing - self.explained["tags"]

    def miss(self, rows: Structs, held: Bools) -> None:
        """Count rows without an entry; those from TAGS are explained until the first one that has one."""
        of_tags = rows["key_hash"] < 0
        before = of_tags & ~(self.with_tags | np.logical_or.accumulate(held & of_tags))
        self.with_tags |= bool((held & of_tags).any())
        self.explained["tags"] += int(before.sum())
        if len(missing := rows[~held & ~before]):
            first = {"key_hash": int(hashes_of(missing)[0]), "phy_offset": int(missing["offset"][0])}
            self.differences.add(Finding("missing_key", len(missing), None, first))

    def miss_all(self, rows: Rows, begin: int, end: int) -> None:
        for first in range(begin, end, CHUNK):
            absent = rows.read(first, min(first + CHUNK, end))
            self.miss(absent, np.zeros(len(absent), bool))


class IndexFileComparer:
    """One pass over a file of ``sizes`` maxHashSlotNum and maxIndexNum; memory: the slots and a few chunks."""

    def __init__(self, read: Read, sizes: tuple[int, int], rows: Rows, log: LogExtent, check: IndexCheck) -> None:
        self._read, self._rows, self._log, self._check = read, rows, log, check
        self._slots, self._most = sizes
        self._table = np.zeros(self._slots, np.int32)
        self._begin = 0  # store time of the first entry
        self._last_offset = 0  # of the entries so far
        self.result = IndexComparison(as_fields(np.frombuffer(read(0, HEADER_SIZE), HEADER)[0]) or {})

    def compare(self) -> IndexComparison:
        result = self.result
        result.entries = min(max(result.header["index_count"], 1), self._most) - 1
        number, row, first = 1, 0, self._entries(1, min(CHUNK, result.entries))
        if len(first):
            row, self._begin = self._first_row(first), self._time_of(first[0], result.header["begin_timestamp"])
        while number <= result.entries:
            wanted = min(CHUNK, result.entries + 1 - number)
            entries = self._entries(number, wanted)
            if len(entries) < wanted:  # counted, but never written
                result.entries = number + len(entries) - 1
            rows = self._rows.read(row, min(row + CHUNK, self._rows.total))
            entries, rows = self._between_records(entries, number, rows, row)
            if len(entries):
                self._compare_block(entries, number, rows, row)
            number, row = number + len(entries), row + len(rows)
        self._check_slots()
        self._check_header()
        return result

    def _position(self, number: int) -> int:
        return index_file.entries_position(self._slots) + ENTRY_SIZE * number

    def _entries(self, number: int, count: int) -> Structs:
        """Entries from a number on, up to the first that was never written."""
        entries = index_file.parse_entries(self._read(self._position(number), ENTRY_SIZE * count))
        return entries[: leading(entries != np.zeros(1, ENTRY))]

    def _first_row(self, entries: Structs) -> int:
        offset = int(entries["phy_offset"][:_EDGE].min())
        begin, stop = self._rows.find(offset), self._rows.find(offset + 1)
        # The file may begin with the second of two equal keys of a record.
        hashes = entries["key_hash"][entries["phy_offset"] == offset][: stop - begin]
        is_end = (hashes_of(self._rows.read(stop - len(hashes), stop)) == hashes).all()
        return stop - len(hashes) if is_end else begin

    def _between_records(self, entries: Structs, number: int, rows: Structs, row: int) -> tuple[Structs, Structs]:
        """Cut a block before the last record whose entries and rows are all in it."""
        bounds = [int(rows["offset"][-1])] if row + len(rows) < self._rows.total else []
        if number + len(entries) <= self.result.entries:
            bounds.append(int(np.median(entries["phy_offset"][-_EDGE:])))
        if not bounds:
            return entries, rows
        before = int((entries["phy_offset"] < min(bounds)).sum()), int(np.searchsorted(rows["offset"], min(bounds)))
        return (entries[: before[0]], rows[: before[1]]) if any(before) else (entries, rows)

    def _time_of(self, entry: np.void, otherwise: int) -> int:
        """Store time of an entry's record."""
        row = self._rows.find(int(entry["phy_offset"]))
        record = self._rows.read(row, min(row + 1, self._rows.total))
        is_there = len(record) > 0 and record["offset"][0] == entry["phy_offset"]
        return int(record["store_timestamp"][0]) if is_there else otherwise

    def _compare_block(self, entries: Structs, number: int, rows: Structs, row: int) -> None:
        result, log = self.result, self._log
        offsets, hashes = entries["phy_offset"].astype(np.int64), entries["key_hash"].astype(np.int32)
        record = np.searchsorted(rows["offset"], offsets)
        known, held = _pair(rows, record, offsets, hashes)
        old, beyond = offsets < log.begin, offsets >= log.end
        lost = ~known & ~old & ~beyond & log.lost(offsets)
        again = int(known.sum()) - int(held.sum())
        result.explained.update(doubled=again, old=int(old.sum()), beyond=int(beyond.sum()), lost=int(lost.sum()))
        if len(places := np.flatnonzero(held)):
            low, high = 0 if result.rows else int(places[0]), int(places[-1]) + 1
            if result.rows:
                result.miss_all(self._rows, result.rows.stop, row)
            result.miss(rows[low:high], held[low:high])
            result.rows = range(result.rows.start if result.rows else row + low, row + high)
            result.last_offset = int(rows["offset"][high - 1])
        expected, times = np.empty(len(entries), ENTRY), np.zeros(len(entries), np.int64)
        times[known] = rows["store_timestamp"][record[known]]
        numpy_kernels.put_entries(hashes & 0x7FFFFFFF, offsets, times, self._begin, number, self._table, expected)
        expected["time_diff"][~known] = entries["time_diff"][~known]
        if number == 1 and known[0]:
            expected["time_diff"][0] = self._first_time_diff(int(entries["time_diff"][0]))
        # A broker skips records before the last indexed one.
        early = np.diff(offsets, prepend=self._last_offset) < 0
        self._last_offset = int(offsets[-1])
        extra = ~(known | old | beyond | lost)
        positions = self._position(number) + ENTRY_SIZE * np.arange(len(entries))
        result.differences.add(
            *first_of("wrong_entry", expected != entries, positions, expected, entries),
            *first_of("wrong_entry", early, positions, None, entries),
            *first_of("extra_entry", extra, positions, None, entries),
        )

    def _first_time_diff(self, stored: int) -> int:
        """The first entry's time difference, which counts from the end of the file before."""
        row, self.result.first_time_diff = self.result.rows.start, stored
        if self._check.previous_end is None:
            return 0 if row == 0 and self._log.begin == 0 else stored
        if_made_again = self._rows.read(max(row - 1, 0), row)["store_timestamp"].tolist()  # the file before was lost
        allowed = [index_file.time_diff(self._begin, end) for end in (self._check.previous_end, *if_made_again)]
        return stored if stored in allowed else allowed[-1]

    def _check_slots(self) -> None:
        content, number = self._read(HEADER_SIZE, self._slots * SLOT_SIZE), self.result.entries + 1
        stored = np.frombuffer(content, index_file.SLOT).astype(np.int32)
        wrong = np.flatnonzero(stored != self._table)
        if self._check.growing:  # slots also name entries of theirs that the header does not count yet
            newer = self._entries(number, min(CHUNK, self._most - number))["key_hash"].astype(np.int64)
            named = newer % self._slots << 32 | number + np.arange(len(newer))
            wrong = wrong[~np.isin(wrong << 32 | stored[wrong], named)]
        if len(wrong):
            first = int(wrong[0])
            slots = ({"slot": int(table[first])} for table in (self._table, stored))
            self.result.differences.add(Finding("broken_chain", len(wrong), HEADER_SIZE + SLOT_SIZE * first, *slots))

    def _check_header(self) -> None:
        stored, count = self.result.header, self.result.entries
        expected, used = dict(stored), int(np.count_nonzero(self._table))
        # Before 4.7.1 slots are counted with every entry, and across that upgrade up to there.
        if not (used <= stored["hash_slot_count"] <= count or self._check.growing):
            expected["hash_slot_count"] = used
        if count:
            expected["index_count"] = stored["index_count"] if self._check.growing else count + 1
            for edge, number in (("begin", 1), ("end", count)):
                (entry,) = self._entries(number, 1)
                expected[f"{edge}_timestamp"] = self._time_of(entry, stored[f"{edge}_timestamp"])
                expected[f"{edge}_phy_offset"] = int(entry["phy_offset"])
        else:
            begin = stored["begin_timestamp"] if self._check.previous_end is None else self._check.previous_end
            expected |= {"begin_timestamp": begin, "end_timestamp": begin, "end_phy_offset": stored["begin_phy_offset"]}
            expected["index_count"] = min(max(stored["index_count"], 0), 1)
        for name, value in expected.items():
            if stored[name] != value:
                position = HEADER.fields[name][1]  # type: ignore[index]
                self.result.differences.add(Finding("wrong_header", 1, position, {name: value}, {name: stored[name]}))


def _pair(rows: Structs, record: Int64s, offsets: Int64s, hashes: Int32s) -> tuple[Bools, Bools]:
    """Entries that have an equal row; and rows that are held, equal ones as often as there are entries. ``record``: the
    first row of each entry's offset, which stands for it: offset and hash do not fit 64 bits together.
    """
    if len(rows) == len(offsets) and (rows["offset"] == offsets).all() and (hashes_of(rows) == hashes).all():
        return np.ones(len(rows), bool), np.ones(len(rows), bool)
    if not len(rows):
        return np.zeros(len(offsets), bool), np.zeros(0, bool)
    is_record = rows["offset"][np.minimum(record, len(rows) - 1)] == offsets
    entry_keys = np.sort(keys := np.where(is_record & (hashes >= 0), record << 32 | hashes, -1))
    row_keys = np.searchsorted(rows["offset"], rows["offset"]) << 32 | hashes_of(rows)
    order = np.argsort(row_keys, kind="stable")
    ascending = row_keys[order]
    times_held = np.searchsorted(entry_keys, ascending, "right") - np.searchsorted(entry_keys, ascending)
    held = np.zeros(len(rows), bool)
    held[order] = np.arange(len(rows)) - np.searchsorted(ascending, ascending) < times_held
    return ascending[np.minimum(np.searchsorted(ascending, keys), len(rows) - 1)] == keys, held
