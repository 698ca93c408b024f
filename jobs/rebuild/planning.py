"""From the scans' summaries to the planned files. Queue files follow from the runs (``consume_queue.place_runs``),
index files from prefix sums over the entries: entry number n of the log is in file n // (max_index_num - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.recfunctions import append_fields

from jobs.contract.report import size_text
from jobs.log.log_scan import all_runs
from storeformat.arrays import Int64s, Structs, narrow
from storeformat.errors import LISTED, Refused
from storeformat.index import index_file
from storeformat.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext
from storeformat.queues.batch_consume_queue import UNIT_SIZE as BATCH_UNIT_SIZE
from storeformat.queues.batch_consume_queue import check_file_size
from storeformat.queues.queue_runs import QueueRuns
from storeformat.storage import files, locations
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from storeformat.store.settings import BATCH_SIZE, ENTRIES, SLOTS, Settings
from udfs.files.build import PlannedIndexFile, PlannedQueueFiles, queue_file_sizes
from udfs.log.scan import SplitScan
from udfs.log.staged_files import Slices


@dataclass(frozen=True)
class QueuesPlan:
    """All files of one kind of queue; ``offset_sum`` is None if units were left out."""

    files: PlannedQueueFiles
    queues: int
    offset_sum: int | None
    notes: list[dict[str, Any]] = field(default_factory=list)
    """Peculiarities of queues' records: topic, queue_id, note, and the number of messages."""
    created_anew: frozenset[tuple[str, int]] = frozenset()
    """Queues that keep only their last life."""
    ext_files: PlannedQueueFiles | None = None

    @property
    def units(self) -> int:
        return self.files.slices.rows

    def tables(self) -> list[PlannedQueueFiles]:
        return [self.files] if self.ext_files is None else [self.files, self.ext_files]


def plan_queue_files(table: QueueRuns, scans: Sequence[SplitScan], settings: Settings) -> QueuesPlan:
    """Consume-queue files of the runs of these scans (in log order), with fillers for lost messages."""
    places, sources, sizes = table.plan(), [scan.staged.units.path for scan in scans], queue_file_sizes(settings)
    per_file = sizes[CONSUME_QUEUE] // consume_queue.UNIT_SIZE
    files, slices = consume_queue.plan_files(places, per_file, sizes[CONSUME_QUEUE])
    ext_files = None
    if settings.flag("enableConsumeQueueExt"):
        in_ext = places.runs["in_last_life"] & ~table.runs.light
        ext = consume_queue.append_runs(table.keys, np.where(in_ext, table.runs.counts, 0))
        per_file = consume_queue_ext.units_per_file(sizes[CONSUME_QUEUE_EXT])
        in_files = consume_queue.plan_files(ext, per_file, sizes[CONSUME_QUEUE_EXT])
        ext_files = _planned(CONSUME_QUEUE_EXT, table, sources, *in_files)
        run = slices["source"]
        numbers = np.where(table.runs.light[run], -1, ext.runs["position"][run] + slices["begin"])
        slices = append_fields(slices, "ext_number", numbers, usemask=False)
    queues, filled = places.queues, int(places.runs["fill"].sum())
    left_out = table.left_out + int(queues["earlier_lives"].sum() + queues["dropped"].sum())
    return QueuesPlan(
        files=_planned(CONSUME_QUEUE, table, sources, files, slices),
        queues=int((queues["end"] > queues["first"]).sum()),
        offset_sum=None if left_out or filled else sum(scan.staged.units.offset_sum for scan in scans) % (1 << 64),
        notes=list(_queue_notes(queues, table)),
        created_anew=frozenset(map(table.queue_of, queues["key"][queues["earlier_lives"] > 0].tolist())),
        ext_files=ext_files,
    )


