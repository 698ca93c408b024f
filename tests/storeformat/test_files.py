"""Files, and the names of locations."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs as pafs
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import DependencyMissing, MissingInput, NotAStore, Refused, StoreFormatError, WriteFailed
from storeformat.storage import durable, files, local_files, locations
from storeformat.storage.files import FileStatus, RangeReader, Space, free_space, space_of, statuses_in
from storeformat.storage.local_files import data_ranges
from storeformat.storage.locations import without_secrets


# --------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (1_700_000_000_001, 1_700_000_001)]
)
def test_a_time_of_last_change_is_rounded_up_to_a_second(milliseconds: int, seconds: int, tmp_path: Path) -> None:
    """Brokers up to 5.1.0 take the first file that was not changed before the time that they search."""
    (tmp_path / "file").touch()
    files.set_modified(str(tmp_path / "file"), milliseconds)
    assert (tmp_path / "file").stat().st_mtime_ns == seconds * 1_000_000_000
    files.set_modified("s3://bucket/a", milliseconds)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "topics.json").open("wb") as file:
        file.truncate(30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        files.read_bytes(str(tmp_path / "topics.json"))
    (tmp_path / "small").write_bytes(b"1234")
    assert files.read_bytes(str(tmp_path / "small"), 4) == b"1234"
    with pytest.raises(NotAStore, match="this file is too large: found 4, expected at most 3 bytes"):
        files.read_bytes(str(tmp_path / "small"), 3)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, directory, pipe = (str(tmp_path / name) for name in ("missing", "directory", "pipe"))
    Path(directory).mkdir()
    os.mkfifo(pipe)
    said = {
        missing: ("there is no such file", lambda: files.read_bytes(missing)),
        directory: ("this is not a regular file", lambda: files.read_bytes(directory)),
        pipe: ("this is not a regular file", lambda: files.RangeReader(pipe)),
        f"{missing}/none": ("cannot be read: No such file or directory", lambda: files.RangeReader(f"{missing}/none")),
    }
    for path, (what, act) in said.items():
        assert refusal(MissingInput, act) == {"what": what, "path": path}
    Path(tmp_path, "file").touch()
    file = str(tmp_path / "file")
    expected = {"what": "this is not a directory", "path": file}
    assert refusal(MissingInput, lambda: files.list_directory(file)) == expected


def test_a_listing_has_names_sizes_and_kinds_in_order(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").write_bytes(b"")
    os.mkfifo(tmp_path / "d")
    for name, target in (("e", "b"), ("f", "nowhere"), ("g", "g"), ("h", "b/below")):
        (tmp_path / name).symlink_to(target)
    found = files.list_directory(str(tmp_path)) or []
    at = f"{tmp_path}/"
    sizes = {"a": -1, "b": 2, "c": 0, "d": -1, "e": 2, "f": -1, "g": -1, "h": -1}
    assert [(one.name, one.path, one.size) for one in found] == [(name, at + name, sizes[name]) for name in sizes]
    assert [one.name for one in found if one.is_directory] == ["a"]
    assert [one.name for one in found if one.leads_nowhere] == ["f", "g", "h"]
    assert files.list_directory(str(tmp_path / "none")) is None
    assert [files.exists(at + name) for name in ("a", "b", "none")] == [True, True, False]
    assert [files.size_of(at + name) for name in ("a", "b", "none")] == [None, 2, None]
    assert files.tree_sizes(at) == {"b": 2, "c": 0, "e": 2}
    assert files.tree_sizes(at + "none") == {}


def test_a_part_of_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).write_bytes(b"0123456789")
    part = bytearray(4)
    with files.RangeReader(path) as reader:
        assert reader.size == 10
        reader.read_into(6, memoryview(part))
        assert part == b"6789"
        reader.read_into(2, memoryview(part)[1:3])
        assert part == b"6239"
        truncated = {"what": "the file was truncated while it was read", "path": path, "found": 10, "expected": 11}
        assert refusal(MissingInput, lambda: reader.read_into(7, memoryview(part))) == truncated
    with pytest.raises(ValueError, match="closed"):
        reader.read_into(0, memoryview(part))


class InTwos(io.BytesIO):
    """A file that hands out two bytes at a time."""

    def readinto(self, target: Any) -> int:
        return super().readinto(target[:2])


def test_a_part_that_comes_in_pieces_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    part = bytearray(5)
    with files.RangeReader(str(tmp_path / "file")) as reader:
        reader._file = InTwos(b"0123456")
        reader.read_into(1, memoryview(part))
        assert part == b"12345"
        said = refusal(MissingInput, lambda: reader.read_into(3, memoryview(part)))
        assert (said["found"], said["expected"]) == (7, 8)


@pytest.mark.parametrize(
    ("context", "error", "said", "advice"),
    [
        (files.writing, OSError(errno.ENOSPC, "x"), "cannot be written: No space left on device", "free some space"),
        (files.writing, OSError(errno.EDQUOT, "x"), "cannot be written: Disk quota exceeded", "free some space"),
        (files.writing, pa.ArrowInvalid("  bad\nand more"), r"cannot be written: bad \(/a\)", ""),
        (files.reading, OSError("When: AWS Error ACCESS_DENIED"), "AWS Error ACCESS_DENIED", "credentials, region"),
        (files.reading, pa.ArrowInvalid(" "), "cannot be read: ArrowInvalid", ""),
        (files.reading, UnicodeError("odd"), "a name here is not in UTF-8: odd", ""),
    ],
)
def test_trouble_has_advice_where_there_is_some(context: Any, error: Exception, said: str, advice: str) -> None:
    kind = WriteFailed if context is files.writing else MissingInput
    with pytest.raises(kind, match=said) as caught, context("/a"):
        raise error
    assert (caught.value.path, bool(caught.value.advice)) == ("/a", bool(advice))
    assert (caught.value.advice or "").startswith(advice)


class Failing:
    """A client of a storage that does not answer."""

    def __getattr__(self, name: str) -> Any:
        def fail(*unused: object, **more: object) -> Any:
            raise OSError(errno.EIO, "x")

        return fail


READS = (files.list_directory, files.exists, files.size_of, files.tree_sizes, files.RangeReader, files.read_bytes)
CHANGES = (files.remove_tree, files.remove_object, lambda path: files.write_bytes(path, b"x"))


@pytest.mark.parametrize(
    ("act", "error", "done"),
    [*((act, MissingInput, "read") for act in READS), *((act, WriteFailed, "written") for act in CHANGES)],
)
def test_what_fails_is_named(
    act: Callable[[str], object], error: type[StoreFormatError], done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "client_of", lambda uri: (Failing(), "bucket"))
    said = {"what": f"cannot be {done}: Input/output error", "path": "s3://bucket/a"}
    assert refusal(error, lambda: act("s3://bucket/a")) == said


# -------------------------------------------------------------------------------------------------------------- writing
def test_a_file_is_written_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with files.FileWriter(str(path)) as writer:
        writer.write_at(6, b"678")
        writer.write_at(1, memoryview(b"12"))
        writer.write(bytearray(b"3"))
        writer.skip_to(9)
        writer.write(b"9")
        writer.finish(12)
    assert path.read_bytes() == b"\x00123\x00\x006789\x00\x00"
    said = {"what": "cannot be written: File exists", "path": str(path)}
    assert refusal(WriteFailed, lambda: files.FileWriter(str(path))) == said
    with pytest.raises(ZeroDivisionError), files.FileWriter(str(tmp_path / "other")):
        raise ZeroDivisionError
    assert [one.name for one in tmp_path.iterdir()] == ["new"]


def test_an_arrow_stream_into_a_new_file(tmp_path: Path) -> None:
    with files.new_stream(str(tmp_path / "new" / "file.gz")) as stream:
        stream.write(b"as it is")
    assert (tmp_path / "new" / "file.gz").read_bytes() == b"as it is"
    with pytest.raises(ZeroDivisionError), files.new_stream(str(tmp_path / "other")) as stream:
        raise ZeroDivisionError
    assert [one.name for one in tmp_path.iterdir()] == ["new"]


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files.make_directory(str(tmp_path / "a" / "b"))
        files.make_directory(str(tmp_path / "a" / "b"))
        files.make_directory("s3://bucket/a")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")]
    assert modes == [0o755, 0o755]


def test_a_rename_takes_the_place_of_nothing_but_an_empty_directory(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "file").touch()
    target.mkdir()
    files.rename(str(source), str(target))
    assert (target / "file").exists()
    source.mkdir()
    said = {"what": "another process wrote here in the meantime", "path": str(target)}
    assert refusal(Refused, lambda: files.rename(str(source), str(target))) == said
    said = {"what": "cannot be written: No such file or directory", "path": str(target)}
    assert refusal(WriteFailed, lambda: files.rename(str(tmp_path / "none"), str(target))) == said
    for one, other in (("s3://b/a", str(target)), (str(target), "s3://b/a")):
        said = refusal(DependencyMissing, lambda one=one, other=other: files.rename(one, other))  # type: ignore[misc]
        assert said == {"what": "this storage cannot rename in one step", "path": one}


def test_what_is_ours_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").touch()
    (tmp_path / "file").touch()
    for _ in range(2):
        files.remove_tree(str(tmp_path / "tree"))
    files.remove_tree(str(tmp_path / "file"))
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    files.remove_object(str(tmp_path / "file"))
    assert not list(tmp_path.iterdir())
    assert refusal(WriteFailed, lambda: files.remove_object(str(tmp_path / "file")))["path"] == str(tmp_path / "file")


# --------------------------------------------------------------------------------------------------------------- HDFS
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


def test_an_object_is_uploaded_at_the_end(hdfs: Any) -> None:
    path = "hdfs://node:8020/object"
    with files.FileWriter(path) as writer:
        writer.write_at(2, b"23")
        writer.write_at(0, b"01")
        writer.finish(6)
        assert not hdfs.exists("/object")
    assert hdfs.cat_file("/object") == b"0123\0\0"
    for name, open_file in (("whole", files.FileWriter), ("stream", files.new_stream)):
        with open_file(f"{path}-{name}.gz") as writer:
            writer.write(b"as it is")
        assert hdfs.cat_file(f"/object-{name}.gz") == b"as it is"
    with pytest.raises(ZeroDivisionError), files.FileWriter("hdfs://node:8020/other"):
        raise ZeroDivisionError
    assert not hdfs.exists("/other")
    files.write_bytes("hdfs://node:8020/empty", b"")
    assert hdfs.cat_file("/empty") == b""


def test_a_large_object_is_uploaded_piece_by_piece(hdfs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_COPY_CHUNK", 4)
    files.write_bytes("hdfs://node:8020/object", b"0123456789")
    assert hdfs.cat_file("/object") == b"0123456789"


def test_a_storage_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def none(uri: str) -> Any:
        asked.append(uri)
        raise pa.ArrowInvalid("no\nsuch")

    monkeypatch.setattr(files, "client_of", none)
    said = {"what": "no client for this storage: no", "path": "s3a://b/a/c?region=eu"}
    assert refusal(DependencyMissing, lambda: files.resolve("s3a://b/a/c?region=eu")) == said
    assert refusal(DependencyMissing, lambda: files.resolve("gs://b"))["path"] == "gs://b"
    assert asked == ["s3://b?region=eu", "gs://b"]
    monkeypatch.setattr(files, "client_of", lambda uri: (None, uri.removeprefix("s3://")))
    assert files.resolve("s3://there/a/b")[1] == "there/a/b"
    assert files.resolve("s3://there")[1] == "there"


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
    assert durable.stray_byte("hdfs://node:8020/object", 3) is None
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

    monkeypatch.setattr(files, "client_of", lambda uri: (NoDirectories(), "bucket"))
    if left:
        with pytest.raises(WriteFailed):
            files.remove_tree("gs://bucket/out")
    else:
        files.remove_tree("gs://bucket/out")


# --------------------------------------------------------------------------------------------- local files holes
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


# -------------------------------------------------------------------------------------------------- local status
def test_a_directory_with_links(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_bytes(b"1")
    os.utime(tmp_path / "a", (5, 7))
    one = files.status_of(str(tmp_path / "a"))
    assert one is not None
    assert (one.name, one.size, one.modified_ms, one.owner, one.is_directory) == ("a", 1, 7000, os.geteuid(), False)
    (tmp_path / "c").symlink_to(tmp_path / "a")
    (tmp_path / "d").symlink_to(tmp_path / "nowhere")
    (tmp_path / "e").symlink_to("e")
    found = [(file.name, file.size) for file in statuses_in(str(tmp_path))]
    assert found == [("a", 1), ("b", -1), ("c", 1), ("d", -1), ("e", -1)]
    assert statuses_in(str(tmp_path / "nowhere")) == files.directories_in(str(tmp_path / "nowhere")) == []
    assert files.status_of(str(tmp_path / "d")) is None
    (tmp_path / "B").symlink_to("b")
    assert files.directories_in(str(tmp_path)) == [(name, str(tmp_path / name)) for name in ("B", "b")]


@pytest.mark.parametrize(
    ("mode", "user", "group", "may"),
    [(0o600, 5, 9, True), (0o400, 5, 9, False), (0o660, 6, 5, True), (0o640, 6, 5, False), (0o606, 6, 6, True),
     (0o600, 0, 0, True), (0o066, 5, 5, False)],
)  # fmt: skip
def test_who_may_write(mode: int, user: int, group: int, may: bool) -> None:
    file = FileStatus("a", "/a", 1, 0, 5, 5, stat.S_IFREG | mode)
    assert file.may_write(user, group) is may


def test_names_that_cannot_be_asked_about(tmp_path: Path) -> None:
    long = str(tmp_path / ("a" * 300))
    said = {"what": "cannot be read: File name too long", "path": long}
    assert refusal(MissingInput, lambda: files.status_of(long)) == said
    assert refusal(MissingInput, lambda: statuses_in(long)) == said
    assert refusal(MissingInput, lambda: space_of(long)) == said
    (tmp_path / "file").touch()
    assert files.status_of(str(tmp_path / "file" / "below")) is None
    assert statuses_in(str(tmp_path / "file")) == []


def test_space_is_counted_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(f_blocks=11, f_bfree=7, f_bavail=5, f_frsize=512, f_bsize=4096, f_flag=0)
    stand_in(monkeypatch, files, "os", statvfs=lambda path: found)
    assert space_of(str(tmp_path)) == Space(11 * 512, 7 * 512, 5 * 512)
    found.f_flag = os.ST_RDONLY
    assert not space_of(str(tmp_path)).takes_files
    assert free_space(str(tmp_path)) == 5 * 512
    assert free_space("s3://bucket/a") is None


def test_used_percent_is_rounded_up() -> None:
    assert Space(1000, 500, 400).used_percent == 56  # 500 of 900: 55.6
    assert Space(1000, 500, 500).used_percent == 50
    assert Space(0, 0, 0).used_percent == 0


# ------------------------------------------------------------------------------------------- local status mounts
@pytest.mark.parametrize(
    ("mounted", "path", "apart"),
    [
        ("store/index", "store/index", True),
        ("store/consumequeue", "store/consumequeue/T/0", True),
        ("store/consumequeue/T", "store/consumequeue/T/0", True),
        ("store/consumequeue/T/0", "store/consumequeue/T", False),
        ("store", "store/index", False),
        ("store/consumequeue/T/0", "store/consumequeue/T/00", False),
    ],
)
@pytest.mark.parametrize("root", ["store", "link"])
def test_what_is_mounted_on_the_way_lies_apart(
    root: str, mounted: str, path: str, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("store/consumequeue/T/0", "store/consumequeue/T/00", "store/index"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("store")
    monkeypatch.setattr(files, "mount_points", lambda: frozenset({"/", os.path.realpath(tmp_path / mounted)}))
    named = root + path.removeprefix("store")
    assert files.crosses_mount(str(tmp_path / root), str(tmp_path / named)) == apart


def test_blanks_in_mount_points_are_octal() -> None:
    lines = [
        "36 35 98:0 /mnt1 /mnt/a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw\n",
        "37 35 98:0 / / rw - ext3 /dev/root rw\n",
    ]
    assert files.parse_mount_points(lines) == {"/mnt/a b\\c", "/"}
    assert "/" in files.mount_points() or not Path("/proc/self/mountinfo").exists()


@pytest.mark.parametrize("apart", ["store/index", "store"])
def test_what_is_on_another_file_system_lies_apart(apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store" / "index").mkdir(parents=True)
    beyond = os.path.realpath(tmp_path / apart)
    monkeypatch.setattr(files, "device_of", lambda path: 2 if os.path.realpath(path).startswith(beyond) else 1)
    assert files.crosses_mount(str(tmp_path / "store"), str(tmp_path / "store" / "index")) == (apart != "store")


# ----------------------------------------------------------------------------------------------------- locations
class TestWithoutSecrets:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("s3://KEY:SECRET@bucket/a@b", "s3://***@bucket/a@b"),
            ("s3://KEY:SE/C+R@ET@bucket/a", "s3://***@bucket/a"),
            ("/data/s3:/KEY:SECRET@bucket?token=SECRET", "/data/s3:/***@bucket?token=***"),
            ("S3A://:SECRET@bucket", "S3A://***@bucket"),
            ("hdfs://user:SECRET@name-node:8020/a", "hdfs://***@name-node:8020/a"),
            ("hdfs://user:5SECRET@name-node/a", "hdfs://***@name-node/a"),
            ("s3://b/x?secret_key=SECRET&region=eu&SAS=SECRET", "s3://b/x?secret_key=***&region=eu&SAS=***"),
            ("s3://b/x?endpoint_override=http://u:SECRET@h", "s3://b/x?endpoint_override=http://***@h"),
            ("no (s3://K:SECRET@b/x, 's3://b?token=SECRET'): at 1", "no (s3://***@b/x, 's3://b?token=***'): at 1"),
            ("s3://b/x?REGION=eu&a=1", "s3://b/x?REGION=eu&a=***"),
            ("s3://b/x?a=1&b=2: no (s3://c?d=3)", "s3://b/x?a=***&b=***: no (s3://c?d=***)"),
            ("s3://b/x?a=1) and more", "s3://b/x?a=***) and more"),
        ],
    )  # fmt: skip
    def test_passwords_and_keys_are_masked(self, text: str, shown: str) -> None:
        assert without_secrets(text) == shown
        assert "SECRET" not in shown

    @pytest.mark.parametrize(
        "text",
        [
            "/a/b:c@d?secret=x", "hdfs://name-node:8020/a@b", "abfs://container@account.dfs/a", "s3://bucket?region=eu",
            "file:///a/b", "://", "s3://b/x?", "at 12:30: s3://b/x",
        ],
    )  # fmt: skip
    def test_what_is_no_secret_stays(self, text: str) -> None:
        assert without_secrets(text) == text


@pytest.mark.parametrize("text", ["a" * 300_000 + " :/", "+.-" * 100_000 + ":/", "a://b?" + "x" * 300_000])
def test_a_long_text_is_looked_through_once(text: str) -> None:
    """A message's body, a topic: each word was scanned again from each of its letters, 40 kB in 40 s."""
    begun = time.monotonic()
    assert without_secrets(text) == text
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("path", "local"), [("a/b", True), ("/a", True), ("file:///a", True), ("s3://b/a", False), ("hdfs://n:1/a", False)]
)
def test_a_path_without_a_scheme_is_local(path: str, local: bool) -> None:
    assert locations.is_local(path) == local


