"""Crash-safe changes of local directories: moves without overwriting, and synced writes.

Unlike staging directories (``files``), files of a store change under their own names, so the order in which changes
reach the disk is part of each function's contract.

A broker's queue and index files have a fixed length set by ``MappedFile``; the unwritten rest is a hole. Such a file is
described by length, end of data, and SHA-256 of the data. Checks cover the rest too: holes (``SEEK_DATA``) are not
read, other ranges are compared with zeros.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from storeformat.errors import MissingInput, Refused, TotalsDisagree, WriteFailed
from storeformat.storage import files, locations
from storeformat.storage.local_files import data_ranges

THREADS = 8


def present(path: str) -> bool:
    """True if a name exists, even as a dangling link."""
    return os.path.lexists(locations.local_path(path))


def move(source: str, target: str) -> None:
    """Atomically rename a file or directory to an unused name."""
    old, new = locations.local_path(source), locations.local_path(target)
    with files.writing(target):
        os.makedirs(os.path.dirname(new), exist_ok=True)
        if present(target):
            raise WriteFailed("this name is already taken", path=target, advice="move it away, and run this again")
        os.rename(old, new)


def sync(path: str) -> None:
    """Sync a file's bytes, or a directory's names, to disk."""
    with files.writing(path):
        handle = os.open(locations.local_path(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_all(paths: Iterable[str]) -> None:
    """Sync all paths to disk, each once."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(sync, dict.fromkeys(paths)))


def tree(path: str) -> tuple[list[str], list[str]]:
    """(directories, others) at and below a path, unordered; links are not followed."""
    root = locations.local_path(path)
    if not os.path.isdir(root) or os.path.islink(root):
        return [], [root] if os.path.lexists(root) else []
    directories: list[str] = [root]
    others: list[str] = []

    def fail(error: OSError) -> None:
        raise MissingInput(f"cannot be read: {files.first_line(error)}", path=error.filename) from error

    for here, below, names in os.walk(root, onerror=fail):
        for name in below:
            full = os.path.join(here, name)
            (others if os.path.islink(full) else directories).append(full)
        others += [os.path.join(here, name) for name in names]
    return directories, others


def is_plain_file(path: str) -> bool:
    """True for a file that is not a link."""
    return os.path.isfile(path) and not os.path.islink(path)


def is_directory(path: str) -> bool:
    """True for a directory that is not a link."""
    return os.path.isdir(path) and not os.path.islink(path)


def refuse_other_names(path: str) -> None:
    """Refuse a file with hard links, through which it can change."""
    with files.reading(path):
        status = os.lstat(locations.local_path(path))
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise Refused(
            "this file has other names (hard links)", path=path, found=status.st_nlink, expected=1,
            advice="make a copy that has files of its own (cp -a), and use that",
        )  # fmt: skip


def replace_file(path: str, data: bytes) -> None:
    """Replace a file's content; after a crash it has the old or the new bytes. On disk on return."""
    local = locations.local_path(path)
    draft = f"{local}.draft"
    with files.writing(path):
        try:
            remove_file(draft)
            with open(draft, "xb") as file:  # does not follow a link left under this name
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, local)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise
    sync(os.path.dirname(local))


def are_equal(path: str, other: str) -> bool:
    """True if two files hold the same bytes."""
    with files.reading(path):
        return filecmp.cmp(locations.local_path(path), locations.local_path(other), shallow=False)


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    with files.writing(path), suppress(FileNotFoundError):
        os.unlink(locations.local_path(path))


def remove_empty(path: str) -> bool:
    """Remove a directory that holds only empty directories."""
    directories, others = tree(path)
    with files.writing(path):
        for directory in sorted(directories if not others else (), reverse=True):
            os.rmdir(directory)
    return bool(directories) and not others


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

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda file: content_on_disk(file[0], file[1], add), expected))
