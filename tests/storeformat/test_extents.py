"""How far files hold data, and that nothing after that goes unseen: on the temporary directory's file system, and on
tmpfs where there is one.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import MissingInput, TotalsDisagree
from storeformat.storage import durable, files, local_files
from storeformat.storage.durable import Content, content_of

SIZE = 6_000_000
DATA = random.Random(1).randbytes(5_000) + b"\1"
EXPECTED = Content(SIZE, len(DATA), hashlib.sha256(DATA).digest())
TMPFS = Path("/dev/shm")


@pytest.fixture(params=["disk", "tmpfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    if not TMPFS.is_dir():
        pytest.skip("there is no tmpfs")
    directory = Path(tempfile.mkdtemp(dir=TMPFS))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=["holes", "no holes"], autouse=True)
def knows_holes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is to be right where the file system cannot tell holes from data, too."""
    if request.param == "holes":
        return
    seek = os.lseek

    def no_holes(handle: int, position: int, how: int) -> int:
        if how in (os.SEEK_DATA, os.SEEK_HOLE):
            raise OSError(errno.EINVAL, "Invalid argument")
        return seek(handle, position, how)

    stand_in(monkeypatch, local_files, "os", lseek=no_holes)


def sparse_file(path: Path) -> Path:
    with files.FileWriter(str(path)) as writer:
        writer.write(DATA)
        writer.finish(SIZE)
    return path


def found(path: Path) -> Content:
    (content,) = durable.contents_on_disk([(str(path), len(DATA))], lambda count: None)
    assert durable.read_back(str(path), len(DATA)) == (memoryview(DATA), content)
    return content


def test_zeros_that_were_written_or_allocated_are_zeros(place: Path) -> None:
    written = place / "written"
    written.write_bytes(DATA.ljust(SIZE, b"\0"))
    assert found(written) == EXPECTED
    allocated = sparse_file(place / "allocated")
    with allocated.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE)
    assert found(allocated) == EXPECTED
    assert allocated.stat().st_blocks * 512 >= SIZE


@pytest.mark.parametrize("at", [len(DATA), len(DATA) + 1, 4_095 + 4_096, 262_144 + len(DATA), 3_000_000, SIZE - 1])
@pytest.mark.parametrize("kind", ["hole", "zeros", "allocated"])
def test_one_bit_after_the_data_is_found(at: int, kind: str, place: Path) -> None:
    path = sparse_file(place / "file")
    if kind == "zeros":
        path.write_bytes(DATA.ljust(SIZE, b"\0"))
    with path.open("r+b") as file:
        if kind == "allocated":
            os.posix_fallocate(file.fileno(), 0, SIZE)
        file.seek(at)
        file.write(b"\x10")
    assert durable.stray_byte(str(path), len(DATA)) == at
    assert found(path) == Content(SIZE, at + 1, EXPECTED.sha256)


