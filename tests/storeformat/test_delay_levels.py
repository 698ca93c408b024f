"""The delay levels that a store's own queues show."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden
from support.store_builder import LogBuilder

from storeformat.log.segments import Segment
from storeformat.queues.consume_queue import PRE_BLANK, pack_units
from storeformat.record.dispatch import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storeformat.store.delay_levels import contradicted, shown_delays
from storeformat.store.segment_files import find_segments

DEFAULT = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def write_queue(log: LogBuilder, root: Path, queue_id: int, delays: list[int], blanks: int = 0) -> list[Segment]:
    """Writes one queue whose newest units have these delays, in a file with room after them."""
    placed = [log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=queue_id) for _ in delays]
    times = [(one.message.store_timestamp or 0) + delay for one, delay in zip(placed, delays, strict=True)]
    units = pack_units([one.offset for one in placed], [one.end - one.offset for one in placed], times)
    directory = log.write(root) / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(queue_id)
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((PRE_BLANK * blanks + units.tobytes()).ljust(200_000, b"\0"))
    (directory / f"{200_000:020d}").write_bytes(bytes(200_000))
    return find_segments([str(root / "commitlog")], None)


@pytest.mark.parametrize("blanks", [0, 3_199, 3_200, 3_201, 6_500])
def test_the_newest_unit_tells(tmp_path: Path, blanks: int) -> None:
    segments = write_queue(LogBuilder(), tmp_path, 2, [10_000, 10_000, 2_000], blanks)
    assert shown_delays(str(tmp_path), segments) == {3: 2_000}


def test_units_that_show_nothing(tmp_path: Path) -> None:
    """Of an extended unit, and of a record that is not there."""
    log = LogBuilder()
    segments = write_queue(log, tmp_path, 0, [1_000, -(1 << 62)])
    assert shown_delays(str(tmp_path), segments) == {1: 1_000}
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(bytes(path.stat().st_size))
    assert shown_delays(str(tmp_path), segments) == {}
    assert shown_delays(str(tmp_path / "nowhere"), segments) == {}


def test_a_delay_of_nothing_is_a_delay(tmp_path: Path) -> None:
    assert shown_delays(str(tmp_path), write_queue(LogBuilder(), tmp_path, 2, [5, 0])) == {3: 0}


@pytest.mark.golden
@pytest.mark.parametrize("name", ["base-clean-4.6.1", "base-killed-5.1.4", "base-larger-5.3.3", "base-clean-5.5.0"])
def test_real_brokers_queues_show_the_default(name: str) -> None:
    root = golden.unpack(name)
    shown = shown_delays(str(root), find_segments([str(root / "commitlog")], None))
    assert len(shown) > 3
    assert contradicted(shown, DEFAULT) == []
    assert contradicted(shown, DEFAULT[:-2]) == [level for level in shown if level > 16]


def test_what_contradicts() -> None:
    assert contradicted({1: 1_000, 3: 2_000, 19: 5}, DEFAULT) == [3, 19]
