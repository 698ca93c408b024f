"""A fleet whose jobs wait until they are interrupted, and say so: python waiting_fleet.py SNAPSHOTS"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from jobs.cli import fleet  # noqa: E402
from jobs.contract.options import VerifyOptions  # noqa: E402
from jobs.contract.report import Interrupted, Report  # noqa: E402
from jobs.contract.reporter import Reporter  # noqa: E402
from jobs.spark import launch  # noqa: E402
from jobs.spark.signals import orderly_signals  # noqa: E402


def job(options: VerifyOptions, reporter: Reporter) -> Report:
    try:
        os.write(1, f"begun {options.store}\n".encode())
        time.sleep(60)
    finally:
        os.write(1, f"undone {options.store}\n".encode())
    return reporter.report("verify")


if __name__ == "__main__":
    os.environ[launch.OPTIONAL] = "1"
    try:
        with orderly_signals():
            fleet.run("verify", job, VerifyOptions(store=f"{sys.argv[1]}/{{broker}}"), Reporter(quiet=True))
    except Interrupted as interrupted:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + interrupted.number)
