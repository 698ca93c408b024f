"""Sizes and releases that a store's own files show."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from storeformat.errors import WrongSettings
from storeformat.index.index_file import HEADER_SIZE
from storeformat.store.layout import StoreLayout
from storeformat.store.store_signs import fit_to_store, release_signs

CONSUME_QUEUE = "mappedFileSizeConsumeQueue"


def put(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


def queue_files(root: Path, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        put(root, f"consumequeue/T/0/{number * 1000:020d}", bytes(size))


def test_most_queue_files_show_their_length(tmp_path: Path) -> None:
    queue_files(tmp_path, 1000, 1000, 900, 999)
    layout, notes = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert (layout.consume_queue_file_size, notes) == (1000, ["consumequeue files have 1000 bytes, as the store's own"])


def test_a_given_length_that_they_contradict(tmp_path: Path) -> None:
    queue_files(tmp_path, 1000)
    with pytest.raises(WrongSettings, match="the store's own have 1000"):
        fit_to_store(str(tmp_path), StoreLayout(), (CONSUME_QUEUE,), needs_index_sizes=True)


@pytest.mark.parametrize("sizes", [(), (0, 0), (999,)])
def test_files_that_show_nothing(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    queue_files(tmp_path, *sizes)
    given = StoreLayout()
    assert fit_to_store(str(tmp_path), given, (CONSUME_QUEUE,), needs_index_sizes=True) == (given, [])


def test_index_files_of_another_length(tmp_path: Path) -> None:
    put(tmp_path, "index/20210712070947052", bytes(HEADER_SIZE + 777))
    given = StoreLayout()
    assert fit_to_store(str(tmp_path), given, (), needs_index_sizes=False) == (given, [])
    with pytest.raises(WrongSettings, match="maxHashSlotNum"):
        fit_to_store(str(tmp_path), given, (), needs_index_sizes=True)


def test_signs_of_a_release(tmp_path: Path) -> None:
    bare = release_signs(str(tmp_path), StoreLayout())
    assert (bare.has_rocksdb_store, bare.checkpoint_tail, bare.counts_every_put) == (False, (), None)
    times = 1_700_000_000_000, 1_700_000_000_000, 1_700_000_000_000
    put(tmp_path, "checkpoint", struct.pack(">6q", *times, 4096, 7, 8).ljust(4096, b"\0"))
    (tmp_path / "rocksdbstore").mkdir()
    shown = release_signs(str(tmp_path), StoreLayout())
    assert (shown.has_rocksdb_store, shown.checkpoint_tail[0]) == (True, 4096)


@pytest.mark.parametrize(
    ("slots_in_use", "entries", "counts_every_put"),
    [(60, 90, False), (90, 90, True), (0, 0, None), (95, 90, None), (3, 3, None)],
)
def test_what_an_index_header_counts(
    tmp_path: Path, slots_in_use: int, entries: int, counts_every_put: bool | None
) -> None:
    """90 keys in 100 slots take some 60 of them: a header that says 90 counts keys."""
    layout = StoreLayout(max_hash_slot_num=100, max_index_num=200)
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_001, 0, 99, slots_in_use, entries + 1)
    put(tmp_path, "index/20210712070947052", header.ljust(layout.index_file_size, b"\0"))
    assert release_signs(str(tmp_path), layout).counts_every_put == counts_every_put
