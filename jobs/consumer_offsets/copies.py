"""Copies of the committed offsets, in the store and in replicas. A slave goes on writing the last offsets of a dead
master (SlaveSynchronize), so newer means a higher data version (5.0.0 and later), only before that a later file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.consumer_offsets.lag import DATABASE, offsets_in_database, version_of_database
from jobs.log.opening import OpenedStore
from storeformat.errors import MissingInput, NotAStore
from storeformat.storage import locations
from storeformat.store.config.config_files import ConfigCopy, FileState, Offsets, read_offsets
from storeformat.store.config.consumer_offsets import DataVersion, data_version, offsets_before_tear
from storeformat.store.queue_places import QueueStore, holds_pairs, queue_store, rocksdb_queues


@dataclass(frozen=True)
class OffsetsCopy:
    """One copy, named ``source`` in reports; a torn one has the offsets before the tear."""

    source: str
    path: str
    content: FileState
    modified_ms: int = 0
    version: DataVersion | None = None
    offsets: Offsets = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Sound and not empty: a broker that started without offsets leaves an empty table."""
        return self.content is FileState.SOUND and bool(self.offsets)

    def as_row(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "path": self.path,
            "content": self.content.value,
            "modified_ms": self.modified_ms or None,
            "version": list(self.version) if self.version else None,
            "groups": len({group for _, group in self.offsets}),
        }


def queues_of(store: OpenedStore) -> QueueStore:
    """Where the store's broker will look for its queues."""
    return store.queues_in if store.queues_in.shown else queue_store(store.root, store.queue_store)


def with_light_groups(store: OpenedStore) -> bool:
    """True if the offsets file includes light groups; a broker with an offsets database takes the other file."""
    return store.layout.enable_lmq and not queues_of(store).in_rocksdb


def read_copies(store: OpenedStore, replicas: Sequence[str] = ()) -> list[OffsetsCopy]:
    """All existing copies, the most trusted first; MissingInput for a replica without any."""
    if not locations.is_local(store.root):
        raise NotAStore("committed offsets can only be read from a local disk", path=store.root)
    light = with_light_groups(store)
    own = _copies_in(store.root, "", light)
    others = own[1:]
    for root in replicas:
        found = _copies_in(locations.absolute(root), f"replica {root}", light)
        if all(copy.content is FileState.ABSENT for copy in found):
            raise MissingInput("this replica has no committed offsets", path=found[0].path)
        others += found
    others.sort(key=lambda copy: (copy.version or DataVersion(), copy.modified_ms), reverse=True)
    copies = [*own[:1], *others]
    database = locations.join(store.root, DATABASE)
    if holds_pairs(database) and rocksdb_queues(store.root, store.queue_store):
        offsets, version = offsets_in_database(database), version_of_database(database)
        copies.insert(0, OffsetsCopy("database", database, FileState.SOUND, version=version, offsets=offsets))
    return [copy for copy in copies if copy.content is not FileState.ABSENT]


def _copies_in(root: str, name: str, light: bool) -> list[OffsetsCopy]:
    found = read_offsets(root, enable_lmq=light)
    return [_read(found.main, name or "file"), _read(found.backup, f"{name} .bak".strip())]


def _read(copy: ConfigCopy, source: str) -> OffsetsCopy:
    offsets, version = copy.value or {}, None
    if copy.content in (FileState.SOUND, FileState.TORN):
        version = data_version(copy.text)
        if copy.content is FileState.TORN:
            offsets, source = offsets_before_tear(copy.text), f"{source}, before its tear"
    return OffsetsCopy(source, copy.path, copy.content, copy.modified_ms, version, offsets)
