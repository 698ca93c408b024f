"""What a file holds: bytes up to a point, and nothing but zeros after it.

Queue and index files of a broker have one fixed length, however little is in them: ``MappedFile`` sets it when it makes
the file, and what is never written stays a hole. So a file is described by its length, by how far it holds data, and by
the SHA-256 of just that. Whoever checks it looks at the rest as well: a file system that tells of holes
(``SEEK_DATA``) says that there is nothing to read, and what it calls data is read and compared with zeros.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from storeformat.errors import TotalsDisagree
from storeformat.storage import durable, files, locations
from storeformat.storage.local_files import data_ranges

CHUNK = 1 << 18
"""Bytes looked at together."""

_READ_CHUNK = 4 << 20
_ZEROS = bytes(CHUNK)


@dataclass(frozen=True)
class Content:
    """A file of ``size`` bytes with nothing but zeros from ``data_size`` on, and the SHA-256 of what lies before."""

    size: int
    data_size: int
    sha256: bytes

    def __str__(self) -> str:
        return f"{self.size} bytes, data to {self.data_size}, SHA-256 {self.sha256.hex()}"


def content_of(data: bytes | memoryview) -> Content:
    """Returns the content of a file that is all data."""
    return Content(len(data), len(data), hashlib.sha256(data).digest())


def is_zero(data: bytes) -> bool:
    """Returns whether all bytes are zeros."""
    return data == (_ZEROS if len(data) == CHUNK else bytes(len(data)))


def data_end(path: str, size: int) -> int:
    """Returns where the last hole of a local file of ``size`` bytes begins, if it ends in one: from there on it holds
    zeros alone. It is ``size`` for objects, and where the file system does not tell.
    """
    if not locations.is_local(path):
        return size
    with files.opened(path) as file:
        return max((high for _, high in data_ranges(file.fileno(), 0, size)), default=0)


def stray_byte(path: str, begin: int) -> int | None:
    """Returns where the first byte from ``begin`` on lies that is not zero, or None. Of an object, which was uploaded
    in one piece, only the next ``CHUNK`` is looked at.
    """
    if not locations.is_local(path):
        with files.RangeReader(path) as reader:
            return _first_in(reader.read(begin, max(min(CHUNK, reader.size - begin), 0)), begin)
    with files.opened(path) as file:
        return _stray_byte(file.fileno(), begin)


def _stray_byte(handle: int, begin: int) -> int | None:
    for low, high in data_ranges(handle, begin, os.fstat(handle).st_size):
        position = low
        while position < high:
            part = os.pread(handle, min(CHUNK, high - position), position)
            found = _first_in(part, position)
            if found is not None or not part:  # if it became shorter, its length shows that
                return found
            position += len(part)
    return None


def _first_in(part: bytes, position: int) -> int | None:
    """Returns where the first byte of a part that lies at ``position`` is not zero."""
    return None if is_zero(part) else position + len(part) - len(part.lstrip(b"\0"))


def read_back(path: str, data_size: int) -> tuple[memoryview, Content]:
    """Returns the first ``data_size`` bytes of a file that was just written, and its content, see ``measured``."""
    if not locations.is_local(path):
        with files.RangeReader(path) as reader:  # and as much after it as ``stray_byte`` would look at, in one request
            size = reader.size
            part = memoryview(bytearray(min(data_size + CHUNK, size)))
            reader.read_into(0, part)
        stored = part[:data_size]
        stray = _first_in(part[data_size:].tobytes(), data_size)
        return stored, measured(hashlib.sha256(stored), size, len(stored), stray)
    with files.opened(path) as file:
        stored, position = memoryview(bytearray(data_size)), 0
        while count := file.readinto(stored[position:]):
            position += count
        size, stored = os.fstat(file.fileno()).st_size, stored[:position]
        return stored, measured(hashlib.sha256(stored), size, position, _stray_byte(file.fileno(), position))


def read_back_whole(draft: str, data_size: int, size: int, *, path: str, what: str) -> tuple[memoryview, Content]:
    """Returns the data and the content of a file that was just written to ``draft`` and will be ``path``; raises
    TotalsDisagree unless it holds data up to ``data_size`` and has ``size`` bytes.
    """
    stored, content = read_back(draft, data_size)
    if (content.size, content.data_size) != (size, data_size):
        raise TotalsDisagree(
            f"{what} differs from what was written",
            path=path,
            found=content,
            expected=f"data to {data_size} of {size}",
        )
    return stored, content


def measured(digest: hashlib._Hash, size: int, data_size: int, stray: int | None) -> Content:
    """Returns the content of a file whose first ``data_size`` bytes went into a digest. A ``stray`` byte after them
    counts as data, so that this is not content that anybody expects.
    """
    return Content(size, data_size if stray is None else stray + 1, digest.digest())


def content_on_disk(path: str, data_size: int, advance: Callable[[int], object]) -> Content:
    """Returns the content of a local file that should hold data up to ``data_size``; it is on disk when this returns,
    and before its holes are looked for. ``advance`` is told of the bytes as they are read.
    """
    digest, position, chunk = hashlib.sha256(), 0, memoryview(bytearray(min(_READ_CHUNK, max(data_size, 1))))
    with files.opened(path) as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
        while count := file.readinto(chunk[: data_size - position]):
            digest.update(chunk[:count])
            position += count
            advance(count)
        return measured(digest, size, position, _stray_byte(file.fileno(), position))


def contents_on_disk(expected: Sequence[tuple[str, int]], advance: Callable[[int], object]) -> list[Content]:
    """``content_on_disk`` of many files (path, data size), in parallel; ``advance`` is told of all bytes so far, never
    by two threads at once.
    """
    done, lock = 0, threading.Lock()

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            advance(done)

    with ThreadPoolExecutor(durable.THREADS) as pool:
        return list(pool.map(lambda file: content_on_disk(file[0], file[1], add), expected))
