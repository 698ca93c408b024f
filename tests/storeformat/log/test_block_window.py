"""The search for certified records over the ends of blocks."""

from __future__ import annotations

from pathlib import Path

from support.store_builder import LogBuilder
from support.walking import segments_of

from storeformat.log.block_window import BlockWindow, search_certificate
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
