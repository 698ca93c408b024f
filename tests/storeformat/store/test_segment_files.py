"""Segments as they lie in the directories of a log: which are taken, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storeformat.errors import MissingInput, NotAStore
from storeformat.store.layout import file_name
from storeformat.store.segment_files import find_segments

SIZE = 4096


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments; a broker may have deleted those before them."""
    for number in (2, 3, 4):
        (tmp_path / file_name(number * SIZE)).write_bytes(bytes(SIZE))
    return tmp_path


def found(*directories: Path, size: int | None = None) -> list[tuple[int, int]]:
    return [(one.base, one.size) for one in find_segments([str(path) for path in directories], size)]


THREE = [(2 * SIZE, SIZE), (3 * SIZE, SIZE), (4 * SIZE, SIZE)]


def test_segments_are_found_in_order_with_their_length(log: Path) -> None:
    (log / "directory").mkdir()
    (log / file_name(5 * SIZE)).touch()  # a broker was making it when it died
    assert found(log) == found(log, size=SIZE) == THREE


def test_segments_of_several_directories_are_one_log(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (log / file_name(3 * SIZE)).rename(other / file_name(3 * SIZE))
    assert found(log, other) == found(other, log) == THREE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda log: (log / file_name(3 * SIZE)).unlink(), "is missing"),
        (lambda log: (log / file_name(3 * SIZE)).write_bytes(bytes(SIZE - 1)), "length"),
        (lambda log: (log / file_name(3 * SIZE)).rename(log / file_name(3 * SIZE + 1)), "multiple"),
        (lambda log: (log / "notes.txt").touch(), "stray"),
        (lambda log: [path.write_bytes(b"") for path in log.iterdir()], "empty"),
    ],
)
def test_what_is_no_log_is_refused(change: Callable[[Path], object], message: str, log: Path) -> None:
    change(log)
    with pytest.raises(NotAStore, match=message):
        found(log)


def test_a_segment_in_two_directories_is_refused(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / file_name(3 * SIZE)).write_bytes(bytes(SIZE))
    with pytest.raises(NotAStore, match="twice"):
        found(log, other)


def test_a_broken_link_or_no_directory_is_missing_input(log: Path) -> None:
    (log / file_name(5 * SIZE)).symlink_to("nowhere")
    with pytest.raises(MissingInput, match="link"):
        found(log)
    with pytest.raises(MissingInput, match="no commit log"):
        found(log / "nowhere")
