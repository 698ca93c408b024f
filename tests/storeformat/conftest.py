"""What tests of changes on disk share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs
from support.patching import stand_in

from storeformat.storage import durable, files


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been synced, by name."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    found: list[str] = []

    def sync(handle: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{handle}").readlink()))

    for module in (durable, durable):
        stand_in(monkeypatch, module, "os", fsync=sync)
    return found


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system whose root is ``/``, as that of a name node is; it keeps what it has in memory."""
    in_memory = pytest.importorskip("fsspec.implementations.memory")
    memory = in_memory.MemoryFileSystem(skip_instance_cache=True)
    memory.store.clear()
    monkeypatch.setattr(files, "hdfs_client", lambda uri: pafs.PyFileSystem(pafs.FSSpecHandler(memory)))
    files.client_of.cache_clear()
    yield memory
    files.client_of.cache_clear()
    memory.store.clear()
