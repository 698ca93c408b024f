"""Jobs that run as they do, with all tasks in this process: no JVM starts, no process is forked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from pyspark import SparkContext

from jobs.spark import launch, session
from jobs.spark.execution import active_context
from jobs.spark.runner import LocalRunner


def _active(*unused: object) -> SparkContext:
    context = active_context()
    assert context is not None, "this job starts Spark"
    return context


@contextmanager
def tasks_here() -> Iterator[None]:
    """Within it tasks run here, one after the other; a job that asks for a Spark of its own fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "check", lambda *_: None)
        patch.setattr(session.SparkOnDemand, "begin", lambda *_: None)
        patch.setattr(session.SparkOnDemand, "_start", _active)
        patch.setattr(session, "runner_for", lambda *_: nullcontext(LocalRunner()))
        yield
