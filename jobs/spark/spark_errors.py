"""What Spark raises, as exceptions of this program: what a task raised where that can be told, else SparkError."""

from __future__ import annotations

import builtins
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from storeformat import errors

TRACE = "Traceback (most recent call last)"
RAISED = re.compile(r"^(?:: )?(?:\w+\.)*(\w+): (.*)$", re.MULTILINE)
WORKER_SAID = re.compile(r"^Error from python worker:\n\s*(.+)$", re.MULTILINE)
OS_ERROR = re.compile(r"^\[Errno (\d+)\] (.*?)(?:: '(.*)')?$")


class SparkError(Exception):
    """Spark could not do what it was told; the message is Spark's own."""


_LIMITS = {
    "spark.driver.maxResultSize": "--conf spark.driver.maxResultSize=0 --driver-memory 8g, or larger --split-size",
    "java.lang.OutOfMemoryError": "--driver-memory 8g gives the JVM more; on a cluster --executor-memory, too",
}
"""What Spark says where memory does not do, and what helps."""

_SECONDS_TO_DIE = 3
"""A process that was killed closes its connections first."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what Spark raises within it into what a task raised, WriteFailed where Spark itself ended, or SparkError.

    Spark's own exceptions ask the JVM for their text, and the JVM is gone by the time somebody prints them.
    """
    try:
        yield
    except Exception as error:
        if "pyspark" not in sys.modules:  # Spark has not started, and to import it takes 0.3 s
            raise
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        if not isinstance(error, (Py4JError, PySparkException, ConnectionError, EOFError)):
            raise
        if (interruption := interruption_that_caused(error)) is not None:
            raise interruption from None
        text = str(error)
        if not isinstance(error, (Py4JJavaError, PySparkException)) and (code := exit_code_of_jvm()) is not None:
            advice = "short of memory? --driver-memory gives it more"
            raise errors.WriteFailed(f"Spark's JVM has ended ({code})", advice=advice) from SparkError(text)
        if isinstance(error, (ConnectionError, EOFError)):
            raise
        raised = RAISED.findall(text, max(text.rfind(TRACE), 0))
        by_task = TRACE in text
        cause = raised_by_task(raised) if by_task else None
        reason = ": ".join(raised[-1 if by_task else 0]) if raised else text.strip().split("\n", 1)[0]
        if cause is None and "SparkContext was shut down" in reason:
            advice = "the cluster ended it: the logs of YARN or Kubernetes say why"
            raise errors.WriteFailed("Spark was ended while a job ran", advice=advice) from SparkError(text)
        if cause is None and (limit := next((limit for limit in _LIMITS if limit in text), None)):
            said_why = f"Spark has not enough memory: {reason}"
            raise errors.WriteFailed(said_why, advice=_LIMITS[limit]) from SparkError(text)
        if cause is None and (said := WORKER_SAID.search(text)):
            raise without_python(said[1]) from SparkError(text)
        raise cause or SparkError(reason) from SparkError(text)


def exit_code_of_jvm() -> str | None:
    """Returns how the JVM that this process started has ended: its exit code or signal; None where it runs."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(_SECONDS_TO_DIE)
    except subprocess.TimeoutExpired:
        return None
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def interruption_that_caused(error: BaseException) -> KeyboardInterrupt | None:
    """Returns the Ctrl-C or signal in whose wake an error came: calls that clean up after it fail, too."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause


def raised_by_task(raised: list[tuple[str, str]]) -> Exception | None:
    """Returns the exception of ours, or the OSError, that ended a task, or None.

    Spark hands the driver the task's Python traceback as text, whose last ``module.Class: message`` line names it. Its
    ``advice`` does not survive the way.
    """
    for name, message in reversed(raised):
        if name == "ModuleNotFoundError":
            return without_python(message)
        kind = getattr(errors, name, None) or getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.StoreFormatError):
            return kind(message)
        if isinstance(kind, type) and issubclass(kind, OSError) and (match := OS_ERROR.match(message)):
            return OSError(int(match[1]), match[2], match[3])
    return None


def without_python(reason: str) -> errors.DependencyMissing:
    """Returns that executors have no Python for our tasks, and why."""
    return errors.DependencyMissing(
        f"the executors' Python cannot run this program: {reason}",
        advice="name one with numpy and pyarrow in PYSPARK_PYTHON, or ship one: --archives env.tar.gz#env",
    )
