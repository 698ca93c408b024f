"""Changes of local directories, where something new may go, drafts, the broker's lock, and how far files hold data."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs as pafs
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import MissingInput, Refused, TotalsDisagree, WriteFailed
from storeformat.storage import broker_lock, durable, files, local_files
from storeformat.storage.durable import Content, content_of


# -------------------------------------------------------------------------------------------------------------- durable
def test_a_move_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("nowhere")
    with pytest.raises(WriteFailed, match=r"this name is already taken \(.*/b\)"):
        durable.move(str(tmp_path / "a"), str(tmp_path / "b"))
    durable.move(str(tmp_path / "a"), str(tmp_path / "new" / "parents" / "a"))
    assert (tmp_path / "new" / "parents" / "a").read_text() == "a"
    assert not (tmp_path / "a").exists()


def test_another_file_system_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    stand_in(monkeypatch, durable, "os", rename=raising(OSError(errno.EXDEV, os.strerror(errno.EXDEV))))
    said = {"what": "cannot be written: Invalid cross-device link", "path": str(tmp_path / "b")}
    assert refusal(WriteFailed, lambda: durable.move(str(tmp_path / "a"), str(tmp_path / "b"))) == said


def test_all_are_synced_each_once(tmp_path: Path, synced: list[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    for path in paths:
        Path(path).mkdir()
    durable.sync_all(paths * 3)
    assert sorted(synced) == paths
    with pytest.raises(WriteFailed, match="No such file"):
        durable.sync_all([*paths, str(tmp_path / "missing")])


def test_a_tree_has_everything_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "top" / "below").mkdir(parents=True)
    (tmp_path / "top" / "below" / "file").touch()
    (tmp_path / "top" / "file").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "theirs").touch()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "top" / "dead").symlink_to("nowhere")
    directories, others = durable.tree(str(tmp_path / "top"))
    relative = lambda paths: sorted(os.path.relpath(path, tmp_path) for path in paths)  # noqa: E731
    assert relative(directories) == ["top", "top/below"]
    assert relative(others) == ["top/below/file", "top/dead", "top/file", "top/link"]
    assert durable.tree(str(tmp_path / "top" / "file")) == ([], [str(tmp_path / "top" / "file")])
    assert durable.tree(str(tmp_path / "top" / "link")) == ([], [str(tmp_path / "top" / "link")])
    assert durable.tree(str(tmp_path / "missing")) == ([], [])
    assert [durable.is_plain_file(str(tmp_path / "top" / name)) for name in ("file", "dead", "link", "below")] == [
        True, False, False, False,
    ]  # fmt: skip
    (tmp_path / "to-file").symlink_to(tmp_path / "top" / "file")
    assert not durable.is_plain_file(str(tmp_path / "to-file"))


def test_a_directory_that_cannot_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top" / "closed").mkdir(parents=True)

    def walk(path: str, onerror: Any) -> Any:
        onerror(PermissionError(errno.EACCES, "Permission denied", f"{path}/closed"))
        return iter(())

    stand_in(monkeypatch, durable, "os", walk=walk)
    said = {"what": "cannot be read: Permission denied", "path": str(tmp_path / "top" / "closed")}
    assert refusal(MissingInput, lambda: durable.tree(str(tmp_path / "top"))) == said


def test_names_that_are_taken_and_files_with_other_names(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dead").symlink_to("nowhere")
    assert [durable.present(str(tmp_path / name)) for name in ("file", "dead", "none")] == [True, True, False]
    assert not files.exists(str(tmp_path / "dead"))
    durable.refuse_other_names(str(tmp_path / "file"))
    durable.refuse_other_names(str(tmp_path / "dead"))
    os.link(tmp_path / "file", tmp_path / "other")
    said = refusal(Refused, lambda: durable.refuse_other_names(str(tmp_path / "file")))
    assert (said["what"], said["path"]) == ("this file has other names (hard links)", str(tmp_path / "file"))
    none = str(tmp_path / "none")
    said = {"what": "cannot be read: No such file or directory", "path": none}
    assert refusal(MissingInput, lambda: durable.refuse_other_names(none)) == said
    for _ in range(2):
        durable.remove_file(str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    said = {"what": "cannot be written: Is a directory", "path": str(tmp_path)}
    assert refusal(WriteFailed, lambda: durable.remove_file(str(tmp_path))) == said


# -------------------------------------------------------------------------------------------------------------- outputs
def test_links_are_followed_before_a_place_is_judged(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    store = str(tmp_path / "store")
    assert files.resolved(str(tmp_path / "link" / "new")) == str(Path(store).resolve() / "new")
    assert files.resolved("s3://bucket/a/../b") == "s3://bucket/a/../b"
    assert files.resolves_inside(str(tmp_path / "link" / "new" / "deep"), store)
    assert files.resolves_inside(store, str(tmp_path / "link"))
    assert not files.resolves_inside(str(tmp_path / "store-2"), store)
    assert not files.resolves_inside(str(tmp_path), store)


def test_a_private_directory_is_new(tmp_path: Path) -> None:
    files.make_private_directory(str(tmp_path / "c" / "d"))
    files.make_private_directory("s3://bucket/a")
    assert stat.S_IMODE((tmp_path / "c" / "d").stat().st_mode) == 0o700
    with pytest.raises(WriteFailed, match="exists"):
        files.make_private_directory(str(tmp_path / "c" / "d"))


def test_a_directory_is_no_place_for_a_file(tmp_path: Path) -> None:
    said = {"what": "cannot be written: this is a directory", "path": str(tmp_path)}
    assert refusal(WriteFailed, lambda: files.refuse_directory(str(tmp_path))) == said
    files.refuse_directory(str(tmp_path / "new"))
    files.refuse_directory("s3://bucket/place")
    (tmp_path / "file").touch()
    files.refuse_directory(str(tmp_path / "file"))


def test_only_an_absent_or_empty_directory_takes_an_output(tmp_path: Path) -> None:
    files.refuse_used_directory(str(tmp_path / "absent"))
    files.refuse_used_directory(str(tmp_path))
    (tmp_path / "b").touch()
    (tmp_path / "a").mkdir()
    with pytest.raises(Refused, match="the output directory is not empty: found a, expected nothing"):
        files.refuse_used_directory(str(tmp_path))


def test_a_bucket_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buckets:
        def get_file_info(self, asked: str) -> Any:
            kind = pafs.FileType.Directory if asked == "there" else pafs.FileType.NotFound
            return pafs.FileInfo(asked, kind)

    monkeypatch.setattr(files, "client_of", lambda uri: (Buckets(), uri.removeprefix("s3://").partition("?")[0]))
    files.refuse_missing_bucket("s3://there/a/b?region=eu")
    files.refuse_missing_bucket("/none")
    said = {"what": "there is no such bucket", "path": "s3://gone?region=eu"}
    assert refusal(WriteFailed, lambda: files.refuse_missing_bucket("s3://gone/a/b?region=eu")) == said


def test_what_was_made_for_an_output_is_removed_up_to_what_is_used(tmp_path: Path) -> None:
    missing = files.missing_parents(str(tmp_path / "a" / "b" / "c"))
    assert missing == [str(tmp_path / "a" / "b"), str(tmp_path / "a")]
    assert files.missing_parents("s3://bucket/a/b") == []
    (tmp_path / "a" / "b").mkdir(parents=True)
    files.remove_empty(missing)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "used").touch()
    files.remove_empty([*missing, str(tmp_path)])
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["used"]


def test_a_draft_has_a_name_of_its_own_and_gets_that_of_the_file(tmp_path: Path) -> None:
    place, drafts = str(tmp_path / "deep" / "file"), str(tmp_path / "drafts")
    one, other = files.draft_of(place, drafts), files.draft_of(place, drafts)
    assert one != other
    assert {str(Path(one).parent), str(Path(other).parent)} == {drafts}
    assert files.draft_of("s3://bucket/file", drafts) == "s3://bucket/file"
    files.settle("s3://bucket/file", "s3://bucket/file")
    Path(drafts).mkdir()
    for draft, text in ((one, "one"), (other, "other")):
        Path(draft).write_text(text)
        files.settle(draft, place)
        assert Path(place).read_text() == text
    assert not list(Path(drafts).iterdir())


def test_a_file_is_replaced_whole_and_a_failure_leaves_no_draft(tmp_path: Path) -> None:
    made = tmp_path / "new" / "directory"
    files.replace_bytes(str(made / "file"), b"first, and longer")
    files.replace_bytes(str(made / "file"), b"second")
    assert (made / "file").read_bytes() == b"second"
    (made / "taken").mkdir()
    with pytest.raises(WriteFailed) as caught:
        files.replace_bytes(str(made / "taken"), b"text")
    assert caught.value.path == str(made / "taken")
    assert sorted(path.name for path in made.iterdir()) == ["file", "taken"]


def test_an_object_is_replaced_whole(hdfs: Any) -> None:
    for data in (b"first, and longer", b"second"):
        files.replace_bytes("hdfs://node:8020/a/file", data)
        assert hdfs.cat_file("/a/file") == data


def test_a_failure_halfway_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for failure in (OSError(28, "full"), KeyboardInterrupt()):
        stand_in(monkeypatch, local_files, "os", replace=raising(failure))
        with pytest.raises((WriteFailed, KeyboardInterrupt)):
            files.replace_bytes(str(tmp_path / "file"), b"new")
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def raising(error: BaseException) -> Callable[..., None]:
    def call(*unused: object, **also: object) -> None:
        raise error

    return call


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "there").symlink_to("victim")
    (tmp_path / "nowhere").symlink_to("planted")
    for name in ("there", "nowhere"):
        files.replace_bytes(str(tmp_path / name), b"report")
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_bytes() == b"report"
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "planted").exists()


def test_a_pipe_or_a_device_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("pipe", "device"):
        with pytest.raises(WriteFailed, match="not a regular file"):
            files.replace_bytes(str(tmp_path / name), b"report")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "device").is_symlink()


@pytest.mark.parametrize(("umask", "mode"), [(0, 0o666), (0o022, 0o644), (0o077, 0o600)])
def test_permissions_are_those_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        files.replace_bytes(str(tmp_path / "file"), b"report")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


# ---------------------------------------------------------------------------------------------------------- broker lock
def taken_by_another(path: Path) -> bool:
    """Whether another process than this one is refused the lock, byte 0 of the file."""
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    ran = subprocess.run([sys.executable, "-S", "-c", program, path], capture_output=True, check=False)
    assert ran.returncode == 0 or b"BlockingIOError" in ran.stderr
    return ran.returncode != 0


@pytest.fixture
def foreign_lock(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A lock file that another process holds, and that process."""
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(1, flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield path, process.pid
        process.communicate()


@pytest.mark.parametrize("before", [None, b"", b"lock", b"other"])
def test_a_lock_is_taken_and_made_as_a_broker_makes_it(before: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    if before is not None:
        path.write_bytes(before)
    with broker_lock.hold(str(path), create=True):
        assert taken_by_another(path)
    assert not taken_by_another(path)
    assert path.read_bytes() == (before or b"lock")


def test_a_lock_that_nobody_made_is_not_made_to_look(tmp_path: Path) -> None:
    with broker_lock.hold(str(tmp_path / "lock"), create=False):
        assert not list(tmp_path.iterdir())
    (tmp_path / "lock").write_bytes(b"lock")
    with broker_lock.hold(str(tmp_path / "lock"), create=False):
        assert taken_by_another(tmp_path / "lock")


@pytest.mark.parametrize("create", [False, True])
def test_a_lock_of_another_process_is_refused(create: bool, foreign_lock: tuple[Path, int]) -> None:
    path, process = foreign_lock
    holder = f"process {process}" if sys.platform == "linux" else "another process"
    with pytest.raises(Refused, match=f"the store is live: {holder} holds its lock"):
        broker_lock.hold(str(path), create=create).__enter__()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_lock_is_live_while_somebody_holds_it(foreign_lock: tuple[Path, int], tmp_path: Path) -> None:
    assert broker_lock.is_live(str(foreign_lock[0]))
    (tmp_path / "other").write_bytes(b"lock")
    assert not broker_lock.is_live(str(tmp_path / "other"))
    assert not broker_lock.is_live(str(tmp_path / "missing"))
    os.mkfifo(tmp_path / "pipe")
    assert not broker_lock.is_live(str(tmp_path / "pipe"))  # and nobody waits for it
    assert not broker_lock.is_live("s3://bucket/store/lock")


def test_a_broker_locks_the_first_byte_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 3, 1)
        program = (
            "import sys; from storeformat.storage import broker_lock\n"
            "path = sys.argv[1]; assert not broker_lock.is_live(path)\n"
            "with broker_lock.hold(path, create=True): pass"
        )
        subprocess.run([sys.executable, "-c", program, path], check=True, cwd=Path(__file__).resolve().parents[2])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_mapped_file_shows_who_has_it(tmp_path: Path) -> None:
    for name in ("log", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000").write_bytes(bytes(4096))
    program = (
        "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); print(1, flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "log" / "00000000000000000000"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        assert broker_lock.mapped_by(str(tmp_path / "log")) == process.pid
        assert broker_lock.mapped_by(str(tmp_path / "other")) is None
        process.communicate()
    assert broker_lock.mapped_by(str(tmp_path / "log")) is None
    assert broker_lock.mapped_by(str(tmp_path / "missing")) is None


# ------------------------------------------------------------------------------------------------------------ attacks
@pytest.mark.parametrize("kind", ["symbolic link", "dangling link", "hard link", "pipe", "socket", "directory"])
def test_a_lock_that_is_no_file_of_its_own_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "victim").touch()
    path = tmp_path / "lock"
    if kind == "symbolic link":
        path.symlink_to(tmp_path / "victim")
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "planted")
    elif kind == "hard link":
        os.link(tmp_path / "victim", path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o644)
    else:
        path.mkdir()
    own = "not a file of its own" if kind in ("hard link", "pipe") else "no file, or another user's"
    with pytest.raises(Refused, match=f"the lock is {own}"):
        broker_lock.hold(str(path), create=True).__enter__()
    assert (tmp_path / "victim").read_bytes() == b""
    assert not (tmp_path / "planted").exists()


# -------------------------------------------------------------------------------------------------------------- extents
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
        assert files.data_end(str(path), SIZE) > SIZE // 2
        assert found(path) == Content(SIZE, SIZE // 2 + 1, EXPECTED.sha256)


def test_an_object_is_what_it_should_be(hdfs: Any) -> None:
    """One request reads the data and what follows it."""
    path = "hdfs://node:8020/object"
    for tail, data_size in ((b"", len(DATA)), (bytes(9), len(DATA)), (bytes(9) + b"\2" + bytes(9), len(DATA) + 10)):
        hdfs.pipe_file("/object", DATA + tail)
        stored, content = durable.read_back(path, len(DATA))
        assert stored == DATA
        assert content == Content(len(DATA) + len(tail), data_size, EXPECTED.sha256)
        assert durable.stray_byte(path, len(DATA)) == (None if data_size == len(DATA) else data_size - 1)
        assert files.data_end(path, 77) == 77
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
        lambda: files.data_end(none, 5), lambda: durable.stray_byte(none, 0), lambda: durable.read_back(none, 5),
        lambda: durable.content_on_disk(none, 5, lambda count: None),
    ):  # fmt: skip
        assert refusal(MissingInput, act) == said
    os.mkfifo(none)
    for act in (lambda: files.data_end(none, 5), lambda: durable.stray_byte(none, 0)):
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
    assert len(DATA) <= files.data_end(str(path), SIZE) <= (len(DATA) + 4096 if told else SIZE)
    (place / "zeros").write_bytes(bytes(10_000))
    os.truncate(place / "zeros", 0)
    os.truncate(place / "zeros", SIZE)
    assert files.data_end(str(place / "zeros"), SIZE) == (0 if told else SIZE)


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
        end = files.data_end(str(path), size)
        assert data[:end].ljust(size, b"\0") == data
        head = data[:begin]
        expected = Content(size, len(head) if stray is None else stray + 1, hashlib.sha256(head).digest())
        assert durable.content_on_disk(str(path), begin, lambda count: None) == expected
