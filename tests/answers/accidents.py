"""The accidents of the frozen answers: what each does to a store, and which jobs are asked after it.

An accident changes files of a store that is its own, by a seeded draw; it may return settings to give with ``--set``.
In ``ACCIDENTS`` it returns settings, or None where it does not apply.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

MAGICS = (0xDAA320A7, 0xDAA320AB)


@dataclass(frozen=True)
class Record:
    """One record of the log, by the sizes that lead to it."""

    segment: Path
    position: int
    data: bytes

    def field(self, layout: str, at: int) -> int:
        return int(struct.unpack_from(">" + layout, self.data, at)[0])

    @property
    def hosts(self) -> tuple[int, int]:
        """Lengths of born host and store host."""
        flags = self.field("i", 36)
        return 20 if flags & 0x10 else 8, 20 if flags & 0x20 else 8

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Position and length of each field."""
        born, stored = self.hosts
        time, body = 48 + born, 68 + born + stored
        body_size = max(self.field("i", body), 0)
        topic = body + 4 + body_size
        wide = self.field("I", 4) == MAGICS[1]
        topic_size = self.field("H" if wide else "B", topic)
        properties = topic + 1 + wide + topic_size
        return {
            "size": (0, 4), "magic": (4, 4), "body_crc": (8, 4), "queue_id": (12, 4), "queue_offset": (20, 8),
            "physical_offset": (28, 8), "sys_flag": (36, 4), "store_timestamp": (time, 8),
            "body": (body + 4, body_size),
            "topic": (topic + 1 + wide, topic_size), "properties": (properties + 2, self.field("H", properties)),
        }  # fmt: skip

    def text(self, name: str) -> str:
        at, length = self.places[name]
        return self.data[at : at + length].decode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        pairs = (pair.partition("\1") for pair in self.text("properties").split("\2"))
        return {name: value for name, mark, value in pairs if mark}

    def number(self, name: str) -> int:
        at, length = self.places[name]
        return int.from_bytes(self.data[at : at + length], "big", signed=True)

    @property
    def message_id(self) -> str:
        born, stored = self.hosts
        return (self.data[56 + born : 56 + born + stored] + self.data[28:36]).hex().upper()


@dataclass
class Store:
    """A store whose files are links to those of another until they change."""

    root: Path
    draw: random.Random

    def files(self, *patterns: str) -> list[Path]:
        return sorted(path for pattern in patterns for path in self.root.glob(pattern) if path.is_file())

    @cached_property
    def segments(self) -> list[Path]:
        return self.files("commitlog/0*")

    @cached_property
    def records(self) -> list[Record]:
        return [record for segment in self.segments for record in records_of(segment)]

    def write(self, path: Path, data: bytes) -> None:
        path.unlink()  # the other name of the file keeps its content
        path.write_bytes(data)

    def change(self, path: Path, at: int, data: bytes) -> None:
        content = bytearray(path.read_bytes())
        content[at : at + len(data)] = data
        self.write(path, bytes(content))

    def flip(self, path: Path, at: int, length: int) -> None:
        content = bytearray(path.read_bytes())
        content[at + self.draw.randrange(length)] ^= 1 << self.draw.randrange(8)
        self.write(path, bytes(content))


def records_of(segment: Path) -> Iterator[Record]:
    data, position = segment.read_bytes(), 0
    while position + 91 <= len(data):
        size, magic = struct.unpack_from(">iI", data, position)
        if magic not in MAGICS or size < 91:
            return
        yield Record(segment, position, data[position : position + size])
        position += size


Accident = Callable[[Store], "tuple[str, ...] | None"]
LOG, QUEUES, INDEX, STATE = "log", "queues", "index", "state"
ACCIDENTS: dict[str, tuple[str, Accident]] = {}
"""Each with the part of the store that it meets."""


class DoesNotApplyError(Exception):
    """The store has nothing that the accident could meet."""


def some(found: Any) -> Any:
    """What an accident meets, if there is any."""
    if not found:
        raise DoesNotApplyError
    return found


def accident(kind: str, name: str = "") -> Callable[[Accident], Accident]:
    def add(function: Accident) -> Accident:
        def tried(store: Store) -> tuple[str, ...] | None:
            try:
                return function(store) or ()
            except DoesNotApplyError:
                return None

        ACCIDENTS[name or function.__name__] = kind, tried
        return function

    return add


@accident(STATE)
def none(store: Store) -> None:
    """The store as it is."""