def test_what_another_process_has_only_mapped_is_found(place: Path) -> None:
    """A page that was written through a mapping and has not reached the disk."""
    path = sparse_file(place / "file")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[SIZE // 2] = 1
        assert durable.data_end(str(path), SIZE) > SIZE // 2
        assert found(path) == Content(SIZE, SIZE // 2 + 1, EXPECTED.sha256)


def test_an_object_is_what_it_should_be(hdfs: Any) -> None:
    """What follows its data is looked at in the same request, as far as a hole would be."""
    path = "hdfs://node:8020/object"
    for tail, data_size in ((b"", len(DATA)), (bytes(9), len(DATA)), (bytes(9) + b"\2" + bytes(9), len(DATA) + 10)):
        hdfs.pipe_file("/object", DATA + tail)
        stored, content = durable.read_back(path, len(DATA))
        assert stored == DATA
        assert content == Content(len(DATA) + len(tail), data_size, EXPECTED.sha256)
        assert durable.stray_byte(path, len(DATA)) == (None if data_size == len(DATA) else data_size - 1)
        assert durable.data_end(path, 77) == 77
    hdfs.pipe_file("/object", DATA[:10])
    stored, content = durable.read_back(path, len(DATA))
    assert (bytes(stored), content) == (DATA[:10], content_of(DATA[:10]))
    hdfs.pipe_file("/object", bytes(durable.CHUNK) + b"\1")
    assert durable.stray_byte(path, 0) is None
    assert durable.stray_byte(path, 1) == durable.CHUNK


def test_what_was_written_is_read_back_or_the_job_fails(place: Path) -> None:
    draft = sparse_file(place / "draft")

    def read(data_size: int, size: int) -> tuple[memoryview, Content]:
        return durable.read_back_whole(str(draft), data_size, size, path="/final", what="the file")

    assert read(len(DATA), SIZE) == (memoryview(DATA), EXPECTED)
    said = refusal(TotalsDisagree, lambda: read(len(DATA), SIZE + 1))
    assert (said["path"], said["found"]) == ("/final", EXPECTED)
    short = Content(SIZE, len(DATA), hashlib.sha256(DATA[:-1]).digest())
    assert refusal(TotalsDisagree, lambda: read(len(DATA) - 1, SIZE))["found"] == short
    assert str(content_of(b"")) == f"0 bytes, data to 0, SHA-256 {hashlib.sha256(b'').hexdigest()}"


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    said = {"what": "cannot be read: No such file or directory", "path": none}
    for act in (
        lambda: durable.data_end(none, 5), lambda: durable.stray_byte(none, 0), lambda: durable.read_back(none, 5),
        lambda: durable.content_on_disk(none, 5, lambda count: None),
    ):  # fmt: skip
        assert refusal(MissingInput, act) == said
    os.mkfifo(none)
    for act in (lambda: durable.data_end(none, 5), lambda: durable.stray_byte(none, 0)):
        assert refusal(MissingInput, act) == {"what": "this is not a regular file", "path": none}


def test_a_changed_byte_of_the_data_and_another_length_are_found(place: Path) -> None:
    path = sparse_file(place / "file")
    with path.open("r+b") as file:
        file.seek(17)
        file.write(bytes([DATA[17] ^ 1]))
    assert durable.contents_on_disk([(str(path), len(DATA))], lambda count: None) != [EXPECTED]
    for size in (0, 17, len(DATA), SIZE - 1, SIZE + 1):
        os.truncate(sparse_file(place / str(size)), size)
        (content,) = durable.contents_on_disk([(str(place / str(size)), len(DATA))], lambda count: None)
        assert content.size == size
        assert content != EXPECTED


def test_the_last_hole_begins_after_the_data(place: Path, knows_holes: None, request: pytest.FixtureRequest) -> None:
    path = sparse_file(place / "file")
    told = request.node.callspec.params["knows_holes"] == "holes"
    assert len(DATA) <= durable.data_end(str(path), SIZE) <= (len(DATA) + 4096 if told else SIZE)
    (place / "zeros").write_bytes(bytes(10_000))
    os.truncate(place / "zeros", 0)
    os.truncate(place / "zeros", SIZE)
    assert durable.data_end(str(place / "zeros"), SIZE) == (0 if told else SIZE)


pieces = st.lists(st.tuples(st.integers(0, 700_000), st.binary(min_size=1, max_size=3)), max_size=4)


@settings(deadline=None, max_examples=min(50, settings.default.max_examples))
@given(pieces=pieces, size=st.integers(0, 800_000), begin=st.integers(0, 800_000))
def test_any_file(pieces: list[tuple[int, bytes]], size: int, begin: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file")
        with files.FileWriter(str(path)) as writer:
            for position, data in pieces:
                writer.write_at(position, data)
            writer.finish(size)
        data = path.read_bytes()
        rest = data[begin:].lstrip(b"\0")
        stray = size - len(rest) if rest else None
        assert durable.stray_byte(str(path), begin) == stray
        end = durable.data_end(str(path), size)
        assert data[:end].ljust(size, b"\0") == data
        head = data[:begin]
        expected = Content(size, len(head) if stray is None else stray + 1, hashlib.sha256(head).digest())
        assert durable.content_on_disk(str(path), begin, lambda count: None) == expected
