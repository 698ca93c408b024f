"""File system clients by URI: pyarrow's, with additions for HDFS and Azure."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from pyarrow import fs as pafs

from storeformat.errors import DependencyMissing

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@lru_cache(maxsize=16)
def client_of(uri: str) -> tuple[Any, str]:
    """Client of a bucket or file system, cached, and the root path for it."""
    if uri.startswith("hdfs://"):
        return hdfs_client(uri), "/"
    filesystem, root = pafs.FileSystem.from_uri(uri)
    if filesystem.type_name == "abfs" and (key := os.environ.get("AZURE_STORAGE_KEY")):
        _, (given,) = filesystem.__reduce__()  # pyarrow takes a key, but from no URI
        filesystem = pafs.AzureFileSystem(**{**given, "account_key": key})
    return filesystem, root


def hdfs_client(uri: str) -> Any:
    """HDFS client: hdfs-native, else pyarrow's. That one ends the process without libhdfs or a class path."""
    try:
        from hdfs_native.fsspec import HdfsFileSystem  # noqa: PLC0415  (an extra)
    except ImportError as error:
        if not {"HADOOP_HOME", "ARROW_LIBHDFS_DIR"} & os.environ.keys() or "CLASSPATH" not in os.environ:
            raise DependencyMissing(
                "no client for HDFS is installed", path=uri,
                advice="install the extra hdfs (hdfs-native), or set HADOOP_HOME and CLASSPATH",
            ) from error  # fmt: skip
        return pafs.FileSystem.from_uri(uri)[0]

    class DatedHdfs(HdfsFileSystem):  # type: ignore[misc, unused-ignore]
        """With the time of last change under the name that pyarrow looks for."""

        def info(self, path: str, **more: Any) -> dict[str, Any]:
            return _dated(super().info(path, **more))

        def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
            found = super().ls(path, detail=True, **more)
            return [_dated(item) for item in found] if detail else [item["name"] for item in found]

    host, _, port = uri.removeprefix("hdfs://").partition("?")[0].partition(":")
    try:
        client = DatedHdfs(host or None, int(port) if port else None)
    except (RuntimeError, ValueError) as error:  # hdfs-native's own words
        raise DependencyMissing(f"no client for this address: {error}", path=uri) from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(client))


def _dated(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "mtime": _EPOCH + timedelta(milliseconds=item["modification_time"])}