# ------------------------------------------------------------------------------------------------------------------ log
def _flip_of_record(field: str) -> Accident:
    def change(store: Store) -> None:
        record = store.draw.choice(some([record for record in store.records if record.places[field][1]]))
        at, length = record.places[field]
        store.flip(record.segment, record.position + at, length)

    return change


for _field in (
    "size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body",
    "topic", "properties",
):  # fmt: skip
    accident(LOG, f"log_flip_{_field}")(_flip_of_record(_field))


def _last_written(store: Store) -> tuple[Path, int]:
    """A place in the last segment that has two records."""
    segment = some(store.records)[-1].segment
    own = [record for record in store.records if record.segment == segment]
    record = store.draw.choice(own[len(own) // 2 :])
    return segment, record.position + store.draw.randrange(len(record.data))


@accident(LOG)
def log_tail_zeroed(store: Store) -> None:
    segment, at = _last_written(store)
    store.write(segment, segment.read_bytes()[:at].ljust(segment.stat().st_size, b"\0"))


@accident(LOG)
def log_tail_cut(store: Store) -> None:
    segment, at = _last_written(store)
    store.write(segment, segment.read_bytes()[:at])


@accident(LOG)
def log_tail_stale(store: Store) -> None:
    """Older records after the end of the log."""
    some(store.records)
    last, older = store.records[-1], store.draw.choice(store.records)
    end = last.position + len(last.data)
    room = last.segment.stat().st_size - end
    store.change(last.segment, end, older.data[: max(room, 0)])


@accident(LOG)
def log_page_zeroed(store: Store) -> None:
    segment = store.draw.choice(some(store.segments))
    size = segment.stat().st_size
    at = store.draw.randrange(size) & ~4095
    store.change(segment, at, bytes(min(4096, size - at)))


def _segment_lost(which: int) -> Accident:
    def change(store: Store) -> None:
        some(store.segments[2:])
        store.segments[which].unlink()

    return change


for _name, _which in (("first", 0), ("second", 1), ("last", -1)):
    accident(LOG, f"log_segment_lost_{_name}")(_segment_lost(_which))


@accident(LOG)
def log_segments_swapped(store: Store) -> None:
    some(store.segments[1:])
    one, other = store.draw.sample(store.segments, 2)
    first, second = one.read_bytes(), other.read_bytes()
    store.write(one, second)
    store.write(other, first)


@accident(LOG)
def log_segment_emptied(store: Store) -> None:
    store.write(store.draw.choice(some(store.segments)), b"")


@accident(LOG)
def log_stray_file(store: Store) -> None:
    some(store.segments)
    (store.root / "commitlog" / "notes.txt").write_bytes(b"x")


@accident(LOG)
def log_settings_other_size(store: Store) -> tuple[str, ...] | None:
    return (f"mappedFileSizeCommitLog={2 * some(store.segments)[0].stat().st_size}",)


# --------------------------------------------------------------------------------------------------------------- queues
def _queue_files(store: Store) -> list[Path]:
    return store.files("consumequeue/*/*/*", "batchconsumequeue/*/*/*")


def _some_queue_file(store: Store) -> Path:
    return store.draw.choice(some([path for path in _queue_files(store) if path.stat().st_size]))


@accident(QUEUES)
def queues_lost(store: Store) -> None:
    some(_queue_files(store))
    for name in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store.root / name, ignore_errors=True)


@accident(QUEUES)
def queues_lost_log_cut(store: Store) -> None:
    """After a crash: ``abort`` is there, the end of the log and all queues are not."""
    queues_lost(store)
    log_tail_zeroed(store)
    (store.root / "abort").touch()


@accident(QUEUES)
def queue_lost(store: Store) -> None:
    shutil.rmtree(_some_queue_file(store).parent)


@accident(QUEUES)
def queue_file_lost(store: Store) -> None:
    _some_queue_file(store).unlink()


@accident(QUEUES)
def queue_file_short(store: Store) -> None:
    path = _some_queue_file(store)
    store.write(path, path.read_bytes()[: -store.draw.choice((1, 20, 46))])


@accident(QUEUES)
def queue_file_empty(store: Store) -> None:
    """The next file of a queue, as a kill leaves it."""
    path = _some_queue_file(store)
    last = max(path.parent.iterdir())
    last.with_name(f"{int(last.name) + last.stat().st_size:020d}").touch()


@accident(QUEUES)
def queue_file_misnamed(store: Store) -> None:
    path = _some_queue_file(store)
    path.rename(path.with_name(f"{int(path.name) + 20:020d}"))


@accident(QUEUES)
def queue_tail_zeroed(store: Store) -> None:
    path = _some_queue_file(store)
    size = path.stat().st_size
    store.write(path, path.read_bytes()[: store.draw.randrange(size) // 20 * 20].ljust(size, b"\0"))


def _flip_of_unit(at: int, length: int) -> Accident:
    def change(store: Store) -> None:
        units = [
            (path, start)
            for path in store.files("consumequeue/*/*/*")
            for start in range(0, path.stat().st_size - 19, 20)
            if path.stat().st_size < 1 << 20 and any(path.read_bytes()[start + 8 : start + 12])
        ]
        path, start = store.draw.choice(some(units))
        store.flip(path, start + at, length)

    return change


for _name, _at, _length in (("offset", 0, 8), ("size", 8, 4), ("tags_code", 12, 8)):
    accident(QUEUES, f"queue_flip_{_name}")(_flip_of_unit(_at, _length))


# ---------------------------------------------------------------------------------------------------------------- index
@accident(INDEX)
def index_lost(store: Store) -> None:
    some(store.files("index/*"))
    shutil.rmtree(store.root / "index")


@accident(INDEX)
def index_file_lost(store: Store) -> None:
    store.draw.choice(some(store.files("index/*"))).unlink()


def _flip_of_index(begin: float, end: float) -> Accident:
    """One bit of a byte that is not zero, between two fractions of the file, or in its header."""

    def change(store: Store) -> None:
        files = [path for path in store.files("index/*") if path.stat().st_size > 40]
        path = store.draw.choice(some(files))
        data = path.read_bytes()
        low, high = (0, 40) if end == 0 else (int(len(data) * begin), int(len(data) * end))
        used = [at for at in range(max(low, 0), high) if data[at]]
        store.flip(path, store.draw.choice(some(used)), 1)

    return change


accident(INDEX, "index_flip_header")(_flip_of_index(0, 0))
accident(INDEX, "index_flip_begin")(_flip_of_index(0.02, 0.2))
accident(INDEX, "index_flip_end")(_flip_of_index(0.4, 1))


# ---------------------------------------------------------------------------------------------------------------- state
@accident(STATE)
def checkpoint_lost(store: Store) -> None:
    for path in some(store.files("checkpoint")):
        path.unlink()


@accident(STATE)
def checkpoint_ahead(store: Store) -> None:
    (path,) = some(store.files("checkpoint"))
    store.change(path, 8 * store.draw.randrange(3), struct.pack(">q", 4_000_000_000_000))


@accident(STATE)
def abort_there(store: Store) -> None:
    some(not (store.root / "abort").exists())
    (store.root / "abort").touch()


def _torn(name: str) -> Accident:
    def change(store: Store) -> None:
        (path,) = some(store.files(f"config/{name}"))
        (path.with_name(f"{name}.bak")).unlink(missing_ok=True)
        store.write(path, path.read_bytes()[: path.stat().st_size // 2])

    return change


def _gone(name: str) -> Accident:
    def change(store: Store) -> None:
        for path in some(store.files(f"config/{name}", f"config/{name}.bak")):
            path.unlink()

    return change


for _name in ("topics", "consumerOffset", "subscriptionGroup", "delayOffset"):
    accident(STATE, f"config_torn_{_name}")(_torn(f"{_name}.json"))
for _name in ("topics", "consumerOffset"):
    accident(STATE, f"config_lost_{_name}")(_gone(f"{_name}.json"))
accident(STATE, "config_lost")(_gone("*.json"))


@accident(STATE)
def config_offsets_ahead(store: Store) -> None:
    (path,) = some(store.files("config/consumerOffset.json"))
    topic = store.draw.choice(some(store.records)).text("topic")
    store.write(path, json.dumps({"offsetTable": {f"{topic}@ahead": {"0": 1 << 20}}}).encode())


@accident(STATE)
def settings_retention(store: Store) -> tuple[str, ...] | None:
    """Segments that are older than what is kept."""
    for path in store.segments[:-1]:
        data = path.read_bytes()
        store.write(path, data)
        old = path.stat().st_mtime - 100 * 3600
        os.utime(path, (old, old))
    return ("fileReservedTime=48",)


assert len(ACCIDENTS) >= 40
