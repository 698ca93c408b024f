"""Whose rights a publish or a restore has: root changes a store as its owner, who can lead it nowhere else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in
from support.publishing import Case, Snapshot, quiet, snapshot
from support.refusals import refusal

from jobs.contract.options import PublishOptions
from jobs.publish import publish
from jobs.rebuild.manifest import read_manifest
from storeformat.errors import NotAStore, Refused, StoreFormatError
from storeformat.storage import store_owner
from storeformat.store import swap

BROKER, THIRD = 777, 778
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
both = pytest.mark.parametrize("job", ["publish", "restore"])
LOG = {"begin": 0, "end": 1, "directories": ["/nowhere"], "broker_version": "5.3"}


def plant(case: Case, **changes: Any) -> Path:
    """A backup with a journal as this program, or somebody else, would write it."""
    directory = case.root / "backup" / "20240101T000000Z"
    (directory / "new").mkdir(parents=True)
    journal = {
        "format": 1, "kind": "publish", "sequence": 1, "source": str(case.root / "made"), "places": [], "log": LOG,
        "papers": [], "copied": False, "digest": "", "state": "swapping", **changes,
    }  # fmt: skip
    (directory / "journal.json").write_text(json.dumps(journal))
    return directory


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.mkdir()
    (path / "consumequeue").mkdir()
    return path


@pytest.fixture
def owned(case: Case, tmp_path: Path) -> Case:
    """A store of the broker's user, with a rebuild that root has made for itself alone."""
    for path in [case.root, *case.root.rglob("*")]:
        os.chown(path, BROKER, BROKER + 1)
    for path in case.out.rglob("*"):
        path.chmod(0o700)
    case.out.chmod(0o700)
    for path in [tmp_path, *list(tmp_path.parents)[:-1]]:
        path.chmod(path.stat().st_mode | 0o055)
    return case


def owners(directory: Path) -> set[tuple[int, int]]:
    return {(path.stat().st_uid, path.stat().st_gid) for path in [directory, *directory.rglob("*")]}


@as_root
def test_root_changes_a_store_as_its_owner(owned: Case, new: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, users = swap.begin, []

    def noted(*given: Any) -> Any:
        users.append((os.geteuid(), os.getegid(), os.getgroups()))
        return begin(*given)

    monkeypatch.setattr(swap, "begin", noted)
    groups = os.getgroups()
    (owned.root / "lock").unlink()
    assert owned.publish()["status"] == "ok"
    assert snapshot(owned.root) == new
    assert owned.restore()["restored"]
    assert owners(owned.root) == {(BROKER, BROKER + 1)}, "backups, journals and the lock, too"
    assert users == [(BROKER, BROKER + 1, [BROKER + 1])] * 2
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, groups)


@as_root
def test_a_rebuild_that_was_half_given_is_given_whole(owned: Case, new: Snapshot) -> None:
    for path in [owned.out / "index", *(owned.out / "index").iterdir(), owned.out / "checkpoint"]:
        os.chown(path, BROKER, BROKER + 1)
    owned.publish()
    assert snapshot(owned.root) == new
    assert owners(owned.root) == {(BROKER, BROKER + 1)}


@as_root
@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda case: os.chown(case.root / "consumequeue", 0, 0), "who owns the store, may not move or change this"),
        (lambda case: os.chown(case.root / "lock", 0, 0), "the lock is no file, or another user's"),
        (lambda case: os.chown(case.out, THIRD, THIRD), "another user can lead root elsewhere"),
        (lambda case: os.chown(case.out / "index", THIRD, THIRD), "another user can lead root elsewhere"),
        (lambda case: (case.out / "index").chmod(0o777), "another user can lead root elsewhere"),
        (lambda case: os.link(case.out / "checkpoint", case.root.parent / "kept"), "not a file that has this name"),
        (lambda case: (case.out / "link").symlink_to("/etc"), "not a file that has this name"),
        (lambda case: (case.root.parent).chmod(0o777), "another user can lead root elsewhere"),
    ],
    ids=["queues of root", "lock of root", "rebuild", "part", "open", "hard link", "link", "open above"],
)
def test_what_root_may_not_give_or_its_owner_not_move_is_refused(prepare: Any, why: str, owned: Case) -> None:
    prepare(owned)
    before = snapshot(owned.root)
    with pytest.raises(Refused, match=why):
        owned.publish()
    assert snapshot(owned.root) == before
    assert os.geteuid() == 0


