"""What lies in a store and what its broker.conf says: everything that the rules judge, read once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from jobs.safety.evidence.log_files import LogFiles, read_log_files
from jobs.safety.evidence.log_tail import LogTail, read_tail
from jobs.safety.evidence.recovery import Redispatch, looks_from, redispatch
from storeformat.errors import DependencyMissing, MissingInput, NotAStore
from storeformat.log import dledger
from storeformat.record.decode import DecodeRules
from storeformat.storage import broker_lock, files, local_status, locations, rocksdb
from storeformat.storage.local_status import FileStatus
from storeformat.store import checkpoint
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import NOTHING_SHOWN, BrokerRules, guess_version, rules_of
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.config.config_files import (
    CONFIG,
    CONSUMER_OFFSETS,
    DECODERS,
    LMQ_OFFSETS,
    ConfigFile,
    read_config,
)
from storeformat.store.config.timer_files import TimerFiles, read_timer_files
from storeformat.store.layout import (
    ABORT,
    CHECKPOINT,
    CONSUME_QUEUE,
    LOCK,
    ROCKSDB_QUEUES,
    StoreLayout,
)
from storeformat.store.queue_ends import QueueEnd, queue_ends
from storeformat.store.queue_places import holds_pairs
from storeformat.store.rocksdb_queues import rocksdb_queues_in
from storeformat.store.store_signs import release_signs


@dataclass(frozen=True)
class RocksDb:
    """Which databases of a store hold something: queues in ``consumequeue/`` or on a path of their own, and the
    configuration.
    """

    queues: bool = False
    queues_apart: bool = False
    configuration: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    """Those of the configuration that are there, empty or not."""
    dispatched: int | None = None
    """Up to where the log is dispatched, as the database of queues says; None where it does not, or was not read."""
    unread: str | None = None
    """Why the database of queues could not be read."""
    broken: bool = False
    """Whether that is its own fault, and no broker could open it either."""


@dataclass(frozen=True)
class Evidence:
    """A store as the rules see it. ``now_ms`` is the time of the check; ``live`` says that its lock is held."""

    root: str
    settings: BrokerConf
    rules: BrokerRules
    log: LogFiles
    tail: LogTail
    queues: Mapping[tuple[str, int], QueueEnd]
    configs: Mapping[str, ConfigFile]
    timers: TimerFiles
    rocksdb: RocksDb
    redispatch: Redispatch
    after_crash: bool = False
    live: bool = False
    now_ms: int = 0
    release_reason: str = NOTHING_SHOWN

    @property
    def release_assumed(self) -> bool:
        """Whether neither the command line nor the store says whose rules apply."""
        return self.release_reason == NOTHING_SHOWN

    @property
    def rocksdb_queues(self) -> bool:
        """Whether broker.conf puts queues into RocksDB (MessageStoreConfig#isEnableRocksDBStore)."""
        return self.settings.text("storeType", "default").lower() == "defaultrocksdb"

    @property
    def config_in_databases(self) -> bool:
        """Whether topics, groups and offsets are in databases: with RocksDB queues (5.2.0), or with
        ``configManagerVersion=v2`` (5.3.2).
        """
        return self.rocksdb_queues or self.settings.text("configManagerVersion", "") == "v2"

    @property
    def offsets_file(self) -> ConfigFile:
        """The file of ``config/`` in which this broker keeps committed offsets."""
        return next(self.configs[name] for name in (CONSUMER_OFFSETS, LMQ_OFFSETS) if name in self.configs)

    @cached_property
    def furthest_unit(self) -> int:
        return max((queue.end_offset for queue in self.queues.values() if not queue.ends_in_pre_blank), default=-1)

    @property
    def owner(self) -> FileStatus | None:
        """The directory of the log: its owner is the broker's user."""
        return local_status.status_of(self.log.directories[0])

    def place(self, *parts: str) -> str:
        return locations.join(self.root, *parts)


def gather(root: str, settings: BrokerConf, version: str | None = None, now_ms: int | None = None) -> Evidence:
    """Returns the evidence of a store; raises MissingInput and NotAStore where there is none."""
    root = locations.absolute(root)
    if not locations.is_local(root):
        raise NotAStore("a broker starts on a local disk only", path=root)
    if not files.exists(root):
        raise MissingInput("there is no such store", path=root)
    log = read_log_files(root, settings)
    if all(local_status.status_of(path) is None for path in log.directories):
        raise MissingInput(
            "there is no commit log", path=log.directories[0], advice="--store must be the broker's storePathRootDir"
        )
    page = _checkpoint(root)
    shown, why = guess_version(release_signs(root, _index_sizes(settings)))
    rules, why = rules_of(version or shown), "as given by --broker-version" if version else why
    queues = {(queue.topic, queue.queue_id): queue for queue in queue_ends(root)}
    furthest = max((queue.end_offset for queue in queues.values() if not queue.ends_in_pre_blank), default=-1)
    after_crash = files.exists(locations.join(root, ABORT))
    again = redispatch(log.segments, page or StoreCheckpoint(), rules, settings, furthest, after_crash=after_crash)
    unread = CONSUMER_OFFSETS if settings.flag("enableLmq", default=False) else LMQ_OFFSETS
    segments, met_from = log.segments, looks_from(log.segments, rules, settings, furthest, after_crash=after_crash)
    if log.of_group:
        met_from, again = 0, Redispatch()
        segments = tuple(replace(segment, framing=dledger.ENTRIES) for segment in segments)
    return Evidence(
        root=root,
        settings=settings,
        rules=rules,
        log=log,
        tail=read_tail(segments, furthest, DecodeRules(split_parser=rules.split_parser, as_broker=True), met_from),
        queues=queues,
        configs={name: read_config(root, name) for name in DECODERS if name != unread},
        timers=read_timer_files(root),
        rocksdb=_rocksdb(root, settings),
        redispatch=again,
        after_crash=after_crash,
        live=broker_lock.is_live(locations.join(root, LOCK)),
        now_ms=int(time.time() * 1000) if now_ms is None else now_ms,
        release_reason=why,
    )


_DATABASES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")


def _rocksdb(root: str, settings: BrokerConf) -> RocksDb:
    """Returns what there is of databases, and what that of the queues says where the broker is going to read it."""
    found = RocksDb(
        holds_pairs(locations.join(root, CONSUME_QUEUE)),
        holds_pairs(locations.join(root, ROCKSDB_QUEUES)),
        tuple(name for name in _DATABASES if holds_pairs(locations.join(root, CONFIG, name))),
        tuple(name for name in _DATABASES if files.exists(locations.join(root, CONFIG, name, rocksdb.CURRENT))),
    )
    apart = settings.flag("useSeparateStorePathForRocksdbCQ", default=False)
    read = settings.text("storeType", "default").lower() == "defaultrocksdb"
    if not read or not (found.queues_apart if apart else found.queues):
        return found
    try:
        with rocksdb_queues_in(locations.join(root, ROCKSDB_QUEUES if apart else CONSUME_QUEUE)) as queues:
            return replace(found, dispatched=queues.dispatched() or 0)
    except DependencyMissing as error:
        return replace(found, unread=f"{error}; {error.advice}")
    except (NotAStore, MissingInput) as error:
        return replace(found, unread=str(error), broken=True)


def _checkpoint(root: str) -> StoreCheckpoint | None:
    path = locations.join(root, CHECKPOINT)
    size = files.size_of(path)
    if not size:
        return None
    if size > 1 << 20:
        raise NotAStore("this is not a checkpoint", path=path, found=size, expected=f"{checkpoint.PAGE_SIZE} bytes")
    return checkpoint.parse_checkpoint(files.read_bytes(path))


def _index_sizes(settings: BrokerConf) -> StoreLayout:
    """Returns the layout with the sizes of index files, all that the signs of a release need of a broker.conf."""
    default = StoreLayout()
    return replace(
        default,
        max_hash_slot_num=settings.number("maxHashSlotNum", default.max_hash_slot_num),
        max_index_num=settings.number("maxIndexNum", default.max_index_num),
    )
