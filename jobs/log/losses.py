"""Which messages damage took, as far as the queues prove it.

Queue offsets are dense, so between two survivors of a queue exactly those messages are missing whose queue offsets are.
A gap counts only where damaged bytes lie in between that could have held them: brokers of 5.0.0 left gaps of their own,
and a corrupt queue offset must not ask for billions of fillers. Nor does a gap count that only a record makes that came
from another queue: nothing checks a topic or a queue id either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.log.queue_runs import QueueRuns, all_runs
from storeformat import message as m
from storeformat.arrays import Bools, Int64s
from storeformat.log.record_ref import RecordRef
from storeformat.record.dispatch import topic_names
from udfs.scan import SplitScan

MOST_ROWS = 1_000


@dataclass(frozen=True)
class Loss:
    """``messages`` of a queue that are gone, from ``first_queue_offset`` on (None for messages that have no place in
    it); they lay in [begin, end) of the log.
    """

    topic: str
    queue_id: int
    first_queue_offset: int | None
    messages: int
    begin: int
    end: int

    def as_row(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True)
class Losses:
    """All losses, and for the plan of the queues: which runs (in the order of ``QueueRuns``) have fillers before them,
    and the queue offsets of runs, put right where damage changed one.
    """

    rows: list[Loss] = field(default_factory=list)
    unexplained: int = 0
    """Damaged ranges that held at least one record each, of which no queue knows."""
    after_damage: Bools | None = None
    begins_anew: Bools | None = None
    """Those of them whose fillers are the beginning of a topic that was created anew."""
    first_queue_offsets: Int64s | None = None

    @property
    def messages(self) -> int:
        """Messages that are proven to be lost."""
        return sum(row.messages for row in self.rows)

    def facts(self) -> dict[str, object]:
        """Returns the part of the report that tells of lost messages."""
        return {
            "lost_messages": self.messages,
            "lost_messages_at_least": self.messages + self.unexplained,
            "losses": [row.as_row() for row in self.rows[:MOST_ROWS]],
        }


@dataclass(frozen=True)
class DamagedBytes:
    """Sorted damaged ranges [begin, end); ``held_records`` says of which it is certain that a record lay there."""

    begins: Int64s
    ends: Int64s
    held_records: Bools

    @staticmethod
    def of(ranges: Sequence[tuple[int, int, bool]]) -> DamagedBytes:
        """Returns the ranges (begin, end, held a record) in order."""
        table = sorted(ranges)
        return DamagedBytes(
            np.array([begin for begin, _, _ in table], np.int64),
            np.array([end for _, end, _ in table], np.int64),
            np.array([held for _, _, held in table], bool),
        )

    def between(self, after: int, before: int) -> slice:
        """Returns which ranges begin in the open interval (after, before)."""
        low, high = np.searchsorted(self.begins, [after + 1, before])
        return slice(int(low), max(int(low), int(high)))


def find_losses(
    scans: Sequence[SplitScan], damaged: DamagedBytes, lost_records: Sequence[RecordRef], *, whole: bool
) -> Losses:
    """Returns what is lost, from the runs of all scans in log order and the heads of lost records that are sound.

    A foreign record that takes just the next place after its queue's end is no copy that a broker left, but a message
    with a damaged PHYSICALOFFSET.

    ``whole`` says that every queue begins at 0 in this log.
    """
    if not len(damaged.begins):
        return Losses()
    table = all_runs(scans)
    after_damage, begins_anew = np.zeros(len(table.keys), bool), np.zeros(len(table.keys), bool)
    firsts = table.runs.first_queue_offsets.copy()
    explained = np.zeros(len(damaged.begins), bool)
    rows: list[Loss] = []
    ends: dict[int, int] = {}
    for gap in _gaps(table, damaged, firsts, ends, whole=whole):
        after_damage[gap.run] = True
        begins_anew[gap.run] = gap.begins_anew
        explained[gap.ranges] = True
        rows.append(_loss(table.names, table.keys[gap.run], gap.first, gap.count, damaged, gap.ranges))
    codes = {name: code for code, name in enumerate(table.names)}
    named = [*lost_records, *_last_of_their_queues(scans, codes, ends)]
    rows += _named_losses(named, codes, rows, ends, damaged, explained)
    unexplained = int((damaged.held_records & ~explained).sum())
    return Losses(rows, unexplained, after_damage, begins_anew, firsts)


@dataclass(frozen=True)
class _Gap:
    """``count`` queue offsets from ``first`` on are missing before a run; the damage lies in ``proven_ranges``."""

    run: int
    first: int
    count: int
    ranges: slice
    begins_anew: bool = False


def _gaps(
    table: QueueRuns, damaged: DamagedBytes, firsts: Int64s, ends: dict[int, int], *, whole: bool
) -> Iterator[_Gap]:
    """Yields the gaps of all queues; puts right ``firsts`` and fills ``ends`` with the next queue offset of each."""
    keys, offsets, counts = table.keys.tolist(), firsts.tolist(), table.runs.counts.tolist()
    places, last_places = table.runs.first_offsets.tolist(), table.runs.last_offsets.tolist()
    last_place = -1
    strays = set(np.flatnonzero(_are_of_other_queues(table)).tolist()) if whole else set()
    for run, (key, given, count, place) in enumerate(zip(keys, offsets, counts, places, strict=True)):
        if run in strays:
            ends[key] = given + count
            continue
        first = given
        if key not in ends:
            ends[key], last_place = (0 if whole or first == 0 else first), -1
        expected = ends[key]
        missing = first - expected
        following = offsets[run + 1] if run + 1 < len(keys) and keys[run + 1] == key else None
        if missing > 0 and following is not None and expected + count <= following < first + count:
            firsts[run], first, missing = expected, expected, 0  # the next run shows that this offset is corrupt
        if missing > 0 and 0 < expected == following:
            last_place = last_places[run]
            continue  # the queue goes on without it: it came from another one
        ranges = slice(0) if first == expected else damaged.between(last_place, place)
        room = int((damaged.ends[ranges] - damaged.begins[ranges]).sum()) // m.MIN_RECORD_SIZE if ranges.stop else 0
        anew = 0 < first <= min(room, expected - 1) and _goes_on(first + count, count, following, expected)
        if anew:
            yield _Gap(run, 0, first, ranges, begins_anew=True)
        elif 0 < missing <= room:
            yield _Gap(run, expected, missing, ranges)
        ends[key] = first + count if anew or first == 0 else max(expected, first + count)
        last_place = last_places[run]


def _are_of_other_queues(table: QueueRuns) -> Bools:
    """Returns which runs are the only record of their queue, in a topic that has no other, or of a topic of which
    another queue misses just this record at this place of the log: its topic or its queue id is damaged.
    """
    keys, runs = table.keys, table.runs
    _, queue_of_run = np.unique(keys, return_inverse=True)
    in_queue = np.bincount(queue_of_run, weights=runs.counts)[queue_of_run]
    in_topic = np.bincount(keys >> 32, weights=runs.counts)[keys >> 32]
    ends = runs.first_queue_offsets + runs.counts
    before = np.flatnonzero((keys[1:] == keys[:-1]) & (runs.first_queue_offsets[1:] == ends[:-1] + 1))
    before = before[np.argsort(ends[before], kind="stable")]
    missing = ends[before]
    found = np.zeros(len(keys), bool)
    for run in np.flatnonzero((in_queue == 1) & (runs.first_queue_offsets > 0)).tolist():
        number, place = runs.first_queue_offsets[run], runs.first_offsets[run]
        holes = before[slice(*np.searchsorted(missing, [number, number + 1]))]
        holes = holes[(runs.last_offsets[holes] < place) & (place < runs.first_offsets[holes + 1])]
        holes = holes[(in_topic[run] == 1) | (keys[holes] >> 32 == keys[run] >> 32)]
        found[run] = len(holes) > 0
    return found


def _goes_on(end: int, count: int, following: int | None, expected: int) -> bool:
    """Returns whether a queue that went back goes on from there: then its topic was created anew, and the messages of
    its new life up to here are lost. A single record with an old queue offset has a corrupt one, or nobody can tell.
    """
    return count > 1 if following is None else end <= following < max(expected, end + 1)


def _loss(names: Sequence[str], key: int, first: int | None, count: int, damaged: DamagedBytes, ranges: slice) -> Loss:
    begin, end = int(damaged.begins[ranges][0]), int(damaged.ends[ranges][-1])
    return Loss(names[int(key) >> 32], int(key) & 0xFFFFFFFF, first, count, begin, end)


def _named_losses(
    records: Sequence[RecordRef],
    codes: Mapping[str, int],
    gaps: Sequence[Loss],
    ends: dict[int, int],
    damaged: DamagedBytes,
    explained: Bools,
) -> Iterator[Loss]:
    """Yields the lost records that name themselves and that no gap counts: behind the last survivor of their queue, or
    without a place in it.
    """
    for record in records:
        (topic,) = topic_names([record.topic])
        number = damaged.between(record.offset - 1, record.offset + 1).start
        mine = [gap for gap in gaps if (gap.topic, gap.queue_id) == (topic, record.queue_id)]
        if any(gap.first_queue_offset is not None and 0 <= record.queue_offset - gap.first_queue_offset < gap.messages
               for gap in mine):  # fmt: skip
            continue
        end = ends.get((codes[topic] << 32) | record.queue_id, 0) if topic in codes else 0
        if record.queued and record.queue_offset < end and explained[number]:
            continue  # its queue offset is damaged too, and it is one of those that a queue misses
        explained[number] = True
        place = record.queue_offset if record.queued and record.queue_offset >= end else None
        yield Loss(topic, record.queue_id, place, 1, record.offset, int(damaged.ends[number]))


def _last_of_their_queues(
    scans: Sequence[SplitScan], codes: Mapping[str, int], ends: Mapping[int, int]
) -> Iterator[RecordRef]:
    """Yields the foreign records that go on where their queues end."""
    following = dict(ends)
    for foreign in (foreign for scan in scans for foreign in scan.foreign_refs):
        (topic,) = topic_names([foreign.topic])
        key = (codes[topic] << 32) | foreign.queue_id if topic in codes else -1
        if foreign.queued and following.get(key) == foreign.queue_offset:
            following[key] += 1
            yield foreign
