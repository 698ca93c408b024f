"""Two sequences of index entries side by side: the one that the log makes, and the one in an index file.

Where an index was cut into files depends on where it once began, so files cannot be compared byte for byte: after
retention, and after a crash that cost the broker the older files, other entries stand at other numbers. What must agree
is the *sequence*. Where the two part, one of these explains it, tried in this order:

=============  =============================================================================================
lost           the entries' records are in a damaged range of the log
again          the last record's entries once more: a broker indexes the last record again after a crash
               (IndexService#buildIndex skips smaller offsets, not equal ones)
without tags   entries of ``topic#T#tags`` are not there: written by a broker before 5.4.0
substitution   one entry is wrong and the next ones agree again
beyond         the file goes on with records after the part of the log that was read
gap            the file goes on at a later entry of the log
extra          the file holds entries that the log does not make, and then agrees again
=============  =============================================================================================

Whole chunks are compared at once; only where they differ is anything looked at entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Bools, Int64s, LogExtent, Structs, leading
from storeformat.index.entries import ROW, Rows, hashes_of

CHUNK = 1 << 17
"""Entries compared at a time."""

LOOKAHEAD = 4096
"""Extra entries in a row after which the place in the log is still found."""

SEARCH = 64
"""First entries of a file that are tried to find its place in the log."""

_AGREE = 4
_MOST_JUMPS = 20_000
"""Jumps between the two sequences after which the rest of a file counts as wrong, entry by entry."""


@dataclass(frozen=True)
class OmittedRows:
    """Rows [begin, end) of the log that the file leaves out; ``with_tags`` says whether rows from TAGS count."""

    begin: int
    end: int
    with_tags: bool


@dataclass(frozen=True)
class FileContext:
    """What surrounds one file: the part of the log that was read, the file before it, and what may be in motion.

    ``previous_end`` is the end timestamp of the file before, None where there is none. ``growing`` says that a broker
    may be writing this file, or died while it did. ``with_tags`` says what to expect first: rows from TAGS, or none.
    """

    log: LogExtent
    previous_end: int | None
    growing: bool
    with_tags: bool


@dataclass
class Coverage:
    """Which part of the log's sequence one file covers: rows [rows_begin, rows_end), -1 if none. Counts are entries."""

    rows_begin: int = -1
    rows_end: int = -1
    gaps: list[OmittedRows] = field(default_factory=list)
    compared: int = 0
    old: int = 0
    """Entries of messages that retention took from the log."""
    beyond: int = 0
    """Entries of records after the part of the log that was read."""
    lost: int = 0
    """Entries of records that damage took from the log."""
    doubled: int = 0
    first_tag: int | None = None
    """Offset of the first record whose TAGS entry is there."""
    absent_tags: int = 0
    with_tags: bool = False
    """Whether rows from TAGS are expected at the file's end."""
    last_offset: int = -1
    """Offset of the last entry that the log makes, too."""


@dataclass(frozen=True)
class Aligned:
    """The counterparts of a piece of the file's entries: rows of the log, which of them are there at all, and how many
    entries at the start are older than the log.
    """

    rows: Structs
    paired: Bools
    old: int


