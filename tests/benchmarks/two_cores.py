"""How much faster two cores are than one: for the machine itself, and for each layer of a scan above it.

    python tests/benchmarks/two_cores.py --gb 3 --directory /var/tmp/bench

Each row is the same work in one process and in two at once, in turns. 2.00 means that nothing is shared; what the rows
at the top lose is the machine's (cores that share a clock, a cache or a memory bus), and no layer above gets it back.
``times`` is by the clock, ``processor`` by the processor time that the work took beside other work: that one holds on a
busy machine, too.
The last row is the command itself: the scan of ``rebuild --dry-run``, which writes no files, on ``local[1]`` and
``local[2]``, its first job's start included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.against_broker import prepared_log  # noqa: E402

from jobs.spark.spark_options import CONF, read_properties  # noqa: E402
from storeformat.kernels import active  # noqa: E402
from storeformat.log.block_window import BLOCK_SIZE, BlockWindow  # noqa: E402
from storeformat.log.segments import Segment, Split, plan_splits  # noqa: E402
from storeformat.record.decode import DecodeRules, decode  # noqa: E402
from storeformat.record.dispatch import DispatchRules, index_entries, queue_units  # noqa: E402
from storeformat.storage.files import RangeReader  # noqa: E402
from udfs.log.scan import ScanTask, scan_split  # noqa: E402

MEBIBYTE = 1 << 20
SPLIT_SIZE = 256 * MEBIBYTE
AGAIN = "TWO_CORES_AGAIN"


@dataclass(frozen=True)
class Ratio:
    """Seconds of one process alone and of two at once (the slower of the two), each the best of the rounds: another
    program can only make us slower. With the median cost of a process: user and system seconds, page faults.
    """

    name: str
    alone: float
    together: float
    costs: tuple[tuple[float, float, float], tuple[float, float, float]] | None = None

    @property
    def ratio(self) -> float:
        """How many times as much two do in the time of one."""
        return 2 * self.alone / self.together

    def line(self) -> str:
        """Returns a row of the table."""
        row = f"{self.name:32} {self.alone:8.2f} s {self.together:8.2f} s {self.ratio:8.2f}"
        if self.costs is None:
            return row
        one, two = self.costs
        processor = 2 * (one[0] + one[1]) / max(two[0] + two[1], 1e-6)
        spent = f"user {one[0]:5.2f} -> {two[0]:5.2f} s, system {one[1]:5.2f} -> {two[1]:5.2f} s"
        return f"{row} {processor:10.2f}   {spent}"


@dataclass(frozen=True)
class Share:
    """What one process works on: its splits, a directory to stage in, and how often (1 is some tenths of a second)."""

    splits: Sequence[Split]
    scratch: Path
    scale: float

    def times(self, count: int) -> range:
        """Returns as many rounds as ``count`` scaled, at least one."""
        return range(max(1, int(count * self.scale)))


def interpreter(share: Share) -> None:
    """Works in the registers and the first cache."""
    count = 0
    for value in share.times(5_000_000):
        count ^= value


def in_cache(share: Share) -> None:
    """Works in the second cache."""
    data = bytes(256 << 10)
    for _ in share.times(4_000):
        zlib.crc32(data)


def in_memory(share: Share) -> None:
    """Copies what no cache holds."""
    source = np.ones(64 * MEBIBYTE, np.uint8)
    target = np.empty_like(source)
    for _ in share.times(20):
        target[:] = source


def page_cache(share: Share) -> None:
    """Reads blocks as a scan does, and nothing else."""
    block = memoryview(bytearray(BLOCK_SIZE))
    for _ in share.times(1):
        for split in share.splits:
            with RangeReader(split.segment.path) as reader:
                for at in range(split.start, split.stop - BLOCK_SIZE + 1, BLOCK_SIZE):
                    reader.read_into(at - split.segment.base, block)


def kernels(share: Share) -> None:
    """Walks, decodes and dispatches one block over and over."""
    split = share.splits[0]
    length = min(BLOCK_SIZE, split.stop - split.start)
    with RangeReader(split.segment.path) as reader:
        window = BlockWindow(reader, split.segment)
        window.load(split.start, length)
    for _ in share.times(60):
        links, _ = window.framing.walk(window.bytes, length, length, split.start, None)
        block, _ = decode(window.bytes, split.start, links + window.framing.head_size, DecodeRules())
        queue_units(block, DispatchRules(()))
        index_entries(block, DispatchRules(()))


def scan(share: Share, staging: str = "") -> None:
    """Does what a task does, and writes nothing."""
    task = ScanTask(staging, DecodeRules(), DispatchRules(()))
    records = sum(scan_split(split, task).records for split in share.splits)
    assert records > 0, "no message was read"


def staged_scan(share: Share) -> None:
    """Does all that a task does."""
    with tempfile.TemporaryDirectory(dir=share.scratch) as staging:
        scan(share, staging)


LAYERS: dict[str, Callable[[Share], None]] = {
    "Python, nothing shared": interpreter,
    "CRC in the cache (zlib)": in_cache,
    "copies in memory": in_memory,
    "reads of the page cache": page_cache,
    "kernels on one block": kernels,
    "scan, nothing staged": scan,
    "scan, runs staged": staged_scan,
}
"""From the bare machine upward."""


def compare(name: str, shares: Sequence[Share], rounds: int) -> Ratio:
    """Runs a layer in one process and in two, in turns; a first round warms up and does not count."""
    context = multiprocessing.get_context("fork")
    begin, end, found = context.Barrier(2), context.Barrier(2), context.Queue()
    turns = [2, *[1, 2] * rounds]

    def run(number: int) -> None:
        if hasattr(os, "sched_setaffinity"):  # else both may find themselves on one core for as long as a turn takes
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number]})
        for turn, processes in enumerate(turns):
            begin.wait()
            before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            if number < processes:
                LAYERS[name](shares[number])
                seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
                cost = [getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime", "ru_minflt")]
                found.put((turn, seconds, *cost))
            end.wait()

    processes = [context.Process(target=run, args=(number,), daemon=True) for number in (0, 1)]
    for process in processes:
        process.start()
    rows = [found.get() for _ in range(sum(turns))]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    slowest = [max(row[1] for row in rows if row[0] == turn) for turn in range(len(turns))]

    def cost(turns_of: range) -> tuple[float, float, float]:
        mine = [row[2:] for row in rows if row[0] in turns_of]
        user, system, faults = (statistics.median(column) for column in zip(*mine, strict=True))
        return user, system, faults

    alone, together = range(1, len(turns), 2), range(2, len(turns), 2)
    return Ratio(
        name,
        min(slowest[turn] for turn in alone),
        min(slowest[turn] for turn in together),
        (cost(alone), cost(together)),
    )


def spark(store: Path, rounds: int) -> Ratio:
    """Runs the command's own scan on one core and on two; a single process does all the work of both halves."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for cores in [1, 2] * rounds:
        command = [str(ROOT / "spark-submit.sh"), "--master", f"local[{cores}]", "rebuild", "--dry-run", "--quiet"]
        with tempfile.TemporaryDirectory() as scratch:
            ran = subprocess.run(
                [*command, "--json", "--store", str(store), "--output", f"{scratch}/none"],
                check=True, stdout=subprocess.PIPE,
            )  # fmt: skip
        seconds[cores].append(json.loads(ran.stdout)["stages"]["scan the commit log"])
    one, two = (min(seconds[cores]) for cores in (1, 2))
    return Ratio("the command's scan", one / 2, two)


