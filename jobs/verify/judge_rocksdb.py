"""The database of RocksDB queues against the log: units, ends of queues, and dispatch progress. A broker flushes it
when a buffer is full and when it stops, units and checkpoint together (atomic flush): after a crash everything after
its checkpoint may be missing, and the start restores it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.rebuild.rocksdb_database import batches_of_parts, ends_of_queues, plan_database
from jobs.verify.differences import Subject, Verification
from jobs.verify.judge_queues import judge_lag
from storeformat.queues.queue_check import Finding
from storeformat.queues.rocksdb_check import PairsComparison
from storeformat.queues.topic_filter import TopicFilter, selects
from storeformat.storage import files, locations
from storeformat.storage.rocksdb import CURRENT
from storeformat.store.rocksdb_queues import Queue, RocksDbQueues, StoredEnds, rocksdb_queues_in
from udfs.files.rocksdb_pairs import ComparedPart, ComparePairs, QueueEnds, QueuePart, UnitSlice

_QUEUES_A_TASK = 256
_FURTHEST = (1 << 63) - 1


def judge_rocksdb(run: Verification, topics: Sequence[TopicFilter], *, unclean: bool) -> tuple[Counter[str], int]:
    """Judge the database. Returns counts of what was compared, and the dispatch progress less one."""
    name = run.store.queues_in.database
    directory = locations.join(run.store.root, name)
    plan = plan_database(run.reading)
    slices = [part for part in plan.slices if selects(topics, part.topic, part.queue_id)]
    queues_in_log = {(part.topic, part.queue_id) for part in slices}
    counts = Counter(queues=len(queues_in_log), consume_queue_units=sum(part.count for part in slices))
    if not files.exists(locations.join(directory, CURRENT)):
        if slices or not files.exists(directory):
            run.verdicts.differ(Subject(name, name), Finding("missing_file", expected="a RocksDB database"))
            run.verdicts.counts["missing_unit"] += counts["consume_queue_units"]
        return counts, -1
    with rocksdb_queues_in(directory) as queues:
        dispatched = queues.dispatched()
        ends = queues.ends()
        there = [queue for queue in queues.queues() if selects(topics, *_named(queue))]
        _judge_checkpoint(run, name, dispatched, counts["consume_queue_units"], unclean=unclean)
        limit = (dispatched or 0) if unclean else None
        expected = {(end.topic.encode(), end.queue_id): end for end in ends_of_queues(run.reading, slices)[0]}
        _judge_ends(run, name, expected, ends, queues, dispatched=limit, topics=topics)
    unread = (*run.lost, *([(run.reading.end, _FURTHEST)] if run.cut else []))
    compare = ComparePairs(directory, run.reading.begin, limit, unread)
    found = run.runner.map("compare RocksDB queues", compare, list(_batches(slices, there, ends)))
    if lagging := _judge_units(run, name, found):
        judge_lag(run.store, lagging, dispatched or 0, run.verdicts)
    return counts, (dispatched or 0) - 1


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


def _judge_checkpoint(run: Verification, name: str, dispatched: int | None, units: int, *, unclean: bool) -> None:
    subject = Subject(name, name)
    if dispatched is None:
        if units and not unclean:
            run.verdicts.differ(subject, Finding("wrong_end", expected="how far the log is dispatched"))
    elif dispatched > run.reading.end and not run.cut:
        run.verdicts.differ(subject, Finding("checkpoint_ahead", expected=run.reading.end, found=dispatched))


def _judge_ends(
    run: Verification,
    name: str,
    expected: Mapping[Queue, QueueEnds],
    found: Mapping[Queue, StoredEnds],
    queues: RocksDbQueues,
    *,
    dispatched: int | None,
    topics: Sequence[TopicFilter],
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
        if queue in expected or stored.last is None or not selects(topics, *_named(queue)):
            continue
        if run.reading.begin <= stored.last[0] < run.reading.end and stored.last[1] >= 0 and not _unknown(run, stored):
            run.verdicts.differ(Subject(name, name, *_named(queue)), Finding("wrong_end", found=list(stored.last)))


def _unknown(run: Verification, stored: StoredEnds) -> bool:
    """The last unit's record is in a lost range, or there is no record (0, 0)."""
    offset = stored.last[0] if stored.last else 0
    return offset == 0 or any(begin <= offset < end for begin, end in run.lost)


def _lags(queues: RocksDbQueues, queue: Queue, stored: StoredEnds, end: QueueEnds, dispatched: int | None) -> bool:
    """The queue ends early because its broker died before it dispatched the rest."""
    if dispatched is None or end.last[1] < dispatched:
        return False
    unit = None if stored.last is None else queues.unit(queue, stored.last[1])
    return stored.last is None or (unit is not None and int(unit["phy_offset"][0]) == stored.last[0])


def _judge_units(run: Verification, name: str, found: Sequence[ComparedPart]) -> int:
    totals: Counter[str] = Counter()
    by_queue: dict[Queue, PairsComparison] = {}
    for part in found:
        queue = (part.topic, part.queue_id)
        by_queue[queue] = by_queue.get(queue, PairsComparison()).plus(part.found)
    for queue, compared in by_queue.items():
        totals.update(before_log=compared.before_log, beyond=compared.beyond, lagging=compared.lagging)
        if (first := compared.first) is not None:
            expected, found_ = (values and list(values) for values in (first.expected, first.found))
            shown = Finding(first.cause, 0, first.queue_offset, expected, found_)
            run.verdicts.differ(Subject(name, name, *_named(queue)), shown)
        run.verdicts.counts.update(compared.counts)
    run.verdicts.note_count(totals["before_log"], "units point before the log's start: the broker removes them in time")
    run.verdicts.note_count(totals["beyond"], "units are after the ends of their queues: the broker writes over them")
    return totals["lagging"]
