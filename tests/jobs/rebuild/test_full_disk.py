"""A disk that is full before the rebuild is done."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import golden
from support.rebuilding import rebuild_here

from storeformat.errors import WriteFailed
from storeformat.storage import files


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_one_line_and_nothing_left(small_disk: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    with pytest.raises(WriteFailed, match="No space left on device") as failure:
        rebuild_here(golden.unpack(store), small_disk / "work", store.settings, ignore_free_space=True)
    assert failure.value.exit_code == 74
    assert failure.value.advice is not None
    assert "space" in failure.value.advice
    files.remove_tree(str(small_disk / "work"))
    assert list(small_disk.iterdir()) == []
