"""Units of BatchCQ topics, staged by queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storeformat.queues.batch_consume_queue import UNIT, parse_units
from storeformat.record.dispatch import BatchUnits
from udfs.log import batch_queues
from udfs.log.batch_queues import NO_BATCHES, BatchRunWriter


def units_of(*rows: tuple[int, int, int, int, int]) -> BatchUnits:
    """Units given as topic code, queue id, commit-log offset, base and messages."""
    units = np.zeros(len(rows), UNIT)
    for unit, (_, _, offset, base, messages) in zip(units, rows, strict=True):
        unit["phy_offset"], unit["msg_base_offset"], unit["batch_size"] = offset, base, messages
    topics, queues = (np.array([row[column] for row in rows], np.int32) for column in (0, 1))
    return BatchUnits(topics, queues, units)


@pytest.mark.parametrize("flush_units", [1, 1 << 18])
def test_units_are_grouped_by_queue_and_cut_where_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_units: int
) -> None:
    monkeypatch.setattr(batch_queues, "_FLUSH_UNITS", flush_units)
    writer = BatchRunWriter(str(tmp_path), "s")
    writer.add(units_of((1, 0, 10, 5, 2), (0, 3, 20, 0, 4), (1, 0, 30, 7, 1), (1, 0, 40, 0, 3)))
    writer.flush()
    writer.close(None, None)
    staged = writer.staged()
    runs = staged.runs
    assert parse_units(Path(writer.path).read_bytes())["phy_offset"].tolist() == [20, 10, 30, 40]
    assert (runs.topic_codes.tolist(), runs.queue_ids.tolist()) == ([0, 1, 1], [3, 0, 0])
    assert (runs.begins.tolist(), runs.counts.tolist()) == ([0, 1, 3], [1, 2, 1])
    assert (runs.births.tolist(), runs.messages.tolist()) == ([1, 0, 1], [4, 3, 3])
    assert (staged.count, staged.offset_sum) == (4, 100)


def test_nothing_is_written_where_nothing_is_staged() -> None:
    writer = BatchRunWriter("", "s")
    assert writer.staged() is NO_BATCHES
    writer.add(units_of((0, 0, 10, 0, 1)))
    writer.flush()
    writer.close(None, None)
    staged = writer.staged()
    assert (staged.path, staged.count, len(staged.runs.counts)) == ("", 1, 1)
