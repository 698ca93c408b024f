"""A store of RocksDB queues as its broker would answer from it; the log and the index are as in any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from jobs.query.offline_store import OfflineStore, RecordPlaces, bounded
from storeformat.errors import MissingInput
from storeformat.storage import locations
from storeformat.store.rocksdb_queues import Queue, RocksDbQueues, rocksdb_queues_in


@dataclass(frozen=True)
class RocksDbStore(OfflineStore):
    """Queues are looked up in the database; each call opens it again, and sees what a broker has flushed by then."""

    def queues(self) -> AbstractContextManager[RocksDbQueues]:
        """Returns a context with the queues in the database."""
        return rocksdb_queues_in(locations.join(self.store.root, self.store.queues_in.database))

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns first and next queue offset; raises MissingInput where the database has no such queue."""
        with self.queues() as queues:
            return self._range(queues, (topic.encode(), queue_id))

    def _range(self, queues: RocksDbQueues, queue: Queue) -> tuple[int, int]:
        begin, end = queues.range_of(queue, self.min_phy_offset)
        if end == 0:
            path = locations.join(queues.database.path, queue[0].decode(), str(queue[1]))
            raise MissingInput("the store has no such consume queue", path=path, advice="--scan reads the log")
        return begin, end

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        with self.queues() as queues:
            queue = (topic.encode(), queue_id)
            begin, end = self._range(queues, queue)
            unit = queues.unit(queue, queue_offset) if begin <= queue_offset < end else None
            return None if unit is None else (int(unit["phy_offset"][0]), int(unit["size"][0]))

    def offset_by_time(self, topic: str, queue_id: int, time: int, *, upper: bool) -> int:
        """Returns the queue offset of a time, by the boundary asked for."""
        with self.queues() as queues:
            return queues.offset_by_time((topic.encode(), queue_id), time, self.min_phy_offset, upper=upper)

    def queue_ids(self, topic: str) -> list[int]:
        with self.queues() as queues:
            return sorted(queue_id for name, queue_id in queues.ends() if name == topic.encode())

    def topics_with(self, *prefixes: str) -> list[str]:
        with self.queues() as queues:
            names = {name.decode("utf-8", "replace") for name, _ in queues.ends()}
        return sorted(name for name in names if name.startswith(prefixes))

    def units(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[RecordPlaces]:
        queue = (topic.encode(), queue_id)
        with self.queues() as queues:
            first, end = self._range(queues, queue)
            for _, values in queues.units(queue, max(begin, first), end):
                own = values[values["phy_offset"] >= self.min_phy_offset]
                yield from bounded(own["phy_offset"].astype(np.int64), own["size"].astype(np.int64))
