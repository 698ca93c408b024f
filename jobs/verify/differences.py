"""What a verification found, gathered: differences, hazards and notes; and what all of its comparisons share.

A *difference* contradicts the log. A *hazard* is what a healthy broker can leave and what may still hurt later; a
*note* is merely worth knowing. Only differences decide the exit code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.spark.runner import Runner
from storeformat.index.index_check import IndexFault
from storeformat.limits import LISTED
from storeformat.queues.queue_check import UnitFault


@dataclass(frozen=True)
class Subject:
    """What a finding is about: which artefact, which queue if it is one's, and which file below the store's root."""

    artefact: str
    file: str | None = None
    topic: str | None = None
    queue_id: int | None = None

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("artefact", "topic", "queue_id", "file")}


@dataclass
class Verdicts:
    """Collects what is found; ``counts`` is complete, the lists hold the first of each."""

    differences: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    hazards: list[dict[str, Any]] = field(default_factory=list)
    hazard_counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def differ(
        self,
        subject: Subject,
        cause: str,
        *,
        position: int | None = None,
        expected: object = None,
        found: object = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` differences of one cause; the first of them is shown if there is room (none for 0)."""
        self.counts[cause] += count
        if len(self.differences) < LISTED:
            self.differences.append(
                {
                    **subject.as_row(),
                    "position": position,
                    "cause": cause,
                    "expected": expected,
                    "found": found,
                }
            )

    def differ_by(self, subject: Subject, faults: Iterable[UnitFault | IndexFault], counts: Mapping[str, int]) -> None:
        """Adds what the comparison of one file found: the first faults, and how many there are of each cause."""
        for fault in faults:
            self.differ(
                subject, fault.cause, position=fault.position, expected=fault.expected, found=fault.found, count=0
            )
        for cause, count in counts.items():
            self.count(cause, count)

    def count(self, cause: str, count: int) -> None:
        """Counts differences that are not shown one by one."""
        if count:
            self.counts[cause] += count

    def warn(self, subject: Subject, hazard: str, what: str, *, advice: str | None = None, **facts: Any) -> None:
        """Adds one hazard."""
        self.hazard_counts[hazard] += 1
        if len(self.hazards) < LISTED:
            self.hazards.append({"hazard": hazard, "what": what, **subject.as_row(), **facts, "advice": advice})

    def note(self, text: str) -> None:
        """Adds one note."""
        self.notes.append(text)

    def note_count(self, count: int, text: str) -> None:
        """Adds a note that begins with a count, unless that is 0."""
        if count:
            self.note(f"{count} {text}")


@dataclass(frozen=True)
class Verification:
    """One verification under way. ``cut`` says that the log goes on after what was read of it, so that units and
    entries which point there are fine.
    """

    store: OpenedStore
    reading: LogReading
    runner: Runner
    verdicts: Verdicts
    cut: bool = False

    @cached_property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """The ranges [begin, end) of the log about whose records nothing can be said: damaged ones, repaired ones, and
        records that do not carry the offset at which they lie.
        """
        reading = self.reading
        ranges = [(item.begin, item.end) for item in reading.damaged]
        ranges += [(offset, offset + size) for scan in reading.scans for offset, size in scan.fillers]
        return (*ranges, *((offset, offset + size) for offset, size in reading.foreign_records))
