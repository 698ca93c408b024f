"""One index file against the log's entries: fields, links, slots, header, and missing, extra or double entries.

``matching`` pairs the file's entries with the log's. Links are recomputed with the log's hashes, so a wrong hash is
one fault and not also a broken chain. Mirrors IndexFile#putKey.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Int64s, LogExtent, Structs, as_fields, leading
from storeformat.index import index_file
from storeformat.index.entries import Rows, hashes_of
from storeformat.index.index_file import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT_SIZE, Read
from storeformat.index.matching import CHUNK, SEARCH, Coverage, Matched, Matching
from storeformat.kernels import numpy_kernels
from storeformat.limits import LISTED


@dataclass(frozen=True)
class FileContext:
    """The log part read, the previous file's end timestamp (None if gone), and whether the file may be unfinished."""

    log: LogExtent
    previous_end: int | None
    growing: bool


@dataclass(frozen=True)
class IndexFault:
    """A wrong field or link; ``position`` is its byte in the file."""

    position: int
    cause: str
    expected: object
    found: object


@dataclass
class IndexComparison(Coverage):
    """Result of checking one file."""

    entries: int = 0
    faults: list[IndexFault] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    used_slots: int = 0
    hash_slot_count: int = 0
    end_timestamp: int = 0
    end_phy_offset: int = 0
    first_time_diff: int = 0

    def fault(self, position: int, cause: str, expected: object, found: object, count: int = 1) -> None:
        """Count a fault and list it; ``count=0`` only lists."""
        self.counts[cause] = self.counts.get(cause, 0) + count
        if len(self.faults) < LISTED:
            self.faults.append(IndexFault(position, cause, expected, found))


def compare_index_file(read: Read, slots: int, max_index_num: int, rows: Rows, context: FileContext) -> IndexComparison:
    """Compare one index file with the log's entries."""
    return _Comparison(read, slots, max_index_num, rows, context).compare()


