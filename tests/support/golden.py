"""Stores that real brokers wrote: the only reader of ``tests/golden`` (its README says how they were made)."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import struct
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parent.parent / "golden"

SPECIAL_SCENARIOS = frozenset({"batch-cq", "lmq", "cq-ext"})
# Fields the README names for recoveries that no store of this set went through: refuse them until one did.
UNSUPPORTED_FIELDS = ("index_kept_files", "index_gap", "indexed_twice")


@dataclass(frozen=True)
class GoldenStore:
    name: str
    entry: Mapping[str, Any]

    @property
    def version(self) -> str:
        return str(self.entry["rocketmq"])

    @property
    def version_tuple(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    @property
    def scenario(self) -> str:
        return str(self.entry["scenario"])

    @property
    def settings(self) -> Mapping[str, Any]:
        return dict(self.entry["settings"])

    @property
    def compare(self) -> str:
        return str(self.entry["compare"])

    @property
    def min_offset(self) -> int:
        return int(self.entry["log"]["min_offset"])

    @property
    def end_offset(self) -> int:
        return int(self.entry["log"]["end_offset"])

    @property
    def dispatched_up_to(self) -> int | None:
        """The offset where queues and index end, when the broker was killed before dispatch caught up."""
        return self.entry.get("dispatched_up_to")

    @property
    def index_begins_at(self) -> int | None:
        """The offset of the first indexed record, when the broker lost the older index while it recovered."""
        return self.entry.get("index_begins_at")

    @property
    def is_plain(self) -> bool:
        """True when one record makes at most one 20-byte unit, with a plain tags code."""
        return self.scenario not in SPECIAL_SCENARIOS

    @property
    def killed(self) -> bool:
        return str(self.entry["ended"]) == "kill -9"

    @property
    def archive(self) -> Path:
        return GOLDEN / str(self.entry["archive"])

    @property
    def files_only_the_log_knows(self) -> frozenset[str]:
        """Files that follow from the log and that the broker has not (a deleted topic, never used again)."""
        prefix, suffix = "consumequeue: ", ": broker has no such file"
        return frozenset(
            "consumequeue/" + line[len(prefix) : -len(suffix)]
            for line in self.entry.get("model_differences", ())
            if line.startswith(prefix) and line.endswith(suffix)
        )

    def __str__(self) -> str:
        return self.name


@functools.cache
def _manifest() -> tuple[GoldenStore, ...]:
    entries = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))["stores"]
    for entry in entries:
        unsupported = [field for field in UNSUPPORTED_FIELDS if field in entry]
        if unsupported:
            raise NotImplementedError(f"{entry['name']}: no comparison knows what to do with {unsupported}")
    return tuple(GoldenStore(entry["name"], entry) for entry in entries)


def stores(which: str | Callable[[GoldenStore], bool] = "all") -> list[GoldenStore]:
    """The stores of the manifest: ``all``, ``plain`` (no batch-cq, lmq, cq-ext), a scenario, a name or a predicate."""
    if callable(which):
        return [store for store in _manifest() if which(store)]
    if which == "all":
        return list(_manifest())
    if which == "plain":
        return [store for store in _manifest() if store.is_plain]
    found = [store for store in _manifest() if which in (store.scenario, store.name)]
    if not found:
        raise KeyError(f"no golden store or scenario {which!r}")
    return found


def newest_of_each_scenario() -> list[GoldenStore]:
    """The store of the newest release for each scenario."""
    return list({store.scenario: store for store in sorted(_manifest(), key=lambda one: one.version_tuple)}.values())


def sampled(*chosen: Any) -> list[Any]:
    """Parameters: as ``stores``; those of older releases of a scenario are left to ``.ci/release``."""
    newest = newest_of_each_scenario()
    return [store if store in newest else pytest.param(store, marks=pytest.mark.slow) for store in stores(*chosen)]


@functools.cache
def _session_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="golden-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def unpack(name: str | GoldenStore, directory: Path | None = None) -> Path:
    """The named store's root below ``directory``; without one it is shared by the process, and changed by nobody."""
    (store,) = [name] if isinstance(name, GoldenStore) else stores(name)
    if directory is None:
        directory = _session_directory()
    root = directory / store.name
    if root.exists():
        return root
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpack-", dir=directory))
    try:
        with tarfile.open(store.archive) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(scratch)
        try:
            (scratch / store.name).rename(root)
        except OSError:  # another worker was faster
            if not root.exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return root


def chain(root: Path, store: GoldenStore) -> dict[int, int]:
    """Offset and size of every record that the sizes lead to from the first byte of each segment."""
    records: dict[int, int] = {}
    for path in sorted((root / "commitlog").iterdir()):
        data, base, position = path.read_bytes(), int(path.name), 0
        while position + 8 <= len(data) and base + position < store.end_offset:
            size, magic = struct.unpack_from(">iI", data, position)
            if magic not in (0xDAA320A7, 0xDAA320AB):
                break
            records[base + position] = size
            position += size
    return records
