"""A stopped store as its next start will find it: everything that the rules judge, read once."""

from __future__ import annotations

import configparser
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from typing import Any

from jobs.contract import report
from jobs.contract.report import reason_lines
from storeformat.errors import DependencyMissing, MissingInput, NotAStore
from storeformat.log.log_tail import LogTail, read_tail
from storeformat.message import MAX_HEAD_SIZE
from storeformat.queues.rocksdb_queues import StoredEnds, rocksdb_queues_in
from storeformat.record.decode import DecodeRules, store_timestamp_at
from storeformat.storage import files, locations, rocksdb
from storeformat.store import queue_ends
from storeformat.store.checkpoint import PAGE_SIZE, StoreCheckpoint, parse_checkpoint
from storeformat.store.config_files import CONFIG, CONSUMER_OFFSETS, LMQ_OFFSETS, ConfigFile
from storeformat.store.layout import ABORT, CHECKPOINT, CONSUME_QUEUE, ROCKSDB_QUEUES, holds_pairs
from storeformat.store.queue_ends import QueueEnd, Replayed, replayed
from storeformat.store.recovery import Redispatch, looks_from, redispatch
from storeformat.store.segment_files import LogFiles, log_files
from storeformat.store.settings import DOUBLE_WRITE, LIGHT_IN_ROCKSDB, SEPARATE, Settings
from storeformat.store.store import Store, find_store
from storeformat.store.timer_files import TimerFiles, read_timer_files

SAFE = "safe to start"
SAFE_BUT = "safe to start, but read this first"
UNSAFE = "not safe to start"

ROWS = configparser.ConfigParser(interpolation=None)
ROWS.read_string(resources.files("jobs.preflight").joinpath("rules.ini").read_text(encoding="ascii"))


