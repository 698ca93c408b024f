"""Rules by release, and what a store shows of the release that wrote it.

Behaviour changed at few releases, so seven names stand for all. Each rule is a field of ``BrokerRules``; nothing else
compares releases.

=======  ==============  ===============================================================================
name     releases        rules
=======  ==============  ===============================================================================
``4.6``  up to 4.7.0     hashSlotCount counts every put; properties are split at every separator
``4.8``  4.7.1 to 4.9.0  hashSlotCount counts used slots; properties are split
``4.9``  4.9.1 to 4.9.8  properties are scanned; light queues (from 4.9.3 on) of every topic
``5.0``  5.0.0 to 5.1.0  the first message of a queue is found by binary search
``5.1``  5.1.1 to 5.1.4  no light queues of retry, schedule and timer topics (5.1.1: of retry topics alone);
                         searches by time go by store times, not by the files' times of last change
``5.3``  5.2 to 5.3      no light queues of any ``rmq_sys_`` topic; recovery dispatches DLedger's open tail
``5.5``  5.4 and later   one more index entry a tagged message; the checkpoint knows an offset; recovery
                         goes back ten segments at most
=======  ==============  ===============================================================================

Splitting and scanning differ only for a property with an empty name or a separator in its value, which clients of these
releases do not send. Two-byte topic lengths (V2, 5.1.0) and property CRCs (5.2.0) are seen in each record.

From IndexFile#putKey, MessageDecoder#string2messageProperties, ConsumeQueue#checkMultiDispatchQueue, #correctMinOffset,
MappedFileQueue#getConsumeQueueMappedFileByTime and DLedgerCommitLog#dledgerRecoverAbnormally at the tags
rocketmq-all-4.6.0 to 5.5.0; stores of 4.6.0, 4.7.0, 4.7.1, 4.8.0, 4.9.0, 4.9.1 and 4.9.4 were compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT = "5.3"
MOST_RECOVERED_SEGMENTS = 10  # ``commitLogRecoverMaxNum`` from 5.4.0 on (``bounded_recovery``)
NOTHING_SHOWN = "nothing in the store shows the release"


@dataclass(frozen=True)
class BrokerRules:
    """Rules of some releases."""

    version: str
    split_parser: bool = False  # properties by String#split (up to 4.9.0)
    count_every_put: bool = False  # hashSlotCount of an index header counts entries, not slots (up to 4.7.0)
    search_min_offset: bool = False  # the first message is searched; an empty queue begins at its end (from 5.0.0)
    search_by_store_time: bool = False  # time search selects files by store, not modification times (from 5.1.1)
    may_read_long_topics: bool = False  # some of the releases read two-byte topic lengths (V2; 5.1.0 and later)
    reads_long_topics: bool = False  # all of them do (from 5.1.1)
    reads_several_paths: bool = False  # several log paths, by default below the root (from 4.9.2)
    reads_batches_and_timers: bool = False  # batch queues and timer messages (from 5.0.0)
    wants_dup_info: bool = False  # duplicationEnable: recovery refuses properties without DUP_INFO (from 5.0.0)
    wants_property_crc: bool = False  # forceVerifyPropCRC: recovery refuses no property CRC (from 5.2.0)
    trims_settings: bool = False  # broker.conf texts lose blanks around them (from 5.2.0)
    knows_rocksdb: bool = False  # storeType=defaultRocksDB: queues and configuration in RocksDB (from 5.2.0)
    dispatch_uncommitted: bool = False  # recovery after a crash dispatches uncommitted DLedger entries (from 5.2.0)
    bounded_recovery: bool = False  # recovery goes back ten segments at most (from 5.4.0)
    index_tags: bool = False  # TAGS are index keys too (from 5.4.0)
    checkpoint_queue_offset: bool = False  # the checkpoint holds logicsPhysicalOffset (5.5.0; 5.4.0 does not set it)
    corrects_delay_offsets: bool = False  # the start resets a delay offset beyond its queue's end (from 4.9.2)
    deletes_at_once: bool = False  # a full disk deletes segments at any hour: diskSpaceCleanForciblyRatio (from 5.0.0)
    trusts_clean_stop: bool = False  # no dispatch after a clean stop (5.0.0 to 5.3.1; from 5.3.2 only after all queues)
    passes_over_directories: bool = False  # a directory in the log does not end the start (from 5.1.0)
    deletes_empty_file: bool = False  # start deletes an empty last log or queue file (from 5.1.3); before, it fails
    starts_at_furthest_queue: bool = False  # clean start reads from the furthest queue's segment (from 5.3.2)
    dispatches_after_queues: bool = False  # after a clean stop, messages after all queues are dispatched (from 5.3.2)
    takes_offsets_file: bool = False  # a broker with RocksDB queues imports consumerOffset.json (from 5.3.2)
    restores_databases: bool = False  # from JSON (``config/``) and the log (queues, bounded) (from 5.4.0)
    leaves_gaps: bool = False  # a message that cannot be stored takes its queue offset with it (5.0.0)
    no_light_topics: tuple[str, ...] = ()
    no_light_prefixes: tuple[str, ...] = ()  # topics without light queues (from 5.1.2)


Release = tuple[int, int, int]
NEWEST: Release = (5, 5, 1)
DIFFERS: dict[Release, str] = {
    NEWEST: "; beside these rules it has no pullOffsetTable in consumerOffset.json, and looks for delayed, timer and "
    "half messages under their real topic",
}  # differences of a release beyond its rules that change no byte of a store
_FIRST: dict[str, Release] = {
    "4.6": (4, 0, 0), "4.8": (4, 7, 1), "4.9": (4, 9, 1), "5.0": (5, 0, 0), "5.1": (5, 1, 1), "5.3": (5, 2, 0),
    "5.5": (5, 4, 0),
}  # fmt: skip
VERSIONS = tuple(_FIRST)  # names, not numbers, for several releases each: never order or compare them
_UNTIL: dict[str, Release] = {"count_every_put": (4, 7, 1), "split_parser": (4, 9, 1)}
_SINCE: dict[str, Release] = {
    "corrects_delay_offsets": (4, 9, 2),
    "reads_several_paths": (4, 9, 2),
    "search_min_offset": (5, 0, 0),
    "reads_batches_and_timers": (5, 0, 0),
    "wants_dup_info": (5, 0, 0),
    "deletes_at_once": (5, 0, 0),
    "trusts_clean_stop": (5, 0, 0),
    "may_read_long_topics": (5, 1, 0),
    "reads_long_topics": (5, 1, 0),
    "passes_over_directories": (5, 1, 0),
    "search_by_store_time": (5, 1, 1),
    "deletes_empty_file": (5, 1, 3),
    "wants_property_crc": (5, 2, 0),
    "trims_settings": (5, 2, 0),
    "knows_rocksdb": (5, 2, 0),
    "dispatch_uncommitted": (5, 2, 0),
    "starts_at_furthest_queue": (5, 3, 2),
    "dispatches_after_queues": (5, 3, 2),
    "takes_offsets_file": (5, 3, 2),
    "bounded_recovery": (5, 4, 0),
    "index_tags": (5, 4, 0),
    "restores_databases": (5, 4, 0),
    "checkpoint_queue_offset": (5, 4, 0),  # 5.4.0 has the field, but does not set it
}
"""First release of each rule. Within a name's releases the whole name has it, except ``_OF_ALL``."""
_OF_ALL = {"dispatches_after_queues", "reads_long_topics", "passes_over_directories", "deletes_empty_file"}
_NO_LIGHT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "5.1": (("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"), ("%RETRY%",)),
    "5.3": (("SCHEDULE_TOPIC_XXXX",), ("%RETRY%", "rmq_sys_")),
    "5.5": (("SCHEDULE_TOPIC_XXXX",), ("%RETRY%", "rmq_sys_")),
}