class Alignment:
    """Walks the log's rows and a file's entries side by side; ``row`` is the next row of the log."""

    def __init__(self, rows: Rows, context: FileContext, result: Coverage) -> None:
        self._rows = rows
        self._context = context
        self._result = result
        self._started = False
        self._jumps = 0
        self._group = -1
        self._own = 0
        self._hashes, self._offsets = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self._pairs, self._paired = np.zeros(0, ROW), np.zeros(0, bool)
        self.row = 0
        self.with_tags = context.with_tags

    def take(self, entries: Structs, own: int) -> Aligned:
        """Returns the counterparts of the next ``own`` entries of the file, and notes where the sequences part; the
        entries after them are only looked at.
        """
        self._look_at(entries)
        self._own = own
        self._pairs, self._paired = np.zeros(own, ROW), np.zeros(own, bool)
        at = old = 0 if self._started else self._start()
        while at < own:
            block, numbers = self._next_rows(own - at)
            run = self._matching(block, at)
            self._accept(block[:run], numbers[:run], at)
            at += run
            if at < own:
                at = min(at + self._explain(at), own)
        return Aligned(self._pairs, self._paired, old)

    def _look_at(self, entries: Structs) -> None:
        self._hashes, self._offsets = entries["key_hash"].astype(np.int32), entries["phy_offset"].astype(np.int64)

    def recognised(self, entries: Structs) -> int:
        """Returns how many of a file's first entries were written, if the log makes the first of them; else 0."""
        count = leading(entries["phy_offset"] != 0)
        self._look_at(entries[:count])
        before, found = self.with_tags, None if count == 0 else self._find(0, 0)
        self.with_tags = before
        return 0 if found is None else count

    def peek(self, entries: Structs) -> int:
        """Returns how many of these entries, which the header does not count, go on as the log does."""
        if not self._started:
            return 0
        block, _ = self._next_rows(len(entries))
        self._look_at(entries)
        return self._matching(block, 0)

    def close(self) -> None:
        """Ends the walk: what the file covers of the log's sequence."""
        if self._started:
            if not self.with_tags:
                _, numbers = self._next_rows(1)
                row = int(numbers[0]) if len(numbers) else self._rows.total
                self._result.absent_tags += row - self.row
                self.row = row
            self._result.rows_end = self.row
        self._result.with_tags = self.with_tags

    def _next_rows(
        self, count: int, *, row: int | None = None, with_tags: bool | None = None
    ) -> tuple[Structs, Int64s]:
        """Returns up to ``count`` rows from ``row`` on, and their numbers; without those from TAGS, as told."""
        begin = self.row if row is None else row
        if self.with_tags if with_tags is None else with_tags:
            end = min(begin + count, self._rows.total)
            return self._rows.read(begin, end), np.arange(begin, end)
        pieces, numbers, missing = [], [], count
        while missing > 0 and begin < self._rows.total:
            end = min(begin + 2 * missing, self._rows.total)
            block = self._rows.read(begin, end)
            keep = np.flatnonzero(block["key_hash"] >= 0)[:missing]
            pieces.append(block[keep])
            numbers.append(keep + begin)
            missing -= len(keep)
            begin = end
        if not pieces:
            return np.zeros(0, ROW), np.zeros(0, np.int64)
        return np.concatenate(pieces), np.concatenate(numbers)

    def _accept(self, block: Structs, numbers: Int64s, at: int) -> None:
        """Takes rows, which follow each other, for the counterparts of the entries from ``at`` on."""
        if not len(block):
            return
        result = self._result
        self._pairs[at : at + len(block)], self._paired[at : at + len(block)] = block, True
        if result.rows_begin < 0:
            result.rows_begin = int(numbers[0])
        result.compared += len(block)
        result.last_offset = max(result.last_offset, int(block["offset"][-1]))
        tags = block["key_hash"] < 0
        if tags.any() and result.first_tag is None:
            result.first_tag = int(block["offset"][tags.argmax()])
        result.absent_tags += int(numbers[-1]) + 1 - self.row - len(block)
        self._group = int(block["offset"][-1])
        self.row = int(numbers[-1]) + 1

    def _start(self) -> int:
        """Finds where in the log the file begins; returns how many of its own entries lie before that."""
        offsets = self._offsets
        inside = offsets >= self._context.log.begin
        steady = inside & np.append(inside[1:], True)
        first = int(steady.argmax()) if steady.any() else len(offsets)
        if self._context.log.begin == 0:
            first = 0
        if first >= self._own:
            self._result.old += self._own
            return self._own
        self._started = True
        self.row = self._rows.find(int(offsets[first]))
        for at in range(first, min(first + SEARCH, len(offsets))):
            found = self._find(at, 0)
            if found is not None:
                self.row = found
                for _ in range(int((~self._context.log.lost(offsets[first:at])).sum())):
                    self.row = self._row_before(self.row)
                break
        while first > 0 and self.row > 0:
            before = self._row_before(self.row)
            if hashes_of(self._rows.read(before, before + 1))[0] != self._hashes[first - 1]:
                break
            first, self.row = first - 1, before  # of the log, too: one of the first offsets is wrong
        self._result.old += first
        return first

    def _row_before(self, row: int) -> int:
        row = max(row - 1, 0)
        while not self.with_tags and row > 0 and self._rows.read(row, row + 1)["key_hash"][0] < 0:
            row -= 1
        return row

    def _find(self, at: int, from_row: int) -> int | None:
        """Returns the row, from ``from_row`` on, that is the entry ``at`` of the file; it sets whether tags count."""
        row = max(self._rows.find(int(self._offsets[at])), from_row)
        fallback: tuple[int, bool] | None = None
        while row < self._rows.total:
            block = self._rows.read(row, min(row + SEARCH, self._rows.total))
            same = block["offset"] == self._offsets[at]
            for place in np.flatnonzero(same & (hashes_of(block) == self._hashes[at])).tolist():
                modes = (True,) if block["key_hash"][place] < 0 else (self.with_tags, not self.with_tags)
                for with_tags in modes:
                    agree = self._agreeing(at + 1, row + place + 1, with_tags)
                    if agree == min(_AGREE, len(self._offsets) - at - 1):
                        self.with_tags = with_tags
                        return int(row + place)
                fallback = fallback or (row + place, modes[0])
            if not same.all():
                break
            row += len(block)
        if fallback is None:
            return None
        self.with_tags = fallback[1]
        return int(fallback[0])

    def _agreeing(self, at: int, row: int, with_tags: bool) -> int:
        """Returns how many of the next few entries are the rows from ``row`` on."""
        block, _ = self._next_rows(min(_AGREE, len(self._offsets) - at), row=row, with_tags=with_tags)
        return self._matching(block, at)

    def _matching(self, rows: Structs, at: int) -> int:
        """Returns how many of the first rows are the entries from ``at`` on, which are at least as many."""
        entries = slice(at, at + len(rows))
        return leading((hashes_of(rows) == self._hashes[entries]) & (rows["offset"] == self._offsets[entries]))

    def _explain(self, at: int) -> int:
        """Deals with an entry that is not the next row; returns how many entries are dealt with."""
        result, offsets, offset = self._result, self._offsets, int(self._offsets[at])
        rest = len(offsets) - at
        next_row = self.row
        lost = self._context.log.lost(offsets[at:]) if self._context.log.damaged else np.zeros(0, bool)
        if len(lost) and lost[0]:
            count = min(leading(lost), self._own - at)
            result.lost += count
            return count
        self._jumps += 1
        if self._jumps <= _MOST_JUMPS:
            if offset == self._group and (again := self._group_begin(at)) is not None:
                result.doubled += next_row - again
                self.row = again
                return 0
            if self._agreeing(at, next_row, not self.with_tags) and not (
                self.with_tags and result.first_tag is not None
            ):
                self.with_tags = not self.with_tags
                return 0
            if self._is_substitute(at):
                return self._substitute(at)
            if offset >= self._context.log.end and bool((offsets[at:] >= self._context.log.end).all()):
                result.beyond += min(rest, self._own - at)
                return rest
            before = self.with_tags
            found = self._find(at, next_row)
            if found is not None and found > next_row:
                older = result.first_tag is None and bool((self._rows.read(next_row, found)["key_hash"] < 0).all())
                if older:
                    result.absent_tags += found - next_row
                else:
                    result.gaps.append(OmittedRows(next_row, found, self.with_tags))
                self.row = found
                return 0
            self.with_tags = before
            extra = self._extra_entries(at)
            if extra:
                return extra
        if next_row < self._rows.total:
            return self._substitute(at)
        return 1

    def _is_substitute(self, at: int) -> bool:
        """Returns whether the entry ``at`` stands where the next row should, wrong in itself: the next ones agree
        again, or, where none follow, one of its two fields is the row's.
        """
        block, numbers = self._next_rows(1)
        if not len(block):
            return False
        if at + 1 < len(self._offsets):
            return self._agreeing(at + 1, int(numbers[0]) + 1, self.with_tags) > 0
        key_hash, offset = self._hashes[at], self._offsets[at]
        later = self._rows.find(int(offset))
        if later > self.row and later < self._rows.total:
            exact = self._rows.read(later, later + 1)
            if exact["offset"][0] == offset and hashes_of(exact)[0] == key_hash:
                return False
        return bool(key_hash == hashes_of(block)[0] or offset == block["offset"][0])

    def _group_begin(self, at: int) -> int | None:
        """Returns the row of the last record from which the file repeats it with entry ``at``: the first one, unless
        the record is there for the second time already.
        """
        begin, end = self._rows.find(self._group), self._rows.find(self._group + 1)
        block, numbers = self._next_rows(end - begin, row=begin)
        numbers = numbers[numbers < end]
        same = self._offsets[at : at + len(numbers)] == self._group
        count = leading(same)
        for first in (len(numbers) - count, 0):
            repeated = hashes_of(block)[first : first + count]
            if count and numbers[first] < self.row and bool((repeated == self._hashes[at : at + count]).all()):
                return int(numbers[first])
        return None

    def _extra_entries(self, at: int) -> int:
        """Returns the number of entries from ``at`` on before the file agrees with the next row again; 0 if it does
        not.
        """
        block, _ = self._next_rows(1)
        entries = slice(at, min(at + LOOKAHEAD, len(self._offsets)))
        if not len(block):
            return entries.stop - at
        same = (self._offsets[entries] == block["offset"][0]) & (self._hashes[entries] == hashes_of(block)[0])
        return int(same.argmax()) if same.any() else 0

    def _substitute(self, at: int) -> int:
        self._accept(*self._next_rows(1), at)
        return 1


def keys_in(gap: OmittedRows, rows: Rows, most: int) -> tuple[int, list[dict[str, int]]]:
    """Returns how many entries a gap leaves out, and the first ``most`` of them as hash and offset."""
    count = 0
    shown: list[dict[str, int]] = []
    for begin in range(gap.begin, gap.end, CHUNK):
        block = rows.read(begin, min(begin + CHUNK, gap.end))
        if not gap.with_tags:
            block = block[block["key_hash"] >= 0]
        some = block[: most - len(shown)]
        shown += [
            {"key_hash": key_hash, "phy_offset": offset}
            for key_hash, offset in zip(hashes_of(some).tolist(), some["offset"].tolist(), strict=True)
        ]
        count += len(block)
    return count, shown
