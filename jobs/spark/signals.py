"""Signals that end the program: they wait while something starts, and they unwind the stack as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from jobs.contract.report import Interrupted


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Lets signals that end the program wait for the end of the block: a JVM that nobody holds yet cannot be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, frame: arrived.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)


@contextmanager
def orderly_signals() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that drafts and Spark's JVM are removed."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
