"""Signals that end the program: they wait while something starts, and they unwind the stack as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
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
    try:
        with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), lambda number, frame: arrived.append(number)):
            yield
    finally:
        for number in arrived[:1]:
            signal.raise_signal(number)


@contextmanager
def orderly_signals(*numbers: int) -> Iterator[None]:
    """Within it these signals, SIGTERM and SIGHUP by default, unwind the stack as Ctrl-C does, so that drafts and
    Spark's JVM are removed.
    """

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted(number)

    with _handled(numbers or (signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


@contextmanager
def _handled(numbers: tuple[int, ...], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
