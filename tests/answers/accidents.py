"""The accidents of the frozen answers: what each does to a store, and which jobs are asked after it.

An accident changes files of a store that is its own, by a seeded draw; it returns settings to give with ``--set``, or
None where it does not apply.
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


def accident(kind: str, name: str = "") -> Callable[[Accident], Accident]:
    def add(function: Accident) -> Accident:
        ACCIDENTS[name or function.__name__] = kind, function
        return function

    return add


@accident(STATE)
def none(store: Store) -> tuple[str, ...]:
    return ()


# ------------------------------------------------------------------------------------------------------------------ log
def _flip_of_record(field: str) -> Accident:
    def change(store: Store) -> tuple[str, ...] | None:
        records = [record for record in store.records if record.places[field][1]]
        if not records:
            return None
        record = store.draw.choice(records)
        at, length = record.places[field]
        store.flip(record.segment, record.position + at, length)
        return ()

    return change


for _field in (
    "size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body",
    "topic", "properties",
):  # fmt: skip
    ACCIDENTS[f"log_flip_{_field}"] = LOG, _flip_of_record(_field)


def _last_written(store: Store) -> tuple[Path, int] | None:
    """A place in the last segment that has two records."""
    if not store.records:
        return None
    segment = store.records[-1].segment
    own = [record for record in store.records if record.segment == segment]
    record = store.draw.choice(own[len(own) // 2 :])
    return segment, record.position + store.draw.randrange(len(record.data))


@accident(LOG)
def log_tail_zeroed(store: Store) -> tuple[str, ...] | None:
    if (found := _last_written(store)) is None:
        return None
    segment, at = found
    store.write(segment, segment.read_bytes()[:at].ljust(segment.stat().st_size, b"\0"))
    return ()


@accident(LOG)
def log_tail_cut(store: Store) -> tuple[str, ...] | None:
    if (found := _last_written(store)) is None:
        return None
    segment, at = found
    store.write(segment, segment.read_bytes()[:at])
    return ()


@accident(LOG)
def log_tail_stale(store: Store) -> tuple[str, ...] | None:
    """Older records after the end of the log."""
    if not store.records:
        return None
    last, older = store.records[-1], store.draw.choice(store.records)
    end = last.position + len(last.data)
    room = last.segment.stat().st_size - end
    store.change(last.segment, end, older.data[: max(room, 0)])
    return ()


@accident(LOG)
def log_page_zeroed(store: Store) -> tuple[str, ...] | None:
    if not store.segments:
        return None
    segment = store.draw.choice(store.segments)
    size = segment.stat().st_size
    at = store.draw.randrange(size) & ~4095
    store.change(segment, at, bytes(min(4096, size - at)))
    return ()


def _segment_lost(which: int) -> Accident:
    def change(store: Store) -> tuple[str, ...] | None:
        if len(store.segments) < 3:
            return None
        store.segments[which].unlink()
        return ()

    return change


for _name, _which in (("first", 0), ("second", 1), ("last", -1)):
    ACCIDENTS[f"log_segment_lost_{_name}"] = LOG, _segment_lost(_which)


@accident(LOG)
def log_segments_swapped(store: Store) -> tuple[str, ...] | None:
    if len(store.segments) < 2:
        return None
    one, other = store.draw.sample(store.segments, 2)
    first, second = one.read_bytes(), other.read_bytes()
    store.write(one, second)
    store.write(other, first)
    return ()


@accident(LOG)
def log_segment_emptied(store: Store) -> tuple[str, ...] | None:
    if not store.segments:
        return None
    store.write(store.draw.choice(store.segments), b"")
    return ()


@accident(LOG)
def log_stray_file(store: Store) -> tuple[str, ...] | None:
    if not store.segments:
        return None
    (store.root / "commitlog" / "notes.txt").write_bytes(b"x")
    return ()


@accident(LOG)
def log_settings_other_size(store: Store) -> tuple[str, ...] | None:
    if not store.segments:
        return None
    return (f"mappedFileSizeCommitLog={2 * store.segments[0].stat().st_size}",)


# --------------------------------------------------------------------------------------------------------------- queues
def _queue_files(store: Store) -> list[Path]:
    return store.files("consumequeue/*/*/*", "batchconsumequeue/*/*/*")


def _some_queue_file(store: Store) -> Path | None:
    found = [path for path in _queue_files(store) if path.stat().st_size]
    return store.draw.choice(found) if found else None


@accident(QUEUES)
def queues_lost(store: Store) -> tuple[str, ...] | None:
    if not _queue_files(store):
        return None
    for name in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store.root / name, ignore_errors=True)
    return ()


@accident(QUEUES)
def queues_lost_log_cut(store: Store) -> tuple[str, ...] | None:
    """After a crash: ``abort`` is there, the end of the log and all queues are not."""
    if queues_lost(store) is None or log_tail_zeroed(store) is None:
        return None
    (store.root / "abort").touch()
    return ()


@accident(QUEUES)
def queue_lost(store: Store) -> tuple[str, ...] | None:
    if (path := _some_queue_file(store)) is None:
        return None
    shutil.rmtree(path.parent)
    return ()


@accident(QUEUES)
def queue_file_lost(store: Store) -> tuple[str, ...] | None:
    if (path := _some_queue_file(store)) is None:
        return None
    path.unlink()
    return ()


@accident(QUEUES)
def queue_file_short(store: Store) -> tuple[str, ...] | None:
    if (path := _some_queue_file(store)) is None:
        return None
    store.write(path, path.read_bytes()[: -store.draw.choice((1, 20, 46))])
    return ()


@accident(QUEUES)
def queue_file_empty(store: Store) -> tuple[str, ...] | None:
    """The next file of a queue, as a kill leaves it."""
    if (path := _some_queue_file(store)) is None:
        return None
    last = max(path.parent.iterdir())
    last.with_name(f"{int(last.name) + last.stat().st_size:020d}").touch()
    return ()


@accident(QUEUES)
def queue_file_misnamed(store: Store) -> tuple[str, ...] | None:
    if (path := _some_queue_file(store)) is None:
        return None
    path.rename(path.with_name(f"{int(path.name) + 20:020d}"))
    return ()


@accident(QUEUES)
def queue_tail_zeroed(store: Store) -> tuple[str, ...] | None:
    if (path := _some_queue_file(store)) is None:
        return None
    size = path.stat().st_size
    store.write(path, path.read_bytes()[: store.draw.randrange(size) // 20 * 20].ljust(size, b"\0"))
    return ()


def _flip_of_unit(at: int, length: int) -> Accident:
    def change(store: Store) -> tuple[str, ...] | None:
        units = [
            (path, start)
            for path in store.files("consumequeue/*/*/*")
            for start in range(0, path.stat().st_size - 19, 20)
            if path.stat().st_size < 1 << 20 and any(path.read_bytes()[start + 8 : start + 12])
        ]
        if not units:
            return None
        path, start = store.draw.choice(units)
        store.flip(path, start + at, length)
        return ()

    return change


for _name, _at, _length in (("offset", 0, 8), ("size", 8, 4), ("tags_code", 12, 8)):
    ACCIDENTS[f"queue_flip_{_name}"] = QUEUES, _flip_of_unit(_at, _length)


# ---------------------------------------------------------------------------------------------------------------- index
@accident(INDEX)
def index_lost(store: Store) -> tuple[str, ...] | None:
    if not store.files("index/*"):
        return None
    shutil.rmtree(store.root / "index")
    return ()


@accident(INDEX)
def index_file_lost(store: Store) -> tuple[str, ...] | None:
    files = store.files("index/*")
    if not files:
        return None
    store.draw.choice(files).unlink()
    return ()


def _flip_of_index(begin: float, end: float) -> Accident:
    """One bit of a byte that is not zero, between two fractions of the file, or in its header."""

    def change(store: Store) -> tuple[str, ...] | None:
        files = [path for path in store.files("index/*") if path.stat().st_size > 40]
        if not files:
            return None
        path = store.draw.choice(files)
        data = path.read_bytes()
        low, high = (0, 40) if end == 0 else (int(len(data) * begin), int(len(data) * end))
        used = [at for at in range(max(low, 0), high) if data[at]]
        if not used:
            return None
        store.flip(path, store.draw.choice(used), 1)
        return ()

    return change


ACCIDENTS["index_flip_header"] = INDEX, _flip_of_index(0, 0)
ACCIDENTS["index_flip_begin"] = INDEX, _flip_of_index(0.02, 0.2)
ACCIDENTS["index_flip_end"] = INDEX, _flip_of_index(0.4, 1)


# ---------------------------------------------------------------------------------------------------------------- state
@accident(STATE)
def checkpoint_lost(store: Store) -> tuple[str, ...] | None:
    if not (store.root / "checkpoint").exists():
        return None
    (store.root / "checkpoint").unlink()
    return ()


@accident(STATE)
def checkpoint_ahead(store: Store) -> tuple[str, ...] | None:
    path = store.root / "checkpoint"
    if not path.exists():
        return None
    store.change(path, 8 * store.draw.randrange(3), struct.pack(">q", 4_000_000_000_000))
    return ()


@accident(STATE)
def abort_there(store: Store) -> tuple[str, ...] | None:
    if (store.root / "abort").exists():
        return None
    (store.root / "abort").touch()
    return ()


def _torn(name: str) -> Accident:
    def change(store: Store) -> tuple[str, ...] | None:
        path = store.root / "config" / name
        if not path.exists():
            return None
        (path.with_name(f"{name}.bak")).unlink(missing_ok=True)
        store.write(path, path.read_bytes()[: path.stat().st_size // 2])
        return ()

    return change


def _gone(name: str) -> Accident:
    def change(store: Store) -> tuple[str, ...] | None:
        found = store.files(f"config/{name}", f"config/{name}.bak")
        for path in found:
            path.unlink()
        return () if found else None

    return change


for _name in ("topics", "consumerOffset", "subscriptionGroup", "delayOffset"):
    ACCIDENTS[f"config_torn_{_name}"] = STATE, _torn(f"{_name}.json")
for _name in ("topics", "consumerOffset"):
    ACCIDENTS[f"config_lost_{_name}"] = STATE, _gone(f"{_name}.json")
ACCIDENTS["config_lost"] = STATE, _gone("*.json")


@accident(STATE)
def config_offsets_ahead(store: Store) -> tuple[str, ...] | None:
    path = store.root / "config" / "consumerOffset.json"
    if not path.exists() or not store.records:
        return None
    topic = store.draw.choice(store.records).text("topic")
    store.write(path, json.dumps({"offsetTable": {f"{topic}@ahead": {"0": 1 << 20}}}).encode())
    return ()


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
