"""Sizes and releases that a store's own files show."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from storeformat.errors import WrongSettings
from storeformat.index.index_file import HEADER_SIZE
from storeformat.store import store_signs
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
    with pytest.raises(WrongSettings) as refused:
        fit_to_store(str(tmp_path), StoreLayout(), (CONSUME_QUEUE,), needs_index_sizes=True)
    error = refused.value
    assert error.what == "mappedFileSizeConsumeQueue makes files of 6000000 bytes, the store's own have 1000"
    assert error.path == str(tmp_path / "consumequeue")
    advice = "if this is the broker's value, the files are damaged: move consumequeue/ away, it is rebuilt"
    assert error.advice == advice
    fits = StoreLayout(mapped_file_size_consume_queue=981)  # rounded up to whole units
    assert fit_to_store(str(tmp_path), fits, (CONSUME_QUEUE,), needs_index_sizes=True) == (fits, [])


def test_each_kind_of_queue_shows_its_own_length(tmp_path: Path) -> None:
    """Ext files hold units of many lengths, and are looked at where a broker writes them."""
    put(tmp_path, "batchconsumequeue/T/0/" + "0" * 20, bytes(46 * 7))
    put(tmp_path, "consumequeue_ext/T/0/" + "0" * 20, bytes(777))
    plain, notes = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert plain == replace(StoreLayout(), mapper_file_size_batch_consume_queue=322)
    assert notes == ["batchconsumequeue files have 322 bytes, as the store's own"]
    given = StoreLayout(enable_consume_queue_ext=True)
    extended, notes = fit_to_store(str(tmp_path), given, (), needs_index_sizes=True)
    assert (extended.mapper_file_size_batch_consume_queue, extended.mapped_file_size_consume_queue_ext) == (322, 777)
    assert notes[1:] == ["consumequeue_ext files have 777 bytes, as the store's own"]
    with pytest.raises(WrongSettings, match="mapperFileSizeBatchConsumeQueue makes files of 13800000 bytes"):
        fit_to_store(str(tmp_path), given, ("mapperFileSizeBatchConsumeQueue",), needs_index_sizes=True)


@pytest.mark.parametrize("sizes", [(), (0, 0), (999,)])
def test_files_that_show_nothing(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    queue_files(tmp_path, *sizes)
    given = StoreLayout()
    assert fit_to_store(str(tmp_path), given, (CONSUME_QUEUE,), needs_index_sizes=True) == (given, [])


def test_index_files_of_another_length(tmp_path: Path) -> None:
    put(tmp_path, "index/20210712070947052", bytes(HEADER_SIZE + 777))
    given = StoreLayout()
    assert fit_to_store(str(tmp_path), given, (), needs_index_sizes=False) == (given, [])
    put(tmp_path, "index/20210712070947053", bytes(HEADER_SIZE + 111))
    put(tmp_path, "index/notes", bytes(HEADER_SIZE + 5))
    put(tmp_path, "index/20210712070947054", bytes(HEADER_SIZE))  # no longer than a header: it shows nothing
    with pytest.raises(WrongSettings) as refused:
        fit_to_store(str(tmp_path), given, (), needs_index_sizes=True)
    error = refused.value
    said = "maxHashSlotNum and maxIndexNum make files of 420000040 bytes, the store's own have 151 and 817"
    assert (error.what, error.path) == (said, str(tmp_path / "index"))
    assert error.advice == (
        "give the broker's values by --broker-conf FILE or --set maxHashSlotNum=N --set maxIndexNum=N; if these"
        " are the broker's, the files are damaged: move index/ away, it is rebuilt"
    )
    without = StoreLayout(message_index_enable=False)
    assert fit_to_store(str(tmp_path), without, (), needs_index_sizes=True) == (without, [])
    own = StoreLayout(max_hash_slot_num=1, max_index_num=2)
    put(tmp_path, "index/20210712070947055", bytes(HEADER_SIZE + 44))
    assert fit_to_store(str(tmp_path), own, (), needs_index_sizes=True) == (own, [])


def test_a_full_index_file_shows_its_numbers(tmp_path: Path) -> None:
    """One of 1 slot and 2 places, of which the first is never used; unless they are given."""
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_000, 100, 100, 1, 2)
    content = header + struct.pack(">i", 1) + bytes(20) + struct.pack(">iqii", 5, 100, 0, 0)
    put(tmp_path, "index/20210712070947051", bytes(HEADER_SIZE + 777))
    put(tmp_path, "index/20210712070947052", content)
    layout, notes = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert layout == StoreLayout(max_hash_slot_num=1, max_index_num=2)
    assert notes == ["index files have 1 slots and 2 entries, as the store's own"]
    for given in ("maxHashSlotNum", "maxIndexNum"):
        with pytest.raises(WrongSettings, match="maxHashSlotNum and maxIndexNum make files"):
            fit_to_store(str(tmp_path), StoreLayout(), (given,), needs_index_sizes=True)
        assert fit_to_store(str(tmp_path), StoreLayout(), (given,), needs_index_sizes=False) == (StoreLayout(), [])


def test_a_few_files_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_signs, "_FILES_TO_ASK", 2)
    queue_files(tmp_path, 1000, 1000, 2000, 2000, 2000)
    layout, _ = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert layout.consume_queue_file_size == 1000
    sizes = StoreLayout(max_hash_slot_num=100, max_index_num=200)
    for number, counted in enumerate((90, 90, 60, 60, 60)):
        put_index(tmp_path, sizes, counted, 90, name=f"2021071207094705{number}")
    assert release_signs(str(tmp_path), sizes).counts_every_put is True


def put_index(
    root: Path, layout: StoreLayout, slots_in_use: int, entries: int, name: str = "20210712070947052"
) -> None:
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_001, 0, 99, slots_in_use, entries + 1)
    put(root, f"index/{name}", header.ljust(layout.index_file_size, b"\0"))


@pytest.mark.parametrize(
    ("counted", "counts_every_put"),
    [((90, 90, 60), True), ((90, 60, 60), False), ((90, 60), None), ((90, 3), True), ((60, 95), False)],
)
def test_most_index_headers_decide(tmp_path: Path, counted: tuple[int, ...], counts_every_put: bool | None) -> None:
    layout = StoreLayout(max_hash_slot_num=100, max_index_num=200)
    for number, slots_in_use in enumerate(counted):
        put_index(tmp_path, layout, slots_in_use, 3 if slots_in_use == 3 else 90, f"2021071207094705{number}")
    assert release_signs(str(tmp_path), layout).counts_every_put == counts_every_put


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
    [(60, 90, False), (90, 90, True), (91, 90, True), (0, 0, None), (92, 90, None), (3, 3, None), (4, 4, None)],
)
def test_what_an_index_header_counts(
    tmp_path: Path, slots_in_use: int, entries: int, counts_every_put: bool | None
) -> None:
    """90 keys in 100 slots take some 60 of them: a header that says 90 counts keys."""
    layout = StoreLayout(max_hash_slot_num=100, max_index_num=200)
    put_index(tmp_path, layout, slots_in_use, entries)
    assert release_signs(str(tmp_path), layout).counts_every_put == counts_every_put
