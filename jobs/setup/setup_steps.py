"""Steps of the set-up: run several at once, each reported in a line with its time; those done before are skipped.

A step that is done leaves a stamp with its key: what it was made from. A later set-up with the same key goes past it,
so an interrupted set-up goes on where it ended. On a terminal one line shows what runs now; elsewhere there is a line
every 30 seconds. Standard library alone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

INTERVAL = 30.0
"""Seconds between two lines about steps that still run, where stderr is not a terminal."""


def say(text: str) -> None:
    """Tells the user, nothing that a terminal obeys; stdout belongs to the job's report."""
    shown = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    sys.stderr.write("".join(shown) + "\n")
    sys.stderr.flush()


class SetupError(Exception):
    """The set-up cannot go on; ``advice`` is what a person can do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


class LeftOut(Exception):
    """A step could not do its work and the rest goes on without it; a later set-up tries again."""


@dataclass(frozen=True)
class Step:
    """``work`` gets a ``StepProgress`` and returns what the line says; it runs when those of ``after`` are done.

    ``key`` is what it is made from.
    """

    name: str
    work: Callable[[StepProgress], str]
    key: str
    after: tuple[str, ...] = ()


@dataclass
class StepProgress:
    """What one running step tells: a text for people who watch, and the log that its commands write."""

    log: Path
    text: str = ""
    begun: float = field(default_factory=time.monotonic)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the whole set-up ends early: nothing begins any more."""

    def run(
        self,
        command: Sequence[str],
        hear: Callable[[str], object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> bool:
        """Returns whether a command succeeded; its lines go to the log, and to ``hear``. Raises SetupError if an
        interrupt has ended the set-up.
        """
        if self.ended.is_set():
            raise SetupError("the set-up was interrupted")
        with self.log.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            process = subprocess.Popen(
                command,
                cwd=self.log.parent,  # Python 3.10 looks for modules in the working directory, which may be anybody's
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                text=True,
                errors="replace",
            )
            self.processes.append(process)
            with process:
                for line in process.stdout or ():
                    log.write(line)
                    if hear is not None:
                        hear(line)
            return process.returncode == 0

    def errors(self, *beginnings: str) -> str:
        """Returns the last line of the log that begins with one of these words, or nothing."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.startswith(beginnings)), "")


class Steps:
    """Runs steps, each as soon as those that it needs are done."""

    def __init__(self, stamps: Path, stream: TextIO | None = None) -> None:
        self._stamps = stamps
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._drawn = 0
        self._running: dict[str, StepProgress] = {}
        self._ended = threading.Event()

    def run(self, steps: Sequence[Step]) -> None:
        """Returns when all are done; a failure, Ctrl-C and SIGTERM end what runs, and are raised."""
        width = max(len(step.name) for step in steps)
        done = {step.name: threading.Event() for step in steps}

        def one(step: Step) -> None:
            try:
                for name in step.after:
                    done[name].wait()
                if not self._ended.is_set():
                    self._one(step, width)
            except BaseException:
                self._ended.set()
                raise
            finally:
                done[step.name].set()

        with concurrent.futures.ThreadPoolExecutor(len(steps)) as pool:
            running = [pool.submit(one, step) for step in steps]
            try:
                self._watch(running)
            except BaseException:
                self._ended.set()
                for process in [one for progress in list(self._running.values()) for one in progress.processes]:
                    with contextlib.suppress(ProcessLookupError):
                        process.terminate()
                raise
            finally:
                self._show("")

    def _one(self, step: Step, width: int) -> None:
        stamp = self._stamps / step.name.replace(" ", "-")
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == step.key:
            self._line(f"  {step.name:<{width}}  done before")
            return
        progress = StepProgress(self._stamps.parent / f"setup-{stamp.name}.log", ended=self._ended)
        progress.log.unlink(missing_ok=True)
        self._running[step.name] = progress
        try:
            outcome = step.work(progress)
        except LeftOut as reason:
            self._line(f"  {step.name:<{width}}  {reason}")
            return
        finally:
            self._running.pop(step.name, None)
            for process in progress.processes:
                if process.poll() is None:
                    process.terminate()
        if self._ended.is_set():  # its command may have been cut short
            return
        self._stamps.mkdir(parents=True, exist_ok=True)
        draft = stamp.with_name(f"{stamp.name}.draft")
        draft.write_text(step.key, encoding="utf-8")
        draft.replace(stamp)
        self._line(f"  {step.name:<{width}}  {outcome}  ({time.monotonic() - progress.begun:.1f} s)")

    def _watch(self, running: Iterable[concurrent.futures.Future[None]]) -> None:
        left, last_line = set(running), time.monotonic()
        while left:
            done, left = concurrent.futures.wait(left, 0.2, concurrent.futures.FIRST_EXCEPTION)
            for one in done:
                one.result()
            if self._terminal:
                self._show(self._now())
            elif left and time.monotonic() - last_line >= INTERVAL:
                last_line = time.monotonic()
                self._line(f"  ... {self._now()}")

    def _now(self) -> str:
        now = time.monotonic()
        return " | ".join(
            f"{name} {progress.text} {now - progress.begun:.0f} s".replace("  ", " ")
            for name, progress in list(self._running.items())
        )

    def _line(self, text: str) -> None:
        with self._lock:
            self._clear()
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _show(self, text: str) -> None:
        if self._terminal:
            with self._lock:
                self._clear()
                text = text[: shutil.get_terminal_size().columns - 1]
                self._stream.write(text)
                self._stream.flush()
                self._drawn = len(text)

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._drawn = 0
