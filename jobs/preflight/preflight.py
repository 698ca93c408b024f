"""``preflight``: may a broker be started on this store? One line with the answer, then a reason a line, with its cure.

It reads ends of queues, configuration, checkpoint and the last part of the log, and starts no Spark: a line in
systemd's ``ExecCondition`` can wait for it. Exit code 0 is safe, with or without notes, 1 is not.

A ``Replica`` is the log of a slave or of a member of the group: which is longer, and what does this start lose? Such
logs are alike up to a point and differ from there on, for records carry the time when they were stored: the last record
that both have is compared first. Damage in the middle of a copy is for ``inspect --replica``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jobs.contract.options import PreflightOptions
from jobs.contract.report import Report, Reporter, quoted, step_after
from jobs.preflight import configuration, files_and_space, offsets_and_timers, queues_and_log
from jobs.preflight.stopped_store import Answer, Reason, StoppedStore, answer_of, read_stopped_store
from storeformat import kernels
from storeformat.errors import MissingInput, StoreFormatError
from storeformat.log.log_tail import LogTail, read_tail
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.storage import files, locations
from storeformat.store.broker_rules import NOT_JUDGED
from storeformat.store.config_files import Offsets, read_config
from storeformat.store.segment_files import log_files
from storeformat.store.settings import Settings, read_settings

_OWN_PATHS = ("storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathDLedgerCommitLog", "dLegerSelfId")
_HEAD = 128
_BLOCK = 4 << 20


@dataclass(frozen=True)
class Replica:
    """A copy of the log. ``differs_at`` is the first offset at which it holds other bytes; None where it is alike as
    far as both go.
    """

    root: str
    begin: int
    tail: LogTail
    differs_at: int | None
    offsets: Offsets = field(default_factory=dict)
    """What its groups have committed; empty without a readable consumerOffset.json."""

    def facts(self) -> dict[str, Any]:
        return {"replica": self.root, "begin": self.begin, "end": self.tail.end, "differs_at": self.differs_at}


def read_replica(store: StoppedStore, root: str) -> Replica:
    """A replica's log beside that of the store. Raises MissingInput without one."""
    root = locations.absolute(root)
    own = {name: value for name, value in store.settings.given.items() if name not in _OWN_PATHS}
    log = log_files(root, replace(store.settings, given=own))
    if not log.segments:
        what = "there is no segment in the log of this replica"
        raise MissingInput(what, path=log.directories[0], advice="ROOT is its storePathRootDir")
    tail = read_tail(log.segments, -1, DecodeRules(split_parser=store.rules.split_parser, as_broker=True))
    end = min(tail.end, store.tail.end)
    before = store.tail.rows.offsets[store.tail.rows.ends <= end]
    last = int(before[-1]) if len(before) else end - _BLOCK
    differs_at = _first_difference(store.log.segments, log.segments, last, end)
    offsets = read_config(root, store.offsets_file.name).value or {}
    return Replica(root, log.begin, tail, differs_at, offsets)


def replicas_compared(store: StoppedStore, replica: Replica) -> Iterator[Reason]:
    """A replica that has messages which this store lacks, or others in their place; and a shorter one.

    Mirrors DefaultHAClient#dispatchReadRequest (5.0.0 to 5.5.0; HAClient of 4.9.8): a slave whose log does not end
    where its master goes on replicates no more. AutoSwitchHAClient#doTruncate (5.0.0 to 5.5.0) cuts it to its master's.
    """
    own, other = store.tail, replica.tail
    named: dict[str, Any] = {"root": replica.root, "start": quoted(replica.root)}
    if replica.begin < store.log.begin and store.log.segments:
        # a log whose first record is younger than the time that messages are kept has lost nothing to retention
        case = "replica_begins_earlier.young" if store.begins_young else "replica_begins_earlier.old"
        hours = store.settings.number("fileReservedTime")
        yield Reason.of(case, theirs=replica.begin, begin=store.log.begin, hours=hours, **named)
    ends: dict[str, Any] = {"end": other.end, "own": own.end}
    if replica.differs_at is not None:
        at = replica.differs_at
        yield Reason.of("replica_differs", at=at, theirs=_after(other, at), ours=_after(own, at), **named)
    elif other.end > own.end:
        fetched = store.is_slave
        yield Reason.of("replica_longer", unsafe=not fetched, messages=_after(other, own.end), **ends, **named)
    elif other.end < own.end:
        yield Reason.of("replica_shorter", messages=_after(own, other.end), **ends, **named)


