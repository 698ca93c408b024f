"""stdin, stdout and stderr as an operator leaves them: closed, full, or read by nobody. None of that stops the work."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def make_usable() -> None:
    """Opens what is closed as /dev/null, so that no other file gets its number, and lets stderr forget what it cannot
    write.
    """
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
    """Lets what stdout could not write vanish: the interpreter would try it again at its end, and exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Careless(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes
