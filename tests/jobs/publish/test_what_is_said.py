"""What publish and restore say of a store, what they take for done, and what they leave of a lock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.publishing import Case, Snapshot, manifest, own_bytes, quiet, snapshot

from jobs.contract.option_values import ARTEFACTS
from jobs.contract.options import PublishOptions
from jobs.publish import backups, publish, swap
from jobs.rebuild.manifest import Manifest, read_manifest
from storeformat.errors import MissingInput, NotAStore, Refused, StoreFormatError
from storeformat.storage.extents import Content


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
    rebuilt = manifest(case)
    report = case.publish()
    assert (report["log_begin"], report["log_end"]) == (rebuilt["log_begin"], rebuilt["log_end"])
    second, third = case.restore(), case.restore()
    assert [(journal["sequence"], journal["kind"], journal["source"]) for journal in journals(case)] == [
        (1, "publish", str(case.out)), (2, "restore", report["backup"]), (3, "restore", second["backup"]),
    ]  # fmt: skip
    assert third["source"] == str(case.root / "backup" / second["backup"])


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
        patched.setattr(swap, "tidy", fail)
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


def test_databases_beside_the_files_are_named_and_stay(case: Case) -> None:
    databases = [case.root / name / "000004.sst" for name in ("rocksdbstore", "consumequeue_rocksdb")]
    databases.append(case.root / "consumequeue_rocksdb" / "CURRENT")
    for path in databases:
        path.parent.mkdir(exist_ok=True)
        path.write_text("MANIFEST-000005\n")
    notes = case.publish()["notes"]
    assert "consumequeue_rocksdb/ holds queues in RocksDB, too; they are not touched" in notes
    assert any(note.startswith("rocksdbstore/ holds entries of its own") for note in notes)
    assert all(path.exists() for path in databases)


def test_whoever_publishes_past_damage_is_told_which_log_to_start_on(case: Case) -> None:
    edit_manifest(case, on_damage="salvage", damaged_ranges=[[100, 200], [300, 400]])
    danger = (
        "these files are from a log with 2 damaged places (--on-damage salvage): a broker that starts on it may cut it "
        "at the first of them and delete what follows; keep commitlog/, and start the broker on"
    )
    assert case.publish(dry_run=True)["notes"] == [
        danger + " a copy with the segments that rebuild --on-damage salvage --repair-log DIR repairs (publish "
        "--commitlog COPY)"
    ]
    log = case.root / "commitlog"
    assert case.publish(dry_run=True, commitlog=(str(log),))["notes"] == [
        f"{danger} {log}, with what rebuild --repair-log wrote in it"
    ]


def plain_manifest(paths: Sequence[str] = (), **changes: Any) -> Manifest:
    facts = {
        "digest": "", "log_begin": 0, "log_end": 100, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": 0,
        "artefacts": ARTEFACTS, "topics": (), "settings": {},
    }  # fmt: skip
    return Manifest(**{**facts, **changes}, files={name: Content(1, 1, bytes(32)) for name in paths})


SETTING = "broker.conf must say "
ASKED_FOR, ROCKSDB = {"queue_store_asked_for": True}, {"queue_store": "rocksdb"}


@pytest.mark.parametrize(
    ("database", "changes", "phrases"),
    [
        (None, {}, []),
        (None, ROCKSDB, [f"{SETTING}storeType=defaultRocksDB"]),
        ("consumequeue", ROCKSDB, []),
        ("consumequeue", ASKED_FOR, [f"{SETTING}storeType=default"]),
        (None, {**ROCKSDB, "paths": ("consumequeue_rocksdb/CURRENT",)},
         [f"{SETTING}storeType=defaultRocksDB", f"{SETTING}useSeparateStorePathForRocksdbCQ=true"]),
        ("consumequeue", {"settings": {"rocksdbCQDoubleWriteEnable": "true"}}, ["and none takes its place"]),
    ],
)  # fmt: skip
def test_what_is_said_of_databases(
    database: str | None, changes: dict[str, Any], phrases: list[str], tmp_path: Path
) -> None:
    if database:
        (tmp_path / database).mkdir()
        (tmp_path / database / "CURRENT").touch()
    notes = publish._queue_store_notes(str(tmp_path), plain_manifest(**changes))
    assert [phrase for phrase, note in zip(phrases, notes, strict=True) if phrase not in note] == []


@pytest.mark.parametrize(("topics", "asked"), [((("T", None),), True), ((), False)])
def test_files_do_not_go_into_a_store_of_databases(tmp_path: Path, topics: tuple[Any, ...], asked: bool) -> None:
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    with pytest.raises(Refused, match="keeps its queues in RocksDB") as caught:
        publish._queue_store_notes(str(tmp_path), plain_manifest(topics=topics, queue_store_asked_for=asked))
    assert "--queue-store file, of all topics" in (caught.value.advice or "")


@pytest.mark.parametrize(
    ("topic", "made", "other"),
    [("B", "consumequeue", "batchconsumequeue"), ("P", "batchconsumequeue", "consumequeue")],
)
def test_queues_of_another_type_than_configured(topic: str, made: str, other: str, tmp_path: Path) -> None:
    types = {"P": {}, "B": {"queue.type": "BatchCQ"}}
    (tmp_path / "config").mkdir()
    topics = {name: {"attributes": attributes} for name, attributes in types.items()}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    publish._check_queue_types(str(tmp_path), plain_manifest(["consumequeue/P/0/0", "batchconsumequeue/B/0/0"]))
    wrong = plain_manifest([f"{made}/{topic}/0/0", "index/B/1"])
    with pytest.raises(Refused, match="another type for this queue") as caught:
        publish._check_queue_types(str(tmp_path), wrong)
    assert (caught.value.found, caught.value.expected) == (made, other)
    publish._check_queue_types(str(tmp_path), replace(wrong, queue_store="rocksdb"))


@pytest.mark.parametrize(
    ("there", "error", "said"),
    [
        ([], MissingInput, "this is not a broker's store: expected commitlog or config or consumequeue or lock"),
        (["config", "manifest.json"], NotAStore, "this is the output of a rebuild, not a store"),
        (["lock", f"{0:020d}"], NotAStore, "this directory holds segments or queue files, it is not a store"),
    ],
)
def test_what_is_no_store(there: list[str], error: type[StoreFormatError], said: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).touch()
    with pytest.raises(error) as caught:
        backups.local_root(str(tmp_path))
    assert str(caught.value) == f"{said} ({tmp_path})"


def test_a_root_that_is_a_store(tmp_path: Path) -> None:
    assert backups.local_root(str(tmp_path), log_elsewhere=True) == str(tmp_path)
    for name in ("manifest.json", "lock"):
        (tmp_path / name).touch()
    assert backups.local_root(str(tmp_path)) == str(tmp_path)


def test_an_index_without_files_is_swapped_in_as_an_empty_directory(case: Case) -> None:
    """A log without keys has none, and the store may still have files of an index that was damaged."""
    for path in (case.out / "index").iterdir():
        path.unlink()
    edit_manifest(case, files=[row for row in manifest(case)["files"] if not row["path"].startswith("index/")])
    assert "index" in case.publish()["replaced"]
    assert not list((case.root / "index").iterdir())
    case.restore()
    assert list((case.root / "index").iterdir())


def test_what_broker_conf_must_say_of_a_log_elsewhere(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    made = SimpleNamespace(
        digest="0123456789abcdef01", settings={"a": "b", "c": ""}, broker_version="5.1", queue_store="file"
    )
    monkeypatch.setattr(publish, "read_manifest", lambda source: made)
    monkeypatch.setattr(publish, "_publish", lambda *given: asked.append(given[:2]) or {"backup": "b", "notes": []})
    monkeypatch.setattr(publish, "start_facts", lambda root, conf, *told: {"told": told, "root": root})
    options = PublishOptions(store=str(case.root), rebuilt=str(case.out), commitlog=("/x/log", "/y/log"))
    facts = publish.run(options, quiet())
    assert asked == [(str(case.root), str(case.out))]
    assert (facts["root"], facts["told"]) == (
        str(case.root),
        ([("a", "b"), ("storePathCommitLog", "/x/log,/y/log")], "5.1"),
    )
    assert facts["notes"] == ["broker.conf must say storePathCommitLog=/x/log,/y/log"]
    made.broker_version = "5.3"  # which the rebuild may have taken because nothing shows the release
    assert publish.run(options, quiet())["told"][1] is None
    asked.clear()
    with pytest.raises(MissingInput):
        publish.run(replace(options, broker_conf=str(case.root / "absent.conf")), quiet())
    assert asked == []
