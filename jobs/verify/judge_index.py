"""The index: the order of its files, by the offsets inside since names are wall-clock times, and what differences mean.

Together the files must hold the log's entries once, without a gap; healthy brokers cause three exceptions:

- retention deletes whole files, never the last one: entries older than the log stay, or are gone
- a crash costs the files after the checkpoint, and dispatch begins again at a segment: entries are missing from the
  end of a file up to the start of a segment
- the last record before a crash is indexed twice
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from jobs.log.opening import OpenedStore
from jobs.verify.differences import Subject, Verdicts, Verification
from storeformat.arrays import LogExtent
from storeformat.index import index_file
from storeformat.index.index_check import IndexCheck, IndexComparison, Rows
from storeformat.queues.queue_check import Finding
from storeformat.storage import files, locations
from storeformat.store.layout import INDEX
from storeformat.store.settings import ENTRIES, SEGMENT_SIZE, SLOTS
from udfs.files.verify import CompareIndexFiles
from udfs.log.staged_files import Readers

REPAIR = "rebuild --only index, then publish"


@dataclass(frozen=True)
class IndexCompared:
    """The index files in the order of their entries, with the findings of each."""

    files: list[tuple[IndexCheck, IndexComparison]]
    task: CompareIndexFiles


def compare_index(run: Verification, *, growing: bool) -> IndexCompared:
    """Compare all index files with the staged entries; ``growing``: the last file may be changing."""
    store, reading = run.store, run.reading
    heads = _read_heads(store, run.verdicts)
    # A broker orders files by name, and its search for a key ends at the first file that begins too early.
    for before, path in pairwise(path for path, header in heads.items() if header.entries):
        if path < before:
            run.verdicts.warn(
                Subject(INDEX, path),
                "index_order",
                f"the name is out of order: {before} has older entries and a greater name (a clock was set back, or "
                "files were exchanged); a broker that started since may not find a key within a time",
                advice=REPAIR,
            )
    ends = [None, *(header.end_timestamp for header in heads.values())]
    checks = [IndexCheck(path, end) for path, end in zip(heads, ends, strict=False)]
    checks[-1:] = [replace(check, growing=growing) for check in checks[-1:]]
    sources = tuple((scan.entries.path, scan.entries.count) for scan in reading.scans if scan.entries.count)
    sizes = store.settings.number(SLOTS), store.settings.number(ENTRIES)
    task = CompareIndexFiles(store.root, sizes, sources, LogExtent(reading.begin, reading.end, run.lost))
    comparisons = run.runner.map("compare index files", task, checks)
    if growing and comparisons and comparisons[-1].differences:
        comparisons[-1:] = run.runner.map("look again at the last index file", task, checks[-1:])
    return IndexCompared(list(zip(checks, comparisons, strict=True)), task)


def _read_heads(store: OpenedStore, verdicts: Verdicts) -> dict[str, index_file.IndexHeader]:
    """Headers by path, in the order of the files' entries."""
    settings = store.settings
    first_entry = index_file.entries_position(settings.number(SLOTS)) + index_file.ENTRY_SIZE
    heads = []
    for entry in files.list_directory(locations.join(store.root, INDEX)) or []:
        path = f"{INDEX}/{entry.name}"
        if entry.is_directory or not index_file.is_index_file_name(entry.name):
            verdicts.differ(Subject(INDEX, path), Finding("extra_file", found="no name of an index file"))
        elif entry.size != settings.index_file_size:
            verdicts.differ(Subject(INDEX, path), Finding("wrong_size", 1, None, settings.index_file_size, entry.size))
        else:
            with files.RangeReader(entry.path) as reader:
                header = index_file.parse_header(reader.read(0, index_file.HEADER_SIZE))
                first = index_file.parse_entries(reader.read(first_entry, index_file.ENTRY_SIZE))
            begin, end, first_offset = header.begin_phy_offset, header.end_phy_offset, int(first["phy_offset"][0])
            # The median, because one may be wrong; an empty file follows the one at whose end it begins.
            order = sorted((begin, end, first_offset))[1], header.entries == first_offset == 0, end, path
            heads.append((order, header))
    heads.sort(key=lambda head: head[0])
    return {path: header for (*_, path), header in heads}


