"""Crash-safe changes of local directories: moves without overwriting, and synced writes.

Unlike staging directories (``files``), files of a store change under their own names, so the order in which changes
reach the disk is part of each function's contract.
"""

from __future__ import annotations

import filecmp
import os
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.storage import files, locations

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
