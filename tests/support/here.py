"""Jobs that run as they do, with all tasks in this process: no JVM starts, no process is forked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from jobs.spark import session
from jobs.spark.runner import Runner


@contextmanager
def tasks_here() -> Iterator[None]:
    """Within it tasks run here, one after the other; a job that asks for a Spark of its own fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.Spark, "begin", lambda *_, **settings: None)
        patch.setattr(session, "runner_for", lambda *_: nullcontext(Runner()))
        patch.setattr(session, "on_one_machine", lambda: True)
        yield
