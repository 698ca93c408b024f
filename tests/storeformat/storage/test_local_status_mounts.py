"""What lies on a mount of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storeformat.storage import local_status


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
    monkeypatch.setattr(local_status, "mount_points", lambda: frozenset({"/", os.path.realpath(tmp_path / mounted)}))
    named = root + path.removeprefix("store")
    assert local_status.lies_apart(str(tmp_path / root), str(tmp_path / named)) == apart


def test_blanks_in_mount_points_are_octal() -> None:
    lines = [
        "36 35 98:0 /mnt1 /mnt/a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw\n",
        "37 35 98:0 / / rw - ext3 /dev/root rw\n",
    ]
    assert local_status.parse_mount_points(lines) == {"/mnt/a b\\c", "/"}
    assert "/" in local_status.mount_points() or not Path("/proc/self/mountinfo").exists()


@pytest.mark.parametrize("apart", ["store/index", "store"])
def test_what_is_on_another_file_system_lies_apart(apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store" / "index").mkdir(parents=True)
    beyond = os.path.realpath(tmp_path / apart)
    monkeypatch.setattr(local_status, "device_of", lambda path: 2 if os.path.realpath(path).startswith(beyond) else 1)
    assert local_status.lies_apart(str(tmp_path / "store"), str(tmp_path / "store" / "index")) == (apart != "store")
