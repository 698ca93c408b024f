"""The bundled store of ``demo`` is unpacked, with every Python that the project names."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import demo


def test_a_python_whose_archives_know_no_filter_unpacks_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That argument came with Python 3.10.12 and 3.11.4: Debian 12 and early Ubuntu 22.04 have older ones."""
    plain = tarfile.TarFile.extractall

    def extractall(self: tarfile.TarFile, path: Any = ".", members: Any = None, *, numeric_owner: bool = False) -> None:
        plain(self, path, members, numeric_owner=numeric_owner)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    about = json.loads((demo._DATA / "store.json").read_text(encoding="utf-8"))
    root = demo._unpack(about, tmp_path)
    assert (root / "original" / "consumequeue").is_dir()
    assert [path.name for path in (root / "lost").iterdir()] == ["commitlog"]


def test_files_are_compared_by_their_places_and_bytes(tmp_path: Path) -> None:
    for side, files in (("one", {"T/0": b"a", "T/1": b"b"}), ("other", {"T/0": b"a", "T/1": b"c", "T/2": b"d"})):
        for name, content in files.items():
            path = tmp_path / side / "consumequeue" / name / "0"
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
    assert demo.compare_queue_files(tmp_path / "one", tmp_path / "other") == (3, 1)