def judge_index(run: Verification, compared: IndexCompared, dispatched: int | None) -> dict[str, int]:
    """Judge the comparison. ``dispatched``: offset below which all entries must exist, None for the whole log."""
    verdicts, comparisons = run.verdicts, [one for _, one in compared.files]
    _judge_slot_counts(compared)
    explained = Counter[str]()
    with_tags = False
    for check, one in compared.files:
        if with_tags and (absent := one.explained.pop("tags", 0)):  # from the upgrade on none may be absent
            one.differ("missing_key", absent, None, "entries of tags", None)
        with_tags |= one.with_tags
        explained.update(one.explained)
        verdicts.differ(Subject(INDEX, check.path), *one.differences.values())
    with Readers() as readers:
        explained.update(_judge_sequence(run, compared, compared.task.rows(readers), dispatched))
    for kind, text in (
        ("doubled", "index entries are there twice, as after a crash"),
        ("tags", "tags are not indexed: those files are of a broker before 5.4.0"),
        ("lost", "index entries are of messages that damage took from the log"),
        ("old", "index entries are of messages before the log: retention deleted them, or they are lost"),
    ):
        verdicts.note_count(explained[kind], text)
    reach, end = max((one.header["end_phy_offset"] for one in comparisons), default=-1), compared.task.log.end
    if run.cut:
        text = "index entries belong to messages after the part of the log that was read"
        verdicts.note_count(explained["beyond"], text)
    elif reach >= end:
        verdicts.warn(
            Subject(INDEX, compared.files[-1][0].path),
            "index_beyond_log",
            f"the index reaches offset {reach}, past the end of the log at {end}: no new message before that offset is "
            "indexed",
            advice=REPAIR,
            entries=explained["beyond"],
        )
    return {"index_files": len(comparisons), "index_entries": sum(one.compared for one in comparisons)}


def _judge_sequence(run: Verification, compared: IndexCompared, rows: Rows, dispatched: int | None) -> Counter[str]:
    """Follow the files' entries through those of the log, file by file. Returns what is explained between files."""
    verdicts, segment_size = run.verdicts, run.store.settings.number(SEGMENT_SIZE)
    capacity = run.store.settings.number(ENTRIES) - 1
    explained = Counter[str]()
    row, before, subject = 0, IndexComparison(), Subject(INDEX)
    for check, one in compared.files:
        subject = Subject(INDEX, check.path)
        if one.begin < 0:
            continue
        is_first = before.begin < 0
        gap = IndexComparison(with_tags=one.with_tags and (is_first or before.with_tags))
        gap.miss_all(rows, row, one.begin)
        explained.update(gap.explained)
        missing, again = gap.missing, min(row, one.end) - one.begin
        last, first = rows.read(max(one.begin - 1, 0), one.begin + 1)["offset"][[0, -1]].tolist()
        is_segment_start = first // segment_size != last // segment_size
        if again > 0 and row <= rows.find(first + 1):
            explained["doubled"] += again
        elif again > 0:
            verdicts.differ(subject, Finding("extra_entry", again, found="entries that another file holds"))
        elif missing and is_segment_start and (not is_first or one.first_time_diff == 0):
            verdicts.warn(
                subject,
                "index_gap",
                f"messages before offset {first} are not indexed: a broker lost this part of the index in a crash and "
                "began again at the start of a segment; queries by key do not find them",
                advice=REPAIR,
                entries=missing,
            )
        else:
            _miss(run, subject, gap, missing % capacity == 0)
        row, before = max(row, one.end), one
    stop = rows.total if dispatched is None else max(rows.find(dispatched), row)
    rest, lag = (IndexComparison(with_tags=before.with_tags) for _ in range(2))
    rest.miss_all(rows, row, stop)
    lag.miss_all(rows, stop, rows.total)
    explained.update(rest.explained)
    if lagging := lag.missing:
        verdicts.note(f"the index lags: {lagging} entries are not made yet")
    _miss(run, subject, rest, before.begin < 0 or before.entries >= capacity)
    return explained


def _miss(run: Verification, subject: Subject, gap: IndexComparison, whole_files: bool) -> None:
    missing = gap.missing
    if missing and whole_files:
        count = -(-missing // (run.store.settings.number(ENTRIES) - 1))
        expected = {"entries": missing, "first": gap.differences["missing_key"].expected}
        run.verdicts.differ(Subject(INDEX), Finding("missing_file", count, expected=expected))
    else:
        run.verdicts.differ(subject, *gap.differences.values())


def _judge_slot_counts(compared: IndexCompared) -> None:
    """Field hashSlotCount is the used slots, the entries (before 4.7.1), or in between across that upgrade."""
    counts = [(one.used_slots, one.header["hash_slot_count"], one.entries) for _, one in compared.files]
    by_slot = [used == count < entries for used, count, entries in counts]
    by_entry = [used < count == entries for used, count, entries in counts]
    for number, (check, one) in enumerate(compared.files):
        used, count, entries = counts[number]
        is_upgrade = any(by_entry[:number]) and not any(by_entry[number:]) and not any(by_slot[:number])
        if not (count == entries or check.growing or (used < count < entries and is_upgrade)):
            one.expect_in_header("hash_slot_count", used)
