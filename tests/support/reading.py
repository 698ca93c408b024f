"""Opening a store, reading its log and looking at its queues, in this process and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from support.in_memory import MemoryReader
from support.rebuilding import rebuild_here

from jobs.contract.options import DamagePolicy, LogOptions
from jobs.log import opening
from jobs.log.log_scan import LogReading, scan_log
from jobs.spark.runner import Runner
from storeformat.log.segments import LogPart, Segment
from storeformat.queues import consume_queue as cq
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.storage import files
from udfs.log.scan import ScanTask


def opened(root: Path, *, needs_index_sizes: bool = True, **more: Any) -> opening.OpenedStore:
    return opening.open_store(LogOptions(store=str(root), **more), needs_index_sizes=needs_index_sizes)


def read(root: Path, split_size: int = 1 << 30, on_damage: DamagePolicy = "fail") -> LogReading:
    store = opened(root, on_damage=on_damage)
    task = ScanTask("", DecodeRules(), store.dispatch_rules(), with_entries=False)
    return scan_log(
        Runner(),
        store.segments,
        task,
        split_size=split_size,
        part=LogPart(until=store.until(None)),
        on_damage=on_damage,
    )


def read_segments(
    segments: Mapping[int, bytes | bytearray],
    split_size: int,
    on_damage: DamagePolicy = "fail",
    *,
    changes: Iterable[tuple[int, bytes]] = (),
    **scan: Any,
) -> LogReading:
    """Reads segments in memory, by base, after changes at log offsets; ``scan`` are fields of the ``ScanTask``."""
    found = [Segment(str(base), base, len(segments[base])) for base in sorted(segments)]
    changed = {base: bytearray(data) for base, data in segments.items()}
    for offset, data in changes:
        base = max(base for base in segments if base <= offset)
        changed[base][offset - base : offset - base + len(data)] = data
    contents = {str(base): bytes(data) for base, data in changed.items()}
    task = ScanTask(**{"staging": "", "decode_rules": DecodeRules(), "dispatch_rules": DispatchRules(()),
                       "with_entries": False, **scan})  # fmt: skip
    with mock.patch.object(files, "RangeReader", MemoryReader), mock.patch.object(MemoryReader, "contents", contents):
        return scan_log(Runner(), found, task, split_size=split_size, on_damage=on_damage)


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
