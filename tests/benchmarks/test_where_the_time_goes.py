"""The benchmarks that explain the speed, small: their tables add up and name every part, whatever they measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import where_the_time_goes
from support.uniform_log import uniform_log

pytestmark = pytest.mark.benchmark
LOG = uniform_log(48 << 20)
SEGMENT = 80 << 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one segment, the end of which was never written."""
    segment = tmp_path / "store" / "commitlog" / f"{0:020d}"
    segment.parent.mkdir(parents=True)
    with segment.open("wb") as file:
        file.write(LOG.data)
        file.truncate(SEGMENT)
    return tmp_path / "store"


@pytest.mark.spark
def test_every_second_has_a_name(store: Path, tmp_path: Path) -> None:
    options = ["--set", f"mappedFileSizeCommitLog={SEGMENT}", "--split-size", str(8 << 20)]
    found = where_the_time_goes.profile(store, tmp_path / "work", job=options)
    assert "start of the JVM" in found.process
    print("\n" + "\n".join(found.lines()))
    assert found.report["messages"] == LOG.messages
    assert found.cores == 2
    assert min(found.process.values()) >= 0
    assert sum(found.process.values()) == pytest.approx(found.report["seconds"], abs=5)
    for stage, parts in found.stages.items():
        assert min(parts.values()) > -0.01
        assert sum(parts.values()) == pytest.approx(found.cores * found.process[stage], rel=0.01)
        cost = found.costs[stage]
        busy = sum(seconds for name, seconds in parts.items() if name not in where_the_time_goes.WITHOUT_TASK)
        assert busy == pytest.approx(cost["seconds"], rel=0.1)
        assert cost["peak"] < 1 << 30
    scan, build = found.stages.values()
    assert {"read the log", "chain", "check and dispatch plain records", "group units", "write staged runs"} <= set(
        scan
    )
    assert {"read staged runs", "link entries", "write files", "read back", "digest (SHA-256)"} <= set(build)
    assert not (tmp_path / "work" / "built").exists()
