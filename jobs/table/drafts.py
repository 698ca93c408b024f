"""Files of rows that tasks wrote while they proved the log: which are kept, and which are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from jobs.spark.runner import Runner
from storeformat.errors import StoreFormatError
from storeformat.storage import files, locations
from udfs.log.scan import ScanTask
from udfs.table.parquet_files import PARTITION, DraftTask, WriteFiles, WrittenFile
from udfs.table.proven_ranges import ProvenRange
from udfs.table.rows import NO_DOUBT, Doubt

Item = TypeVar("Item")
Row = TypeVar("Row")


class Drafts(Runner):
    """The drafts of one load, and a runner whose scans write them."""

    def __init__(self, runner: Runner, write: WriteFiles) -> None:
        super().__init__()
        self._runner = runner
        self._write = write
        self._files: dict[tuple[int, ...], Sequence[WrittenFile]] = {}

    def map(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        """Run a task; a scan of splits also writes their rows."""
        if not isinstance(task, ScanTask):
            return self._runner.map(what, task, items)
        splits: Any = items
        drafted = self._runner.map(what, DraftTask(task, self._write), splits)
        scans: list[Any] = []
        for scan, written in drafted:
            scans.append(scan)
            place = _place(ProvenRange.of(scan.report, scan.records))
            remove_files(self._write.table, self._files.pop(place, ()))
            self._files[place] = written
        return scans

    def take(
        self, ranges: Sequence[ProvenRange], from_offset: int, doubt: Doubt = NO_DOUBT
    ) -> tuple[list[WrittenFile], tuple[ProvenRange, ...]]:
        """Usable files of proven ranges, and the ranges without one; all other drafts are removed."""
        held: list[WrittenFile] = []
        missing = []
        for proven in ranges:
            doubtful = doubt.meets(proven.split.start, proven.split.stop)
            usable = from_offset == self._write.read.from_offset and not doubtful
            found = self._files.pop(_place(proven), None) if usable else None
            if found is None:
                missing.append(proven)
            else:
                held += found
        self.discard()
        return held, tuple(missing)

    def discard(self) -> None:
        for found in self._files.values():
            remove_files(self._write.table, found)
        self._files = {}


def remove_files(table: str, written: Iterable[WrittenFile]) -> None:
    """Remove files that are in no version of the table."""
    for file in written:
        with suppress(StoreFormatError):  # what stays is harmless, VACUUM removes it; why the load ended says more
            files.remove_object(locations.join(table, file.path))


def remove_files_of(run: str, table: str) -> None:
    """Remove all files of a run, also those of killed tasks, from a local table; no version may have them."""
    if locations.is_local(table):
        for path in Path(locations.local_path(table)).glob(f"{PARTITION}=*/part-*-{run}-*"):
            with suppress(OSError):
                path.unlink()


def _place(proven: ProvenRange) -> tuple[int, ...]:
    return proven.split.segment.base, proven.split.start, proven.split.stop, proven.records
