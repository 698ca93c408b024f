"""Faults planted in a real store: where its files hold what, and what ``verify`` must say of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from support import golden
from support.verifying import verify_here

from jobs.verdicts import Verdicts

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
