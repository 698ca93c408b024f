"""The broker's lock as another process sees it, and who has a log mapped."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.refusals import refusal

from storeformat.errors import Refused
from storeformat.storage import broker_lock

ROOT = Path(__file__).resolve().parents[2]


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
    assert refusal(Refused, lambda: broker_lock.hold(str(path), create=create).__enter__()) == {
        "what": f"the store is live: {holder} holds its lock",
        "path": str(path),
        "advice": "stop the broker first",
    }


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
        subprocess.run([sys.executable, "-c", program, path], check=True, cwd=ROOT)


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
    if kind in ("symbolic link", "dangling link", "socket", "directory"):
        said = {"what": "the lock is no file, or another user's", "advice": "remove it if no broker runs"}
    else:
        said = {"what": "the lock is not a file of its own", "advice": "remove it if no broker runs"}
    found = refusal(Refused, lambda: broker_lock.hold(str(path), create=True).__enter__())
    assert found == {**said, "path": str(path)}
    assert (tmp_path / "victim").read_bytes() == b""
    assert not (tmp_path / "planted").exists()
