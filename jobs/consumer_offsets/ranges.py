"""Where each queue begins and ends, as the log says; and which of its messages is the first at or after a time.

A queue without a message in the log ends where its files do, or at 0 where it has none and begins anew. Where queues of
BatchCQ topics lie only their files tell, and of what lies in RocksDB nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from storeformat.record.dispatch import topic_names
from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.storage import locations
from storeformat.store.queue_ends import offset_at, queue_ends
from udfs.log.staged_files import Readers
from udfs.log.staged_runs import TIME

TopicQueue = tuple[str, int]
Range = tuple[int, int]
"""Queue offsets of the first message, and of the next one to come."""


@dataclass(frozen=True)
class QueueRanges:
    """The ranges that are known; topics in ``unknown``, and light queues, may have more."""

    known: Mapping[TopicQueue, Range] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    def of(self, topic: str, queue_id: int) -> Range | None:
        """Returns the range of a queue: (0, 0) where it has none yet, None where that is not known."""
        found = self.known.get((topic, queue_id))
        if found is None and topic not in self.unknown and not topic.startswith(LIGHT_PREFIX):
            return 0, 0
        return found

    def queues(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self.known if name == topic)


def queue_ranges(store: OpenedStore, reading: LogReading, *, files_stay: bool) -> QueueRanges:
    """Returns the ranges of all queues. ``files_stay`` says that the broker will find the queue files that the store
    has now: without them a queue that has no message in the log begins at 0 again.
    """
    batches = set(store.batch_topics)
    for scan in reading.scans:
        batches.update(topic_names([scan.topics[code] for code in np.unique(scan.batches.runs.topic_codes).tolist()]))
    found = reading.queue_runs.ranges()
    if locations.is_local(store.root) and not store.queues_in.in_rocksdb:
        for queue in queue_ends(store.root, but=found.keys()):
            if queue.batch or files_stay:
                end = offset_at(queue, reading.end)
                found[queue.topic, queue.queue_id] = (min(offset_at(queue, reading.begin), end), end)
    return QueueRanges(found, frozenset(batches))


def offsets_at(reading: LogReading, ranges: QueueRanges, time: int) -> dict[TopicQueue, int]:
    """Returns the offset of the first message of each queue that was stored at or after a time, else its end.
    ``reading`` has staged the store times.

    A broker bisects (resetOffsetByTime), and may pass over messages where its clock was set back; here none is.
    """
    found = {queue: end for queue, (_, end) in ranges.known.items()}
    table, runs = reading.queue_runs, reading.queue_runs.runs
    with Readers() as readers:
        for row in np.flatnonzero(table.plan().in_last_life).tolist():
            path = reading.scans[int(table.scan_of_run[row])].units.times_path
            times = readers.rows(path, TIME, int(runs.begins[row]), int(runs.counts[row]))
            later = np.flatnonzero(times >= time)
            if len(later):
                queue, offset = table.queue_at(row), max(int(runs.first_queue_offsets[row]) + int(later[0]), 0)
                found[queue] = min(found.get(queue, offset), offset)
    return found
