"""Files that are read or copied in parallel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import MissingInput
from storeformat.storage import local_copies


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
    local_copies.copy_trees(
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
    local_copies.contents_on_disk([(str(tmp_path / name), 5) for name in "abc"], told.append)
    assert told == [5, 10, 15]


def test_a_file_that_shrinks_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    pread = os.pread
    stand_in(monkeypatch, local_copies, "os", pread=lambda handle, count, position: pread(handle, count, position)[:-1])
    source, target = str(tmp_path / "a"), str(tmp_path / "b")
    said = {"what": "the file was truncated while it was read", "path": source}
    assert refusal(MissingInput, lambda: local_copies.copy_trees([(source, target)], lambda count: None)) == said
    assert not (tmp_path / "b").exists()
