"""Pipes, devices, sockets, sparse giants and loops of links in the place of files, and a limit on who might wait."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def at_once() -> Iterator[None]:
    def late(*unused: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def plant(root: Path, place: str, kind: str) -> None:
    path = next(iter(sorted(root.glob(place))), root / place)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path)
