"""Who may publish and restore, and what somebody may have put into ``backup/`` before."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.patching import stand_in
from support.publishing import Case, Snapshot, snapshot
from support.refusals import refusal

from jobs.publish import backups
from storeformat.errors import NotAStore, Refused

both = pytest.mark.parametrize("job", ["publish", "restore"])
LOG = {"begin": 0, "end": 1, "directories": ["/nowhere"], "broker_version": "5.3"}


def plant(case: Case, **changes: Any) -> Path:
    """A backup with a journal as this program, or somebody else, would write it."""
    directory = case.root / "backup" / "20240101T000000Z"
    (directory / "new").mkdir(parents=True)
    journal = {
        "format": 1, "kind": "publish", "sequence": 1, "source": str(case.root / "made"), "places": [], "log": LOG,
        "papers": [], "digest": "", "state": "swapping", **changes,
    }  # fmt: skip
    (directory / "journal.json").write_text(json.dumps(journal))
    return directory


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.mkdir()
    (path / "consumequeue").mkdir()
    return path


@both
@pytest.mark.parametrize("sudo", [None, "/usr/bin/sudo"])
@pytest.mark.parametrize("user", ["broker", None])
def test_only_the_owner_changes_a_store(
    job: str, user: str | None, sudo: str | None, case: Case, old: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a name, or where there is no sudo, is a number."""
    owner = case.root.stat()

    def named(number: int) -> SimpleNamespace:
        if user is None:
            raise KeyError(number)
        return SimpleNamespace(pw_name=user)

    stand_in(monkeypatch, backups, "os", geteuid=lambda: owner.st_uid + 1)
    stand_in(monkeypatch, backups, "pwd", getpwuid=named)
    stand_in(monkeypatch, backups, "shutil", which=lambda name: sudo)
    monkeypatch.setattr(sys, "argv", ["jobs", job, "--store", "a b"])
    become = (
        "sudo -u broker" if user and sudo else f"setpriv --reuid {owner.st_uid} --regid {owner.st_gid} --clear-groups"
    )
    assert refusal(Refused, getattr(case, job)) == {
        "what": "only the owner of a store changes it", "path": str(case.root),
        "found": f"user {owner.st_uid + 1}", "expected": f"user {owner.st_uid}",
        "advice": f"{become} ./spark-submit.sh {job} --store 'a b'",
    }  # fmt: skip
    assert snapshot(case.root) == old


