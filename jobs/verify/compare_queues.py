"""The consume queues: which files are compared with what. ``judge_queues`` judges the result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.rebuild.planning import BatchQueuesPlan, QueuesPlan
from jobs.spark.runner import Runner
from jobs.verify.differences import Subject, Verification
from storeformat.arrays import LogExtent
from storeformat.limits import MAPPED_FILE
from storeformat.message import SCHEDULE_TOPIC
from storeformat.queues.batch_consume_queue import UNIT as BATCH_UNIT
from storeformat.queues.batch_consume_queue import UNIT_SIZE as BATCH_UNIT_SIZE
from storeformat.queues.batch_consume_queue import written_units
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.queues.queue_check import UnitComparison
from storeformat.queues.topic_filter import TopicFilter, selects
from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.storage import files, locations
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, file_name, is_file_name
from storeformat.store.queue_places import queue_directories
from udfs.files.build import PlannedQueueFile
from udfs.files.verify import ComparedQueueFile, CompareQueueFiles, ExtFile, QueueCheck
from udfs.log.staged_files import Slices

LITE_PREFIX = LIGHT_PREFIX + "$"
_FILES_A_TASK = 256
_BYTES_A_TASK = 64 << 20

TopicQueue = tuple[str, int]


@dataclass
class QueueSides:
    """One queue: the files that the log makes, the existing ones with their length, and the range of its units."""

    expected: dict[int, PlannedQueueFile] = field(default_factory=dict)
    found: dict[int, int] = field(default_factory=dict)
    first: int = 0
    end: int = 0

    @property
    def known(self) -> bool:
        return bool(self.expected)


@dataclass
class QueuesCompared:
    """All queues of one kind with the findings of each file, by the byte offset that names it."""

    artefact: str
    unit_size: int
    task: CompareQueueFiles
    queues: dict[TopicQueue, QueueSides] = field(default_factory=lambda: defaultdict(QueueSides))
    findings: dict[TopicQueue, dict[int, ComparedQueueFile]] = field(default_factory=lambda: defaultdict(dict))
    checks: dict[tuple[TopicQueue, int], QueueCheck] = field(default_factory=dict)

    @property
    def reach(self) -> int:
        """Commit-log offset of the last correct unit, or -1."""
        return max((units.last_present for _, _, units in self.units()), default=-1)

    def units(self) -> Iterator[tuple[TopicQueue, int, UnitComparison]]:
        for queue, found in sorted(self.findings.items()):
            for base, one in sorted(found.items()):
                if one.units is not None:
                    yield queue, base, one.units

    def subject(self, queue: TopicQueue, base: int | None = None, name: str | None = None) -> Subject:
        return Subject(self.artefact, self.path(queue, base, name), *queue)

    def path(self, queue: TopicQueue, base: int | None = None, name: str | None = None) -> str:
        named = name if base is None else file_name(base)
        return "/".join([self.artefact, queue[0], str(queue[1]), *([named] if named else [])])


def compare_queues(run: Verification, plan: QueuesPlan, topics: Sequence[TopicFilter]) -> QueuesCompared:
    """Compare all consume-queue files that the log makes or the store has."""
    task = _task(run, run.store.layout.consume_queue_file_size)
    compared = QueuesCompared(CONSUME_QUEUE, UNIT_SIZE, task)
    for file in plan.files:
        those = compared.queues[file.queue]
        begin = file.base // UNIT_SIZE + file.pre_blanks
        if not those.expected:
            those.first = begin
        those.expected[file.base] = file
        those.end = begin + file.slices.rows
    _find_files(run, compared, topics)
    ext = {
        (queue.topic, queue.queue): tuple(ExtFile(entry.path, int(entry.name), entry.size) for entry in queue.files())
        for queue in queue_directories(run.store.root, CONSUME_QUEUE_EXT)
    }
    _compare(compared, ext, run.runner)
    return compared


def compare_batch_queues(run: Verification, plan: BatchQueuesPlan, topics: Sequence[TopicFilter]) -> QueuesCompared:
    """Compare all files of BatchCQ topics. Their units have no gaps; where retention removed the head of the log, the
    store's own units show how many places the deleted messages take.
    """
    task = replace(_task(run, run.store.layout.mapper_file_size_batch_consume_queue), batch_queues=True)
    compared = QueuesCompared(BATCH_CONSUME_QUEUE, BATCH_UNIT_SIZE, task)
    slices: dict[TopicQueue, list[tuple[str, int, int]]] = defaultdict(list)
    for file in plan.files:
        slices[file.queue] += file.slices
        compared.queues[file.queue]
    _find_files(run, compared, topics)
    for queue, parts in slices.items():
        those = compared.queues[queue]
        those.first = _units_of_deleted(compared, queue) if run.reading.begin else 0
        those.end = those.first + sum(count for _, _, count in parts)
        those.expected = {
            number * task.file_size: PlannedQueueFile(BATCH_CONSUME_QUEUE, queue, number * task.file_size, part)
            for number, part in Slices.of(*parts).cut(task.file_size // BATCH_UNIT_SIZE, those.first)
        }
    _compare(compared, {}, run.runner)
    return compared


def _task(run: Verification, file_size: int) -> CompareQueueFiles:
    store, reading = run.store, run.reading
    return CompareQueueFiles(
        root=store.root,
        file_size=file_size,
        segments=tuple(store.segments),
        decode_rules=store.second_rules(),
        log=LogExtent(reading.begin, reading.end, run.lost),
    )


def _find_files(run: Verification, compared: QueuesCompared, topics: Sequence[TopicFilter]) -> None:
    for queue in queue_directories(run.store.root, compared.artefact, {item.topic for item in topics}):
        if queue.queue_id is None or not selects(topics, queue.topic, queue.queue_id):
            continue
        if queue.topic in run.store.compacted_topics:  # which a rebuild leaves out
            continue
        key = (queue.topic, queue.queue_id)
        for entry in queue.entries():
            if entry.is_directory:
                continue
            if is_file_name(entry.name):
                compared.queues[key].found[int(entry.name)] = entry.size
            else:
                subject = compared.subject(key, name=entry.name)
                run.verdicts.differ(subject, "extra_file", found="no name of a consume-queue file")


def _units_of_deleted(compared: QueuesCompared, queue: TopicQueue) -> int:
    """Place of a batch queue's first unit that does not point below the log."""
    task, place = compared.task, 0
    for base, size in sorted(compared.queues[queue].found.items()):
        if size != task.file_size or base % task.file_size:
            continue
        units = np.frombuffer(
            files.read_bytes(locations.join(task.root, compared.path(queue, base)), MAPPED_FILE), BATCH_UNIT
        )
        written = written_units(units)
        alive = np.flatnonzero(units["phy_offset"][:written] >= task.log.begin)
        place = base // BATCH_UNIT_SIZE + (int(alive[0]) if len(alive) else written)
        if len(alive) or written < len(units):
            break
    return place


