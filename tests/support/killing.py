"""Runs a job in processes to which a fault comes just before one of their changes of the file system: SIGKILL, another
signal, or an error in the change's place.

A change is what the interpreter's audit events show (rename, mkdir, unlink, opening for writing, utime, truncate) and
every fsync, so that the code under test needs no hook. They count from the first mkdir or rename on: what comes before
only reads. One driver process imports everything once and forks for each run.
"""

from __future__ import annotations

import errno
import importlib
import io
import itertools
import json
import mmap
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from typing_extensions import Self

_HERE = Path(__file__).resolve()
_CHANGES = frozenset({"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.utime", "os.truncate", "os.chown"})
_REMOVALS = frozenset({"os.rmdir", "os.remove"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Ended:
    """How a run ended: ``killed``, or with an exit code of its own (of a job 0 done, 1 an exception, which is in
    ``trace``; a command line has its own, and ``trace`` is what it said).
    """

    killed: bool
    exit_code: int
    trace: str
    came: bool
    """Whether the fault came before the end."""


class Killer:
    """The driver process; use as a context manager."""

    def __enter__(self) -> Self:
        root = _HERE.parent.parent.parent
        self._driver = subprocess.Popen(
            [sys.executable, _HERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "ROCKETMQ_STORE_SPARK_KERNELS": "numpy"},
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.close()
        self._driver.wait(timeout=150)
        self._driver.stdout.close()

    def run(self, job: str, options: dict[str, Any], kill_before: int) -> Ended:
        """Runs ``jobs.<job>`` and kills it before change number ``kill_before`` (from 0)."""
        return self._ask(job, options, "SIGKILL", kill_before)

    def command(self, words: Sequence[str], fault: str, before: int) -> Ended:
        """Runs a command line, to which a fault comes before change number ``before``: the name of a signal or errno.

        An error comes to changes that make something: nobody can clean up what cannot be removed.
        """
        return self._ask("", list(words), fault, before)

    def _ask(self, *request: object) -> Ended:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps(request) + "\n")
        self._driver.stdin.flush()
        return Ended(**json.loads(self._driver.stdout.readline()))


def _drive() -> None:
    from jobs.cli import command_line
    from jobs.contract import options as job_options
    from jobs.contract.reporter import Reporter

    pa.array(np.zeros(1))  # makes pyarrow import pandas: once here, not in every fork
    modules = {job: importlib.import_module(f"jobs.publish.{job}") for job in ("publish", "restore")}
    kinds = {"publish": job_options.PublishOptions, "restore": job_options.RestoreOptions}
    importlib.import_module("jobs.rebuild.rebuild")
    for line in sys.stdin:
        job, given, fault, before = json.loads(line)
        read, write = os.pipe()
        came = mmap.mmap(-1, 1)  # both processes see it
        child = os.fork()
        if child == 0:
            os.close(read)
            code = 0
            try:
                if job:
                    _come(fault, before, came)
                    modules[job].run(kinds[job](**given), Reporter(quiet=True, stream=io.StringIO()))
                else:
                    sys.stdout = io.StringIO()
                    sys.stderr = io.TextIOWrapper(os.fdopen(write, "wb", 0, closefd=False), write_through=True)
                    _come(fault, before, came)
                    code = command_line.main(given)
            except BaseException:  # noqa: BLE001  (whatever it is, the parent shows it)
                code = 1
                os.write(write, traceback.format_exc().encode())
            os._exit(code)
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as trace:
            text = trace.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        ended = {
            "killed": killed,
            "exit_code": -1 if killed else os.waitstatus_to_exitcode(status),
            "trace": text,
            "came": came[0] > 0,
        }
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


def _come(fault: str, before: int, came: mmap.mmap) -> None:
    """Lets a fault come before a change of this process, and tells the other one."""
    changes = itertools.count()
    begun = False
    number = None if fault.startswith("SIG") else getattr(errno, fault)

    def change() -> None:
        if not begun or next(changes) != before:
            return
        came[0] = 1
        if number is not None:
            raise OSError(number, os.strerror(number))
        os.kill(os.getpid(), signal.Signals[fault])

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal begun
        if event in _CHANGES or (event == "open" and int(arguments[2] or 0) & _WRITING):
            begun = begun or event in ("os.mkdir", "os.rename")
            if number is None or event not in _REMOVALS:
                change()

    fsync = os.fsync

    def watched_fsync(handle: int) -> None:
        change()
        fsync(handle)

    os.fsync = watched_fsync
    sys.addaudithook(watch)


if __name__ == "__main__":
    _drive()
