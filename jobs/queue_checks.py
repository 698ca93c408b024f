"""``verify``, the consume queues: which files are compared with what. What it means, ``queue_verdicts`` says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.config import TopicFilter
from jobs.logscan import LogReading
from jobs.opening import OpenedStore
from jobs.planning import QueuesPlan
from jobs.running import Runner
from jobs.verdicts import Place, Verdicts
from storeformat import files
from storeformat.consumequeue import UNIT_SIZE, file_name
from storeformat.layout import CONSUME_QUEUE, is_file_name
from storeformat.message import SCHEDULE_TOPIC
from udfs.build import QueueFile
from udfs.verify import CompareQueueFiles, ExtFile, QueueCheck, QueueFinding

BATCH_CONSUME_QUEUE = "batchconsumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
LMQ_PREFIX = "%LMQ%"
LITE_PREFIX = "%LMQ%$"
_FILES_A_TASK = 256
_BYTES_A_TASK = 64 << 20

Queue = tuple[str, int]


@dataclass
class QueueFiles:
    """One queue: the files that the log makes, those that are there (with their length), and where its units lie."""

    expected: dict[int, QueueFile] = field(default_factory=dict)
    found: dict[int, int] = field(default_factory=dict)
    first: int = 0
    end: int = 0

    @property
    def known(self) -> bool:
        return bool(self.expected)


@dataclass
class QueuesCompared:
    """All queues with what was found in each of their files, by the byte offset that names the file."""

    queues: dict[Queue, QueueFiles]
    findings: dict[Queue, dict[int, QueueFinding]]
    checks: dict[str, QueueCheck]
    task: CompareQueueFiles

    @property
    def reach(self) -> int:
        """Commit-log offset of the last unit that is there as it should be, -1 if none is."""
        return max(
            (one.units.last_present for found in self.findings.values() for one in found.values() if one.units),
            default=-1,
        )


def compare_queues(
    store: OpenedStore,
    reading: LogReading,
    plan: QueuesPlan,
    topics: Sequence[TopicFilter],
    batch_topics: Iterable[str],
    runner: Runner,
    verdicts: Verdicts,
) -> QueuesCompared:
    """Returns the first comparison of all queue files that the log makes or that are there."""
    skipped = set(batch_topics) | {
        entry.name for entry in files.list_directory(files.join(store.root, BATCH_CONSUME_QUEUE)) or []
    }
    queues = _expected_queues(plan, skipped)
    _find_files(store.root, queues, topics, skipped, verdicts)
    if skipped:
        verdicts.note(f"batch consume queues are not verified: {', '.join(sorted(skipped))}")
    task = CompareQueueFiles(
        root=store.root,
        file_size=store.layout.consume_queue_file_size,
        segments=tuple(store.segments),
        decode_rules=store.decode_rules(),
        log_begin=reading.begin,
        log_end=reading.end,
    )
    ext = {
        (topic.name, queue.name): tuple(
            ExtFile(entry.path, int(entry.name), entry.size)
            for entry in files.list_directory(queue.path) or []
            if is_file_name(entry.name) and not entry.is_directory
        )
        for topic in files.list_directory(files.join(store.root, CONSUME_QUEUE_EXT)) or []
        for queue in (files.list_directory(topic.path) or [] if topic.is_directory else [])
        if queue.is_directory
    }
    checks = {
        check.file.path: check
        for queue, those in queues.items()
        for check in _checks(queue, those, task.file_size, ext.get((queue[0], str(queue[1])), ()))
    }
    compared = QueuesCompared(queues, defaultdict(dict), checks, task)
    run_checks(compared, runner, "compare consume queues", task, list(checks.values()))
    return compared


def _expected_queues(plan: QueuesPlan, skipped: set[str]) -> dict[Queue, QueueFiles]:
    queues: dict[Queue, QueueFiles] = defaultdict(QueueFiles)
    for file in plan.files:
        _, topic, queue_id, name = file.path.split("/")
        if topic in skipped:
            continue
        those = queues[topic, int(queue_id)]
        base = int(name) // UNIT_SIZE
        if not those.expected:
            those.first = base + file.pre_blanks
        those.expected[int(name)] = file
        those.end = base + file.pre_blanks + int(file.counts.sum())
    return queues


def _find_files(
    root: str, queues: dict[Queue, QueueFiles], topics: Sequence[TopicFilter], skipped: set[str], verdicts: Verdicts
) -> None:
    """Lists the queue files that are there, as far as they are asked for; what is no queue file is said at once."""
    for topic in files.list_directory(files.join(root, CONSUME_QUEUE)) or []:
        wanted = [item.queue_id for item in topics if item.topic == topic.name]
        if not topic.is_directory or topic.name in skipped or (topics and not wanted):
            continue
        for queue in files.list_directory(topic.path) or []:
            if not (queue.is_directory and queue.name.isascii() and queue.name.isdigit()):
                continue  # as the broker does
            if topics and None not in wanted and int(queue.name) not in wanted:
                continue
            those = queues[topic.name, int(queue.name)]
            for entry in files.list_directory(queue.path) or []:
                if entry.is_directory:
                    continue
                if is_file_name(entry.name):
                    those.found[int(entry.name)] = entry.size
                else:
                    place = queue_place((topic.name, int(queue.name)), entry.name)
                    verdicts.differ(place, "extra_file", found="no name of a consume-queue file")


def queue_place(queue: Queue, name: str | None) -> Place:
    """Returns the place of a queue, or of a file of it."""
    directory = f"{CONSUME_QUEUE}/{queue[0]}/{queue[1]}"
    return Place(CONSUME_QUEUE, directory if name is None else f"{directory}/{name}", *queue)


def _checks(queue: Queue, those: QueueFiles, file_size: int, ext: tuple[ExtFile, ...]) -> Iterable[QueueCheck]:
    per_file = file_size // UNIT_SIZE
    for base in sorted(those.expected.keys() | those.found.keys()):
        path = files.join(CONSUME_QUEUE, queue[0], str(queue[1]), file_name(base // UNIT_SIZE))
        file = those.expected.get(base)
        if file is None:
            if base % file_size:
                continue
            nothing = np.zeros(0, np.int64)
            file = QueueFile(path, 0, (), nothing.astype(np.int32), nothing, nothing, np.zeros(0, bool))
        first, end = those.first - base // UNIT_SIZE, those.end - base // UNIT_SIZE
        yield QueueCheck(
            file,
            begin=min(max(first, 0), per_file) if those.known else 0,
            end=min(max(end, 0), per_file) if those.known else 0,
            schedule=queue[0] == SCHEDULE_TOPIC,
            ext=ext,
        )


def run_checks(
    compared: QueuesCompared, runner: Runner, what: str, task: CompareQueueFiles, checks: Sequence[QueueCheck]
) -> None:
    """Compares files and keeps what is found; what was found of them before is forgotten."""
    group = max(1, min(_FILES_A_TASK, _BYTES_A_TASK // task.file_size))
    batches = [checks[at : at + group] for at in range(0, len(checks), group)]
    for finding in runner.map(what, task, batches):
        _, topic, queue_id, name = finding.path.split("/")
        compared.findings[topic, int(queue_id)][int(name)] = finding
