"""Which ranges are read, and how rows are written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.spark import transforms
from udfs.table import schemas
from udfs.table.proven_ranges import ProvenRange, ReadRanges
from udfs.table.rows import RowRules


def test_ranges_with_records_from_an_offset_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProvenRange, "of", lambda report, records: (report.end, records))
    scans: Any = [
        SimpleNamespace(report=SimpleNamespace(start=start, end=end), records=records)
        for start, end, records in ((0, 10, 1), (None, 20, 2), (20, 30, 0), (30, 40, 4), (40, 50, 5))
    ]
    assert transforms.proven_ranges(scans) == ((10, 1), (40, 4), (50, 5))
    assert transforms.proven_ranges(scans, 39) == ((40, 4), (50, 5))
    assert transforms.proven_ranges(scans, 40) == ((50, 5),)


@pytest.mark.parametrize(
    ("named", "codec"),
    [(None, "zstd"), ("snappy", "snappy"), ("UNCOMPRESSED", "none"), ("lz4_raw", "lz4"), ("GZIP", "GZIP")],
)
def test_a_codec_is_parquets_or_the_users(named: str | None, codec: str) -> None:
    asked = []

    def setting(name: str, default: str) -> str:
        asked.append(name)
        return default if named is None else named

    rules: Any = RowRules(None, columns=("topic",))  # type: ignore[arg-type]
    read = ReadRanges((1, 2), rules)  # type: ignore[arg-type]
    writer = transforms.file_writer(setting, "/table", read, "run")
    assert asked == ["spark.sql.parquet.compression.codec"]
    assert (writer.table, writer.codec, writer.run) == ("/table", codec, "run")
    assert writer.statistics == schemas.STATISTICS_COLUMNS
    assert (writer.read.ranges, writer.read.rules.encoded, writer.read.rules.columns) == ((), True, ("topic",))
    assert not read.rules.encoded
