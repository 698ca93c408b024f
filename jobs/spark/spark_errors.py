"""What Spark raises, as exceptions of this program: what a task raised where that can be told, else SparkError."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.spark.jvm import ending
from storeformat.errors import DependencyMissing, StoreFormatError, WriteFailed

_RAISED = re.compile(r"^(?:: )?(?:\w+\.)*(\w+: .*)$", re.MULTILINE)
_TRACE = "Traceback (most recent call last)"

_MORE_MEMORY = "--driver-memory 8g gives the JVM more; on a cluster --executor-memory, too"
_A_PYTHON = "name one with numpy and pyarrow in PYSPARK_PYTHON, or ship one: --archives env.tar.gz#env"
_SAID: dict[str, tuple[type[StoreFormatError], str, str]] = {
    "methods on a stopped SparkContext": (
        DependencyMissing, "Spark stopped before it had a job", "does the master answer? --debug shows what Spark said",
    ),
    "SparkContext was shut down": (
        WriteFailed, "Spark was ended while a job ran", "on a cluster the logs of YARN or Kubernetes say why",
    ),
    "spark.driver.maxResultSize": (
        WriteFailed, "Spark has not enough memory",
        "--conf spark.driver.maxResultSize=0 --driver-memory 8g, or larger --split-size",
    ),
    "java.lang.OutOfMemoryError": (WriteFailed, "Spark has not enough memory", _MORE_MEMORY),
    "Error from python worker:\n": (DependencyMissing, "the executors' Python cannot run this program", _A_PYTHON),
    "UnsatisfiedLinkError: ": (
        DependencyMissing, "Java cannot run what Spark unpacks",
        "TMPDIR=DIRECTORY names one from which programs may run, on a file system without noexec",
    ),
    "No FileSystem for scheme": (
        DependencyMissing, "Delta's own reader has no connector for this storage",
        "--packages org.apache.hadoop:hadoop-aws:3.5.0 brings that of S3",
    ),
    "ModuleNotFoundError: ": (DependencyMissing, "the executors' Python cannot run this program", _A_PYTHON),
}  # fmt: skip
"""What Spark says where the fault is neither ours nor Spark's, and what helps."""

_SECONDS_TO_DIE = 3
"""A process that was killed closes its connections first."""


class SparkError(Exception):
    """Spark could not do what it was told; the message is Spark's own."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what Spark raises within it into WriteFailed where Spark itself ended, DependencyMissing where executors
    lack something, or SparkError. Failures of tasks do not come this way (``udfs.failures``).

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
            raise WriteFailed(f"Spark's JVM has ended ({code})", advice=advice) from SparkError(text)
        if isinstance(error, (ConnectionError, EOFError)):
            raise
        for sign, (kind, what, advice) in _SAID.items():
            if sign in text:
                raise kind(f"{what}: {reason_in(text, sign)}", advice=advice) from SparkError(text)
        raise SparkError(reason_in(text)) from SparkError(text)


def reason_in(text: str, sign: str = "") -> str:
    """Returns why: what follows a ``sign`` that ends with white space, or a task's exception, or Spark's first one."""
    if sign[-1:].isspace():
        return text.partition(sign)[2].strip().partition("\n")[0]
    raised = _RAISED.findall(text, max(text.rfind(_TRACE), 0))
    return raised[-1 if _TRACE in text else 0] if raised else text.strip().partition("\n")[0]


def exit_code_of_jvm() -> str | None:
    """Returns how the JVM that this process started has ended: its exit code or signal; None where it runs."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return ending(process.wait(_SECONDS_TO_DIE))
    except subprocess.TimeoutExpired:
        return None


def interruption_that_caused(error: BaseException) -> KeyboardInterrupt | None:
    """Returns the Ctrl-C or signal in whose wake an error came: calls that clean up after it fail, too."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause
