"""The log of an opened store, read as the options of a job say: the front half of every job on a log."""

from __future__ import annotations

from dataclasses import replace

from jobs.contract.options import DamagePolicy, LogOptions
from jobs.log.damage import OnDamage
from jobs.log.log_scan import DEFAULT_SPLIT_SIZE, LogRange, LogReading, scan_log
from jobs.log.opening import OpenedStore
from jobs.spark.runner import Runner
from storeformat.errors import UsageError
from storeformat.log.segments import LogPart
from udfs.log.scan import ScanTask

MOST_SPLITS = 1_000_000
"""The driver keeps some 5 kB of each in mind."""


def read_log(
    store: OpenedStore,
    options: LogOptions,
    runner: Runner,
    task: ScanTask | None = None,
    *,
    split_size: int = DEFAULT_SPLIT_SIZE,
    begin: int | None = None,
    on_damage: DamagePolicy | None = None,
) -> LogReading:
    """Returns the proven reading of a store's log, as ``task`` leaves it; without one nothing is written anywhere.

    ``split_size`` (bytes) counts where the options have none, ``on_damage`` instead of theirs. Raises UsageError if
    there would be too many splits, else as ``scan_log``.
    """
    wanted = options.split_size or split_size
    if (count := store.log_size // wanted) > MOST_SPLITS:
        raise UsageError(
            "--split-size is in bytes, and this one makes too many splits",
            found=f"{count:,} splits", expected=f"at most {MOST_SPLITS:,}",
        )  # fmt: skip
    reading = scan_log(
        runner,
        store.segments,
        task or counting_task(store),
        split_size=wanted,
        part=LogPart(begin, store.until(options.until_offset)),
        on_damage=OnDamage(on_damage or options.on_damage, options.keep_crc_failures),
    )
    return _with_lost_end(store, replace(reading, healed=store.healed), options.until_offset)


def _with_lost_end(store: OpenedStore, reading: LogReading, until: int | None) -> LogReading:
    """Returns the reading with the committed entries among the damage that are lost at the end of a group's log: only
    its checkpoint tells that there were any.
    """
    begin = store.missing_from
    if begin is None or (until is not None and until <= begin) or reading.end > begin:
        return reading
    if any(item.end > begin for item in reading.damaged):
        return reading
    end = store.committed or next(segment.end for segment in store.segments if begin <= segment.end)
    lost = LogRange(begin, max(begin, end), "committed entries are lost here, as the group's checkpoint shows")
    stale = sum(max(min(item.end, end) - max(item.begin, begin), 0) for item in reading.stale)
    unwritten = max(reading.unwritten_bytes - (lost.end - begin - stale), 0)
    return replace(reading, damaged=[*reading.damaged, lost], unwritten_bytes=unwritten)


def counting_task(store: OpenedStore, *, with_units: bool = True) -> ScanTask:
    """Returns a scan that proves and counts records and, where asked to, the units of each queue; it writes nothing."""
    return ScanTask("", store.decode_rules(), store.dispatch_rules(), with_units=with_units, with_entries=False)
