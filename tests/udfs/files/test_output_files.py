"""Files are written as drafts, read back, and only then get their names."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.errors import TotalsDisagree
from storeformat.storage import files
from storeformat.storage.extents import content_of
from udfs.files.output_files import FileRow, FileRows, OutputDirectory, Totals, batch_of


def made_in(tmp_path: Path) -> OutputDirectory:
    return OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))


def left_in(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())


def test_a_row_is_of_the_bytes_on_storage(tmp_path: Path) -> None:
    seen = []

    def tally(stored: memoryview) -> Totals:
        seen.append((bytes(stored), left_in(tmp_path)[0].startswith("drafts/")))
        return Totals(2, 7, modified=1_700_000_000_001)

    row = made_in(tmp_path).make_of("a/b", [b"one", b"two"], 10, tally, what="a file")
    assert seen == [(b"onetwo", True)]
    made = tmp_path / "made" / "a" / "b"
    assert made.read_bytes() == b"onetwo".ljust(10, b"\0")
    assert made.stat().st_mtime == 1_700_000_001  # whole seconds, rounded up
    assert (row.path, row.count, row.offset_sum) == ("a/b", 2, 7)
    assert (row.content.size, row.content.data_size) == (10, 6)
    assert row.content.sha256 == hashlib.sha256(b"onetwo").digest()
    assert left_in(tmp_path) == ["made/a/b"]


def test_without_a_size_a_file_is_its_pieces(tmp_path: Path) -> None:
    row = made_in(tmp_path).make_of("a", [b"one"], None, lambda _stored: Totals(1), what="a file")
    assert (row.content.size, row.content.data_size, (tmp_path / "made" / "a").read_bytes()) == (3, 3, b"one")


def test_what_fails_gets_no_name(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise TotalsDisagree("no more")

    def refuse(_stored: memoryview) -> Totals:
        raise TotalsDisagree("not these")

    with pytest.raises(TotalsDisagree, match="no more"):
        made_in(tmp_path).make_of("a", broken(), 10, refuse, what="a file")
    assert left_in(tmp_path) == []
    with pytest.raises(TotalsDisagree, match="not these"):
        made_in(tmp_path).make_of("a", [b"one"], 10, refuse, what="a file")
    assert not (tmp_path / "made").exists()


def test_bytes_that_storage_changed_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte among the zeros: the file holds more than what was written."""
    finish = files.FileWriter.finish

    def finish_and_change(writer: files.FileWriter, size: int) -> None:
        finish(writer, size)
        writer.write_at(8, b"x")

    monkeypatch.setattr(files.FileWriter, "finish", finish_and_change)
    with pytest.raises(TotalsDisagree, match="a queue file"):
        made_in(tmp_path).make_of("a", [b"one"], 10, lambda _stored: Totals(1), what="a queue file")
    assert not (tmp_path / "made").exists()


rows = st.lists(
    st.builds(
        FileRow,
        path=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
        content=st.binary(max_size=4).map(content_of),
        count=st.integers(0, 1 << 40),
        offset_sum=st.integers(0, (1 << 64) - 1),
    ),
    max_size=6,
)


@given(parts=st.lists(rows, max_size=4))
def test_rows_come_as_they_were_given(parts: list[list[FileRow]]) -> None:
    everything = [row for part in parts for row in part]
    travelled = [pickle.loads(pickle.dumps(batch_of(part))) for part in parts]
    found = FileRows.of(travelled)
    assert (list(found), len(found)) == (everything, len(everything))
    assert list(FileRows.concatenate([FileRows.of([batch]) for batch in travelled])) == everything
    assert found.offset_sum() == sum(row.offset_sum for row in everything) % (1 << 64)
    assert [row.path for row in found.by_path()] == sorted(row.path for row in everything)
