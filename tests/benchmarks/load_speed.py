"""``load`` against ``rebuild`` of the same log, a plain decoder with delta-rs, and Spark's own write of the same rows.

python tests/benchmarks/load_speed.py --gb 3 --directory /var/tmp/bench

Times are those of whole processes, with the page cache warm; of Spark's write that of a session that is warm. Every
value that the table and that of ``plain_decoder.py`` both have must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks import plain_decoder  # noqa: E402
from benchmarks.against_broker import prepared_log  # noqa: E402

PEER = Path(plain_decoder.__file__)
WINDOW = 1 << 30
"""Bytes of the log of which the rows of both tables are compared at a time."""


@dataclass(frozen=True)
class Result:
    """Seconds, the best of the rounds; bytes of the tables."""

    log_bytes: int
    messages: int
    rebuild: float
    load: float
    nothing_new: float
    with_bodies: float
    peer: float
    spark_write: float
    table_bytes: int
    spark_bytes: int
    peak_memory: int

    def lines(self) -> list[str]:
        rows = [
            ("rebuild", self.rebuild), ("load", self.load), ("load, nothing new", self.nothing_new),
            ("load --with-bodies", self.with_bodies), ("plain decoder, delta-rs", self.peer),
            ("Spark, Parquet to Parquet", self.spark_write),
        ]  # fmt: skip
        return [
            f"{self.log_bytes / 1e9:.1f} GB, {self.messages:,} messages",
            *(f"{name:26} {seconds:8.2f} s {seconds / self.load:6.2f} times load's" for name, seconds in rows),
            f"table {self.table_bytes:,} bytes, Spark's {self.spark_bytes:,}",
            f"a process took {self.peak_memory / 1e6:.0f} MB at most",
        ]


def measure(store: Path, work: Path, rounds: int = 1, master: str = "local[2]") -> Result:
    """Runs all of them on a store, in turns, and compares what they made."""
    best: dict[str, float] = {}
    table, bodies, peer = work / "table", work / "bodies", work / "peer"
    report: dict[str, Any] = {}

    def timed(name: str, *command: str) -> str:
        begun = time.monotonic()
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        best[name] = min(best.get(name, float("inf")), time.monotonic() - begun)
        return ran.stdout

    job = [str(ROOT / "spark-submit.sh"), "--master", master]
    source = ["--store", str(store), "--quiet", "--json"]
    for _ in range(rounds):
        for made in (table, bodies, peer, work / "rebuilt"):
            shutil.rmtree(made, ignore_errors=True)
        timed("rebuild", *job, "rebuild", *source, "--output", str(work / "rebuilt"))
        shutil.rmtree(work / "rebuilt")
        load = [*job, "load", *source, "--cluster", "c", "--broker", "b"]
        report = json.loads(timed("load", *load, "--table", str(table)))
        again = json.loads(timed("nothing_new", *load, "--table", str(table)))
        assert (again["skipped"], again["rows"], again["to_offset"]) == (True, 0, report["to_offset"])
        whole = json.loads(timed("with_bodies", *load, "--table", str(bodies), "--with-bodies"))
        assert whole["rows"] == report["rows"]
        shutil.rmtree(bodies)
        timed("peer", sys.executable, str(PEER), str(store), str(peer))
    assert same_rows(table, peer, report["to_offset"]) == report["rows"] == report["messages"]
    spark_write, spark_bytes = write_by_spark(table, work / "plain", master)
    return Result(
        log_bytes=report["to_offset"] - report["from_offset"],
        messages=report["messages"],
        spark_write=spark_write,
        table_bytes=size_of(table),
        spark_bytes=spark_bytes,
        peak_memory=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        **best,
    )


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.parquet"))


def same_rows(ours: Path, peers: Path, end: int) -> int:
    """Returns how many rows both tables have; raises AssertionError where a value of a common column differs."""
    columns = plain_decoder.SCHEMA.names
    count = 0
    one, other = (DeltaTable(str(path)).to_pyarrow_dataset() for path in (ours, peers))
    for begin in range(0, end, WINDOW):
        place = (pc.field("commit_log_offset") >= begin) & (pc.field("commit_log_offset") < begin + WINDOW)
        rows = [
            side.to_table(columns=columns, filter=place).sort_by("commit_log_offset").combine_chunks()
            for side in (one, other)
        ]
        assert rows[0].num_rows == rows[1].num_rows, f"rows from {begin} on"
        count += rows[0].num_rows
        for name in columns:
            assert plain(rows[0][name]).equals(plain(rows[1][name])), f"{name} from {begin} on"
    return count


def plain(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column without what its type says besides: a map as a list of its pairs."""
    values = column.combine_chunks()
    if pa.types.is_map(values.type):
        pairs = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        return pa.ListArray.from_arrays(values.offsets, pairs)
    return values


def write_by_spark(table: Path, target: Path, master: str) -> tuple[float, int]:
    """Returns how long a warm Spark takes to write a table's rows as Parquet, and how many bytes they are."""
    command = [sys.executable, str(Path(__file__).resolve()), "--write", str(table), str(target), "--master", master]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found = float(ran.stdout), size_of(target)
    shutil.rmtree(target)
    return found


def write_here(table: str, target: str, master: str) -> None:
    """Prints the seconds of the second of two writes."""
    from jobs.spark import session

    with session.shared_spark("load", ("--master", master)), session.spark_session() as spark:
        rows = spark.read.parquet(table)
        for _ in range(2):
            begun = time.monotonic()
            rows.write.mode("overwrite").option("compression", "zstd").parquet(target)
        print(f"{time.monotonic() - begun:.2f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=3.0, help="size of the log in 10**9 bytes (default %(default)s)")
    parser.add_argument("--message-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1, help="the best of so many counts")
    parser.add_argument("--master", default=f"local[{os.cpu_count()}]")
    parser.add_argument("--directory", type=Path, help="where the log is kept; default: a temporary directory")
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.write:
        write_here(*options.write, options.master)
        return
    with tempfile.TemporaryDirectory(prefix="load-speed-") as scratch:
        directory = (options.directory or Path(scratch)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        store = prepared_log(directory, int(options.gb * 1e9), options.message_bytes)
        with tempfile.TemporaryDirectory(prefix="loaded-", dir=directory) as work:
            found = measure(store, Path(work), options.rounds, options.master)
    print("\n".join(found.lines()))


if __name__ == "__main__":
    main(sys.argv[1:])
