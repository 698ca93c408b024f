"""The file of committed offsets that a rebuild makes, and what its report says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.consumer_offsets.choice import TIME, ChosenOffset, choose
from jobs.consumer_offsets.copies import OffsetsCopy, queues_of, read_copies, with_light_groups
from jobs.consumer_offsets.ranges import offsets_at, queue_ranges
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.safety.evidence.start_settings import StartSettings
from storeformat.errors import MissingInput, Refused
from storeformat.storage import locations
from storeformat.store.config.config_files import CONFIG, FileState, read_config
from storeformat.store.config.consumer_offsets import (
    OFFSETS,
    OFFSETS_WITH_LIGHT_GROUPS,
    SYSTEM_GROUPS,
    DataVersion,
    consumer_offsets_json,
)
from udfs.log.consumption import joined

_GROUPS = "subscriptionGroup.json"
_GROUPS_OF_EVERY_BROKER = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
     "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS", "CID_RMQ_SYS_TRANS"}
)  # fmt: skip


@dataclass(frozen=True)
class OffsetsPlan:
    """Which offset each group gets, and from which copies there was to choose."""

    chosen: tuple[ChosenOffset, ...]
    copies: tuple[OffsetsCopy, ...]
    unknown_groups: tuple[str, ...] = ()
    """Groups that the broker knows, and nothing shows what they read."""
    timestamp: int = 0
    into_database: bool = False
    """Whether the broker takes the file into its database of offsets."""
    light_groups: bool = False
    """Whether it is the file that has those of light groups, too."""

    @property
    def path(self) -> str:
        """The file, below the store."""
        return OFFSETS_WITH_LIGHT_GROUPS if self.light_groups else OFFSETS

    def content(self) -> bytes:
        """Returns the file. Its data version is above that of every copy."""
        table: dict[tuple[str, str], dict[int, int]] = {}
        for one in self.chosen:
            table.setdefault((one.topic, one.group), {})[one.queue_id] = one.offset
        versions = [copy.version for copy in self.copies if copy.version] or [DataVersion()]
        newest, counter = max(versions), max(version.counter for version in versions)
        version = DataVersion(newest.state_version, counter + 1, max(newest.timestamp, self.timestamp))
        return consumer_offsets_json(table, version, light_groups=self.light_groups)

    def facts(self) -> dict[str, Any]:
        """Returns the part of the report that tells each number and its source."""
        return {
            "consumer_offsets": [one.as_row() for one in self.chosen],
            "consumer_offset_copies": [copy.as_row() for copy in self.copies],
            "read_again_at_most": sum(one.read_again_at_most or 0 for one in self.chosen),
            "groups_without_offsets": list(self.unknown_groups),
        }

    def notes(self) -> list[str]:
        """Returns what a person should know before the file is published."""
        found = []
        if self.into_database:
            found.append(
                "the broker takes consumerOffset.json into its database at the next start: 5.3.2 and later do, 5.3.0 "
                "and 5.3.1 with transferOffsetJsonToRocksdb=true, 5.2.0 does not"
            )
        if lowered := [
            one for one in self.chosen if one.found is not None and one.offset < one.found and one.source != TIME
        ]:
            found.append(f"{len(lowered)} offsets were beyond the ends of their queues, and are set to these ends")
        if skipped := sum(one.skipped for one in self.chosen):
            found.append(f"groups skip {skipped} messages that they had not committed: these are from before the time")
        if self.unknown_groups:
            shown = ", ".join(self.unknown_groups[:5]) + (" and others" if len(self.unknown_groups) > 5 else "")
            found.append(
                f"nothing shows how far {shown} had read, nor which topics: they start where their consumers' "
                "ConsumeFromWhere says; mqadmin resetOffsetByTime sets them"
            )
        return found


def refuse_where_unread(store: OpenedStore, settings: StartSettings) -> None:
    """Raises Refused where the broker would not read the file.

    With RocksDB queues it has a database of offsets; RocksDBConsumerOffsetManager#merge of 5.3.2 and later takes the
    file in where the counter of its data version is above that of the database. With ``configManagerVersion=v2`` it
    has another database (ConsumerOffsetManagerV2).
    """
    kept = queues_of(store)
    if settings.text("configManagerVersion", "") == "v2":
        raise Refused(
            "a broker with configManagerVersion=v2 keeps committed offsets in a database, which is not made here",
            path=locations.join(store.root, CONFIG, "rdb"), found="configManagerVersion=v2",
            advice="mqadmin resetOffsetByTime sets groups when it runs",
        )  # fmt: skip
    if kept.kind == "rocksdb" and not store.rules.takes_offsets_file:
        raise Refused(
            "before 5.3 a broker with storeType=defaultRocksDB reads committed offsets from its database alone, which "
            "is not made here",
            path=locations.join(store.root, CONFIG, "consumerOffsets"), found=kept.shown,
            advice="--queue-store file makes a store for storeType=default, with the offsets of that database",
        )  # fmt: skip


def plan_offsets(
    store: OpenedStore, reading: LogReading, replicas: Sequence[str], time: int | None, *, files_stay: bool
) -> OffsetsPlan:
    """Returns the offsets of all groups; raises MissingInput where nothing shows any."""
    copies = read_copies(store, replicas)
    ranges = queue_ranges(store, reading, files_stay=files_stay)
    consumption = joined(scan.properties.consumption for scan in reading.scans)
    when = None if time is None else offsets_at(reading, ranges, time)
    chosen = choose(copies, ranges, consumption, when)
    groups = {one.group for one in chosen} | _GROUPS_OF_EVERY_BROKER
    known = read_config(store.root, _GROUPS).value or {}
    unknown = sorted(name for name in known if name not in groups and not name.startswith(SYSTEM_GROUPS))
    plan = OffsetsPlan(
        tuple(chosen), tuple(copies), tuple(unknown), reading.last_timestamp,
        into_database=queues_of(store).kind == "rocksdb", light_groups=with_light_groups(store),
    )  # fmt: skip
    if not chosen and not (copies and copies[0].content is FileState.SOUND):
        raise MissingInput(
            "nothing shows how far any group has read", path=locations.join(store.root, plan.path),
            advice="--replica ROOT takes a slave's offsets; without any, groups start where ConsumeFromWhere says",
        )  # fmt: skip
    return plan
