"""The directories of queues in a store: ``ROOT/KIND/TOPIC/QUEUE``, KIND one of ``consumequeue``, ``batchconsumequeue``
and ``consumequeue_ext``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from storeformat.storage import files, locations
from storeformat.store.layout import is_file_name


@dataclass(frozen=True)
class QueueDirectory:
    """One directory; ``queue`` is its name, which is a number where a broker takes it for a queue."""

    topic: str
    queue: str
    path: str

    @property
    def queue_id(self) -> int | None:
        """The queue id, None for a name that a broker passes over (ConsumeQueueStore#loadConsumeQueues)."""
        return int(self.queue) if self.queue.isascii() and self.queue.isdigit() else None

    def entries(self) -> list[files.Entry]:
        """Returns what lies in it, by name."""
        return files.list_directory(self.path) or []

    def files(self) -> list[files.Entry]:
        """Returns the entries with the name of a queue file, by name."""
        return [entry for entry in self.entries() if is_file_name(entry.name) and not entry.is_directory]


def queue_directories(root: str, kind: str, topics: Collection[str] = ()) -> Iterator[QueueDirectory]:
    """Yields the directories of the queues of a kind, by topic and name; without ``topics`` of all."""
    for topic in files.list_directory(locations.join(root, kind)) or []:
        if not topic.is_directory or (topics and topic.name not in topics):
            continue
        for queue in files.list_directory(topic.path) or []:
            if queue.is_directory:
                yield QueueDirectory(topic.name, queue.name, queue.path)
