"""The only module that opens anything: paths and URIs to listings, ranges and files.

Storage is ``pyarrow.fs``: a plain path or ``file://`` is local, ``s3://`` (also written ``s3a://``), ``hdfs://``,
``gs://`` and ``abfs://`` are what pyarrow makes of them. Local files are written sparse, object stores get a stream.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs as pafs

if TYPE_CHECKING:
    from typing_extensions import Self

from storeformat.errors import DependencyMissing, MissingInput, Refused, WriteFailed

_COPY_CHUNK = 8 << 20


@dataclass(frozen=True)
class Entry:
    """One name in a directory. ``size`` is -1 for a directory."""

    name: str
    path: str
    size: int
    is_directory: bool


def is_local(path: str) -> bool:
    """Returns whether a path or URI is on a local file system."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> str:
    """Returns the plain absolute path of a local path or ``file://`` URI."""
    return os.path.abspath(path.removeprefix("file://"))


def join(base: str, *parts: str) -> str:
    """Returns a path below ``base``; works for URIs too."""
    return posixpath.join(base, *parts)


def name_of(path: str) -> str:
    """Returns the last component of a path or URI."""
    return posixpath.basename(path.rstrip("/"))


def parent_of(path: str) -> str:
    """Returns the path without its last component."""
    return posixpath.dirname(path.rstrip("/"))


def absolute(path: str) -> str:
    """Returns a path that means the same in every process: absolute if local, URIs as they are."""
    return local_path(path) if is_local(path) else path.rstrip("/")


def _resolve(path: str) -> tuple[Any, str]:
    if is_local(path):
        return pafs.LocalFileSystem(), local_path(path)
    uri = "s3://" + path.removeprefix("s3a://") if path.startswith("s3a://") else path
    try:
        filesystem, inner = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DependencyMissing(f"no client for this kind of storage: {first_line(error)}", path=path) from error
    return filesystem, inner


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text; the system's own words where it has them."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns trouble while reading into ``MissingInput``, one line with the path."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise MissingInput(f"cannot be read: {first_line(error)}", path=path) from error


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns trouble while writing into ``WriteFailed``, one line with the path."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space and run again; nothing was published" if full else None
        raise WriteFailed(f"cannot be written: {first_line(error)}", path=path, advice=advice) from error


def list_directory(path: str) -> list[Entry] | None:
    """Returns the entries of a directory sorted by name, or None if there is no such directory."""
    filesystem, inner = _resolve(path)
    with reading(path):
        info = filesystem.get_file_info(inner)
        if info.type == pafs.FileType.NotFound:
            return None
        if info.type != pafs.FileType.Directory:
            raise MissingInput("is no directory", path=path)
        children = filesystem.get_file_info(pafs.FileSelector(inner))
    entries = [
        Entry(
            name=child.base_name,
            path=join(path, child.base_name),
            size=-1 if child.type == pafs.FileType.Directory else int(child.size),
            is_directory=child.type == pafs.FileType.Directory,
        )
        for child in children
    ]
    return sorted(entries, key=lambda entry: entry.name)


def exists(path: str) -> bool:
    """Returns whether a file or directory is there."""
    filesystem, inner = _resolve(path)
    with reading(path):
        return bool(filesystem.get_file_info(inner).type != pafs.FileType.NotFound)


def size_of(path: str) -> int | None:
    """Returns the length of a file, or None if there is none."""
    filesystem, inner = _resolve(path)
    with reading(path):
        info = filesystem.get_file_info(inner)
    return int(info.size) if info.type == pafs.FileType.File else None


class RangeReader:
    """Random reads of one file into buffers of the caller. Use as a context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        filesystem, inner = _resolve(path)
        with reading(path):
            self._file = filesystem.open_input_file(inner)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fills ``target`` with the bytes at ``offset`` of the file; a file that ends before is an error, never a short
        read.
        """
        with reading(self.path):
            self._file.seek(offset)
            done = 0
            while done < len(target):
                count = self._file.readinto(target[done:])
                if not count:
                    raise MissingInput(
                        "the file became shorter while it was read",
                        path=self.path,
                        found=offset + done,
                        expected=offset + len(target),
                    )
                done += count

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_bytes(path: str) -> bytes:
    """Returns a whole file."""
    size = size_of(path)
    if size is None:
        raise MissingInput("does not exist", path=path)
    data = bytearray(size)
    with RangeReader(path) as reader:
        reader.read_into(0, memoryview(data))
    return bytes(data)


