"""Changes of local directories by themselves: moves, synced writes, trees."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.storage import durable


def test_a_move_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("nowhere")
    said = {
        "what": "this name is already taken",
        "path": str(tmp_path / "b"),
        "advice": "move it away, and run this again",
    }
    assert refusal(WriteFailed, lambda: durable.move(str(tmp_path / "a"), str(tmp_path / "b"))) == said
    durable.move(str(tmp_path / "a"), str(tmp_path / "new" / "parents" / "a"))
    assert (tmp_path / "new" / "parents" / "a").read_text() == "a"
    assert not (tmp_path / "a").exists()


def test_another_file_system_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, target: str, **handles: int) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    (tmp_path / "a").touch()
    stand_in(monkeypatch, durable, "os", rename=fail)
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
