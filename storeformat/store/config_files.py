"""Files of ``config/`` as a broker loads them: the file itself, else its ``.bak``, else nothing.

If a file is absent, empty or ``decode`` throws, the broker reads ``.bak``; if that is absent or empty too, it starts
with nothing; if that is torn, it does not start. From 5.4.0 on the rejected file is deleted. A live broker writes a
file in place, or moves it to ``.bak`` first (MixAll#string2File; ConfigManager#persist of 5.4.0 and later): an absent,
empty or torn file is read again.

Mirrors ConfigManager#load (4.9.8 to 5.5.0) and the ``decode`` of its subclasses. JSON is as fastjson 1.2.83 (5.3.3) and
fastjson2 2.0.59 (5.5.0) read it: beyond the standard, both accept integer keys without quotes, single quotes, a comma
before a closing bracket, comments of the form ``/* */`` and NUL bytes after the end. What only one of them accepts
(names as keys without quotes) is refused: a broker of the other release would take the file for torn.

``topics.json`` is restored from the log (TopicConfigManager#encode and TopicConfig, 4.6 to 5.5): a broker keeps queues
of unconfigured topics, but no client sees them. The log proves a topic's number of queues and their type; the rest is
that of a new topic. Existing entries stay, except a ``readQueueNums`` that hides messages (an older copy of the file;
PullMessageProcessor refuses higher queues). Omitted: topics that a broker makes at its start (TopicConfigManager#init),
and light queues, which are not topics. A broker does not start with queues in the wrong place
(ConsumeQueueStore#queueTypeShouldBe), so the directories show the type ``queue.type=BatchCQ`` too.

``consumerOffset.json`` has the offset of the next message to read; only for the revive group (PopReviveService) that of
the last one read. A broker writes it every 5 s (``flushConsumerOffsetInterval``), in place and without a sync, after
copying it to ``.bak``: a power cut leaves it torn, empty or zero. Before a tear the text is valid, but a number counts
only with what follows it, because it may be cut in two. Mirrors ConsumerOffsetManager#encode and #decode, and those of
LmqConsumerOffsetManager (4.9.3 to 5.5.0), which has a light group's offset for all queues in a table of its own.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from storeformat.errors import MissingInput, WrongSettings
from storeformat.record.decode import is_directory_name
from storeformat.record.dispatch import LIGHT_PREFIX, RETRY_PREFIX
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, LOCK

# Linear time: text without an end becomes one token, which is not JSON.
_TOKEN = re.compile(
    r"""(?P<string>(?<!\\)"(?:[^"\\]|\\.)*")
      | (?<!\\)'(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<comment>/\*.*?\*/)
      | (?P<open>/\*.*)
      | (?<!\d)(?P<number>-?\d+)(?P<colon>\s*:)
      | ,(?P<close>\s*[\]}])""",
    re.VERBOSE | re.DOTALL,
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str) -> Any:
    """Parse as a broker does. Raises ValueError where it throws, RecursionError for deep nesting. Integer keys become
    text, half a surrogate pair ``?`` (as where a broker writes it), and numbers beyond a double the largest one.
    """
    standard = _TOKEN.sub(_as_standard, text.removeprefix("\ufeff").rstrip("\0"))
    found = json.loads(standard, strict=False, parse_constant=_refuse, parse_float=_finite)
    if _SURROGATE.search(standard):
        found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    return found


def _as_standard(found: re.Match[str]) -> str:
    if found["single"] is not None:
        return json.dumps(found["single"].replace("\\'", "'"))
    if found["comment"] is not None:
        return " "
    if found["colon"] is not None:
        return f'"{found["number"]}"{found["colon"]}'
    return found["close"] if found["close"] is not None else found[0]


def _finite(number: str) -> float:
    return max(min(float(number), sys.float_info.max), -sys.float_info.max)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a value")


CONFIG = "config"
BACKUP_SUFFIX = ".bak"
TOPICS_JSON, DELAY_OFFSETS = "topics.json", "delayOffset.json"
CONSUMER_OFFSETS, LMQ_OFFSETS = "consumerOffset.json", "lmqConsumerOffset.json"
TOPICS, DELAYS = f"{CONFIG}/{TOPICS_JSON}", f"{CONFIG}/{DELAY_OFFSETS}"
OFFSETS, OFFSETS_WITH_LIGHT_GROUPS = f"{CONFIG}/{CONSUMER_OFFSETS}", f"{CONFIG}/{LMQ_OFFSETS}"
BATCH_QUEUES = "BatchCQ"
DEFAULT_QUEUES = 16  # read and write queues of an entry without the field (TopicConfig)
_INT, _LONG = 1 << 31, 1 << 63
_LOOKS, _PAUSE_S = 20, 0.05


class FileState(Enum):
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
    paths = [locations.join(root, CONFIG, file) for file in (name, name + BACKUP_SUFFIX)]
    for look in range(_LOOKS + 1):
        if look:
            time.sleep(_PAUSE_S)
        found = ConfigFile(name, *(_read(path, DECODERS[name]) for path in paths))
        if found.main.content is FileState.SOUND or found.is_absent or not is_live(locations.join(root, LOCK)):
            break
    return found


def read_offsets(root: str, *, enable_lmq: bool) -> ConfigFile:
    """The file in which a broker with this setting keeps committed offsets."""
    return read_config(root, LMQ_OFFSETS if enable_lmq else CONSUMER_OFFSETS)


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
        value = decode(parse(text))
    except (ValueError, RecursionError) as error:
        return ConfigCopy(path, FileState.TORN, status.modified_ms, why=str(error) or type(error).__name__, text=text)
    return ConfigCopy(path, FileState.SOUND, status.modified_ms, value, text=text)


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


Offsets = Mapping[tuple[str, str], Mapping[int, int]]  # committed offsets by (topic, group), then by queue id


def _by_group(table: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Values by topic and group; only keys ``topic@group`` (ConsumerOffsetManager#decode)."""
    parts = [(key.partition("@"), value) for key, value in table.items()]
    return {(topic, group): value for (topic, _, group), value in parts if topic and group}


