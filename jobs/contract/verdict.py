"""The status of a report, derived from its facts so that they cannot contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXIT_CODE_OF_STATUS = {
    "ok": 0, "differences": 1, "damaged": 1, "unsafe": 1, "unknown": 1, "nothing_found": 1, "refused": 2, "error": 70,
}  # fmt: skip
_LOSSES = ("damaged_ranges", "kept_records", "lost_messages", "lost_messages_at_least")


def status_of(facts: Mapping[str, Any], *, differs: bool = False, damaged: bool = False, unknown: bool = False) -> str:
    """Status of a finished job; the flags add what the facts do not say."""
    if differs or facts.get("counts"):
        return "differences"
    if damaged or any(facts.get(name) for name in _LOSSES):
        return "damaged"
    if not str(facts.get("answer", "safe")).startswith("safe"):
        return "unsafe"
    return "unknown" if unknown else "ok" if facts.get("found", True) else "nothing_found"
