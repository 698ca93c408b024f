"""stdin, stdout and stderr that may be closed, full or without a reader: none of that stops the work."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def make_usable() -> None:
    """Open closed streams as /dev/null, so that no other file gets their number; stderr ignores write errors."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203  (three times)
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    written = io.BufferedWriter(_Careless(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(written, encoding, "backslashreplace", write_through=True)


def end_stdout() -> None:
    """Discard what stdout could not write; the interpreter would retry it at exit and return 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Careless(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes
