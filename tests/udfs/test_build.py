"""Queue files to make, as columns: what a part of them holds, and how they are shared out to tasks."""

from __future__ import annotations

import pickle
from itertools import zip_longest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from udfs.build import PlannedQueueFile, PlannedQueueFiles
from udfs.staged_files import Slices

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
