"""Reasons and the answer that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

SAFE = "safe to start"
SAFE_BUT = "safe to start, but read this first"
UNSAFE = "not safe to start"


def first_of(names: Sequence[str]) -> str:
    """Returns the first five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@dataclass(frozen=True)
class Reason:
    """One thing that the next start of the broker makes of a store.

    ``what`` says it with figures; ``found`` and ``expected`` are the two sides of the check; ``cure`` is what to do
    before the start. ``unsafe`` where messages would be lost, read twice or not be served, or the broker not start.
    """

    rule: str
    what: str
    found: Any = None
    expected: Any = None
    cure: str = ""
    unsafe: bool = True


@dataclass(frozen=True)
class Answer:
    """What was found, unsafe reasons first."""

    reasons: tuple[Reason, ...] = ()

    @property
    def safe(self) -> bool:
        return not any(reason.unsafe for reason in self.reasons)

    @property
    def first_line(self) -> str:
        return SAFE if not self.reasons else SAFE_BUT if self.safe else UNSAFE

    def facts(self) -> dict[str, Any]:
        """Returns the answer as fields of a report."""
        return {"answer": self.first_line, "reasons": [asdict(reason) for reason in self.reasons]}

    def lines(self) -> list[str]:
        """Returns the answer for a person: first line, then reasons, each with its cure."""
        lines = [self.first_line]
        for reason in self.reasons:
            words = (f"{'' if reason.unsafe else 'note: '}{reason.rule}: {reason.what}", f"    {reason.cure}".rstrip())
            lines += filter(None, words)
        return lines


def answer_of(reasons: Sequence[Reason]) -> Answer:
    """Returns the answer that reasons add up to."""
    return Answer(tuple(sorted(reasons, key=lambda reason: not reason.unsafe)))
