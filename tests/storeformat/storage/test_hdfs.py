"""The client of HDFS: what it says of files, and what is told where there is none."""

from __future__ import annotations

import sys

import pytest

from storeformat.errors import DependencyMissing
from storeformat.storage import files


def test_hdfs_without_a_client_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's own would end the process where it finds no class path."""
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    files._client.cache_clear()
    with pytest.raises(DependencyMissing, match="no client for HDFS") as caught:
        files.exists("hdfs://node:8020/store")
    assert caught.value.exit_code == 69


def test_the_client_of_hdfs_has_times_of_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("hdfs_native.fsspec")
    status = {"name": "/d/f", "size": 3, "type": "file", "modification_time": 1_700_000_000_123}
    monkeypatch.setattr(native.HdfsFileSystem, "info", lambda self, path, **more: status)
    files._client.cache_clear()
    assert files.modified_at("hdfs://127.0.0.1:1/d/f") == 1_700_000_000_123
    files._client.cache_clear()
