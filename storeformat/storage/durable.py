"""Changes of local directories that a crash cannot tear: moves that replace nothing, and synced writes.

What ``files`` does is enough for a staging directory that nobody reads before it is complete. Here the files of a store
change under their own names, so the order in which changes reach the disk is part of what each function promises.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from storeformat.errors import MissingInput, WriteFailed
from storeformat.storage import beneath, files, locations

THREADS = 8


def present(path: str) -> bool:
    """Returns whether a name is taken, by a dangling link too."""
    return os.path.lexists(beneath.name_of(path))


def move(source: str, target: str, bases: Sequence[str] = ()) -> bool:
    """Renames a file or directory onto a free name, in one step. Returns False if that is on another file system.

    Below ``bases`` no link is followed on the way to either name. Raises WriteFailed where the name is taken.
    """
    with (
        files.writing(target),
        beneath.parent(source, bases) as (source_directory, source_name),
        beneath.parent(target, bases, make=True) as (target_directory, target_name),
    ):
        with suppress(FileNotFoundError):
            os.stat(target_name, dir_fd=target_directory, follow_symlinks=False)
            raise WriteFailed("this name is already taken", path=target)
        try:
            os.rename(source_name, target_name, src_dir_fd=source_directory, dst_dir_fd=target_directory)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
    return True


def sync(path: str) -> None:
    """Returns when a file's bytes, or a directory's names, are on disk."""
    with files.writing(path):
        handle = os.open(beneath.name_of(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_all(paths: Iterable[str]) -> None:
    """Returns when all of these are on disk, each once."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(sync, dict.fromkeys(paths)))


def tree(path: str) -> tuple[list[str], list[str]]:
    """Returns (directories, others) of everything at and below a path, in no order; links are not followed. Raises
    MissingInput where one of them cannot be read.
    """
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


def refuse_other_names(path: str) -> None:
    """Raises Refused for a file that has a second name somewhere, through which it can be changed."""
    with files.reading(path):
        beneath.refuse_other_names(os.lstat(path), path)


def remove_file(path: str) -> None:
    """Removes a file of our own making; one that is not there is fine."""
    with files.writing(path), suppress(FileNotFoundError):
        os.unlink(locations.local_path(path))
