"""The way to where root writes: opened directory by directory, so that no other user can make it lead elsewhere.

Whoever can write to a directory can replace any of its entries with a link, at any moment. A path that root follows
twice may then lead to two places. Other users risk nothing by that, and follow paths as they are.

===============================  ==================================================================================
a directory on the way           who else may change what is in it
===============================  ==================================================================================
of another user                  that user
writable for a group or for all  these, unless it has the sticky bit, as ``/tmp``: then each what is his own
===============================  ==================================================================================

Links in such a directory are never followed. Tasks open the files of an output by path, so an output is not allowed
below such a directory (``alone``). A single file is: it is written through the handle of its directory, which stays the
same wherever the directory is moved.

In a container with user ids of its own, owners from outside are strangers without a number, most of all the root there:
they are trusted, for they made the container. Standard library alone: a report is written before anything else is
installed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import NoReturn

from storeformat.errors import Refused

HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""How to open a directory that one may enter, and perhaps not list."""
LINKS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What systems say of a link, or a file, in the place of a directory."""
_MOST_LINKS = 40
_WHOLE_MAP = ["0", "0", "4294967295"]
_ADVICE = "name a place that root alone can exchange, run this as that user, or set a common directory's sticky bit"
_ADVICE_ON_LINK = "name the place that this link leads to, or run this as that user"


@contextmanager
def opened(path: str, *, make: bool = False, alone: bool = False) -> Iterator[int]:
    """Yields a handle of a directory; with ``make`` it is made, and those above it. Raises OSError, and Refused where
    root might be led elsewhere.
    """
    if os.geteuid() == 0:
        handle, _ = _walk(path, make=make, alone=alone)
    else:
        if make:
            os.makedirs(path, exist_ok=True)
        handle = os.open(path, HANDLE)
    try:
        yield handle
    finally:
        os.close(handle)


def place_of(path: str, *, alone: bool = True) -> str:
    """Returns where a path leads when all links are followed, also if nothing is there yet. Raises as ``opened``."""
    if os.geteuid() != 0:
        return os.path.realpath(path)
    handle, place = _walk(path, alone=alone, missing=True)
    os.close(handle)
    return place


def _walk(path: str, *, make: bool = False, alone: bool = False, missing: bool = False) -> tuple[int, str]:
    """Returns a handle of a directory and its path without links; where something is ``missing``, of the last one that
    is there, and the path to what is not.
    """
    handle, here, links = os.open("/", HANDLE), "/", 0
    try:
        waiting = os.path.abspath(path).split("/")[::-1]
        while waiting:
            name = waiting.pop()
            if name in ("", "."):
                continue
            if alone:
                refuse_exchangeable(handle, here)
            try:
                below = _below(handle, name, make=make)
            except OSError as error:
                text = _link(handle, name) if error.errno in LINKS else None
                if text is None and missing and error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return handle, os.path.normpath(os.path.join(here, name, *waiting[::-1]))
                if text is None or links == _MOST_LINKS:
                    raise
                _refuse_link(handle, here, name)
                links += 1
                waiting += text.split("/")[::-1]
                if not text.startswith("/"):
                    continue
                below, name = os.open("/", HANDLE), "/"
            os.close(handle)
            handle, here = below, os.path.normpath(os.path.join(here, name))
        if alone:
            refuse_exchangeable(handle, here)
    except BaseException:
        os.close(handle)
        raise
    return handle, here


def _below(handle: int, name: str, *, make: bool) -> int:
    """Returns a handle of a directory in a directory; raises OSError for a link."""
    try:
        return os.open(name, HANDLE | os.O_NOFOLLOW, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=handle)
    return os.open(name, HANDLE | os.O_NOFOLLOW, dir_fd=handle)


def _link(handle: int, name: str) -> str | None:
    """Returns the target of a link, None where there is no link."""
    with suppress(OSError):
        return os.readlink(name, dir_fd=handle)
    return None


def refuse_exchangeable(handle: int, here: str) -> None:
    """Raises Refused for an open directory in which others than root may exchange what root has there."""
    if _others_change(os.fstat(handle)):
        _refuse(here, os.fstat(handle), _ADVICE)


def _refuse_link(handle: int, here: str, name: str) -> None:
    """Raises Refused for a link that another user may have made."""
    status = os.fstat(handle)
    link = os.stat(name, dir_fd=handle, follow_symlinks=False)
    if _others_change(status) or (status.st_mode & 0o022 and not _is_trusted(link.st_uid)):
        _refuse(os.path.join(here, name), link, _ADVICE_ON_LINK)


def _refuse(path: str, status: os.stat_result, advice: str) -> NoReturn:
    raise Refused(
        "another user can lead root elsewhere here", path=path,
        found=f"user {status.st_uid}, group {status.st_gid}, {stat.filemode(status.st_mode)}", advice=advice,
    )  # fmt: skip


def _others_change(directory: os.stat_result) -> bool:
    """Returns whether others than root may exchange what root has in a directory."""
    is_sticky = directory.st_mode & stat.S_ISVTX
    return not _is_trusted(directory.st_uid) or bool(directory.st_mode & 0o022 and not is_sticky)


def _is_trusted(user: int) -> bool:
    return user == 0 or user == _stranger()


@cache
def _stranger() -> int | None:
    """Returns the user id that stands for all that this container does not know; None outside of one."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as known:
            if known.read().split() == _WHOLE_MAP:
                return None
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as number:
            return int(number.read())
    except (OSError, ValueError):
        return None
