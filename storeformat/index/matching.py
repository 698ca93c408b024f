"""The entries of one index file and those of the log, as multisets of (offset, hash).

Files cannot be compared byte for byte: where they were cut depends on where the index once began. A file must hold
the log's entries from its first one to its last one, each as often as in the log. Entries without a row of the log,
and rows without an entry, are explained in this order:

===========  ==========================================================================================
lost         the entry's record is in a damaged range of the log
wrong        an entry without a row stands where a row is without an entry: one field of it changed
again        the last record's entries once more: a broker indexes the last record again after a crash
             (IndexService#buildIndex skips smaller offsets, not equal ones)
old, beyond  the record is not in the log any more, or comes after the part of the log that was read
no tags      rows from TAGS before the file's first one: written by a broker before 5.4.0
===========  ==========================================================================================

The rest are entries without a record, and missing keys. Chunks equal to the log's need one comparison; others are
sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from storeformat.arrays import Bools, Int32s, Int64s, LogExtent, Structs, leading
from storeformat.index.entries import Rows, hashes_of
from storeformat.limits import LISTED

CHUNK = 1 << 17  # entries compared at a time

SEARCH = 256  # wrong entries allowed at either end of a chunk before its place in the log is lost

_MOST_ROWS = 4 * CHUNK


@dataclass
class Coverage:
    """Rows [rows_begin, rows_end) of the log that one file covers, -1 if none. Counts are entries."""

    rows_begin: int = -1
    rows_end: int = -1
    compared: int = 0
    missing: int = 0  # log rows in the range without an entry; ``missing_shown`` lists the first
    missing_shown: list[dict[str, int]] = field(default_factory=list)
    old: int = 0
    beyond: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0  # entries after one of a later row
    absent_tags: int = 0
    first_tag: int | None = None  # offset of the first record whose TAGS entry is present
    last_offset: int = -1  # offset of the last entry that the log has too


@dataclass(frozen=True)
class Matched:
    """The first entries of a chunk: the log row of each ``paired`` one, and which are of no record."""

    rows: Structs
    paired: Bools
    foreign: Bools

    def __len__(self) -> int:
        return len(self.paired)


class Matching:
    """Matches a file's entries chunk by chunk; memory: one chunk and at most ``_MOST_ROWS`` rows."""

    def __init__(self, rows: Rows, log: LogExtent, result: Coverage) -> None:
        self._rows, self._log, self._result = rows, log, result

    def knows(self, key_hash: int, offset: int) -> bool:
        """True if the log makes this entry."""
        if not self._log.begin <= offset < self._log.end:
            return False
        block = self._rows.read(self._rows.find(offset), self._rows.find(offset + 1))
        return bool((hashes_of(block) == key_hash).any())

    def continues(self, entries: Structs) -> int:
        """Number of leading entries equal to the log's next rows."""
        if self._result.rows_end < 0:
            return 0
        block = self._read(self._result.rows_end, self._result.rows_end + 2 * len(entries))
        if self._result.first_tag is None and not (
            len(block) and block["key_hash"][0] < 0 and hashes_of(block)[0] == entries["key_hash"][0]
        ):
            block = block[block["key_hash"] >= 0]
        block, entries = block[: len(entries)], entries[: len(block)]
        return leading((hashes_of(block) == entries["key_hash"]) & (block["offset"] == entries["phy_offset"]))

    def take(self, entries: Structs, *, final: bool) -> Matched:
        """Match the next entries. Unless ``final``, pass those after ``len(result)`` again, to end between records."""
        hashes, offsets = entries["key_hash"].astype(np.int32), entries["phy_offset"].astype(np.int64)
        count, begin = len(entries), self._result.rows_end
        block = self._read(begin, begin + count) if begin >= 0 else self._rows.read(0, 0)
        lost = self._log.lost(offsets)
        if len(block) == count and (block["offset"] == offsets).all() and (hashes_of(block) == hashes).all():
            ends = np.flatnonzero(np.diff(offsets))
            return self._accept(block[: count if final or not len(ends) else int(ends[-1]) + 1])
        begin, end, cut = self._range(hashes, offsets, lost)
        final, count = final or cut < count, cut
        hashes, offsets, lost, block = hashes[:count], offsets[:count], lost[:count], self._read(begin, end)
        row_of, again = _match(block, hashes, offsets)
        self._result.disordered += int((np.diff(row_of[row_of >= 0]) < 0).sum())
        self._pair_wrong(block, hashes, offsets, row_of, again, lost)
        if not final:
            ends = np.flatnonzero((offsets[1:] > offsets[:-1]) & (row_of[1:] >= 0) & (row_of[:-1] >= 0))
            count = int(ends[-1]) + 1 if len(ends) else count
        return self._note(block, begin, row_of[:count], again[:count], offsets[:count], lost[:count])

    def _accept(self, rows: Structs) -> Matched:
        result, tags = self._result, rows["key_hash"] < 0
        result.rows_end, result.last_offset = result.rows_end + len(rows), int(rows["offset"][-1])
        result.compared += len(rows)
        if result.first_tag is None and tags.any():
            result.first_tag = int(rows["offset"][tags.argmax()])
        return Matched(rows, np.ones(len(rows), bool), np.zeros(len(rows), bool))

    def _read(self, begin: int, end: int) -> Structs:
        return self._rows.read(begin, max(min(end, self._rows.total), begin))

    def _range(self, hashes: Int32s, offsets: Int64s, lost: Bools) -> tuple[int, int, int]:
        """Rows and number of entries to compare. Ends are log entries: wrong offsets must not lead through the log."""
        rows, result, count = self._rows, self._result, len(offsets)
        started = result.rows_end >= 0
        inside = np.flatnonzero((offsets >= self._log.begin) & (offsets < self._log.end) & ~lost)

        def first_known(places: Int64s) -> int | None:
            known = (at for at in places[:SEARCH].tolist() if self.knows(int(hashes[at]), int(offsets[at])))
            return next(known, None)

        first, last = first_known(inside), first_known(inside[::-1])
        if first is None or last is None:
            begin = result.rows_end if started or not len(inside) else rows.find(int(offsets[inside[0]]))
            return max(begin, 0), max(begin, 0) + (count if len(inside) else 0), count
        begin, stop = rows.find(int(offsets[first])), rows.find(int(offsets[first]) + 1)
        if not started:
            # The file may begin with the second of two equal keys of a record.
            same = min(leading(offsets[first:] == offsets[first]), stop - begin)
            if (hashes_of(rows.read(stop - same, stop)) == hashes[first : first + same]).all():
                begin = stop - same
            begin = max(begin - 2 * min(first, SEARCH), 0)
        elif begin - result.rows_end > _MOST_ROWS // 2:
            for at in range(result.rows_end, begin, CHUNK):
                self._miss(rows.read(at, min(at + CHUNK, begin)))
        else:
            begin = result.rows_end
        end = min(rows.find(int(offsets[last]) + 1) + 2 * min(count - last, SEARCH), rows.total)
        if end - begin > _MOST_ROWS:
            high = int(rows.read(begin + _MOST_ROWS, begin + _MOST_ROWS + 1)["offset"][0])
            end = rows.find(high)
            far = offsets >= high
            far &= np.append(far[1:], True)
            far[: first + 1] = False
            count = int(far.argmax()) if far.any() else count
        return begin, end, count

    def _pair_wrong(
        self, block: Structs, hashes: Int32s, offsets: Int64s, row_of: Int64s, again: Bools, lost: Bools
    ) -> None:
        """Pair entries without a row and rows without an entry by equal offset, or else by equal hash."""
        paired, alone, free = np.flatnonzero(row_of >= 0), (row_of < 0) & ~again & ~lost, np.ones(len(block), bool)
        if len(paired):
            free[row_of[paired]] = False
            # Rows outside belong to other files, except those of wrong entries at either end of this one.
            free[: max(int(row_of[paired].min()) - int(alone[: paired[0]].sum()), 0)] = False
            free[int(row_of[paired].max()) + 1 + int(alone[paired[-1] :].sum()) :] = False
        for theirs, ours in ((offsets, block["offset"]), (hashes, hashes_of(block))):
            places, rows = np.flatnonzero(alone), np.flatnonzero(free)
            at, to = _equal(theirs[places], ours[rows])
            row_of[places[at]], alone[places[at]], free[rows[to]] = rows[to], False, False

    def _note(self, block: Structs, begin: int, row_of: Int64s, again: Bools, offsets: Int64s, lost: Bools) -> Matched:
        result, log = self._result, self._log
        paired = row_of >= 0
        alone, old_end = ~paired, len(paired) if result.rows_end < 0 else 0
        rows = np.zeros(len(paired), block.dtype)
        if paired.any():
            rows[paired] = block[row_of[paired]]
            held = np.zeros(len(block), bool)
            held[row_of[paired]] = True
            low, high = int(held.argmax()), int(np.flatnonzero(held)[-1]) + 1
            if result.rows_end < 0:
                result.rows_begin, old_end = begin + low, int(paired.argmax())
            else:
                low = max(result.rows_end - begin, 0)
            result.rows_end, result.last_offset = begin + high, int(block["offset"][high - 1])
            result.compared += int(paired.sum())
            tags = np.flatnonzero(held & (block["key_hash"] < 0))
            if result.first_tag is None and len(tags):
                self._miss(block[low : tags[0]][~held[low : tags[0]]])
                low, result.first_tag = int(tags[0]), int(block["offset"][tags[0]])
            self._miss(block[low:high][~held[low:high]])
        if alone.any():
            newest = np.maximum.accumulate(row_of)
            again = alone & again & (newest >= 0) & (offsets == block["offset"][newest] if len(block) else False)
            old = alone & (offsets < log.begin)
            old[old_end:] = False
            beyond, lost = alone & (offsets >= log.end), alone & lost & ~old
            beyond[: int(np.flatnonzero(paired)[-1]) if paired.any() else 0] = False
            result.doubled += int(again.sum())
            result.old += int(old.sum())
            result.beyond += int(beyond.sum())
            result.lost += int(lost.sum())
            alone &= ~(again | old | beyond | lost)
        return Matched(rows, paired, alone)

    def _miss(self, rows: Structs) -> None:
        if self._result.first_tag is None:
            keys = rows["key_hash"] >= 0
            self._result.absent_tags += int((~keys).sum())
            rows = rows[keys]
        self._result.missing += len(rows)
        self._result.missing_shown += as_keys(rows[: LISTED - len(self._result.missing_shown)])

    def close(self) -> None:
        """End the file; rows from TAGS after its last entry belong to it if it has none from TAGS."""
        result = self._result
        while result.first_tag is None and 0 <= result.rows_end < self._rows.total:
            block = self._read(result.rows_end, result.rows_end + SEARCH)
            tags = leading(block["key_hash"] < 0)
            result.absent_tags += tags
            result.rows_end += tags
            if tags < len(block):
                break


