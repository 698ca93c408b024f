"""List, open, write and remove files at ``locations``.

Storage is ``pyarrow.fs``: ``s3://`` (or ``s3a://``), ``hdfs://``, ``gs://`` and ``abfs://``, with pyarrow's settings
after a ``?`` and credentials from the environment. An object store has no rename and no append: an object exists
complete or not at all. Local files are written sparse. Streams disable pyarrow's compression by file name (.gz).

The status of a local file is read without opening it. A broker's start depends on owner, mode and length, for it opens
files for writing as one user and maps whole segments; what it deletes, on modification time and disk usage.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyarrow import fs as pafs

from storeformat.errors import READ_WHOLE, DependencyMissing, MissingInput, NotAStore, Refused, WriteFailed
from storeformat.storage import local_files, locations
from storeformat.storage.local_files import data_ranges, scanned

if TYPE_CHECKING:
    from typing_extensions import Self

_COPY_CHUNK = 8 << 20


class FileStatus(NamedTuple):
    """A directory entry, links followed; ``size`` is -1 unless regular, ``modified_ms`` as ``File#lastModified``. On
    remote storage only name, path, size and kind are known.
    """

    name: str
    path: str
    size: int
    modified_ms: int
    owner: int
    group: int
    mode: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def leads_nowhere(self) -> bool:
        """True for a broken link."""
        return stat.S_ISLNK(self.mode)

    def may_write(self, user: int, group: int) -> bool:
        """True if a user with this one group may read and write it, and search a directory."""
        needed = 7 if self.is_directory else 6
        if user == 0:
            return True
        shift = 6 if user == self.owner else 3 if group == self.group else 0
        return (self.mode >> shift) & needed == needed


def resolve(path: str) -> tuple[Any, str]:
    """The client of a path's storage, and the path for it."""
    if locations.is_local(path):
        return pafs.LocalFileSystem(), locations.local_path(path)
    plain, settings = locations.split_settings(path)
    scheme, _, rest = plain.partition("://")
    place, _, name = rest.partition("/")
    try:
        filesystem, root = client_of(f"{'s3' if scheme == 's3a' else scheme}://{place}{settings}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DependencyMissing(f"no client for this storage: {first_line(error)}", path=path) from error
    return filesystem, posixpath.join(root, name) if name else root


def first_line(error: BaseException) -> str:
    """First line of an error's text, or the system's message."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _advice(error: BaseException) -> str | None:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run again; nothing was published"
    if "AWS Error" in str(error):
        return "credentials, region and endpoint come from AWS_ACCESS_KEY_ID, ... AWS_ENDPOINT_URL or an AWS profile"
    return None


class reading:  # noqa: N801  (a function but for the time that a generator takes)
    """Turn read errors into MissingInput with the path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (OSError, pa.ArrowException)):
            what = f"cannot be read: {first_line(error)}"
            raise MissingInput(what, path=self._path, advice=_advice(error)) from error
        if isinstance(error, EOFError):
            raise MissingInput(str(error), path=self._path) from error
        if isinstance(error, UnicodeError):
            raise MissingInput(f"a name here is not in UTF-8: {error}", path=self._path) from error


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn write errors into WriteFailed with the path."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise WriteFailed(f"cannot be written: {first_line(error)}", path=path, advice=_advice(error)) from error


def list_directory(path: str) -> list[FileStatus] | None:
    """Entries of a directory sorted by name, None without one."""
    if locations.is_local(path):
        entries = statuses_in(path)
        with reading(path):
            "".join(entry.name for entry in entries).encode()  # raises UnicodeError
        if entries or os.path.isdir(locations.local_path(path)):
            return entries
        if exists(path):
            raise MissingInput("this is not a directory", path=path)
        return None
    filesystem, inner = resolve(path)
    with reading(path):
        info = filesystem.get_file_info(inner)
        if info.type == pafs.FileType.NotFound:
            return None
        if info.type != pafs.FileType.Directory:
            raise MissingInput("this is not a directory", path=path)
        entries = [_object_status(path, found) for found in filesystem.get_file_info(pafs.FileSelector(inner))]
    return sorted(entries, key=lambda entry: entry.name)


