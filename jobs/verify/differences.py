"""Findings: a *difference* contradicts the log (exit 1), a *hazard* is normal but may do harm, a *note* informs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.spark.runner import Runner
from storeformat.arrays import LogExtent
from storeformat.errors import LISTED
from storeformat.queues.queue_check import Finding
from storeformat.queues.topic_filter import TopicFilter


@dataclass(frozen=True)
class Subject:
    """What a finding is about: artefact, file below the store's root, and queue."""

    artefact: str
    file: str | None = None
    topic: str | None = None
    queue_id: int | None = None


@dataclass
class Verdicts:
    """Findings; ``counts`` are complete, the lists hold the first of each."""

    differences: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    hazards: list[dict[str, Any]] = field(default_factory=list)
    hazard_counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def differ(self, subject: Subject, *findings: Finding) -> None:
        for one in findings:
            self.counts[one.cause] += one.count
            if len(self.differences) < LISTED:
                row = {"position": one.position, "cause": one.cause, "expected": one.expected, "found": one.found}
                self.differences.append({**vars(subject), **row})

    def warn(self, subject: Subject, hazard: str, what: str, *, advice: str | None = None, **facts: Any) -> None:
        self.hazard_counts[hazard] += 1
        if len(self.hazards) < LISTED:
            self.hazards.append({"hazard": hazard, "what": what, **vars(subject), **facts, "advice": advice})

    def note_count(self, count: int, text: str) -> None:
        if count:
            self.notes.append(f"{count} {text}")


@dataclass(frozen=True)
class Verification:
    """A verification; ``compared``: how much of each kind. ``unclean``: the broker runs or was killed; ``cut``: the log
    continues after the part read, so units beyond it are correct.
    """

    store: OpenedStore
    reading: LogReading
    runner: Runner
    topics: Sequence[TopicFilter] = ()
    unclean: bool = False
    cut: bool = False
    verdicts: Verdicts = field(default_factory=Verdicts)
    compared: Counter[str] = field(default_factory=Counter)

    @cached_property
    def log(self) -> LogExtent:
        """What was read; records are unknown in damage, in repairs, and where one has a foreign offset."""
        reading = self.reading
        lost = [(item.begin, item.end) for item in reading.damaged]
        lost += [(offset, offset + size) for scan in reading.scans for offset, size in scan.special.fillers]
        lost += [(offset, offset + size) for offset, size in reading.foreign_records]
        return LogExtent(reading.begin, reading.end, tuple(lost))
