"""The search for certified records over the ends of blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.in_memory import Bytes
from support.store_builder import LogBuilder, Message, encode_record
from support.walking import segments_of

from storeformat.log.block_window import BlockWindow, search_certificate
from storeformat.log.segments import Segment
from storeformat.storage import files

SIZE = 4096


def test_a_certificate_over_the_end_of_a_block_is_found(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.message(body=bytes(700))
    second = log.message()
    (segment,) = segments_of(log, tmp_path)
    with files.RangeReader(segment.path) as reader:
        window = BlockWindow(reader, segment)
        for block_size in range(60, 120):
            assert search_certificate(window, 1, SIZE, SIZE, block_size).first == second.offset
        assert search_certificate(window, 1, second.offset, SIZE).first is None
        assert search_certificate(window, second.end, SIZE, SIZE).all_zero
        assert not search_certificate(window, 1, second.offset, SIZE).all_zero


def a_window(data: bytes, base: int = 0) -> BlockWindow:
    return BlockWindow(Bytes(data), Segment("x", base, len(data)))  # type: ignore[arg-type]


def test_a_window_holds_what_was_loaded_and_zeros_after_it() -> None:
    window = a_window(bytes(range(1, 101)), base=1000)
    window.load(1010, 20)
    assert (window.offset, window.length) == (1010, 20)
    assert bytes(window.bytes) == bytes(range(11, 31)) + bytes(len(window.bytes) - 20)
    window.load(1005, 3)
    assert bytes(window.bytes) == bytes([6, 7, 8]) + bytes(len(window.bytes) - 3)
    other = window.another()
    other.load(1000, 1)
    assert (other.segment, other.length, window.length) == (window.segment, 1, 3)


@pytest.mark.parametrize("block_size", [1, 7, 10, 11, 100])
@pytest.mark.parametrize("at", [9, 10, 19, 20])
def test_bytes_of_a_range_are_zero(at: int, block_size: int) -> None:
    """Here [10, 20), with one other byte in it or beside it."""
    window = a_window(bytes(at) + b"\1" + bytes(40), base=0)
    assert window.is_zero(10, 20, block_size) == (at in (9, 20))
    assert window.is_zero(at, at)


@pytest.mark.parametrize("loaded", [(0, 400), (100, 100), (350, 10)])
def test_what_is_certified_in_a_range_is_seen_and_the_window_stays(loaded: tuple[int, int]) -> None:
    """A head at 250, which may end where the limit is; what is loaded already ends there at the latest."""
    data = bytearray(400)
    data[250:350] = encode_record(Message(body=b""), 250)
    window = a_window(bytes(data))
    window.load(*loaded)
    for start, stop, limit, certified in (
        (200, 251, 400, True),
        (200, 250, 400, False),
        (250, 251, 286, True),
        (251, 300, 400, False),
        *([] if loaded == (0, 400) else [(200, 260, 285, False)]),
    ):
        assert window.certifies_inside(start, stop, limit) == certified, (start, stop, limit)
        assert (window.offset, window.length) == loaded


def test_a_range_at_the_end_of_a_file_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(bytes(300) + encode_record(Message(), 300))
    with files.RangeReader(str(path)) as reader:
        window = BlockWindow(reader, Segment(str(path), 0, path.stat().st_size))
        assert window.certifies_inside(250, 350, path.stat().st_size)


class Counting(files.RangeReader):
    """Counts the bytes that were read."""

    count = 0

    def read_into(self, offset: int, target: memoryview) -> None:
        self.count += len(target)
        super().read_into(offset, target)


@pytest.mark.parametrize("head_in_hole", range(3))
def test_holes_are_not_read(tmp_path: Path, head_in_hole: int) -> None:
    """Not even where the zeros in which a record begins lie in one."""
    size, begin = 64 << 20, (48 << 20) - head_in_hole
    record = encode_record(Message(body=bytes(10)), begin)
    assert not any(record[:2])
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as file:
        file.write(b"\1")
        file.seek(begin + head_in_hole)
        file.write(record[head_in_hole:])
        file.truncate(size)
    with Counting(str(path)) as reader:
        if reader.next_data(1 << 20) == 1 << 20:
            pytest.skip("this file system does not tell of holes")
        window = BlockWindow(reader, Segment(str(path), 0, size))
        found = search_certificate(window, 1, size, size, 1 << 16)
        assert (found.first, found.all_zero) == (begin, True)
        assert not search_certificate(window, begin + 1, size, size, 1 << 16).all_zero
        assert window.is_zero(1, begin, 1 << 16)
        assert not window.is_zero(1, size, 1 << 16)
        assert window.is_zero(begin + len(record), size, 1 << 16)
        assert reader.count < 2 << 20
        assert reader.next_data(begin + (1 << 20)) == size
        assert reader.next_data(size + 5) == size + 5


def test_holes_are_told_by_offsets_of_the_log() -> None:
    class Holes(Bytes):
        def next_data(self, offset: int) -> int:
            return max(offset, 40)

    window = BlockWindow(Holes(bytes(100)), Segment("x", 1000, 100))  # type: ignore[arg-type]
    assert [window.next_data(offset) for offset in (1000, 1039, 1041)] == [1040, 1040, 1041]