@pytest.mark.parametrize("place", ["root/consumequeue", "root/backup", "out", "out/index"])
def test_what_its_owner_may_not_move_is_refused(place: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(case.root.parent / place.replace("root", case.root.name).replace("out", case.out.name))
    Path(path).mkdir(exist_ok=True)
    before = snapshot(case.root)
    stand_in(monkeypatch, backups, "os", access=lambda name, mode: name != path)
    with pytest.raises(Refused, match="may not move or change this directory") as caught:
        case.publish()
    assert (caught.value.path, snapshot(case.root)) == (path, before)


# ----------------------------------------------------------------------------------- what somebody has put into backup
@both
@pytest.mark.parametrize(
    "changes",
    [
        {"places": [{"path": "../victim/planted", "old": True, "new": False}]},
        {"places": [{"path": "commitlog", "old": True, "new": False}]},
        {"state": "staging", "papers": ["../../../victim/paper"]},
        {"kind": "restore", "source": "../../victim"},
        {"source": "made"},
        {"kind": "restore", "source": ".."},
        {"sequence": "1"},
    ],
    ids=str,
)
def test_a_journal_with_other_names_than_ours_is_refused(
    job: str, changes: dict[str, Any], case: Case, old: Snapshot
) -> None:
    plant(case, **changes)
    with pytest.raises(Refused, match="cannot be understood"):
        getattr(case, job)()
    assert snapshot(case.root) == old


@both
def test_a_backup_reached_through_a_link_is_refused(job: str, case: Case, tmp_path: Path) -> None:
    directory = plant(case, places=[{"path": "index", "old": True, "new": False}])
    directory.rename(tmp_path / "elsewhere")
    (case.root / "backup").rmdir()
    (case.root / "backup").symlink_to(tmp_path)
    with pytest.raises(Refused, match="a link"):
        getattr(case, job)()


INDEX = [{"path": "index", "old": True, "new": True}]
DEEP = [{"path": "consumequeue/T/config", "old": True, "new": True}]


@both
@pytest.mark.parametrize(("link", "places"), [("", INDEX), ("new", INDEX), ("consumequeue", DEEP)])
def test_a_link_in_a_backup_leads_nowhere(
    job: str, link: str, places: list[dict[str, Any]], case: Case, old: Snapshot, victim: Path
) -> None:
    """Neither are files planted through it, nor taken."""
    directory = plant(case, places=places)
    if not link:
        directory.rename(victim / "X")
    elif link == "new":
        (directory / "new").rmdir()
    (directory / link).symlink_to(victim / "X" if not link else victim)
    before = snapshot(victim)
    with pytest.raises(NotAStore, match="a link leads away") as caught:
        getattr(case, job)()
    assert str(caught.value.path).startswith(str(directory / link))
    assert (snapshot(victim), snapshot(case.root)) == (before, old)


@pytest.mark.parametrize("link", ["X", "X/consumequeue"])
def test_a_finished_backup_behind_a_link_is_not_restored(link: str, case: Case, old: Snapshot, victim: Path) -> None:
    directory = plant(case, state="finished", places=DEEP)
    (victim / "consumequeue" / "T" / "config").mkdir(parents=True)
    if link == "X":
        (directory / "journal.json").rename(victim / "journal.json")
        shutil.rmtree(directory)
        directory.symlink_to(victim)
    else:
        (directory / "consumequeue").symlink_to(victim / "consumequeue")
    before = snapshot(victim)
    with pytest.raises(NotAStore, match="a link leads away"):
        case.restore()
    assert (snapshot(victim), snapshot(case.root)) == (before, old)


@both
@pytest.mark.parametrize("state", ["staging", "swapping"])
def test_new_files_go_back_to_no_source_that_a_journal_alone_names(
    job: str, state: str, case: Case, victim: Path
) -> None:
    places = [{"path": "config", "old": False, "new": True}]
    directory = plant(case, state=state, source=str(victim), places=places, papers=["manifest.json"])
    (directory / "new" / "config").write_text("ProxyCommand planted")
    (directory / "manifest.json").write_text("{}")
    before = snapshot(victim)
    report = getattr(case, job)()
    assert report["notes"][0].startswith(f"what {directory.name} was to publish stays in {directory}/new")
    assert (directory / "new" / "config").exists()
    assert snapshot(victim) == before


@both
def test_an_unfinished_restore_takes_from_backups_alone(job: str, case: Case) -> None:
    directory = plant(case, kind="restore", source="other", places=INDEX)
    (case.root / "backup" / "other").mkdir()
    with pytest.raises(NotAStore, match="no backup of the store") as caught:
        getattr(case, job)()
    assert (caught.value.path, caught.value.found) == (str(directory / "journal.json"), "other")


def test_the_draft_of_a_journal_follows_no_link(case: Case, victim: Path) -> None:
    directory = plant(case, state="staging")
    (directory / "journal.json.draft").symlink_to(victim / "planted")
    case.restore()
    assert not (victim / "planted").exists()


@both
def test_a_journal_of_30_gigabytes_is_wrong_input(job: str, case: Case) -> None:
    with (plant(case) / "journal.json").open("wb") as file:
        file.truncate(30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        getattr(case, job)()


def test_queues_reached_through_a_link_are_not_swapped(case: Case, victim: Path) -> None:
    """A journal of our own whose store has changed since: the topic's directory is a link now."""
    directory = plant(case, places=[{"path": "consumequeue/T/0", "old": True, "new": False}])
    (directory / "consumequeue" / "T" / "0").mkdir(parents=True)
    (case.root / "consumequeue" / "T").symlink_to(victim)
    with pytest.raises(Refused, match="a link"):
        case.restore()
    assert [path.name for path in victim.iterdir()] == ["consumequeue"]


def test_a_rebuild_with_files_that_have_other_names_is_refused(case: Case, tmp_path: Path, old: Snapshot) -> None:
    """Whoever has the other name could change what was published."""
    os.link(case.out / "checkpoint", tmp_path / "kept")
    with pytest.raises(Refused, match="hard links") as caught:
        case.publish()
    assert caught.value.path == str(case.out / "checkpoint")
    assert snapshot(case.root) == old
