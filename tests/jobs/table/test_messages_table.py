"""Where a table can be made, and what Spark must have for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.table.messages_table import _is_free


@pytest.mark.parametrize(
    ("there", "free"),
    [
        ([], True),
        (["_delta_log/"], True),
        (["_delta_log/_commits/"], True),
        (["_delta_log/00000000000000000000.json"], False),
        (["_delta_log/00000000000000000010.checkpoint.parquet"], False),
        (["_delta_log/", "part-0.parquet"], False),
        (["notes.txt"], False),
    ],
)
def test_a_table_is_made_where_there_is_nothing_or_a_log_without_a_version(
    there: list[str], free: bool, tmp_path: Path
) -> None:
    for name in there:
        path = tmp_path / "messages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=True) if name.endswith("/") else path.touch()
    assert _is_free(str(tmp_path / "messages")) is free