def _after(tail: LogTail, offset: int) -> str:
    count = int((tail.rows.ends > offset).sum())
    return f"{'at least ' if tail.begin > offset else ''}{count:,} messages"


def _first_difference(own: tuple[Segment, ...], other: tuple[Segment, ...], last: int, end: int) -> int | None:
    """The first offset below ``end`` at which two logs hold other bytes; ``last`` is where the last record
    before it begins.
    """
    begin = max(own[0].base, other[0].base) if own and other else end
    if begin >= end:
        return None
    if _differs(own, other, max(last, begin), end) is None:
        return None
    for base in [begin, *(segment.base for segment in own if begin < segment.base < end)]:
        if _differs(own, other, base, min(base + _HEAD, end)) is not None:
            break
        begin = base
    parts = (_differs(own, other, at, min(at + _BLOCK, end)) for at in range(begin, end, _BLOCK))
    return next((at for at in parts if at is not None), None)


def _differs(own: tuple[Segment, ...], other: tuple[Segment, ...], begin: int, end: int) -> int | None:
    """The first offset in [begin, end) at which two logs hold other bytes."""
    own_bytes, other_bytes = (np.frombuffer(_bytes(log, begin, end), np.uint8) for log in (own, other))
    return begin + int(np.argmax(own_bytes != other_bytes)) if (own_bytes != other_bytes).any() else None


def _bytes(segments: tuple[Segment, ...], begin: int, end: int) -> bytes:
    """The bytes [begin, end) of a log; zeros where it has no segment."""
    data = bytearray(end - begin)
    for segment in segments:
        first, stop = max(begin, segment.base), min(end, segment.end)
        if first < stop:
            data[first - begin : stop - begin] = files.read_range(segment.path, first - segment.base, stop - first)
    return bytes(data)


Rule = Callable[[StoppedStore], Iterator[Reason]]
RULES: tuple[Rule, ...] = (  # in the order in which a start would meet them
    configuration.not_judged,
    configuration.paths_not_taken,
    configuration.other_store,
    configuration.log_elsewhere,
    configuration.log_of_group,
    files_and_space.store_in_use,
    files_and_space.log_files,
    files_and_space.segments_misplaced,
    files_and_space.index_sizes,
    files_and_space.index_deleted,
    files_and_space.mapped_files,
    files_and_space.not_files,
    files_and_space.not_the_brokers,
    configuration.settings_not_taken,
    configuration.records_not_taken,
    configuration.store_type,
    configuration.config_files,
    configuration.queue_types,
    configuration.databases_not_opened,
    configuration.config_databases_lost,
    configuration.config_json_torn,
    queues_and_log.log_missing,
    queues_and_log.log_damaged,
    queues_and_log.queue_files,
    queues_and_log.messages_not_served,
    queues_and_log.queues_made_again,
    queues_and_log.queues_read_beside,
    queues_and_log.recovered_beyond_log,
    queues_and_log.wrong_units,
    queues_and_log.messages_moved,
    queues_and_log.database_not_read,
    queues_and_log.not_dispatched,
    offsets_and_timers.committed_outside_queue,
    offsets_and_timers.delay_offsets_beyond_queue,
    offsets_and_timers.delay_offsets_behind,
    offsets_and_timers.delay_levels_absent,
    files_and_space.log_begins_late,
    files_and_space.messages_deleted,
    offsets_and_timers.timer_state,
    offsets_and_timers.epoch_file,
    files_and_space.free_space,
    configuration.queues_not_read,
    configuration.topics_not_configured,
    configuration.queues_fewer_than_configured,
    queues_and_log.units_beyond_log,
    queues_and_log.torn_tail,
)
_IN_DOUBT = frozenset({
    "store_in_use", "store_path", "log_missing", "log_damaged", "log_cut", "segment_missing", "segment_size",
    "segment_twice", "segment_misplaced", "stray_file", "queue_files", "messages_not_served", "wrong_units",
    "messages_moved", "store_type", "database_not_read", "units_beyond_log",
})  # fmt: skip
_OF_OFFSETS = frozenset(
    {"committed_beyond_queue", "delay_offset_ahead", "delay_offset_behind", "delay_offset_beyond_queue"}
)
"""Rules whose cure is to change offsets, which may be right: it is their queues that are in doubt."""


