"""Stores whose owner attacks whoever runs publish or restore: nothing outside the store changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.publishing import Case, Snapshot, quiet, snapshot

from jobs.contract.reporter import Reporter
from jobs.publish import publish
from jobs.rebuild.manifest import Manifest, read_manifest
from storeformat.errors import NotAStore, Refused, StoreFormatError, WriteFailed
from storeformat.store import swap

LOG = {"begin": 0, "end": 1, "directories": ["/nowhere"], "broker_version": "5.3"}
BROKER = 777


def plant(case: Case, **changes: Any) -> Path:
    """A backup with a journal as an attacker would write it."""
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
    (tmp_path / "case").mkdir(exist_ok=True)
    path = tmp_path / "case" / "victim"
    path.mkdir()
    (path / "paper").write_text("theirs")
    return path


@pytest.mark.parametrize("job", ["publish", "restore"])
@pytest.mark.parametrize(
    "changes",
    [
        {"places": [{"path": "../victim/planted", "old": True, "new": False}]},
        {"places": [{"path": "commitlog", "old": True, "new": False}]},
        {"places": [{"path": "/etc", "old": True, "new": True}]},
        {"places": [{"path": "consumequeue/../../victim/paper", "old": True, "new": True}]},
        {"state": "staging", "copied": True, "papers": ["../../../victim/paper"]},
        {"state": "staging", "copied": True, "papers": ["lock"]},
        {"kind": "restore", "source": "../../victim"},
        {"kind": "restore", "source": ".."},
        {"source": "made"},
        {"sequence": "1"},
        {"copied": "yes"},
    ],
    ids=str,
)
def test_a_journal_with_other_names_than_ours_is_refused(
    job: str, changes: dict[str, Any], case: Case, victim: Path, old: Snapshot
) -> None:
    directory = plant(case, **changes)
    (directory / "planted").touch()
    with pytest.raises(Refused, match="cannot be understood"):
        getattr(case, job)()
    assert [path.name for path in victim.iterdir()] == ["paper"]
    assert {name: value for name, value in snapshot(case.root).items() if name != "lock"} == {
        name: value for name, value in old.items() if name != "lock"
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
@pytest.mark.parametrize("job", ["publish", "restore"])
@pytest.mark.parametrize("name", ["journal.json", "."])
def test_a_journal_of_another_user_is_refused_and_nothing_undone(job: str, name: str, case: Case) -> None:
    directory = plant(case, places=[{"path": "index", "old": True, "new": False}])
    (directory / "index").mkdir()
    os.chown(directory / name, BROKER, BROKER)
    with pytest.raises(Refused, match="not trusted"):
        getattr(case, job)()
    assert (directory / "index").is_dir()


@pytest.mark.parametrize("job", ["publish", "restore"])
def test_a_backup_reached_through_a_link_is_refused(job: str, case: Case, tmp_path: Path) -> None:
    directory = plant(case, places=[{"path": "index", "old": True, "new": False}])
    directory.rename(tmp_path / "elsewhere")
    (case.root / "backup").rmdir()
    (case.root / "backup").symlink_to(tmp_path)
    with pytest.raises(Refused, match="a link"):
        getattr(case, job)()


@pytest.mark.parametrize("job", ["publish", "restore"])
def test_a_journal_of_30_gigabytes_is_wrong_input(job: str, case: Case) -> None:
    with (plant(case) / "journal.json").open("wb") as file:
        file.truncate(30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        getattr(case, job)()


def test_queues_reached_through_a_link_are_not_swapped(case: Case, victim: Path) -> None:
    """A journal of our own whose store has changed since: the topic's directory is a link now."""
    (victim / "0").mkdir()
    place = {"path": "consumequeue/T/0", "old": True, "new": False}
    directory = plant(case, places=[place])
    (directory / "consumequeue" / "T" / "0").mkdir(parents=True)
    (case.root / "consumequeue" / "T").symlink_to(victim)
    with pytest.raises(Refused, match="a link"):
        case.restore()
    assert sorted(path.name for path in victim.iterdir()) == ["0", "paper"]


