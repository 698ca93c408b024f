"""Files of ``config/`` as a broker loads them: the file itself, else its ``.bak``, else nothing.

=========================  =============================================================================
file                       holds
=========================  =============================================================================
``topics.json``            topicConfigTable: queues and permissions of each topic
``consumerOffset.json``    offsetTable: ``topic@group`` to queue id to committed offset
``lmqConsumerOffset.json`` the same, and lmqOffsetTable: ``topic@group`` to the offset of a light group in queue 0;
                           with ``enableLmq=true`` a broker reads it in place of the one above (4.9.3)
``subscriptionGroup.json`` subscriptionGroupTable: the groups that may consume
``delayOffset.json``       offsetTable: delay level to the next offset of its queue
``consumerFilter.json``    filterDataByTopic: SQL92 expressions and their Bloom filters
``consumerOrderInfo.json`` table: what ordered POP consumers hold (5.0.0)
``topicQueueMapping.json`` topicQueueMappingInfoMap: queues of static topics (5.0.0)
``timermetrics``           timingCount: waiting timer messages of each topic (5.0.0)
=========================  =============================================================================

Mirrors ConfigManager#load (4.9.8 to 5.5.0), the ``decode`` of its subclasses, and LmqConsumerOffsetManager (4.9.3 to
5.5.0). If a file is absent, empty or ``decode`` throws, the broker reads ``.bak``; if that is absent or empty too, it
starts with nothing; if that is torn, it does not start. From 5.4.0 on the rejected file is deleted.

A live broker writes a file in place, or moves it to ``.bak`` first (MixAll#string2File; ConfigManager#persist of 5.4.0
and later): an absent, empty or torn file is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from storeformat.errors import MissingInput
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.config import fastjson
from storeformat.store.layout import LOCK

CONFIG = "config"
BACKUP_SUFFIX = ".bak"

TOPICS_JSON = "topics.json"
DELAY_OFFSETS = "delayOffset.json"
DELAYS = f"{CONFIG}/{DELAY_OFFSETS}"
CONSUMER_OFFSETS, LMQ_OFFSETS = "consumerOffset.json", "lmqConsumerOffset.json"

BATCH_QUEUES = "BatchCQ"
DEFAULT_QUEUES = 16  # read and write queues of an entry without the field (TopicConfig)

_INT, _LONG = 1 << 31, 1 << 63
_LOOKS, _PAUSE_S = 20, 0.05


class FileState(Enum):
    """State of a file in ``config/``."""

    ABSENT = "absent"
    EMPTY = "empty"
    TORN = "torn"
    SOUND = "sound"


@dataclass(frozen=True)
class ConfigCopy:
    """A file of ``config/`` or its backup; ``value`` is decoded, if sound, from ``text``."""

    path: str
    content: FileState
    modified_ms: int = 0
    value: Any = None
    why: str = ""
    text: str = ""


@dataclass(frozen=True)
class ConfigFile:
    """A file and its backup."""

    name: str
    main: ConfigCopy
    backup: ConfigCopy

    @property
    def taken(self) -> ConfigCopy | None:
        """The copy that the broker reads; None if it has nothing, or does not start."""
        return next((copy for copy in (self.main, self.backup) if copy.content is FileState.SOUND), None)

    @property
    def ends_the_start(self) -> bool:
        """True if ``load`` returns false."""
        return self.main.content is not FileState.SOUND and self.backup.content is FileState.TORN

    @property
    def is_absent(self) -> bool:
        return self.main.content is FileState.ABSENT and self.backup.content is FileState.ABSENT

    @property
    def value(self) -> Any:
        """What the broker starts with."""
        return self.taken.value if self.taken else None


def read_config(root: str, name: str) -> ConfigFile:
    """Load one of ``DECODERS`` as the broker would; waits while a live broker writes it."""
    found = _read_once(root, name)
    for _ in range(_LOOKS):
        if found.main.content is FileState.SOUND or found.is_absent or not is_live(locations.join(root, LOCK)):
            break
        time.sleep(_PAUSE_S)
        found = _read_once(root, name)
    return found


def read_offsets(root: str, *, enable_lmq: bool) -> ConfigFile:
    """The file in which a broker with this setting keeps committed offsets."""
    return read_config(root, LMQ_OFFSETS if enable_lmq else CONSUMER_OFFSETS)


def _read_once(root: str, name: str) -> ConfigFile:
    main, backup = (locations.join(root, CONFIG, file) for file in (name, name + BACKUP_SUFFIX))
    return ConfigFile(name, _read(main, DECODERS[name]), _read(backup, DECODERS[name]))


def _read(path: str, decode: Callable[[Any], Any]) -> ConfigCopy:
    status = files.status_of(path)
    if status is None:
        return ConfigCopy(path, FileState.ABSENT)
    if status.is_directory:
        return ConfigCopy(path, FileState.TORN, status.modified_ms, why="a directory")
    if status.size == 0:
        return ConfigCopy(path, FileState.EMPTY, status.modified_ms)
    try:
        text = files.read_bytes(path).decode("utf-8", "replace")
    except MissingInput as error:
        now = files.status_of(path)
        if now is None:
            return ConfigCopy(path, FileState.ABSENT)
        if now.size >= status.size:
            raise
        return ConfigCopy(path, FileState.TORN, now.modified_ms, why=str(error))
    try:
        value = decode(fastjson.parse(text))
    except (ValueError, RecursionError) as error:
        return ConfigCopy(path, FileState.TORN, status.modified_ms, why=str(error) or type(error).__name__, text=text)
    return ConfigCopy(path, FileState.SOUND, status.modified_ms, value, text=text)


# ------------------------------------------------------------------------------------------------------------- decoders
Offsets = Mapping[tuple[str, str], Mapping[int, int]]  # committed offsets by (topic, group), then by queue id


def decode_consumer_offsets(document: Any) -> Offsets:
    """Offsets of ``consumerOffset.json``; only keys ``topic@group`` (ConsumerOffsetManager#decode)."""
    found = {}
    for key, queues in _entries(document, "offsetTable").items():
        topic, at, group = key.partition("@")
        offsets = {_int(queue, _INT): _int(offset) for queue, offset in queues.items()}
        if at and topic and group:
            found[topic, group] = offsets
    return found


def decode_light_groups(document: Any) -> Offsets:
    """Offsets of ``lmqConsumerOffset.json``: a light group has one for each of its topics, in queue 0."""
    found = dict(decode_consumer_offsets(document))
    for key, offset in _table(document, "lmqOffsetTable").items():
        topic, at, group = key.partition("@")
        if at and topic and group:
            found[topic, group] = {0: _int(offset)}
    return found


def decode_delay_offsets(document: Any) -> Mapping[int, int]:
    """Offset of each delay level (DelayOffsetSerializeWrapper)."""
    return {_int(level, _INT): _int(offset) for level, offset in _table(document, "offsetTable").items()}


@dataclass(frozen=True)
class TopicQueues:
    """Read and write queues of a topic; whether they are BatchCQ, or served from ``compaction/`` (5.1.0)."""

    read: int
    write: int
    batch: bool = False
    compacted: bool = False


def decode_topics(document: Any) -> Mapping[str, TopicQueues]:
    """Topics of ``topics.json`` (TopicConfigSerializeWrapper)."""
    found = {}
    for topic, entry in _entries(document, "topicConfigTable").items():
        attributes = own if isinstance(own := entry.get("attributes"), dict) else {}
        batch = attributes.get("queue.type") == BATCH_QUEUES
        compacted = attributes.get("cleanup.policy") == "COMPACTION"
        found[topic] = TopicQueues(_queues(entry, "read"), _queues(entry, "write"), batch, compacted)
    return found


def _queues(entry: Mapping[str, Any], use: str) -> int:
    return _int(entry.get(f"{use}QueueNums", DEFAULT_QUEUES), _INT)


def _decode_table(name: str) -> Callable[[Any], Mapping[str, Any]]:
    return lambda document: _table(document, name)


DECODERS: Mapping[str, Callable[[Any], Any]] = {
    TOPICS_JSON: decode_topics,
    CONSUMER_OFFSETS: decode_consumer_offsets,
    LMQ_OFFSETS: decode_light_groups,
    "subscriptionGroup.json": lambda document: _entries(document, "subscriptionGroupTable"),
    DELAY_OFFSETS: decode_delay_offsets,
    "consumerFilter.json": _decode_table("filterDataByTopic"),
    "consumerOrderInfo.json": _decode_table("table"),
    "topicQueueMapping.json": _decode_table("topicQueueMappingInfoMap"),
    "timermetrics": _decode_table("timingCount"),
}
"""Decoders by file name; each raises ValueError for a document that cannot be in the file."""


def _table(document: Any, name: str) -> Mapping[str, Any]:
    """A document without the table, or the word null, loads as nothing."""
    return _mapping(_mapping(document).get(name))


def _entries(document: Any, name: str) -> Mapping[str, Mapping[str, Any]]:
    """A table of objects; a null in it ends the reading (fastjson 1.2.83, 2.0.59)."""
    table = _table(document, name)
    if not all(isinstance(value, dict) for value in table.values()):
        raise ValueError("this is not a table of objects")
    return table


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("this is not an object")  # noqa: TRY004  (for the reader of the file it is one kind of error)
    return value


def _int(value: Any, bound: int = _LONG) -> int:
    """A number as Java parses it: 1.5 is 1, text of digits is a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("this is not a number")  # noqa: TRY004
    try:
        number = int(value)
    except OverflowError:  # 1e400 is infinite
        number = bound
    if not -bound <= number < bound:
        raise ValueError(f"a number has more than {bound.bit_length()} bits")
    return number
