"""A run under way: notes and progress on stderr, and at its end the report."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from jobs.contract.options import JobOptions
from jobs.contract.report import Report, printable, size_text
from jobs.contract.verdict import status_of


class Reporter:
    """One run of a job: its clock, its notes, its progress on stderr, and the report that it ends with.

    On a terminal progress is one line drawn over and over; elsewhere one line every ``interval`` seconds, and with
    ``dated`` each line starts with the local time. ``quiet`` silences notes and progress, not warnings. All methods may
    be called from any thread.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, interval: float = 30.0, dated: bool = False
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

    def for_part(self, name: str) -> Reporter:
        """Returns the reporter of a part of the run, with notes of its own: what it says begins with ``name``, and it
        shows no progress.
        """
        return _PartReporter(self, name)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.begun, 3)

    def say(self, text: str) -> None:
        if not self.quiet:
            self._line(text)

    def note(self, *notes: str) -> None:
        """Says what is worth knowing, now and in the report."""
        for text in notes:
            self.say(text)
        self.notes += notes

    def tell(self, *lines: str) -> None:
        """Says lines that must not be missed, and are in the report elsewhere."""
        for line in lines:
            self._line(line.strip())

    def warn(self, text: str) -> None:
        """Says what must not be missed, now and in the report."""
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
        """Returns the report that ends the run: the facts, how long it took, and all notes, ``notes`` last. Its status
        is what ``verdict.status_of`` makes of them; ``text`` as ``Report`` takes it.
        """
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
        """Yields the Progress of work on ``total`` bytes; its ``update(done)`` may be called as often as convenient."""
        progress = Progress(self, what, total)
        try:
            yield progress
        finally:
            with self._lock:
                self._clear()


class _PartReporter(Reporter):
    def __init__(self, whole: Reporter, name: str) -> None:
        super().__init__(quiet=whole.quiet, stream=whole.stream)
        self._whole = whole
        self._name = name

    def _line(self, text: str) -> None:
        self._whole._line(f"{self._name}: {text}")

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Progress]:
        yield Progress(Reporter(quiet=True), what, total)


class Progress:
    """How far a piece of work is; made by ``Reporter.progress``."""

    def __init__(self, reporter: Reporter, what: str, total: int) -> None:
        self.reporter = reporter
        self.what = what
        self.total = total
        self.begun = time.monotonic()
        self._next = self.begun + (0.5 if reporter.terminal else reporter.interval)

    def update(self, done: int, *, now: float | None = None) -> None:
        """Tells that ``done`` of ``total`` bytes are done; draws or prints when it is time to."""
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
        """Returns the line: what, share, amount, rate, and the time that is left when the rate so far holds."""
        seconds = max(now - self.begun, 1e-9)
        share = done / self.total if self.total else 1.0
        left = "" if done <= 0 or share >= 1 else f", about {duration_text(seconds * (1 - share) / share)} left"
        amounts = f"{size_text(done)} of {size_text(self.total)}, {size_text(done / seconds)}/s"
        return f"{self.what}: {share:.0%}, {amounts}{left}"


def duration_text(seconds: float) -> str:
    """Returns a duration as people say it: ``45 s``, ``3 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
