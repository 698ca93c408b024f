"""A whole load against the least that Spark could do: writing as many rows of the same columns from ``spark.range``.

    .venv/bin/python -m pytest tests/benchmarks/test_load_cost.py -m benchmark -s

Both run in one session, in turns. Spark writes plain Parquet of values that it makes up; the load reads and proves the
log, makes the table, writes its files and commits them; some 0.8 s of that are Delta's and do not grow with the log
(LOAD_COST_BYTES chooses its size). The best round of each counts, because what disturbs a round only adds to it. Sizes
of files must agree within a quarter, or the rows would not be alike.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.distinct_log import write_distinct_log

from jobs.contract.options import LoadOptions
from jobs.contract.reporter import Reporter
from jobs.table import load
from udfs.table import schemas

pytestmark = [pytest.mark.benchmark, pytest.mark.spark, pytest.mark.slow]

MOST = 1.3
SIZE = int(os.environ.get("LOAD_COST_BYTES", "2000000000"))
ROUNDS = int(os.environ.get("LOAD_COST_ROUNDS", "4"))

_UNIQ_KEY = "concat('9A1CE6F02D7746B0', lpad(hex(id), 16, '0'))"
_KEYS = "'order-', id % 320, ' user-', id % 320 * 3121"
_TIME = "timestamp_millis(1700000000000 + id % 320)"
MADE_UP = {
    "cluster": "'c'",
    "broker": "'b'",
    "store_date": "date'2023-11-14'",
    "commit_log_offset": "id * 1000",
    "size": "CAST(1000 + id % 17 AS INT)",
    "topic": "concat('bench-topic-', id % 40)",
    "queue_id": "CAST(id DIV 40 % 8 AS INT)",
    "queue_offset": "id DIV 320",
    "tags": "concat('Tag', id % 17)",
    "tags_code": "2598919L + id % 17",
    "keys": "array(concat('order-', id % 320), concat('user-', id % 320 * 3121))",
    "uniq_key": _UNIQ_KEY,
    "offset_msg_id": "concat('7F00000100002A9F', lpad(hex(id * 1000), 16, '0'))",
    "flag": "0",
    "sys_flag": "0",
    "transaction_type": "'none'",
    "reconsume_times": "0",
    "prepared_transaction_offset": "0L",
    "born_timestamp": _TIME,
    "born_host": "'127.0.0.1:1234'",
    "store_timestamp": _TIME,
    "store_host": "'127.0.0.1:10911'",
    "body_crc": "hash(id % 320)",
    "body_size": "CAST(700 + id % 17 AS INT)",
    "properties": f"map('UNIQ_KEY', {_UNIQ_KEY}, 'KEYS', concat({_KEYS}), 'TAGS', concat('Tag', id % 17))",
    "magic_code": "-626843481",
    "dispatched": "true",
    "salvaged": "false",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A log of one segment in the page cache, and how many messages it holds."""
    root = tmp_path_factory.mktemp("store")
    segment = root / "commitlog" / f"{0:020d}"
    segment.parent.mkdir()
    yield root, write_distinct_log(segment, SIZE)
    shutil.rmtree(root)


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.parquet"))


def test_a_load_costs_little_more_than_writing(spark: SparkSession, store: tuple[Path, int], tmp_path: Path) -> None:
    root, messages = store
    plain, table = tmp_path / "plain", tmp_path / "table"
    assert list(MADE_UP) == schemas.MESSAGES.names

    def write() -> None:
        rows = spark.range(messages).selectExpr(*(f"{value} AS {name}" for name, value in MADE_UP.items()))
        rows.write.mode("overwrite").parquet(str(plain))

    def read_and_write() -> None:
        options = LoadOptions(store=str(root), table=str(table), cluster="c", broker="b")
        assert load.run(options, Reporter(quiet=True))["rows"] == messages

    sizes, written, loaded = (0, 0), [], []
    for _ in range(ROUNDS):
        written.append(seconds(write))
        shutil.rmtree(table, ignore_errors=True)
        loaded.append(seconds(read_and_write))
        sizes = size_of(plain), size_of(table)
    ratio = min(loaded[1:]) / min(written[1:])  # the first round of either starts and compiles what both need
    print(f"\n{messages:,} rows, {sizes[0]:,} and {sizes[1]:,} bytes of Parquet")
    print(f"spark.range to Parquet {min(written[1:]):.2f} s, whole load {min(loaded[1:]):.2f} s: {ratio:.2f} times")
    print("all rounds:", *(f"{one:.2f}/{other:.2f}" for one, other in zip(written, loaded, strict=True)))
    assert 0.75 < sizes[1] / sizes[0] < 1.25
    assert ratio <= MOST
