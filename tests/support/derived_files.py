"""The files of a store that follow from its log, and which of them differ from another's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

QUEUES = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


def derived(root: Path, queues: Sequence[str] = QUEUES) -> dict[str, bytes]:
    """Queue files by path, index files by rank: their names are the wall clock's."""
    found = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for part in queues
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    index = {f"index/{rank}": path.read_bytes() for rank, path in enumerate(sorted((root / "index").iterdir()))}
    return {**found, **index}


def differing(expected: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """The names of files that are not the same on both sides, or are on one side alone."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
