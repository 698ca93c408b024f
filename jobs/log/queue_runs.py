"""The runs of all scans as one table, sorted by queue and in log order within a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Int64s
from storeformat.record.dispatch import topic_names
from udfs.scan import SplitScan
from udfs.staged_runs import Runs


@dataclass(frozen=True)
class QueueRuns:
    """One row a run: ``keys`` (topic number << 32 | queue id, ascending), the run and the number of its scan. ``names``
    are the topics by number, ``topics`` the same as their records have them.
    """

    names: list[str]
    topics: list[bytes]
    keys: Int64s
    runs: Runs
    scan_of_run: Int64s


def all_runs(scans: Sequence[SplitScan]) -> QueueRuns:
    """Returns the runs of scans that are in log order."""
    topics: dict[bytes, int] = {}
    parts: list[Int64s] = []
    for scan in scans:
        codes = np.array([topics.setdefault(topic, len(topics)) for topic in scan.topics], np.int64)
        parts.append((codes[scan.runs.topic_codes] << 32) | scan.runs.queue_ids)
    keys = np.concatenate([*parts, np.zeros(0, np.int64)])
    scan_of_run = np.repeat(np.arange(len(scans)), [len(scan.runs.counts) for scan in scans])
    order = np.argsort(keys, kind="stable")
    runs = Runs.concatenate([scan.runs for scan in scans])
    runs = Runs(*(getattr(runs, name)[order] for name in Runs.__dataclass_fields__))
    return QueueRuns(topic_names(list(topics)), list(topics), keys[order], runs, scan_of_run[order])
