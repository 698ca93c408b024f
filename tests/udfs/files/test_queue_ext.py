"""Files of consumequeue_ext from staged units and times."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from storeformat.queues import consume_queue
from udfs.files.file_rows import FileRows
from udfs.files.output_files import OutputDirectory
from udfs.files.queue_ext import BuildExtFiles, PlannedExtFile
from udfs.log.staged_files import Slices


@pytest.mark.parametrize("closed", [True, False])
def test_units_have_tags_code_and_time(tmp_path: Path, closed: bool) -> None:
    times_of = {}
    for name, codes in (("s", [7, -8]), ("t", [9])):
        units, times = tmp_path / f"{name}.units", tmp_path / f"{name}.times"
        units.write_bytes(consume_queue.pack_units([0] * len(codes), [1] * len(codes), codes).tobytes())
        times.write_bytes(np.array([1000 + code for code in codes], "<i8").tobytes())
        times_of[str(units)] = str(times)
    first, second = times_of
    file = PlannedExtFile("ext/T/0/0", Slices.of((first, 1, 1), (second, 0, 1)), times_of, closed)
    build = BuildExtFiles(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")), 64)
    (row,) = FileRows.of(build(iter([file])))
    expected = struct.pack(">hqqh", 20, -8, 992, 0) + struct.pack(">hqqh", 20, 9, 1009, 0)
    expected += b"\xff\xff" if closed else b""
    assert (tmp_path / "made" / "ext/T/0/0").read_bytes() == expected.ljust(64, b"\0")
    assert (row.path, row.count, row.offset_sum, row.content.size) == ("ext/T/0/0", 2, 0, 64)
