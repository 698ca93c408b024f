"""What the comparison of the consume-queue files means. A killed or running broker may not have dispatched the end of
the log, but dispatches in log order: units may be missing only after the last existing one of any queue. A first pass
finds that offset; files with differences are compared again.

The database of RocksDB queues against the log: units, ends of queues, and dispatch progress. A broker flushes it
when a buffer is full and when it stops, units and checkpoint together (atomic flush): after a crash everything after
its checkpoint may be missing, and the start restores it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.contract.report import command
from jobs.rebuild.planning import QueuesPlan
from jobs.rebuild.rocksdb_database import batches_of_parts, ends_of_queues, plan_database
from jobs.spark.runner import Runner
from jobs.verify.differences import Subject, Verification
from storeformat.arrays import leading
from storeformat.errors import MAPPED_FILE
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.queues.queue_check import Finding, Findings
from storeformat.queues.rocksdb_queues import Queue, RocksDbQueues, StoredEnds, rocksdb_queues_in
from storeformat.queues.topic_filter import selects
from storeformat.record.dispatch import LIGHT_PREFIX
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.storage.rocksdb import CURRENT
from storeformat.store.config_files import TOPICS_JSON, read_config
from storeformat.store.layout import BATCH_CONSUME_QUEUE, LOCK, file_name, is_file_name, queue_directories
from storeformat.store.recovery import recovered_from
from udfs.files.build import PlannedQueueFile, queue_file_sizes
from udfs.files.rocksdb_pairs import ComparedPart, ComparePairs, QueueEnds, QueuePart, UnitSlice
from udfs.files.verify import ComparedQueueFile, CompareQueueFiles
from udfs.log.staged_files import Slices

LITE_PREFIX = LIGHT_PREFIX + "$"
_FILES_A_TASK = 256
_BYTES_A_TASK = 64 << 20

TopicQueue = tuple[str, int]


@dataclass
class QueuesCompared:
    """All queues of one kind: the first byte of each file that the log makes, and the results of all, by first byte."""

    artefact: str
    task: CompareQueueFiles
    created_anew: Iterable[TopicQueue]
    planned: dict[TopicQueue, list[int]] = field(default_factory=lambda: defaultdict(list))
    results: dict[TopicQueue, dict[int, ComparedQueueFile]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def reach(self) -> int:
        """Commit-log offset of the last correct unit, or -1."""
        return max((one.units.reach for one in self.all_results()), default=-1)

    def all_results(self) -> list[ComparedQueueFile]:
        return [one for found in self.results.values() for one in found.values()]

    def compare(self, runner: Runner, what: str, planned: Sequence[PlannedQueueFile]) -> None:
        """Compare files; new results replace earlier ones."""
        group = max(1, min(_FILES_A_TASK, _BYTES_A_TASK // self.task.file_size))
        batches = [planned[at : at + group] for at in range(0, len(planned), group)]
        for result in runner.map(what, self.task, batches):
            self.results[result.file.queue][result.file.base] = result

    def subject(self, queue: TopicQueue, name: str) -> Subject:
        return Subject(self.artefact, "/".join([self.artefact, queue[0], str(queue[1]), name]), *queue)


def compare_queues(run: Verification, plan: QueuesPlan) -> QueuesCompared:
    """Compare all files of one kind of queue that the log makes or the store has."""
    artefact = plan.files.directory
    is_batch = artefact == BATCH_CONSUME_QUEUE
    file_size = queue_file_sizes(run.store.settings)[artefact]
    unit = batch_consume_queue.UNIT_SIZE if is_batch else consume_queue.UNIT_SIZE
    staged = [(scan.staged.batches if is_batch else scan.staged.units, scan.report) for scan in run.reading.scans]
    task = CompareQueueFiles(
        run.store.root,
        file_size,
        tuple(run.store.segments),
        replace(run.store.decode_rules(), check_crc=False),  # the scan has checked them
        run.log,
        tuple((units.path, units.count, report.start or 0, report.end) for units, report in staged if units.count),
    )
    compared = QueuesCompared(artefact, task, plan.created_anew)
    compare = list(plan.files)
    for file in compare:
        compared.planned[file.queue].append(file.base)
    for directory in queue_directories(run.store.root, artefact, {item.topic for item in run.topics}):
        if directory.queue_id is None or not selects(run.topics, directory.topic, directory.queue_id):
            continue
        if directory.topic in run.store.compacted_topics:  # which a rebuild leaves out
            continue
        queue = (directory.topic, directory.queue_id)
        planned = compared.planned.get(queue, [])
        for name in [entry.name for entry in directory.entries() if not entry.is_directory]:
            if not is_file_name(name) or int(name) % file_size:
                stray = Finding("extra_file", found="no name of a file of the queue")
                run.verdicts.differ(compared.subject(queue, name), stray)
            elif int(name) not in planned:
                before = file_size // unit if planned and int(name) < planned[0] else 0
                compare.append(PlannedQueueFile(artefact, queue, int(name), Slices.of(), before))
    compared.compare(run.runner, f"compare {artefact}", compare)
    return compared


def first_place(run: Verification, queue: TopicQueue) -> int:
    """Place of a batch queue's first unit that does not point below the log: its units have no queue offset, so only
    the store's own tell how many are of messages that retention took.
    """
    place, file_size = 0, queue_file_sizes(run.store.settings)[BATCH_CONSUME_QUEUE]
    directories = queue_directories(run.store.root, BATCH_CONSUME_QUEUE, {queue[0]}) if run.reading.begin else ()
    for entry in (entry for one in directories if one.queue_id == queue[1] for entry in one.files()):
        if entry.size != file_size or int(entry.name) % file_size:
            continue
        units = batch_consume_queue.parse_units(files.read_bytes(entry.path, MAPPED_FILE))
        deleted = leading(batch_consume_queue.is_valid(units) & (units["phy_offset"] < run.reading.begin))
        place = int(entry.name) // batch_consume_queue.UNIT_SIZE + deleted
        if deleted < len(units):
            break
    return place


def judge_queues(run: Verification, compared: QueuesCompared, dispatched: int | None) -> None:
    """Judge the comparison. ``dispatched``: offset below which all units must exist, None for the whole log."""
    if dispatched is not None:
        compared.task = replace(compared.task, dispatched=dispatched)
        again = [one.file for one in compared.all_results() if one.units.differences]
        compared.compare(run.runner, "look again at what is missing", again)
    totals: Counter[str] = Counter()
    deleted = _deleted(run, compared)
    for queue, results in sorted(compared.results.items()):
        there = [base for base, one in results.items() if one.size is not None]
        if not there and queue in deleted:
            run.verdicts.notes.append(f"{queue[0]}:{queue[1]} is missing: its topic was deleted")
            continue
        for base in sorted(results):
            _judge_file(run, compared, results[base], totals)
        if there and queue in compared.planned:
            # Between the oldest file that is there and the first one of the log, the broker's files have no gap either.
            before = range(min(there), compared.planned[queue][0], compared.task.file_size)
            missing = len(before) - sum(base in before for base in there)
            if missing:
                first = next(base for base in before if base not in results)
                lost = Finding("missing_file", missing, expected="units of deleted messages")
                run.verdicts.differ(compared.subject(queue, file_name(first)), lost)
    if totals["lagging"]:
        judge_lag(run, totals["lagging"], dispatched or 0)
    for name, text in _NOTES.items():
        run.verdicts.note_count(totals[name], text)
    run.compared.update(
        queues=len(compared.planned), consume_queue_files=totals["files"], consume_queue_units=totals["equal"]
    )


def _deleted(run: Verification, compared: QueuesCompared) -> set[TopicQueue]:
    """Queues that may be missing: of lite topics, and of topics that are not configured or were made again since."""
    topics = set(read_config(run.store.root, TOPICS_JSON).value or ())
    if topics:
        topics.update(one.file.queue[0] for one in compared.all_results() if one.size is not None)
    births: dict[str, int] = {}
    for queue in compared.created_anew:
        firsts = [one.first_expected for one in compared.results.get(queue, {}).values()]
        births[queue[0]] = max(births.get(queue[0], -1), min((first for first in firsts if first >= 0), default=-1))
    return {
        (topic, queue_id)
        for (topic, queue_id), results in compared.results.items()
        if max(one.last_expected for one in results.values()) < births.get(topic, -1)
        or (topics and topic not in topics)
        or topic.startswith(LITE_PREFIX)
    }


def _judge_file(run: Verification, compared: QueuesCompared, result: ComparedQueueFile, totals: Counter[str]) -> None:
    file, verdicts = result.file, run.verdicts
    subject = compared.subject(file.queue, file_name(file.base))
    totals["files"] += result.size is not None
    totals.update(result.units.counts)
    for one in result.units.differences:
        if result.size is None:
            verdicts.differ(subject, Finding("missing_file", expected=f"{one.count} units"))
        elif one.cause == "extra_unit" and not file.pre_blanks and not len(file.slices):
            has_light_queues = any(topic.startswith(LIGHT_PREFIX) for topic, _ in compared.results)
            if has_light_queues and file.queue not in compared.planned:
                totals["multi_dispatch"] += 1
            else:
                verdicts.differ(subject, Finding("extra_file", found=f"{one.count} units of messages of the log"))
        else:
            verdicts.differ(subject, one)
    for one in result.units.hazards:
        if one.cause == "units_beyond_log" and run.cut:
            totals["after_cut"] += one.count
        else:
            advice = f"{command('rebuild', f'--topic={file.queue[0]}:{file.queue[1]}')}, then publish"
            what = _HAZARDS[one.cause]
            verdicts.warn(subject, one.cause, what, advice=advice, position=one.position, units=one.count)


def judge_lag(run: Verification, lagging: int, dispatched: int) -> None:
    """Messages without units: recovery dispatches them, from 5.4.0 on only those from the tenth-last segment on."""
    store = run.store
    dispatched = max(dispatched, store.segments[0].base)
    run.verdicts.notes.append(
        f"the queues lag: {lagging} messages from offset {dispatched} on are in the log only; the store was not closed "
        "(there is an abort file), so its next start dispatches them, or it is running"
    )
    begin = recovered_from(store.segments, store.rules, store.settings)
    if dispatched < begin and not is_live(locations.join(store.root, LOCK)):
        run.verdicts.warn(
            Subject("consumequeue"),
            "lag_beyond_recovery",
            f"messages from offset {dispatched} to {begin} are in no queue, and the next start will not dispatch them: "
            "from 5.4 on it reads at most the last commitLogRecoverMaxNum segments (10); a queue with messages only "
            "before them begins at 0 again",
            advice="do not start the broker: rebuild, then publish --after-crash",
        )


_HAZARDS = {
    "old_units": "old units follow the queue's end: the next clean start takes those without a gap for messages",
    "units_beyond_log": "units point past the end of the log: the next start truncates the queue, or takes them for "
    "messages once the log has grown over them",
}

_NOTES = {
    "old": "units are of messages before the log: retention deleted them, or they are lost",
    "ext": "tags codes in consumequeue_ext match the log; the filters' bit maps are not verified",
    "delivery_hashes": "delayed messages have their tags' hash instead of the delivery time: brokers 4.9.2 to 4.9.8 "
    "recover so",
    "delays": "delayed messages have another delivery time than messageDelayLevel gives: it was another one before",
    "unproven": "units belong to messages lost to damage; what they should hold is unknown",
    "multi_dispatch": "files of light queues are not verified without --set enableMultiDispatch=true and --set "
    "enableLmq=true",
    "after_cut": "units belong to messages after the part of the log that was read",
}


_QUEUES_A_TASK = 256
_FURTHEST = (1 << 63) - 1


def judge_rocksdb(run: Verification) -> int:
    """Judge the database. Returns the last dispatched log offset, or -1."""
    name, verdicts = run.store.queues_in.database, run.verdicts
    directory = locations.join(run.store.root, name)
    slices = [part for part in plan_database(run.reading) if selects(run.topics, part.topic, part.queue_id)]
    units = sum(part.count for part in slices)
    run.compared.update(queues=len({(part.topic, part.queue_id) for part in slices}), consume_queue_units=units)
    if not files.exists(locations.join(directory, CURRENT)):
        if slices or not files.exists(directory):
            verdicts.differ(Subject(name, name), Finding("missing_file", expected="a RocksDB database"))
            verdicts.counts["missing_unit"] += units
        return -1
    with rocksdb_queues_in(directory) as queues:
        dispatched = queues.dispatched()
        ends = queues.ends()
        there = [queue for queue in queues.queues() if selects(run.topics, *_named(queue))]
        _judge_checkpoint(run, name, dispatched, units)
        limit = (dispatched or 0) if run.unclean else None
        expected = {(end.topic.encode(), end.queue_id): end for end in ends_of_queues(run.reading, slices)[0]}
        _judge_ends(run, name, expected, ends, queues, limit)
    log = run.log
    if run.cut:
        log = replace(log, damaged=(*log.damaged, (log.end, _FURTHEST)))
    compare = ComparePairs(directory, log, limit)
    found = run.runner.map("compare RocksDB queues", compare, list(_batches(slices, there, ends)))
    if lagging := _judge_units(run, name, found):
        judge_lag(run, lagging, dispatched or 0)
    return (dispatched or 0) - 1


def _named(queue: Queue) -> tuple[str, int]:
    return queue[0].decode("utf-8", "backslashreplace"), queue[1]


def _batches(
    slices: Sequence[UnitSlice], there: Sequence[Queue], ends: Mapping[Queue, StoredEnds]
) -> Iterator[list[QueuePart]]:
    known = {(part.topic.encode(), part.queue_id) for part in slices}
    for batch in batches_of_parts(slices):
        yield [replace(part, last=_last(ends, (part.topic, part.queue_id))) for part in batch]
    others = [QueuePart(*queue, 0, None, (), _last(ends, queue)) for queue in there if queue not in known]
    for at in range(0, len(others), _QUEUES_A_TASK):
        yield others[at : at + _QUEUES_A_TASK]


def _last(ends: Mapping[Queue, StoredEnds], queue: Queue) -> int | None:
    """Last queue offset that a broker reads; -1 if the database has no end of the queue."""
    stored = ends.get(queue, StoredEnds()).last
    return stored[1] if stored else -1


def _judge_checkpoint(run: Verification, name: str, dispatched: int | None, units: int) -> None:
    subject = Subject(name, name)
    if dispatched is None:
        if units and not run.unclean:
            run.verdicts.differ(subject, Finding("wrong_end", expected="how far the log is dispatched"))
    elif dispatched > run.reading.end and not run.cut:
        run.verdicts.differ(subject, Finding("checkpoint_ahead", expected=run.reading.end, found=dispatched))


def _judge_ends(
    run: Verification,
    name: str,
    expected: Mapping[Queue, QueueEnds],
    found: Mapping[Queue, StoredEnds],
    queues: RocksDbQueues,
    dispatched: int | None,
) -> None:
    for queue, end in expected.items():
        stored, subject = found.get(queue, StoredEnds()), Subject(name, name, *_named(queue))
        last = (end.last[1], end.last[0])
        if stored.last != last and not _lags(queues, queue, stored, end, dispatched):
            run.verdicts.differ(subject, Finding("wrong_end", 1, None, list(last), stored.last and list(stored.last)))
        first = stored.first
        if first is not None and first[0] >= run.reading.begin and first[1] > end.first[0]:
            run.verdicts.differ(subject, Finding("wrong_end", expected=[end.first[1], end.first[0]], found=list(first)))
    for queue, stored in found.items():
        if queue in expected or stored.last is None or not selects(run.topics, *_named(queue)):
            continue
        offset, queue_offset = stored.last
        is_known = run.log.begin <= offset < run.log.end and not run.log.lost(np.array([offset]))[0]
        if is_known and offset > 0 and queue_offset >= 0:  # (0, 0) is no record
            run.verdicts.differ(Subject(name, name, *_named(queue)), Finding("wrong_end", found=list(stored.last)))


def _lags(queues: RocksDbQueues, queue: Queue, stored: StoredEnds, end: QueueEnds, dispatched: int | None) -> bool:
    """The queue ends early because its broker died before it dispatched the rest."""
    if dispatched is None or end.last[1] < dispatched:
        return False
    unit = None if stored.last is None else queues.unit(queue, stored.last[1])
    return stored.last is None or (unit is not None and int(unit["phy_offset"][0]) == stored.last[0])


def _judge_units(run: Verification, name: str, found: Sequence[ComparedPart]) -> int:
    totals, differences = Counter[str](), defaultdict[Queue, Findings](Findings)
    for part in found:
        totals.update(part.found.counts)
        differences[part.topic, part.queue_id].add(*part.found.differences)
    for queue, findings in differences.items():
        run.verdicts.differ(Subject(name, name, *_named(queue)), *findings.values())
    run.verdicts.note_count(totals["before_log"], "units point before the log's start: the broker removes them in time")
    run.verdicts.note_count(totals["beyond"], "units are after the ends of their queues: the broker writes over them")
    return totals["lagging"]
