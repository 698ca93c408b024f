"""Local files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.refusals import refusal

from storeformat.errors import WriteFailed
from storeformat.storage import local_files


def test_a_file_and_its_directory_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "report.json"
    local_files.replace_bytes(str(path), b"one")
    local_files.replace_bytes(str(path), b"two")
    assert (path.read_bytes(), list(path.parent.iterdir())) == (b"two", [path])
    assert path.stat().st_mode & 0o022 == 0


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), local_files.replacing(str(path)) as file:
        file.writelines([b"new", "no bytes"])  # type: ignore[list-item]
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"keep")
    link.symlink_to(target)
    local_files.replace_bytes(str(link), b"new")
    assert (link.is_symlink(), link.read_bytes(), target.read_bytes()) == (False, b"new", b"keep")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    said = {"what": "cannot be written: this is not a regular file", "path": pipe}
    assert refusal(WriteFailed, lambda: local_files.replace_bytes(pipe, b"x")) == said
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]