def _rules(name: str, first: Release, end: Release) -> BrokerRules:
    came = {rule: since <= first if rule in _OF_ALL else since < end for rule, since in _SINCE.items()}
    went = {rule: first < until for rule, until in _UNTIL.items()}
    topics, prefixes = _NO_LIGHT.get(name, ((), ()))
    gaps = first <= (5, 0, 0) < end
    return BrokerRules(name, **came, **went, leaves_gaps=gaps, no_light_topics=topics, no_light_prefixes=prefixes)


_RULES = {
    name: _rules(name, first, end)
    for (name, first), end in zip(_FIRST.items(), [*_FIRST.values(), (6, 0, 0)][1:], strict=True)
}
_WRITTEN = re.compile(
    r"(?:rocketmq-)?(?:all-|release-)?v?([0-9]{1,2})[._]([0-9]{1,2})(?:[._]([0-9]{1,2}))?(?:-[a-z0-9.-]+)?",
    re.IGNORECASE,
)
_ANY = 1000


def release_numbers(text: str) -> Release:
    """Numbers of ``5.1.4``, ``V5_1_4`` or ``rocketmq-all-5.1.4``; a missing third is ``_ANY``. Raises ValueError."""
    written = _WRITTEN.fullmatch(text.strip())
    numbers = written.groups() if written is not None else (0, 0, 0)
    major, minor, patch = (_ANY if number is None else int(number) for number in numbers)
    if major not in (4, 5):
        raise ValueError(f"{text!r} is no release of RocketMQ 4 or 5, such as 5.3.3, and none of {', '.join(VERSIONS)}")
    return major, minor, patch


def rules_of(release: str) -> BrokerRules:
    """Rules of a release or of one of ``VERSIONS``. Raises ValueError for an ambiguous or unknown release."""
    if release in _RULES:
        return _RULES[release]
    numbers = release_numbers(release)
    first, last = (
        next(name for name, since in reversed(_FIRST.items()) if (*numbers[:2], patch) >= since)
        for patch in (numbers[2] % _ANY, numbers[2])
    )
    if first != last:
        raise ValueError(f"releases of {release!r} have the rules of {first} or of {last}: give all three numbers")
    if numbers[2] == _ANY:
        return _RULES[last]
    return _rules(last, numbers, (*numbers[:2], numbers[2] + 1))


@dataclass(frozen=True)
class ReleaseSigns:
    """Signs in a store root. ``checkpoint_tail``: i64 fields from byte 24 on: masterFlushedOffset, confirmPhyOffset,
    logicsPhysicalOffset. ``counts_every_put``: None if no index file tells.
    """

    has_rocksdb_store: bool = False
    checkpoint_tail: tuple[int, ...] = ()
    counts_every_put: bool | None = None


def guess_version(signs: ReleaseSigns) -> tuple[str, str]:
    """Release whose rules fit a store, and the reason."""
    if signs.has_rocksdb_store:
        return "5.5", "the store holds rocksdbstore/, which brokers from 5.4.0 on create"
    if len(signs.checkpoint_tail) > 2 and signs.checkpoint_tail[2] > 0:
        return "5.5", "the checkpoint holds logicsPhysicalOffset, which 5.5.0 writes"
    if signs.counts_every_put:
        return "4.6", "index headers count every put, as brokers up to 4.7.0 do"
    if len(signs.checkpoint_tail) > 1 and signs.checkpoint_tail[1] > 0:
        return (
            "5.3",
            "the checkpoint holds confirmPhyOffset (5.1.1 and later), and there is no rocksdbstore/ (5.4.0 and later)",
        )
    return DEFAULT, NOTHING_SHOWN
