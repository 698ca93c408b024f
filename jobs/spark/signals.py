"""Signals that end the program: they wait while something starts, and they unwind the stack as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from jobs.contract.report import Interrupted

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SOON = 0.01  # seconds


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Lets signals that end the program wait for the end of the block: a JVM that nobody holds yet cannot be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    try:
        with _handled(lambda number, frame: arrived.append(number)):
            yield
    finally:
        for number in arrived[:1]:
            signal.raise_signal(number)


@contextmanager
def orderly_signals() -> Iterator[None]:
    """Within it SIGINT, SIGTERM and SIGHUP unwind the stack as Interrupted, so that drafts and Spark's JVM are removed;
    one that was ignored before, as by ``nohup``, still is.

    One that comes where an exception does harm (``_is_unsafe``) comes again a little later.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if frame is not None and _is_unsafe(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
            return
        raise Interrupted(came[0])

    with _handled(interrupt):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _is_unsafe(frame: FrameType) -> bool:
    """Returns whether an exception must not be raised in a frame: it would leave a lock taken, for which the threads of
    a pool then wait for ever, because ``Condition.__enter__`` is Python code; or Python would swallow it, as it does in
    what it calls when an object goes. Frames that wait for another thread are safe.
    """
    module, function = frame.f_globals.get("__name__"), frame.f_code.co_name
    if module in ("threading", "queue", "concurrent.futures._base", "concurrent.futures.thread"):
        return function not in ("join", "_wait_for_tstate_lock") and "gotit" not in frame.f_locals  # Condition.wait
    return module in ("weakref", "_weakrefset") or function == "__del__"


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Hands signals to a function, but for ignored ones: processes that start meanwhile ignore them, too."""
    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in (*heard, signal.SIGALRM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
