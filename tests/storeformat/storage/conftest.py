"""What tests of changes on disk share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs

from storeformat.storage import clients


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been synced, by name."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: found.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    return found


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system whose root is ``/``, as that of a name node is; it keeps what it has in memory."""
    in_memory = pytest.importorskip("fsspec.implementations.memory")
    memory = in_memory.MemoryFileSystem(skip_instance_cache=True)
    memory.store.clear()
    monkeypatch.setattr(clients, "hdfs_client", lambda uri: pafs.PyFileSystem(pafs.FSSpecHandler(memory)))
    clients.client_of.cache_clear()
    yield memory
    clients.client_of.cache_clear()
    memory.store.clear()
