"""Faults planted in a real store: where its files hold what, and what ``verify`` must say of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import golden
from support.rebuilding import rebuild_here, verify_here
from support.store_builder import LogBuilder

from jobs.verify.differences import Verdicts

(STORE,) = golden.stores("base-clean-5.5.0")
SLOTS = int(STORE.settings["maxHashSlotNum"])
ENTRIES = 40 + 4 * SLOTS
UNIT = struct.Struct(">qiq")
SEGMENT = "mappedFileSizeCommitLog"
QUEUE = "consumequeue/A/0"
FIRST_FILE = f"{QUEUE}/00000000000000000000"


def verdicts(root: Path, **options: Any) -> Verdicts:
    return verify_here(root, STORE.settings, **options).verdicts


def flip(path: Path, position: int, mask: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


def only(root: Path, cause: str, file: str, position: int | None, count: int = 1) -> dict[str, Any]:
    """The one difference there is, which is as told."""
    found = verdicts(root)
    assert found.counts == {cause: count}, found.differences
    difference = found.differences[0]
    assert (difference["cause"], difference["file"], difference["position"]) == (cause, file, position)
    return difference


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def end_of(file: Path) -> int:
    content = file.read_bytes()
    return next(at for at in range(0, len(content), 20) if not any(content[at : at + 20]))


def entry_at(number: int) -> int:
    return ENTRIES + 20 * number


def rewrite(file: Path, change: Callable[[list[bytes]], None]) -> None:
    """Changes the entries of an index file as a broker would have written them: links, slots and header fit."""
    content = bytearray(file.read_bytes())
    (count,) = struct.unpack_from(">i", content, 36)
    entries = [bytes(content[entry_at(n) : entry_at(n) + 16]) for n in range(1, count)]
    change(entries)
    slots = [0] * SLOTS
    content[40:] = bytes(len(content) - 40)
    for number, entry in enumerate(entries, 1):
        (key_hash,) = struct.unpack_from(">i", entry)
        content[entry_at(number) : entry_at(number) + 20] = entry + struct.pack(">i", slots[key_hash % SLOTS])
        slots[key_hash % SLOTS] = number
    struct.pack_into(f">{SLOTS}i", content, 40, *slots)
    used = sum(map(bool, slots))
    begin, end = (struct.unpack_from(">q", entry, 4)[0] for entry in (entries[0], entries[-1]))
    struct.pack_into(">qqii", content, 16, begin, end, used, len(entries) + 1)
    file.write_bytes(content)


SMALL = {"maxHashSlotNum": SLOTS, "maxIndexNum": 4, "mappedFileSizeConsumeQueue": 60}


def three_a_file(work: Path, count: int, *, step: int = 0, topic: str = "T") -> Path:
    """A store of records ``step`` ms apart: three fill a segment, an index file and a file of the queue."""
    log = LogBuilder(4096)
    for number in range(count):
        log.message(topic=topic, keys=f"k{number}", body=bytes(1100), store_timestamp=1_600_000_000_000 + step * number)
    assert len(log.segments) == -(-count // 3)
    root = log.write(work / "store")
    made = Path(rebuild_here(root, work, SMALL).directory)
    for name in ("consumequeue", "index", "checkpoint"):
        (made / name).rename(root / name)
    return root
