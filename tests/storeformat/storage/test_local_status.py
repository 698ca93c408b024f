"""Owners, modes, lengths and space."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import MissingInput
from storeformat.storage import local_status
from storeformat.storage.local_status import FileStatus, Space, free_space, space_of, status_of, statuses_in


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    os.utime(path, (5, 7))
    found = status_of(str(path))
    assert found is not None
    assert (found.name, found.size, found.modified_ms, found.owner) == ("a", 5, 7000, os.geteuid())
    assert not found.is_directory


def test_a_directory_with_links(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    (tmp_path / "d").symlink_to(tmp_path / "nowhere")
    (tmp_path / "e").symlink_to("e")
    found = [(file.name, file.size) for file in statuses_in(str(tmp_path))]
    assert found == [("a", 1), ("b", -1), ("c", 1), ("d", -1), ("e", -1)]
    assert statuses_in(str(tmp_path / "nowhere")) == []
    assert status_of(str(tmp_path / "d")) is None


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
    assert refusal(MissingInput, lambda: status_of(long)) == said
    assert refusal(MissingInput, lambda: statuses_in(long)) == said
    assert refusal(MissingInput, lambda: space_of(long)) == said
    (tmp_path / "file").touch()
    assert status_of(str(tmp_path / "file" / "below")) is None
    assert statuses_in(str(tmp_path / "file")) == []


def test_space_is_counted_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(f_blocks=11, f_bfree=7, f_bavail=5, f_frsize=512, f_bsize=4096, f_flag=0)
    stand_in(monkeypatch, local_status, "os", statvfs=lambda path: found)
    assert space_of(str(tmp_path)) == Space(11 * 512, 7 * 512, 5 * 512)
    found.f_flag = os.ST_RDONLY
    assert not space_of(str(tmp_path)).takes_files
    assert free_space(str(tmp_path)) == 5 * 512
    assert free_space("s3://bucket/a") is None


def test_used_percent_is_rounded_up() -> None:
    assert Space(1000, 500, 400).used_percent == 56  # 500 of 900: 55.6
    assert Space(1000, 500, 500).used_percent == 50
    assert Space(0, 0, 0).used_percent == 0


def test_space(tmp_path: Path) -> None:
    found = space_of(str(tmp_path))
    assert 0 <= found.available <= found.free <= found.total
