"""From the scans' summaries to the planned files: pure functions on small tables, run in the driver.

Queue files follow from the runs (``consume_queue.place_runs``), index files from prefix sums over the entries: entry
number n of the log is in file n // (max_index_num - 1).

Fillers take disk blocks, unlike holes, so a short log with high queue offsets can need far more space than its own
length: a queue's first file is filled up to its first message, and each lost message between two survivors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.contract.report import size_text
from jobs.log.queue_runs import QueueRuns
from storeformat.arrays import Bools, Int64s, narrow
from storeformat.errors import Refused
from storeformat.index import index_file
from storeformat.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from storeformat.limits import LISTED
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext
from storeformat.queues.batch_consume_queue import UNIT_SIZE as BATCH_UNIT_SIZE
from storeformat.queues.batch_consume_queue import check_file_size
from storeformat.record.dispatch import topic_names
from storeformat.storage import local_status, locations
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from storeformat.store.settings import BATCH_SIZE, ENTRIES, EXT_SIZE, SLOTS, Settings
from udfs.files.build import PlannedExtFile, PlannedIndexFile, PlannedQueueFile, PlannedQueueFiles, queue_file_path
from udfs.log.scan import SplitScan
from udfs.log.staged_files import Slices


@dataclass(frozen=True)
class QueueNote:
    """A peculiarity of a queue's records for the report."""

    topic: str
    queue_id: int
    note: str
    messages: int


@dataclass(frozen=True)
class QueuesPlan:
    """All consume-queue files; ``units`` is their total, ``complete`` is False if units were left out."""

    files: PlannedQueueFiles
    queues: int
    units: int
    complete: bool
    offset_sum: int
    notes: list[QueueNote] = field(default_factory=list)
    created_anew: frozenset[tuple[str, int]] = frozenset()
    """Queues that keep only their last life."""
    ext_files: list[PlannedExtFile] = field(default_factory=list)


def plan_queue_files(table: QueueRuns, scans: Sequence[SplitScan], settings: Settings) -> QueuesPlan:
    """Consume-queue files of the runs of these scans (in log order), with fillers for lost messages."""
    runs = table.runs
    plan = table.plan()
    per_file = consume_queue.plan_files(plan, settings.queue_file_size)
    extended = settings.flag("enableConsumeQueueExt")
    ext_numbers, ext_counts = _ext_numbers(plan, runs.counts, runs.light)
    ext_begins = np.where(runs.light[per_file.run], -1, ext_numbers[per_file.run] + per_file.run_begin)
    keys = plan.queues[per_file.queue]
    made = PlannedQueueFiles(
        directory=CONSUME_QUEUE,
        topics=tuple(table.topics),
        topic_of=(keys >> 32).astype(np.int32),
        queue_ids=(keys & 0xFFFFFFFF).astype(np.int32),
        first_queue_offsets=per_file.first_queue_offset,
        pre_blanks=narrow(per_file.pre_blanks),
        edges=narrow(np.append(per_file.slices_begin, len(per_file.run))),
        slices=_slices(scans, table, per_file),
        fillers=per_file.filler,
        ext_begins=ext_begins if extended else None,
    )
    left_out = table.left_out + int(plan.earlier_lives.sum() + plan.dropped.sum())
    return QueuesPlan(
        files=made,
        queues=int((plan.end > plan.first).sum()),
        units=int(plan.count.sum() + plan.fill.sum()),
        complete=left_out == 0 and not plan.fill.any(),
        offset_sum=sum(scan.units.offset_sum for scan in scans) % (1 << 64),
        notes=list(_queue_notes(plan, table)),
        created_anew=frozenset(map(table.queue_of, plan.queues[plan.earlier_lives > 0].tolist())),
        ext_files=_plan_ext_files(scans, settings, table, plan, ext_numbers, ext_counts) if extended else [],
    )


