"""Content of a file: bytes up to a point, and only zeros after it.

A broker's queue and index files have a fixed length set by ``MappedFile``; the unwritten rest is a hole. A file is
described by length, end of data, and SHA-256 of the data. Checks cover the rest too: holes (``SEEK_DATA``) are not
read, other ranges are compared with zeros.
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

CHUNK = 1 << 18  # bytes compared at a time

_READ_CHUNK = 4 << 20
_ZEROS = bytes(CHUNK)


@dataclass(frozen=True)
class Content:
    """A file of ``size`` bytes, zero from ``data_size`` on, and the SHA-256 of the bytes before."""

    size: int
    data_size: int
    sha256: bytes

    def __str__(self) -> str:
        return f"{self.size} bytes, data to {self.data_size}, SHA-256 {self.sha256.hex()}"


def content_of(data: bytes | memoryview) -> Content:
    """Content of a file that is all data."""
    return Content(len(data), len(data), hashlib.sha256(data).digest())


def is_zero(data: bytes) -> bool:
    """True if all bytes are zero."""
    return data == (_ZEROS if len(data) == CHUNK else bytes(len(data)))


def data_end(path: str, size: int) -> int:
    """Start of the hole at the end of a local file; ``size`` for objects, or without holes."""
    if not locations.is_local(path):
        return size
    with files.opened(path) as file:
        return max((high for _, high in data_ranges(file.fileno(), 0, size)), default=0)


def stray_byte(path: str, begin: int) -> int | None:
    """Position of the first non-zero byte from ``begin`` on. In an object only the next ``CHUNK`` is checked."""
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
    return None if is_zero(part) else position + len(part) - len(part.lstrip(b"\0"))


def read_back(path: str, data_size: int) -> tuple[memoryview, Content]:
    """The first ``data_size`` bytes of a file just written, and its content (``measured``)."""
    if not locations.is_local(path):
        with files.RangeReader(path) as reader:  # and the bytes that ``stray_byte`` would check, in one request
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
    """Data and content of ``draft``, later ``path``. Raises TotalsDisagree if data end or size differ."""
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
    """Content from a digest of the first ``data_size`` bytes. A ``stray`` byte after them counts as data."""
    return Content(size, data_size if stray is None else stray + 1, digest.digest())


def content_on_disk(path: str, data_size: int, advance: Callable[[int], object]) -> Content:
    """Sync and measure a local file with data up to ``data_size``; ``advance`` gets the bytes read."""
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
    """``content_on_disk`` of many (path, data size) in parallel; ``advance`` gets the total, serialized."""
    done, lock = 0, threading.Lock()

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            advance(done)

    with ThreadPoolExecutor(durable.THREADS) as pool:
        return list(pool.map(lambda file: content_on_disk(file[0], file[1], add), expected))
