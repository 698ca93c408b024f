"""Begin and end of each queue: from the log, else from its files, and of BatchCQ topics only from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from storeformat.record.dispatch import LIGHT_PREFIX, topic_names
from storeformat.storage import locations
from storeformat.store.queue_ends import offset_at, queue_ends
from udfs.log.staged_files import Readers
from udfs.log.staged_runs import TIME, times_path

TopicQueue = tuple[str, int]
Range = tuple[int, int]
"""Queue offsets [begin, end)."""


@dataclass(frozen=True)
class QueueRanges:
    """The known ranges; topics in ``unknown``, and light queues, may have more queues."""

    known: Mapping[TopicQueue, Range] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    def of(self, topic: str, queue_id: int) -> Range | None:
        """Range of a queue: (0, 0) for a new one, None if unknown."""
        found = self.known.get((topic, queue_id))
        if found is None and topic not in self.unknown and not topic.startswith(LIGHT_PREFIX):
            return 0, 0
        return found

    def queues(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self.known if name == topic)


def queue_ranges(store: OpenedStore, reading: LogReading, *, files_stay: bool) -> QueueRanges:
    """Ranges of all queues; ``files_stay`` means that the broker will find the store's current queue files."""
    batches = set(store.batch_topics)
    for staged in (scan.staged for scan in reading.scans):
        batches.update(topic_names([staged.topics[code] for code in np.unique(staged.batch_runs.topic_codes).tolist()]))
    found = reading.queue_runs.ranges()
    if locations.is_local(store.root) and not store.queues_in.in_rocksdb:
        for queue in queue_ends(store.root, but=found.keys()):
            if queue.batch or files_stay:
                end = offset_at(queue, reading.end)
                found[queue.topic, queue.queue_id] = (min(offset_at(queue, reading.begin), end), end)
    return QueueRanges(found, frozenset(batches))


def offsets_at(reading: LogReading, ranges: QueueRanges, time: int) -> dict[TopicQueue, int]:
    """First offset of each queue at or after a time, else its end; resetOffsetByTime may miss it after clock steps."""
    found = {queue: end for queue, (_, end) in ranges.known.items()}
    table, runs = reading.queue_runs, reading.queue_runs.runs
    with Readers() as readers:
        for row in np.flatnonzero(table.plan().runs["in_last_life"]).tolist():
            path = times_path(reading.scans[int(table.scan_of_run[row])].staged.units.path)
            times = readers.rows(path, TIME, int(runs.begins[row]), int(runs.counts[row]))
            later = np.flatnonzero(times >= time)
            if len(later):
                queue, offset = table.queue_at(row), max(int(runs.first_queue_offsets[row]) + int(later[0]), 0)
                found[queue] = min(found.get(queue, offset), offset)
    return found
