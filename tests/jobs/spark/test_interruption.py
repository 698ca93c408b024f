"""A job that a signal ends leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def processes_of(session: int) -> dict[int, str]:
    """The command lines of a session's processes, by their ids."""
    listed = subprocess.run(["ps", "-eo", "sid,pid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return {int(row[1]): row[3] for row in rows if row[0] == str(session) and not row[2].startswith("Z")}


ROOT = Path(__file__).resolve().parents[3]
JAVA = shutil.which("java")


SLOW_JOB = """
import sys
sys.path.insert(0, {root!r})
from jobs.contract import options as job_options
from jobs.cli import command_line
from jobs.contract.report import Report
from jobs.spark import session

class slow_job:
    @staticmethod
    def run(options, reporter):
        reporter.note("begun")
        with session.shared_spark() as spark:
            def work(items):
                import os, time
                if 0 in items:
                    os.write(2, b"started\\n")
                time.sleep(600)
                return items
            spark.context.parallelize(range(4), 4).mapPartitions(work).collect()
        return Report("slow")

sys.modules["slow_job"] = slow_job
job = command_line.Job("slow_job", "sleeps", job_options.DemoOptions)
sys.exit(command_line.main(["demo"], {{"demo": job}}))
"""


@pytest.mark.spark
@pytest.mark.skipif(JAVA is None, reason="no java")
@pytest.mark.parametrize(
    ("number", "whole_group", "wait_for"),
    [
        (signal.SIGINT, True, "begun"),  # Ctrl-C while the JVM starts
        pytest.param(signal.SIGINT, True, "started", marks=pytest.mark.slow),  # Ctrl-C while tasks run
        (signal.SIGTERM, False, "started"),  # a scheduler ends it
        pytest.param(signal.SIGKILL, False, "started", marks=pytest.mark.slow),  # even then nothing stays
    ],
)
def test_a_signal_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals, whole_group: bool, wait_for: str
) -> None:
    process = started(tmp_path, wait_for)
    await_jvm(process)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), complaint
    if number != signal.SIGKILL:
        others = ("started", "WARNING: Using incubator modules: jdk.incubator.vector")  # the second is Java's
        said_last = [line for line in complaint.splitlines() if not line.endswith(others)]
        assert said_last == ["interrupted; nothing was left behind"]
        assert said == ""
    assert_all_end(process.pid)
    assert number == signal.SIGKILL or list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.skipif(JAVA is None, reason="no java")
def test_a_jvm_that_is_killed_is_named_and_leaves_no_process_and_no_file_of_ours(tmp_path: Path) -> None:
    """As the kernel does where memory is short: while tasks run. What the JVM would have removed at its end stays."""
    process = started(tmp_path, "started")
    os.kill(await_jvm(process), signal.SIGKILL)
    said, complaint = process.communicate(timeout=300)
    assert (process.returncode, said) == (74, ""), complaint
    error, advice = complaint.splitlines()
    assert error.startswith("error: Spark failed: ")
    assert "its JVM has ended" in advice or "JVM has ended" in advice
    assert_all_end(process.pid)
    assert list(tmp_path.glob("rocketmq-store-spark-*")) == []


def started(place: Path, wait_for: str) -> subprocess.Popen[str]:
    """The job, in a session of its own with its temporary files in a place, when it has said that it is so far."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_JOB.format(root=str(ROOT))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip().endswith(wait_for):
            break
    return process


def await_jvm(process: subprocess.Popen[str]) -> int:
    while True:
        for pid, line in processes_of(process.pid).items():
            if line.split()[0].endswith("java"):
                return pid
        assert process.poll() is None


def assert_all_end(session: int) -> None:
    deadline = time.monotonic() + 120
    while left := processes_of(session):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
