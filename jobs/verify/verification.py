"""What all comparisons of one verification share: the store, the reading of its log, and where findings go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.spark.runner import Runner
from jobs.verify.differences import Verdicts


@dataclass(frozen=True)
class Verification:
    """One verification under way. ``cut`` says that the log goes on after what was read of it, so that units and
    entries which point there are fine.
    """

    store: OpenedStore
    reading: LogReading
    runner: Runner
    verdicts: Verdicts
    cut: bool = False

    @cached_property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """The ranges [begin, end) of the log about whose records nothing can be said: damaged ones, repaired ones, and
        records that do not carry the offset at which they lie.
        """
        reading = self.reading
        ranges = [(item.begin, item.end) for item in reading.damaged]
        ranges += [(offset, offset + size) for scan in reading.scans for offset, size in scan.fillers]
        return (*ranges, *((offset, offset + size) for offset, size in reading.foreign_records))
