"""Jobs that run as they do, with all tasks in this process: no JVM starts, no process is forked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from jobs.spark import launch, session
from jobs.spark.runner import LocalRunner


@contextmanager
def tasks_here() -> Iterator[None]:
    """Within it tasks run here, one after the other, whatever a command line says of the engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "check", lambda *_: None)
        patch.setattr(session.SparkOnDemand, "begin", lambda *_: None)
        patch.setattr(session, "runner_for", lambda *_: nullcontext(LocalRunner()))
        patch.setattr(session, "asks_for_spark", lambda *_: False)
        yield
