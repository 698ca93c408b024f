"""A run in progress: notes and progress on stderr, and the report at its end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from jobs.contract.options import JobOptions
from jobs.contract.report import Report, printable, size_text, status_of


class Reporter:
    """Clock, notes, progress and report of one run, thread-safe; ``interval`` is seconds between lines."""

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, interval: float = 10.0, dated: bool = False
    ) -> None:
        self.begun = time.monotonic()
        self.notes: list[str] = []
        self.quiet = quiet
        self.dated = dated
        self.stream = sys.stderr if stream is None else stream
        self.interval = interval
        self.terminal = self.stream.isatty()
        self._drawn = 0
        self._lock = threading.Lock()

    @classmethod
    def for_options(cls, options: JobOptions) -> Reporter:
        return cls(quiet=options.quiet, dated=True)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.begun, 3)

    def say(self, text: str) -> None:
        if not self.quiet:
            self._line(text)

    def note(self, *notes: str) -> None:
        """Print notes now and add them to the report."""
        for text in notes:
            self.say(text)
        self.notes += notes

    def tell(self, *lines: str) -> None:
        """Print lines even if quiet; they are not added to the notes."""
        for line in lines:
            self._line(line.strip())

    def warn(self, text: str) -> None:
        """Print a warning even if quiet, and add it to the report."""
        self._line(f"warning: {text}")
        self.notes.append(text)

    def report(
        self,
        job: str,
        *,
        notes: Sequence[str] = (),
        text: Sequence[str] | None = None,
        differs: bool = False,
        damaged: bool = False,
        unknown: bool = False,
        **facts: Any,
    ) -> Report:
        status = status_of(facts, differs=differs, damaged=damaged, unknown=unknown)
        return Report(job, status, text=text, **facts, seconds=self.seconds, notes=[*self.notes, *notes])

    def _line(self, text: str) -> None:
        with self._lock:
            self._clear()
            date = time.strftime("%Y-%m-%d %H:%M:%S ") if self.dated and not self.terminal else ""
            print(date + printable(text), file=self.stream, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=self.stream)
            self._drawn = 0

    def _draw(self, text: str) -> None:
        line = printable(text)
        with self._lock:
            self._clear()
            print(line, end="", file=self.stream, flush=True)
            self._drawn = len(line)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Progress]:
        progress = Progress(self, what, total)
        try:
            yield progress
        finally:
            with self._lock:
                self._clear()


class Progress:
    """Progress of one piece of work, created by ``Reporter.progress``."""

    def __init__(self, reporter: Reporter, what: str, total: int) -> None:
        self.reporter = reporter
        self.what = what
        self.total = total
        self.begun = time.monotonic()
        self._next = self.begun + (0.5 if reporter.terminal else reporter.interval)

    def update(self, done: int, *, now: float | None = None) -> None:
        """Record ``done`` bytes; prints only when a line is due, so call it as often as convenient."""
        now = time.monotonic() if now is None else now
        if self.reporter.quiet or now < self._next:
            return
        if self.reporter.terminal:
            self._next = now + 0.2
            self.reporter._draw(self.text(done, now))
        else:
            self._next = now + self.reporter.interval
            self.reporter._line(self.text(done, now))

    def text(self, done: int, now: float) -> str:
        seconds = max(now - self.begun, 1e-9)
        share = done / self.total if self.total else 1.0
        left = "" if done <= 0 or share >= 1 else f", about {duration_text(seconds * (1 - share) / share)} left"
        amounts = f"{size_text(done)} of {size_text(self.total)}, {size_text(done / seconds)}/s"
        return f"{self.what}: {share:.0%}, {amounts}{left}"


def duration_text(seconds: float) -> str:
    """A duration as ``45 s``, ``3 min`` or ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
