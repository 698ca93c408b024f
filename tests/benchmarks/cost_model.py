"""What a ``rebuild`` costs, as a model: fitted on runs of several logs on one core and two, tried on a log unseen.

    python tests/benchmarks/cost_model.py --directory /var/tmp/bench

    seconds = fixed + (GB x per GB + million messages x per million + 1,000 queue files x per 1,000) / cores

The logs are those of ``against_broker.py``, their page cache warm, three index entries a message, so that index files
are in what a message costs. Cores are those that ``taskset`` leaves. Coefficients are fitted by least squares of
relative errors, none below 0; the report of each run must have every message and entry.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from benchmarks.against_broker import TOPICS, log_directory, prepared_log  # noqa: E402

FITTED = ((1, 1000, 40), (3, 1000, 40), (10, 1000, 40), (1, 220, 40), (3, 220, 40), (1, 1000, 300))
"""GB, bytes of a message, topics of eight queues."""
UNSEEN = (6, 1000, 125)
CORES = (1, 2)
NAMES = ("fixed", "per GB", "per million messages", "per 1,000 queue files")


@dataclass(frozen=True)
class Run:
    """One ``rebuild``: what it had to do, and the best of its times."""

    gigabytes: float
    messages: int
    queue_files: int
    cores: int
    seconds: float

    def terms(self) -> list[float]:
        """Returns what the coefficients are multiplied by."""
        work = (self.gigabytes, self.messages / 1e6, self.queue_files / 1e3)
        return [1.0, *(amount / self.cores for amount in work)]


def measure(store: Path, cores: int, rounds: int) -> Run:
    """Returns the fastest of some runs."""
    output = store.with_name("built")
    command = [str(ROOT / "spark-submit.sh"), "rebuild", "--store", str(store), "--output", str(output), "--quiet"]
    pinned = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))]
    times = []
    for _ in range(rounds):
        begun = time.monotonic()
        ran = subprocess.run([*pinned, *command, "--json"], check=True, stdout=subprocess.PIPE)
        times.append(time.monotonic() - begun)
        shutil.rmtree(output)
        report = json.loads(ran.stdout)
        assert report["status"] == "ok"
        assert report["consume_queue_units"] == report["messages"] > 0
        assert report["index_entries"] == 3 * report["messages"]
    return Run(report["bytes"] / 1e9, report["messages"], report["consume_queue_files"], cores, min(times))


def fit(runs: Sequence[Run]) -> list[float]:
    """Returns the coefficients, none below 0, for which relative errors are smallest."""
    kept = list(range(len(NAMES)))
    while True:
        terms = np.array([[run.terms()[at] / run.seconds for at in kept] for run in runs])
        found = np.linalg.lstsq(terms, np.ones(len(runs)), rcond=None)[0]
        if found.min() >= 0:
            return [float(found[kept.index(at)]) if at in kept else 0.0 for at in range(len(NAMES))]
        del kept[int(found.argmin())]


def predict(coefficients: Sequence[float], run: Run) -> float:
    """Returns the seconds that the model expects."""
    return float(np.dot(coefficients, run.terms()))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, required=True, help="where logs are kept")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    options = parser.parse_args(arguments)
    runs: list[Run] = []
    for gb, message_bytes, topics in (*FITTED, UNSEEN):
        size = int(gb * 1e9 * options.scale)
        kept = log_directory(options.directory, size, message_bytes, topics).exists()
        store = prepared_log(options.directory, size, message_bytes, topics=topics)
        runs += [measure(store, cores, options.rounds) for cores in CORES]
        if not kept:
            shutil.rmtree(store)
    coefficients = fit(runs[: -len(CORES)])
    print(", ".join(f"{name} {value:.3f} s" for name, value in zip(NAMES, coefficients, strict=True)))
    for at, run in enumerate(runs):
        expected = predict(coefficients, run)
        print(
            f"{run.gigabytes:5.1f} GB, {run.messages:11,} messages, {run.queue_files:5} files, {run.cores} cores: "
            f"{run.seconds:6.2f} s, model {expected:6.2f} ({expected / run.seconds - 1:+.0%})"
            + ("" if at < len(runs) - len(CORES) else "  not fitted")
        )
    large = Run(1000, 1_000_000_000, 8 * TOPICS * 170, 64, 0)
    print(f"1 TB of 1 KB messages on 64 cores: {predict(coefficients, large):.0f} s, if storage delivers as fast")


if __name__ == "__main__":
    main(sys.argv[1:])
