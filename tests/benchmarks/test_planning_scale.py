"""What the driver needs for light queues by the ten thousand, segments and index files by the thousand: the scans are
made up, the plans are real, and time and memory must follow the counts.
"""

from __future__ import annotations

import pickle
import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from jobs.log.log_scan import all_runs, sharing
from jobs.rebuild import planning
from storeformat.arrays import table_of
from storeformat.log.chain import ChainReport, follow_chain
from storeformat.log.segments import ChainEnd, Segment, plan_splits
from storeformat.store.settings import Settings
from udfs.log.scan import Dispatched, SplitScan, StagedRuns, StoreTimes
from udfs.log.staged_files import Staged
from udfs.log.staged_runs import RUN

pytestmark = pytest.mark.benchmark

LAYOUT = Settings()
SEGMENT, SPLIT = 1 << 30, 256 << 20
SLACK = 1.6
"""How much more than four times four times as much may take: caches are not linear."""

Result = TypeVar("Result")


def made_up_scans(segments: int, queues: int, *, entries: int = 0) -> list[SplitScan]:
    """What ``queues`` light queues leave in a log: five messages of each in every split. As it comes from tasks."""
    files = [Segment(f"/data/store/commitlog/{n * SEGMENT:020d}", n * SEGMENT, SEGMENT) for n in range(segments)]
    topics = tuple(b"%%LMQ%%group-%06d" % number for number in range(queues))
    scans, splits = [], plan_splits(files, SPLIT)
    for split in splits:
        numbers = np.arange(queues, dtype=np.int64)
        runs = table_of(
            RUN,
            topic_codes=numbers,
            first_queue_offsets=np.full(queues, 5 * split.number),
            counts=np.full(queues, 5),
            begins=5 * numbers,
            first_offsets=split.start + numbers,
            last_offsets=split.start + numbers + 4 * queues,
            light=np.ones(queues, bool),
        )
        stem = f"/data/.rebuilt.0123456789ab.staging/runs/split-{split.number:06d}-0123456789ab"
        scan = SplitScan(
            ChainReport(split, split.start, split.stop, ChainEnd.STOP),
            records=5 * queues, record_bytes=SPLIT,
            staged=StagedRuns(
                topics, Staged(5 * queues, runs=runs.tobytes(), path=f"{stem}.units"),
                entries=Staged(entries, path=f"{stem}.entries"),
            ),
            dispatched=Dispatched(split.stop - 100, split.stop - 100, split.stop - 100),
            times=StoreTimes(split.number, split.number),
        )  # fmt: skip
        scans.append(pickle.loads(pickle.dumps(scan)))
    return sharing(scans, splits)


def cost(work: Callable[[], Result], rounds: int = 5) -> tuple[float, int, Result]:
    """CPU seconds of the best round, bytes that the result keeps, and the result."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    tracemalloc.start()
    result = work()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return best, kept, result


def check(what: str, count: int, small: tuple[float, int, object], large: tuple[float, int, object], most: int) -> None:
    """``large`` has four times the ``count`` of ``small``; a thing may keep ``most`` bytes."""
    (seconds, kept), (four_seconds, four_kept) = small[:2], large[:2]
    print(f"{what:44} {4 * count:8,}: {four_seconds:7.3f} s, {four_kept / (4 * count):7.1f} bytes each")
    assert four_seconds < 4 * SLACK * seconds + 0.01
    assert four_kept < 4 * SLACK * kept + 10_000
    assert four_kept / (4 * count) <= most


def planned(found: list[SplitScan]) -> planning.QueuesPlan:
    return planning.plan_queue_files(all_runs(found), found, LAYOUT)


def test_light_queues() -> None:
    counts = (12_500, 50_000)
    scans = [cost(lambda count=count: made_up_scans(1, count), 1) for count in counts]
    check("runs of 4 splits", 4 * counts[0], *scans, most=66)
    plans = [cost(lambda found=found: planned(found)) for _, _, found in scans]
    assert [plan.queues for _, _, plan in plans] == list(counts)
    assert plans[1][2].units == 50_000 * 4 * 5
    check("consume-queue files of 4 pieces", counts[0], *plans, most=100)
    batches = plans[1][2].files.batches(256, 1_000)
    assert [len(batch) for batch in batches] == [50] * 1_000
    assert len(pickle.dumps(batches)) < 200 * counts[1]


def test_segments_and_index_files() -> None:
    counts = (250, 1_000)
    scans = [made_up_scans(count, 8, entries=10_000_000) for count in counts]
    assert [len(found) for found in scans] == [1_000, 4_000]
    segments = [sorted({scan.report.split.segment for scan in found}, key=lambda item: item.base) for found in scans]
    splits = [cost(lambda own=own: plan_splits(own, SPLIT)) for own in segments]
    check("splits", 1_000, *splits, most=400)
    chains = [
        cost(lambda own=own, found=found: follow_chain(own, [s.report.split for s in found], [s.report for s in found]))
        for own, found in zip(segments, scans, strict=True)
    ]
    assert chains[1][2].end == 1_000 * SEGMENT
    check("links of the chain", 1_000, *chains, most=100)
    index = [cost(lambda found=found: planning.plan_index_files(found, LAYOUT, lambda path, row: 1)) for found in scans]
    assert [len(plan.files) for _, _, plan in index] == [501, 2_001]
    assert sum(index[1][2].entries()) == 40_000_000_000
    check("index files", 500, *index, most=800)
    queues = [cost(lambda found=found: planned(found)) for found in scans]
    check("splits with 8 queues", 1_000, *queues, most=150)
