"""Signals wait where nothing could be cleaned up, and are not lost."""

from __future__ import annotations

import signal
import threading

from jobs.spark.signals import deferred_signals, orderly_signals

ENDING = (signal.SIGTERM, signal.SIGHUP)


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
        assert raised_inside(signal.SIGINT) == ["the block went on", "KeyboardInterrupt"]

    def test_it_arrives_when_the_block_fails(self) -> None:
        assert raised_inside(signal.SIGINT, ValueError()) == ["the block went on", "KeyboardInterrupt"]

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


def test_handlers_are_those_of_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, *ENDING)]
    with orderly_signals(), deferred_signals():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, *ENDING)] == before
