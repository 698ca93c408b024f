"""Checkpoint: store times up to which log, queues and index are on disk.

FORMAT.md has the fields of its one page; the rest, and fields newer than the broker, are zero. Mirrors StoreCheckpoint.
A broker reads it only after a crash: the times select the segment where recovery begins, and index files that end after
``index_msg_timestamp`` are deleted.
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
    """Parse a checkpoint; a short file reads as if zeros followed, as with mmap. Raises NotAStore if empty.

    >>> parse_checkpoint(StoreCheckpoint(logics_msg_timestamp=1717053302000).to_bytes()).logics_msg_timestamp
    1717053302000
    """
    if not len(content):
        raise NotAStore("the checkpoint is empty", found=0, expected=f"{PAGE_SIZE} bytes")
    return StoreCheckpoint(*FIELDS.unpack(bytes(content[: FIELDS.size]).ljust(FIELDS.size, b"\0")))


def is_plausible(content: bytes | memoryview) -> bool:
    """True for stamps that are times, offsets that a log can have, and zeros after them; not for a lost page."""
    if not len(content) or any(content[FIELDS.size :]):
        return False
    *stamps, flushed, confirmed, queued = astuple(parse_checkpoint(content))
    no_offset_yet = -1
    return all(0 <= stamp < _END_OF_TIMES for stamp in stamps) and all(
        no_offset_yet <= offset < _END_OF_LOGS for offset in (flushed, confirmed, queued)
    )


def for_rebuilt_store(
    *, last_store_timestamp: int, last_index_end_timestamp: int, last_queued_phy_offset: int
) -> StoreCheckpoint:
    """Checkpoint for queues and index files that are complete up to the end of the log.

    ``last_queued_phy_offset``: start of the last queued record (0: none, or no such field). The index time is that of
    the *last* file, where a broker writes that of the last full one: otherwise a crash right after the first start
    deletes the last file, and 5.4.0 and later index at most ten segments again.
    """
    return StoreCheckpoint(
        physic_msg_timestamp=last_store_timestamp,
        logics_msg_timestamp=last_store_timestamp,
        index_msg_timestamp=last_index_end_timestamp,
        logics_physical_offset=last_queued_phy_offset,
    )
