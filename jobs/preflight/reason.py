"""Reasons, and the answer that they add up to. ``rules.ini`` has the sentences of all rules: a rule yields values."""

from __future__ import annotations

import configparser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from jobs.contract.report import reason_lines

SAFE = "safe to start"
SAFE_BUT = "safe to start, but read this first"
UNSAFE = "not safe to start"

ROWS = configparser.ConfigParser(interpolation=None)
ROWS.read_string(resources.files("jobs.preflight").joinpath("rules.ini").read_text(encoding="ascii"))


def first_of(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@dataclass(frozen=True)
class Reason:
    """One thing that the next start of the broker makes of a store, and what to do before it.

    ``unsafe`` where messages would be lost, read twice or not be served, or the broker not start, or where that is not
    ``known``.
    """

    rule: str
    what: str
    cure: str = ""
    unsafe: bool = True
    values: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its sentences are made of."""
    known: bool = True
    recover: str = ""
    """What ``recover`` does about it, see ``rules.ini``."""

    @classmethod
    def of(cls, case: str, /, *, unsafe: bool | None = None, **values: Any) -> Reason:
        """A row of ``rules.ini`` with its values; ``case`` is a rule, or ``rule.case``."""
        row = ROWS[case]
        what, cure, recover = (
            " ".join(row.get(name, "").split("\n")).format(**values) for name in ("what", "cure", "recover")
        )
        severity = row["severity"]
        unsafe = severity != "note" if unsafe is None else unsafe
        return cls(case.partition(".")[0], what, cure, unsafe, values, severity != "unknown", recover)

    def facts(self) -> dict[str, Any]:
        return {"rule": self.rule, "what": self.what, "cure": self.cure, "unsafe": self.unsafe, "recover": self.recover}


@dataclass(frozen=True)
class Answer:
    """What was found, unsafe reasons first."""

    reasons: tuple[Reason, ...] = ()

    @property
    def safe(self) -> bool:
        return not any(reason.unsafe for reason in self.reasons)

    @property
    def first_line(self) -> str:
        if self.safe:
            return SAFE_BUT if self.reasons else SAFE
        in_doubt = [reason for reason in self.reasons if reason.unsafe]
        return UNSAFE if any(reason.known for reason in in_doubt) else f"not known: {in_doubt[0].what}"

    def facts(self) -> dict[str, Any]:
        """The answer as fields of a report."""
        return {"answer": self.first_line, "reasons": [reason.facts() for reason in self.reasons]}

    def lines(self) -> list[str]:
        """The answer for a person: first line, then reasons, each with its cure."""
        return [self.first_line, *reason_lines([reason.facts() for reason in self.reasons])]


def answer_of(reasons: Sequence[Reason]) -> Answer:
    """The answer that reasons add up to."""
    return Answer(tuple(sorted(reasons, key=lambda reason: not reason.unsafe)))
