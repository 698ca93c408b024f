"""One index file against the entries that the log makes: links, times, header, and what is missing, extra or double.

Which entry of the file is which of the log, ``alignment`` says; here everything is checked that follows from the
entries themselves: hash, offset and time of each, the links between those of one slot, the slots, and the header.

Links are recomputed with the hashes that the log makes wherever an entry has its counterpart, so that a wrong hash is
one fault and not also a broken chain. Mirrors IndexFile#putKey.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Int32s, Int64s, Structs
from storeformat.index import index_file
from storeformat.index.alignment import CHUNK, LOOKAHEAD, SEARCH, Aligned, Alignment, Coverage, FileContext
from storeformat.index.entries import Rows, hashes_of
from storeformat.index.index_file import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT_SIZE, Read
from storeformat.kernels import active

MOST_FAULTS = 1_000


@dataclass(frozen=True)
class IndexFault:
    """One thing in an index file that is wrong; ``position`` is its byte in the file."""

    position: int
    cause: str
    expected: object
    found: object


@dataclass
class IndexComparison(Coverage):
    """What a comparison of one file found."""

    entries: int = 0
    faults: list[IndexFault] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    used_slots: int = 0
    hash_slot_count: int = 0
    end_timestamp: int = 0
    end_phy_offset: int = 0
    first_time_diff: int = 0

    def fault(self, position: int, cause: str, expected: object, found: object, count: int = 1) -> None:
        """Notes one fault (or counts several and shows the first)."""
        self.counts[cause] = self.counts.get(cause, 0) + count
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(IndexFault(position, cause, expected, found))


def compare_index_file(read: Read, slots: int, max_index_num: int, rows: Rows, context: FileContext) -> IndexComparison:
    """Returns what differs between one index file and the log's entries."""
    header = np.frombuffer(read(0, HEADER_SIZE), HEADER)[0]
    result = IndexComparison()
    alignment = Alignment(rows, context, result)
    count = _count_entries(read, slots, max_index_num, int(header["index_count"]))
    table = np.zeros(slots, np.int32)
    times = _Times(int(header["begin_timestamp"]), context, rows)
    edges: list[Aligned] = []
    last_entry: np.void | None = None
    number = 1
    if count == 0 and not context.growing:
        count = alignment.recognised(_entries(read, slots, 1, min(SEARCH, max_index_num)))
    while number <= count:
        stop = min(number + CHUNK, count + 1)
        entries = _entries(read, slots, number, min(stop + LOOKAHEAD, count + 1))
        aligned = alignment.take(entries, stop - number)
        entries = entries[: stop - number]
        if stop > count and not context.growing:
            # The header may say too little: does the log go on as the bytes after it do?
            count += alignment.peek(_entries(read, slots, count + 1, min(count + 1 + CHUNK, max_index_num)))
        _check_entries(entries, aligned, number, slots, table, times, result)
        edges = [*edges[:1], aligned]
        last_entry = entries[-1]
        number = stop
    alignment.close()
    result.entries = count
    _check_slots(read, slots, table, count, context.growing, result)
    _check_header(header, count, edges, last_entry, times, result)
    return result


def _entries(read: Read, slots: int, begin: int, end: int) -> Structs:
    position = index_file.entries_position(slots) + ENTRY_SIZE * begin
    return index_file.parse_entries(read(position, ENTRY_SIZE * (end - begin)))


def _count_entries(read: Read, slots: int, max_index_num: int, index_count: int) -> int:
    """Returns how many entries the file holds: as its header says, less what was never written."""
    stop, width = min(max(index_count, 1), max_index_num) - 1, 1
    while stop > 0:
        begin = max(1, stop + 1 - width)
        piece = np.ascontiguousarray(_entries(read, slots, begin, stop + 1))
        written = piece.view(np.uint8).reshape(-1, ENTRY_SIZE).any(axis=1)
        if written.any():
            return begin + int(np.flatnonzero(written)[-1])
        stop, width = begin - 1, CHUNK
    return stop


class _Times:
    """What time differences are measured against: the header's start, unless the log proves it wrong."""

    def __init__(self, begin: int, context: FileContext, rows: Rows) -> None:
        self.stored = begin
        self.begin = begin
        self.context = context
        self.rows = rows
        self.proven: int | None = None

    def first_pair(self, timestamp: int) -> None:
        """The file's first entry is known: its store time is the start."""
        self.proven = self.begin = timestamp


