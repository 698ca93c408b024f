"""The index: the order of its files, by the offsets inside since names are wall-clock times, and what differences mean.

Together the files must hold the log's entries once, without a gap; healthy brokers cause three exceptions:

- retention deletes whole files, never the last one: entries older than the log stay, or are gone
- a crash costs the files after the checkpoint, and dispatch begins again at a segment: entries are missing from the
  end of a file up to the start of a segment
- the last record before a crash is indexed twice
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.log.opening import OpenedStore
from jobs.verify.differences import Subject, Verdicts, Verification
from storeformat.arrays import LogExtent
from storeformat.index import index_file
from storeformat.index.entries import Rows
from storeformat.index.index_check import FileContext, IndexComparison
from storeformat.index.matching import CHUNK, as_keys
from storeformat.limits import LISTED
from storeformat.storage import files, locations
from storeformat.store.layout import INDEX
from storeformat.store.settings import ENTRIES, SEGMENT_SIZE, SLOTS
from udfs.files.verify import CompareIndexFiles, EntrySource, IndexCheck, StagedRows
from udfs.log.staged_files import Readers

REPAIR = "rebuild --only index, then publish"


@dataclass(frozen=True)
class _Head:
    """An index file, ordered by the median of three offsets (one may be wrong); empty files follow the one before."""

    path: str
    header: index_file.IndexHeader
    first_phy_offset: int

    @property
    def order(self) -> tuple[int, bool, int, str]:
        header = self.header
        begin = sorted((header.begin_phy_offset, header.end_phy_offset, self.first_phy_offset))[1]
        return (begin, header.entries == 0 and self.first_phy_offset == 0, header.end_phy_offset, self.path)


@dataclass
class IndexCompared:
    """The index files in the order of their entries, with the findings of each."""

    files: list[tuple[IndexCheck, IndexComparison]]
    sources: tuple[EntrySource, ...]
    unread: int

    @property
    def reach(self) -> int:
        """Commit-log offset of the last correctly indexed record, or -1."""
        return max((one.last_offset for _, one in self.files), default=-1)


def compare_index(run: Verification, *, growing: bool) -> IndexCompared:
    """Compare all index files with the staged entries; ``growing``: the last file may be changing."""
    store, reading = run.store, run.reading
    heads, unread = _read_heads(store, run.verdicts)
    heads.sort(key=lambda head: head.order)
    _judge_names(heads, run.verdicts)
    checks = []
    for number, head in enumerate(heads):
        context = FileContext(
            log=LogExtent(reading.begin, reading.end, run.lost),
            previous_end=heads[number - 1].header.end_timestamp if number else None,
            growing=growing and number == len(heads) - 1,
        )
        checks.append(IndexCheck(head.path, context))
    sources = tuple(
        EntrySource(scan.entries.path, scan.entries.count, scan.dispatched.last_entry)
        for scan in reading.scans
        if scan.entries.count
    )
    task = CompareIndexFiles(store.root, store.settings.number(SLOTS), store.settings.number(ENTRIES), sources)
    comparisons = run.runner.map("compare index files", task, checks)
    if growing and comparisons and comparisons[-1].counts:
        comparisons[-1:] = run.runner.map("look again at the last index file", task, checks[-1:])
    return IndexCompared(list(zip(checks, comparisons, strict=True)), sources, unread)


def _read_heads(store: OpenedStore, verdicts: Verdicts) -> tuple[list[_Head], int]:
    settings = store.settings
    first_entry = index_file.entries_position(settings.number(SLOTS)) + index_file.ENTRY_SIZE
    heads, unread = [], 0
    for entry in files.list_directory(locations.join(store.root, INDEX)) or []:
        path = f"{INDEX}/{entry.name}"
        if entry.is_directory or not index_file.is_index_file_name(entry.name):
            verdicts.differ(Subject(INDEX, path), "extra_file", found="no name of an index file")
        elif entry.size != settings.index_file_size:
            verdicts.differ(Subject(INDEX, path), "wrong_size", expected=settings.index_file_size, found=entry.size)
            unread += 1
        else:
            with files.RangeReader(entry.path) as reader:
                page = reader.read(0, index_file.HEADER_SIZE)
                first = reader.read(first_entry, index_file.ENTRY_SIZE)
            offset = int(index_file.parse_entries(first)["phy_offset"][0])
            heads.append(_Head(path, index_file.parse_header(page), offset))
    return heads, unread


def _judge_names(heads: Sequence[_Head], verdicts: Verdicts) -> None:
    """A broker orders files by name, and its search for a key ends at the first file that begins too early."""
    copies = Counter(head.header for head in heads)  # they are named elsewhere
    filled = [head.path for head in heads if head.header.entries and copies[head.header] == 1]
    in_order = _longest_ascent(filled)
    for number, path in enumerate(filled):
        if number not in in_order:
            verdicts.warn(
                Subject(INDEX, path),
                "index_order",
                "the name is out of order: there are older entries in files with greater names, or newer ones in files "
                "with smaller names (a clock was set back, or files were exchanged); a broker that started since may "
                "not find a key within a time",
                advice=REPAIR,
            )


def _longest_ascent(names: Sequence[str]) -> set[int]:
    ends: list[str] = []
    lengths = []
    for name in names:
        length = bisect_left(ends, name)
        ends[length:] = [name, *ends[length + 1 :]]
        lengths.append(length)
    wanted, chosen = len(ends) - 1, set()
    for number in reversed(range(len(names))):
        if lengths[number] == wanted:
            chosen.add(number)
            wanted -= 1
    return chosen


def judge_index(run: Verification, compared: IndexCompared, dispatched: int | None) -> dict[str, int]:
    """Judge the comparison. ``dispatched``: offset below which all entries must exist, None for the whole log."""
    verdicts = run.verdicts
    for check, one in compared.files:
        verdicts.differ_by(Subject(INDEX, check.path), one.faults, one.counts)
        if one.disordered:
            verdicts.warn(
                Subject(INDEX, check.path),
                "index_order",
                f"{one.disordered} entries come after one of a later message: no broker writes them so, and its search "
                "for the newest messages of a key may not find them",
                advice=REPAIR,
                entries=one.disordered,
            )
    _judge_slot_counts(compared, verdicts)
    with Readers() as readers:
        _Sequence(run, compared, StagedRows(compared.sources, readers)).judge(dispatched)
    _judge_tags(compared, verdicts)
    _judge_ends(compared, verdicts, run.cut)
    return {
        "index_files": len(compared.files),
        "index_entries": sum(one.compared for _, one in compared.files),
    }


@dataclass(frozen=True)
class _OmittedRows:
    """Entries [begin, end) of the log that no file holds; ``with_tags``: those of TAGS count."""

    begin: int
    end: int
    with_tags: bool


def _keys_in(gap: _OmittedRows, rows: Rows) -> tuple[int, list[dict[str, int]]]:
    count, shown = 0, list[dict[str, int]]()
    for begin in range(gap.begin, gap.end, CHUNK):
        block = rows.read(begin, min(begin + CHUNK, gap.end))
        block = block if gap.with_tags else block[block["key_hash"] >= 0]
        shown += as_keys(block[: LISTED - len(shown)])
        count += len(block)
    return count, shown


class _Sequence:
    """Follows the files' entries through those of the log, file by file."""

    def __init__(self, run: Verification, compared: IndexCompared, staged: StagedRows) -> None:
        self._compared = compared
        self._rows = staged.rows
        self._verdicts = run.verdicts
        self._segment_size = run.store.settings.number(SEGMENT_SIZE)
        self._capacity = run.store.settings.number(ENTRIES) - 1
        self._unread = compared.unread
        self._doubled = sum(one.doubled for _, one in compared.files)

    def judge(self, dispatched: int | None) -> None:
        row = 0
        before: IndexComparison | None = None
        for check, one in self._compared.files:
            subject = Subject(INDEX, check.path)
            self._missing_keys(subject, one.missing, one.missing_shown)
            if one.rows_begin < 0:
                continue
            gap = _OmittedRows(row, one.rows_begin, one.first_tag is not None)
            if gap.begin < gap.end:
                self._judge_gap(subject, gap, one, before)
            elif one.rows_begin < row:
                self._judge_overlap(subject, one, row)
            row, before = max(row, one.rows_end), one
        with_tags = before is not None and before.first_tag is not None
        self._judge_rest(_OmittedRows(row, self._rows.total, with_tags), before, dispatched)
        self._verdicts.note_count(self._doubled, "index entries are there twice, as after a crash")

    def _judge_gap(
        self, subject: Subject, gap: _OmittedRows, after: IndexComparison, before: IndexComparison | None
    ) -> None:
        count, shown = _keys_in(gap, self._rows)
        if not count:
            return
        last, first = (int(row["offset"]) for row in self._rows.read(gap.end - 1, gap.end + 1))
        at_segment = first // self._segment_size != last // self._segment_size
        if at_segment and (before is not None or after.first_time_diff == 0):
            begin = int(self._rows.read(gap.begin, gap.begin + 1)["offset"][0])
            self._verdicts.warn(
                subject,
                "index_gap",
                f"messages from offset {begin} to {first} are not indexed: a broker lost this part of the index in a "
                "crash and began again at the start of a segment; queries by key do not find them",
                advice=REPAIR,
                entries=count,
            )
        elif count % self._capacity == 0:
            self._missing_files(gap, count // self._capacity)
        else:
            self._missing_keys(subject, count, shown)

    def _judge_overlap(self, subject: Subject, one: IndexComparison, row: int) -> None:
        rows = self._rows.read(one.rows_begin, min(row, one.rows_end))
        if (rows["key_hash"] < 0).all():
            return  # of TAGS that the file before seemed to lack
        offsets = rows["offset"]
        if len(offsets) and bool((offsets == offsets[0]).all()):
            self._doubled += len(offsets)
        else:
            self._verdicts.differ(subject, "extra_file", found=f"{len(offsets)} entries that another file holds")

    def _judge_rest(self, gap: _OmittedRows, before: IndexComparison | None, dispatched: int | None) -> None:
        stop = gap.end if dispatched is None else min(max(self._rows.find(dispatched), gap.begin), gap.end)
        lagging, _ = _keys_in(_OmittedRows(stop, gap.end, gap.with_tags), self._rows)
        if lagging:
            self._verdicts.note(f"the index lags: {lagging} entries are not made yet")
        gap = _OmittedRows(gap.begin, stop, gap.with_tags)
        count, shown = _keys_in(gap, self._rows)
        if not count:
            return
        if before is None or before.entries >= self._capacity:
            self._missing_files(gap, -(-count // self._capacity))
        else:
            self._missing_keys(Subject(INDEX, self._compared.files[-1][0].path), count, shown)

    def _missing_files(self, gap: _OmittedRows, count: int) -> None:
        begin = int(self._rows.read(gap.begin, gap.begin + 1)["offset"][0])
        absorbed = min(count, self._unread)
        self._unread -= absorbed
        if count > absorbed:
            self._verdicts.differ(
                Subject(INDEX),
                "missing_file",
                expected={"entries": gap.end - gap.begin, "begin_phy_offset": begin},
                count=count - absorbed,
            )

    def _missing_keys(self, subject: Subject, count: int, shown: Sequence[Mapping[str, int]]) -> None:
        for key in shown:
            self._verdicts.differ(subject, "missing_key", expected=key, count=0)
        self._verdicts.count("missing_key", count)


def _judge_slot_counts(compared: IndexCompared, verdicts: Verdicts) -> None:
    """Field hashSlotCount is the used slots, the entries (before 4.7.1), or in between across that upgrade."""
    counted = [one for _, one in compared.files if one.entries and one.used_slots != one.entries]
    by_entry = [number for number, one in enumerate(counted) if one.hash_slot_count == one.entries]
    by_slot = [number for number, one in enumerate(counted) if one.hash_slot_count == one.used_slots]
    for check, one in compared.files:
        if one.hash_slot_count in (one.used_slots, one.entries) or check.context.growing:
            continue
        number = counted.index(one) if one in counted else -1
        upgraded = by_entry and max(by_entry) < number and all(other > number for other in by_slot)
        if upgraded and one.used_slots < one.hash_slot_count < one.entries:
            continue
        verdicts.differ(
            Subject(INDEX, check.path),
            "wrong_header",
            position=int(np.dtype(index_file.HEADER).fields["hash_slot_count"][1]),  # type: ignore[index]
            expected={"hash_slot_count": one.used_slots},
            found={"hash_slot_count": one.hash_slot_count},
        )


def _judge_tags(compared: IndexCompared, verdicts: Verdicts) -> None:
    """Entries of tags may be absent only before the first existing one, from before the upgrade."""
    begun, older = False, 0
    for check, one in compared.files:
        if begun and one.absent_tags:
            verdicts.differ(
                Subject(INDEX, check.path), "missing_key", expected="entries of tags", count=one.absent_tags
            )
        else:
            older += one.absent_tags
        begun = begun or one.first_tag is not None
    verdicts.note_count(older, "tags are not indexed: those files are of a broker before 5.4.0")


def _judge_ends(compared: IndexCompared, verdicts: Verdicts, cut: bool) -> None:
    lost, old = (sum(getattr(one, name) for _, one in compared.files) for name in ("lost", "old"))
    verdicts.note_count(lost, "index entries are of messages that damage took from the log")
    verdicts.note_count(old, "index entries are of messages before the log: retention deleted them, or they are lost")
    beyond = [
        (check, one) for check, one in compared.files if one.beyond or one.end_phy_offset >= check.context.log.end
    ]
    if beyond and cut:
        count = sum(one.beyond for _, one in beyond)
        verdicts.note(f"{count} index entries belong to messages after the part of the log that was read")
        return
    for check, one in beyond:
        verdicts.warn(
            Subject(INDEX, check.path),
            "index_beyond_log",
            f"the index reaches offset {one.end_phy_offset}, past the end of the log at {check.context.log.end}: "
            "no new message before that offset is indexed",
            advice=REPAIR,
            entries=one.beyond,
        )
