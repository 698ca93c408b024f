"""Rows of written files, as columns."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from storeformat.storage.extents import content_of
from udfs.files.file_rows import FileRow, FileRows, batch_of

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
