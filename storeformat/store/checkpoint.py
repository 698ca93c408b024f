"""Checkpoint: store times up to which log, queues and index are on disk (FORMAT.md).

Mirrors StoreCheckpoint. A broker reads it only after a crash: the times select the segment where recovery begins, and
index files that end after ``index_msg_timestamp`` are deleted.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from storeformat.errors import NotAStore

PAGE_SIZE = 4096
FIELDS = struct.Struct(">6q")

_END_OF_TIMES = 1 << 43  # milliseconds, year 2248
_END_OF_LOGS = 1 << 50


@dataclass(frozen=True)
class StoreCheckpoint:
    """The fields of a checkpoint file; 0: not yet set."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    def to_bytes(self) -> bytes:
        return FIELDS.pack(*astuple(self)).ljust(PAGE_SIZE, b"\0")


def parse_checkpoint(content: bytes | memoryview) -> StoreCheckpoint:
    """Parse a checkpoint; a short file reads as if zeros followed, as with mmap. Raises NotAStore if empty."""
    if not len(content):
        raise NotAStore("the checkpoint is empty", found=0, expected=f"{PAGE_SIZE} bytes")
    return StoreCheckpoint(*FIELDS.unpack(bytes(content[: FIELDS.size]).ljust(FIELDS.size, b"\0")))


def is_plausible(content: bytes | memoryview) -> bool:
    """True for stamps that are times, offsets that a log can have, and zeros after them; not for a lost page."""
    if not len(content) or any(content[FIELDS.size :]):
        return False
    *stamps, flushed, confirmed, queued = astuple(parse_checkpoint(content))
    times = all(0 <= stamp < _END_OF_TIMES for stamp in stamps)
    return times and all(-1 <= offset < _END_OF_LOGS for offset in (flushed, confirmed, queued))  # -1: none yet
