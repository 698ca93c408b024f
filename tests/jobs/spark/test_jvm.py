"""The JVM's output, and what is left after its end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from jobs.spark import jvm, launch


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
        assert b"".join(jvm.without_noise(said.splitlines(keepends=True))).decode().split("\n") == [
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
        jvm.forward(io.BytesIO(said), threading.Event())
        assert capsys.readouterr().err == "lost s3://***@bucket/x?token=*** \\x1b[2J\n\ufffd two\n"


class TestEarlyDaemon:
    def test_its_directory_is_removed_when_spark_never_took_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = tempfile.mkdtemp(dir=tmp_path)
        monkeypatch.setenv(jvm.EARLY_DAEMON, str(Path(directory, "early")))
        killed = subprocess.Popen([sys.executable, "-c", "raise SystemExit"], stdin=subprocess.PIPE)
        jvm.end_early_daemon(killed)
        assert list(tmp_path.iterdir()) == []
        assert killed.returncode == 0
        assert jvm.EARLY_DAEMON not in os.environ
