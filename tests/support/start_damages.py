"""What can be wrong with a small store before a start: functions that do one thing to it, and stores to do it to.

``place`` is a path below the store's root, or a pattern of such paths; texts of settings have the root for ``ROOT``.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from support.planting import flip
from support.store_builder import LogBuilder
from support.store_to_start import QUEUE_FILE, QUEUES, SEGMENT, TOPICS, StoreToStart, as_fastjson, finished
from support.store_to_start import healthy_store as healthy

from storeformat.store.checkpoint import StoreCheckpoint

Damage = Callable[[StoreToStart], object]
Base = Callable[[Path], StoreToStart]
FIRST = f"{0:020d}"
ORDERS = f"consumequeue/Orders/0/{FIRST}"
UNIT = struct.Struct(">qiq")
WHEEL_SIZE = 38_707_200


def found(store: StoreToStart, place: str) -> list[Path]:
    return sorted(store.root.glob(place)) if "*" in place else [store.root / place]


# --------------------------------------------------------------------------------------------------------------- files
def each(place: str, change: Callable[[Path], object]) -> Damage:
    return lambda store: [change(path) for path in found(store, place)]


def without(*places: str) -> Damage:
    return lambda store: [
        shutil.rmtree(path) if path.is_dir() else path.unlink() for place in places for path in found(store, place)
    ]


def put(place: str, content: bytes | str = b"") -> Damage:
    def damage(store: StoreToStart) -> None:
        path = store.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def config(name: str, document: object) -> Damage:
    return put(f"config/{name}", as_fastjson(document))


def patched(place: str, at: int, content: bytes) -> Damage:
    def change(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:at] + content + data[at + len(content) :])

    return each(place, change)


def flipped(place: str, at: int) -> Damage:
    return each(place, lambda path: flip(path, at))


def flipped_record(number: int, at: int) -> Damage:
    def damage(store: StoreToStart) -> None:
        segment, place = divmod(store.log.records[number].offset, SEGMENT)
        flip(store.segment(segment), place + at)

    return damage


def sized(place: str, size: int) -> Damage:
    return each(place, lambda path: os.truncate(path, size))


def folder(place: str) -> Damage:
    def damage(store: StoreToStart) -> None:
        (store.root / place).unlink(missing_ok=True)
        (store.root / place).mkdir(parents=True)

    return damage


def moved(place: str, to: str) -> Damage:
    def damage(store: StoreToStart) -> None:
        (store.root / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(found(store, place)[-1], store.root / to)

    return damage


def copied(place: str, to: str) -> Damage:
    return lambda store: shutil.copytree(store.root / place, store.root / to)


def linked(place: str, to: str) -> Damage:
    return lambda store: (store.root / place).symlink_to(store.root / to)


def aged(hours: float, segments: int) -> Damage:
    return lambda store: store.age(hours, segments)


def second_older(place: str, than: str, seconds: float) -> Damage:
    def damage(store: StoreToStart) -> None:
        os.utime(store.root / than, (1e9, 1e9))
        os.utime(store.root / place, (1e9 - seconds, 1e9 - seconds))

    return damage


# ------------------------------------------------------------------------------------------------ settings, offsets
def conf(**settings: str) -> Damage:
    def damage(store: StoreToStart) -> None:
        root = str(store.root)
        beside = {name: text.replace("ROOT/..", str(store.root.parent)) for name, text in settings.items()}
        store.conf.update({name: text.replace("ROOT", root) for name, text in beside.items()})

    return damage


def unset(name: str) -> Damage:
    return lambda store: store.conf.pop(name)


def commit(offsets: Mapping[str, Mapping[int, int]]) -> Damage:
    return lambda store: store.commit(offsets)


def topics(*names: str, **entry: Any) -> Damage:
    entry = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, **entry}
    return config("topics.json", {"topicConfigTable": dict.fromkeys(names, entry)})


def relative_root(store: StoreToStart) -> None:
    store.conf["storePathRootDir"] = os.path.relpath(store.root)


ABORT = put("abort")
NO_GROUP = commit({})
NO_OFFSET = config("consumerOffset.json", {"offsetTable": {}})
NO_SUBSCRIPTIONS = config("subscriptionGroup.json", {"subscriptionGroupTable": {}})
NO_SEGMENTS = without("commitlog/*")
NO_QUEUES = without("consumequeue")
ALL_READ = commit({f"{topic}@readers": {0: 10, 1: 10} for topic in TOPICS})
ROCKSDB = conf(storeType="defaultRocksDB")
V2 = conf(configManagerVersion="v2")
CONTROLLER = conf(enableControllerMode="true")


def database(*places: str) -> Damage:
    """Databases as far as their files show."""

    def damage(store: StoreToStart) -> None:
        for place in places:
            put(f"{place}/CURRENT", "MANIFEST-000004\n")(store)
            put(f"{place}/MANIFEST-000004", b"x")(store)
            put(f"{place}/000009.sst", b"x")(store)

    return damage


# --------------------------------------------------------------------------------------------------- queues and log
def units(place: str, *own: tuple[int, int] | bytes) -> Damage:
    """A queue file of these units (offset, size)."""
    packed = [unit if isinstance(unit, bytes) else UNIT.pack(*unit, 0) for unit in own]
    return put(place, b"".join(packed).ljust(QUEUE_FILE, b"\0"))


def units_of(place: str, *numbers: int | None) -> Damage:
    """A queue file of the units of these records of the log; None is a filler."""

    def damage(store: StoreToStart) -> None:
        records = [None if number is None else store.log.records[number] for number in numbers]
        units(place, *((0, 0x7FFFFFFF) if one is None else (one.offset, one.size) for one in records))(store)

    return damage


def unit(place: str, at: int, number: int, size: int | None = None) -> Damage:
    """The unit of a record in the place of another."""

    def damage(store: StoreToStart) -> None:
        record = store.log.records[number]
        patched(place, at, UNIT.pack(record.offset, record.size if size is None else size, 0))(store)

    return damage


def checkpoint(later_ms: int) -> Damage:
    """A checkpoint of so long after the last message."""

    def damage(store: StoreToStart) -> None:
        time = store.log.clock + later_ms
        put("checkpoint", StoreCheckpoint(time, time, time).to_bytes())(store)

    return damage


def segments_swapped(store: StoreToStart) -> None:
    one, other = store.segment(0), store.segment(1)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def older_log(store: StoreToStart) -> None:
    """The copy of a slave that lags: the queues are those of the master."""
    store.log.truncate(store.log.records[20].offset)
    NO_SEGMENTS(store)
    store.log.write(store.root)
    last, end = store.segment(-1), store.log.end_offset % SEGMENT
    last.write_bytes(last.read_bytes()[:end].ljust(SEGMENT, b"\0"))


def older_queues(store: StoreToStart) -> None:
    """The log has lost its first segment, and the queues are those of a backup from before."""
    store.segment(0).unlink()
    for path in (store.root / "consumequeue").glob("*/*/0*"):
        path.write_bytes(path.read_bytes()[:60].ljust(QUEUE_FILE, b"\0"))
    without("index/*")(store)


def torn_tail(store: StoreToStart) -> None:
    record = store.segment(0).read_bytes()[:100]
    patched(f"commitlog/{store.segment(-1).name}", store.log.end_offset % SEGMENT, record)(store)


def filled_to(segments: int) -> Damage:
    """Preallocated segments after the two of the log."""
    return lambda store: [put(f"commitlog/{n * SEGMENT:020d}", bytes(SEGMENT))(store) for n in range(2, segments)]


# --------------------------------------------------------------------------------------------------- timers, epochs
def check(queued: int, read_until: int = 1) -> Damage:
    return put("config/timercheck", struct.pack(">4q", read_until, 260, queued, queued).ljust(4096, b"\0"))


def timer_units(*offsets: int, slot: int = 1000, waited: int = 1000, magics: Sequence[int] = (1,)) -> Damage:
    """A timer log of units of messages at these offsets, from the log's end on, which waited for a slot."""
    from storeformat.store.timer_files import TimerUnit, timer_log

    def damage(store: StoreToStart) -> None:
        end = store.log.end_offset
        ends = [max(end + offset, 0) for offset in offsets]
        ((_, data),) = timer_log([TimerUnit(slot, slot - waited, one, at, 100) for one in magics for at in ends], 1000)
        put(f"timerlog/{FIRST}", data.ljust(1000, b"\0"))(store)

    return damage


