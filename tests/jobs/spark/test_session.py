"""A Spark that does not start is something missing, not a defect of this program."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from jobs.spark import session
from jobs.spark.execution import Execution
from jobs.spark.spark_errors import SparkError
from storeformat.errors import DependencyMissing, MissingInput

LOAD = Execution("load")

SAID = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Application application_1_1 failed 2 times
\tat org.apache.spark.deploy.yarn.Client"""


def test_the_reason_is_sparks_own() -> None:
    def context(**settings: object) -> None:
        raise PySparkException(SAID)

    with pytest.raises(DependencyMissing) as ended:
        session.started(context)  # type: ignore[arg-type]
    assert str(ended.value) == "Spark did not start: SparkException: Application application_1_1 failed 2 times"
    assert ended.value.exit_code == 69
    assert ended.value.advice == "look at --master and the settings of Spark; --debug shows all that it said"


def test_a_spark_that_is_too_old_is_named() -> None:
    session.require_version("4.0.5")
    with pytest.raises(DependencyMissing, match=r"^this is Spark 3\.5\.1, and 4\.0 or later is needed$"):
        session.require_version("3.5.1")


class TestSharedSpark:
    @pytest.fixture
    def said(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What is done, in place of a start."""
        done: list[str] = []

        def start(spark: session.SparkOnDemand) -> Any:
            done.append(f"start {spark._execution.job}")
            spark._stack.callback(done.append, "end")
            return "a context"

        monkeypatch.setattr(session.SparkOnDemand, "_start", start)
        return done

    def test_delta_comes_with_the_jvm_if_the_job_needs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begun: list[bool] = []
        monkeypatch.setattr(
            session.SparkOnDemand, "session", property(lambda spark: begun.append(spark._execution.delta))
        )
        for delta in (False, True):
            with session.shared_spark(LOAD), session.spark_session(LOAD, delta=delta):
                pass
        assert begun == [False, True]

    def test_threads_share_one_that_ends_with_the_block(self, said: list[str]) -> None:
        def work() -> None:
            together.wait()
            with session.spark_on_demand(LOAD) as spark:
                said.append(str(spark.context))

        together = threading.Barrier(4, timeout=120)
        threads = [threading.Thread(target=work) for _ in range(4)]
        with session.shared_spark(Execution("verify")):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert "end" not in said
        assert said == ["start verify", *["a context"] * 4, "end"]

    @staticmethod
    def fail_with(error: BaseException) -> None:
        with session.spark_on_demand(LOAD) as spark:
            assert spark.context
            raise error

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SparkError("given up"), ConnectionError()])
    def test_one_that_was_given_up_ends_at_once(self, error: BaseException, said: list[str]) -> None:
        """The job removes what tasks have staged, and they must not go on."""
        with session.shared_spark(LOAD):
            with pytest.raises(type(error)):
                self.fail_with(error)
            assert said == ["start load", "end"]
            with pytest.raises(RuntimeError, match="has ended"):
                self.fail_with(error)

    def test_a_refusal_does_not_end_it(self, said: list[str]) -> None:
        with session.shared_spark(LOAD):
            with pytest.raises(MissingInput):
                self.fail_with(MissingInput("no log"))
            assert said == ["start load"]

    def test_alone_it_ends_with_its_own_block(self, said: list[str]) -> None:
        for _ in range(2):
            with session.spark_on_demand(LOAD) as spark:
                assert spark.context is spark.context
        assert said == ["start load", "end"] * 2

    def test_one_that_fails_is_not_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tries: list[str] = []

        def start(spark: session.SparkOnDemand) -> Any:
            tries.append(spark._execution.job)
            raise DependencyMissing("no cluster")

        monkeypatch.setattr(session.SparkOnDemand, "_start", start)
        with session.shared_spark(LOAD):
            for _ in range(2):
                with pytest.raises(DependencyMissing, match="no cluster"), session.spark_on_demand(LOAD) as spark:
                    spark.context  # noqa: B018
        assert tries == ["load"]

    def test_one_that_has_ended_does_not_start(self) -> None:
        with session.shared_spark(LOAD) as shared:
            assert session._shared is shared
        assert session._shared is None
        with pytest.raises(RuntimeError, match=r"^Spark has ended$"):
            shared.context  # noqa: B018


TWO_SESSIONS = """
import sys
sys.path.insert(0, {root!r})
from jobs.spark import session
from jobs.spark.execution import Execution

for number in range(2):
    with session.spark_session(Execution("load")) as spark:
        strings = spark.sparkContext.parallelize(range(4), 2).map(str).collect()
        print(spark.range(number + 3).count(), strings, flush=True)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_two_sessions_one_after_the_other() -> None:
    """PySpark keeps the last session in a class: that of a JVM that has gone would be taken again."""
    program = TWO_SESSIONS.format(root=str(Path(__file__).resolve().parents[3]))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    strings = "['0', '1', '2', '3']"
    assert (done.returncode, done.stdout) == (0, f"3 {strings}\n4 {strings}\n"), done.stderr
