"""What Spark says, and what becomes of the errors of its tasks."""

from __future__ import annotations

import io
import threading

import pytest

from jobs.reporting import failure_report
from jobs.spark import launch, session
from storeformat import errors


class TestWhatSparkSays:
    def test_traces_and_known_noise_are_left_out_and_nothing_else(self) -> None:
        said = b"""WARNING: Using incubator modules: jdk.incubator.vector
one
Traceback (most recent call last):
  File "daemon.py", line 262, in manager
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
two
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
Caused by: java.io.IOException
\t... 3 more
three
Traceback (most recent call last):
Traceback (most recent call last):
  x
KeyError: 1
  File "daemon.py", line 262, in manager
           ^^^^^^^^^^^^^^^
BrokenPipeError: [Errno 32] Broken pipe
four
"""
        assert b"".join(session.without_noise(said.splitlines(keepends=True))).decode().split("\n") == [
            "one",
            "two",
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
            "three",
            "four",
            "",
        ]

    @pytest.mark.parametrize("debug", ["0", "1"])
    def test_no_line_of_it_holds_a_secret_or_what_a_terminal_obeys(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str
    ) -> None:
        monkeypatch.setenv(launch.DEBUG, debug)
        said = b"lost s3://KEY:SECRET@bucket/x?token=SECRET \x1b[2J\r\n\xff two\n"
        session.forward(io.BytesIO(said), threading.Event())
        assert capsys.readouterr().err == "lost s3://***@bucket/x?token=*** \\x1b[2J\n\ufffd two\n"


class TestErrorsOfTasks:
    def test_ours_keep_their_class(self) -> None:
        text = 'x\n  File "a.py", line 1\nstoreformat.errors.DamagedLog: bad size (/log, offset 7)\n\n\tat org.apache'
        cause = session.raised_by_task(session.RAISED.findall(text))
        assert type(cause) is errors.DamagedLog
        assert failure_report("rebuild", cause).error_lines == ["error: bad size (/log, offset 7)"]

    def test_a_full_disk_is_a_full_disk(self) -> None:
        text = "OSError: [Errno 28] No space left on device: '/full/x'\n"
        cause = session.raised_by_task(session.RAISED.findall(text))
        assert isinstance(cause, OSError)
        assert failure_report("rebuild", cause).exit_code == 74
        assert failure_report("rebuild", cause)["path"] == "/full/x"

    def test_an_executor_without_our_dependencies_is_named(self) -> None:
        cause = session.raised_by_task([("ModuleNotFoundError", "No module named 'numpy'")])
        assert isinstance(cause, errors.DependencyMissing)

    def test_others_are_nobodys(self) -> None:
        assert session.raised_by_task([("ValueError", "bad"), ("SparkException", "Job aborted")]) is None
