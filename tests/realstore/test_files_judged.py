"""Files that the broker's user cannot open, and a disk without room for the next segment: what ``preflight`` says, and
what the store of a release then does, run by that user, on that disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hostile import small_disk
from support.real_store import RealStore, RealStoreFailed, build
from support.rebuilding import preflight_here

from jobs.preflight.stopped_store import Reason

pytestmark = [
    pytest.mark.realstore,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others, and file systems"),
]

SEGMENT, DISK = 65_536, 6 << 20
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 400, "messageIndexEnable": False}
USER = 54_321
RELEASES = ("4.9.8", "5.5.0")
OTHERS = {  # files that somebody else made, and that the broker opens
    "lock": "lock",
    "a segment": f"commitlog/{0:020d}",
    "checkpoint": "checkpoint",
    "a queue file": "consumequeue",
}


def reason(root: Path, release: str, rule: str) -> Reason | None:
    more = {"fileReservedTime": 99_999, "diskMaxUsedSpaceRatio": 95, "cleanFileForciblyEnable": False}
    answer = preflight_here(root, {**SETTINGS, **more}, release)
    return next((found for found in answer.reasons if found.rule == rule), None)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can enter; pytest's own are for one."""
    place = Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def chown(root: Path, user: int) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, user, user)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("release", RELEASES)
def test_files_of_another_user(release: str, open_place: Path) -> None:
    jars = build(release).split(os.pathsep)[0]
    if subprocess.run(["setpriv", f"--reuid={USER}", "--clear-groups", "test", "-r", jars], check=False).returncode:
        pytest.skip("another user cannot read the jars where they lie")
    judge = RealStore(release)
    (written,) = judge.write(open_place / "written", 1, seed=83_000, settings=SETTINGS, messages=60)
    for path in (written.root.parent, written.root):
        path.chmod(0o755)
    root = written.root
    for name, place in OTHERS.items():
        chown(root, USER)
        assert reason(root, release, "files_not_writable") is None
        path = root / place
        if path.is_dir():
            path = next(found for found in sorted(path.rglob("*")) if found.is_file())
        os.chown(path, 0, 0)
        path.chmod(0o644)
        found = reason(root, release, "files_not_writable")
        assert found is not None, name
        assert found.unsafe
        assert str(path) in found.values["first"]
        assert not judge.loads_as(root, USER), name
    chown(root, USER)
    assert reason(root, release, "files_not_writable") is None
    assert judge.loads_as(root, USER)


@pytest.mark.parametrize("release", RELEASES)
def test_no_room_for_the_next_segment(release: str, open_place: Path) -> None:
    with small_disk(open_place / "disk", DISK) as disk:
        judge = RealStore(release)
        (written,) = judge.write(open_place / "written", 1, seed=84_000, settings=SETTINGS, messages=60)
        root = disk / "store"
        subprocess.run(["cp", "-a", "--sparse=never", written.root, root], check=True)
        state = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(state.f_bavail * state.f_frsize - SEGMENT // 2))
        found = reason(root, release, "free_space")
        assert found is not None
        assert found.unsafe
        count = 3 * SEGMENT // 1024
        with contextlib.suppress(RealStoreFailed):  # its process may end
            assert judge.fill(root, count) < count, "against the advice messages are not taken"
        (disk / "ballast").unlink()
        shutil.rmtree(root)
        subprocess.run(["cp", "-a", "--sparse=never", written.root, root], check=True)
        assert reason(root, release, "free_space") is None
        assert judge.fill(root, count) == count