def plan_batch_queue_files(
    scans: Sequence[SplitScan], settings: Settings, first_place: Callable[[tuple[str, int]], int] = lambda _queue: 0
) -> QueuesPlan:
    """Batch-queue files of these scans (in log order): each queue's last life, from its first place on."""
    size = check_file_size(settings.number(BATCH_SIZE))
    table = all_runs(scans, of_batches=True)
    keys, counts = table.keys, table.runs.counts
    begins, queue = np.unique(keys, return_index=True, return_inverse=True)[1:]
    np.maximum.at(begins, queue, np.where(table.runs.births, np.arange(len(keys)), 0))
    is_kept = np.arange(len(keys)) >= begins[queue]
    places = consume_queue.append_runs(keys, np.where(is_kept, counts, 0))
    places.queues["first"] = [first_place(table.queue_of(key)) for key in places.queues["key"].tolist()]
    places.runs["position"] += places.queues["first"][places.runs["queue"]]
    in_files = consume_queue.plan_files(places, size // BATCH_UNIT_SIZE, size)
    return QueuesPlan(
        files=_planned(BATCH_CONSUME_QUEUE, table, [scan.staged.batches.path for scan in scans], *in_files),
        queues=len(places.queues),
        offset_sum=sum(scan.staged.batches.offset_sum for scan in scans) % (1 << 64) if is_kept.all() else None,
    )


def _planned(
    directory: str, table: QueueRuns, sources: Sequence[str], files: Structs, slices: Structs
) -> PlannedQueueFiles:
    run = slices["source"].copy()
    slices["begin"] = narrow(table.runs.begins[run] + slices["begin"])
    slices["source"] = table.scan_of_run[run]
    return PlannedQueueFiles(directory, tuple(table.topics), files, Slices(tuple(sources), slices))


def _queue_notes(queues: Structs, table: QueueRuns) -> Iterator[dict[str, Any]]:
    for column, note in (
        ("earlier_lives", "the topic was deleted and created again: messages from before that are left out"),
        ("dropped", "queue offsets occur twice, or the topic was created again in what is lost: the first record wins"),
        ("shifted", "queue offsets are missing before these messages: as in the broker they move up"),
    ):
        for queue in queues[queues[column] > 0][:LISTED]:
            topic, queue_id = table.queue_of(int(queue["key"]))
            yield {"topic": topic, "queue_id": queue_id, "note": note, "messages": int(queue[column])}


@dataclass(frozen=True)
class IndexPlan:
    """All index files; ``end_timestamp`` is that of the last entry."""

    files: list[PlannedIndexFile]
    offset_sum: int
    end_timestamp: int

    def entries(self) -> list[int]:
        return [file.slices.rows for file in self.files]


def plan_index_files(
    scans: Sequence[SplitScan], settings: Settings, timestamp_of: Callable[[str, int], int]
) -> IndexPlan:
    """Index files for the entries of these scans (in log order). As in a broker an empty file follows a full last one
    if any record follows, and a log without keys has one empty file; with ``messageIndexEnable=false`` there are none.
    """
    capacity = settings.number(ENTRIES) - 1
    written = [scan.staged.entries for scan in scans]
    staged = Slices.of(*((entries.path, 0, entries.count) for entries in written if entries.count))
    parts = [part for _, part in staged.cut(capacity)]
    end_timestamp = timestamp_of(*parts[-1].last) if parts else 0
    last_record = max((scan.dispatched.last for scan in scans), default=-1)
    last_entry = max((scan.dispatched.last_entry for scan in scans), default=-1)
    asked_for_next = not parts or (parts[-1].rows == capacity and last_record > last_entry)
    if settings.writes_index_files and last_record >= 0 and asked_for_next:
        parts.append(staged[:0])  # begins when the one before ended
    names = index_file.index_file_names([timestamp_of(*part.first) if len(part) else end_timestamp for part in parts])
    previous = [None, *(part.last for part in parts if len(part))]
    made = [
        PlannedIndexFile(locations.join(INDEX, name), part, before)
        for name, part, before in zip(names, parts, previous, strict=False)
    ]
    return IndexPlan(made, sum(entries.offset_sum for entries in written) % (1 << 64), end_timestamp)


_BLOCK = 4096


def planned_bytes(queues: Iterable[QueuesPlan], index: IndexPlan | None, settings: Settings) -> int:
    """Upper bound of the bytes on disk of all planned files, in whole blocks."""
    sizes = {
        CONSUME_QUEUE: consume_queue.UNIT_SIZE,
        BATCH_CONSUME_QUEUE: batch_consume_queue.UNIT_SIZE,
        CONSUME_QUEUE_EXT: consume_queue_ext.UNIT_SIZE,
    }
    total = 0
    for table in (table for plan in queues for table in plan.tables()):
        total += _in_blocks((table.files["pre_blanks"] + table.counts()) * sizes[table.directory])
    if index is not None:  # entries fill a block each of the slots as long as there are blocks
        slots = SLOT_SIZE * settings.number(SLOTS)
        counts = np.array(index.entries(), np.int64)
        total += _in_blocks(HEADER_SIZE + np.minimum(counts * _BLOCK, slots) + counts * ENTRY_SIZE)
    return total


def _in_blocks(sizes: Int64s) -> int:
    return int((-(-sizes // _BLOCK)).sum()) * _BLOCK


def size_note(planned: int, log: int) -> str | None:
    """Note for an output that is larger than its log: fillers take disk blocks, unlike holes."""
    if planned <= max(log, 1 << 20):
        return None
    return (
        f"the output takes {size_text(planned)}, more than the {size_text(log)} of log that it is made of: its queues "
        "begin at high offsets, or most of their messages are lost; units without a message fill the rest"
    )


def refuse_if_too_large(planned: int, directory: str, log: int) -> None:
    """Refuse if the planned files exceed the free space."""
    free = files.free_space(directory)
    if free is not None and free < planned:
        raise Refused(
            "the output does not fit on its disk", path=directory,
            found=f"{size_text(free)} free", expected=f"{size_text(planned)} for {size_text(log)} of log",
            advice="name an --output with more room, rebuild fewer --topic, or go on with --ignore-free-space",
        )  # fmt: skip
