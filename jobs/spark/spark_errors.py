"""Spark's failures as exceptions of this program."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from storeformat.errors import DependencyMissing, StoreFormatError, WriteFailed

_RAISED = re.compile(r"^(?:: )?(?:\w+\.)*(\w+: .*)$", re.MULTILINE)
_TRACE = "Traceback (most recent call last)"
_A_PYTHON = "name one with numpy and pyarrow in PYSPARK_PYTHON, or ship one: --archives env.tar.gz#env"

_SAID: dict[str, tuple[type[StoreFormatError], str]] = {
    "JAVA_GATEWAY_EXITED": (DependencyMissing, "what its JVM said is above"),
    "methods on a stopped SparkContext": (DependencyMissing, "does the master answer? --debug shows what Spark said"),
    "SparkContext was shut down": (WriteFailed, "on a cluster the logs of YARN or Kubernetes say why"),
    "spark.driver.maxResultSize": (WriteFailed, "--conf spark.driver.maxResultSize=0 and more --driver-memory"),
    "java.lang.OutOfMemoryError": (WriteFailed, "--driver-memory 8g; on a cluster also --executor-memory"),
    "Error from python worker:\n": (DependencyMissing, _A_PYTHON),
    "ModuleNotFoundError: ": (DependencyMissing, _A_PYTHON),
    "UnsatisfiedLinkError: ": (DependencyMissing, "TMPDIR=DIRECTORY names one on a file system without noexec"),
    "No FileSystem for scheme": (DependencyMissing, "--packages org.apache.hadoop:hadoop-aws:3.5.0 has S3"),
    "invalid null input: name": (DependencyMissing, "Spark needs a user with a name: a line in /etc/passwd"),
    "Connection refused": (WriteFailed, "Spark's JVM has ended; short of memory? --driver-memory gives it more"),
}
"""What Spark says of failures that are neither ours nor its own, with exit code and advice."""


class SparkError(Exception):
    """A failure of Spark without an entry in ``_SAID``, in Spark's own words."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what Spark raises into an error of ours, or SparkError, whose text needs no JVM; not failures of tasks."""
    try:
        yield
    except Exception as error:
        if "pyspark" not in sys.modules:  # Spark has not started, and to import it takes 0.3 s
            raise
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not isinstance(error, (Py4JError, PySparkException, ConnectionError, EOFError)):
            raise
        if isinstance(error.__context__, KeyboardInterrupt):  # calls that clean up after it fail, too
            raise error.__context__ from None
        text = str(error)
        if isinstance(error, (ConnectionError, EOFError)) or "while sending" in text or "network" in text:
            text = f"Connection refused: {text}"
        for sign, (kind, advice) in _SAID.items():
            if sign in text:
                raise kind(f"Spark failed: {reason_in(text, sign)}", advice=advice) from SparkError(text)
        raise SparkError(reason_in(text)) from SparkError(text)


def reason_in(text: str, sign: str = "") -> str:
    """What follows a ``sign`` that ends with white space, else a task's exception, else Spark's first one."""
    if sign[-1:].isspace():
        return text.partition(sign)[2].strip().partition("\n")[0]
    raised = _RAISED.findall(text, max(text.rfind(_TRACE), 0))
    return raised[-1 if _TRACE in text else 0] if raised else text.strip().partition("\n")[0]