def statuses_in(directory: str) -> list[FileStatus]:
    """Entries of a local directory sorted by name; empty without the directory. A broken link has size -1."""
    with reading(directory), suppress(FileNotFoundError, NotADirectoryError):
        above = directory if directory.endswith("/") else f"{directory}/"
        return [status(name, above + name, found) for name, found in sorted(scanned(locations.local_path(directory)))]
    return []


def directories_in(directory: str) -> list[tuple[str, str]]:
    """Names and paths of the directories in one, sorted. Asks for no status: 20,000 take a tenth of a second."""
    if not locations.is_local(directory):
        return [(entry.name, entry.path) for entry in list_directory(directory) or [] if entry.is_directory]
    with reading(directory), suppress(FileNotFoundError, NotADirectoryError):
        above = directory if directory.endswith("/") else f"{directory}/"
        with os.scandir(locations.local_path(directory)) as entries:
            names = sorted(entry.name for entry in entries if local_files.is_directory(entry))
        "".join(names).encode()  # raises UnicodeError
        return [(name, above + name) for name in names]
    return []


def status_of(path: str) -> FileStatus | None:
    """Status of a path; None if it does not exist or is a broken link."""
    if locations.is_local(path):
        with reading(path), suppress(FileNotFoundError, NotADirectoryError):
            return status(locations.name_of(path), path, os.stat(locations.local_path(path)))
        return None
    filesystem, inner = resolve(path)
    with reading(path):
        info = filesystem.get_file_info(inner)
    return None if info.type == pafs.FileType.NotFound else _object_status(locations.parent_of(path), info)