def first_of(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@dataclass(frozen=True)
class Reason:
    """One thing that the next start of the broker makes of a store, and what to do before it.

    ``unsafe`` where messages would be lost, read twice or not be served, or the broker not start, or where that is not
    ``known``.
    """

    rule: str
    what: str
    cure: str = ""
    unsafe: bool = True
    values: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its sentences are made of."""
    known: bool = True
    recover: str = ""
    """What ``recover`` does about it, see ``rules.ini``."""

    @classmethod
    def of(cls, case: str, /, *, unsafe: bool | None = None, **values: Any) -> Reason:
        """A row of ``rules.ini`` with its values; ``case`` is a rule, or ``rule.case``."""
        row = ROWS[case]
        what, cure, recover = (
            " ".join(row.get(name, "").split("\n")).format(**values) for name in ("what", "cure", "recover")
        )
        severity = row["severity"]
        unsafe = severity != "note" if unsafe is None else unsafe
        return cls(case.partition(".")[0], what, cure, unsafe, values, severity != "unknown", recover)

    def facts(self) -> dict[str, Any]:
        return {"rule": self.rule, "what": self.what, "cure": self.cure, "unsafe": self.unsafe, "recover": self.recover}


@dataclass(frozen=True)
class Answer:
    """What was found, unsafe reasons first."""

    reasons: tuple[Reason, ...] = ()

    @property
    def safe(self) -> bool:
        return not any(reason.unsafe for reason in self.reasons)

    @property
    def first_line(self) -> str:
        if self.safe:
            return SAFE_BUT if self.reasons else SAFE
        in_doubt = [reason for reason in self.reasons if reason.unsafe]
        return UNSAFE if any(reason.known for reason in in_doubt) else f"not known: {in_doubt[0].what}"

    def facts(self) -> dict[str, Any]:
        """The answer as fields of a report."""
        return {"answer": self.first_line, "reasons": [reason.facts() for reason in self.reasons]}

    def lines(self) -> list[str]:
        """The answer for a person: first line, then reasons, each with its cure."""
        return [self.first_line, *reason_lines([reason.facts() for reason in self.reasons])]


def answer_of(reasons: Sequence[Reason]) -> Answer:
    """The answer that reasons add up to."""
    return Answer(tuple(sorted(reasons, key=lambda reason: not reason.unsafe)))


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
    ends: Mapping[tuple[str, int], StoredEnds] = field(default_factory=dict)
    """Of queues that are read from the database although they are in files, too, or of light ones."""


@dataclass(frozen=True)
class StoppedStore(Store):
    """A store as the rules see it; ``now_ms`` is the time of the check."""

    log: LogFiles
    tail: LogTail
    queues: Mapping[tuple[str, int], QueueEnd]
    rocksdb: RocksDb
    redispatch: Redispatch
    checkpoint: StoreCheckpoint = field(default_factory=StoreCheckpoint)
    after_crash: bool = False
    now_ms: int = 0

    @property
    def reads_rocksdb_beside(self) -> bool:
        """Whether its broker reads queues from a database beside files (``combineCQPreferCQType``, 5.5.0)."""
        return self._writes_twice and self.settings.text("combineCQPreferCQType").lower() == "defaultrocksdb"

    @property
    def light_in_rocksdb(self) -> bool:
        """Whether its broker keeps light queues in a database alone (5.5.0)."""
        return self._writes_twice and self.settings.flag(LIGHT_IN_ROCKSDB)

    @property
    def _writes_twice(self) -> bool:
        return self.rules.bounded_recovery and self.settings.flag(DOUBLE_WRITE)

    @property
    def config_in_databases(self) -> bool:
        """Whether topics, groups and offsets are in databases: with RocksDB queues (5.2.0), or with
        ``configManagerVersion=v2`` (5.3.2).
        """
        v2 = self.rules.takes_offsets_file and self.settings.text("configManagerVersion") == "v2"
        return self.queues_in_rocksdb or v2

    @property
    def offsets_file(self) -> ConfigFile:
        """The file of ``config/`` in which this broker keeps committed offsets."""
        return next(self.configs[name] for name in (CONSUMER_OFFSETS, LMQ_OFFSETS) if name in self.configs)

    @cached_property
    def begins_young(self) -> bool:
        """Whether the log's first record is younger than a broker keeps it; that of a group's log is not looked at."""
        first = next(iter(self.log.segments), None)
        if first is None or first.size <= MAX_HEAD_SIZE or self.log.of_group:
            return False
        with files.RangeReader(first.path) as reader:
            stored = store_timestamp_at(reader, 0) if any(reader.read(0, 8)) else 0
        return bool(stored) and self.now_ms - stored < self.settings.reserved_ms

    @cached_property
    def timers(self) -> TimerFiles:
        return read_timer_files(self.root)

    @cached_property
    def settled(self) -> set[tuple[str, int]]:
        """Queues in files that a start leaves as they are, see ``queue_ends.settled``."""
        return queue_ends.settled(self.tail, self.queues)

    @cached_property
    def replayed(self) -> Mapping[tuple[str, int], Replayed]:
        """What the start makes of each queue in files, and of those that it makes anew."""
        covered, known = self.redispatch.covers(self.tail.rows.offsets), bool(self.log.segments)
        batch = batch_topics_of(self, self.queues.values())
        unsettled = {*self.queues, *self.tail.rows.keys} - self.settled
        return {key: Replayed(self.queues[key].end) for key in self.settled} | {
            key: replayed(self.queues.get(key), key, self.tail, covered, cut=known, batch=key[0] in batch)
            for key in unsettled
        }

    def set_aside(self, *paths: str) -> str:
        """The command that moves some of its files out of the store, into the directory above it."""
        return report.set_aside(f"{self.root}/..", paths)


def read_stopped_store(
    root: str, settings: Settings, version: str | None = None, now_ms: int | None = None
) -> StoppedStore:
    """Reads a store as its next start will find it; raises MissingInput and NotAStore if there is no store."""
    if not locations.is_local(locations.absolute(root)):
        raise NotAStore("a broker starts on a local disk only", path=root)
    store = find_store(root, settings, version)
    settings, rules, log = store.settings, store.rules, log_files(store.root, store.settings)
    if all(files.status_of(path) is None for path in log.directories):
        raise MissingInput(
            "there is no commit log", path=log.directories[0], advice="--store must be the broker's storePathRootDir"
        )
    decoding = DecodeRules(
        split_parser=rules.split_parser, as_broker=True, check_crc=settings.flag("checkCRCOnRecover")
    )
    queues = {(queue.topic, queue.queue_id): queue for queue in queue_ends.queue_ends(store.root)}
    furthest = furthest_unit(queues.values())
    after_crash = files.exists(store.place(ABORT))
    path = store.place(CHECKPOINT)
    page = parse_checkpoint(files.read_bytes(path) if files.size_of(path) else bytes(PAGE_SIZE))
    again = redispatch(log.segments, page, rules, settings, furthest, after_crash=after_crash)
    met_from = looks_from(log.segments, rules, settings, furthest, after_crash=after_crash)
    if log.of_group:
        met_from, again = 0, Redispatch()
    light = None if store.release_assumed else store.multi_dispatch
    if light is not None:
        light = replace(light, excluded_topics=(*light.excluded_topics, *batch_topics_of(store, queues.values())))
    stopped = StoppedStore(
        *(store.root, settings, rules, store.release_reason, store.suggests),
        log=log,
        tail=read_tail(log.segments, furthest, decoding, met_from, light),
        queues=queues,
        rocksdb=RocksDb(),
        redispatch=again,
        checkpoint=page,
        after_crash=after_crash,
        now_ms=int(time.time() * 1000) if now_ms is None else now_ms,
    )
    return replace(stopped, rocksdb=_rocksdb(stopped))


def batch_topics_of(store: Store, queues: Iterable[QueueEnd] = ()) -> set[str]:
    """The topics with ``queue.type=BatchCQ`` in topics.json, and those of ``queues`` of batches."""
    configured = (store.configs["topics.json"].value or {}).items()
    return {topic for topic, own in configured if own.batch} | {queue.topic for queue in queues if queue.batch}


def furthest_unit(queues: Iterable[QueueEnd]) -> int:
    """Where in the log the furthest queue ends, -1 without any."""
    return max((queue.end_offset for queue in queues if not queue.ends_in_pre_blank), default=-1)


_DATABASES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")


def _rocksdb(store: StoppedStore) -> RocksDb:
    """What there is of databases, and what that of the queues says where the broker is going to read it."""
    found = RocksDb(
        holds_pairs(store.place(CONSUME_QUEUE)),
        holds_pairs(store.place(ROCKSDB_QUEUES)),
        tuple(name for name in _DATABASES if holds_pairs(store.place(CONFIG, name))),
        tuple(name for name in _DATABASES if files.exists(store.place(CONFIG, name, rocksdb.CURRENT))),
    )
    apart = store.settings.flag(SEPARATE)
    beside = store.reads_rocksdb_beside or store.light_in_rocksdb
    if not (store.queues_in_rocksdb or beside) or not (found.queues_apart if apart else found.queues):
        return found
    try:
        with rocksdb_queues_in(store.place(ROCKSDB_QUEUES if apart else CONSUME_QUEUE)) as queues:
            ends = queues.ends() if beside else {}
            named = {(topic.decode("utf-8", "replace"), queue_id): end for (topic, queue_id), end in ends.items()}
            return replace(found, dispatched=queues.dispatched() or 0, ends=named)
    except DependencyMissing as error:
        return replace(found, unread=f"{error}; {error.advice}")
    except (NotAStore, MissingInput) as error:
        return replace(found, unread=str(error), broken=True)