def test_a_lock_that_leads_elsewhere_is_refused(case: Case, victim: Path) -> None:
    (case.root / "lock").unlink(missing_ok=True)
    (case.root / "lock").symlink_to(victim / "made")
    with pytest.raises(Refused, match="the lock is a link"):
        case.publish()
    assert not (victim / "made").exists()


def test_a_rebuild_with_files_that_have_other_names_is_refused(case: Case, tmp_path: Path, old: Snapshot) -> None:
    """Whoever has the other name could change what was published."""
    os.link(case.out / "checkpoint", tmp_path / "kept")
    with pytest.raises(Refused, match="hard links") as caught:
        case.publish()
    assert caught.value.path == str(case.out / "checkpoint")
    assert snapshot(case.root) == old


def test_published_files_have_the_permissions_of_the_store(case: Case) -> None:
    for path in [case.out, *case.out.rglob("*")]:
        path.chmod(0o777)
    case.root.chmod(0o750)
    case.publish()
    modes = {
        path.stat().st_mode & 0o7777
        for name in ("consumequeue", "index", "checkpoint")
        for path in [case.root / name, *(case.root / name).rglob("*")]
    }
    assert modes == {0o750, 0o640}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_leaves_a_store_that_its_owner_can_start(case: Case) -> None:
    """The files are the owner's, and ``backup/``, where he can make his own; what root swapped stays root's."""
    for path in [case.root, *case.root.rglob("*")]:
        os.chown(path, BROKER, BROKER + 1)
    (case.root / "lock").unlink()
    log = case.root / "commitlog"
    os.chown(log, BROKER + 2, BROKER + 2)  # whoever owns the log, or what a manifest calls so, decides nothing
    report = case.publish()
    users = {path.relative_to(case.root).as_posix(): path.stat().st_uid for path in case.root.rglob("*")}
    swap = f"backup/{report['backup']}"
    assert users[swap] == users[f"{swap}/journal.json"] == 0
    assert {name for name, user in users.items() if user not in (BROKER, 0)} == {"commitlog"}
    mine = {name for name, user in users.items() if user == 0}
    assert mine == {swap, f"{swap}/journal.json"}
    assert case.restore()["restored"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("first", [0, BROKER])
def test_who_takes_back_what_somebody_else_swapped(first: int, case: Case, tmp_path: Path) -> None:
    """The owner can not take back a swap of root's, and root trusts none of the owner's; both are told what to do."""
    for path in [tmp_path, *tmp_path.rglob("*")]:
        os.chown(path, BROKER, BROKER)
    for path in list(tmp_path.parents)[:-1]:
        path.chmod(path.stat().st_mode | 0o055)

    def run_as(user: int, act: Callable[[], object]) -> None:
        os.seteuid(user)
        try:
            act()
        finally:
            os.seteuid(0)

    run_as(first, case.publish)
    with pytest.raises(Refused, match="another user"):
        run_as(BROKER - first, case.restore)
    run_as(first, case.restore)


def fetch(case: Case) -> Path:
    """Fetches the rebuild as if it came from an object store; returns where it should be."""
    target = case.root / "backup" / "fetched"
    publish._fetch(str(case.root), str(case.out), str(target), read_manifest(str(case.out)), quiet())
    return target


def test_a_rebuild_is_fetched_into_a_directory_of_ones_own(case: Case, new: Snapshot) -> None:
    if os.geteuid() == 0:
        os.chown(case.root, BROKER, BROKER + 1)
    target = fetch(case)
    assert snapshot(target) == snapshot(case.out)
    owners = [(path.stat().st_uid, path.stat().st_gid) for path in (target.parent, target)]
    own = (os.geteuid(), os.getegid())
    assert owners == [(BROKER, BROKER + 1) if os.geteuid() == 0 else own, own]
    fetch(case)  # what is there already is taken


@pytest.mark.parametrize("name", ["backup", "backup/fetched"])
def test_a_rebuild_is_not_fetched_through_a_link(name: str, case: Case, victim: Path) -> None:
    link = case.root / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)
    with pytest.raises(Refused, match="a link"):
        fetch(case)
    assert [path.name for path in victim.iterdir()] == ["paper"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
def test_a_rebuild_is_not_fetched_into_a_directory_of_another_user(case: Case) -> None:
    target = case.root / "backup" / "fetched"
    target.mkdir(parents=True)
    os.chown(target, BROKER, BROKER)
    with pytest.raises(Refused, match="another user made this directory"):
        fetch(case)
    assert not list(target.iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no names of open directories here")
def test_a_link_that_comes_while_a_rebuild_is_fetched_leads_nowhere(
    case: Case, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = case.root / "moved"

    def attacked(remote: str, here: str, manifest: Manifest, reporter: Reporter) -> None:
        (case.root / "backup" / "fetched").rename(moved)
        (case.root / "backup" / "fetched").symlink_to(victim)
        whole(remote, here, manifest, reporter)

    whole = publish.fetch
    monkeypatch.setattr(publish, "fetch", attacked)
    fetch(case)
    assert [path.name for path in victim.iterdir()] == ["paper"]
    assert snapshot(moved) == snapshot(case.out)


@pytest.mark.parametrize("job", ["publish", "restore"])
@pytest.mark.parametrize("which", ["root", "out"])
def test_a_directory_that_is_exchanged_underway_takes_nothing(
    which: str, job: str, case: Case, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened first is changed, whole; the directory that has its name now is not, and nobody is told "ok"."""
    if job == "restore":
        case.publish()
    (victim / "consumequeue").mkdir()
    before, begin, place = snapshot(victim), swap.begin, getattr(case, which)

    def exchanged(*given: Any) -> Any:
        place.rename(place.with_name("away"))
        place.symlink_to(victim)
        return begin(*given)

    monkeypatch.setattr(swap, "begin", exchanged)
    if (which, job) == ("out", "restore"):
        assert getattr(case, job)()["status"] == "ok"  # a restore has nothing to do with it
    else:
        with pytest.raises(WriteFailed, match="exchanged this directory underway"):
            getattr(case, job)()
    assert snapshot(victim) == before
    store = case.root.with_name("away") if which == "root" else case.root
    assert json.loads(next((store / "backup").glob("*/journal.json")).read_text())["state"] == "finished"


EXCHANGES = """
import os, random, sys, time
user, places = int(sys.argv[1]), sys.argv[2:]
os.setgroups([])
os.setgid(user)
os.setuid(user)
while os.getppid() != 1:
    for place, victim in zip(places[::2], places[1::2]):
        if random.random() < 0.5:
            os.rename(place, place + ".away")
            os.symlink(victim, place)
            time.sleep(random.random() / 100)
            os.unlink(place)
            os.rename(place + ".away", place)
    time.sleep(random.random() / 20)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no names of open directories here")
def test_a_user_who_exchanges_directories_all_the_time_gains_nothing(
    case: Case, original: Case, tmp_path: Path, old: Snapshot, new: Snapshot
) -> None:
    """Files elsewhere do not change, and the answer is "ok" only if the store has what was meant."""
    victim = original.copy(tmp_path / "victim")
    before = [snapshot(victim.root), snapshot(victim.out)]
    for path in [case.root.parent, *case.root.parent.rglob("*")]:
        os.chown(path, BROKER, BROKER)
    for path in list(tmp_path.parents)[:-1]:
        path.chmod(path.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    handle = os.open(case.root, os.O_RDONLY)

    def state() -> Snapshot:
        return {name: value for name, value in snapshot(Path(f"/proc/self/fd/{handle}/.")).items() if name != "lock"}

    said, states = set[str](), [{name: value for name, value in one.items() if name != "lock"} for one in (old, new)]
    words = [str(BROKER), *map(str, (case.root, victim.root, case.out, victim.out))]
    attacker = subprocess.Popen([sys.executable, "-c", EXCHANGES, *words])
    try:
        for act in (case.publish, case.restore) * 15:
            was = states.index(state())
            with suppress(StoreFormatError, OSError):
                act()
                said.add(act.__name__)
                assert states.index(state()) == (1 if act == case.publish else 1 - was)
    finally:
        attacker.kill()
        attacker.wait()
        os.close(handle)
    assert said
    assert [snapshot(victim.root), snapshot(victim.out)] == before
    assert not (victim.root / "backup").exists()