def decode_consumer_offsets(document: Any) -> Offsets:
    """Offsets of ``consumerOffset.json``."""
    table = _entries(document, "offsetTable").items()
    return _by_group({key: {_int(queue, _INT): _int(at) for queue, at in queues.items()} for key, queues in table})


def decode_light_groups(document: Any) -> Offsets:
    """Offsets of ``lmqConsumerOffset.json``: a light group has one for each of its topics, in queue 0."""
    light = _by_group(_table(document, "lmqOffsetTable"))
    return {**decode_consumer_offsets(document), **{key: {0: _int(offset)} for key, offset in light.items()}}


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
        read, write = (_int(entry.get(f"{use}QueueNums", DEFAULT_QUEUES), _INT) for use in ("read", "write"))
        found[topic] = TopicQueues(read, write, batch, compacted)
    return found


DECODERS: Mapping[str, Callable[[Any], Any]] = {
    TOPICS_JSON: decode_topics,
    CONSUMER_OFFSETS: decode_consumer_offsets,
    LMQ_OFFSETS: decode_light_groups,  # in place of the one above with ``enableLmq=true``
    "subscriptionGroup.json": partial(_entries, name="subscriptionGroupTable"),
    DELAY_OFFSETS: decode_delay_offsets,
    "consumerFilter.json": partial(_table, name="filterDataByTopic"),  # SQL92 expressions and their Bloom filters
    "consumerOrderInfo.json": partial(_table, name="table"),  # what ordered POP consumers hold (5.0.0)
    "topicQueueMapping.json": partial(_table, name="topicQueueMappingInfoMap"),  # queues of static topics (5.0.0)
    "timermetrics": partial(_table, name="timingCount"),  # waiting timer messages of each topic (5.0.0)
}
"""Decoders by file name; each raises ValueError for a document that cannot be in the file."""


_FEW_QUEUES, _QUEUES_OF_ONE = 1024, 16  # of more queues, one in 16 must have a message in the log
MADE_BY_BROKER = frozenset({
    "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC",
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
})  # fmt: skip


def find_batch_topics(root: str, named: Iterable[str]) -> frozenset[str]:
    """BatchCQ topics: named, configured, or with a directory. Raises WrongSettings if one has ordinary queues too."""
    found = set(named) | (configured_batch_topics(root) or set())
    there = files.list_directory(locations.join(root, BATCH_CONSUME_QUEUE)) or []
    found |= {entry.name for entry in there if entry.is_directory}
    for topic in sorted(found):
        ordinary = locations.join(root, CONSUME_QUEUE, topic)
        if files.list_directory(ordinary):
            raise WrongSettings("a topic of type BatchCQ has ordinary consume queues, too", path=ordinary, found=topic)
    return frozenset(found)


def topic_configuration(root: str) -> dict[str, Any] | None:
    """The document of ``config/topics.json``, or its backup, with all its fields; None without one."""
    taken = read_config(root, TOPICS_JSON).taken
    return dict(parse(taken.text)) if taken is not None and taken.value else None


def configured_batch_topics(root: str) -> set[str] | None:
    """BatchCQ topics in ``config/topics.json``; None without the file."""
    topics = read_config(root, TOPICS_JSON).value
    return topics and {topic for topic, own in topics.items() if own.batch and is_directory_name(topic.encode())}


