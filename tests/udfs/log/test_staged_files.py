"""Staged files: slices of them, cut for files of one size, and their readers."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.errors import MissingInput
from udfs.log.staged_files import Readers, Slices, StagedFile

NUMBER = np.dtype("<i8")
slices_of = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(1, 40)), max_size=6)


def rows_of(slices: Slices) -> list[tuple[str, int]]:
    return [(source, row) for source, begin, count in slices for row in range(begin, begin + count)]


@given(slices_of, st.integers(1, 15), st.integers(0, 40))
def test_files_take_all_rows_in_their_order(given_slices: list[tuple[str, int, int]], every: int, first: int) -> None:
    slices = Slices.of(*given_slices)
    assert list(slices) == given_slices
    cut = list(slices.cut(every, first))
    assert [row for _, part in cut for row in rows_of(part)] == rows_of(slices)
    ends = [(number + 1) * every for number, _ in cut]
    assert all(number + 1 == following for (number, _), (following, _) in pairwise(cut))
    place = first
    for (number, part), end in zip(cut, ends, strict=True):
        assert place // every == number
        place += part.rows
        assert place == min(end, first + slices.rows)
        assert set(part.sources) == {source for source, _ in rows_of(part)}
        assert (part.first, part.last) == (rows_of(part)[0], rows_of(part)[-1])


@given(slices_of, st.integers(1, 15))
def test_steps_are_short_and_all(given_slices: list[tuple[str, int, int]], most: int) -> None:
    steps = list(Slices.of(*given_slices).steps(most))
    assert all(count <= most for _, _, count in steps)
    assert rows_of(Slices.of(*steps)) == rows_of(Slices.of(*given_slices))


def test_no_slices() -> None:
    nothing = Slices.of()
    assert (len(nothing), nothing.rows, list(nothing.cut(5)), nothing.sources) == (0, 0, [], ())
    part = Slices.of(("a", 0, 1), ("b", 5, 2))[1:]
    assert (list(part), part.sources) == ([("b", 5, 2)], ("b",))
    assert b"a.units" not in pickle.dumps(Slices.of(("a.units", 0, 1), ("b.units", 5, 2))[1:])


def test_a_file_appears_with_its_first_rows(tmp_path: Path) -> None:
    file = StagedFile(str(tmp_path / "staging"), "s.units")
    assert (file.wanted, file.path) == (True, "")
    assert list(tmp_path.iterdir()) == []
    file.write(np.arange(3, dtype=NUMBER))
    file.write(np.arange(3, 5, dtype=NUMBER))
    file.close(None, None)
    assert np.frombuffer(Path(file.path).read_bytes(), NUMBER).tolist() == [0, 1, 2, 3, 4]
    assert not StagedFile("", "s.units").wanted


def test_a_file_is_removed_after_an_exception(tmp_path: Path) -> None:
    file = StagedFile(str(tmp_path), "s.units")
    file.write(np.arange(3, dtype=NUMBER))
    file.close(ValueError, ValueError())
    assert list(tmp_path.iterdir()) == []


def test_rows_are_read_from_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Readers, "_MOST", 2)
    paths = [tmp_path / f"{number}" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(np.arange(10 * number, 10 * number + 10, dtype=NUMBER).tobytes())
    buffer = bytearray(4 * NUMBER.itemsize)
    with Readers() as readers:
        for number in (0, 1, 2, 3, 0):
            assert readers.rows(str(paths[number]), NUMBER, 2, 3).tolist() == [10 * number + row for row in (2, 3, 4)]
            assert readers.rows(str(paths[number]), NUMBER, 9, 1, buffer).tolist() == [10 * number + 9]
        assert len(readers._open) == 2
        with pytest.raises(MissingInput):
            readers.rows(str(paths[0]), NUMBER, 9, 2)
