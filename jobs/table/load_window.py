"""The part of the log that a load reads, and the rows that it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.contract.options import LoadOptions
from jobs.table import commits
from storeformat.errors import Refused, UsageError
from storeformat.log.segments import Segment, segment_at
from storeformat.message import BLANK_SIZE
from storeformat.storage import files, locations

Row = dict[str, Any]

_TASKS_A_CORE = 4
_SMALLEST_SPLIT, _LARGEST_SPLIT = 64 << 20, 1 << 30


@dataclass(frozen=True)
class Window:
    """What a load reads (from the segment base ``scan_from``) and replaces (from ``rows_from``). The scan must meet the
    record of ``last``, the newest row before; ``gap`` was never loaded and is gone; ``tail``: see ``tail_of``.
    """

    scan_from: int
    rows_from: int
    epoch: int = 0
    last: Row | None = None
    gap: tuple[int, int] | None = None
    repair: bool = False
    tail: int | None = None


def end_of(row: Row | None) -> int | None:
    """Offset after a row's record."""
    return row["commit_log_offset"] + row["size"] if row else None


def plan_window(
    options: LoadOptions, segments: Sequence[Segment], state: commits.BrokerState | None, last: Row | None
) -> Window:
    """What to load next; ``last`` is the newest row below ``repair_from`` or the end of the last load."""
    log_begin = segments[0].base
    if state is None:
        if options.repair_from is not None:
            raise UsageError("--repair-from: nothing of this broker was loaded yet")
        return Window(log_begin, log_begin)
    begin, epoch, repair = state.end, state.epoch, False
    if options.repair_from is not None:
        if options.repair_from > begin:
            raise UsageError(f"--repair-from {options.repair_from}: the loaded range ends at {begin}")
        if options.repair_from < log_begin <= begin:
            raise Refused(
                "the log begins after --repair-from: the rows before are in the table alone",
                found=options.repair_from, expected=log_begin,
                advice=f"--repair-from {log_begin} replaces what the log still has",
            )  # fmt: skip
        epoch, repair = epoch + 1, True
        begin = options.repair_from if options.repair_from >= log_begin else begin
    if begin < log_begin:
        if not options.allow_gap:
            raise Refused(
                "the log begins after the end of the last load: retention deleted records that were never loaded",
                found=log_begin, expected=begin, advice="--allow-gap continues and records the gap",
            )  # fmt: skip
        return Window(log_begin, log_begin, epoch, gap=(begin, log_begin), repair=repair)
    if last is not None and last["commit_log_offset"] < log_begin:
        last = None  # its segment is gone, as it should be
    known = begin if last is None else last["commit_log_offset"]
    # From the first byte of its segment on: only the sizes tell a record of the log from one that was truncated away.
    base = (segment_at(segments, known) or segments[-1]).base
    same = begin > log_begin and not repair and state.salvaged_from is None
    return Window(base, begin, epoch, last, repair=repair, tail=state.tail if same else None)


def nothing_follows(segments: Sequence[Segment], window: Window) -> bool:
    """True if a local log seems to end where the last load ended; only a reading proves it."""
    if window.last is None or window.repair or not all(locations.is_local(segment.path) for segment in segments):
        return False
    end = window.rows_from
    segment = segment_at(segments, end)
    if segment is None:
        return end == segments[-1].end
    return not any(files.read_range(segment.path, end - segment.base, min(BLANK_SIZE, segment.end - end)))


def split_size_for(size: int, cores: int) -> int:
    """Bytes of log per task and table file: small loads keep all cores busy, large ones get few large files."""
    return max(min(size // (_TASKS_A_CORE * cores), _LARGEST_SPLIT), _SMALLEST_SPLIT)