def _slices(scans: Sequence[SplitScan], table: QueueRuns, cut: consume_queue.FilePlan) -> Slices:
    return Slices(
        sources=tuple(scan.units.path for scan in scans),
        source_of=table.scan_of_run[cut.run].astype(np.int32),
        begins=narrow(table.runs.begins[cut.run] + cut.run_begin),
        counts=narrow(cut.count),
    )


def _ext_numbers(plan: consume_queue.RunPositions, counts: Int64s, light: Bools) -> tuple[Int64s, Int64s]:
    """First ext number and number of ext units of each run; light runs and earlier lives have none."""
    used = np.where(plan.in_last_life & ~light, counts, 0)
    before = np.cumsum(used) - used
    starts = np.searchsorted(plan.queue_of_run, np.arange(len(plan.queues)))
    return before - before[starts][plan.queue_of_run], used


def _plan_ext_files(
    scans: Sequence[SplitScan],
    settings: Settings,
    table: QueueRuns,
    plan: consume_queue.RunPositions,
    numbers: Int64s,
    used: Int64s,
) -> list[PlannedExtFile]:
    file_size = settings.number(EXT_SIZE)
    nothing = np.zeros_like(used)
    there = replace(plan, position=numbers, skip=nothing, count=used, fill=nothing, first=np.zeros_like(plan.first))
    units_per_file = consume_queue_ext.units_per_file(file_size)
    cut = consume_queue.plan_files(there, units_per_file * consume_queue.UNIT_SIZE)
    slices = _slices(scans, table, cut)
    times_of = {scan.units.path: scan.units.times_path for scan in scans}
    made = []
    for number in range(len(cut.queue)):
        queue = table.queue_of(int(plan.queues[cut.queue[number]]))
        part = slices[int(cut.slices_begin[number]) : int(cut.slices_end[number])]
        base = int(cut.first_queue_offset[number]) // units_per_file * file_size
        made.append(
            PlannedExtFile(
                queue_file_path(CONSUME_QUEUE_EXT, queue, base),
                part,
                {source: times_of[source] for source in part.sources},
                closed=number + 1 < len(cut.queue) and cut.queue[number + 1] == cut.queue[number],
            )
        )
    return made


def _queue_notes(plan: consume_queue.RunPositions, table: QueueRuns) -> Iterator[QueueNote]:
    for column, note in (
        (plan.earlier_lives, "the topic was deleted and created again: messages from before that are left out"),
        (
            plan.dropped,
            "queue offsets occur twice, or the topic was created again in what is lost: the first record wins",
        ),
        (plan.shifted, "queue offsets are missing before these messages: as in the broker they move up"),
    ):
        for queue in np.flatnonzero(column)[:LISTED].tolist():
            yield QueueNote(*table.queue_of(int(plan.queues[queue])), note, int(column[queue]))


@dataclass(frozen=True)
class BatchQueuesPlan:
    """All batch-queue files; ``complete`` is False if units were left out."""

    files: list[PlannedQueueFile]
    queues: int
    units: int
    complete: bool
    offset_sum: int


def plan_batch_queue_files(scans: Sequence[SplitScan], settings: Settings) -> BatchQueuesPlan:
    """Batch-queue files of these scans (in log order): each queue's last life, from position 0 on."""
    per_file = check_file_size(settings.number(BATCH_SIZE)) // BATCH_UNIT_SIZE
    queues: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    left_out = 0
    for scan in scans:
        names, runs = topic_names(scan.topics), scan.batches.runs
        columns = (runs.topic_codes, runs.queue_ids, runs.begins, runs.counts, runs.births)
        for code, queue_id, begin, count, birth in zip(*(column.tolist() for column in columns), strict=True):
            slices = queues.setdefault((names[code], queue_id), [])
            if birth:
                left_out += sum(size for _, _, size in slices)
                slices.clear()
            slices.append((scan.batches.path, begin, count))
    made = [
        PlannedQueueFile(BATCH_CONSUME_QUEUE, queue, number * per_file * BATCH_UNIT_SIZE, part)
        for queue, slices in sorted(queues.items())
        for number, part in Slices.of(*slices).cut(per_file)
    ]
    return BatchQueuesPlan(
        files=made,
        queues=len(queues),
        units=sum(file.slices.rows for file in made),
        complete=left_out == 0,
        offset_sum=sum(scan.batches.offset_sum for scan in scans) % (1 << 64),
    )


