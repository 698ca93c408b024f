"""Who gets the files that were made for a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from storeformat.storage import owners


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
    assert owners.can_give_to_owner_of("/log") == able
    owners.give_to_owner_of("/log", str(tmp_path / "tree"))
    names = [str(tmp_path / "tree"), str(tmp_path / "tree" / "link")]
    assert given == ([(name, owner, owner + 100, False) for name in names] if user == 0 else [])