class _Comparison:
    """One pass over a file; ``_begin`` is the header's start, unless the log proves it wrong."""

    def __init__(self, read: Read, slots: int, max_index_num: int, rows: Rows, context: FileContext) -> None:
        self._read, self._slots, self._most = read, slots, max_index_num
        self._rows, self._context = rows, context
        self._stored = as_fields(np.frombuffer(read(0, HEADER_SIZE), HEADER)[0]) or {}
        self._begin, self._is_proven = self._stored["begin_timestamp"], False
        self._table = np.zeros(slots, np.int32)
        self.result = IndexComparison()

    def compare(self) -> IndexComparison:
        matching = Matching(self._rows, self._context.log, self.result)
        count, growing = self._count_entries(), self._context.growing
        edges: list[Matched] = []
        last_entry: np.void | None = None
        number = 1
        if count == 0 and not growing:
            entries = self._entries(1, min(SEARCH, self._most))
            if len(entries) and matching.knows(int(entries["key_hash"][0]), int(entries["phy_offset"][0])):
                count = leading(entries["phy_offset"] != 0)
        while number <= count:
            stop = min(number + CHUNK, count + 1)
            entries = self._entries(number, stop)
            matched = matching.take(entries, final=stop > count)
            entries = entries[: len(matched)]
            self._check_entries(entries, matched, number)
            edges = [*edges[:1], matched]
            last_entry = entries[-1]
            number += len(entries)
            if number > count and not growing:
                # The header's count may be too low: does the log continue as the bytes after it do?
                count += matching.continues(self._entries(number, min(number + CHUNK, self._most)))
        matching.close()
        self.result.entries = count
        self._check_slots(count)
        self._check_header(count, edges, last_entry)
        return self.result

    def _position(self, number: int) -> int:
        return index_file.entries_position(self._slots) + ENTRY_SIZE * number

    def _entries(self, begin: int, end: int) -> Structs:
        return index_file.parse_entries(self._read(self._position(begin), ENTRY_SIZE * (end - begin)))

    def _count_entries(self) -> int:
        """The header's count, less trailing entries that were never written."""
        stop, width = min(max(self._stored["index_count"], 1), self._most) - 1, 1
        while stop > 0:
            begin = max(1, stop + 1 - width)
            piece = np.ascontiguousarray(self._entries(begin, stop + 1))
            written = piece.view(np.uint8).reshape(-1, ENTRY_SIZE).any(axis=1)
            if written.any():
                return begin + int(np.flatnonzero(written)[-1])
            stop, width = begin - 1, CHUNK
        return stop

    def _check_entries(self, entries: Structs, matched: Matched, first_number: int) -> None:
        paired, rows = matched.paired, matched.rows
        timestamps = rows["store_timestamp"]
        found_hashes = entries["key_hash"].astype(np.int32)
        hashes = np.where(paired, hashes_of(rows), found_hashes & 0x7FFFFFFF).astype(np.int32)
        is_first = first_number == 1 and bool(paired[0])
        if first_number == 1:
            self.result.first_time_diff = int(entries["time_diff"][0])
        if is_first:  # its store time is the start
            self._begin, self._is_proven = int(timestamps[0]), True
        expected = np.empty(len(entries), ENTRY)
        times_or_begin = np.where(paired, timestamps, self._begin).astype(np.int64)
        numpy_kernels.put_entries(
            hashes, rows["offset"], times_or_begin, self._begin, first_number, self._table, expected
        )
        diffs = expected["time_diff"]
        if is_first:
            allowed, stored = self._first_time_diffs(), int(entries["time_diff"][0])
            diffs[0] = stored if allowed is None or stored in allowed else allowed[-1]
        late = paired & (diffs != entries["time_diff"])
        if not self._is_proven and paired.any() and late.sum() * 2 > paired.sum():
            # Most times disagree, so the header's start is wrong, and its own entry is no longer in the log.
            begin = int(np.median(timestamps[paired] - entries["time_diff"][paired].astype(np.int64) * 1000))
            found = {"begin_timestamp": self._stored["begin_timestamp"]}
            self.result.fault(0, "wrong_header", {"begin_timestamp": begin}, found)
            self._begin, self._is_proven = begin, True
            late[:] = False
        wrong = paired & ((found_hashes != hashes) | (entries["phy_offset"] != rows["offset"]))
        for cause, flags, want in (
            ("wrong_entry", wrong | late, expected),
            ("dangling_entry", matched.foreign, None),
            ("broken_chain", entries["prev_index"] != expected["prev_index"], expected),
        ):
            self._note_entries(cause, np.flatnonzero(flags), self._position(first_number), entries, want)

    def _first_time_diffs(self) -> list[int] | None:
        """Allowed time differences of the first entry, from the end of the previous file; None: any."""
        row, previous_end = self.result.rows_begin, self._context.previous_end
        if previous_end is None:
            return [0] if row == 0 and self._context.log.begin == 0 else None
        ends = [previous_end]
        if row > 0:
            ends.append(int(self._rows.read(row - 1, row)["store_timestamp"][0]))
        return [index_file.time_diff(self._begin, end) for end in ends]

    def _note_entries(
        self, cause: str, places: Int64s, position: int, entries: Structs, expected: Structs | None
    ) -> None:
        for place in places[: max(LISTED - len(self.result.faults), 0)].tolist():
            want = None if expected is None else expected[place]
            self.result.fault(position + ENTRY_SIZE * place, cause, as_fields(want), as_fields(entries[place]), 0)
        if len(places):
            self.result.counts[cause] = self.result.counts.get(cause, 0) + len(places)

    def _check_slots(self, count: int) -> None:
        table = self._table
        stored = index_file.parse_slots(self._read(0, index_file.entries_position(self._slots)), self._slots)
        for slot in np.flatnonzero(stored != table).tolist():
            # Newer entries than the header counted: follow them down to counted ones.
            if not self._context.growing or self._settle(int(stored[slot]), count) != table[slot]:
                want, found = {"slot": int(table[slot])}, {"slot": int(stored[slot])}
                self.result.fault(HEADER_SIZE + SLOT_SIZE * slot, "broken_chain", want, found)
        self.result.used_slots = int(np.count_nonzero(table))

    def _settle(self, number: int, count: int) -> int:
        for _ in range(LISTED):
            if number <= count:
                return number
            entry = self._entries(number, number + 1)
            number = int(entry["prev_index"][0]) if len(entry) else 0
        return number

    def _check_header(self, count: int, edges: list[Matched], last_entry: np.void | None) -> None:
        """The caller judges the count of used slots, because releases count differently."""
        stored, result, context = self._stored, self.result, self._context
        result.hash_slot_count = stored["hash_slot_count"]
        expected = dict(stored)
        result.end_timestamp, result.end_phy_offset = stored["end_timestamp"], stored["end_phy_offset"]
        if last_entry is None:
            expected["index_count"] = min(max(stored["index_count"], 0), 1)
            expected |= {"end_timestamp": stored["begin_timestamp"], "end_phy_offset": stored["begin_phy_offset"]}
            if context.previous_end is not None:
                expected["begin_timestamp"] = expected["end_timestamp"] = context.previous_end
        else:
            expected["index_count"] = stored["index_count"] if context.growing else count + 1
            if edges[0].paired[0]:
                expected["begin_timestamp"] = self._begin
                expected["begin_phy_offset"] = int(edges[0].rows["offset"][0])
            if edges[-1].paired[-1]:
                expected["end_timestamp"] = int(edges[-1].rows["store_timestamp"][-1])
                expected["end_phy_offset"] = int(edges[-1].rows["offset"][-1])
            else:
                expected["end_phy_offset"] = int(last_entry["phy_offset"])
            result.end_timestamp, result.end_phy_offset = expected["end_timestamp"], expected["end_phy_offset"]
        for name in HEADER.names or ():
            if stored[name] != expected[name]:
                position = HEADER.fields[name][1] if HEADER.fields else 0
                result.fault(position, "wrong_header", {name: expected[name]}, {name: stored[name]})
