"""What the comparison of the consume-queue files means. A killed or running broker may not have dispatched the end of
the log, but dispatches in log order: units may be missing only after the last existing one of any queue. A first pass
finds that offset; files with missing units are compared again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np

from jobs.contract.report import command
from jobs.log.opening import OpenedStore
from jobs.rebuild.planning import QueuesPlan
from jobs.spark.runner import Runner
from jobs.verify.differences import Subject, Verdicts, Verification
from storeformat.arrays import Int64s, LogExtent
from storeformat.limits import LISTED, MAPPED_FILE
from storeformat.message import SCHEDULE_TOPIC
from storeformat.queues.batch_consume_queue import UNIT as BATCH_UNIT
from storeformat.queues.batch_consume_queue import UNIT_SIZE as BATCH_UNIT_SIZE
from storeformat.queues.batch_consume_queue import written_units
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.queues.queue_check import UnitComparison
from storeformat.queues.topic_filter import TopicFilter, selects
from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.config.topic_config import topic_configuration
from storeformat.store.layout import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    LOCK,
    file_name,
    is_file_name,
)
from storeformat.store.queue_places import queue_directories
from storeformat.store.recovery import recovered_from
from storeformat.store.settings import BATCH_SIZE
from udfs.files.build import PlannedQueueFile
from udfs.files.verify import ComparedQueueFile, CompareQueueFiles, ExtFile, QueueCheck
from udfs.log.find_records import FindRecords, RecordsAsked
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
    task = _task(run, run.store.settings.queue_file_size)
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


def compare_batch_queues(run: Verification, plan: QueuesPlan, topics: Sequence[TopicFilter]) -> QueuesCompared:
    """Compare all files of BatchCQ topics. Their units have no gaps; where retention removed the head of the log, the
    store's own units show how many places the deleted messages take.
    """
    task = replace(_task(run, run.store.settings.number(BATCH_SIZE)), batch_queues=True)
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


@dataclass(frozen=True)
class _Judging:
    """The queues of one kind under judgement; ``totals`` are reported once for all of them."""

    run: Verification
    compared: QueuesCompared
    totals: Counter[str]

    @cached_property
    def multi_dispatch(self) -> bool:
        return any(topic.startswith(LIGHT_PREFIX) for topic, _ in self.compared.queues)


def judge_queues(
    run: Verification, compared: QueuesCompared, created_anew: Iterable[TopicQueue], dispatched: int | None
) -> dict[str, int]:
    """Judge the comparison. ``dispatched``: offset below which all units must exist, None for the whole log."""
    if dispatched is not None:
        again = [compared.checks[queue, base] for queue, base, units in compared.units() if units.counts]
        task = replace(compared.task, dispatched=dispatched)
        run_checks(compared, run.runner, "look again at what is missing", task, again)
    judging = _Judging(run, compared, Counter())
    gone = _Deletions(run.store.root, created_anew, compared)
    for queue in sorted(compared.queues):
        those = compared.queues[queue]
        if those.known:
            _judge_missing_files(judging, queue, gone)
        for base in sorted(those.found):
            if base % compared.task.file_size:
                run.verdicts.differ(compared.subject(queue, base), "extra_file", found="name between two files")
                continue
            _judge_file(judging, queue, base)
    _judge_old_units(judging)
    _judge_beyond(run, compared)
    totals = judging.totals
    if totals["lagging"]:
        judge_lag(run.store, totals["lagging"], dispatched or 0, run.verdicts)
    for name, text in _NOTES.items():
        run.verdicts.note_count(totals[name], text)
    return {
        "queues": sum(those.known for those in compared.queues.values()),
        "consume_queue_files": sum(len(those.found) for those in compared.queues.values()),
        "consume_queue_units": totals["compared"],
    }


class _Deletions:
    """Explains queues that the log has and the store lacks by the deletion of their topic."""

    def __init__(self, root: str, created_anew: Iterable[TopicQueue], compared: QueuesCompared) -> None:
        configuration = topic_configuration(root) or {}
        self._configured = set(configuration.get("topicConfigTable", ()))
        """Topics of config/topics.json, if readable."""
        self._present = {topic for (topic, _), those in compared.queues.items() if those.found}
        self._births: dict[str, int] = {}
        for topic, queue_id in created_anew:
            those = compared.queues.get((topic, queue_id))
            if those is not None and those.expected:
                finding = compared.findings[topic, queue_id].get(min(those.expected))
                if finding is not None and finding.first_expected is not None:
                    self._births[topic] = max(self._births.get(topic, -1), finding.first_expected)

    def explain(self, queue: TopicQueue, last_offset: int) -> str | None:
        topic = queue[0]
        if topic.startswith(LITE_PREFIX):
            return "a lite topic, whose queue the broker deletes when its time is over"
        if last_offset < self._births.get(topic, -1):
            return "its topic was deleted and created again, and this queue has not been used since"
        if self._configured and topic not in self._configured and topic not in self._present:
            return "its topic was deleted: config/topics.json does not know it"
        return None


def _judge_missing_files(judging: _Judging, queue: TopicQueue, gone: _Deletions) -> None:
    compared, verdicts = judging.compared, judging.run.verdicts
    those, found, file_size = compared.queues[queue], compared.findings[queue], compared.task.file_size
    missing = [base for base in sorted(those.expected) if base not in those.found and found[base].size is None]
    between = range(0)
    if those.found:
        # Between the oldest file that is there and the first one of the log, the broker's files have no gap either.
        begin, stop = min(those.found), min(those.expected)
        between = range(begin - begin % file_size, stop, file_size)
    if not those.found and not any(finding.size is not None for finding in found.values()):
        last = max((one.last_expected for one in found.values() if one.last_expected is not None), default=-1)
        reason = gone.explain(queue, last)
        if reason is not None:
            verdicts.note(f"{queue[0]}:{queue[1]} is missing: {reason}")
            return
    for base in missing:
        finding = found.get(base)
        units = None if finding is None else finding.units
        if units is not None and not units.counts.get("missing_unit"):
            judging.totals["lagging"] += units.lagging
            continue
        expected = f"{units.counts['missing_unit']} units" if units is not None else "units of deleted messages"
        verdicts.differ(compared.subject(queue, base), "missing_file", expected=expected)
    uncounted = len(between) - sum(base in between for base in those.found)
    for base in islice((base for base in between if base not in those.found), LISTED):
        verdicts.differ(compared.subject(queue, base), "missing_file", expected="units of deleted messages")
        uncounted -= 1
    verdicts.count("missing_file", uncounted)  # a damaged queue offset may make more of them than can be listed


def _judge_file(judging: _Judging, queue: TopicQueue, base: int) -> None:
    compared, verdicts, totals = judging.compared, judging.run.verdicts, judging.totals
    those, finding = compared.queues[queue], compared.findings[queue][base]
    subject = compared.subject(queue, base)
    last = base == max(those.found)
    units = finding.units
    if units is None:
        if finding.size == 0 and last:
            verdicts.warn(
                subject, "empty_file", "the last file is empty: brokers before 5.1.3 do not start with it",
                advice=_repair(queue),
            )  # fmt: skip
        else:
            verdicts.differ(subject, "wrong_size", expected="the length of all others", found=finding.size)
        return
    if not those.known and units.after_end.count - units.after_end.below_log:
        if judging.compared.task.log.lost(units.after_end.phy_offsets).any():
            totals["unproven"] += units.after_end.count
        elif judging.multi_dispatch:
            totals["multi_dispatch"] += 1
        else:
            verdicts.differ(subject, "extra_file", found=f"{units.after_end.count - units.after_end.below_log} units")
        return
    verdicts.differ_by(subject, units.faults, units.counts)
    totals["compared"] += units.compared
    totals["old"] += units.old + (0 if those.known else units.after_end.below_log)
    totals["lagging"] += units.lagging
    totals["ext"] += len(units.ext_places)
    totals["delivery_hashes"] += len(units.delivery_hashes)
    totals["unproven"] += units.unproven
    if last and units.all_zero:
        verdicts.warn(
            subject,
            "zero_file",
            "the last file holds nothing: a broker takes its first unit for a message, and the next message "
            "gets a queue offset that is one too high; 5.0 to 5.4 may not start",
            advice=_repair(queue),
        )
    elif last and units.last_is_pre_blank:
        verdicts.warn(
            subject,
            "pre_blank_end",
            "the queue ends with a pre-blank unit: after a start 4.5 to 4.9 stop dispatching below 2 GiB, 5.x drop new "
            "messages of this queue",
            advice=_repair(queue),
        )


def _repair(queue: TopicQueue) -> str:
    return f"{command('rebuild', f'--topic={queue[0]}:{queue[1]}')}, then publish"


def _judge_old_units(judging: _Judging) -> None:
    """Classify units beyond the queues' ends: remains of a truncation or a deleted topic, or foreign."""
    run, compared, verdicts, totals = judging.run, judging.compared, judging.run.verdicts, judging.totals
    beyond = [
        (queue, base, units.after_end)
        for queue, base, units in compared.units()
        if compared.queues[queue].known and units.after_end.count
    ]
    if not beyond:
        return
    records = _find_records(run, np.unique(np.concatenate([old.phy_offsets for _, _, old in beyond])))
    for queue, base, old in beyond:
        found = compared.findings[queue].values()
        first = min(one.first_expected for one in found if one.first_expected is not None)
        subject, foreign = compared.subject(queue, base), []
        for at, offset, size in zip(old.places.tolist(), old.phy_offsets.tolist(), old.sizes.tolist(), strict=True):
            record = records.get(offset)
            its_own = record is not None and (record[1] == queue or queue[0].startswith(LIGHT_PREFIX))
            of_earlier_life = its_own and offset < first
            if record is not None and record[0] == size and not of_earlier_life:
                foreign.append((at * compared.unit_size, {"phy_offset": offset, "size": size}))
        lost = int(compared.task.log.lost(old.phy_offsets).sum())
        if foreign and base not in compared.queues[queue].expected:
            verdicts.differ(subject, "extra_file", found=f"{len(foreign)} units of messages that lie elsewhere")
        else:
            for position, unit in foreign:
                verdicts.differ(subject, "extra_unit", position=position, found=unit)
        totals["unproven"] += lost
        count = old.count - len(foreign) - lost
        if count:
            taken = f": the next clean start takes the first {old.taken} for messages" if old.taken else ""
            verdicts.warn(
                subject,
                "old_units",
                f"old units follow the queue's end{taken}",
                advice=_repair(queue),
                position=int(old.places[0]) * compared.unit_size,
                units=count,
            )