def test_escapes_are_decoded_in_file_uris_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.local_path("file:///a/b%20c") == "/a/b c"
    assert locations.local_path("file://localhost/a/../%25RETRY%25g") == "/%RETRY%g"
    assert locations.local_path("/a/%20") == "/a/%20"
    assert locations.local_path("b/./c") == f"{tmp_path}/b/c"


def test_settings_stay_at_the_end_of_a_uri() -> None:
    bucket = "s3://bucket/a/?region=eu&x=?"
    assert locations.split_settings(bucket) == ("s3://bucket/a", "?region=eu&x=?")
    assert locations.split_settings("/a/?b") == ("/a/?b", "")
    assert locations.join(bucket, "b", "c") == "s3://bucket/a/b/c?region=eu&x=?"
    assert locations.name_of(bucket) == "a"
    assert locations.parent_of(bucket) == "s3://bucket?region=eu&x=?"
    assert locations.absolute("s3://bucket/a/?region=eu") == "s3://bucket/a?region=eu"


def test_parts_of_local_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.join("/a", "b", "c") == "/a/b/c"
    assert [locations.name_of(path) for path in ("/a/b", "/a/b/", "b")] == ["b", "b", "b"]
    assert [locations.parent_of(path) for path in ("/a/b", "/a/b/", "b")] == ["/a", "/a", ""]
    assert locations.absolute("b/../c") == f"{tmp_path}/c"