def run(options: PreflightOptions, reporter: Reporter) -> Report:
    """The answer for one store, with exit code 1 for no."""
    kernels.prefer_numpy()
    settings = read_settings(options.broker_conf, options.settings)
    if not settings.from_file:
        reporter.note("without --broker-conf the broker's defaults are assumed, and the sizes that the store shows")
    store = read_stopped_store(options.store, settings, options.broker_version)
    replicas = [read_replica(store, root) for root in options.replicas]
    answer = judge(store, replicas)
    facts = answer.facts()
    if store.suggests is not None:
        reporter.note(f"the store suggests the rules of {store.suggests}")
    seen, unseen = looked_at(store), not_looked_at(store)
    return reporter.report(
        "preflight",
        text=[*answer.lines(), f"looked at: {'; '.join(seen)}", f"not looked at: {'; '.join(unseen)}"],
        **facts,
        next=step_after(facts, options),
        store=store.root,
        log_begin=store.log.begin,
        log_end=store.tail.end,
        log_read_from=store.tail.begin,
        queues=len(store.queues),
        after_crash=store.after_crash,
        broker_version=store.rules.version,
        broker_version_reason=store.release_reason,
        looked_at=seen,
        not_looked_at=unseen,
        replicas=[replica.facts() for replica in replicas],
    )


def looked_at(store: StoppedStore) -> list[str]:
    """What the rules looked at."""
    settings, in_databases = store.settings, store.config_in_databases
    queues = "how far the queues in RocksDB are" if store.queues_in_rocksdb else f"{len(store.queues)} queues"
    return [
        f"the log from offset {store.tail.begin} to {store.tail.end}",
        queues,
        "that the databases of config/ are there" if in_databases else "topics, groups and committed offsets",
        *([] if store.queues_in_rocksdb else ["delay levels and timers"]),
        "lengths and owners of files, and free space",
        *(["broker.conf"] if settings.from_file else []),
        f"what a broker does that has the rules of {store.rules.version} ({store.release_reason})",
    ]


def not_looked_at(store: StoppedStore) -> list[str]:
    """What no rule looked at, and may matter."""
    settings, tail, root = store.settings, store.tail, store.settings.given.get("storePathRootDir")
    return [
        *([f"the log before offset {tail.begin}, and its queues there"] if tail.begin > store.log.begin else []),
        *(["units of queues in RocksDB, delay levels and timers"] if store.queues_in_rocksdb else []),
        *(["topics, groups and committed offsets in databases"] if store.config_in_databases else []),
        *(["light queues, without --broker-version"] if store.release_assumed and store.multi_dispatch else []),
        "entries of the index",
        "what consumers of POP hold",
        *([] if settings.from_file else ["broker.conf, which was not given"]),
        *(["~/store, which a broker takes without storePathRootDir"] if settings.from_file and not root else []),
        *([f"settings: {', '.join(sorted(names))}"] if (names := NOT_JUDGED & settings.given.keys()) else []),
    ]


def judge(store: StoppedStore, replicas: Sequence[Replica] = ()) -> Answer:
    """What all rules say of a store and its replicas."""
    reasons = [reason for rule in RULES for reason in rule(store)]
    reasons += offsets_and_timers.no_offsets(store, {replica.root: replica.offsets for replica in replicas})
    if any(reason.unsafe and reason.rule == "store_path" for reason in reasons):
        reasons = [reason for reason in reasons if reason.rule != "units_beyond_log"]  # the log is elsewhere
    if any(reason.unsafe and reason.rule == "messages_not_served" for reason in reasons):
        reasons = [reason for reason in reasons if reason.rule != "messages_moved"]  # named there
    doubtful = [reason for reason in reasons if reason.rule in _IN_DOUBT]
    if any(reason.unsafe for reason in doubtful):
        reasons = [reason for reason in reasons if reason.rule not in _OF_OFFSETS]
    elif doubtful:
        first = f"first see to {doubtful[0].rule}: the offset may be right"
        reasons = [replace(reason, cure=first) if reason.rule in _OF_OFFSETS else reason for reason in reasons]
    return answer_of([*reasons, *(reason for replica in replicas for reason in replicas_compared(store, replica))])


def start_facts(
    root: str, broker_conf: str | None = None, settings: Sequence[tuple[str, str]] = (), version: str | None = None
) -> dict[str, Any]:
    """The answer as fields for the report of another job; where it cannot be had, it says why."""
    try:
        return safe_to_start(root, read_settings(broker_conf, tuple(settings)), version).facts()
    except StoreFormatError as error:
        return {"answer": f"not known: {error}", "reasons": []}


def safe_to_start(root: str, settings: Settings, version: str | None = None) -> Answer:
    """Whether a broker with these settings may be started on a store."""
    return judge(read_stopped_store(root, settings, version))
