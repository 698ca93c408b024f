"""The comparison of ``against_broker.py``, small: what it compares is right, whatever it measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import against_broker

pytestmark = [pytest.mark.benchmark, pytest.mark.realstore, pytest.mark.spark]


def test_the_command_against_the_broker(tmp_path: Path) -> None:
    result = against_broker.measure(tmp_path, 100_000_000, kernels=["numba", "numpy"])
    print("\n" + "\n".join(result.lines()))
    assert result.messages > 90_000
    assert result.log_bytes >= 100_000_000
    assert min(result.broker_process, result.broker_recovery, *(run.seconds for run in result.ours.values())) > 0
    assert result.row().startswith("| 0.1 GB, 0.1 million messages of 1 KB, 320 queues | ")


def test_a_difference_is_found(tmp_path: Path) -> None:
    for side in ("one", "other"):
        for name in ("consumequeue/t/0/00", "index/20260101000000000"):
            path = tmp_path / side / name
            path.parent.mkdir(parents=True)
            path.write_bytes(b"same")
    against_broker.compare(tmp_path / "one", tmp_path / "other")
    (tmp_path / "other/consumequeue/t/0/00").write_bytes(b"sane")
    with pytest.raises(AssertionError, match="differ"):
        against_broker.compare(tmp_path / "one", tmp_path / "other")
