"""What a load reads, and which rows it replaces."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.contract.options import LoadOptions
from jobs.table.commits import BrokerState
from jobs.table.load_window import Window, plan_window, split_size_for
from storeformat.errors import Refused, UsageError
from storeformat.log.segments import Segment

SEGMENTS = [Segment("a", 1000, 1000), Segment("b", 2000, 1000), Segment("c", 3000, 1000)]
LAST = {"commit_log_offset": 2400, "size": 100}


def plan(end: int | None, last: dict[str, Any] | None = None, **options: Any) -> Window:
    state = None if end is None else BrokerState(end, 3)
    return plan_window(LoadOptions(store="", table="", cluster="", broker="", **options), SEGMENTS, state, last)


def test_a_first_load_takes_the_whole_log() -> None:
    assert plan(None) == Window(1000, 1000)
    with pytest.raises(UsageError, match="nothing of this broker"):
        plan(None, repair_from=1000)


def test_the_scan_begins_with_the_segment_of_the_newest_row() -> None:
    assert plan(2500, LAST) == Window(2000, 2500, 3, LAST)
    assert plan(3000, LAST) == Window(2000, 3000, 3, LAST)
    assert plan(3000) == Window(3000, 3000, 3)
    assert plan(4000) == Window(3000, 4000, 3)
    assert plan(1000, {"commit_log_offset": 999, "size": 1}) == Window(1000, 1000, 3)


def test_a_repair_begins_an_epoch() -> None:
    assert plan(2500, repair_from=2500) == Window(2000, 2500, 4, repair=True)
    assert plan(2500, repair_from=2499).replace_from == 2499
    with pytest.raises(UsageError, match="ends at 2500"):
        plan(2500, repair_from=2501)


def test_a_gap_must_be_allowed() -> None:
    with pytest.raises(Refused, match="never loaded"):
        plan(999)
    assert plan(999, allow_gap=True) == Window(1000, 1000, 3, gap=(999, 1000))
    repair = plan(2500, repair_from=0, allow_gap=True)
    assert (repair.rows_from, repair.replace_from) == (1000, 0)


@pytest.mark.parametrize(
    ("size", "cores", "split"),
    [(0, 2, 64 << 20), (1 << 30, 2, 128 << 20), (1 << 40, 2, 1 << 30), (1 << 30, 64, 64 << 20)],
)
def test_splits_keep_all_cores_at_work(size: int, cores: int, split: int) -> None:
    assert split_size_for(size, cores) == split
