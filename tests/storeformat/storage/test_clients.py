"""Clients: that of HDFS has times of files; where there is none, that is said in one line."""

from __future__ import annotations

import sys
from datetime import datetime, timezone

import pytest
from support.refusals import refusal

from storeformat.errors import DependencyMissing
from storeformat.storage import clients, files


def test_hdfs_without_a_client_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's own would end the process where it finds no class path."""
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    clients.client_of.cache_clear()
    assert refusal(DependencyMissing, lambda: files.exists("hdfs://node:8020/store")) == {
        "what": "no client for HDFS is installed",
        "path": "hdfs://node:8020",
        "advice": "install the extra hdfs (hdfs-native), or set HADOOP_HOME and CLASSPATH",
    }


@pytest.mark.parametrize("name", ["HADOOP_HOME", "ARROW_LIBHDFS_DIR"])
def test_where_hadoop_is_installed_its_own_client_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.setenv(name, "/hadoop")

    class FileSystems:
        @staticmethod
        def from_uri(uri: str) -> tuple[str, str]:
            return f"client of {uri}", "root"

    monkeypatch.setattr(clients.pafs, "FileSystem", FileSystems)
    monkeypatch.delenv("CLASSPATH", raising=False)
    with pytest.raises(DependencyMissing):
        clients.hdfs_client("hdfs://node")
    monkeypatch.setenv("CLASSPATH", "jars")
    monkeypatch.delenv(name)
    with pytest.raises(DependencyMissing):
        clients.hdfs_client("hdfs://node")
    monkeypatch.setenv(name, "/hadoop")
    assert clients.hdfs_client("hdfs://node") == "client of hdfs://node"


@pytest.mark.parametrize(
    ("uri", "where"),
    [("hdfs://node:8020?user=a", ("node", 8020)), ("hdfs://service", ("service", None)), ("hdfs://", (None, None))],
)
def test_a_client_is_of_a_host_and_a_port(
    uri: str, where: tuple[str | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = pytest.importorskip("hdfs_native.fsspec")
    asked: list[object] = []
    monkeypatch.setattr(native.HdfsFileSystem, "__init__", lambda self, *where: asked.append(where))
    monkeypatch.setattr(clients.pafs, "FSSpecHandler", lambda made: made)
    monkeypatch.setattr(clients.pafs, "PyFileSystem", lambda handler: handler)
    clients.hdfs_client(uri)
    assert asked == [where]


def test_a_listing_of_hdfs_has_times_where_it_has_details(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("hdfs_native.fsspec")
    status = {"name": "/d/f", "size": 3, "type": "file", "modification_time": 1_500}
    asked: list[dict[str, object]] = []

    def listed(self: object, path: str, detail: bool = True, **more: object) -> object:
        asked.append({"path": path, "detail": detail, **more})
        return [status]

    monkeypatch.setattr(native.HdfsFileSystem, "__init__", lambda self, *where: None)
    monkeypatch.setattr(native.HdfsFileSystem, "ls", listed)
    monkeypatch.setattr(clients.pafs, "FSSpecHandler", lambda made: made)
    monkeypatch.setattr(clients.pafs, "PyFileSystem", lambda handler: handler)
    client = clients.hdfs_client("hdfs://node")
    assert client.ls("/d", refresh=True) == [
        {**status, "mtime": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=timezone.utc)}
    ]
    assert client.ls("/d", detail=False) == ["/d/f"]
    assert asked == [{"path": "/d", "detail": True, "refresh": True}, {"path": "/d", "detail": True}]


def test_the_client_of_hdfs_has_times_of_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("hdfs_native.fsspec")
    status = {"name": "/d/f", "size": 3, "type": "file", "modification_time": 1_700_000_000_123}
    monkeypatch.setattr(native.HdfsFileSystem, "info", lambda self, path, **more: status)
    clients.client_of.cache_clear()
    assert files.modified_at("hdfs://127.0.0.1:1/d/f") == 1_700_000_000_123
    clients.client_of.cache_clear()
