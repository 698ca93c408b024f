"""Where each second of a whole ``rebuild`` goes, on this machine.

    python tests/benchmarks/where_the_time_goes.py --gb 10 --directory /var/tmp/bench

The log is that of ``against_broker.py``, its page cache warm. ``./spark-submit.sh rebuild`` runs as it is, with a probe
(``probe/sitecustomize.py``) that notes what the driver does and times the parts of every task. Three tables add up:

=============  ========================================================================================================
whole process  seconds on the clock, one thing after the other
scan, build    core seconds: what tasks did, and what the cores had to wait for. Together as many as the stage took,
               times the cores
=============  ========================================================================================================

Page faults have no seconds of their own: they happen inside of the parts. Their number comes from the probe, what one
costs is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).resolve().parent / "probe"
TRACE = "WHERE_THE_TIME_GOES"
sys.path[:0] = [str(ROOT / "tests")]

from benchmarks.against_broker import prepared_log  # noqa: E402

SCAN, BUILD = "scan the commit log", "write consume queues and index files"
START, BETWEEN, WAITS, BACK, IDLE = WITHOUT_TASK = (
    "until the first task of a core",
    "between tasks (transport, scheduling)",
    "a core waits for the last task",
    "from the last task to the driver",
    "a core without a task",
)
LEAST_SHARE = 0.004
"""Parts below this share of a table stand together in its last row."""


@dataclass(frozen=True)
class Profile:
    """Seconds by what they went to, one mapping a table; ``cores`` many tasks ran side by side."""

    report: dict[str, Any]
    cores: int
    process: dict[str, float]
    stages: dict[str, dict[str, float]]
    costs: dict[str, dict[str, Any]]
    """Of the tasks of a stage together: how many, their seconds, the processor's, page faults; of memory the most."""
    page_fault: float
    """Seconds that one page fault takes."""

    def lines(self) -> list[str]:
        """Returns the tables as text."""
        head = f"{self.report['bytes'] / 1e9:.1f} GB, {self.report['messages']:,} messages, "
        found = [head + f"{self.report['index_entries']:,} index entries"]
        found += _table("whole process, seconds on the clock", self.process, sort=False)
        for stage, parts in self.stages.items():
            found += _table(f"{stage}, seconds of {self.cores} cores", parts, sort=True)
            cost = self.costs[stage]
            found.append(
                f"  {cost['tasks']} tasks, {cost['seconds']:.2f} s: user {cost['user']:.2f} s, "
                f"system {cost['system']:.2f} s, the rest they waited (for a disk, or for a busy processor); "
                f"{cost['faults']:,} page faults of {self.page_fault * 1e6:.2f} us are "
                f"{cost['faults'] * self.page_fault:.2f} s, at most {cost['peak'] / 1e6:.0f} MB a process"
            )
        return found


def _table(title: str, parts: dict[str, float], *, sort: bool) -> list[str]:
    total = sum(parts.values())
    rows = sorted(parts.items(), key=lambda row: -row[1]) if sort else list(parts.items())
    shown = [row for row in rows if row[1] >= LEAST_SHARE * total or not sort]
    rest = total - sum(seconds for _, seconds in shown)
    if rest > 0:
        shown.append(("all else", rest))
    lines = [f"  {name:42} {seconds:8.2f} {seconds / total:7.1%}" for name, seconds in shown]
    return ["", title, *lines, f"  {'all':42} {total:8.2f}"]


