"""restore: one that was cut short, a backup with a hole in it, and what it says of abort."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.publishing import STORE, Case, Snapshot, make_case, snapshot

from jobs.contract.options import TopicFilter
from storeformat.errors import Refused
from storeformat.store import swap


def cut_short(case: Case, monkeypatch: pytest.MonkeyPatch, step: str) -> str:
    """A restore that dies in ``stage`` or ``finish``, without a chance to undo anything; returns its backup's name."""

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    before = set(case.backups)
    with monkeypatch.context() as patched:
        patched.setattr(swap, step, die)
        patched.setattr(swap, "undo", lambda item: item)
        with pytest.raises(KeyboardInterrupt):
            case.restore()
    (made,) = set(case.backups) - before
    return made.name


def test_a_restore_cut_short_in_the_swap_is_finished(
    case: Case, old: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = case.publish()["backup"]
    name = cut_short(case, monkeypatch, "finish")
    planned = case.restore(dry_run=True)
    assert (planned["backup"], "finished first" in planned["notes"][0]) == (name, True)
    done = case.restore(backup=first)
    assert (done["finished_earlier_run"], done["backup"], done["dry_run"]) == (name, name, False)
    assert "abort is back" in done["notes"][0]
    assert snapshot(case.root) == old


def test_a_restore_cut_short_before_the_swap_is_undone_and_done(
    case: Case, old: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.publish()
    name = cut_short(case, monkeypatch, "stage")
    assert "undone first" in case.restore(dry_run=True)["notes"][0]
    done = case.restore()
    assert (done["finished_earlier_run"], done["undone_earlier_run"]) == (None, name)
    assert snapshot(case.root) == old
    with pytest.raises(Refused, match="already been restored"):
        case.restore(backup=case.backups[0].name)


def test_a_restore_cut_short_gives_way_to_that_of_another_backup(
    case: Case, original: Case, old: Snapshot, new: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = case.publish()["backup"]
    shutil.copytree(original.out, case.out, dirs_exist_ok=True)
    second = case.publish()["backup"]
    name = cut_short(case, monkeypatch, "finish")  # of the second
    done = case.restore(backup=first)
    assert (done["undone_earlier_run"], done["finished_earlier_run"]) == (name, None)
    assert snapshot(case.root) == old
    assert (case.root / "backup" / second / "consumequeue").is_dir()
    case.restore(backup=done["backup"])
    assert snapshot(case.root) == new


def test_a_publish_that_was_undone_is_no_backup(case: Case, old: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(swap, "finish", lambda item: (_ for _ in ()).throw(KeyboardInterrupt))
        patched.setattr(swap, "undo", lambda item: item)
        with pytest.raises(KeyboardInterrupt):
            case.publish()
    (backup,) = case.backups
    done = case.restore()
    assert (done["store"], done["undone_earlier_run"], done["dry_run"]) == (str(case.root), backup.name, False)
    assert done["restored"] == ["consumequeue", "index", "checkpoint", "abort"]
    assert snapshot(case.root) == old


def test_a_backup_that_lost_a_part_is_refused(case: Case, new: Snapshot) -> None:
    case.publish()
    (backup,) = case.backups
    shutil.rmtree(backup / "index")
    with pytest.raises(Refused, match="no longer complete") as caught:
        case.restore()
    assert caught.value.path == str(backup / "index")
    assert (snapshot(case.root), case.backups) == (new, [backup])


def test_what_restore_says_of_abort(case: Case) -> None:
    """It comes back with what was crashed; it is gone again on the way there; without one nothing is said."""
    case.publish()
    assert ["abort is back" in note for note in case.restore()["notes"]] == [True]
    assert case.restore()["notes"] == []
    (case.root / "abort").write_bytes(b"")  # a broker was started since, and killed
    name = case.restore()["backup"]
    assert (case.root / "backup" / name / "abort").read_bytes() == b""


def test_an_abort_that_no_part_replaces_stays(original: Case, tmp_path: Path) -> None:
    topic = min(path.name for path in (original.out / "consumequeue").iterdir())
    part = make_case(tmp_path, STORE, topics=(TopicFilter(topic, 0),), only=("consumequeue",))
    part.publish()
    assert ["abort exists and stays" in note for note in part.restore()["notes"]] == [True]
    (part.root / "abort").unlink()
    assert part.restore()["notes"] == []