def epochs(text: str = "7-0\n8-4096\n", crc: int | None = None, count: int = 2) -> str:
    return f"{count}\n{zlib.crc32(text.encode()) & 0x7FFFFFFF if crc is None else crc}\n{text}"


# --------------------------------------------------------------------------------------------------------------- stores
def of(messages: int, dispatched: int | None = None) -> Base:
    return partial(healthy, messages=messages, dispatched=dispatched)


def log_of(*messages: Mapping[str, Any], first: int = 0, dispatched: int | None = None) -> Base:
    """A store of these messages, after the ``first`` ones of a healthy one; ``later`` is in milliseconds."""

    def base(root: Path) -> StoreToStart:
        log = healthy(root.parent / "first", first).log if first else LogBuilder(SEGMENT)
        for message in messages:
            fields = {"body": bytes(60), **message}
            log.message(store_timestamp=log.clock + fields.pop("later", 1), **fields)
        store, most = finished(root, log, dispatched=dispatched), dict[str, int]()
        for topic, queue_id in log.queue_offsets:
            most[topic] = max(queue_id + 1, most.get(topic, 0))
        tables = {topic: {"readQueueNums": count, "writeQueueNums": count} for topic, count in most.items()}
        config("topics.json", {"topicConfigTable": tables})(store)
        return store

    return base