def as_keys(rows: Structs) -> list[dict[str, int]]:
    """Rows for the report: hash and commit-log offset."""
    columns = hashes_of(rows).tolist(), rows["offset"].tolist()
    return [{"key_hash": key_hash, "phy_offset": offset} for key_hash, offset in zip(*columns, strict=True)]


def _match(rows: Structs, hashes: Int32s, offsets: Int64s) -> tuple[Int64s, Bools]:
    """Row of each entry, -1 for none, equal ones in order; and which entries without a row are duplicates."""
    records = np.searchsorted(rows["offset"], rows["offset"])
    made = records.astype(np.int64) << 32 | hashes_of(rows)
    record = np.minimum(np.searchsorted(rows["offset"], offsets), max(len(rows) - 1, 0))
    known = rows["offset"][record] == offsets if len(rows) else np.zeros(len(offsets), bool)
    held = np.where(known, record.astype(np.int64) << 32 | hashes, -1)
    row_of, again = np.full(len(hashes), -1, np.int64), np.zeros(len(hashes), bool)
    at, to = _equal(held, made)
    row_of[at] = to
    left = np.flatnonzero(row_of < 0)
    again[left[_equal(held[left], made)[0]]] = True
    return row_of, again


def _equal(left: npt.NDArray[np.integer], right: npt.NDArray[np.integer]) -> tuple[Int64s, Int64s]:
    """Indices of equal values in two columns, paired one to one, first with first."""
    at, to = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
    ours, theirs = left[at], right[to]
    target = np.arange(len(ours)) - np.searchsorted(ours, ours) + np.searchsorted(theirs, ours)
    same = target < np.searchsorted(theirs, ours, "right")
    return at[same], to[target[same]]
