"""Signals wait where nothing could be cleaned up, and are not lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from jobs.contract.report import Interrupted
from jobs.spark.signals import deferred_signals, orderly_signals

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Nothing ignores SIGHUP, as nohup does in a run of the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def raised_inside(number: signal.Signals, error: Exception | None = None) -> list[str]:
    """What happened, in its order, when a signal came inside of the block."""
    happened = []
    with orderly_signals():
        try:
            with deferred_signals():
                signal.raise_signal(number)
                happened.append("the block went on")
                if error is not None:
                    raise error
            happened.append("the signal was swallowed")
        except KeyboardInterrupt as caught:
            happened.append(type(caught).__name__)
    return happened


class TestDeferred:
    def test_a_signal_arrives_after_the_block(self) -> None:
        assert raised_inside(signal.SIGTERM) == ["the block went on", "Interrupted"]
        assert raised_inside(signal.SIGHUP) == ["the block went on", "Interrupted"]
        assert raised_inside(signal.SIGINT) == ["the block went on", "Interrupted"]

    def test_it_arrives_when_the_block_fails(self) -> None:
        assert raised_inside(signal.SIGINT, ValueError()) == ["the block went on", "Interrupted"]

    def test_other_threads_leave_signals_alone(self) -> None:
        seen = []

        def work() -> None:
            with deferred_signals():
                seen.append(signal.getsignal(signal.SIGINT))

        before = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [before]


class TestLocks:
    def test_a_condition_that_was_entered_is_left(self) -> None:
        lock = threading.Lock()
        condition = threading.Condition(SignalledLock(lock))  # type: ignore[arg-type]
        entered = []

        def work() -> None:
            with condition:
                entered.append(True)
            threading.Event().wait(timeout=60)

        with pytest.raises(Interrupted) as caught, orderly_signals():
            work()
        assert caught.value.number == signal.SIGTERM
        assert entered
        assert lock.acquire(blocking=False)

    def test_a_wait_ends(self) -> None:
        timer = threading.Timer(0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))

        def work() -> None:
            timer.start()
            threading.Event().wait(timeout=60)

        with pytest.raises(Interrupted), orderly_signals():
            work()

    def test_one_that_comes_with_the_end_does_no_harm(self) -> None:
        with orderly_signals(), threading.Condition(SignalledLock(threading.Lock())):  # type: ignore[arg-type]
            pass
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


class SignalledLock:
    """A lock that is taken at once; SIGTERM comes while a Condition enters it."""

    def __init__(self, lock: threading.Lock) -> None:
        lock.acquire()
        self.acquire, self.release, self.__exit__ = lock.acquire, lock.release, lock.__exit__
        self.__enter__ = partial(signal.raise_signal, signal.SIGTERM)


def test_an_ignored_signal_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly_signals(), deferred_signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_those_of_before() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    with orderly_signals(), deferred_signals():
        pass
    assert [signal.getsignal(number) for number in ENDING] == before
