"""Opening a store, reading its log and looking at its queues, in this process and without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.rebuilding import rebuild_here

from jobs import opening
from jobs.config import LogOptions
from jobs.logscan import LogReading, scan_log
from jobs.running import LocalRunner
from storeformat import consumequeue as cq
from storeformat.records import DecodeRules
from udfs.scan import ScanTask


def opened(root: Path, **more: Any) -> opening.OpenedStore:
    return opening.open_store(LogOptions(store=str(root), **more))


def read(root: Path, split_size: int = 1 << 30, on_damage: str = "fail") -> LogReading:
    store = opened(root, on_damage=on_damage)
    task = ScanTask("", DecodeRules(), store.dispatch_rules(), with_entries=False)
    return scan_log(
        LocalRunner(), store.segments, task, split_size=split_size, on_damage=on_damage, until=store.until(None)
    )


def queue_offsets(directory: Path) -> list[int]:
    """The log offsets in all queues of a rebuilt store, ascending."""
    found: list[int] = []
    for path in (directory / "consumequeue").rglob("0*"):
        if path.is_file():
            units = cq.parse_units(path.read_bytes())
            found += units["phy_offset"][: cq.written_units(units)].tolist()
    return sorted(found)


def rebuilt(root: Path, work: Path, **more: Any) -> Path:
    work.mkdir()
    return Path(rebuild_here(root, work, {"maxHashSlotNum": 100, "maxIndexNum": 50}, **more).directory)
