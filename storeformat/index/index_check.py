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
from storeformat.errors import LISTED
from storeformat.index import index_file
from storeformat.index.index_file import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, ROW, SLOT_SIZE, Read, hashes_of
from storeformat.kernels import numpy_kernels
from storeformat.queues.queue_check import Finding, Findings

CHUNK = 1 << 17  # entries, or rows, compared at a time

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
    """A file and the log's rows [begin, end) that it covers, -1 for none; or such rows that no file covers."""

    header: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    compared: int = 0
    begin: int = -1
    end: int = -1
    last_offset: int = -1  # commit-log offset of row ``end - 1``
    with_tags: bool = False  # entries of TAGS are there
    first_time_diff: int = 0
    differences: Findings = field(default_factory=Findings)
    explained: Counter[str] = field(default_factory=Counter)

    @property
    def missing(self) -> int:
        return self.differences["missing_key"].count if "missing_key" in self.differences else 0

    def miss(self, rows: Structs) -> None:
        """Count rows without an entry; those from TAGS are explained until the first one that has one."""
        if not self.with_tags:
            of_keys = rows["key_hash"] >= 0
            self.explained["tags"] += int((~of_keys).sum())
            rows = rows[of_keys]
        if len(rows):
            first = {"key_hash": int(hashes_of(rows)[0]), "phy_offset": int(rows["offset"][0])}
            self.differences.add(Finding("missing_key", len(rows), None, first))

    def miss_all(self, rows: Rows, begin: int, end: int) -> None:
        for first in range(begin, end, CHUNK):
            self.miss(rows.read(first, min(first + CHUNK, end)))


