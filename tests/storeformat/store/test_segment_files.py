"""Segments as they lie in the directories of a log: which are taken, and what is wrong with the others."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.refusals import refusal

from storeformat.errors import MissingInput, NotAStore, StoreFormatError
from storeformat.log.dledger import ENTRIES
from storeformat.log.framing import PLAIN
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


def refused(kind: type[StoreFormatError], *directories: Path | str, size: int | None = None) -> tuple[object, ...]:
    """What the error says: what, where, found, expected, advice."""
    said = refusal(kind, lambda: find_segments([str(path) for path in directories], size))
    return tuple(said.get(part) for part in ("what", "path", "found", "expected", "advice"))


LENGTHS = (
    "all have mappedFileSizeCommitLog bytes; a shorter one was truncated or is still being copied:"
    " fetch it again, name a copy that has it (--replica ROOT), or --on-damage salvage"
)
PUT_BACK = (
    "the file {name} should come before it: put it back, name a copy that has it"
    " (--replica ROOT), or --on-damage salvage"
)


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_segments_of_another_length_are_refused(log: Path, size: int) -> None:
    path = log / file_name(3 * SIZE)
    path.write_bytes(bytes(size))
    assert refused(NotAStore, log) == ("a segment has the wrong length", str(path), size, SIZE, LENGTHS)
    path.write_bytes(bytes(SIZE))
    first = str(log / file_name(2 * SIZE))
    assert refused(NotAStore, log, size=size) == ("a segment has the wrong length", first, SIZE, size, LENGTHS)


def test_names_must_be_multiples_of_the_length(log: Path) -> None:
    path = (log / file_name(3 * SIZE)).rename(log / file_name(3 * SIZE + 1))
    what = "a segment's name is not a multiple of the segment size"
    assert refused(NotAStore, log) == (what, str(path), 3 * SIZE + 1, SIZE, None)


def test_a_gap_is_refused_with_the_name_that_should_be_there(log: Path) -> None:
    (log / file_name(3 * SIZE)).unlink()
    advice = PUT_BACK.format(name="00000000000000012288")
    what = "a segment is missing in the commit log"
    assert refused(NotAStore, log) == (what, str(log / file_name(4 * SIZE)), 4 * SIZE, 3 * SIZE, advice)


def test_a_log_without_bytes_or_without_segments_is_none(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "config").mkdir()
    for path in log.iterdir():
        path.write_bytes(b"")
    empty = "the commit log is empty"
    assert refused(NotAStore, log, other) == (empty, f"{log}, {other}", None, None, None)
    assert refused(NotAStore, other) == (empty, str(other), None, None, None)
    (other / "notes.txt").touch()
    what = "this is not a commit log: it has no segments"
    assert refused(NotAStore, other) == (what, str(other), "notes.txt", None, None)


def test_stray_files_are_all_named_up_to_twenty(log: Path) -> None:
    one = log / "a01.txt"
    one.touch()
    advice = "no broker starts with it; move it away"
    assert refused(NotAStore, log) == ("there is a stray file in the commit log", str(one), None, None, advice)
    advice = "no broker starts with them; move them away"
    names = ["a01.txt"]
    for count in (2, 20, 21, 22):
        names = [f"a{number:02d}.txt" for number in range(1, count + 1)]
        for name in names:
            (log / name).touch()
        rest = {21: " and 1 more", 22: " and 2 more"}.get(count, "")
        what = f"there are {count} stray files in the commit log"
        assert refused(NotAStore, log) == (what, str(log), ", ".join(names[:20]) + rest, None, advice)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(make: Callable[[Path], None], log: Path) -> None:
    path = log / file_name(5 * SIZE)
    make(path)
    assert refused(NotAStore, log) == ("this is not a regular file", str(path), None, None, None)


def test_a_segment_in_two_directories_is_refused(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / file_name(3 * SIZE)).write_bytes(bytes(SIZE))
    both = f"{log / file_name(3 * SIZE)} and {other / file_name(3 * SIZE)}"
    advice = "--commitlog PATH[,PATH] names the directories that hold the log"
    assert refused(NotAStore, log, other) == ("the commit log has a segment twice", both, None, None, advice)


def test_a_broken_link_or_no_directory_is_missing_input(log: Path) -> None:
    link = log / file_name(5 * SIZE)
    link.symlink_to("nowhere")
    what, advice = "a link in the commit log is broken", "mount its target"
    assert refused(MissingInput, log) == (what, str(link), None, None, advice)
    what, advice = "there is no commit log", "--store must be the broker's storePathRootDir"
    assert refused(MissingInput, log / "nowhere") == (what, str(log / "nowhere"), None, None, advice)


# ----------------------------------------------------------------------------------------------------- missing segments
def with_missing(root: Path, *bases: int, size: int | None = None, **lengths: int) -> list[tuple[str, int, int, int]]:
    """Name, base, size and missing bytes of each segment of a log of these bases; some have a length ``b`` + base."""
    for base in bases:
        (root / file_name(base)).write_bytes(bytes(lengths.get(f"b{base}", 100)))
    found = find_segments([str(root)], size, with_missing=True)
    assert all(Path(one.path).parent == root for one in found)
    return [(Path(one.path).name, one.base, one.size, one.missing) for one in found]


def test_missing_bytes_and_segments_are_counted_where_they_may_be(tmp_path: Path) -> None:
    found = with_missing(tmp_path, 200, 300, 600, b300=40)
    assert found == [
        (file_name(200), 200, 100, 0),
        (file_name(300), 300, 100, 60),
        (file_name(400), 400, 100, 100),
        (file_name(500), 500, 100, 100),
        (file_name(600), 600, 100, 0),
    ]


def test_segments_of_another_log_are_not_counted_as_missing(tmp_path: Path) -> None:
    """Up to a thousand in a row may be missing; a name that is no multiple is another log's."""
    assert len(with_missing(tmp_path, 0, 1_001 * 100)) == 1_002
    (tmp_path / file_name(1_001 * 100)).rename(tmp_path / file_name(1_002 * 100))
    with pytest.raises(NotAStore, match="a segment is missing in the commit log"):
        find_segments([str(tmp_path)], None, with_missing=True)
    (tmp_path / file_name(1_002 * 100)).rename(tmp_path / file_name(450))
    with pytest.raises(NotAStore, match="not a multiple"):
        find_segments([str(tmp_path)], 100, with_missing=True)