def _find_records(run: Verification, offsets: Int64s) -> dict[int, tuple[int, TopicQueue]]:
    asked = []
    for scan in run.reading.scans:
        start, end = scan.report.start, scan.report.end
        if start is None:
            continue
        inside = offsets[np.searchsorted(offsets, start) : np.searchsorted(offsets, end)]
        if len(inside):
            asked.append(RecordsAsked(replace(scan.report.split, first_record=start, stop=int(inside[-1]) + 1), inside))
    found = run.runner.map("find the records of old units", FindRecords(run.store.second_rules()), asked)
    return {one.offset: (one.size, (one.topic.decode(errors="replace"), one.queue_id)) for one in found}


def _judge_beyond(run: Verification, compared: QueuesCompared) -> None:
    total = 0
    for queue, base, units in compared.units():
        beyond = units.after_end.beyond_log
        total += beyond
        if beyond and not run.cut:
            run.verdicts.warn(
                compared.subject(queue, base),
                "units_beyond_log",
                "units point past the end of the log: the next start truncates the queue, or takes them for messages "
                "once the log has grown over them",
                advice=_repair(queue),
                units=beyond,
            )
    if total and run.cut:
        run.verdicts.note(f"{total} units belong to messages after the part of the log that was read")


def judge_lag(store: OpenedStore, lagging: int, dispatched: int, verdicts: Verdicts) -> None:
    """Messages without units: recovery dispatches them, from 5.4.0 on only those from the tenth-last segment on."""
    dispatched = max(dispatched, store.segments[0].base)
    verdicts.note(
        f"the queues lag: {lagging} messages from offset {dispatched} on are in the log only; the store was not closed "
        "(there is an abort file), so its next start dispatches them, or it is running"
    )
    begin = recovered_from(store.segments, store.rules, store.settings)
    if dispatched < begin and not is_live(locations.join(store.root, LOCK)):
        verdicts.warn(
            Subject("consumequeue"),
            "lag_beyond_recovery",
            f"messages from offset {dispatched} to {begin} are in no queue, and the next start will not dispatch them: "
            "from 5.4 on it reads at most the last commitLogRecoverMaxNum segments (10); a queue with messages only "
            "before them begins at 0 again",
            advice="do not start the broker: rebuild, then publish --after-crash",
        )


_NOTES = {
    "old": "units are of messages before the log: retention deleted them, or they are lost",
    "ext": "tags codes in consumequeue_ext match the log; the filters' bit maps are not verified",
    "delivery_hashes": "delayed messages have their tags' hash instead of the delivery time: brokers 4.9.2 to 4.9.8 "
    "recover so",
    "unproven": "units belong to messages lost to damage; what they should hold is unknown",
    "multi_dispatch": "files of light queues are not verified without --set enableMultiDispatch=true and --set "
    "enableLmq=true",
}
