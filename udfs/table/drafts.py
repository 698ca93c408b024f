"""Splits of the commit log -> what a scan says of them, and files with their rows, in one pass.

A task proves its split and writes the rows of what it reads as it goes, into the table's directory. Such files are
drafts: no version of the table has them, so nobody reads them. The driver judges the chain through all splits; it
commits the files of those that hold, and removes the others (``jobs.table.drafts``). What a killed load leaves stays
unread, until VACUUM removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from storeformat.errors import TotalsDisagree
from storeformat.log.segments import Split
from udfs.log.scan import ScanTask, SplitScan, scan_split
from udfs.table.parquet_files import RangeFiles, WriteFiles, WrittenFile


@dataclass(frozen=True)
class DraftedSplit:
    """What a scan says of a split, and the files with its rows."""

    scan: SplitScan
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True)
class DraftTask:
    """A mapper from splits to their scans and rows; raises TotalsDisagree if a scan counts other records than rows."""

    scan: ScanTask
    write: WriteFiles

    def __call__(self, splits: Iterator[Split]) -> Iterator[DraftedSplit]:
        for split in splits:
            with ExitStack() as streams:
                rows = RangeFiles(self.write, split.number, streams)
                scan = scan_split(split, self.scan, rows.add)
                drafted = DraftedSplit(scan, tuple(rows.finish()))
                if rows.seen != scan.records:
                    raise TotalsDisagree(
                        "a scan counts other records than became rows", path=split.segment.path, found=rows.seen,
                        expected=scan.records,
                    )  # fmt: skip
            yield drafted
