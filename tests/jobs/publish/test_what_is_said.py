"""What publish and restore say of a store, what they take for done, and what they leave of a lock."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.publishing import Case, Snapshot, manifest, own_bytes, quiet, snapshot

from jobs.contract.option_values import ARTEFACTS
from jobs.contract.options import PublishOptions
from jobs.publish import backups, publish, restore
from jobs.rebuild.manifest import Manifest, read_manifest
from storeformat.errors import DependencyMissing, MissingInput, NotAStore, Refused, StoreFormatError
from storeformat.storage.extents import Content
from storeformat.store import swap
from storeformat.store.swap import Swap, SwapJournal, SwapLog, SwapPath


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
def test_queues_in_rocksdb_beside_the_files_are_named(case: Case) -> None:
    (case.root / "consumequeue_rocksdb").mkdir()
    (case.root / "consumequeue_rocksdb" / "CURRENT").write_text("MANIFEST-000005\n")
    assert any("consumequeue_rocksdb/" in note for note in case.publish()["notes"])
    assert (case.root / "consumequeue_rocksdb" / "CURRENT").exists()


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


def plain_manifest(*names: str, **changes: Any) -> Manifest:
    facts = {
        "digest": "", "log_begin": 0, "log_end": 100, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": 0,
        "artefacts": ARTEFACTS, "topics": (), "settings": {},
    }  # fmt: skip
    return Manifest(**{**facts, **changes}, files={name: Content(1, 1, bytes(32)) for name in names})


IN_ROCKSDB = "consumequeue/CURRENT is a RocksDB database"


@pytest.mark.parametrize(
    ("shown", "more", "notes"),
    [
        (False, {}, []),
        (
            False,
            {"queue_store": "rocksdb"},
            ["these queues are a RocksDB database: broker.conf must say storeType=defaultRocksDB"],
        ),
        (True, {"queue_store": "rocksdb"}, []),
        (
            True,
            {"queue_store_asked_for": True},
            ["these queues are files, but SHOWN: broker.conf must say storeType=default"],
        ),
    ],
)
def test_what_broker_conf_must_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: bool, more: dict[str, Any], notes: list[str]
) -> None:
    monkeypatch.setattr(publish, "rocksdb_queues", lambda root, settings: IN_ROCKSDB if shown else None)
    found = publish._queue_store_notes(str(tmp_path), plain_manifest("index/1", **more))
    assert found == [note.replace("SHOWN", IN_ROCKSDB) for note in notes]


def test_a_database_in_a_folder_of_its_own_needs_a_setting(tmp_path: Path) -> None:
    apart = plain_manifest("consumequeue_rocksdb/CURRENT", queue_store="rocksdb")
    assert publish._queue_store_notes(str(tmp_path), apart)[-1] == (
        "the database goes to consumequeue_rocksdb/: broker.conf must say useSeparateStorePathForRocksdbCQ=true"
    )
    (tmp_path / "consumequeue_rocksdb").mkdir()
    (tmp_path / "consumequeue_rocksdb" / "CURRENT").touch()
    assert publish._queue_store_notes(str(tmp_path), plain_manifest(queue_store_asked_for=True))[-1] == (
        "consumequeue_rocksdb/ holds queues in RocksDB, too; they are not touched"
    )
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    twice = plain_manifest(settings={"rocksdbCQDoubleWriteEnable": "true"})
    assert publish._queue_store_notes(str(tmp_path), twice)[0] == (
        "the database beside the queues in consumequeue/ goes to the backup, and none takes its place"
    )


@pytest.mark.parametrize(("topics", "asked"), [((("T", None),), True), ((), False)])
def test_files_do_not_go_into_a_store_of_databases(
    monkeypatch: pytest.MonkeyPatch, topics: tuple[Any, ...], asked: bool
) -> None:
    monkeypatch.setattr(publish, "rocksdb_queues", lambda root, settings: IN_ROCKSDB)
    with pytest.raises(Refused) as caught:
        publish._queue_store_notes("/s", plain_manifest(topics=topics, queue_store_asked_for=asked))
    assert str(caught.value) == (
        f"this store keeps its queues in RocksDB (storeType=defaultRocksDB), not in files: {IN_ROCKSDB} (/s)"
    )
    assert caught.value.advice == (
        "rebuild again; --queue-store file, of all topics, if the broker is to have files from now on"
    )


def test_what_is_noted_of_a_store(tmp_path: Path) -> None:
    """After a crash, with a part of the artefacts, and a database of entries beside them."""
    (tmp_path / "abort").touch()
    (tmp_path / "rocksdbstore").mkdir()
    options = PublishOptions(store=str(tmp_path), rebuilt="r")
    part = plain_manifest(artefacts=("consumequeue",))
    with pytest.raises(Refused) as caught:
        publish._check_store(str(tmp_path), part, options)
    assert str(caught.value) == (
        f"the store is live, or its broker did not stop cleanly: abort exists ({tmp_path}/abort)"
    )
    assert caught.value.advice == "make sure that no broker runs on it, then publish --after-crash"
    after = replace(options, after_crash=True)
    resumes = (
        "a broker resumes where the furthest queue ends: other queues, or an index, that end before that will stay "
        "incomplete; verify names them, and a rebuild of everything completes them"
    )
    partial = "abort stays: only a part was rebuilt, and the rest may need the broker's own recovery"
    assert publish._check_store(str(tmp_path), part, after) == [partial, resumes]
    assert publish._check_store(str(tmp_path), plain_manifest(), after) == []
    assert publish._check_store(str(tmp_path), plain_manifest(artefacts=("index",)), after) == [partial]
    (tmp_path / "rocksdbstore" / "000004.sst").touch()
    (tmp_path / "abort").unlink()
    assert publish._check_store(str(tmp_path), part, options) == [
        (
            "rocksdbstore/ holds entries of its own (index, transactions or timers), which are not touched: if the log "
            "is shorter than it once was, move rocksdbstore/ away before the broker starts"
        ),
        resumes,
    ]


def test_queues_of_another_type_than_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, plain = "batchconsumequeue/B/0/0", "consumequeue/P/0/0"
    monkeypatch.setattr(publish, "configured_batch_topics", lambda root: {"B"} if root == "/here" else None)
    publish._check_queue_types("/here", plain_manifest(plain, batch, "index/B/1"))
    wrong = plain_manifest("consumequeue/B/0/0"), plain_manifest(plain, "batchconsumequeue/P/0/0")
    kinds = ("consumequeue", "batchconsumequeue")
    for made, name, found, expected in (
        (wrong[0], "consumequeue/B/0/0", *kinds), (wrong[1], "batchconsumequeue/P/0/0", *kinds[::-1]),
    ):  # fmt: skip
        publish._check_queue_types("/elsewhere", made)
        publish._check_queue_types("/here", replace(made, queue_store="rocksdb"))
        with pytest.raises(Refused) as caught:
            publish._check_queue_types("/here", made)
        assert str(caught.value) == (
            "config/topics.json has another type for this queue: no broker would start with it: found "
            f"{found}, expected {expected} ({name})"
        )
        assert caught.value.advice == (
            "rebuild with the --batch-topic that config/topics.json names, or correct that file"
        )


def test_what_is_no_store(tmp_path: Path) -> None:
    root, advice = tmp_path / "s", "--store must be the broker's storePathRootDir"

    def error(**more: bool) -> tuple[type[StoreFormatError], str, str | None]:
        with pytest.raises(StoreFormatError) as caught:
            backups.local_root(str(root), **more)
        return type(caught.value), str(caught.value), caught.value.advice

    with pytest.raises(DependencyMissing) as caught:
        backups.local_root("s3://bucket/s")
    said = "only a local store can be changed: this storage cannot rename in one step (s3://bucket/s)"
    assert str(caught.value) == said
    assert error() == (MissingInput, f"there is no such store ({root})", None)
    root.mkdir()
    signs = "commitlog or config or consumequeue or lock"
    assert error() == (MissingInput, f"this is not a broker's store: expected {signs} ({root})", advice)
    assert backups.local_root(str(root), log_elsewhere=True) == str(root)
    (root / "manifest.json").touch()
    (root / "config").mkdir()
    assert error() == (NotAStore, f"this is the output of a rebuild, not a store ({root})", advice)
    (root / "lock").touch()
    assert backups.local_root(str(root)) == str(root)
    (root / f"{0:020d}").touch()
    said = f"this directory holds segments or queue files, it is not a store ({root})"
    assert error(log_elsewhere=True) == (NotAStore, said, advice)


LOG = SwapLog(5, 9, ("/log",), "5.3")


def swapped(kind: str, *places: SwapPath, name: str = "b1", **more: Any) -> Swap:
    return Swap("/s", name, SwapJournal(kind, 1, "/new" if kind == "publish" else "b0", places, LOG, **more))


def test_what_a_report_says_of_a_swap() -> None:
    places = (SwapPath("index", old=True, new=True), SwapPath("abort", old=True, new=False),
              SwapPath("checkpoint", old=False, new=True))  # fmt: skip
    facts = {
        "store": "/s", "source": "/new", "log_begin": 5, "log_end": 9, "replaced": ["index", "checkpoint"],
        "backup": "b1", "backed_up": ["index", "abort"], "files": 3, "finished_earlier_run": "f",
        "undone_earlier_run": "u", "dry_run": True, "notes": ["n"],
    }  # fmt: skip
    done = swapped("publish", *places)
    assert backups.swap_facts(done, dry_run=True, finished="f", undone="u", notes=["n"], files=3) == facts
    back = backups.swap_facts(swapped("restore", *places, name=""))
    assert (back["restored"], back["backup"], back["dry_run"], back["notes"]) == (
        ["index", "checkpoint"],
        None,
        False,
        (),
    )
    assert backups.would_settle(done, "undone") == {
        "store": "/s", "backup": "b1", "dry_run": True,
        "notes": ["the publish b1 was cut short; it would be undone first"],
    }  # fmt: skip


def test_which_backup_is_restored() -> None:
    one = replace(swapped("publish", name="b1"), journal=replace(swapped("publish").journal, state="finished"))
    two = replace(one, name="b2")
    back = Swap("/s", "r1", SwapJournal("restore", 3, "b2", (), LOG, state="finished"))
    open_one = replace(one, name="b0", journal=replace(one.journal, state="swapping"))
    known = [open_one, one, two]
    assert restore._choose(known, None, "/s") is two
    assert restore._choose(known, "b1", "/s") is one
    assert restore._choose([one, two, back], "b1", "/s") is one
    assert restore._choose([one, two, back], None, "/s") is back
    for found, name, said, advice in (
        ([], None, "there is no backup to restore (/s/backup)", None),
        ([open_one], None, "there is no backup to restore (/s/backup)", None),
        (known, "b7", "there is no such backup (/s/backup/b7)", "backups: b1, b2"),
        ([], "b7", "there is no such backup (/s/backup/b7)", "backups: none"),
        ([one, two, back], "b2", "this backup has already been restored (/s/backup/b2)", "backups: b1, r1"),
    ):
        with pytest.raises(StoreFormatError) as caught:
            restore._choose(found, name, "/s")
        assert (str(caught.value), caught.value.advice) == (said, advice)


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
