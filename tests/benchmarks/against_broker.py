"""The whole command against the broker's own recovery of the same log, on this machine, in one run.

python tests/benchmarks/against_broker.py --table --rounds 1 --directory /var/tmp/bench # all rows of the README

The real store code of one release writes the log and recovers it with nothing but the log; then ``./spark-submit.sh
rebuild`` does the same, with both kernels and a warm page cache. Times are those of the whole process; for the broker
also of the recovery alone. Every file must be the broker's, byte for byte.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from support.real_store import RealStore, Timing  # noqa: E402

TOPICS = 40
TABLE = ((0.3, 1000, 40), (3.2, 1000, 40), (10.6, 1000, 40), (1.5, 1000, 300), (1, 220, 40), (3, 220, 40))
"""The rows of the README's table: size of the log in 10**9 bytes, of a message in bytes, topics."""


@dataclass(frozen=True)
class Rebuilt:
    """One run of ours: seconds of the whole process, and of its stages (largest first)."""

    seconds: float
    stages: dict[str, float]

    def stages_text(self) -> str:
        return ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in self.stages.items())


@dataclass(frozen=True)
class Result:
    """Seconds of the broker (whole process, and recovery alone), and of ours by kernels; the best of the rounds."""

    log_bytes: int
    messages: int
    queues: int
    broker_process: float
    broker_recovery: float
    ours: dict[str, Rebuilt]
    """By kernels. What no stage of Spark took is the driver's."""

    def lines(self) -> list[str]:
        rows = [("broker, whole process", self.broker_process), ("broker, recovery alone", self.broker_recovery)]
        rows += [(f"rebuild, {kernels}", run.seconds) for kernels, run in self.ours.items()]
        head = f"{self.log_bytes / 1e9:.1f} GB, {self.messages:,} messages, {3 * self.messages:,} index entries"
        return (
            [head, f"{'':24}    seconds  us a message  x broker's process  x its recovery"]
            + [
                f"{name:24} {seconds:10.2f} {seconds / self.messages * 1e6:13.2f} "
                f"{self.broker_process / seconds:19.2f} {self.broker_recovery / seconds:15.2f}"
                for name, seconds in rows
            ]
            + [f"  {kernels:8} {run.stages_text()}" for kernels, run in self.ours.items()]
        )

    def row(self) -> str:
        """Returns the row of the README's table."""
        each = self.log_bytes / self.messages
        size = "1 KB" if 900 < each < 1100 else f"{each:.0f} bytes"
        log = f"{self.log_bytes / 1e9:.1f} GB, {self.messages / 1e6:.1f} million messages of {size}"
        cells = [f"{log}, {self.queues:,} queues", f"{self.broker_process:.1f} s ({self.broker_recovery:.1f} s)"]
        cells += [
            f"{run.seconds:.1f} s, {self.broker_process / run.seconds:.1f} ({self.broker_recovery / run.seconds:.1f})"
            for run in self.ours.values()
        ]
        return f"| {' | '.join(cells)} |"


def measure(
    directory: Path,
    size: int,
    *,
    message_bytes: int = 1000,
    topics: int = TOPICS,
    release: str = "5.3.3",
    kernels: Sequence[str],
    rounds: int = 1,
) -> Result:
    """Writes the log below ``directory`` unless it is there, and lets both work on it."""
    broker = RealStore(release)
    store = prepared_log(directory, size, message_bytes, release, topics)
    recovered, built = directory / "recovered", directory / "built"
    timings: list[Timing] = []
    ours: dict[str, list[Rebuilt]] = {name: [] for name in kernels}
    for number in range(rounds):
        shutil.rmtree(recovered, ignore_errors=True)
        timings.append(broker.bench_recover(store, recovered))
        for name in kernels:
            ours[name].append(_rebuild(store, built, name, release))
            if number == 0:
                compare(recovered, built)
            shutil.rmtree(built)
    shutil.rmtree(recovered)
    return Result(
        log_bytes=timings[0].store.end_offset - timings[0].store.min_offset,
        messages=timings[0].messages,
        queues=8 * topics,
        broker_process=min(timing.process_seconds for timing in timings),
        broker_recovery=min(timing.seconds for timing in timings),
        ours={name: min(runs, key=lambda run: run.seconds) for name, runs in ours.items()},
    )


