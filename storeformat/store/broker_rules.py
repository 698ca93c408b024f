"""Which release's rules apply, and what a store shows of the release that wrote it.

The bytes of queues, index and checkpoint changed at few releases, so six names stand for all of them:

=======  ==============  ===============================================================================
name     releases        rules
=======  ==============  ===============================================================================
``4.6``  up to 4.7.0     hashSlotCount counts every put; properties are split at every separator
``4.8``  4.7.1 to 4.9.0  hashSlotCount counts used slots; properties are split
``4.9``  4.9.1 to 5.1.0  properties are scanned; light queues (from 4.9.3 on) of every topic
``5.1``  5.1.1 to 5.1.4  no light queues of retry, schedule and timer topics (5.1.1: of retry topics alone)
``5.3``  5.2 to 5.3      no light queues of any ``rmq_sys_`` topic
``5.5``  5.4 and later   one more index entry a tagged message; the checkpoint knows an offset
=======  ==============  ===============================================================================

Splitting and scanning differ only for a property with an empty name or with a separator in its value, which the clients
of these releases do not send. Two-byte topic lengths (V2, 5.1.0) and property CRCs (5.2.0) are seen in each record.
From IndexFile#putKey, MessageDecoder#string2messageProperties and ConsumeQueue#checkMultiDispatchQueue at the tags
rocketmq-all-4.6.0 to 5.3.3; the stores of 4.6.0, 4.7.0, 4.7.1, 4.8.0, 4.9.0, 4.9.1 and 4.9.4 were compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from storeformat.message import SCHEDULE_TOPIC

VERSIONS = ("4.6", "4.8", "4.9", "5.1", "5.3", "5.5")
DEFAULT = "5.3"
NOTHING_SHOWN = "nothing in the store shows the release"


@dataclass(frozen=True)
class BrokerRules:
    """The rules of one release, as switches of the modules that follow them."""

    version: str
    split_parser: bool
    """Properties by ``String#split`` (up to 4.9.0)."""
    count_every_put: bool
    """hashSlotCount of an index header counts entries, not slots (up to 4.7.0)."""
    index_tags: bool
    """TAGS are index keys too (5.4.0 and later)."""
    no_light_topics: tuple[str, ...] = ()
    no_light_prefixes: tuple[str, ...] = ()
    """Topics whose records never go to light queues (from 5.1.2 on)."""


def rules_of(version: str) -> BrokerRules:
    """Returns the rules of one of ``VERSIONS``."""
    topics, prefixes = _NO_LIGHT_QUEUES.get(version, ((), ()))
    return BrokerRules(
        version,
        split_parser=version in ("4.6", "4.8"),
        count_every_put=version == "4.6",
        index_tags=version == "5.5",
        no_light_topics=topics,
        no_light_prefixes=prefixes,
    )


_NO_LIGHT_QUEUES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "5.1": (("rmq_sys_wheel_timer", SCHEDULE_TOPIC), ("%RETRY%",)),
    "5.3": ((SCHEDULE_TOPIC,), ("%RETRY%", "rmq_sys_")),
    "5.5": ((SCHEDULE_TOPIC,), ("%RETRY%", "rmq_sys_")),
}


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
