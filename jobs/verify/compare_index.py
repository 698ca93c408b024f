"""The index: in which order its files follow each other, and which entries of the log each is compared with.

Names come from the broker's wall clock, so the order is taken from the offsets in the files. ``judge_index`` says what
the comparison means.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.log.opening import OpenedStore
from jobs.verify.differences import Subject, Verdicts
from jobs.verify.verification import Verification
from storeformat.arrays import LogExtent
from storeformat.index import index_file
from storeformat.index.alignment import FileContext
from storeformat.index.index_check import IndexComparison
from storeformat.storage import files, locations
from storeformat.store.layout import INDEX
from udfs.files.verify import CompareIndexFiles, EntrySource, IndexCheck

REPAIR = "rebuild --only index, then publish"


@dataclass(frozen=True)
class _Head:
    """What orders index files: the start of their entries, by the median of three fields, so that one wrong one does
    not matter; an empty file follows the one at whose end it begins.
    """

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
    """The index files in the order of their entries, and what was found in each."""

    checks: list[IndexCheck]
    comparisons: list[IndexComparison]
    sources: tuple[EntrySource, ...]
    unread: int

    @property
    def reach(self) -> int:
        """Commit-log offset of the last record that is indexed as the log says, -1 if none is."""
        return max((one.last_offset for one in self.comparisons), default=-1)


def compare_index(run: Verification, *, growing: bool) -> IndexCompared:
    """Returns the comparison of all index files with the staged entries of the log. ``growing`` says that the last one
    may be in the middle of a change.
    """
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
            with_tags=store.rules.index_tags,
        )
        checks.append(IndexCheck(head.path, context))
    sources = tuple(
        EntrySource(scan.entries.path, scan.entries.count, scan.dispatched.last_entry)
        for scan in reading.scans
        if scan.entries.count
    )
    task = CompareIndexFiles(store.root, store.layout.max_hash_slot_num, store.layout.max_index_num, sources)
    comparisons = run.runner.map("compare index files", task, checks)
    if growing and comparisons and comparisons[-1].counts:
        comparisons[-1:] = run.runner.map("look again at the last index file", task, checks[-1:])
    return IndexCompared(checks, comparisons, sources, unread)


def _read_heads(store: OpenedStore, verdicts: Verdicts) -> tuple[list[_Head], int]:
    """Returns the heads of the index files, and how many files could not be read as one."""
    layout = store.layout
    first_entry = index_file.entries_position(layout.max_hash_slot_num) + index_file.ENTRY_SIZE
    heads, unread = [], 0
    for entry in files.list_directory(locations.join(store.root, INDEX)) or []:
        path = f"{INDEX}/{entry.name}"
        if entry.is_directory or not index_file.is_index_file_name(entry.name):
            verdicts.differ(Subject(INDEX, path), "extra_file", found="no name of an index file")
        elif entry.size != layout.index_file_size:
            verdicts.differ(Subject(INDEX, path), "wrong_size", expected=layout.index_file_size, found=entry.size)
            unread += 1
        else:
            with files.RangeReader(entry.path) as reader:
                page, first = bytearray(index_file.HEADER_SIZE), bytearray(index_file.ENTRY_SIZE)
                reader.read_into(0, memoryview(page))
                reader.read_into(first_entry, memoryview(first))
            offset = int(index_file.parse_entries(bytes(first))["phy_offset"][0])
            heads.append(_Head(path, index_file.parse_header(bytes(page)), offset))
    return heads, unread


def _judge_names(heads: Sequence[_Head], verdicts: Verdicts) -> None:
    """Says which names are not in the order of the entries: a clock that was set back does that, and so does a hand.

    A broker orders the files by their names when it starts, and its search for a key ends at the first file that begins
    before the asked time.
    """
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
    """Returns the numbers of the most names that ascend as they stand."""
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
