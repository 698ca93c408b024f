"""What scans say of the time before a place, and in which order their runs come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jobs.log import log_scan, verified_chain
from jobs.log.log_scan import LogRange
from storeformat.errors import TotalsDisagree


def scan_of(*runs: tuple[int, int, int, int, int, int], topics: tuple[bytes, ...] = (b"A", b"B")) -> Any:
    """A scan with runs: topic code, queue id, first queue offset, count, log offsets of the first and the last."""
    names = ("topic_codes", "queue_ids", "first_queue_offsets", "counts", "first_offsets", "last_offsets")
    columns = {name: np.array([run[at] for run in runs], np.int64) for at, name in enumerate(names)}
    return SimpleNamespace(runs=SimpleNamespace(**columns), topics=topics)


def test_runs_come_in_the_order_of_the_log_or_in_the_opposite_one() -> None:
    scans = [scan_of((0, 1, 5, 2, 10, 20), (1, 0, 7, 3, 30, 50)), scan_of((0, 0, 9, 1, 60, 60), topics=(b"C",))]
    expected = [
        ((b"A", 1), 5, 2, (10, 20)), ((b"B", 0), 7, 3, (30, 50)), ((b"C", 0), 9, 1, (60, 60)),
    ]  # fmt: skip
    assert list(verified_chain.queue_runs(scans)) == expected
    assert list(verified_chain.queue_runs(scans[::-1], backwards=True)) == expected[::-1]


def test_the_time_before_a_place_is_told_by_the_last_three_records(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(verified_chain, "latest_time", lambda *given: asked.append(given) or 7)
    scans: list[Any] = [SimpleNamespace(times=SimpleNamespace(recent=recent)) for recent in ([9], [1, 2, 3], [4, 5])]
    assert verified_chain.time_before(scans, 8) == 7
    assert verified_chain.time_before(scans[:2], None) == 7
    assert verified_chain.time_before(scans[:1], None) == 7
    assert asked == [([3, 4, 5], 8), ([1, 2, 3], None), ([9], None)]
    assert verified_chain.time_before([], 8) is None


def test_a_split_without_its_scan_is_not_passed_over() -> None:
    scans: Any = [SimpleNamespace(report=SimpleNamespace(split=SimpleNamespace(number=number))) for number in (0, 2)]
    splits: Any = [SimpleNamespace(number=number) for number in range(3)]
    with pytest.raises(TotalsDisagree) as error:
        log_scan.sharing(scans, splits)
    assert str(error.value) == "scans were lost: found 2, expected 3"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, None),
        ({"blank_bytes": 9}, "the records of the log leave gaps or overlap: found 99, expected 100"),
        ({"stale": [LogRange(99, 101, "")]}, "the records of the log leave gaps or overlap: found 102, expected 100"),
        ({"stale": [LogRange(100, 120, "")]}, None),
        ({"damaged": [LogRange(90, 90, "")]}, "the records of the log leave gaps or overlap: found 85, expected 100"),
        ({"record_bytes": 61}, "the records of a split leave gaps or overlap: found 71, expected 80 (offset 10)"),
    ],
)
def test_every_byte_is_counted_once(change: dict[str, Any], text: str | None) -> None:
    """Of a log [0, 100): 60 bytes of records, 7 of heads, 3 foreign, 10 of a BLANK, 15 damaged, 5 more of records."""

    def scan(begin: int, end: int, record_bytes: int, head_bytes: int, foreign: list[tuple[int, int]]) -> Any:
        return SimpleNamespace(
            report=SimpleNamespace(start=begin, end=end), record_bytes=record_bytes, head_bytes=head_bytes,
            foreign_records=foreign,
        )  # fmt: skip

    own = change.pop("record_bytes", 60)
    reading: Any = SimpleNamespace(**{
        "scans": [scan(10, 80, own, 7, [(70, 3)]), scan(0, 5, 5, 0, [])], "record_bytes": own + 5,
        "foreign_records": [(70, 3)], "blank_bytes": 10, "damaged": [LogRange(85, 100, "")], "stale": [],
        "begin": 0, "end": 100, **change,
    })  # fmt: skip
    if text is None:
        log_scan._check_tiling(reading)
        return
    with pytest.raises(TotalsDisagree) as error:
        log_scan._check_tiling(reading)
    assert str(error.value) == text
