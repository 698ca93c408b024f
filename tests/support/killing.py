"""Runs a job in processes to which a fault comes just before one of their changes of the file system.

A change is a system call (``support.system_calls``), so that all code counts, whatever it is written in. One driver
process imports everything once and forks for each run.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.here import tasks_here
from support.system_calls import Fault, install

if TYPE_CHECKING:
    from typing_extensions import Self

_HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Ended:
    """How a run ended; ``exit_code`` 1 of a job is an exception, which is in ``trace``, as is what a command said."""

    killed: bool
    exit_code: int
    trace: str
    came: bool
    """Whether the fault came before the end."""
    changes: int
    """Changes of the whole run."""


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
        """Runs ``jobs.<job>`` and kills it before change number ``kill_before`` (from 0) beside the store."""
        return self._ask(job, options, Fault("SIGKILL", kill_before, str(Path(options["store"]).parent)))

    def command(self, words: Sequence[str], fault: Fault) -> Ended:
        """Runs a command line with a fault; the directory that the fault watches holds its temporary files, too."""
        return self._ask("", list(words), fault)

    def _ask(self, job: str, given: object, fault: Fault) -> Ended:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps((job, given, asdict(fault))) + "\n")
        self._driver.stdin.flush()
        answer = json.loads(self._driver.stdout.readline())
        if "unavailable" in answer:
            pytest.skip(f"this system does not show system calls to another process: {answer['unavailable']}")
        return Ended(**answer)


def _drive() -> None:
    from jobs.contract import options as job_options

    pa.array(np.zeros(1))  # makes pyarrow import pandas: once here, not in every fork
    kinds = {"publish": job_options.PublishOptions, "restore": job_options.RestoreOptions}
    for name in ("publish.publish", "publish.restore", "rebuild.rebuild", "table.load"):
        importlib.import_module(f"jobs.{name}")
    for line in sys.stdin:
        job, given, wanted = json.loads(line)
        fault = Fault(**wanted)
        here, there = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115  (not a pipe: the child waits for us at changes alone)
        child = os.fork()
        if child == 0:
            here.close()
            try:
                handle = install()
            except (OSError, KeyError) as error:
                there.send(repr(error).encode())
                os._exit(0)
            socket.send_fds(there, [b"shown"], [handle])
            os.close(handle)
            os._exit(_child(job, kinds.get(job), given, fault, said.fileno()))
        there.close()
        answer, handles, _, _ = socket.recv_fds(here, 1000, 1)
        here.close()
        if not handles:
            os.waitpid(child, 0)
            _say({"unavailable": answer.decode()})
            continue
        fault.answers(child, handles[0])
        os.close(handles[0])
        _, status = os.waitpid(child, 0)
        said.seek(0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        _say(
            {
                "killed": killed,
                "exit_code": -1 if killed else os.waitstatus_to_exitcode(status),
                "trace": said.read().decode(),
                "came": fault.came,
                "changes": fault.changes,
            }
        )
        said.close()


def _child(job: str, kind: Any, given: Any, fault: Fault, said: int) -> int:
    """Returns the exit code of a run."""
    from jobs.cli import command_line
    from jobs.contract.report import Reporter

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # else one that nohup ignores in the tests is ignored here, too
    try:
        if kind is not None:
            module = importlib.import_module(f"jobs.publish.{job}")
            module.run(kind(**given), Reporter(quiet=True, stream=io.StringIO()))
            return 0
        tempfile.tempdir = fault.below
        sys.stdout = io.StringIO()
        sys.stderr = io.TextIOWrapper(os.fdopen(said, "wb", 0, closefd=False), write_through=True)
        with tasks_here():
            code = command_line.main(given)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # all is done
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001  (whatever it is, the parent shows it)
        os.write(said, traceback.format_exc().encode())
        return 1
    else:
        return code


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _drive()