def topic_entry(topic: str, queues: int, *, batch: bool) -> dict[str, Any]:
    return {
        "attributes": {"queue.type": BATCH_QUEUES} if batch else {},
        "order": False,
        "perm": 6,  # to be read and written
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def number_of_queues(queue_ids: Collection[int]) -> int:
    """Highest plausible queue id plus one: a damaged bit makes ids up to 2**30, and clients allocate each queue."""
    bound = max(_FEW_QUEUES, _QUEUES_OF_ONE * len(queue_ids))
    return 1 + max((queue_id for queue_id in queue_ids if 0 <= queue_id < bound), default=-1)


def lost_topics(queues: Mapping[str, int], known: Collection[str]) -> list[str]:
    """Topics of ``queues`` that need a configuration and are not ``known``, sorted."""
    return sorted(
        topic
        for topic in queues
        if topic not in known and topic not in MADE_BY_BROKER and not topic.startswith(("rmq_sys_", LIGHT_PREFIX))
    )


def topics_json(
    queues: Mapping[str, int], batch_topics: Collection[str], known: Mapping[str, Any] | None, timestamp: int
) -> tuple[bytes, list[str]]:
    """The file, and its topics that ``known`` (a parsed file) lacks or has with fewer read queues. ``queues``: number
    of queues of every topic in the log. ``timestamp``: milliseconds, for the data version.
    """
    before: Mapping[str, Any] = known or {}
    table = dict(before.get("topicConfigTable") or {})
    added = lost_topics(queues, table)
    for topic in added:
        table[topic] = topic_entry(topic, queues[topic], batch=topic in batch_topics)
    for topic in lost_topics(queues, added):
        entry = table[topic]
        read = entry.get("readQueueNums", DEFAULT_QUEUES) if isinstance(entry, dict) else None
        if isinstance(read, int) and read < queues[topic]:
            table[topic] = {**entry, "readQueueNums": queues[topic]}
            added.append(topic)
    stated = before.get("dataVersion")
    version = stated if stated and isinstance(stated, dict) else {"stateVersion": 0}
    if added:
        counter = version.get("counter")
        counter = counter if type(counter) is int and abs(counter) < (1 << 63) - 1 else 0
        version = {**version, "counter": counter + 1, "timestamp": timestamp}
    document = {**before, "dataVersion": version, "topicConfigTable": dict(sorted(table.items()))}
    return (json.dumps(document, ensure_ascii=False, indent="\t") + "\n").encode(), sorted(added)


SYSTEM_GROUPS = "CID_RMQ_SYS_"  # MixAll#isSysConsumerGroup; without an offset they begin at their queue's begin
GROUPS_OF_EVERY_BROKER = frozenset({  # SubscriptionGroupManager#init
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS", "CID_RMQ_SYS_TRANS",
})  # fmt: skip
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

_ENTRY = re.compile(r'((?<!\\)"(?:[^"\\]|\\.)+"\s*:\s*)\{([^{}]*)(\}|\Z)')
_LIGHT_ENTRY = re.compile(r'(?<!\\)"(?:[^"\\]|\\.)+"\s*:\s*\d+(?=\s*[,}])')


class DataVersion(NamedTuple):
    """Version of a file; the greater is newer (DataVersion#compare)."""

    state_version: int = 0
    counter: int = 0
    timestamp: int = 0


def data_version(text: str) -> DataVersion | None:
    """Version in a sound file; None before 5.0.0."""
    try:
        found = _mapping(parse(text)).get("dataVersion")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    numbers = (found.get("stateVersion", 0), found.get("counter", 0), found.get("timestamp", 0))
    in_range = all(type(number) is int and abs(number) < (1 << 63) - 1 for number in numbers)
    return DataVersion(*numbers) if in_range else None


def offsets_before_tear(text: str) -> Offsets:
    """The complete offsets in a torn file's tables; a group and topic without any is known to read it.

    >>> offsets_before_tear('{"offsetTable":{"T@one":{0:7,1:9},"T@two":{0:1,1:3')
    {('T', 'one'): {0: 7, 1: 9}, ('T', 'two'): {0: 1}}
    >>> offsets_before_tear('{"lmqOffsetTable":{"%LMQ%a@%LMQ%one":7,"%LMQ%a@%LMQ%two":1')
    {('%LMQ%a', '%LMQ%one'): {0: 7}}
    """
    _, _, table = text.partition('"offsetTable"')
    for later in ("resetOffsetTable", "pullOffsetTable", "groupTopicMap"):
        table = table.partition(f'"{later}"')[0]
    found: dict[tuple[str, str], Mapping[int, int]] = {}
    for key, pairs, end in _ENTRY.findall(table):
        whole = pairs if end else pairs.rpartition(",")[0]
        with suppress(ValueError):
            found.update(decode_consumer_offsets({"offsetTable": parse(f"{{{key}{{{whole}}}}}")}))
    light, end, _ = text.partition('"lmqOffsetTable"')[2].partition("}")
    for entry in _LIGHT_ENTRY.finditer(light + end):
        with suppress(ValueError):
            found.update(decode_light_groups({"lmqOffsetTable": parse("{" + entry[0] + "}")}))
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


def _group_of(retried: str, topics: Collection[str]) -> str:
    """Group of a retry topic, without the topic at the end of POP's (KeyBuilder)."""
    if len(retried) >= 1 << 15:  # no topic
        return retried
    ends = (at for at, letter in enumerate(retried) if letter in "_+" and retried[at + 1 :] in topics)
    return retried[: next(ends, len(retried))]


def highest_committed(group: str, end: int) -> int:
    """Highest offset with which a group skips no message after ``end`` messages of a queue."""
    return end - 1 if group == REVIVE_GROUP else end
