"""A Spark that does not start is something missing, not a defect of this program."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from jobs.spark import session
from storeformat.errors import DependencyMissing

SAID = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Application application_1_1 failed 2 times
\tat org.apache.spark.deploy.yarn.Client"""


def test_the_reason_is_sparks_own() -> None:
    def context(**settings: object) -> None:
        raise Py4JError(SAID)

    with pytest.raises(DependencyMissing) as ended:
        session.started(context)  # type: ignore[arg-type]
    assert str(ended.value) == "Spark did not start: SparkException: Application application_1_1 failed 2 times"
    assert ended.value.exit_code == 69
    assert ended.value.advice == "look at --master and the settings of Spark; --debug shows all that it said"


def test_a_context_of_another_program_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for pyspark, has in (
        (None, False),
        (SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=None)), False),
        (SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context="one")), True),
    ):
        monkeypatch.setitem(sys.modules, "pyspark", pyspark)
        assert session._has_context() == has
        monkeypatch.setattr(session.launch, "spark_is_optional", lambda: True)
        assert session.does_without_spark(0) == (not has)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(session, "_shared", "one of a fleet")
    assert not session.does_without_spark(0)


class TestSharedSpark:
    def test_threads_share_one_that_ends_with_the_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[str] = []

        @contextmanager
        def own(job: str) -> Iterator[str]:
            said.append(f"start {job}")
            yield "a context"
            said.append("end")

        def work() -> None:
            together.wait()
            with session.spark_context("verify") as context:
                said.append(str(context))
            with session.spark_on_demand("load") as spark:
                said.append(str(spark.context))

        monkeypatch.setattr(session, "_own_context", own)
        together = threading.Barrier(4, timeout=20)
        threads = [threading.Thread(target=work) for _ in range(4)]
        with session.shared_spark("verify"):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert "end" not in said
        assert said == ["start verify", *["a context"] * 8, "end"]

    def test_one_that_fails_is_not_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tries: list[str] = []

        @contextmanager
        def own(job: str) -> Iterator[Any]:
            tries.append(job)
            raise DependencyMissing("no cluster")
            yield

        monkeypatch.setattr(session, "_own_context", own)
        with session.shared_spark("load"):
            for _ in range(2):
                with pytest.raises(DependencyMissing, match="no cluster"), session.spark_context("load"):
                    pass
        assert tries == ["load"]

    def test_one_that_has_ended_does_not_start(self) -> None:
        with session.shared_spark("load"):
            shared = session._shared
        assert session._shared is None
        assert shared is not None
        with pytest.raises(RuntimeError, match=r"^Spark has ended$"):
            shared.context  # noqa: B018
