"""Rows that a scan writes: all records, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.store_builder import LogBuilder

from storeformat.errors import TotalsDisagree
from storeformat.log.segments import Segment, plan_splits
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from udfs.log import scan
from udfs.log.scan import ScanTask
from udfs.table import drafts, schemas
from udfs.table.drafts import DraftTask
from udfs.table.parquet_files import WriteFiles
from udfs.table.proven_ranges import ReadRanges
from udfs.table.rows import RowRules


def draft(work: Path) -> drafts.DraftedSplit:
    log = LogBuilder(1 << 20)
    for number in range(5):
        log.message(topic="A", keys=f"k{number}")
    (path,) = (log.write(work / "store") / "commitlog").iterdir()
    write = WriteFiles(
        str(work / "t"), ReadRanges((), RowRules(DispatchRules(()), cluster="c", broker="b")), "zstd",
        schemas.STATISTICS_COLUMNS,
    )  # fmt: skip
    task = ScanTask("", DecodeRules(properties=RowRules(DispatchRules(())).properties), DispatchRules(()))
    (found,) = DraftTask(task, write)(iter(plan_splits([Segment(str(path), 0, path.stat().st_size)], 1 << 30)))
    return found


def test_plain_records_become_rows_too(tmp_path: Path) -> None:
    found = draft(tmp_path)
    assert found.scan.records == sum(file.rows for file in found.files) == 5


def test_records_that_become_no_rows_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_blocks(split: Any, task: ScanTask, also: Any) -> scan.SplitScan:
        return scan.scan_split(split, task)

    monkeypatch.setattr(drafts, "scan_split", without_blocks)
    with pytest.raises(TotalsDisagree, match="other records than became rows"):
        draft(tmp_path)
