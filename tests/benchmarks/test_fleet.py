"""``verify`` of 20 brokers in one start, beside 20 starts one after the other.

    python -m pytest tests/benchmarks/test_fleet.py -m benchmark -s

The brokers' files are hard links of one store with 200 MB of log, 320 queues and an index, so that all are in the page
cache. Both measures are of the whole command, its start included: the clock, and processor time with that of its
processes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.rebuilding import rebuild_here
from support.uniform_log import uniform_log

pytestmark = [pytest.mark.benchmark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
BROKERS = 20
SIZE = 200 << 20
SETTINGS = {"mappedFileSizeCommitLog": SIZE, "maxHashSlotNum": 500_000, "maxIndexNum": 2_000_000}
MOST = 0.5
"""What one start may cost of twenty, by processor time: it was 0.31."""


def made(root: Path) -> int:
    """Makes the stores ``b00/store`` and so on; returns how many messages each has."""
    log = uniform_log(SIZE)
    first = root / "b00" / "store"
    (first / "commitlog").mkdir(parents=True)
    (first / "commitlog" / f"{0:020d}").write_bytes(log.data.ljust(SIZE, b"\0"))
    built = rebuild_here(first, root.parent / "work", SETTINGS)
    for part in Path(built.directory).iterdir():
        if part.name != "manifest.json":
            part.rename(first / part.name)
    for number in range(1, BROKERS):
        shutil.copytree(first, root / f"b{number:02d}" / "store", copy_function=os.link)
    return log.messages


def measured(*stores: str) -> tuple[float, float, dict[str, object]]:
    """Returns seconds by the clock, processor seconds, and the report of one ``verify``."""
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    line = [sys.executable, "-m", "jobs", "verify", *stores, *settings, "--quiet", "--json"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    assert ran.returncode == 0, ran.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ended - begun, spent, json.loads(ran.stdout)


def test_one_start_costs_less_than_many(tmp_path: Path) -> None:
    root = tmp_path / "snap"
    messages = made(root)
    stores = [str(root / f"b{number:02d}" / "store") for number in range(BROKERS)]
    (tmp_path / "stores.csv").write_text("\n".join(stores))
    measured("--store", stores[0])
    each = [measured("--store", store) for store in stores]
    assert {report["messages"] for _, _, report in each} == {messages}
    clock, spent, report = measured("--stores", str(tmp_path / "stores.csv"))
    brokers = report["brokers"]
    assert isinstance(brokers, list)
    assert [one["messages"] for one in brokers] == [messages] * BROKERS
    clocks, spents = sum(one[0] for one in each), sum(one[1] for one in each)
    print(f"\nclock {clock:.1f} of {clocks:.1f} s: {clock / clocks:.2f}; ", end="")
    print(f"processor {spent:.1f} of {spents:.1f} s: {spent / spents:.2f}")
    assert spent < MOST * spents
