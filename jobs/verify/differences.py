"""Findings: a *difference* contradicts the log (exit 1), a *hazard* is normal but may do harm, a *note* informs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.spark.runner import Runner
from storeformat.errors import LISTED
from storeformat.queues.queue_check import Finding


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

    def note(self, text: str) -> None:
        self.notes.append(text)

    def note_count(self, count: int, text: str) -> None:
        if count:
            self.note(f"{count} {text}")


@dataclass(frozen=True)
class Verification:
    """A verification in progress; ``cut``: the log continues after the part read, so units beyond it are correct."""

    store: OpenedStore
    reading: LogReading
    runner: Runner
    verdicts: Verdicts
    cut: bool = False

    @cached_property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Ranges [begin, end) of the log with unknown records: damage, repairs, and records with a foreign offset."""
        reading = self.reading
        ranges = [(item.begin, item.end) for item in reading.damaged]
        ranges += [(offset, offset + size) for scan in reading.scans for offset, size in scan.fillers]
        return (*ranges, *((offset, offset + size) for offset, size in reading.foreign_records))
