"""Local files with the standard library alone: reports are written before anything else is installed."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from storeformat.errors import WriteFailed

_NO_HOLES = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})
"""Errors of file systems without SEEK_DATA."""

_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def replace_bytes(path: str, data: bytes) -> None:
    """Replace a local file's content, see ``replacing``."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Yield a draft that replaces ``path`` unless the block fails. The draft's name is unpredictable, and links at
    ``path`` are not followed. Raises OSError, and WriteFailed for a pipe or a device.
    """
    above = os.path.dirname(os.path.abspath(path))
    draft = os.path.join(above, f".{uuid.uuid4().hex}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise WriteFailed("cannot be written: this is not a regular file", path=path)
    os.makedirs(above, exist_ok=True)
    try:
        with open(draft, "x+b") as file:
            yield file
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def scanned(directory: str) -> list[tuple[str, os.stat_result]]:
    """Names in a local directory with the status of their target (a broken link: its own). Raises OSError."""
    with os.scandir(directory) as entries:
        return [(entry.name, found) for entry in entries if (found := _status(entry)) is not None]


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
    return entry.stat(follow_symlinks=False) if entry.is_symlink() else None


def is_directory(entry: os.DirEntry[str]) -> bool:
    """True for a directory, or a link to one. Raises OSError."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
    return False


def read_at(handle: int, position: int, length: int) -> bytes:
    """The bytes [position, position + length) of an open file. Raises EOFError where it ends before."""
    data = os.pread(handle, length, position)
    while len(data) < length:
        more = os.pread(handle, length - len(data), position + len(data))
        if not more:
            raise EOFError("the file was truncated while it was read")
        data += more
    return data


def data_ranges(handle: int, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Parts [low, high) of [begin, size) of an open file that are not holes; all of it if holes are unknown."""
    while begin < size:
        try:
            low = os.lseek(handle, begin, os.SEEK_DATA)
            high = os.lseek(handle, low, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno not in _NO_HOLES:
                raise
            low, high = begin, size
        if low < size:
            yield low, min(high, size)
        begin = high
