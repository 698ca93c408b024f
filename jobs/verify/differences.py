"""What a verification found, gathered: differences, hazards and notes.

A *difference* contradicts the log. A *hazard* is what a healthy broker can leave and what may still hurt later; a
*note* is merely worth knowing. Only differences decide the exit code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MOST_DIFFERENCES = 1_000
MOST_HAZARDS = 1_000


@dataclass(frozen=True)
class Subject:
    """What a finding is about: which artefact, which queue if it is one's, and which file below the store's root."""

    artefact: str
    file: str | None = None
    topic: str | None = None
    queue_id: int | None = None


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
        if len(self.differences) < MOST_DIFFERENCES:
            self.differences.append(
                {
                    "artefact": subject.artefact,
                    "topic": subject.topic,
                    "queue_id": subject.queue_id,
                    "file": subject.file,
                    "position": position,
                    "cause": cause,
                    "expected": expected,
                    "found": found,
                }
            )

    def count(self, cause: str, count: int) -> None:
        """Counts differences that are not shown one by one."""
        if count:
            self.counts[cause] += count

    def warn(self, subject: Subject, hazard: str, what: str, *, advice: str | None = None, **facts: Any) -> None:
        """Adds one hazard."""
        self.hazard_counts[hazard] += 1
        if len(self.hazards) < MOST_HAZARDS:
            self.hazards.append(
                {
                    "hazard": hazard,
                    "what": what,
                    "artefact": subject.artefact,
                    "topic": subject.topic,
                    "queue_id": subject.queue_id,
                    "file": subject.file,
                    **facts,
                    "advice": advice,
                }
            )

    def note(self, text: str) -> None:
        """Adds one note."""
        self.notes.append(text)
