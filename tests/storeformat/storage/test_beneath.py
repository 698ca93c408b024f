"""Names below a directory that another user owns: links in the way, files of others, who gets what."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import NotAStore, Refused, WriteFailed
from storeformat.storage import beneath, durable

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory beside the store, and a link in the store that leads there."""
    (tmp_path / "store").mkdir()
    (tmp_path / "victim" / "sub").mkdir(parents=True)
    (tmp_path / "victim" / "file").write_text("theirs")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "victim")
    return tmp_path / "victim"


def untouched(victim: Path) -> bool:
    return sorted(path.name for path in victim.rglob("*")) == ["file", "sub"]


def test_nothing_moves_through_a_link(victim: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "mine").touch()
    for source, target in (("link/file", "taken"), ("mine", "link/planted"), ("mine", "link/new/planted")):
        with pytest.raises(Refused, match="a link"):
            durable.move(str(store / source), str(store / target), (str(store),))
    assert untouched(victim)
    assert durable.move(str(store / "link"), str(store / "moved"), (str(store),))  # the link itself is a name as others
    assert (store / "moved").is_symlink()


def test_nothing_is_removed_or_written_through_a_link(victim: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    for act in (
        lambda: beneath.remove_tree(f"{store}/link/sub", store),
        lambda: beneath.remove_tree(f"{store}/link", store),
        lambda: beneath.remove_empty(f"{store}/link/sub", store),
        lambda: beneath.remove_file(f"{store}/link/file", store),
        lambda: beneath.replace_file(f"{store}/link/file", b"new", store),
        lambda: beneath.make_directory(f"{store}/link/new", store),
        lambda: beneath.give(f"{store}/link", store, beneath.ownership_of(store)),
    ):
        with pytest.raises(Refused, match="a link"):
            act()
    assert untouched(victim)
    assert (victim / "file").read_text() == "theirs"


def test_a_tree_is_removed_with_the_links_in_it_alone(victim: Path, tmp_path: Path) -> None:
    (tmp_path / "store" / "tree" / "below").mkdir(parents=True)
    (tmp_path / "store" / "tree" / "below" / "link").symlink_to(victim)
    beneath.remove_tree(str(tmp_path / "store" / "tree"), str(tmp_path / "store"))
    beneath.remove_tree(str(tmp_path / "store" / "tree"), str(tmp_path / "store"))
    assert not (tmp_path / "store" / "tree").exists()
    assert untouched(victim)


def test_a_held_directory_stays_itself(victim: Path, tmp_path: Path) -> None:
    (tmp_path / "store" / "here").mkdir()
    with beneath.held(str(tmp_path / "store" / "here"), str(tmp_path / "store")) as here:
        if not here.startswith("/proc/"):
            pytest.skip("this system has no names of handles")
        (tmp_path / "store" / "here").rename(tmp_path / "store" / "away")
        (tmp_path / "store" / "here").symlink_to(victim)
        Path(here, "written").touch()
    assert (tmp_path / "store" / "away" / "written").exists()
    assert untouched(victim)


@ROOT_ONLY
@pytest.mark.parametrize("foreign", ["file", "directory", "everybody", "hard link", "symbolic link"])
def test_what_others_can_write_is_not_read(foreign: str, tmp_path: Path) -> None:
    directory, path = tmp_path / "backup", tmp_path / "backup" / "journal.json"
    directory.mkdir()
    path.write_bytes(b"{}")
    assert beneath.read_trusted(str(path), str(tmp_path), 2) == b"{}"
    if foreign == "file":
        os.chown(path, 777, 777)
    elif foreign == "directory":
        os.chown(directory, 777, 777)
    elif foreign == "everybody":
        path.chmod(0o666)
    elif foreign == "hard link":
        os.link(path, tmp_path / "other")
    else:
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    said = refusal(Refused, lambda: beneath.read_trusted(str(path), str(tmp_path), 2))
    if foreign == "hard link":
        assert said == HARD_LINK | {"path": str(path)}
    elif foreign == "symbolic link":
        assert said == LINK | {"path": str(path)}
    else:
        assert said == {
            "what": "what is written here is not trusted: another user owns it, or everybody may write it",
            "path": str(directory if foreign == "directory" else path),
            "found": "user 0" if foreign == "everybody" else "user 777",
            "expected": "user 0 or 0",
            "advice": "run this as that user, or move it out of backup/",
        }


LINK = {"what": "something that is not a directory, or a link, is in the way", "advice": "nothing was changed"}
HARD_LINK = {
    "what": "this file has other names (hard links)",
    "found": 2,
    "expected": 1,
    "advice": "make a copy that has files of its own (cp -a), and use that",
}


@ROOT_ONLY
def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir()
    beneath.refuse_directory_of_others(str(path), str(tmp_path))
    os.chown(path, 777, 0)
    assert refusal(Refused, lambda: beneath.refuse_directory_of_others(str(path), str(tmp_path))) == {
        "what": "another user made this directory",
        "path": str(path),
        "found": "user 777",
        "expected": "user 0",
        "advice": "run this as that user",
    }


def test_what_is_no_file_is_not_opened_or_given(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    said = {"what": "this is not a regular file", "path": path}
    assert refusal(Refused, lambda: beneath.open_file(path, (str(tmp_path),))) == said
    assert refusal(Refused, lambda: beneath.give(path, str(tmp_path), beneath.ownership_of(str(tmp_path)))) == said


def test_a_link_in_the_way_is_named(victim: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    for path in (f"{store}/link", f"{store}/link/file"):
        assert refusal(Refused, lambda path=path: beneath.open_file(path, (store,)))["what"] == LINK["what"]  # type: ignore[misc]
    said = refusal(Refused, lambda: beneath.make_directory(f"{store}/link/new", store))
    assert said == LINK | {"path": f"{store}/link/new"}


def test_directories_on_the_way_are_made_for_all_to_read(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        beneath.make_directory(str(tmp_path / "base" / "a" / "b"), str(tmp_path / "base"))
    finally:
        os.umask(before)
    assert [(tmp_path / "base" / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o755, 0o755]


@ROOT_ONLY
def test_a_directory_that_root_makes_gets_its_owner(tmp_path: Path) -> None:
    owner = beneath.Ownership(777, 778, 0o755, 0o644)
    beneath.make_directory(str(tmp_path / "a" / "b"), str(tmp_path), owner)
    assert [(tmp_path / name).stat().st_uid for name in ("a", "a/b")] == [0, 777]
    assert (tmp_path / "a" / "b").stat().st_gid == 778
    beneath.make_directory(str(tmp_path / "a" / "b"), str(tmp_path), beneath.Ownership(5, 5, 0o755, 0o644))
    assert (tmp_path / "a" / "b").stat().st_uid == 777, "that of another user stays"


def test_a_file_of_30_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "journal.json").open("wb") as file:
        file.truncate(30 << 30)
    path = str(tmp_path / "journal.json")
    assert refusal(NotAStore, lambda: beneath.read_trusted(path, str(tmp_path), 1 << 20)) == {
        "what": "this file is too large",
        "path": path,
        "found": 30 << 30,
        "expected": "at most 1048576 bytes",
    }


@pytest.mark.parametrize(
    ("mode", "directories", "files"),
    [(0o755, 0o755, 0o644), (0o777, 0o755, 0o644), (0o2750, 0o750, 0o640), (0o700, 0o700, 0o600)],
)
def test_what_is_given_has_the_permissions_of_the_store(
    mode: int, directories: int, files: int, tmp_path: Path
) -> None:
    (tmp_path / "new" / "T").mkdir(parents=True, mode=0o777)
    (tmp_path / "new" / "T" / "0").touch()
    (tmp_path / "new" / "T" / "0").chmod(0o777)
    tmp_path.chmod(mode)
    beneath.give(str(tmp_path / "new"), str(tmp_path), beneath.ownership_of(str(tmp_path)))
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in ("new", "new/T", "new/T/0")] == [
        directories, directories, files,
    ]  # fmt: skip


@pytest.mark.parametrize(("user", "can"), [(0, True), (777, True), (778, False)])
def test_who_can_give_files_to_the_owner_of_a_directory(
    user: int, can: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, beneath, "os", geteuid=lambda: user)
    monkeypatch.setattr(beneath, "ownership_of", lambda path: {str(tmp_path): beneath.Ownership(777, 1, 0, 0)}[path])
    assert beneath.can_give_to_owner_of(str(tmp_path)) == can


@ROOT_ONLY
def test_a_tree_gets_the_owner_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "new" / "T").mkdir(parents=True)
    (tmp_path / "new" / "T" / "0").touch()
    os.chown(tmp_path, 777, 778)
    beneath.give(str(tmp_path / "new"), str(tmp_path), beneath.ownership_of(str(tmp_path)))
    found = {(path.stat().st_uid, path.stat().st_gid) for path in (tmp_path / "new").rglob("*")}
    assert found == {(777, 778)}


@pytest.mark.parametrize("kind", ["hard link", "symbolic link", "pipe"])
def test_what_may_be_of_others_is_not_given(kind: str, tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    (tmp_path / "new").mkdir()
    if kind == "hard link":
        os.link(tmp_path / "passwd", tmp_path / "new" / "file")
    elif kind == "pipe":
        os.mkfifo(tmp_path / "new" / "file")
    else:
        (tmp_path / "new" / "file").symlink_to(tmp_path / "passwd")
    before = (tmp_path / "passwd").stat()
    with pytest.raises((Refused,)):
        beneath.give(str(tmp_path / "new"), str(tmp_path), beneath.Ownership(777, 777, 0o700, 0o600))
    after = (tmp_path / "passwd").stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


# ------------------------------------------------------------------------------------------------------ synced changes


def test_a_file_is_replaced_when_its_bytes_are_on_disk(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"a longer old text")
    replace = os.replace
    sizes: list[int] = []

    def watched(draft: str, target: str, **handles: int) -> None:
        assert (tmp_path / draft).read_bytes() == b"new"
        assert (path.read_bytes(), synced, sizes) == (b"a longer old text", [str(tmp_path / draft)], [3])
        replace(draft, target, **handles)

    noted = beneath.os.fsync

    def sync(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        noted(handle)

    stand_in(monkeypatch, beneath, "os", replace=watched, fsync=sync)
    beneath.replace_file(str(path), b"new", str(tmp_path))
    assert path.read_bytes() == b"new"
    assert synced[1:] == [str(tmp_path)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "journal").write_bytes(b"old")
    stand_in(monkeypatch, beneath, "os", fsync=full)
    with pytest.raises(WriteFailed, match="No space left"):
        beneath.replace_file(str(tmp_path / "journal"), b"new", str(tmp_path))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("journal", b"old")]


def test_only_what_is_empty_throughout_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "longer-name").mkdir()
    (tmp_path / "full" / "below").mkdir(parents=True)
    (tmp_path / "full" / "below" / "file").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "link").symlink_to("nowhere")
    assert beneath.remove_empty(str(tmp_path / "a"), str(tmp_path))
    assert not beneath.remove_empty(str(tmp_path / "a"), str(tmp_path))
    assert not beneath.remove_empty(str(tmp_path / "full"), str(tmp_path))
    assert not beneath.remove_empty(str(tmp_path / "linked"), str(tmp_path))
    assert not beneath.remove_empty(str(tmp_path / "full" / "below" / "file"), str(tmp_path))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["below", "file", "full", "link", "linked"]
    beneath.remove_file(str(tmp_path / "full" / "below" / "file"), str(tmp_path))
    beneath.remove_file(str(tmp_path / "full" / "below" / "file"), str(tmp_path))
    assert beneath.remove_empty(str(tmp_path / "full"), str(tmp_path))