def profile(store: Path, scratch: Path, kernels: str = "numba", *, job: Sequence[str] = ()) -> Profile:
    """Runs one rebuild of ``store`` into ``scratch``, with more options for the job, and says where its time went."""
    traces, output = scratch / "traces", scratch / "built"
    traces.mkdir(parents=True)
    environment = {
        **os.environ,
        TRACE: str(traces),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PROBE), os.environ.get("PYTHONPATH")))),
        "ROCKETMQ_STORE_SPARK_KERNELS": kernels,
    }
    command = [str(ROOT / "spark-submit.sh"), "rebuild", "--store", str(store), "--output", str(output), *job]
    begun = time.monotonic()
    ran = subprocess.run([*command, "--quiet", "--json"], env=environment, check=True, stdout=subprocess.PIPE)
    ended = time.monotonic()
    notes = [json.loads(line) for path in traces.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(output)
    shutil.rmtree(traces)
    report = json.loads(ran.stdout)
    spans = {note["span"]: (note["begun"], note["ended"]) for note in notes if "span" in note}
    tasks = [note for note in notes if "task" in note]
    of_stages = [[note["pid"] for note in tasks if _within(note, *spans[stage])] for stage in (SCAN, BUILD)]
    cores = max(len(set(pids)) for pids in of_stages)
    return Profile(
        report=report,
        cores=cores,
        process=_process(begun, ended, spans),
        stages={stage: _stage(*spans[stage], tasks, cores) for stage in (SCAN, BUILD)},
        costs={stage: _costs(*spans[stage], tasks) for stage in (SCAN, BUILD)},
        page_fault=_page_fault(),
    )


def _costs(begun: float, ended: float, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [task for task in tasks if _within(task, begun, ended)]
    return {
        "tasks": len(mine),
        "seconds": sum(task["ended"] - task["begun"] for task in mine),
        **{name: sum(task[name] for task in mine) for name in ("user", "system", "faults")},
        "peak": max(task["peak"] for task in mine),
    }


def _process(begun: float, ended: float, spans: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Returns the seconds of a whole process, from its first to its last."""
    ends = [
        ("start of Python", spans["Python is there"][0]),
        ("imports", spans["run"][0]),
        ("open the store, import pyspark", spans["start of the JVM"][0]),
        ("start of the JVM", spans["start of the JVM"][1]),
        ("SparkContext", spans["SparkContext is there"][1]),
        ("driver: splits", spans[SCAN][0]),
        (SCAN, spans[SCAN][1]),
        ("driver: chain, losses, plans", spans[BUILD][0]),
        (BUILD, spans[BUILD][1]),
        ("driver: counts, manifest, rename, report", spans["run"][1]),
        ("end of the JVM", spans["end of the JVM"][1]),
        ("end of Python", ended),
    ]
    edges = [begun, *(edge for _, edge in ends)]
    return {name: edge - before for (name, edge), before in zip(ends, edges[:-1], strict=True)}


def _stage(begun: float, ended: float, tasks: list[dict[str, Any]], cores: int) -> dict[str, float]:
    """Returns the core seconds of one stage: parts of its tasks, and the time without a task."""
    mine = [task for task in tasks if _within(task, begun, ended)]
    found: dict[str, float] = defaultdict(float)
    by_core: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for task in mine:
        by_core[task["pid"]].append(task)
        for name, (seconds, _) in task["parts"].items():
            found[name] += seconds
        found["other Python of the tasks"] += task["ended"] - task["begun"] - sum(s for s, _ in task["parts"].values())
    last = max(task["ended"] for task in mine)
    for own in by_core.values():
        busy = sum(task["ended"] - task["begun"] for task in own)
        first, end = min(task["begun"] for task in own), max(task["ended"] for task in own)
        found[START] += first - begun
        found[BETWEEN] += end - first - busy
        found[WAITS] += last - end
    found[BACK] += cores * (ended - last)
    found[IDLE] += (cores - len(by_core)) * (last - begun)
    return dict(found)


def _within(task: dict[str, Any], begun: float, ended: float) -> bool:
    return bool(begun <= task["begun"] and task["ended"] <= ended)


def _page_fault(size: int = 256 << 20) -> float:
    """Returns the seconds that a page of fresh memory takes, as a process gets it that fills a buffer."""
    best = float("inf")
    for _ in range(3):
        with mmap.mmap(-1, size) as fresh:
            begun = time.perf_counter()
            for at in range(0, size, mmap.PAGESIZE):
                fresh[at] = 1
            touched = time.perf_counter()
            for at in range(0, size, mmap.PAGESIZE):
                fresh[at] = 1
            best = min(best, 2 * touched - begun - time.perf_counter())
    return best / (size // mmap.PAGESIZE)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=3.0, help="size of the log in 10**9 bytes (default %(default)s)")
    parser.add_argument("--message-bytes", type=int, default=1000)
    parser.add_argument("--kernels", default="numba", help="numba or numpy (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of so many, the fastest is shown")
    parser.add_argument("--directory", type=Path, help="where the log is kept; default: a temporary directory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="where-the-time-goes-") as scratch:
        directory = (options.directory or Path(scratch)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        store = prepared_log(directory, int(options.gb * 1e9), options.message_bytes)
        with tempfile.TemporaryDirectory(prefix="rebuilt-", dir=directory) as work:
            runs = [profile(store, Path(work), options.kernels) for _ in range(options.rounds)]
    best = min(runs, key=lambda run: sum(run.process.values()))
    print(json.dumps(vars(best)) if options.json else "\n".join(best.lines()))


if __name__ == "__main__":
    main(sys.argv[1:])