def log_directory(directory: Path, size: int, message_bytes: int, topics: int = TOPICS) -> Path:
    return directory / (f"log-{size}-{message_bytes}" + (f"-{topics}" if topics != TOPICS else ""))


def prepared_log(directory: Path, size: int, message_bytes: int, release: str = "5.3.3", topics: int = TOPICS) -> Path:
    """Returns a store with nothing but a log, in the page cache; of 40 topics the first gets 29 messages in 100."""
    store = log_directory(directory, size, message_bytes, topics)
    if not store.exists():
        draft = store.with_name(f"{store.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        RealStore(release).bench_write(draft, size, message_bytes=message_bytes, topics=topics)
        draft.rename(store)
    for segment in (store / "commitlog").iterdir():
        _warm(segment)
    return store


def _warm(segment: Path) -> None:
    """Reads a file once, so that the page cache holds it."""
    with segment.open("rb", buffering=0) as file:
        while file.read(16 << 20):
            pass


def _rebuild(store: Path, output: Path, kernels: str, release: str) -> Rebuilt:
    command = [str(ROOT / "spark-submit.sh"), "rebuild", "--store", str(store), "--output", str(output), "--quiet"]
    environment = {**os.environ, "ROCKETMQ_STORE_SPARK_KERNELS": kernels}
    begun = time.monotonic()
    version = release.rpartition(".")[0]
    ran = subprocess.run(
        [*command, "--json", "--broker-version", version], env=environment, check=True, stdout=subprocess.PIPE
    )
    seconds = time.monotonic() - begun
    report = json.loads(ran.stdout)
    stages = {
        **report["stages"],
        "the driver between stages, end of Spark": report["seconds"] - sum(report["stages"].values()),
        "start and end of Python": seconds - report["seconds"],
    }
    return Rebuilt(seconds, dict(sorted(stages.items(), key=lambda stage: -stage[1])))


def compare(recovered: Path, built: Path) -> None:
    """Raises AssertionError unless both hold the same queue files, and index files of the same bytes in their order."""
    names = [sorted(path.relative_to(root) for path in root.glob("consumequeue/*/*/*")) for root in (recovered, built)]
    assert names[0] == names[1], "different queue files"
    pairs = [(recovered / name, built / name) for name in names[0]]
    index = [sorted((root / "index").iterdir()) for root in (recovered, built)]
    assert len(index[0]) == len(index[1]) > 0, "different numbers of index files"
    for one, other in (*pairs, *zip(*index, strict=True)):
        assert filecmp.cmp(one, other, shallow=False), f"{one} and {other} differ"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=3.0, help="size of the log in 10**9 bytes (default %(default)s)")
    parser.add_argument("--message-bytes", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=TOPICS, help="with 8 queues each (default %(default)s)")
    parser.add_argument("--release", default="5.3.3", help="the broker's release (default %(default)s)")
    parser.add_argument("--kernels", default="numba,numpy")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--directory", type=Path, help="where the log is kept; default: a temporary directory")
    parser.add_argument("--table", action="store_true", help="all rows of the README's table, instead of one log")
    options = parser.parse_args(arguments)
    logs = TABLE if options.table else ((options.gb, options.message_bytes, options.topics),)
    with tempfile.TemporaryDirectory(prefix="against-broker-") as scratch:
        directory = (options.directory or Path(scratch)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        for gb, message_bytes, topics in logs:
            size = int(gb * 1e9)
            kept = log_directory(directory, size, message_bytes, topics).exists() or not options.table
            more = {"message_bytes": message_bytes, "topics": topics, "kernels": options.kernels.split(",")}
            result = measure(directory, size, release=options.release, rounds=options.rounds, **more)
            if not kept:
                shutil.rmtree(log_directory(directory, size, message_bytes, topics))
            print(*result.lines(), result.row(), "", sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
