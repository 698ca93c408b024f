"""The whole command against the broker's own recovery of the same log, on this machine, in one run.

    python tests/benchmarks/against_broker.py --gb 3 --directory /var/tmp/bench

The real store code of one release writes the log (40 topics x 8 queues, one unit and three index entries a message),
then recovers it with nothing but the log: body CRCs checked, queues and index built. Then ``./spark-submit.sh rebuild``
does the same, once with the compiled kernels and once with numpy's. The page cache is warm for all of them. Times are
those of the whole process; for the broker also of the recovery alone, without the JVM's start and the store's shutdown.
Every file must be the broker's, byte for byte.
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


@dataclass(frozen=True)
class Result:
    """Seconds of the broker (whole process, and recovery alone), and of ours by kernels; the best of the rounds."""

    log_bytes: int
    messages: int
    broker_process: float
    broker_recovery: float
    ours: dict[str, float]
    stages: dict[str, dict[str, float]]
    """Where our seconds go, by kernels; what no stage of Spark took is the driver's."""

    def lines(self) -> list[str]:
        rows = [("broker, whole process", self.broker_process), ("broker, recovery alone", self.broker_recovery)]
        rows += [(f"rebuild, {kernels}", seconds) for kernels, seconds in self.ours.items()]
        head = f"{self.log_bytes / 1e9:.1f} GB, {self.messages:,} messages, {3 * self.messages:,} index entries"
        return (
            [head, f"{'':24}    seconds  us a message  x broker's process  x its recovery"]
            + [
                f"{name:24} {seconds:10.2f} {seconds / self.messages * 1e6:13.2f} "
                f"{self.broker_process / seconds:19.2f} {self.broker_recovery / seconds:15.2f}"
                for name, seconds in rows
            ]
            + [
                f"  {kernels:8} " + ", ".join(f"{what} {s:.2f}" for what, s in self.stages[kernels].items())
                for kernels in self.ours
            ]
        )


def measure(
    directory: Path,
    size: int,
    *,
    message_bytes: int = 1000,
    release: str = "5.3.3",
    kernels: Sequence[str],
    rounds: int = 1,
) -> Result:
    """Writes the log below ``directory`` unless it is there, and lets both work on it."""
    broker = RealStore(release)
    store = directory / f"log-{size}-{message_bytes}"
    if not store.exists():
        broker.bench_write(store, size, message_bytes=message_bytes, topics=40)
    for segment in (store / "commitlog").iterdir():
        _warm(segment)
    recovered, built = directory / "recovered", directory / "built"
    timings: list[Timing] = []
    ours: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in kernels}
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
        broker_process=min(timing.process_seconds for timing in timings),
        broker_recovery=min(timing.seconds for timing in timings),
        ours={name: min(runs)[0] for name, runs in ours.items()},
        stages={name: min(runs)[1] for name, runs in ours.items()},
    )


def _warm(segment: Path) -> None:
    """Reads a file once, so that the page cache holds it."""
    with segment.open("rb", buffering=0) as file:
        while file.read(16 << 20):
            pass


def _rebuild(store: Path, output: Path, kernels: str, release: str) -> tuple[float, dict[str, float]]:
    """Returns the seconds of a whole process, and those of its stages, largest first."""
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
        "the driver between stages": report["seconds"] - sum(report["stages"].values()),
        "start of Python, end of Spark": seconds - report["seconds"],
    }
    return seconds, dict(sorted(stages.items(), key=lambda stage: -stage[1]))


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
    parser.add_argument("--release", default="5.3.3", help="the broker's release (default %(default)s)")
    parser.add_argument("--kernels", default="numba,numpy")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--directory", type=Path, help="where the log is kept; default: a temporary directory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="against-broker-") as scratch:
        directory = options.directory or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        result = measure(
            directory.resolve(),
            int(options.gb * 1e9),
            message_bytes=options.message_bytes,
            release=options.release,
            kernels=options.kernels.split(","),
            rounds=options.rounds,
        )
    print(json.dumps(result.__dict__) if options.json else "\n".join(result.lines()))


if __name__ == "__main__":
    main(sys.argv[1:])
