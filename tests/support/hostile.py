"""Pipes, devices, sockets, sparse giants and loops of links in the place of files, wrong numbers, and limits."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEMORY = 1 << 30
"""What a job may take for a store of some hundred kilobytes, above what the process has."""
LIMIT_S = 4
"""Twice what is promised: other tests run beside these."""


def giant(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5)),
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o644),
    "giant": giant,
    "loop": lambda path: path.symlink_to(path.name),
}


Field = tuple[int, int]
"""Where it begins, and its bytes."""
RECORD: list[Field] = [(0, 4), (8, 4), (12, 4), (20, 8), (28, 8), (36, 4), (40, 8), (56, 8), (72, 4), (76, 8), (84, 4)]
UNIT: list[Field] = [(0, 8), (8, 4), (12, 8)]
BATCH: list[Field] = [*UNIT, (20, 8), (28, 8), (36, 2), (38, 4)]
INDEX_HEADER: list[Field] = [(0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4)]


def overwrite(path: Path, at: int, width: int, change: Callable[[int], int]) -> None:
    content = bytearray(path.read_bytes())
    number = change(int.from_bytes(content[at : at + width], "big")) % (1 << 8 * width)
    content[at : at + width] = number.to_bytes(width, "big")
    path.write_bytes(content)


def last_unit(path: Path, size: int) -> int:
    """Where the last unit of a file begins that is not zero."""
    content = path.read_bytes()
    return max((at for at in range(0, len(content), size) if any(content[at : at + size])), default=0)


def in_a_child(work: Callable[[], object]) -> str:
    """What goes wrong with work in a process that may take ``MEMORY`` more than this one; nothing if it is done."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        said = ""
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
            work()
        except BaseException:  # noqa: BLE001  (the child must end here)
            said = traceback.format_exc()
        os.write(write, said[-3000:].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    status = os.waitpid(pid, 0)[1]
    return said or (f"the process ended with {status}" if status else "")


@contextmanager
def at_once(limit_s: int = LIMIT_S) -> Iterator[None]:
    def late(*unused: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def small_disk(place: Path, size: int | str) -> Iterator[Path]:
    """A file system of so many bytes at a place that is made for it."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        place.rmdir()
        pytest.skip("only root may mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def plant(root: Path, place: str, kind: str) -> None:
    path = next(iter(sorted(root.glob(place))), root / place)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path)
