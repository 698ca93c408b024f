"""Files by themselves: what the rest of the program takes for granted of them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs

from storeformat.errors import NotAStore, WriteFailed
from storeformat.storage import extents, files
from storeformat.storage import hdfs as hdfs_client


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (1_700_000_000_001, 1_700_000_001)]
)
def test_a_time_of_last_change_is_rounded_up_to_a_second(milliseconds: int, seconds: int, tmp_path: Path) -> None:
    """Brokers up to 5.1.0 take the first file that was not changed before the time that they search."""
    (tmp_path / "file").touch()
    files.set_modified(str(tmp_path / "file"), milliseconds)
    assert (tmp_path / "file").stat().st_mtime_ns == seconds * 1_000_000_000
    assert files.modified_at(str(tmp_path / "file")) == seconds * 1000


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "topics.json").open("wb") as file:
        file.truncate(30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        files.read_bytes(str(tmp_path / "topics.json"))
    (tmp_path / "small").write_bytes(b"1234")
    assert files.read_bytes(str(tmp_path / "small"), 4) == b"1234"
    with pytest.raises(NotAStore, match="at most 3 bytes"):
        files.read_bytes(str(tmp_path / "small"), 3)


# --------------------------------------------------------------------------------------------------------------- HDFS
@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system whose root is ``/``, as that of a name node is; it keeps what it has in memory."""
    in_memory = pytest.importorskip("fsspec.implementations.memory")
    memory = in_memory.MemoryFileSystem(skip_instance_cache=True)
    memory.store.clear()
    monkeypatch.setattr(hdfs_client, "client", lambda uri: pafs.PyFileSystem(pafs.FSSpecHandler(memory)))
    files._client.cache_clear()
    yield memory
    files._client.cache_clear()
    memory.store.clear()


def test_a_path_of_hdfs_begins_at_the_root(hdfs: Any) -> None:
    files.write_bytes("hdfs://node:8020/store/commitlog/0", b"log")
    assert hdfs.cat_file("/store/commitlog/0") == b"log"
    assert files.read_bytes("hdfs://node:8020/store/commitlog/0") == b"log"
    (entry,) = files.list_directory("hdfs://node:8020/store/commitlog") or []
    assert (entry.name, entry.path, entry.size) == ("0", "hdfs://node:8020/store/commitlog/0", 3)
    assert files.tree_sizes("hdfs://node:8020/store") == {"commitlog/0": 3}
    assert files.list_directory("hdfs://node:8020/nowhere") is None
    files.remove_tree("hdfs://node:8020/store")
    assert not files.exists("hdfs://node:8020/store")


# -------------------------------------------------------------------------------------------------------------- Google
class NothingAtTheEnd(io.BytesIO):
    """A file as Google's storage answers: a request that begins at its end is an error (HTTP 416)."""

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0 and offset >= len(self.getvalue()):
            raise OSError("Permanent error, with a last message of Request range not satisfiable, http_code=416")
        return super().seek(offset, whence)


def test_nothing_is_asked_for_at_the_end_of_an_object(hdfs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.RangeReader, "size", property(lambda self: 3))
    files.write_bytes("hdfs://node:8020/object", b"abc")
    opened = files.RangeReader.__init__

    def opened_so(self: files.RangeReader, path: str) -> None:
        opened(self, path)
        self._file = NothingAtTheEnd(b"abc")

    monkeypatch.setattr(files.RangeReader, "__init__", opened_so)
    assert extents.stray_byte("hdfs://node:8020/object", 3) is None
    with files.RangeReader("hdfs://node:8020/object") as reader:
        reader.read_into(3, memoryview(bytearray()))


@pytest.mark.parametrize("left", [False, True])
def test_a_directory_that_was_no_object_is_removed(left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's storage ends the removal of a directory with an error if nobody ever made an object of its name."""

    class NoDirectories:
        def get_file_info(self, asked: Any) -> Any:
            if isinstance(asked, pafs.FileSelector):
                return [pafs.FileInfo("bucket/out/a", pafs.FileType.File, size=1)] if left else []
            return pafs.FileInfo(asked, pafs.FileType.Directory)

        def delete_dir(self, path: str) -> None:
            raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(files, "_client", lambda uri: (NoDirectories(), "bucket"))
    if left:
        with pytest.raises(WriteFailed):
            files.remove_tree("gs://bucket/out")
    else:
        files.remove_tree("gs://bucket/out")
