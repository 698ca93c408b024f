"""The rebuilt file of committed offsets: one offset for each group and queue, so that no group skips an unread message.

==============================  ======================================================================================
source                          offset
==============================  ======================================================================================
the store's own file, sound     its content; the log adds nothing, unless the file is empty
the file before its tear,       that of the first copy with the queue: the group had read everything before it
``.bak``, replicas
none                            the queue's first message: a retried message proves that the group reads the topic, but
                                not how far; without an offset consumers start at the end by default
==============================  ======================================================================================

No offset exceeds the end of its queue, or new messages would be skipped. Groups of the broker itself that no copy has
are left out: they start at the first message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.consumer_offsets.lag import DATABASE, offsets_in_database, version_of_database
from jobs.consumer_offsets.ranges import QueueRanges, Range, TopicQueue, offsets_at, queue_ranges
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from storeformat.errors import MissingInput, NotAStore, Refused
from storeformat.record.dispatch import RETRY_PREFIX
from storeformat.storage import locations
from storeformat.store.config_files import (
    CONFIG,
    OFFSETS,
    OFFSETS_WITH_LIGHT_GROUPS,
    SYSTEM_GROUPS,
    DataVersion,
    FileState,
    Offsets,
    consumer_offsets_json,
    data_version,
    highest_committed,
    known_groups,
    offsets_before_tear,
    read_config,
    read_offsets,
)
from storeformat.store.layout import QueueStore, holds_pairs, queue_store, rocksdb_queues
from udfs.log.subscriptions import Subscription

BEGIN, TIME = "begin of the queue", "time"


@dataclass(frozen=True)
class ChosenOffset:
    """The offset of a group in a queue; ``found`` is that of the source, ``range`` None if unknown."""

    topic: str
    group: str
    queue_id: int
    offset: int
    source: str
    found: int | None = None
    range: Range | None = None

    @property
    def read_again_at_most(self) -> int | None:
        """Messages from ``offset`` on that the group may have read before; None if unknown."""
        return None if self.range is None else max(self.range[1] - max(self.offset, self.range[0]), 0)

    @property
    def skipped(self) -> int:
        """Uncommitted messages that the group skips, which happens only with a reset to a time."""
        return max(self.offset - self.found, 0) if self.source == TIME and self.found is not None else 0

    def as_row(self) -> dict[str, Any]:
        begin, end = self.range or (None, None)
        return {
            "group": self.group,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "offset": self.offset,
            "source": self.source,
            "found": self.found,
            "begin": begin,
            "end": end,
            "read_again_at_most": self.read_again_at_most,
            "skipped": self.skipped,
        }


def choose(
    copies: Sequence[OffsetsCopy],
    ranges: QueueRanges,
    subscriptions: frozenset[Subscription],
    at: Mapping[TopicQueue, int] | None = None,
) -> list[ChosenOffset]:
    """Choose offsets; ``copies`` by descending trust, ``at`` the offsets of a reset time, which retry topics ignore."""
    sound = bool(copies) and copies[0].is_whole
    copied: dict[tuple[str, str, int], tuple[int, str]] = {}
    for copy in reversed(copies):
        for key, queues in copy.offsets.items():
            copied.update({(*key, queue_id): (found, copy.source) for queue_id, found in queues.items()})
    chosen = []
    for (topic, group, queue_id), (found, source) in copied.items():
        known = ranges.of(topic, queue_id)
        offset = found if known is None else min(found, highest_committed(group, known[1]))
        if offset >= 0:
            chosen.append(ChosenOffset(topic, group, queue_id, offset, source, found, known))
    if not sound or at is not None:
        named = {key for copy in copies for key in copy.offsets}
        for topic, group in named if sound else named | subscriptions:
            for queue_id in [] if group.startswith(SYSTEM_GROUPS) else ranges.queues(topic):
                if (topic, group, queue_id) not in copied:
                    begin, end = ranges.known[topic, queue_id]
                    chosen.append(ChosenOffset(topic, group, queue_id, begin, BEGIN, None, (begin, end)))
    if at is not None:
        chosen = [_at_time(one, at) for one in chosen]
    return sorted(chosen, key=lambda one: (one.topic, one.group, one.queue_id))


def _at_time(one: ChosenOffset, at: Mapping[TopicQueue, int]) -> ChosenOffset:
    if one.group.startswith(SYSTEM_GROUPS) or one.topic.startswith(RETRY_PREFIX) or one.range is None:
        return one
    before = one.offset if one.found is None else one.found
    return replace(one, offset=at.get((one.topic, one.queue_id), one.range[1]), source=TIME, found=before)


@dataclass(frozen=True)
class OffsetsPlan:
    """The offset of each group, and the copies it was chosen from."""

    chosen: tuple[ChosenOffset, ...]
    copies: tuple[OffsetsCopy, ...]
    unknown_groups: tuple[str, ...] = ()
    """Groups that the broker knows, without evidence of what they read."""
    timestamp: int = 0
    into_database: bool = False
    """The broker takes the file into its database of offsets."""
    light_groups: bool = False

    @property
    def is_torn(self) -> bool:
        """What comes after the tear is in no copy."""
        torn = any(copy.content is FileState.TORN for copy in self.copies)
        return torn and not any(copy.is_whole for copy in self.copies)

    @property
    def lost_some(self) -> bool:
        return self.is_torn and any(copy.lost_some for copy in self.copies)

    @property
    def lacks_offsets(self) -> bool:
        """Offsets are lost without evidence; a group that a whole file lacks had none."""
        return self.lost_some or (bool(self.unknown_groups) and not (self.copies and self.copies[0].is_whole))

    @property
    def path(self) -> str:
        return OFFSETS_WITH_LIGHT_GROUPS if self.light_groups else OFFSETS

    def content(self) -> bytes:
        """Content of the file, with a data version above that of every copy."""
        table: dict[tuple[str, str], dict[int, int]] = {}
        for one in self.chosen:
            table.setdefault((one.topic, one.group), {})[one.queue_id] = one.offset
        versions = [copy.version for copy in self.copies if copy.version] or [DataVersion()]
        newest, counter = max(versions), max(version.counter for version in versions)
        version = DataVersion(newest.state_version, counter + 1, max(newest.timestamp, self.timestamp))
        return consumer_offsets_json(table, version, light_groups=self.light_groups)

    def facts(self) -> dict[str, Any]:
        return {
            "consumer_offsets": [one.as_row() for one in self.chosen],
            "consumer_offset_copies": [copy.as_row() for copy in self.copies],
            "read_again_at_most": sum(one.read_again_at_most or 0 for one in self.chosen),
            "groups_without_offsets": list(self.unknown_groups),
            "offsets_torn": self.lost_some,
        }

    def notes(self) -> list[str]:
        found = []
        if self.into_database:
            found.append(
                "the broker takes consumerOffset.json into its database at the next start: 5.3.2 and later do, 5.3.0 "
                "and 5.3.1 with transferOffsetJsonToRocksdb=true, 5.2.0 does not"
            )
        from_copies = [one for one in self.chosen if one.found is not None and one.source != TIME]
        if lowered := sum(one.offset < (one.found or 0) for one in from_copies):
            found.append(f"{lowered} offsets were beyond the ends of their queues, and are set to these ends")
        if skipped := sum(one.skipped for one in self.chosen):
            found.append(f"groups skip {skipped} messages that they had not committed: these are from before the time")
        if self.is_torn:
            found.append(
                "no copy of the offsets is whole: groups and topics after the tear are unknown, and start where their "
                "consumers' ConsumeFromWhere says; a --replica may know them, mqadmin resetOffsetByTime sets them"
            )
        if self.unknown_groups:
            names = ", ".join(self.unknown_groups[:5]) + (" and others" if len(self.unknown_groups) > 5 else "")
            found.append(
                f"nothing shows how far {names} had read, nor which topics: they start where their consumers' "
                "ConsumeFromWhere says; mqadmin resetOffsetByTime sets them"
            )
        return found


def refuse_where_unread(store: OpenedStore) -> None:
    """Refuse if the broker would not read the file: with RocksDB queues, RocksDBConsumerOffsetManager#merge takes it in
    only from 5.3.2 on; ``configManagerVersion=v2`` has another database (ConsumerOffsetManagerV2).
    """
    kept = queues_of(store)
    if store.settings.text("configManagerVersion") == "v2":
        raise Refused(
            "a broker with configManagerVersion=v2 keeps committed offsets in a database, which is not made here",
            path=locations.join(store.root, CONFIG, "rdb"), found="configManagerVersion=v2",
            advice="mqadmin resetOffsetByTime sets groups when it runs",
        )  # fmt: skip
    if kept.in_rocksdb and not store.rules.takes_offsets_file:
        raise Refused(
            "before 5.3 a broker with storeType=defaultRocksDB reads committed offsets from its database alone, which "
            "is not made here",
            path=locations.join(store.root, CONFIG, "consumerOffsets"), found=kept.evidence,
            advice="--queue-store file makes a store for storeType=default, with the offsets of that database",
        )  # fmt: skip


def plan_offsets(
    store: OpenedStore, reading: LogReading, replicas: Sequence[str], time: int | None, *, files_stay: bool
) -> OffsetsPlan:
    """The offsets of all groups; MissingInput without any evidence."""
    copies = read_copies(store, replicas)
    ranges = queue_ranges(store, reading, files_stay=files_stay)
    subscriptions = frozenset[Subscription]().union(*(scan.properties.subscriptions for scan in reading.scans))
    when = None if time is None else offsets_at(reading, ranges, time)
    chosen = choose(copies, ranges, subscriptions, when)
    groups = {one.group for one in chosen}
    with_groups = (read_config(store.root, name).value or {} for name in ("topics.json", "subscriptionGroup.json"))
    unknown = [name for name in known_groups(*with_groups) if name not in groups]
    plan = OffsetsPlan(
        tuple(chosen), tuple(copies), tuple(unknown), reading.last_timestamp,
        into_database=queues_of(store).in_rocksdb, light_groups=with_light_groups(store),
    )  # fmt: skip
    if not chosen and not (copies and copies[0].content is FileState.SOUND):
        raise MissingInput(
            "nothing shows how far any group has read", path=locations.join(store.root, plan.path),
            advice="--replica ROOT takes a slave's offsets; without any, groups start where ConsumeFromWhere says, and "
            "mqadmin resetOffsetByTime sets them when the broker runs",
        )  # fmt: skip
    return plan


@dataclass(frozen=True)
class OffsetsCopy:
    """One copy, named ``source`` in reports; a torn one has the offsets before the tear."""

    source: str
    path: str
    content: FileState
    modified_ms: int = 0
    version: DataVersion | None = None
    offsets: Offsets = field(default_factory=dict)
    lost_some: bool = False  # it is torn, and not just behind a group

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
    return store.queues_in if store.queues_in.evidence else queue_store(store.root, store.settings)


def with_light_groups(store: OpenedStore) -> bool:
    """True if the offsets file includes light groups; a broker with an offsets database takes the other file."""
    return store.settings.flag("enableLmq") and not queues_of(store).in_rocksdb


def read_copies(store: OpenedStore, replicas: Sequence[str] = ()) -> list[OffsetsCopy]:
    """All existing copies, the most trusted first; MissingInput for a replica without any. A slave goes on writing the
    last offsets of a dead master (SlaveSynchronize), so newer means a higher data version, before 5.0.0 a later file.
    """
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
    if holds_pairs(database) and rocksdb_queues(store.root, store.settings):
        offsets, version = offsets_in_database(database), version_of_database(database)
        copies.insert(0, OffsetsCopy("database", database, FileState.SOUND, version=version, offsets=offsets))
    return [copy for copy in copies if copy.content is not FileState.ABSENT]


def _copies_in(root: str, name: str, light: bool) -> list[OffsetsCopy]:
    found, copies = read_offsets(root, enable_lmq=light), []
    for copy, source in ((found.main, name or "file"), (found.backup, f"{name} .bak".strip())):
        is_torn = copy.content is FileState.TORN
        offsets = offsets_before_tear(copy.text) if is_torn else copy.value or {}
        version = data_version(copy.text) if is_torn or copy.content is FileState.SOUND else None
        shown = f"{source}, before its tear" if is_torn else source
        text = copy.text.rstrip("\0 \t\r\n")
        lost = is_torn and not (text.endswith("}") and text.count("{") > text.count("}"))
        copies.append(OffsetsCopy(shown, copy.path, copy.content, copy.modified_ms, version, offsets, lost))
    return copies
