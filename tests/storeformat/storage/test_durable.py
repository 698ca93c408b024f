"""Changes of local directories by themselves: the broker's lock, moves, synced writes, copies, and who owns what."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.storage import durable

ROOT = Path(__file__).resolve().parents[3]


# ------------------------------------------------------------------------------------------------------------ the lock
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
    with durable.broker_lock(str(path), create=True):
        assert taken_by_another(path)
    assert not taken_by_another(path)
    assert path.read_bytes() == (before or b"lock")


def test_a_lock_that_nobody_made_is_not_made_to_look(tmp_path: Path) -> None:
    with durable.broker_lock(str(tmp_path / "lock"), create=False):
        assert not list(tmp_path.iterdir())
    (tmp_path / "lock").write_bytes(b"lock")
    with durable.broker_lock(str(tmp_path / "lock"), create=False):
        assert taken_by_another(tmp_path / "lock")


@pytest.mark.parametrize("create", [False, True])
def test_a_lock_of_another_process_is_refused(create: bool, foreign_lock: tuple[Path, int]) -> None:
    path, process = foreign_lock
    with (
        pytest.raises(Refused, match="the store is live") as caught,
        durable.broker_lock(str(path), create=create),
    ):
        raise AssertionError("two processes have one lock")
    assert sys.platform != "linux" or f"process {process} holds" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_lock_is_live_while_somebody_holds_it(foreign_lock: tuple[Path, int], tmp_path: Path) -> None:
    assert durable.is_live(str(foreign_lock[0]))
    (tmp_path / "other").write_bytes(b"lock")
    assert not durable.is_live(str(tmp_path / "other"))
    assert not durable.is_live(str(tmp_path / "missing"))
    os.mkfifo(tmp_path / "pipe")
    assert not durable.is_live(str(tmp_path / "pipe"))  # and nobody waits for it
    assert not durable.is_live("s3://bucket/store/lock")


def test_a_broker_locks_the_first_byte_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 3, 1)
        program = (
            "import sys; from storeformat.storage import durable\n"
            "path = sys.argv[1]; assert not durable.is_live(path)\n"
            "with durable.broker_lock(path, create=True): pass"
        )
        subprocess.run([sys.executable, "-c", program, path], check=True, cwd=ROOT)


# --------------------------------------------------------------------------------------------------------------- moves
def test_a_move_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("nowhere")
    with pytest.raises(WriteFailed, match="has this name already") as caught:
        durable.move(str(tmp_path / "a"), str(tmp_path / "b"))
    assert caught.value.path == str(tmp_path / "b")
    assert durable.move(str(tmp_path / "a"), str(tmp_path / "new" / "parents" / "a"))
    assert (tmp_path / "new" / "parents" / "a").read_text() == "a"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EIO])
def test_only_another_file_system_is_no_failure(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", fail)
    if number == errno.EXDEV:
        assert not durable.move(str(tmp_path / "a"), str(tmp_path / "b"))
    else:
        with pytest.raises(WriteFailed, match="Input/output error"):
            durable.move(str(tmp_path / "a"), str(tmp_path / "b"))


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
    monkeypatch.setattr(durable, "mount_points", lambda: frozenset({"/", os.path.realpath(tmp_path / mounted)}))
    named = root + path.removeprefix("store")
    assert durable.lies_apart(str(tmp_path / root), str(tmp_path / named)) == apart


@pytest.mark.parametrize("apart", ["store/index", "store"])
def test_what_is_on_another_file_system_lies_apart(apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store" / "index").mkdir(parents=True)
    beyond = os.path.realpath(tmp_path / apart)
    monkeypatch.setattr(durable, "device_of", lambda path: 2 if os.path.realpath(path).startswith(beyond) else 1)
    assert durable.lies_apart(str(tmp_path / "store"), str(tmp_path / "store" / "index")) == (apart != "store")


# ------------------------------------------------------------------------------------------------------ synced changes
@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been synced, by name."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: found.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    return found


def test_all_are_synced_each_once(tmp_path: Path, synced: list[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    for path in paths:
        Path(path).mkdir()
    durable.sync_all(paths * 3)
    assert sorted(synced) == paths
    with pytest.raises(WriteFailed, match="No such file"):
        durable.sync_all([*paths, str(tmp_path / "missing")])


def test_a_file_is_replaced_when_its_bytes_are_on_disk(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"a longer old text")
    replace = os.replace
    monkeypatch.setattr(
        os, "fsync", lambda handle, noted=os.fsync: (sizes.append(os.fstat(handle).st_size), noted(handle))
    )
    sizes: list[int] = []

    def watched(draft: str, target: str) -> None:
        assert Path(draft).read_bytes() == b"new"
        assert (path.read_bytes(), synced, sizes) == (b"a longer old text", [draft], [3])
        replace(draft, target)

    monkeypatch.setattr(os, "replace", watched)
    durable.replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert synced[1:] == [str(tmp_path)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "journal").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteFailed, match="No space left"):
        durable.replace_file(str(tmp_path / "journal"), b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("journal", b"old")]


def test_a_copied_tree_is_on_disk_with_all_its_directories(tmp_path: Path, synced: list[str]) -> None:
    big = b"x" * (1 << 18) + bytes(1 << 18) + b"y" * 100
    files = {"T/0/1": b"one", "T/0/2": b"", "T/1/3": big}
    for name, data in files.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(data)
        os.utime(tmp_path / "source" / name, ns=(1_000_000_001, 1_700_000_000_123_456_789))
    (tmp_path / "source" / "empty" / "deep").mkdir(parents=True)
    with (tmp_path / "source" / "T" / "0" / "1").open("r+b") as file:  # a queue file: its units, and a hole
        file.truncate(1 << 20)
    files["T/0/1"] = b"one" + bytes((1 << 20) - 3)
    os.utime(tmp_path / "source" / "T" / "0" / "1", ns=(1_000_000_001, 1_700_000_000_123_456_789))
    (tmp_path / "paper").write_bytes(b"paper")
    told: list[int] = []
    target = tmp_path / "new" / "place"
    durable.copy_trees(
        [(str(tmp_path / "source"), str(target)), (str(tmp_path / "paper"), str(tmp_path / "papers" / "paper"))],
        told.append,
    )
    copied = {path.relative_to(target).as_posix(): path for path in target.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in copied.items()} == files
    assert {path.stat().st_mtime_ns for path in copied.values()} == {1_700_000_000_123_456_789}
    directories = [path for path in [target, *target.rglob("*")] if path.is_dir()]
    assert {path.relative_to(target).as_posix() for path in directories} == {
        ".",
        "T",
        "T/0",
        "T/1",
        "empty",
        "empty/deep",
    }
    assert {str(path) for path in [*copied.values(), *directories, tmp_path / "new", tmp_path / "papers"]} <= set(
        synced
    )
    assert told == sorted(told)
    assert len(big) < told[-1] <= sum(len(data) for data in files.values()) + len(b"paper")  # holes are no bytes


def test_bytes_are_counted_over_all_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"12345")
    told: list[int] = []
    durable.contents_on_disk([(str(tmp_path / name), 5) for name in "abc"], told.append)
    assert told == [5, 10, 15]


def test_a_file_that_shrinks_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, count, position: pread(handle, count, position)[:-1])
    with pytest.raises(MissingInput, match="became shorter") as caught:
        durable.copy_trees([(str(tmp_path / "a"), str(tmp_path / "b"))], lambda count: None)
    assert caught.value.path == str(tmp_path / "a")
    assert not (tmp_path / "b").exists()


# --------------------------------------------------------------------------------------------------------------- trees
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
    assert durable.tree(str(tmp_path / "missing")) == ([], [])
    assert [durable.is_plain_file(str(tmp_path / "top" / name)) for name in ("file", "dead", "link", "below")] == [
        True, False, False, False,
    ]  # fmt: skip
    (tmp_path / "to-file").symlink_to(tmp_path / "top" / "file")
    assert not durable.is_plain_file(str(tmp_path / "to-file"))


def test_a_directory_that_cannot_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top" / "closed").mkdir(parents=True)

    def scan(path: Any, real: Any = os.scandir) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(MissingInput, match="Permission denied") as caught:
        durable.tree(str(tmp_path / "top"))
    assert caught.value.path == str(tmp_path / "top" / "closed")


def test_only_what_is_empty_throughout_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "longer-name").mkdir()
    (tmp_path / "full" / "below").mkdir(parents=True)
    (tmp_path / "full" / "below" / "file").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "link").symlink_to("nowhere")
    assert durable.remove_empty(str(tmp_path / "a"))
    assert not durable.remove_empty(str(tmp_path / "a"))
    assert not durable.remove_empty(str(tmp_path / "full"))
    assert not durable.remove_empty(str(tmp_path / "linked"))
    assert not durable.remove_empty(str(tmp_path / "full" / "below" / "file"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["below", "file", "full", "link", "linked"]
    durable.remove_file(str(tmp_path / "full" / "below" / "file"))
    durable.remove_file(str(tmp_path / "full" / "below" / "file"))
    assert durable.remove_empty(str(tmp_path / "full"))


# -------------------------------------------------------------------------------------------------------------- owners
@pytest.mark.parametrize(
    ("user", "owner", "able"), [(0, 0, True), (0, 7, True), (7, 7, True), (7, 0, False), (7, 8, False)]
)
def test_files_can_be_given_by_root_and_to_oneself(
    user: int, owner: int, able: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to("nowhere")
    status = os.stat_result((0o40755, 1, 1, 1, owner, owner + 100, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "stat", lambda path, real=os.stat, **more: status if path == "/log" else real(path, **more))
    monkeypatch.setattr(
        os, "chown", lambda path, uid, gid, *, follow_symlinks=True: given.append((path, uid, gid, follow_symlinks))
    )
    assert durable.can_give_to_owner_of("/log") == able
    durable.give_to_owner_of("/log", str(tmp_path / "tree"))
    names = [str(tmp_path / "tree"), str(tmp_path / "tree" / "link")]
    assert given == ([(name, owner, owner + 100, False) for name in names] if user == 0 else [])


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
        assert durable.mapped_by(str(tmp_path / "log")) == process.pid
        assert durable.mapped_by(str(tmp_path / "other")) is None
        process.communicate()
    assert durable.mapped_by(str(tmp_path / "log")) is None
    assert durable.mapped_by(str(tmp_path / "missing")) is None
