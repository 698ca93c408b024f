"""Queue files to make, as columns: what a part of them holds, and how they are shared out to tasks."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.errors import TotalsDisagree
from storeformat.queues import consume_queue
from udfs.files.build import BuildQueueFiles, PlannedQueueFile, PlannedQueueFiles
from udfs.files.file_rows import FileRow, FileRows
from udfs.files.output_files import OutputDirectory
from udfs.log.staged_files import Slices

counts_of_files = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), max_size=20)


def queue_files(counts: list[list[int]]) -> PlannedQueueFiles:
    """Files whose slices have these counts, each slice from another source than its neighbours."""
    flat = [count for file in counts for count in file]
    return PlannedQueueFiles(
        directory="consumequeue",
        topics=tuple(b"topic-%d" % number for number in range(len(counts))),
        topic_of=np.arange(len(counts), dtype=np.int32)[::-1],
        queue_ids=np.arange(len(counts), dtype=np.int32),
        first_queue_offsets=np.arange(len(counts)) * 1_000,
        pre_blanks=np.zeros(len(counts), np.int32),
        edges=np.cumsum([0, *map(len, counts)]).astype(np.int32),
        slices=Slices(
            sources=("a.units", "b.units", "c.units"),
            source_of=(np.arange(len(flat)) % 3).astype(np.int32),
            begins=np.arange(len(flat), dtype=np.int32),
            counts=np.array(flat, np.int32),
        ),
        fillers=np.zeros(len(flat), bool),
    )


def said(file: PlannedQueueFile) -> tuple[str, list[tuple[str, int, int]]]:
    return file.path, list(file.slices)


@given(counts=counts_of_files, most_files=st.integers(1, 8), units=st.integers(1, 200))
def test_batches_are_all_files_in_their_order(counts: list[list[int]], most_files: int, units: int) -> None:
    files = queue_files(counts)
    batches = files.batches(most_files, units)
    assert [said(file) for batch in batches for file in batch] == [said(file) for file in files]
    for batch, following in zip_longest(batches, batches[1:]):
        sizes = [count for _, count in batch.units()]
        assert 1 <= len(sizes) <= most_files
        assert sum(sizes) <= units or len(sizes) == 1
        if following is not None:
            assert len(sizes) == most_files or sum(sizes) + next(iter(following.units()))[1] > units


def test_a_file_takes_along_only_the_sources_it_has() -> None:
    files = queue_files([[1, 2], [3], [4, 5, 6, 7]])
    assert [file.slices.sources for file in files] == [
        ("a.units", "b.units"),
        ("c.units",),
        ("a.units", "b.units", "c.units"),
    ]
    assert files[0].path == "consumequeue/topic-2/0/00000000000000000000"
    assert files[1].path == "consumequeue/topic-1/1/00000000000000020000"
    assert list(files.units())[2] == ("consumequeue/topic-0/2/00000000000000040000", 22)
    assert b"b.units" not in pickle.dumps(files[1])


def built(tmp_path: Path, units: Sequence[tuple[int, int, int]], **settings: Any) -> FileRow:
    """The row of a queue file of six units that is built of these staged ones."""
    staged = tmp_path / "s.units"
    staged.write_bytes(consume_queue.pack_units(*zip(*units, strict=True)).tobytes())
    file = PlannedQueueFile("consumequeue", ("T", 3), 120, Slices.of((str(staged), 0, len(units))), **settings)
    build = BuildQueueFiles(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")), file_size=120)
    (batch,) = build(iter([[file]]))
    (row,) = FileRows.of([batch])
    return row


def test_a_file_is_read_back_before_it_gets_its_name(tmp_path: Path) -> None:
    row = built(tmp_path, [(500, 91, 7), (600, 91, 8)], pre_blanks=1)
    made = tmp_path / "made" / "consumequeue" / "T" / "3" / f"{120:020d}"
    content = made.read_bytes()
    assert (row.path, row.count, row.offset_sum) == (f"consumequeue/T/3/{120:020d}", 2, 1100)
    assert (row.content.size, row.content.data_size) == (120, 60) == (len(content), len(content.rstrip(b"\0")))
    assert row.content.sha256 == hashlib.sha256(content[:60]).digest()
    assert list((tmp_path / "drafts").iterdir()) == []


def test_copies_of_a_neighbour_fill_the_places_of_lost_units(tmp_path: Path) -> None:
    staged = tmp_path / "f.units"
    staged.write_bytes(consume_queue.pack_units([500, 600], [91, 92], [7, 8]).tobytes())
    slices = Slices((str(staged),), *(np.array(column, np.int32) for column in ([0, 0], [0, 1], [3, 1])))
    file = PlannedQueueFile("consumequeue", ("T", 3), 0, slices, fillers=np.array([True, False]))
    build = BuildQueueFiles(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")), file_size=100)
    (_,) = build(iter([[file]]))
    units = consume_queue.parse_units((tmp_path / "made" / file.path).read_bytes())
    assert units["phy_offset"].tolist() == [500, 500, 500, 600, 0]


def test_a_pre_blank_unit_among_the_messages_is_refused(tmp_path: Path) -> None:
    """Consumers would skip all messages of the log's first segment after it."""
    with pytest.raises(TotalsDisagree, match="pre-blank"):
        built(tmp_path, [(500, 91, 7), (0, 0x7FFFFFFF, 0), (600, 91, 8)])
    assert not (tmp_path / "made").exists()
