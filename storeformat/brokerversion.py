"""Which release's rules apply, and what a store shows of the release that wrote it.

The bytes of queues, index and checkpoint changed at few releases (STORE_FORMAT 0.1), so five names stand for all of
them:

=======  ==========================================================================================
name     rules
=======  ==========================================================================================
``4.6``  up to 4.7.0: hashSlotCount counts every put; properties are split, not scanned (up to 4.9.0)
``4.9``  4.9.1 to 5.0: hashSlotCount counts used slots; properties are scanned
``5.1``  5.1: two-byte topic lengths (V2 magic)
``5.3``  5.2 to 5.3: property CRC
``5.5``  5.4 and later: one more index entry a tagged message; the checkpoint knows an offset
=======  ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from storeformat.message import SCHEDULE_TOPIC

VERSIONS = ("4.6", "4.9", "5.1", "5.3", "5.5")
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
    old = version == "4.6"
    topics, prefixes = _NO_LIGHT_QUEUES.get(version, ((), ()))
    return BrokerRules(
        version,
        split_parser=old,
        count_every_put=old,
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
class Evidence:
    """What lies in a store root. ``checkpoint_tail`` is the checkpoint's first i64 fields from byte 24 on:
    masterFlushedOffset, confirmPhyOffset, logicsPhysicalOffset. ``counts_every_put`` is None when no index file tells
    the two countings apart.
    """

    has_rocksdb_store: bool = False
    checkpoint_tail: tuple[int, ...] = ()
    counts_every_put: bool | None = None


def guess_version(evidence: Evidence) -> tuple[str, str]:
    """Returns the release whose rules fit what a store shows, and the reason in words."""
    if evidence.has_rocksdb_store:
        return "5.5", "the store holds rocksdbstore/, which brokers from 5.4.0 on create"
    if len(evidence.checkpoint_tail) > 2 and evidence.checkpoint_tail[2] > 0:
        return "5.5", "the checkpoint holds logicsPhysicalOffset, which 5.5.0 writes"
    if evidence.counts_every_put:
        return "4.6", "index headers count every put, as brokers up to 4.7.0 do"
    if len(evidence.checkpoint_tail) > 1 and evidence.checkpoint_tail[1] > 0:
        return (
            "5.3",
            "the checkpoint holds confirmPhyOffset (5.1.1 and later), and there is no rocksdbstore/ (5.4.0 and later)",
        )
    return DEFAULT, NOTHING_SHOWN
