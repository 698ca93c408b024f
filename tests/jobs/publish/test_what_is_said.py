"""What publish and restore say of a store, what they take for done, and what they leave of a lock."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.publishing import Case, Snapshot, manifest, own_bytes, snapshot

from jobs.rebuild.manifest import read_manifest
from storeformat.errors import NotAStore, Refused
from storeformat.storage import beneath
from storeformat.store.swap import swap


def edit_manifest(case: Case, **changes: Any) -> None:
    own_bytes(case.out / "manifest.json").write_text(json.dumps(manifest(case) | changes))


def journals(case: Case) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in case.root.glob("backup/*/journal.json")]
    return sorted(found, key=lambda journal: int(journal["sequence"]))


def test_a_dry_run_makes_no_lock_and_a_publish_leaves_that_of_a_broker(case: Case) -> None:
    (case.root / "lock").unlink()
    case.publish(dry_run=True)
    assert not (case.root / "lock").exists()
    case.publish()
    assert (case.root / "lock").read_bytes() == b"lock"


def test_replacements_are_numbered_and_reported_with_their_log(case: Case) -> None:
    report = case.publish()
    assert (report["log_begin"], report["log_end"]) == (manifest_of(case)["log_begin"], manifest_of(case)["log_end"])
    second, third = case.restore(), case.restore()
    assert [(journal["sequence"], journal["kind"], journal["source"]) for journal in journals(case)] == [
        (1, "publish", str(case.out)), (2, "restore", report["backup"]), (3, "restore", second["backup"]),
    ]  # fmt: skip
    assert third["source"] == str(case.root / "backup" / second["backup"])


def manifest_of(case: Case) -> dict[str, Any]:
    """The manifest of what was published, which lies in the backup."""
    return dict(json.loads(next(case.root.glob("backup/*/manifest.json")).read_text()))


def test_the_segments_are_no_store_even_with_a_lock_beside_them(case: Case) -> None:
    """There a second lock file would be found, and keep a broker from starting."""
    (case.root / "commitlog" / "lock").write_bytes(b"lock")
    wrong = Case(case.root / "commitlog", case.out)
    for more in ({}, {"commitlog": (str(case.root / "commitlog"),)}):
        with pytest.raises(NotAStore, match="holds segments"):
            wrong.publish(**more)


def test_a_failure_after_the_swap_leaves_it_finished(
    case: Case, old: Snapshot, new: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(item: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(swap, "_tidy", fail)
        with pytest.raises(KeyboardInterrupt):
            case.publish()
    assert (snapshot(case.root), [journal["state"] for journal in journals(case)]) == (new, ["finished"])
    case.restore()
    assert snapshot(case.root) == old


# ---------------------------------------------------------------------------------------------- what is taken for done
def test_only_an_emptied_source_was_published_already(case: Case, original: Case, tmp_path: Path) -> None:
    case.publish()
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="no manifest"):
        Case(case.root, tmp_path / "empty").publish()
    shutil.copytree(original.out, case.out, dirs_exist_ok=True)  # the same directory, rebuilt again
    assert case.publish()["files"] == len(manifest(original)["files"])
    assert len(case.backups) == 2


def test_what_was_taken_back_is_not_published_already(case: Case) -> None:
    case.publish()
    case.restore()
    with pytest.raises(Refused, match="no manifest"):
        case.publish()


def test_a_rebuild_that_was_published_says_where_it_went(case: Case) -> None:
    case.publish()
    with pytest.raises(Refused, match="no manifest") as refusal:
        read_manifest(str(case.out))
    assert "in that store" in (refusal.value.advice or "")


# --------------------------------------------------------------------------------------------------------------- notes
def test_queues_in_rocksdb_beside_the_files_are_named(case: Case) -> None:
    (case.root / "consumequeue_rocksdb").mkdir()
    (case.root / "consumequeue_rocksdb" / "CURRENT").write_text("MANIFEST-000005\n")
    assert any("consumequeue_rocksdb/" in note for note in case.publish()["notes"])
    assert (case.root / "consumequeue_rocksdb" / "CURRENT").exists()


@pytest.mark.parametrize("able", [True, False])
def test_a_log_of_another_user_is_named(able: bool, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beneath, "can_give_to_owner_of", lambda model: able)
    assert any("belongs to another user" in note for note in case.publish(dry_run=True)["notes"]) is not able


def test_whoever_publishes_past_damage_is_told_which_log_to_start_on(case: Case) -> None:
    edit_manifest(case, on_damage="salvage", damaged_ranges=[[100, 200], [300, 400]])
    (note,) = case.publish(dry_run=True)["notes"]
    assert "2 damaged places (--on-damage salvage)" in note
    assert "publish --commitlog COPY" in note
    (named,) = case.publish(dry_run=True, commitlog=(str(case.root / "commitlog"),))["notes"]
    assert f"start the broker on {case.root / 'commitlog'}, with what rebuild --repair-log wrote" in named


def test_an_index_without_files_is_swapped_in_as_an_empty_directory(case: Case) -> None:
    """A log without keys has none, and the store may still have files of an index that was damaged."""
    for path in (case.out / "index").iterdir():
        path.unlink()
    edit_manifest(case, files=[row for row in manifest(case)["files"] if not row["path"].startswith("index/")])
    assert "index" in case.publish()["replaced"]
    assert not list((case.root / "index").iterdir())
    case.restore()
    assert list((case.root / "index").iterdir())
