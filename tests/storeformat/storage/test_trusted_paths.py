"""Where root writes: which ways another user could exchange, and that a handle stays where it was opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.patching import stand_in

from storeformat.errors import Refused
from storeformat.storage import local_files, outputs, trusted_paths

STRANGER = 4711
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")


def theirs(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def sticky_with_link_of_theirs(path: Path) -> None:
    """Someone else's link waits in a directory that is for all."""
    path.chmod(0o1777)
    (path / "new").symlink_to("/nowhere")
    theirs(path / "new")


EXCHANGEABLE: dict[str, Callable[[Path], object]] = {
    "of another user": theirs,
    "writable for a group": lambda path: path.chmod(0o775),
    "writable for all": lambda path: path.chmod(0o777),
    "of another user, sticky": lambda path: (theirs(path), path.chmod(0o1777)),
    "with a link of another user": sticky_with_link_of_theirs,
}


@ROOT_ONLY
@pytest.mark.parametrize(
    ("kind", "deep"), [(kind, deep) for kind in EXCHANGEABLE for deep in ("", "own") if "link" not in kind or not deep]
)
def test_root_makes_nothing_where_another_user_can_exchange_it(kind: str, deep: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / deep).mkdir(parents=True)
    EXCHANGEABLE[kind](place)
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "link").symlink_to(place)
    for way in (place, tmp_path / "link"):
        for act in (outputs.place_for, outputs.make_directory):
            with pytest.raises(Refused, match="another user can lead root elsewhere here") as caught:
                act(str(way / deep / "new"))
            assert str(caught.value.path).startswith(str(place))
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.rglob("*")) == before


@ROOT_ONLY
def test_root_makes_what_nobody_else_can_exchange(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary").chmod(0o1777)
    (tmp_path / "link").symlink_to("temporary")
    (tmp_path / "link" / "up").symlink_to("../temporary")
    for name in ("temporary/a/b", "link/c", "link/up/./d"):
        place = outputs.place_for(str(tmp_path / name))
        assert place == os.path.realpath(tmp_path / name)
        outputs.make_directory(place)
        assert outputs.place_for(str(tmp_path / name)) == place
    assert sorted(path.name for path in (tmp_path / "temporary").iterdir()) == ["a", "c", "d", "up"]
    (tmp_path / "file").touch()
    assert outputs.place_for(str(tmp_path / "file" / "new")) == str(tmp_path / "file" / "new")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(NotADirectoryError), trusted_paths.opened(str(tmp_path / "circle")):
        pass


@ROOT_ONLY
def test_a_report_of_root_goes_into_the_directory_of_another_user(tmp_path: Path) -> None:
    """As that of node_exporter; but not through a link that is that user's, and not where he then leads."""
    place, victim = tmp_path / "place", tmp_path / "victim"
    place.mkdir()
    victim.mkdir()
    theirs(place)
    (place / "link").symlink_to(victim)
    theirs(place / "link")
    local_files.replace_bytes(str(place / "report"), b"text")
    with pytest.raises(Refused, match="lead root elsewhere"):
        local_files.replace_bytes(str(place / "link" / "report"), b"text")
    with local_files.replacing(str(place / "report")) as file:
        file.write(b"newer")
        place.rename(tmp_path / "moved")
        place.symlink_to(victim)
    assert (tmp_path / "moved" / "report").read_bytes() == b"newer"
    assert not list(victim.iterdir())


@ROOT_ONLY
def test_root_of_a_container_trusts_who_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the true root has no number of his own."""
    theirs(tmp_path)
    monkeypatch.setattr(trusted_paths, "_stranger", lambda: STRANGER)
    assert outputs.place_for(str(tmp_path / "new")) == str(tmp_path / "new")


def test_who_is_not_root_follows_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place").chmod(0o777)
    (tmp_path / "link").symlink_to("place")
    stand_in(monkeypatch, trusted_paths, "os", geteuid=lambda: STRANGER)
    outputs.make_directory(str(tmp_path / "link" / "a" / "b"))
    assert outputs.place_for(str(tmp_path / "link" / "c")) == os.path.realpath(tmp_path / "place" / "c")
    local_files.replace_bytes(str(tmp_path / "link" / "report"), b"text")
    assert sorted(path.name for path in (tmp_path / "place").iterdir()) == ["a", "report"]