def test_the_length_is_what_most_have_and_what_names_are_apart(tmp_path: Path) -> None:
    """One of two is short: the names tell which."""
    assert with_missing(tmp_path, 0, 100, b0=60)[0][2:] == (100, 40)
    (tmp_path / file_name(0)).write_bytes(bytes(100))
    (tmp_path / file_name(100)).write_bytes(bytes(60))
    assert find_segments([str(tmp_path)], None, with_missing=True)[1].missing == 40


def test_a_directory_shows_how_its_segments_are_framed(tmp_path: Path) -> None:
    """By the first segment that shows it; where none does, by the directory's name."""
    entry = struct.pack(">iiqqqiiii", 1, 48, 0, 0, 100, 0, 0, 0, 0)
    group = tmp_path / "dledger-n0" / "data"
    group.mkdir(parents=True)
    for directory in (tmp_path, group):
        for base in (0, 100):
            (directory / file_name(base)).write_bytes(bytes(100))

    def framings(directory: Path) -> list[object]:
        return [segment.framing for segment in find_segments([str(directory)], None)]

    assert (framings(tmp_path), framings(group)) == ([PLAIN] * 2, [ENTRIES] * 2)
    (tmp_path / file_name(100)).write_bytes(entry + bytes(52))
    assert framings(tmp_path) == [ENTRIES] * 2
    (group / file_name(100)).write_bytes(bytes.fromhex("00000064 daa320a7") + bytes(92))
    assert framings(group) == [PLAIN] * 2
