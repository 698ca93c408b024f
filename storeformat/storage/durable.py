"""Changes of local directories that a crash cannot tear: moves that replace nothing, synced writes, the broker's lock.

What ``files`` does is enough for a staging directory that nobody reads before it is complete. Here the files of a store
change under their own names, so the order in which changes reach the disk is part of what each function promises.

=========  =============================================================================================
``lock``   four bytes; a running broker holds [0, 1) exclusively, through ``FileChannel#tryLock(0, 1, false)``
           (``DefaultMessageStore#start``, 4.2.0 and later), which on POSIX is an fcntl lock
=========  =============================================================================================
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.storage import files, locations
from storeformat.storage.extents import CHUNK, Content, content_on_disk, data_ranges, is_zero

_THREADS = 8
_FLOCK = "hhqqi"
"""``struct flock`` of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid."""

Advance = Callable[[int], object]
"""Told how many bytes are done so far, never by two threads at once."""


class _Tally:
    """Adds up the bytes that several threads have done."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._advance(self._done)


@contextmanager
def broker_lock(path: str, *, create: bool) -> Iterator[None]:
    """Holds the lock that a running broker would hold; raises Refused where one does.

    While it is held no broker gets through ``DefaultMessageStore#start`` with this store. Without ``create`` a missing
    lock file stays missing. fcntl locks belong to a process: closing any other handle of the file would drop it.
    """
    local = locations.local_path(path)
    if not create and not os.path.lexists(local):
        yield
        return
    with files.writing(path):
        handle = os.open(local, os.O_RDWR | os.O_CREAT if create else os.O_RDWR, 0o644)
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as error:
            raise Refused(
                f"the store is live: {_holder(handle)} holds its lock", path=path, advice="stop the broker first"
            ) from error
        if not os.fstat(handle).st_size:
            os.write(handle, b"lock")
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    """Returns who holds the lock, as exactly as the system says."""
    process = _asked(handle) if sys.platform == "linux" else None
    return f"process {process}" if process else "another process"