def orders(*queue_offsets: int, queue_id: int = 0) -> list[dict[str, Any]]:
    return [{"topic": "Orders", "queue_id": queue_id, "queue_offset": number} for number in queue_offsets]


def delayed(*later: int, level: int = 3) -> list[dict[str, Any]]:
    """Messages of a delay level, each stored so many milliseconds after the one before."""
    properties = {"DELAY": str(level), "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    topic = "SCHEDULE_TOPIC_XXXX"
    return [{"topic": topic, "queue_id": level - 1, "properties": properties, "later": ms} for ms in later]


def due(served: int) -> Base:
    """Three messages wait ten seconds, the last of them when the log ends; ``served`` were delivered."""

    def base(root: Path) -> StoreToStart:
        store = log_of(*delayed(0, 5_000, 95_000))(root)
        config("delayOffset.json", {"offsetTable": {3: served}})(store)
        return store

    return base


def timers(root: Path) -> StoreToStart:
    """A store with five timer messages, all of them queued."""
    properties = {"TIMER_OUT_MS": "4102444800000", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    store = log_of(*[{"topic": "rmq_sys_wheel_timer", "queue_id": 0, "properties": properties}] * 5)(root)
    store.conf["mappedFileSizeTimerLog"] = "1000"
    for damage in (put("timerwheel"), sized("timerwheel", WHEEL_SIZE), put(f"timerlog/{FIRST}", bytes(1000)), check(5)):
        damage(store)
    return store


def with_databases(*names: str) -> Base:
    """A store whose configuration is in databases, and none of it in JSON; of its queues none is made yet."""

    def base(root: Path) -> StoreToStart:
        store = healthy(root)
        for damage in (ROCKSDB, without("config/[tsc]*.json"), database(*(f"config/{name}" for name in names))):
            damage(store)
        return store

    return base


def made_anew(root: Path) -> StoreToStart:
    """Orders was deleted, and has three messages again."""
    log = healthy(root.parent / "first").log
    log.delete_topic("Orders")
    for _ in range(3):
        log.message(topic="Orders", queue_id=1)
    return finished(root, log)


def leftovers(root: Path) -> StoreToStart:
    """A broker that cut its log wrote on; records of the old log lie after its end, older than the last one."""
    log = healthy(root.parent / "first").log
    log.truncate(log.records[36].offset)
    log.message(topic="Orders", queue_id=0, body=bytes(45), store_timestamp=log.clock + 10_000)
    return finished(root, log)
