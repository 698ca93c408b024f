"""Changes of local directories that a crash cannot tear: moves that replace nothing, and synced writes.

What ``files`` does is enough for a staging directory that nobody reads before it is complete. Here the files of a store
change under their own names, so the order in which changes reach the disk is part of what each function promises.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from storeformat.errors import MissingInput, WriteFailed
from storeformat.storage import files, locations

THREADS = 8


def present(path: str) -> bool:
    """Returns whether a name is taken, by a dangling link too."""
    return os.path.lexists(locations.local_path(path))


def move(source: str, target: str) -> bool:
    """Renames a file or directory onto a free name, in one step. Returns False if that is on another file system."""
    if present(target):
        raise WriteFailed("this name is already taken", path=target)
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
    with ThreadPoolExecutor(THREADS) as pool:
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