def _asked(handle: int) -> int | None:
    """Returns the process that holds the lock as Linux tells it, 0 for one that has no number here, None for none."""
    answer = fcntl.fcntl(handle, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    kind, _, _, _, process = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else max(int(process), 0)


def is_live(path: str) -> bool:
    """Returns whether a process holds this lock of a broker; it is only asked about, never taken.

    False where that cannot be known: no such file, another machine's file, another system than Linux.
    """
    if sys.platform != "linux" or not locations.is_local(path):
        return False
    try:
        handle = os.open(locations.local_path(path), os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
    except OSError:
        return False
    try:
        return _asked(handle) is not None
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)


def present(path: str) -> bool:
    """Returns whether a name is taken, by a dangling link too."""
    return os.path.lexists(locations.local_path(path))


def device_of(path: str) -> int:
    """Returns the file system a name lies on; of a link, that of the link itself."""
    with files.reading(path):
        return os.lstat(locations.local_path(path)).st_dev


def mount_points() -> frozenset[str]:
    """Returns where file systems are mounted, as far as this system tells: parts of one file system, too."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return parse_mount_points(lines)
    except OSError:
        return frozenset()


def parse_mount_points(lines: Iterable[str]) -> frozenset[str]:
    """Returns the mount points of ``mountinfo``: the fifth word of a line, blanks in it as octal escapes."""
    points = (line.split(" ")[4] for line in lines)
    return frozenset(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points)


def lies_apart(root: str, path: str) -> bool:
    """Returns whether something is mounted between a directory and a path below it, so that no rename crosses. The
    directory itself may be a link to another file system.
    """
    base = os.path.realpath(locations.local_path(root))
    if device_of(path) != device_of(base):
        return True
    mounted = mount_points()
    parts = os.path.relpath(locations.local_path(path), locations.local_path(root)).split(os.sep)
    return any(os.path.join(base, *parts[: count + 1]) in mounted for count in range(len(parts)))


def move(source: str, target: str) -> bool:
    """Renames a file or directory onto a free name, in one step. Returns False if that is on another file system."""
    if present(target):
        raise WriteFailed("something has this name already", path=target)
    files.make_directory(locations.parent_of(target))
    try:
        with files.writing(target):
            os.rename(locations.local_path(source), locations.local_path(target))
    except WriteFailed as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EXDEV:
            return False
        raise
    return True


def sync(path: str) -> None:
    """Returns when a file's bytes, or a directory's names, are on disk."""
    with files.writing(path):
        handle = os.open(locations.local_path(path), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_all(paths: Iterable[str]) -> None:
    """Returns when all of these are on disk, each once."""
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(sync, dict.fromkeys(paths)))


def replace_file(path: str, data: bytes) -> None:
    """Gives a file these bytes: after a crash it holds the old ones or the new ones, on disk when this returns."""
    draft = locations.local_path(path) + ".draft"
    with files.writing(path):
        try:
            with open(draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, locations.local_path(path))
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise
    sync(locations.parent_of(path))


def tree(path: str) -> tuple[list[str], list[str]]:
    """Returns (directories, others) of everything at and below a path, in no order; links are not followed."""
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
    """Returns whether this is a file, and no link to one."""
    return os.path.isfile(path) and not os.path.islink(path)


def contents_on_disk(expected: Sequence[tuple[str, int]], advance: Advance) -> list[Content]:
    """Returns the content of each file (path, how far it should hold data), read in parallel; every file is on disk
    when this returns.
    """
    tally = _Tally(advance)
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda file: content_on_disk(file[0], file[1], tally.add), expected))


def copy_trees(pairs: Iterable[tuple[str, str]], advance: Advance) -> None:
    """Copies files and directories (source, target), in parallel, holes and all; they are on disk when this returns.
    ``advance`` is told of the bytes that are no holes.
    """
    tally = _Tally(advance)
    made: list[str] = []
    tasks: list[tuple[str, str]] = []
    for source, target in pairs:
        directories, others = tree(source)
        base, new = len(locations.local_path(source)), locations.local_path(target)
        for directory in (locations.parent_of(new), *(new + directory[base:] for directory in directories)):
            files.make_directory(directory)
            made.append(directory)
        tasks += [(path, new + path[base:]) for path in others]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda task: _copy_file(task[0], task[1], tally), tasks))
    sync_all(made)


def _copy_file(source: str, target: str, tally: _Tally) -> None:
    """Copies a file with its time of last change; the target is on disk when this returns."""
    with files.reading(source), open(source, "rb", buffering=0) as old:
        status = os.fstat(old.fileno())
        with files.FileWriter(target) as writer:
            for low, high in data_ranges(old.fileno(), 0, status.st_size):
                for position in range(low, high, CHUNK):
                    part = os.pread(old.fileno(), min(CHUNK, high - position), position)
                    if len(part) != min(CHUNK, high - position):
                        raise MissingInput("the file became shorter while it was read", path=source)
                    if not is_zero(part):
                        writer.write_at(position, part)
                    tally.add(len(part))
            writer.finish(status.st_size)
    with files.writing(target):
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    sync(target)


def mapped_by(directory: str) -> int | None:
    """Returns a process that has a file of this directory mapped into memory, as far as this system shows.

    A broker maps its log while it loads, which can take minutes, and takes its lock only then. Linux alone tells, and
    only of processes of the same user; to root, of all.
    """
    wanted = set()
    for entry in files.list_directory(directory) or []:
        status = os.stat(locations.local_path(entry.path))
        wanted.add((f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)))
    for process in os.listdir("/proc") if sys.platform == "linux" else []:
        if not process.isdigit() or int(process) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as maps:
            # address, permissions, offset, device, inode, path
            if any(tuple(line.split(None, 5)[3:5]) in wanted for line in maps):
                return int(process)
    return None


def can_give_to_owner_of(model: str) -> bool:
    """Returns whether new files can have the owner of ``model``: it is this user, or this user is root."""
    return os.geteuid() in (0, os.stat(locations.local_path(model)).st_uid)


def give_to_owner_of(model: str, path: str) -> None:
    """Gives a tree to the user and group that own ``model``, where this process is root and may.

    A broker opens its files for writing: one that does not run as root could not start on files that root made.
    """
    if os.geteuid() != 0:
        return
    with files.writing(path):
        owner = os.stat(locations.local_path(model))
        for one in (name for names in tree(path) for name in names):
            os.chown(one, owner.st_uid, owner.st_gid, follow_symlinks=False)


def remove_empty(path: str) -> bool:
    """Removes a directory if nothing but empty directories is in it; returns whether it did."""
    directories, others = tree(path)
    if others or not directories:
        return False
    with files.writing(path):
        for directory in sorted(directories, key=len, reverse=True):
            os.rmdir(directory)
    return True


def remove_file(path: str) -> None:
    """Removes a file of our own making; one that is not there is fine."""
    with files.writing(path), suppress(FileNotFoundError):
        os.unlink(locations.local_path(path))