def _compare(compared: QueuesCompared, ext: Mapping[tuple[str, str], tuple[ExtFile, ...]], runner: Runner) -> None:
    file_size, unit_size = compared.task.file_size, compared.unit_size
    per_file = file_size // unit_size
    for queue, those in compared.queues.items():
        for base in sorted(those.expected.keys() | those.found.keys()):
            file = those.expected.get(base)
            if file is None:
                if base % file_size:
                    continue
                file = PlannedQueueFile(compared.artefact, queue, base, Slices.of())
            first, end = those.first - base // unit_size, those.end - base // unit_size
            compared.checks[queue, base] = QueueCheck(
                file,
                begin=min(max(first, 0), per_file) if those.known else 0,
                end=min(max(end, 0), per_file) if those.known else 0,
                schedule=queue[0] == SCHEDULE_TOPIC,
                ext=ext.get((queue[0], str(queue[1])), ()),
            )
    run_checks(compared, runner, f"compare {compared.artefact}", compared.task, list(compared.checks.values()))


def run_checks(
    compared: QueuesCompared, runner: Runner, what: str, task: CompareQueueFiles, checks: Sequence[QueueCheck]
) -> None:
    """Compare files; new findings replace earlier ones."""
    group = max(1, min(_FILES_A_TASK, _BYTES_A_TASK // task.file_size))
    batches = [checks[at : at + group] for at in range(0, len(checks), group)]
    for finding in runner.map(what, task, batches):
        compared.findings[finding.queue][finding.base] = finding
