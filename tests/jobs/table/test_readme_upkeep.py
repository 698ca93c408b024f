"""README's weekly statements for the table: each closed date is rewritten once, whatever else is there stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

README = Path(__file__).resolve().parents[3] / "README.md"


def statements() -> list[str]:
    (block,) = re.findall(r"```sql\n(OPTIMIZE .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [line.partition(";")[0] for line in block.strip().split("\n")]


@pytest.mark.slow
def test_each_closed_date_is_rewritten_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "messages")
    rows = spark.range(10).selectExpr(
        "date_sub(current_date(), CAST(id AS INT)) AS store_date", "'T' AS topic", "now() AS store_timestamp"
    )
    for _ in range(2):
        rows.write.format("delta").mode("append").partitionBy("store_date").save(path)

    def files_by_age() -> list[set[str]]:
        named: dict[str, set[str]] = {}
        for file in map(Path, DeltaTable(path).file_uris()):
            named.setdefault(file.parent.name, set()).add(file.name)
        return [named[date] for date in sorted(named, reverse=True)]

    before = files_by_age()
    for statement in statements():
        spark.sql(statement.replace("/data/messages", path))
    after = files_by_age()
    assert [len(files) for files in after] == [2, *[1] * 7, 2, 2]
    assert [after[0], *after[8:]] == [before[0], *before[8:]]