def _check_entries(
    entries: Structs,
    aligned: Aligned,
    first_number: int,
    slots: int,
    table: Int32s,
    times: _Times,
    result: IndexComparison,
) -> None:
    """Notes what is wrong in a piece of a file's entries, each field against what it should be."""
    paired, rows = aligned.paired, aligned.rows
    found_hashes = entries["key_hash"].astype(np.int32)
    hashes = np.where(paired, hashes_of(rows), found_hashes & 0x7FFFFFFF).astype(np.int32)
    if first_number == 1:
        result.first_time_diff = int(entries["time_diff"][0])
        if paired[0]:
            times.first_pair(int(rows["store_timestamp"][0]))
    timestamps = rows["store_timestamp"]
    expected = np.empty(len(entries), ENTRY)
    times_or_begin = np.where(paired, timestamps, times.begin).astype(np.int64)
    active().put_entries(hashes, rows["offset"], times_or_begin, times.begin, first_number, table, expected)
    diffs = expected["time_diff"]
    if first_number == 1 and paired[0]:
        allowed = _first_time_diffs(times, int(timestamps[0]), result.rows_begin)
        stored = int(entries["time_diff"][0])
        diffs[0] = stored if allowed is None or stored in allowed else allowed[-1]
    late = paired & (diffs != entries["time_diff"])
    if times.proven is None and paired.any() and late.sum() * 2 > paired.sum():
        # Most times disagree, so it is the start that is wrong, and their own entry is not in the log any more.
        begin = int(np.median(timestamps[paired] - entries["time_diff"][paired].astype(np.int64) * 1000))
        result.fault(0, "wrong_header", {"begin_timestamp": begin}, {"begin_timestamp": times.stored})
        times.proven = times.begin = begin
        late[:] = False
    wrong = paired & ((found_hashes != hashes) | (entries["phy_offset"] != rows["offset"]))
    foreign = ~paired & (entries["phy_offset"] < times.context.log.end)
    foreign[: aligned.old] = False
    foreign &= ~times.context.log.lost(entries["phy_offset"])
    position = index_file.entries_position(slots) + ENTRY_SIZE * first_number
    for cause, places in (
        ("wrong_entry", np.flatnonzero(wrong | late)),
        ("dangling_entry", np.flatnonzero(foreign)),
        ("broken_chain", np.flatnonzero(entries["prev_index"] != expected["prev_index"])),
    ):
        _note_entries(result, cause, places, position, entries, None if cause == "dangling_entry" else expected)


def _first_time_diffs(times: _Times, timestamp: int, row: int) -> list[int] | None:
    """Returns what the first entry's time may be: it is measured against the end of the file before, which the entry
    before in the log knows, too. None if it may be anything, because the file before is gone.
    """
    if times.context.previous_end is None:
        return [0] if row == 0 and times.context.log.begin == 0 else None
    ends = [times.context.previous_end]
    if row > 0:
        ends.append(int(times.rows.read(row - 1, row)["store_timestamp"][0]))
    return [index_file.time_diff(timestamp, end) for end in ends]


def _note_entries(
    result: IndexComparison, cause: str, places: Int64s, position: int, entries: Structs, expected: Structs | None
) -> None:
    for place in places[: max(MOST_FAULTS - len(result.faults), 0)].tolist():
        want = None if expected is None else _fields(expected[place])
        result.fault(position + ENTRY_SIZE * place, cause, want, _fields(entries[place]), 0)
    if len(places):
        result.counts[cause] = result.counts.get(cause, 0) + len(places)


def _fields(row: np.void) -> dict[str, int]:
    return {name: int(row[name]) for name in row.dtype.names or ()}


def _check_slots(read: Read, slots: int, table: Int32s, count: int, growing: bool, result: IndexComparison) -> None:
    """Notes slots that do not hold the newest of their entries."""
    stored = index_file.parse_slots(read(0, index_file.entries_position(slots)), slots)
    wrong = np.flatnonzero(stored != table)
    if growing:
        # Newer entries than the header counted: follow them down to the ones that were.
        wrong = np.array(
            [slot for slot in wrong.tolist() if _settle(read, slots, int(stored[slot]), count) != table[slot]]
        )
    for slot in wrong.tolist():
        result.fault(
            HEADER_SIZE + SLOT_SIZE * slot, "broken_chain", {"slot": int(table[slot])}, {"slot": int(stored[slot])}
        )
    result.used_slots = int(np.count_nonzero(table))


def _settle(read: Read, slots: int, number: int, count: int) -> int:
    for _ in range(MOST_FAULTS):
        if number <= count:
            return number
        entry = _entries(read, slots, number, number + 1)
        number = int(entry["prev_index"][0]) if len(entry) else 0
    return number


def _check_header(
    header: np.void,
    count: int,
    edges: list[Aligned],
    last_entry: np.void | None,
    times: _Times,
    result: IndexComparison,
) -> None:
    """Notes header fields that do not follow from the entries; the count of used slots is for the caller to judge,
    because releases count differently.
    """
    stored = _fields(header)
    result.hash_slot_count = stored["hash_slot_count"]
    expected = dict(stored)
    result.end_timestamp, result.end_phy_offset = stored["end_timestamp"], stored["end_phy_offset"]
    if last_entry is None:
        expected["index_count"] = min(max(stored["index_count"], 0), 1)
        expected["end_timestamp"], expected["end_phy_offset"] = stored["begin_timestamp"], stored["begin_phy_offset"]
        if times.context.previous_end is not None:
            expected["begin_timestamp"] = expected["end_timestamp"] = times.context.previous_end
    else:
        expected["index_count"] = stored["index_count"] if times.context.growing else count + 1
        if edges[0].paired[0]:
            expected["begin_timestamp"] = times.begin
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