@pytest.mark.parametrize(
    ("path", "directory", "inside"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a", "/a/", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("s3://b/a/c?x=1", "s3://b/a?y=2", True),
        ("s3://b/ac?x=1", "s3://b/a?y=2", False),
    ],
)
def test_what_lies_in_a_directory(path: str, directory: str, inside: bool) -> None:
    assert locations.is_inside(path, directory) == inside


# ------------------------------------------------------------------------------------------------------- clients
def test_hdfs_without_a_client_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's own would end the process where it finds no class path."""
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    files.client_of.cache_clear()
    with pytest.raises(DependencyMissing, match=r"no client for HDFS is installed \(hdfs://node:8020\)"):
        files.exists("hdfs://node:8020/store")


@pytest.mark.parametrize("name", ["HADOOP_HOME", "ARROW_LIBHDFS_DIR"])
def test_where_hadoop_is_installed_its_own_client_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.setenv(name, "/hadoop")

    class FileSystems:
        @staticmethod
        def from_uri(uri: str) -> tuple[str, str]:
            return f"client of {uri}", "root"

    monkeypatch.setattr(files.pafs, "FileSystem", FileSystems)
    monkeypatch.delenv("CLASSPATH", raising=False)
    with pytest.raises(DependencyMissing):
        files.hdfs_client("hdfs://node")
    monkeypatch.setenv("CLASSPATH", "jars")
    monkeypatch.delenv(name)
    with pytest.raises(DependencyMissing):
        files.hdfs_client("hdfs://node")
    monkeypatch.setenv(name, "/hadoop")
    assert files.hdfs_client("hdfs://node") == "client of hdfs://node"


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
    monkeypatch.setattr(files.pafs, "FSSpecHandler", lambda made: made)
    monkeypatch.setattr(files.pafs, "PyFileSystem", lambda handler: handler)
    files.hdfs_client(uri)
    assert asked == [where]
