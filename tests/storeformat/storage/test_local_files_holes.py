"""Data and holes as a file system tells them; what files hold with either is in ``test_extents``."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.patching import stand_in

from storeformat.errors import MissingInput
from storeformat.storage import local_files
from storeformat.storage.files import RangeReader
from storeformat.storage.local_files import data_ranges

SIZE = 6_000_000


def test_a_disk_that_fails_is_not_taken_for_one_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))

    def fail(handle: int, position: int, how: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with path.open("rb") as file, RangeReader(str(path)) as reader:
        stand_in(monkeypatch, local_files, "os", lseek=fail)
        with pytest.raises(OSError, match="Input/output"):
            list(data_ranges(file.fileno(), 0, SIZE))
        with pytest.raises(MissingInput, match="Input/output"):
            reader.next_data(0)