@dataclass(frozen=True)
class IndexPlan:
    """All index files with their entry counts; ``end_timestamp`` is that of the last entry."""

    files: list[PlannedIndexFile]
    entries: list[int]
    offset_sum: int
    end_timestamp: int


def plan_index_files(
    scans: Sequence[SplitScan], settings: Settings, timestamp_of: Callable[[str, int], int]
) -> IndexPlan:
    """Index files for the entries of these scans (in log order). As in a broker an empty file follows a full last one
    if any record follows, and a log without keys has one empty file; with ``messageIndexEnable=false`` there are none.
    """
    capacity = settings.number(ENTRIES) - 1
    staged = Slices.of(*((scan.entries.path, 0, scan.entries.count) for scan in scans if scan.entries.count))
    parts = [part for _, part in staged.cut(capacity)]
    end_timestamp = timestamp_of(*parts[-1].last) if parts else 0
    last_record = max((scan.dispatched.last for scan in scans), default=-1)
    last_entry = max((scan.dispatched.last_entry for scan in scans), default=-1)
    asked_for_next = not parts or (parts[-1].rows == capacity and last_record > last_entry)
    if settings.writes_index_files and last_record >= 0 and asked_for_next:
        parts.append(staged[:0])  # begins when the one before ended
    names = index_file.index_file_names([timestamp_of(*part.first) if len(part) else end_timestamp for part in parts])
    previous = [None, *(part.last for part in parts if len(part))]
    return IndexPlan(
        files=[
            PlannedIndexFile(locations.join(INDEX, name), part, before)
            for name, part, before in zip(names, parts, previous, strict=False)
        ],
        entries=[part.rows for part in parts],
        offset_sum=sum(scan.entries.offset_sum for scan in scans) % (1 << 64),
        end_timestamp=end_timestamp,
    )


_BLOCK = 4096


def planned_bytes(
    queues: QueuesPlan | None, batches: BatchQueuesPlan | None, index: IndexPlan | None, settings: Settings
) -> int:
    """Upper bound of the bytes on disk of all planned files, in whole blocks."""
    total = 0
    if queues is not None:
        total += _in_blocks((queues.files.pre_blanks + queues.files.counts()) * consume_queue.UNIT_SIZE)
        total += _in_blocks([file.slices.rows * consume_queue_ext.UNIT_SIZE for file in queues.ext_files])
    if batches is not None:
        total += _in_blocks([file.slices.rows * batch_consume_queue.UNIT_SIZE for file in batches.files])
    if index is not None:  # entries fill a block each of the slots as long as there are blocks
        slots = SLOT_SIZE * settings.number(SLOTS)
        total += _in_blocks([HEADER_SIZE + min(count * _BLOCK, slots) + count * ENTRY_SIZE for count in index.entries])
    return total


def _in_blocks(sizes: Iterable[int] | Int64s | Sequence[int]) -> int:
    return int((-(-np.asarray(sizes, np.int64) // _BLOCK)).sum()) * _BLOCK


def size_note(planned: int, log: int) -> str | None:
    """Note for an output that is larger than its log."""
    if planned <= max(log, 1 << 20):
        return None
    return (
        f"the output takes {size_text(planned)}, more than the {size_text(log)} of log that it is made of: its queues "
        "begin at high offsets, or most of their messages are lost; units without a message fill the rest"
    )


def refuse_if_too_large(planned: int, directory: str, log: int) -> None:
    """Refuse if the planned files exceed the free space."""
    free = local_status.free_space(directory)
    if free is not None and free < planned:
        raise Refused(
            "the output does not fit on its disk", path=directory,
            found=f"{size_text(free)} free", expected=f"{size_text(planned)} for {size_text(log)} of log",
            advice="name an --output with more room, rebuild fewer --topic, or go on with --ignore-free-space",
        )  # fmt: skip