def status(name: str, path: str, found: os.stat_result) -> FileStatus:
    """The status of a local name."""
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return FileStatus(name, path, size, found.st_mtime_ns // 1_000_000, found.st_uid, found.st_gid, found.st_mode)


def _object_status(directory: str, found: pafs.FileInfo) -> FileStatus:
    name, size = found.base_name, int(found.size) if found.is_file else -1
    kind = stat.S_IFDIR if found.type == pafs.FileType.Directory else stat.S_IFREG if found.is_file else 0
    return FileStatus(name, locations.join(directory, name), size, 0, 0, 0, kind)


def exists(path: str) -> bool:
    """True for an existing file or directory."""
    filesystem, inner = resolve(path)
    with reading(path):
        return bool(filesystem.get_file_info(inner).type != pafs.FileType.NotFound)


def size_of(path: str) -> int | None:
    """Length of a file, None without one."""
    filesystem, inner = resolve(path)
    with reading(path):
        info = filesystem.get_file_info(inner)
    return int(info.size) if info.type == pafs.FileType.File else None


def data_end(path: str, size: int) -> int:
    """Start of the hole at the end of a local file; ``size`` for objects, or without holes."""
    if not locations.is_local(path):
        return size
    with opened(path) as file:
        return max((high for _, high in data_ranges(file.fileno(), 0, size)), default=0)


class opened:  # noqa: N801  (see ``reading``)
    """Open a regular local file, unbuffered."""

    def __init__(self, path: str) -> None:
        self._path, self._reading = path, reading(path)

    def __enter__(self) -> FileIO:
        with self._reading:
            self._file = FileIO(locations.local_path(self._path), opener=_open_regular)
        return self._file

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._file.close()
        self._reading.__exit__(kind, error, trace)


def _open_regular(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK)  # a pipe waits for a writer
    try:
        _refuse_irregular(path, os.fstat(handle))
    except MissingInput:
        os.close(handle)
        raise
    return handle


def _refuse_irregular(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise MissingInput("this is not a regular file", path=path)


class RangeReader:
    """Random reads of a regular file into the caller's buffers."""

    def __init__(self, path: str) -> None:
        self.path = path
        filesystem, inner = resolve(path)
        with reading(path):
            if locations.is_local(path):
                _refuse_irregular(path, os.stat(inner))
            self._file = filesystem.open_input_file(inner)

    @property
    def size(self) -> int:
        with reading(self.path):
            return int(self._file.size())

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes at ``offset``; never a short read."""
        if not len(target):
            return  # a server may refuse a request for no bytes at the end of a file
        with reading(self.path):
            self._file.seek(offset)
            done = 0
            while done < len(target):
                count = self._file.readinto(target[done:])
                if not count:
                    raise MissingInput(
                        "the file was truncated while it was read", path=self.path,
                        found=offset + done, expected=offset + len(target),
                    )  # fmt: skip
                done += count

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def next_data(self, offset: int) -> int:
        """First position from ``offset`` on that is not in a hole; ``offset`` itself where holes are unknown."""
        if not locations.is_local(self.path):
            return offset
        with opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            return next((low for low, _ in data_ranges(file.fileno(), offset, size)), max(offset, size))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def read_bytes(path: str, limit: int = READ_WHOLE) -> bytes:
    """A whole file. Raises NotAStore if it has more than ``limit`` bytes."""
    size = size_of(path)
    if size is None:
        what = "this is not a regular file" if exists(path) else "there is no such file"
        raise MissingInput(what, path=path)
    if size > limit:
        raise NotAStore("this file is too large", path=path, found=size, expected=f"at most {limit} bytes")
    return read_range(path, 0, size)


def read_range(path: str, offset: int, length: int) -> bytes:
    """The bytes [offset, offset + length) of a file."""
    with RangeReader(path) as reader:
        return reader.read(offset, length)


class FileWriter:
    """Writes one new file; unwritten ranges read as zeros, local files keep them as holes. On an exception the file
    does not exist. Objects are written to a temporary file and uploaded at the end, as clients keep partial uploads.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._filesystem, self._inner = resolve(path)
        self._local = locations.is_local(path)
        with writing(path):
            if self._local:
                os.makedirs(os.path.dirname(self._inner), exist_ok=True)
                self._file: Any = open(self._inner, "xb", buffering=0)
            else:
                self._file = tempfile.TemporaryFile(buffering=0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        with writing(self.path):
            while len(view):
                view = view[self._file.write(view) :]

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write at a position, in any order."""
        self.skip_to(position)
        self.write(data)

    def skip_to(self, position: int) -> None:
        """Move to a position; skipped bytes read as zeros."""
        with writing(self.path):
            self._file.seek(position)

    def finish(self, size: int) -> None:
        """Set the file's length."""
        with writing(self.path):
            self._file.truncate(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *unused: object) -> None:
        if kind is None:
            with writing(self.path), self._file:
                if not self._local:
                    self._upload()
            return
        self._file.close()
        if self._local:
            os.unlink(self._inner)

    def _upload(self) -> None:
        self._file.seek(0)
        chunk = memoryview(bytearray(min(_COPY_CHUNK, os.fstat(self._file.fileno()).st_size)))
        with self._filesystem.open_output_stream(self._inner, compression=None) as target:
            while count := self._file.readinto(chunk):
                target.write(chunk[:count])


@contextmanager
def new_stream(path: str) -> Iterator[Any]:
    """Arrow stream into a new file. On an exception a local file is removed; a partial object may remain."""
    filesystem, inner = resolve(path)
    with writing(path):
        if locations.is_local(path):
            os.makedirs(os.path.dirname(inner), exist_ok=True)
        stream = filesystem.open_output_stream(inner, compression=None)
    try:
        yield stream
        with writing(path):
            stream.close()
    except BaseException:
        with suppress(OSError):  # what failed first says more
            stream.close()
        if locations.is_local(path):
            with suppress(OSError):
                os.unlink(inner)
        raise


def write_bytes(path: str, data: bytes) -> None:
    """Write a new file."""
    with FileWriter(path) as writer:
        writer.write(data)


def tree_sizes(path: str) -> dict[str, int]:
    """Length of every file below a directory by relative path; empty without the directory."""
    filesystem, inner = resolve(path)
    with reading(path):
        found = filesystem.get_file_info(pafs.FileSelector(inner, recursive=True, allow_not_found=True))
    begin = len(inner.rstrip("/")) + 1
    return {item.path[begin:]: int(item.size) for item in found if item.type == pafs.FileType.File}


def make_directory(path: str) -> None:
    """Make a local directory and its parents; object stores need none."""
    if locations.is_local(path):
        with writing(path):
            os.makedirs(locations.local_path(path), exist_ok=True)


def rename(source: str, target: str) -> None:
    """Atomically move a local file or directory, also onto an empty directory. Raises Refused if that is not empty."""
    if not (locations.is_local(source) and locations.is_local(target)):
        raise DependencyMissing("this storage cannot rename in one step", path=source)
    with writing(target):
        try:
            os.rename(locations.local_path(source), locations.local_path(target))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise Refused("another process wrote here in the meantime", path=target) from error


def remove_object(path: str) -> None:
    """Remove one file."""
    filesystem, inner = resolve(path)
    with writing(path):
        filesystem.delete_file(inner)


def remove_tree(path: str) -> None:
    """Remove a directory and its content, if it exists."""
    filesystem, inner = resolve(path)
    with writing(path):
        if filesystem.get_file_info(inner).type == pafs.FileType.Directory:
            try:
                filesystem.delete_dir(inner)
            except FileNotFoundError:  # gs:// misses an object for the directory itself; its content is removed
                if tree_sizes(path):
                    raise


def set_modified(path: str, milliseconds: int) -> None:
    """Set a local file's modification time, rounded up to a whole second (Java 8 truncates to seconds)."""
    if locations.is_local(path):
        seconds = -(-milliseconds // 1000)
        with writing(path):
            os.utime(locations.local_path(path), (seconds, seconds))


@lru_cache(maxsize=16)
def client_of(uri: str) -> tuple[Any, str]:
    """Client of a bucket or file system, cached, and the root path for it."""
    if uri.startswith("hdfs://"):
        return hdfs_client(uri), "/"
    filesystem, root = pafs.FileSystem.from_uri(uri)
    if filesystem.type_name == "abfs" and (key := os.environ.get("AZURE_STORAGE_KEY")):
        _, (given,) = filesystem.__reduce__()  # pyarrow takes a key, but from no URI
        filesystem = pafs.AzureFileSystem(**{**given, "account_key": key})
    return filesystem, root


def hdfs_client(uri: str) -> Any:
    """HDFS client: hdfs-native, else pyarrow's. That one ends the process without libhdfs or a class path."""
    try:
        from hdfs_native.fsspec import HdfsFileSystem  # noqa: PLC0415  (an extra)
    except ImportError as error:
        if not {"HADOOP_HOME", "ARROW_LIBHDFS_DIR"} & os.environ.keys() or "CLASSPATH" not in os.environ:
            raise DependencyMissing(
                "no client for HDFS is installed", path=uri,
                advice="install the extra hdfs (hdfs-native), or set HADOOP_HOME and CLASSPATH",
            ) from error  # fmt: skip
        return pafs.FileSystem.from_uri(uri)[0]

    host, _, port = uri.removeprefix("hdfs://").partition("?")[0].partition(":")
    try:
        client = HdfsFileSystem(host or None, int(port) if port else None)
    except (RuntimeError, ValueError) as error:  # hdfs-native's own words
        raise DependencyMissing(f"no client for this address: {error}", path=uri) from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(client))


@dataclass(frozen=True)
class Space:
    """A file system: bytes in all, free, and free for users that are not root; whether it is mounted for writing."""

    total: int
    free: int
    available: int
    takes_files: bool = True

    @property
    def used_percent(self) -> int:
        """Share in use, rounded up (UtilAll#getDiskPartitionSpaceUsedPercent)."""
        used = self.total - self.free
        return -(-used * 100 // max(used + self.available, 1))


def space_of(path: str) -> Space:
    """Space of the file system that holds a path."""
    with reading(path):
        found = os.statvfs(locations.local_path(path))
    total, free, available = (count * found.f_frsize for count in (found.f_blocks, found.f_bfree, found.f_bavail))
    return Space(total, free, available, takes_files=not found.f_flag & os.ST_RDONLY)


def free_space(path: str) -> int | None:
    """Bytes that can be written below an existing local directory, None if unknown."""
    return space_of(path).available if locations.is_local(path) else None


def device_of(path: str) -> int:
    """Device of a path; of a link itself."""
    with reading(path):
        return os.lstat(locations.local_path(path)).st_dev


def mount_points() -> frozenset[str]:
    """Mount points of this system, bind mounts included."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return parse_mount_points(lines)
    except OSError:
        return frozenset()


def parse_mount_points(lines: Iterable[str]) -> frozenset[str]:
    """Mount points in ``mountinfo``: the fifth word of a line, with octal escapes."""
    points = (line.split(" ")[4] for line in lines)
    return frozenset(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points)


def crosses_mount(root: str, path: str) -> bool:
    """True if a mount between a directory and a path below it prevents renames. The directory may be a link."""
    base = os.path.realpath(locations.local_path(root))
    if device_of(path) != device_of(base):
        return True
    mounted = mount_points()
    parts = os.path.relpath(locations.local_path(path), locations.local_path(root)).split(os.sep)
    return any(os.path.join(base, *parts[: count + 1]) in mounted for count in range(len(parts)))


def resolved(path: str) -> str:
    """Local path with links resolved, even if it does not exist; URIs as they are."""
    return os.path.realpath(locations.local_path(path)) if locations.is_local(path) else path


def make_private_directory(path: str) -> None:
    """Make a new local directory with mode 0700, and its parents."""
    if locations.is_local(path):
        with writing(path):
            os.makedirs(os.path.dirname(locations.local_path(path)), exist_ok=True)
            os.mkdir(locations.local_path(path), 0o700)


def resolves_inside(path: str, directory: str) -> bool:
    """True if a path is a directory or below it, links resolved."""
    return locations.is_inside(resolved(path), resolved(directory))


def refuse_directory(path: str) -> None:
    """Refuse a directory in place of an output file."""
    if locations.is_local(path) and os.path.isdir(locations.local_path(path)):
        raise WriteFailed("cannot be written: this is a directory", path=path)


def refuse_used_directory(path: str) -> None:
    """Refuse a directory that is not empty."""
    entries = list_directory(path)
    if entries:
        raise Refused(
            "the output directory is not empty", path=path, found=entries[0].name, expected="nothing",
            advice="choose another directory, or empty this one",
        )  # fmt: skip


def refuse_missing_bucket(path: str) -> None:
    """Refuse an object store without this bucket."""
    if not locations.is_local(path):
        scheme, _, rest = path.partition("://")
        bucket = f"{scheme}://{rest.partition('/')[0]}" + locations.split_settings(path)[1]
        with writing(path):
            filesystem, inner = resolve(bucket)
            if filesystem.get_file_info(inner).type == pafs.FileType.NotFound:
                raise WriteFailed("there is no such bucket", path=bucket)


def missing_parents(path: str) -> list[str]:
    """Missing directories above a local path, innermost first."""
    parents = list(Path(locations.local_path(path)).parents) if locations.is_local(path) else []
    return [str(parent) for parent in parents if not parent.exists()]


def remove_empty(directories: Sequence[str]) -> None:
    """Remove local directories in order, up to the first that is not empty."""
    with suppress(OSError):
        for directory in directories:
            os.rmdir(directory)


def draft_of(path: str, drafts: str) -> str:
    """Temporary name in local ``drafts``, so that a killed task leaves no partial ``path``; objects need none."""
    return locations.join(drafts, uuid.uuid4().hex) if locations.is_local(path) else path


def settle(draft: str, path: str) -> None:
    """Rename a draft to its name, replacing a file."""
    if draft != path:
        with writing(path):
            os.makedirs(os.path.dirname(locations.local_path(path)), exist_ok=True)
            os.replace(locations.local_path(draft), locations.local_path(path))


def replace_bytes(path: str, data: bytes) -> None:
    """Write a file, replacing one (``local_files``)."""
    if not locations.is_local(path):
        write_bytes(path, data)
        return
    with writing(path):
        local_files.replace_bytes(locations.local_path(path), data)
