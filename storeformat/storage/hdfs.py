"""A client of HDFS for pyarrow."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from pyarrow import fs as pafs

from storeformat.errors import DependencyMissing

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def client(uri: str) -> Any:
    """Returns a client of HDFS: hdfs-native, which needs no Java, else pyarrow's where Hadoop is installed; without
    libhdfs or a class path that one ends the process.
    """
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

        def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
            opened = super()._open(path, mode, **more)
            return opened if "r" in mode else CountedFile(opened, path, lambda: int(self.info(path)["size"]))

    host, _, port = uri.removeprefix("hdfs://").partition("?")[0].partition(":")
    return pafs.PyFileSystem(pafs.FSSpecHandler(DatedHdfs(host or None, int(port) if port else None)))


class CountedFile(io.RawIOBase):
    """A file that is written; raises OSError when it is closed and HDFS has another number of bytes of it: of a file of
    several blocks hdfs-native 0.14.7 has lost some without a word.
    """

    def __init__(self, file: Any, path: str, size: Callable[[], int]) -> None:
        super().__init__()
        self._file = file
        self._path = path
        self._size = size
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = int(self._file.write(data))
        self._written += count
        return count

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._file.close()
        if (size := self._size()) != self._written:
            raise OSError(f"HDFS has {size} bytes of the {self._written} that were written ({self._path})")


def _dated(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "mtime": _EPOCH + timedelta(milliseconds=item["modification_time"])}
