"""Local files read and copied in parallel, and on disk when the call returns."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from storeformat.errors import MissingInput, Refused
from storeformat.storage import files, locations
from storeformat.storage.durable import THREADS, sync, sync_all, tree
from storeformat.storage.extents import CHUNK, Content, content_on_disk, is_zero
from storeformat.storage.local_files import data_ranges

Advance = Callable[[int], object]
"""Told how many bytes are done so far, never by two threads at once."""


def _tally(advance: Advance) -> Advance:
    """Returns what adds up the bytes that several threads have done."""
    done, lock = 0, threading.Lock()

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            advance(done)

    return add


def contents_on_disk(expected: Sequence[tuple[str, int]], advance: Advance) -> list[Content]:
    """Returns the content of each file (path, how far it should hold data), read in parallel; every file is on disk
    when this returns.
    """
    add = _tally(advance)
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda file: content_on_disk(file[0], file[1], add), expected))


def copy_trees(pairs: Iterable[tuple[str, str]], advance: Advance) -> None:
    """Copies files and directories (source, target), in parallel, holes and all; they are on disk when this returns.
    ``advance`` is told of the bytes that are not holes. Raises Refused for what is neither file nor directory.
    """
    add = _tally(advance)
    made: list[str] = []
    tasks: list[tuple[str, str]] = []
    for source, target in pairs:
        directories, others = tree(source)
        base, new = len(locations.local_path(source)), locations.local_path(target)
        for directory in (locations.parent_of(new), *(new + directory[base:] for directory in directories)):
            files.make_directory(directory)
            made.append(directory)
        tasks += [(path, new + path[base:]) for path in others]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda task: _copy_file(task[0], task[1], add), tasks))
    sync_all(made)


def _copy_file(source: str, target: str, add: Advance) -> None:
    """Copies a file with its time of last change; the target is on disk when this returns."""
    status = copy_file(source, target, add)
    with files.writing(target):
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    sync(target)


def copy_file(source: str, target: str, add: Advance) -> os.stat_result:
    """Returns the status of a regular file that was copied, its holes as holes; as ``copy_trees``. Raises MissingInput
    where it is cut meanwhile.
    """
    with files.reading(source), open(source, "rb", buffering=0, opener=_open) as old:
        status = os.fstat(old.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Refused("this is not a regular file", path=source)
        with files.FileWriter(target) as writer:
            for low, high in data_ranges(old.fileno(), 0, status.st_size):
                for position in range(low, high, CHUNK):
                    part = os.pread(old.fileno(), min(CHUNK, high - position), position)
                    if len(part) != min(CHUNK, high - position):
                        raise MissingInput("the file was truncated while it was read", path=source)
                    if not is_zero(part):
                        writer.write_at(position, part)
                    add(len(part))
            writer.finish(status.st_size)
    return status


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would wait