class IndexFileComparer:
    """One pass over a file of ``sizes`` maxHashSlotNum and maxIndexNum; memory: the slots and a few chunks."""

    def __init__(self, read: Read, sizes: tuple[int, int], rows: Rows, log: LogExtent, check: IndexCheck) -> None:
        self._read, self._rows, self._log, self._check = read, rows, log, check
        self._slots, self._most = sizes
        self._table = np.zeros(self._slots, np.int32)
        self._last_offset = 0  # of the entries so far
        self._row = -1  # up to which the log's rows are compared
        self._edge_times: dict[int, int] = {}  # store times of the first and last entry, by number
        self.result = IndexComparison(as_fields(np.frombuffer(read(0, HEADER_SIZE), HEADER)[0]) or {})

    def compare(self) -> IndexComparison:
        result, log = self.result, self._log
        result.entries = min(max(result.header["index_count"], 1), self._most) - 1
        waiting, numbers = np.zeros(0, ENTRY), np.zeros(0, np.int64)
        number = 1
        while number <= result.entries:
            entries = self._entries(number, min(number + CHUNK, result.entries + 1))
            written = leading(entries != np.zeros(1, ENTRY))
            if written < len(entries):  # counted, but never written
                entries, result.entries = entries[:written], number + written - 1
            if len(entries):
                self._check_links_and_order(entries, number)
            old, beyond = entries["phy_offset"] < log.begin, entries["phy_offset"] >= log.end
            result.explained.update(old=int(old.sum()), beyond=int(beyond.sum()))
            inside = np.flatnonzero(~(old | beyond))
            waiting, numbers = np.append(waiting, entries[inside]), np.append(numbers, number + inside)
            number += len(entries)
            if len(waiting):
                offsets = waiting["phy_offset"].astype(np.int64)
                is_last = number > result.entries or len(offsets) > 2 * CHUNK
                until = int(offsets.max()) + 1 if is_last else int(np.median(offsets[-_EDGE:]))
                waiting, numbers = self._compare_until(until, waiting, numbers)
        self._check_slots()
        self._check_header()
        return result

    def _position(self, number: int) -> int:
        return index_file.entries_position(self._slots) + ENTRY_SIZE * number

    def _entries(self, begin: int, end: int) -> Structs:
        return index_file.parse_entries(self._read(self._position(begin), ENTRY_SIZE * (end - begin)))

    def _differ(self, cause: str, flags: Bools, entries: Structs, numbers: Int64s, expected: Structs) -> None:
        if flags.any():
            at = int(flags.argmax())
            position, shown = self._position(int(numbers[at])), (as_fields(expected[at]), as_fields(entries[at]))
            self.result.differences.add(Finding(cause, int(flags.sum()), position, *shown))

    def _check_links_and_order(self, entries: Structs, first_number: int) -> None:
        put = np.empty(len(entries), ENTRY)
        hashes, zeros = entries["key_hash"].astype(np.int32), np.zeros(len(entries), np.int64)
        numpy_kernels.put_entries(hashes & 0x7FFFFFFF, zeros, zeros, 0, first_number, self._table, put)
        wrong = (put["prev_index"] != entries["prev_index"]) | (hashes < 0)
        numbers = first_number + np.arange(len(entries))
        self._differ("broken_chain", wrong, entries, numbers, put[["key_hash", "prev_index"]])
        # A broker skips records before the last indexed one.
        early = np.diff(entries["phy_offset"], prepend=self._last_offset) < 0
        self._last_offset = int(entries["phy_offset"][-1])
        self._differ("wrong_entry", early, entries, numbers, np.full(len(entries), None))

    def _compare_until(self, until: int, entries: Structs, numbers: Int64s) -> tuple[Structs, Int64s]:
        """Compare rows and entries before an offset of the log. Returns the other entries."""
        if self._row < 0:
            self._row = self._first_row(entries)
        end = max(self._rows.find(until), self._row)
        while True:
            stop, bound = min(self._row + 4 * CHUNK, end), until
            if stop < end:  # between records
                bound = int(self._rows.read(stop, stop + 1)["offset"][0])
                stop = self._rows.find(bound)
            here = entries["phy_offset"] < bound
            self._compare_block(self._rows.read(self._row, stop), entries[here], numbers[here])
            entries, numbers, self._row = entries[~here], numbers[~here], stop
            if stop == end:
                return entries, numbers

    def _first_row(self, entries: Structs) -> int:
        offset = int(entries["phy_offset"][:_EDGE].min())
        begin, stop = self._rows.find(offset), self._rows.find(offset + 1)
        # The file may begin with the second of two equal keys of a record.
        same = min(leading(entries["phy_offset"] == offset), stop - begin)
        is_end = (hashes_of(self._rows.read(stop - same, stop)) == entries["key_hash"][:same]).all()
        return stop - same if is_end else begin

    def _compare_block(self, rows: Structs, entries: Structs, numbers: Int64s) -> None:
        result = self.result
        row_of, held = _pair(rows, entries)
        known = row_of >= 0
        lost = ~known & self._log.lost(entries["phy_offset"].astype(np.int64))
        result.compared += int(held.sum())
        result.explained.update(doubled=int(known.sum()) - int(held.sum()), lost=int(lost.sum()))
        self._differ("extra_entry", ~known & ~lost, entries, numbers, np.full(len(entries), None))
        self._note_held(rows, held)
        self._check_times(rows["store_timestamp"][row_of[known]], entries[known], numbers[known])

    def _note_held(self, rows: Structs, held: Bools) -> None:
        places, result = np.flatnonzero(held), self.result
        if not len(places):
            return
        low, high = 0, int(places[-1]) + 1
        if result.begin < 0:
            low = int(places[0])
            result.begin = self._row + low
        else:
            result.miss_all(self._rows, result.end, self._row)
        result.end, result.last_offset = self._row + high, int(rows["offset"][high - 1])
        tags = places[rows["key_hash"][places] < 0]
        upgrade = int(tags[0]) if len(tags) and not result.with_tags else low
        result.miss(rows[low:upgrade][~held[low:upgrade]])
        result.with_tags |= len(tags) > 0
        result.miss(rows[upgrade:high][~held[upgrade:high]])

    def _check_times(self, times: Int64s, entries: Structs, numbers: Int64s) -> None:
        for place in np.flatnonzero((numbers == 1) | (numbers == self.result.entries)).tolist():
            self._edge_times[int(numbers[place])] = int(times[place])
        begin = self._edge_times.get(1, self.result.header["begin_timestamp"])
        expected = np.zeros(len(times), [("time_diff", np.int32)])
        if begin > 0:
            expected["time_diff"] = np.clip((times - begin) // 1000, 0, 0x7FFFFFFF)
        if len(numbers) and numbers[0] == 1:
            expected[0] = self._first_time_diff(begin, int(entries["time_diff"][0]))
        self._differ("wrong_entry", expected["time_diff"] != entries["time_diff"], entries, numbers, expected)

    def _first_time_diff(self, begin: int, stored: int) -> int:
        """The first entry's time difference, which counts from the end of the file before."""
        row, self.result.first_time_diff = self.result.begin, stored
        if self._check.previous_end is None:
            return 0 if row == 0 and self._log.begin == 0 else stored
        ends = [self._check.previous_end]
        if row > 0:  # the file before was lost and made again
            ends.append(int(self._rows.read(row - 1, row)["store_timestamp"][0]))
        allowed = [index_file.time_diff(begin, end) for end in ends]
        return stored if stored in allowed else allowed[-1]

    def _check_slots(self) -> None:
        put = self._table
        stored = np.frombuffer(self._read(HEADER_SIZE, self._slots * SLOT_SIZE), index_file.SLOT).astype(np.int32)
        wrong = np.flatnonzero(stored != put)
        if self._check.growing:
            wrong = wrong[self._counted(stored[wrong]) != put[wrong]]
        if len(wrong):
            slot = int(wrong[0])
            expected, found = {"slot": int(put[slot])}, {"slot": int(stored[slot])}
            position = HEADER_SIZE + SLOT_SIZE * slot
            self.result.differences.add(Finding("broken_chain", len(wrong), position, expected, found))

    def _counted(self, numbers: Int32s) -> Int32s:
        """Follow entries that the header does not count yet down to counted ones."""
        count = self.result.entries
        before = self._entries(count + 1, min(count + 1 + CHUNK, self._most))["prev_index"].astype(np.int32)
        for _ in range(LISTED):
            newer = (numbers > count) & (numbers <= count + len(before))
            if not newer.any():
                break
            numbers[newer] = before[numbers[newer] - count - 1]
        return numbers

    def _check_header(self) -> None:
        stored, count, times = self.result.header, self.result.entries, self._edge_times
        expected, used = dict(stored), int(np.count_nonzero(self._table))
        # Before 4.7.1 slots are counted with every entry, and across that upgrade up to there.
        if not (used <= stored["hash_slot_count"] <= count or self._check.growing):
            expected["hash_slot_count"] = used
        if count:
            expected["index_count"] = stored["index_count"] if self._check.growing else count + 1
            for edge, number in (("begin", 1), ("end", count)):
                expected[f"{edge}_timestamp"] = times.get(number, stored[f"{edge}_timestamp"])
                expected[f"{edge}_phy_offset"] = int(self._entries(number, number + 1)["phy_offset"][0])
        else:
            expected["index_count"] = min(max(stored["index_count"], 0), 1)
            if self._check.previous_end is not None:
                expected["begin_timestamp"] = self._check.previous_end
            expected |= {"end_timestamp": expected["begin_timestamp"], "end_phy_offset": stored["begin_phy_offset"]}
        for name in expected:
            if stored[name] != expected[name]:
                position = HEADER.fields[name][1]  # type: ignore[index]
                found = {name: stored[name]}
                self.result.differences.add(Finding("wrong_header", 1, position, {name: expected[name]}, found))


def _pair(rows: Structs, entries: Structs) -> tuple[Int64s, Bools]:
    """A row equal to each entry, -1 for none; and which rows are held, equal ones as often as there are entries."""
    offsets, hashes = entries["phy_offset"].astype(np.int64), entries["key_hash"].astype(np.int64)
    if len(rows) == len(entries) and (rows["offset"] == offsets).all() and (hashes_of(rows) == hashes).all():
        return np.arange(len(rows)), np.ones(len(rows), bool)
    if not len(rows):
        return np.full(len(entries), -1), np.zeros(0, bool)
    # The number of a record's first row stands for its offset: offset and hash do not fit 64 bits together.
    record = np.searchsorted(rows["offset"], offsets)
    is_record = rows["offset"][np.minimum(record, len(rows) - 1)] == offsets
    entry_keys = np.where(is_record & (hashes >= 0), record << 32 | hashes, -1)
    row_keys = np.searchsorted(rows["offset"], rows["offset"]) << 32 | hashes_of(rows)
    order = np.argsort(row_keys, kind="stable")
    row_keys, sorted_entries = row_keys[order], np.sort(entry_keys)
    place = np.minimum(np.searchsorted(row_keys, entry_keys), len(rows) - 1)
    row_of = np.where(row_keys[place] == entry_keys, order[place], -1)
    times_held = np.searchsorted(sorted_entries, row_keys, "right") - np.searchsorted(sorted_entries, row_keys)
    held = np.zeros(len(rows), bool)
    held[order] = np.arange(len(rows)) - np.searchsorted(row_keys, row_keys) < times_held
    return row_of, held
