"""The benchmark of ``load``, small: it runs, and both tables have the same rows, whatever the speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import load_speed
from support.distinct_log import write_distinct_log

pytestmark = [pytest.mark.benchmark, pytest.mark.spark]


def test_load_and_the_plain_decoder_make_the_same_rows(tmp_path: Path) -> None:
    segment = tmp_path / "store" / "commitlog" / f"{0:020d}"
    segment.parent.mkdir(parents=True)
    messages = write_distinct_log(segment, 20_000_000)
    (tmp_path / "work").mkdir()
    found = load_speed.measure(tmp_path / "store", tmp_path / "work")
    print("\n" + "\n".join(found.lines()))
    assert found.messages == messages
    assert 0 < found.table_bytes < found.log_bytes
