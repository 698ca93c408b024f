"""What a queue costs: the same messages in 24, 240 and 2,400 queues, in CPU time of this process, without Spark.

A queue file takes a file to be made, named and listed, whatever lies in it; what must not grow with the queues is
anything that touches bytes which are not there.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from support.publishing import Case
from support.rebuilding import rebuild_here
from support.uniform_log import uniform_log

pytestmark = pytest.mark.benchmark

TOPICS = {24: 3, 240: 30, 2_400: 300}
MESSAGES = 48_000
ROUNDS = 2
DEFAULT, SHORT = 6_000_000, 60_000
MOST = 60
"""How many times as much a hundred times as many queues may cost: they take 15 to 27 times as much, as the file system
is busy."""
HOLES = 3
"""How many times as much files of 6 MB may cost as short ones: mostly 1, up to 1.8 in one run; 6 with their zeros read.
"""


def store_of(root: Path, topics: int) -> Path:
    log = uniform_log(MESSAGES * 1_010, topics=topics, queues=8)
    (root / "commitlog").mkdir(parents=True)
    with (root / "commitlog" / f"{0:020d}").open("wb") as segment:
        segment.write(log.data)
        segment.truncate(len(log.data) + (1 << 20))
    return root


def cpu_seconds(directory: Path, queues: int, file_size: int) -> tuple[float, float]:
    """CPU seconds of the rebuild, and those of its publish."""
    store = store_of(directory / "store", TOPICS[queues])
    settings = {"mappedFileSizeConsumeQueue": file_size}
    begun = time.process_time()
    built = rebuild_here(store, directory / "work", settings, broker_version="5.3")
    rebuilt = time.process_time()
    assert (built.facts["queues"], built.facts["consume_queue_files"]) == (queues, queues)
    assert built.facts["consume_queue_units"] == pytest.approx(MESSAGES, rel=0.05)
    Case(store, Path(built.directory)).publish()
    published = time.process_time()
    shutil.rmtree(directory)
    return rebuilt - begun, published - rebuilt


def test_queues_cost_what_their_files_do_and_no_byte_of_a_hole(tmp_path: Path) -> None:
    kinds = [*((queues, DEFAULT) for queues in TOPICS), (2_400, SHORT)]
    cpu_seconds(tmp_path / "warm", *kinds[0])
    best = {kind: (float("inf"), float("inf")) for kind in kinds}
    for number in range(ROUNDS):
        for kind in kinds:
            rebuilt, published = cpu_seconds(tmp_path / f"{number}-{kind}", *kind)
            best[kind] = (min(best[kind][0], rebuilt), min(best[kind][1], published))
    for (queues, size), (rebuilt, published) in best.items():
        print(f"{queues:6,} files of {size:9,}: rebuild {rebuilt:6.2f} s, publish {published:6.2f} s of CPU")
    for work in (0, 1):
        few, many, short = (best[kind][work] for kind in (kinds[0], (2_400, DEFAULT), (2_400, SHORT)))
        assert many < MOST * few
        assert many < HOLES * short, "the length of files costs something"