@as_root
def test_a_rebuild_that_the_owner_cannot_reach_is_refused(owned: Case) -> None:
    hidden = owned.root.parent / "mine"
    hidden.mkdir(mode=0o700)
    owned.out.rename(hidden / "out")
    with pytest.raises(Refused, match="cannot reach this rebuild"):
        Case(owned.root, hidden / "out").publish()
    assert owners(hidden) == {(0, 0)}


@as_root
def test_where_root_cannot_be_the_owner_one_line_says_so(owned: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(user: int) -> None:
        if user:
            raise OSError(errno.EINVAL, "no such user in this container")
        os.seteuid(user)

    stand_in(monkeypatch, store_owner, "os", seteuid=refused)
    assert refusal(Refused, owned.publish) == {
        "what": f"root cannot act for user {BROKER}, who owns the store: Invalid argument",
        "path": str(owned.root), "advice": "run this as that user",
    }  # fmt: skip
    assert (os.geteuid(), os.getegid()) == (0, 0)


@as_root
def test_a_store_of_root_that_others_may_change_is_refused(case: Case) -> None:
    case.root.chmod(0o777)
    with pytest.raises(Refused, match="another user can lead root elsewhere"):
        case.publish()
    case.root.chmod(0o755)
    (case.root / "consumequeue").chmod(0o777)
    with pytest.raises(Refused, match="another user can lead root elsewhere"):
        case.publish()
    assert not case.backups


@as_root
@both
def test_an_owner_who_exchanges_the_store_underway_changes_nothing_else(
    job: str, owned: Case, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if job == "restore":
        owned.publish()
    begin, before = swap.begin, snapshot(victim)

    def exchanged(*given: Any) -> Any:
        owned.root.rename(owned.root.with_name("away"))
        owned.root.symlink_to(victim)
        return begin(*given)

    os.chown(owned.root.parent, BROKER, BROKER)
    monkeypatch.setattr(swap, "begin", exchanged)
    with pytest.raises((StoreFormatError, OSError)):
        getattr(owned, job)()
    assert snapshot(victim) == before
    assert not (victim / "backup").exists()


# ----------------------------------------------------------------------------------- what somebody has put into backup
@both
@pytest.mark.parametrize(
    "changes",
    [
        {"places": [{"path": "../victim/planted", "old": True, "new": False}]},
        {"places": [{"path": "commitlog", "old": True, "new": False}]},
        {"state": "staging", "copied": True, "papers": ["../../../victim/paper"]},
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
@pytest.mark.parametrize(("link", "places"), [("", INDEX), ("new", INDEX), ("aside", DEEP), ("consumequeue", DEEP)])
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


@pytest.mark.parametrize("link", ["", "consumequeue", ".drafts"])
def test_a_rebuild_is_fetched_through_no_link(
    link: str, case: Case, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest, and so the name of the directory, can be guessed from the log."""
    monkeypatch.setattr(publish, "_check_queue_types", lambda *given: None)  # asks the storage
    monkeypatch.setattr(publish, "read_manifest", lambda source: read_manifest(str(case.out)))
    fetched = case.root / "backup" / f"fetched-{read_manifest(str(case.out)).digest[:16]}"
    (fetched if link else fetched.parent).mkdir(parents=True)
    (fetched / link).symlink_to(victim)
    before = snapshot(victim)
    with pytest.raises(NotAStore, match="a link leads away"):
        publish.run(PublishOptions(store=str(case.root), rebuilt="s3://b/out", after_crash=True), quiet())
    assert snapshot(victim) == before


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


def test_published_files_have_the_permissions_of_the_store(case: Case) -> None:
    for path in [case.out, *case.out.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    case.root.chmod(0o750)
    case.publish()
    modes = {
        stat.S_IMODE(path.stat().st_mode)
        for name in ("consumequeue", "index", "checkpoint")
        for path in [case.root / name, *(case.root / name).rglob("*")]
    }
    assert modes == {0o750, 0o640}


@as_root
def test_an_owner_who_cannot_read_this_program_does_not_matter(owned: Case) -> None:
    """Python may be where root alone can read it: nothing is imported with the rights of the owner."""
    program = (
        "import os, sys\n"
        "sys.addaudithook(lambda event, given: event == 'import' and os.geteuid() and os._exit(99))\n"
        "from jobs.cli import command_line\n"
        "sys.exit(command_line.main(sys.argv[1:]))\n"
    )
    for words in (("publish", "--from", str(owned.out), "--after-crash"), ("restore",)):
        ended = subprocess.run(
            [sys.executable, "-c", program, *words, "--store", str(owned.root), "--quiet"], check=False
        )
        assert ended.returncode == 0, words
