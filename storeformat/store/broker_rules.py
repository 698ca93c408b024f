"""Which release's rules apply, and what a store shows of the release that wrote it.

What a broker writes and answers changed at few releases, so seven names stand for all of them. Each rule is a field of
``BrokerRules``; nothing else compares releases.

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

Splitting and scanning differ only for a property with an empty name or with a separator in its value, which the clients
of these releases do not send. Two-byte topic lengths (V2, 5.1.0) and property CRCs (5.2.0) are seen in each record.
From IndexFile#putKey, MessageDecoder#string2messageProperties, ConsumeQueue#checkMultiDispatchQueue, #correctMinOffset,
MappedFileQueue#getConsumeQueueMappedFileByTime and DLedgerCommitLog#dledgerRecoverAbnormally at the tags
rocketmq-all-4.6.0 to 5.5.0; stores of 4.6.0, 4.7.0, 4.7.1, 4.8.0, 4.9.0, 4.9.1 and 4.9.4 were compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT = "5.3"
MOST_RECOVERED_SEGMENTS = 10
"""``commitLogRecoverMaxNum`` of 5.4.0 and later: so many segments a recovery goes back (``bounded_recovery``)."""
NOTHING_SHOWN = "nothing in the store shows the release"


@dataclass(frozen=True)
class BrokerRules:
    """The rules of some releases, as switches of the modules that follow them."""

    version: str
    split_parser: bool = False
    """Properties by ``String#split`` (up to 4.9.0)."""
    count_every_put: bool = False
    """hashSlotCount of an index header counts entries, not slots (up to 4.7.0)."""
    search_min_offset: bool = False
    """A queue's first message is searched for; a queue whose messages are all gone begins at its end (from 5.0.0)."""
    search_by_store_time: bool = False
    """A search by time takes the file by its messages' store times, not by its time of last change (from 5.1.1)."""
    may_read_long_topics: bool = False
    """Records with two-byte topic lengths (V2) are records to some of the releases (5.1.0, and all later ones)."""
    reads_long_topics: bool = False
    """They are to all of them (from 5.1.1)."""
    reads_several_paths: bool = False
    """The log may be in several paths, and is below the root where none is set (from 4.9.2)."""
    reads_batches_and_timers: bool = False
    """It reads queues of batches and delivers timer messages (from 5.0.0)."""
    wants_dup_info: bool = False
    """With ``duplicationEnable`` recovery takes no record with properties and without DUP_INFO (from 5.0.0)."""
    wants_property_crc: bool = False
    """With ``forceVerifyPropCRC`` recovery takes no record without a property CRC (from 5.2.0)."""
    trims_settings: bool = False
    """Texts of broker.conf lose the blanks around them (from 5.2.0)."""
    knows_rocksdb: bool = False
    """With ``storeType=defaultRocksDB`` queues and configuration are in RocksDB (from 5.2.0)."""
    dispatch_uncommitted: bool = False
    """Recovery after a crash dispatches entries that a DLedger group has not committed (from 5.2.0)."""
    bounded_recovery: bool = False
    """Recovery dispatches from the tenth-last segment on at most (from 5.4.0)."""
    index_tags: bool = False
    """TAGS are index keys too (from 5.4.0)."""
    checkpoint_queue_offset: bool = False
    """The checkpoint holds logicsPhysicalOffset (5.5.0; 5.4.0 leaves it as it is)."""
    corrects_delay_offsets: bool = False
    """A delay level beyond the end of its queue is set back to it at the start (from 4.9.2)."""
    deletes_at_once: bool = False
    """A disk that is too full has segments deleted at any hour: ``diskSpaceCleanForciblyRatio`` (from 5.0.0)."""
    trusts_clean_stop: bool = False
    """After a clean stop nothing is dispatched again (5.0.0 to 5.3.1; from 5.3.2 on what lies after all queues)."""
    passes_over_directories: bool = False
    """A directory in the log does not end the start (from 5.1.0)."""
    deletes_empty_file: bool = False
    """The start deletes an empty last file of the log or of a queue; before 5.1.3, and so for 5.1, it fails."""
    starts_at_furthest_queue: bool = False
    """After a clean stop the log is read from the segment where the furthest queue ends, not from the third-last one
    (from 5.3.2)."""
    dispatches_after_queues: bool = False
    """After a clean stop what lies after all queues is dispatched (from 5.3.2)."""
    takes_offsets_file: bool = False
    """A broker with RocksDB queues takes consumerOffset.json into its database (from 5.3.2)."""
    restores_databases: bool = False
    """Databases that are gone: JSON is taken in place of those of ``config/``, queues are read again from the log, as
    far as ``bounded_recovery`` goes (from 5.4.0)."""
    leaves_gaps: bool = False
    """A message that cannot be stored takes its queue offset with it (5.0.0)."""
    no_light_topics: tuple[str, ...] = ()
    no_light_prefixes: tuple[str, ...] = ()
    """Topics whose records never go to light queues (from 5.1.2)."""