def measure(
    store: Path, scratch: Path, *, scale: float = 1.0, rounds: int = 3, splits: int = 8, split_size: int = SPLIT_SIZE
) -> Iterator[Ratio]:
    """Yields all layers but Spark's, over the first ``splits`` of a store's log."""
    active()
    paths = sorted((store / "commitlog").iterdir())
    segments = [Segment(str(path), int(path.name), path.stat().st_size) for path in paths]
    chosen = plan_splits(segments, split_size)[:splits]
    half = len(chosen) // 2
    shares = [Share(own, scratch, scale) for own in (chosen[:half], chosen[half : 2 * half])]
    for name in LAYERS:
        yield compare(name, shares, rounds)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=3.0, help="size of the log in 10**9 bytes (default %(default)s)")
    parser.add_argument("--message-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5, help="the best of so many counts")
    parser.add_argument("--directory", type=Path, help="where the log is kept; default: a temporary directory")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="two-cores-") as scratch:
        directory = (options.directory or Path(scratch)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        store = prepared_log(directory, int(options.gb * 1e9), options.message_bytes)
        print(f"{'':32} {'one':>10} {'two':>10} {'times':>8} {'processor':>10}   a process, alone -> beside another")
        for found in measure(store, directory, rounds=options.rounds):
            print(found.line(), flush=True)
        print(spark(store, options.rounds).line())


def as_in_workers() -> dict[str, Any]:
    """Returns the environment variables that the program gives its workers, which malloc reads at a start."""
    prefix = "spark.executorEnv."
    settings = read_properties(CONF / "spark-defaults.conf")
    return {name[len(prefix) :]: value for name, value in settings.items() if name.startswith(prefix)}


if __name__ == "__main__":
    if AGAIN not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **as_in_workers(), AGAIN: "1"})
    main(sys.argv[1:])
