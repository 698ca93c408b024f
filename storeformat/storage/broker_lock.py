"""Detect a running broker by its lock, or by a log mapped into memory.

=========  =============================================================================================
``lock``   four bytes; a running broker holds [0, 1) exclusively, through ``FileChannel#tryLock(0, 1, false)``
           (``DefaultMessageStore#start``, 4.2.0 and later), which on POSIX is an fcntl lock
=========  =============================================================================================
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storeformat.errors import MissingInput, Refused
from storeformat.storage import files, locations
from storeformat.storage.local_files import scanned

_NOT_OURS = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EISDIR, errno.ENXIO)
"""Errors for a link, another user's file, a directory and a socket."""
_FLOCK = "hhqqi"  # ``struct flock`` of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid


@contextmanager
def hold(path: str, *, create: bool) -> Iterator[None]:
    """Hold the broker's lock, so that no broker passes ``DefaultMessageStore#start``; raises Refused if one runs.
    Without ``create`` a missing lock file stays missing. Closing any other handle of the file would drop an fcntl lock.
    """
    local = locations.local_path(path)
    if not create and not os.path.lexists(local):
        yield
        return
    with files.writing(path):
        handle = _opened(local)
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as error:
            process = _asked(handle) if sys.platform == "linux" else None
            holder = f"process {process}" if process else "another process"
            said = f"the store is live: {holder} holds its lock"
            raise Refused(said, path=path, advice="stop the broker first") from error
        if not os.fstat(handle).st_size:
            os.write(handle, b"lock")
        yield
    finally:
        os.close(handle)


def _opened(path: str) -> int:
    """Does not follow links or block on pipes."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno in _NOT_OURS:
            raise Refused(
                "the lock is no file, or another user's", path=path, advice="remove it if no broker runs"
            ) from error
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(handle)
        raise Refused("the lock is not a file of its own", path=path, advice="remove it if no broker runs")
    return handle


def _asked(handle: int) -> int | None:
    """Process that holds the lock: 0 without a number here, None for none."""
    answer = fcntl.fcntl(handle, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    kind, _, _, _, process = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else max(int(process), 0)


def is_live(path: str) -> bool:
    """True if a process holds this lock (Linux only, local files). Does not take it."""
    if sys.platform != "linux" or not locations.is_local(path):
        return False
    with suppress(MissingInput), files.opened(path) as file:  # no such file, or a file system without locks
        return _asked(file.fileno()) is not None
    return False


def mapped_by(directory: str) -> int | None:
    """A process that has a file of this directory mapped. A broker maps its log while it loads, which can take minutes,
    before it takes its lock. Linux only; shows only the user's own processes, to root all.
    """
    wanted = set()
    with files.reading(directory), suppress(FileNotFoundError):
        for _, status in scanned(locations.local_path(directory)):
            wanted.add((f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)))
    for process in os.listdir("/proc") if sys.platform == "linux" else []:
        if not process.isdigit() or int(process) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as maps:
            # address, permissions, offset, device, inode, path
            if any(tuple(line.split(None, 5)[3:5]) in wanted for line in maps):
                return int(process)
    return None