Release = tuple[int, int, int]
NEWEST: Release = (5, 5, 1)
DIFFERS: dict[Release, str] = {
    NEWEST: "; beside these rules it has no pullOffsetTable in consumerOffset.json, and looks for delayed, timer and "
    "half messages under their real topic",
}
"""What is known of a release beyond its rules, and changes no byte of a store."""
_FIRST: dict[str, Release] = {
    "4.6": (4, 0, 0), "4.8": (4, 7, 1), "4.9": (4, 9, 1), "5.0": (5, 0, 0), "5.1": (5, 1, 1), "5.3": (5, 2, 0),
    "5.5": (5, 4, 0),
}  # fmt: skip
VERSIONS = tuple(_FIRST)
"""Names that stand for several releases each. They are names, not numbers: nothing may order or compare them."""
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
    "checkpoint_queue_offset": (5, 4, 0),  # 5.4.0 has the field, and leaves it as it is
}
"""With which releases rules came. Where one came between the releases of a name, the name has it, unless its lack is
what an operator has to know (``_OF_ALL``).
"""
_OF_ALL = {"dispatches_after_queues", "reads_long_topics", "passes_over_directories", "deletes_empty_file"}
_NO_LIGHT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "5.1": (("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"), ("%RETRY%",)),
    "5.3": (("SCHEDULE_TOPIC_XXXX",), ("%RETRY%", "rmq_sys_")),
    "5.5": (("SCHEDULE_TOPIC_XXXX",), ("%RETRY%", "rmq_sys_")),
}


def _rules(name: str, first: Release, end: Release) -> BrokerRules:
    """Returns the rules of the releases from ``first`` on and before ``end``, which have one name."""
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
    """Returns the numbers of a release as people write it: ``5.1.4``, ``V5_1_4``, ``rocketmq-all-5.1.4``; the third is
    ``_ANY`` if it is missing. Raises ValueError for anything but a release of 4 or 5.
    """
    written = _WRITTEN.fullmatch(text.strip())
    numbers = written.groups() if written is not None else (0, 0, 0)
    major, minor, patch = (_ANY if number is None else int(number) for number in numbers)
    if major not in (4, 5):
        raise ValueError(f"{text!r} is no release of RocketMQ 4 or 5, such as 5.3.3, and none of {', '.join(VERSIONS)}")
    return major, minor, patch


def rules_of(release: str) -> BrokerRules:
    """Returns the rules of one of ``VERSIONS``, or of a release; raises ValueError as ``release_numbers``, and for one
    without its third number that does not tell its rules.
    """
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
    """What lies in a store root. ``checkpoint_tail`` is the checkpoint's first i64 fields from byte 24 on:
    masterFlushedOffset, confirmPhyOffset, logicsPhysicalOffset. ``counts_every_put`` is None when no index file tells
    the two countings apart.
    """

    has_rocksdb_store: bool = False
    checkpoint_tail: tuple[int, ...] = ()
    counts_every_put: bool | None = None


def guess_version(signs: ReleaseSigns) -> tuple[str, str]:
    """Returns the release whose rules fit what a store shows, and the reason in words."""
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
