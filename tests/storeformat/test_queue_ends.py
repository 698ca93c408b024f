"""The end of a queue, read whole and by bisection."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from storeformat.store import queue_ends
from storeformat.store.queue_ends import QueueEnd, offset_at, units_at

UNIT = struct.Struct(">qiq")
BATCH = struct.Struct(">qiqqqhii")
FILE = 400


def write(root: Path, *files: tuple[int, bytes], kind: str = "consumequeue", size: int = FILE) -> QueueEnd:
    directory = root / kind / "T" / "3"
    directory.mkdir(parents=True)
    for base, content in files:
        (directory / f"{base:020d}").write_bytes(content.ljust(size, b"\0"))
    (found,) = queue_ends.queue_ends(str(root))
    assert (found.topic, found.queue_id, found.batch) == ("T", 3, kind != "consumequeue")
    return found


def units(first: int, count: int) -> bytes:
    """Units of records of 100 bytes, one after the other."""
    return b"".join(UNIT.pack(number * 100, 100, 7) for number in range(first, first + count))


@pytest.fixture(params=[queue_ends.READ_WHOLE, 0], ids=["whole", "bisected"])
def _reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_ends, "READ_WHOLE", request.param)


@pytest.mark.usefixtures("_reading")
@pytest.mark.parametrize("count", [1, 7, 19, 20])
def test_one_file(tmp_path: Path, count: int) -> None:
    found = write(tmp_path, (0, units(0, count)))
    assert (found.begin, found.end, found.end_offset) == (0, count, count * 100)


@pytest.mark.usefixtures("_reading")
def test_many_files(tmp_path: Path) -> None:
    found = write(tmp_path, *((base * FILE, units(base * 20, 20)) for base in range(2, 6)), (2400, units(120, 3)))
    assert (found.begin, found.end, found.end_offset) == (40, 123, 12_300)
    assert [offset_at(found, place) for place in (0, 4_000, 7_950, 12_200, 12_201, 99_999)] == [
        40,
        40,
        80,
        122,
        123,
        123,
    ]
    some = units_at(found, np.array([122, 39, 1 << 40, 40, 81, 60]))
    assert some.tolist() == [(12_200, 100, 7), (0, 0, 0), (0, 0, 0), (4_000, 100, 7), (8_100, 100, 7), (6_000, 100, 7)]
    assert units_at(found, np.zeros(0, np.int64)).tolist() == []


@pytest.mark.usefixtures("_reading")
def test_fillers_at_the_head_are_no_messages(tmp_path: Path) -> None:
    found = write(tmp_path, (0, UNIT.pack(0, 0x7FFFFFFF, 0) * 5 + units(5, 4)))
    assert (found.begin, found.end, found.end_offset) == (5, 9, 900)
    assert offset_at(found, 0) == 0
    assert offset_at(found, 500) == 5


@pytest.mark.usefixtures("_reading")
def test_a_queue_of_fillers(tmp_path: Path) -> None:
    assert write(tmp_path, (0, UNIT.pack(0, 0x7FFFFFFF, 0) * 5)).ends_in_pre_blank


@pytest.mark.usefixtures("_reading")
def test_an_unfinished_file_ends_the_queue(tmp_path: Path) -> None:
    found = write(tmp_path, (0, units(0, 20)), (400, units(20, 8)), (800, units(40, 5)))
    assert (found.end, found.lost_units, found.empty_last) == (28, 5, False)


@pytest.mark.usefixtures("_reading")
def test_an_empty_last_file(tmp_path: Path) -> None:
    found = write(tmp_path, (0, units(0, 20)), (400, b""))
    assert (found.end, found.end_offset, found.empty_last) == (20, 2_000, True)


def test_an_empty_file_alone(tmp_path: Path) -> None:
    found = write(tmp_path, (0, b""))
    assert (found.end, found.end_offset, found.empty_last) == (0, -1, True)


@pytest.mark.usefixtures("_reading")
def test_batch_units(tmp_path: Path) -> None:
    content = b"".join(BATCH.pack(number * 100, 100, 7, 1, number * 4, 4, -1, 0) for number in range(6))
    found = write(tmp_path, (0, content), kind="batchconsumequeue", size=460)
    assert (found.end, found.end_offset) == (24, 600)
    assert [offset_at(found, place) for place in (0, 101, 600)] == [0, 8, 24]


@pytest.mark.usefixtures("_reading")
def test_batch_units_after_the_end(tmp_path: Path) -> None:
    """A file that is not full, and one of three units after it."""
    one, other = (
        b"".join(BATCH.pack(number * 100, 100, 7, 1, number * 4, 4, -1, 0) for number in numbers)
        for numbers in (range(6), range(10, 13))
    )
    found = write(tmp_path, (0, one), (460, other), kind="batchconsumequeue", size=460)
    assert (found.end, found.end_offset, found.lost_units, found.empty_last) == (24, 600, 3, False)


@pytest.mark.usefixtures("_reading")
@pytest.mark.parametrize("count", [0, 1, 5, 3_277])
def test_a_file_that_ends_in_a_hole(tmp_path: Path, count: int) -> None:
    directory = tmp_path / "consumequeue" / "T" / "3"
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}").open("wb") as file:
        file.write(units(0, count))
        file.truncate(6_000_000)
    (found,) = queue_ends.queue_ends(str(tmp_path))
    assert (found.end, found.end_offset) == (count, count * 100 if count else -1)


def test_all_queues_but_some(tmp_path: Path) -> None:
    write(tmp_path, (0, units(0, 1)))
    assert queue_ends.queue_ends(str(tmp_path), but={("T", 3), ("T", 4)}) == []


def test_stray_files_and_names(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "T" / "x").mkdir(parents=True)
    (tmp_path / "consumequeue" / "CURRENT").touch()
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir()
    (directory / "a.bak").touch()
    (found,) = queue_ends.queue_ends(str(tmp_path))
    assert [file.name for file in found.stray] == ["a.bak"]
    assert (found.files, found.end, found.end_offset) == ((), 0, -1)
