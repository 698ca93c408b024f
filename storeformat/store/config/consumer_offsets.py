"""``config/consumerOffset.json``: write the committed offsets of groups, and read them from a torn file.

==================  ==================================================================================================
field               value
==================  ==================================================================================================
``offsetTable``     ``topic@group`` to queue id to committed offset, which is that of the next message to read
``lmqOffsetTable``  ``topic@group`` to the offset of a light group, one for all queues; in ``lmqConsumerOffset.json``
                    alone, which takes this file's place with ``enableLmq=true``
``dataVersion``     stateVersion, counter, timestamp (5.0.0 and later); a slave and a database of offsets compare them
==================  ==================================================================================================

A broker writes the file every 5 s (``flushConsumerOffsetInterval``), in place and without a sync, after copying it to
``.bak`` (MixAll#string2File): a power cut leaves it torn, empty or zero. Text before a tear is valid, but only closed
objects count, because a number may be cut in two.

Mirrors ConsumerOffsetManager#encode and #decode, and those of LmqConsumerOffsetManager (4.9.8 to 5.5.0). Only for the
revive group (PopReviveService) the committed offset is that of the last message read, not of the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.record.pending import RETRY_PREFIX
from storeformat.store.config import fastjson
from storeformat.store.config.config_files import (
    CONFIG,
    CONSUMER_OFFSETS,
    LMQ_OFFSETS,
    Offsets,
    decode_consumer_offsets,
    decode_light_groups,
)

OFFSETS = f"{CONFIG}/{CONSUMER_OFFSETS}"
OFFSETS_WITH_LIGHT_GROUPS = f"{CONFIG}/{LMQ_OFFSETS}"
SYSTEM_GROUPS = "CID_RMQ_SYS_"  # MixAll#isSysConsumerGroup; without an offset they begin at their queue's begin
GROUPS_OF_EVERY_BROKER = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
     "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS", "CID_RMQ_SYS_TRANS"}
)  # fmt: skip
"""SubscriptionGroupManager#init."""
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

_ENTRY = re.compile(r'(?<!\\)"(?:[^"\\]|\\.)+"\s*:\s*\{[^{}]*\}')
_LIGHT_ENTRY = re.compile(r'(?<!\\)"(?:[^"\\]|\\.)+"\s*:\s*\d+(?=\s*[,}])')


class DataVersion(NamedTuple):
    """Version of a file; the greater is newer (DataVersion#compare)."""

    state_version: int = 0
    counter: int = 0
    timestamp: int = 0


def data_version(text: str) -> DataVersion | None:
    """Version in a sound file; None before 5.0.0."""
    try:
        document = fastjson.parse(text)
    except (ValueError, RecursionError):
        return None
    found = document.get("dataVersion") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        return None
    numbers = (found.get("stateVersion", 0), found.get("counter", 0), found.get("timestamp", 0))
    in_range = all(type(number) is int and abs(number) < (1 << 63) - 1 for number in numbers)
    return DataVersion(*numbers) if in_range else None


def offsets_before_tear(text: str) -> Offsets:
    """Offsets in the complete entries of a torn file's tables.

    >>> offsets_before_tear('{"offsetTable":{"T@one":{0:7,1:9},"T@two":{0:1')
    {('T', 'one'): {0: 7, 1: 9}}
    >>> offsets_before_tear('{"lmqOffsetTable":{"%LMQ%a@%LMQ%one":7,"%LMQ%a@%LMQ%two":1')
    {('%LMQ%a', '%LMQ%one'): {0: 7}}
    """
    _, _, table = text.partition('"offsetTable"')
    for later in ("resetOffsetTable", "pullOffsetTable", "groupTopicMap"):
        table = table.partition(f'"{later}"')[0]
    found: dict[tuple[str, str], Mapping[int, int]] = {}
    for entry in _ENTRY.finditer(table):
        with suppress(ValueError):
            found.update(decode_consumer_offsets({"offsetTable": fastjson.parse("{" + entry[0] + "}")}))
    light, end, _ = text.partition('"lmqOffsetTable"')[2].partition("}")
    for entry in _LIGHT_ENTRY.finditer(light + end):
        with suppress(ValueError):
            found.update(decode_light_groups({"lmqOffsetTable": fastjson.parse("{" + entry[0] + "}")}))
    return found


def consumer_offsets_json(offsets: Offsets, version: DataVersion, *, light_groups: bool = False) -> bytes:
    """Encode the file, sorted. ``light_groups``: these have their own table, each with its lowest offset."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in ("lmqOffsetTable", "offsetTable")[not light_groups :]}
    for (topic, group), queues in sorted(offsets.items()):
        if light_groups and group.startswith(LIGHT_PREFIX):
            tables["lmqOffsetTable"][f"{topic}@{group}"] = min(queues.values())
        else:
            by_id = {str(queue_id): offset for queue_id, offset in sorted(queues.items())}
            tables["offsetTable"][f"{topic}@{group}"] = by_id
    stamp = {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}
    return (json.dumps({"dataVersion": stamp, **tables}, ensure_ascii=False, indent="\t") + "\n").encode()


def known_groups(topics: Iterable[str], subscriptions: Iterable[str], *copies: Offsets | None) -> list[str]:
    """User groups named by retry topics, ``subscriptionGroup.json`` or copies of the offsets.

    >>> known_groups(["Orders", "%RETRY%readers"], ["TOOLS_CONSUMER"], {("Orders", "others"): {0: 7}})
    ['others', 'readers']
    """
    there = frozenset(topics)
    names = {_group_of(topic.removeprefix(RETRY_PREFIX), there) for topic in there if topic.startswith(RETRY_PREFIX)}
    names |= {*subscriptions, *(group for copy in copies for _, group in copy or ())}
    return sorted(name for name in names - GROUPS_OF_EVERY_BROKER if not name.startswith(SYSTEM_GROUPS))


_LONGEST_TOPIC = (1 << 15) - 1


def _group_of(retried: str, topics: Collection[str]) -> str:
    """Group of a retry topic, without the topic at the end of POP's (KeyBuilder)."""
    if len(retried) > _LONGEST_TOPIC:
        return retried
    ends = (at for at, letter in enumerate(retried) if letter in "_+" and retried[at + 1 :] in topics)
    return retried[: next(ends, len(retried))]


def highest_committed(group: str, end: int) -> int:
    """Highest offset with which a group skips no message after ``end`` messages of a queue."""
    return end - 1 if group == REVIVE_GROUP else end