class FileWriter:
    """Writes one new file front to back. Unwritten ranges read as zeros; local files keep them as holes.

    Use as a context manager: on an exception a local file is removed, and of an object store's stream nobody is told.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._position = 0
        self._filesystem, self._inner = _resolve(path)
        self._local = is_local(path)
        with writing(path):
            if self._local:
                os.makedirs(os.path.dirname(self._inner), exist_ok=True)
                self._file: Any = open(self._inner, "xb", buffering=0)
            else:
                self._file = self._filesystem.open_output_stream(self._inner)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes."""
        view = memoryview(data).cast("B")
        with writing(self.path):
            while len(view):
                done = self._file.write(view)
                self._position += done
                view = view[done:]

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Writes at a position. Local files may be written in any order, streams only forward."""
        if self._local:
            with writing(self.path):
                self._file.seek(position)
            self._position = position
        else:
            self.skip_to(position)
        self.write(data)

    def skip_to(self, position: int) -> None:
        """Moves forward; what lies between reads as zeros."""
        if self._local:
            with writing(self.path):
                self._file.seek(position)
            self._position = position
            return
        if position < self._position:
            raise WriteFailed("an object can only be written front to back", path=self.path)
        while self._position < position:
            self.write(bytes(min(_COPY_CHUNK, position - self._position)))

    def finish(self, size: int) -> None:
        """Makes the file exactly ``size`` bytes long."""
        if self._local:
            with writing(self.path):
                self._file.truncate(size)
        else:
            self.skip_to(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with writing(self.path):
                self._file.close()
            return
        self._file.close()
        if self._local:
            os.unlink(self._inner)


def write_bytes(path: str, data: bytes) -> None:
    """Writes a new file whole."""
    with FileWriter(path) as writer:
        writer.write(data)


def refuse_used_directory(path: str) -> None:
    """Raises Refused unless a directory is absent or empty."""
    entries = list_directory(path) if exists(path) else None
    if entries:
        raise Refused("the output directory is not empty", path=path, found=entries[0].name, expected="nothing")


def make_directory(path: str) -> None:
    """Makes a directory and its parents; object stores have none and need none."""
    if is_local(path):
        with writing(path):
            os.makedirs(local_path(path), exist_ok=True)


def rename(source: str, target: str) -> None:
    """Moves a local file or directory in one step, onto an empty directory too."""
    if not (is_local(source) and is_local(target)):
        raise DependencyMissing("this storage cannot rename in one step", path=source)
    with writing(target):
        os.rename(local_path(source), local_path(target))


def remove_tree(path: str) -> None:
    """Removes a directory of our own making and all in it; one that is not there is fine."""
    filesystem, inner = _resolve(path)
    with writing(path):
        if filesystem.get_file_info(inner).type == pafs.FileType.Directory:
            filesystem.delete_dir(inner)


def free_space(path: str) -> int | None:
    """Returns the bytes that can be written below an existing local directory, or None where that cannot be known."""
    if not is_local(path):
        return None
    with reading(path):
        status = os.statvfs(local_path(path))
    return status.f_bavail * status.f_frsize


def set_modified(path: str, milliseconds: int) -> None:
    """Sets a local file's time of last change, rounded up to a whole second (Java 8 reads it truncated to seconds)."""
    if is_local(path):
        seconds = -(-milliseconds // 1000)
        with writing(path):
            os.utime(local_path(path), (seconds, seconds))


def modified_at(path: str) -> int:
    """Returns when a file was last changed, in milliseconds."""
    filesystem, inner = _resolve(path)
    with reading(path):
        info = filesystem.get_file_info(inner)
    return int((info.mtime_ns or 0) // 1_000_000)
