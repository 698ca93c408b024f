"""What a queue costs: the same messages in 24, 240 and 2,400 queues, with the broker's default files of 6 MB.

    python -m pytest tests/benchmarks/test_many_queues.py -m benchmark -s

CPU time of this process alone, without Spark. A queue file takes a file to be made, named and listed, whatever lies in
it; what must not grow with the queues is anything that touches bytes which are not there.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.publishing import Case
from support.rebuilding import rebuild_here
from support.uniform_log import uniform_log

pytestmark = pytest.mark.benchmark

TOPICS = {24: 3, 240: 30, 2_400: 300}
MESSAGES = 48_000


def store_of(root: Path, topics: int) -> Path:
    log = uniform_log(MESSAGES * 1_010, topics=topics, queues=8)
    (root / "commitlog").mkdir(parents=True)
    with (root / "commitlog" / f"{0:020d}").open("wb") as segment:
        segment.write(log.data)
        segment.truncate(1 << 30)
    return root


def cpu_seconds(directory: Path, queues: int) -> tuple[float, float]:
    """CPU seconds of the rebuild, and those of its publish."""
    store = store_of(directory / "store", TOPICS[queues])
    begun = time.process_time()
    built = rebuild_here(store, directory / "work", {}, broker_version="5.3")
    rebuilt = time.process_time()
    assert built.queues is not None
    assert built.queues.queues == queues
    Case(store, Path(built.directory)).publish()
    return rebuilt - begun, time.process_time() - rebuilt


def test_queues_cost_little(tmp_path: Path) -> None:
    cpu_seconds(tmp_path / "warm", 24)
    seconds = {queues: cpu_seconds(tmp_path / str(queues), queues) for queues in TOPICS}
    for queues, (rebuilt, published) in seconds.items():
        print(f"{queues:6,} queues: rebuild {rebuilt:6.2f} s, publish {published:6.2f} s of CPU")
