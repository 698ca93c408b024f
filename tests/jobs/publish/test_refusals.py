"""What publish and restore refuse, and what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.planting import flip
from support.publishing import (
    STORE,
    Case,
    Snapshot,
    cut_the_log,
    make_case,
    manifest,
    plain_manifest,
    quiet,
    snapshot,
)

from jobs.contract.options import PublishOptions
from jobs.publish import backups, publish, swap
from jobs.rebuild.manifest import QueueStoreChoice
from storeformat.errors import MissingInput, NotAStore, Refused, StoreFormatError
from storeformat.storage import broker_lock, files


# ------------------------------------------------------------------------------------------------------------- refusals
def flip_a_byte(case: Case) -> None:
    path = min((case.out / "index").iterdir())
    flip(path, path.stat().st_size // 2)


def write_after_the_data(case: Case) -> None:
    """One bit in the last byte of a queue file, which is a hole in all other files."""
    queues = sorted((case.out / "consumequeue").glob("*/*/*"))
    flip(next(path for path in queues if not any(path.read_bytes()[-100:])), -1, 0x80)


def edit_manifest(case: Case, **changes: Any) -> None:
    facts = manifest(case) | changes
    (case.out / "manifest.json").write_text(json.dumps(facts))


def make_rocksdb(case: Case) -> None:
    (case.root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")


def make_rocksdb_configuration(case: Case) -> None:
    (case.root / "config" / "consumerOffsets").mkdir(parents=True)
    (case.root / "config" / "consumerOffsets" / "000009.sst").write_bytes(b"pairs")


def make_batch_topics(case: Case) -> None:
    topics = {path.name: {"attributes": {"queue.type": "BatchCQ"}} for path in (case.out / "consumequeue").iterdir()}
    (case.root / "config").mkdir(exist_ok=True)
    (case.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))


REFUSALS: dict[str, tuple[Callable[[Case], object], str]] = {
    "changed file": (flip_a_byte, "differs from what the rebuild wrote"),
    "byte after the data": (write_after_the_data, "differs from what the rebuild wrote"),
    "longer file": (
        lambda case: os.truncate(case.out / "checkpoint", 8_192),
        "differs from what the rebuild",
    ),
    "short file": (lambda case: os.truncate(case.out / "checkpoint", 100), "differs from what the rebuild"),
    "missing file": (lambda case: (case.out / "checkpoint").unlink(), "is missing"),
    "extra file": (lambda case: (case.out / "index" / "x").touch(), "not in the manifest"),
    "link": (lambda case: (case.out / "index" / "x").symlink_to("/"), "not in the manifest"),
    "no manifest": (lambda case: (case.out / "manifest.json").unlink(), "no manifest"),
    "other format": (lambda case: edit_manifest(case, format=99), "another version"),
    "first segment gone": (lambda case: min((case.root / "commitlog").iterdir()).unlink(), "the log starts at"),
    "log too short": (lambda case: cut_the_log(case, manifest(case)["log_end"]), "the log ends before"),
    "batch topic": (make_batch_topics, "another type for this queue"),
    "rocksdb": (make_rocksdb, "RocksDB"),
    "configuration in rocksdb": (make_rocksdb_configuration, "config/consumerOffsets"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_fit_is_refused_and_nothing_is_touched(name: str, case: Case) -> None:
    break_it, message = REFUSALS[name]
    break_it(case)
    before = snapshot(case.root), snapshot(case.out)
    with pytest.raises(Refused, match=message) as caught:
        case.publish()
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert (snapshot(case.root), snapshot(case.out), case.backups) == (*before, [])


def mount(monkeypatch: pytest.MonkeyPatch, case: Case, path: str) -> None:
    """Another file system, or another part of this one, is mounted at a path of the store."""
    monkeypatch.setattr(files, "mount_points", lambda: frozenset(["/", str(case.root / path)]))


@pytest.mark.parametrize("path", ["consumequeue", "index", "backup"])
def test_what_is_mounted_by_itself_is_refused_before_anything_moves(
    path: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case.root / "backup").mkdir()
    before = snapshot(case.root), snapshot(case.out)
    mount(monkeypatch, case, path)
    for dry_run in (True, False):
        with pytest.raises(Refused, match="a separate mount") as caught:
            case.publish(dry_run=dry_run)
        assert (caught.value.exit_code, caught.value.path) == (2, str(case.root / path))
    assert (snapshot(case.root), snapshot(case.out), case.backups) == (*before, [])


def test_a_restore_into_a_mount_is_refused_too(case: Case, new: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    case.publish()
    mount(monkeypatch, case, "consumequeue")
    with pytest.raises(Refused, match="a separate mount"):
        case.restore()
    assert snapshot(case.root) == new


def test_a_mount_elsewhere_is_none_of_our_business(case: Case, new: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    mount(monkeypatch, case, "commitlog")
    case.publish()
    assert snapshot(case.root) == new


def test_a_log_that_went_on_is_refused(tmp_path: Path) -> None:
    whole = make_case(tmp_path / "whole", STORE)
    early = make_case(tmp_path / "early", STORE, until_offset=manifest(whole)["log_end"] - 1)
    with pytest.raises(Refused, match="the log has grown past"):
        early.publish()


def test_abort_is_refused_unless_expected(case: Case, old: Snapshot) -> None:
    with pytest.raises(Refused, match="abort exists") as caught:
        case.publish(after_crash=False)
    assert "--after-crash" in (caught.value.advice or "")
    assert snapshot(case.root) == old


@pytest.mark.parametrize("name", ["root", "out"])
def test_what_is_not_there_is_missing_input(name: str, case: Case) -> None:
    shutil.rmtree(getattr(case, name))
    with pytest.raises(MissingInput, match="there is no such"):
        case.publish()


# ------------------------------------------------------------------------------------------------------ a live broker
HOLDER = """
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;

/** Takes the lock as DefaultMessageStore#start does, says so, and waits for the end of its input. */
class Holder {
    public static void main(String[] arguments) throws Exception {
        RandomAccessFile file = new RandomAccessFile(arguments[0], "rw");
        FileLock lock = file.getChannel().tryLock(0, 1, false);
        System.out.println(lock == null ? "taken" : "held");
        System.in.read();
    }
}
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    source = tmp_path / "Holder.java"
    source.write_text(HOLDER)
    started: list[subprocess.Popen[str]] = []

    def start(lock: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", source, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.communicate("\n", timeout=120)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_store_whose_lock_a_jvm_holds_is_live(
    case: Case, old: Snapshot, holder: Callable[[Path], subprocess.Popen[str]]
) -> None:
    process = holder(case.root / "lock")
    assert said(process) == "held"
    for run in (case.publish, case.restore, lambda: case.publish(dry_run=True)):
        with pytest.raises(Refused, match="the store is live: process") as caught:
            run()
        assert str(process.pid) in str(caught.value)
    assert snapshot(case.root) == old


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_store_whose_log_a_process_has_mapped_is_live(case: Case, tmp_path: Path, elsewhere: bool) -> None:
    """A broker that is still loading its log has not taken its lock yet."""
    log = tmp_path / "elsewhere" if elsewhere else case.root / "commitlog"
    if elsewhere:
        (case.root / "commitlog").rename(log)
    named = {"commitlog": (str(log),)} if elsewhere else {}
    old = snapshot(case.root)
    segment = min(log.iterdir())
    program = f"import mmap; f = open({str(segment)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert said(process) == "1"
        with pytest.raises(Refused, match=f"process {process.pid} has its log mapped"):
            case.publish(**named)
        process.communicate("\n")
    assert snapshot(case.root) == old
    case.publish(**named)


def test_no_jvm_gets_the_lock_while_a_publish_runs(case: Case, holder: Callable[[Path], subprocess.Popen[str]]) -> None:
    with broker_lock.hold(str(case.root / "lock"), create=True):
        assert said(holder(case.root / "lock")) == "taken"


@pytest.mark.parametrize("where", ["root/commitlog", "root/consumequeue/TopicOrder/0", "out", "elsewhere"])
def test_no_lock_file_is_made_in_what_is_no_store(where: str, case: Case, tmp_path: Path) -> None:
    root = {"out": case.out, "elsewhere": tmp_path}.get(where) or case.root / where.removeprefix("root/")
    before = snapshot(root)
    wrong = Case(root, case.out)
    with pytest.raises((NotAStore, MissingInput), match="store"):
        wrong.publish()
    with pytest.raises((NotAStore, MissingInput), match="store"):
        wrong.restore()
    assert snapshot(root) == before


def test_a_log_that_is_not_there_is_missing_input(case: Case, tmp_path: Path) -> None:
    (case.root / "commitlog").rename(tmp_path / "log")
    with pytest.raises(MissingInput, match="no commit log") as missing:
        case.publish()
    assert "--commitlog" in str(missing.value.advice)
    assert not case.backups


def test_a_root_that_holds_nothing_yet_takes_a_log_that_is_named(case: Case, tmp_path: Path) -> None:
    (case.root / "commitlog").rename(tmp_path / "log")
    (tmp_path / "new").mkdir()
    assert Case(tmp_path / "new", case.out).publish(commitlog=(str(tmp_path / "log"),))["replaced"]


def test_the_log_is_where_the_settings_of_the_rebuild_say(case: Case, tmp_path: Path) -> None:
    (case.root / "commitlog").rename(tmp_path / "log")
    edit_manifest(case, settings=manifest(case)["settings"] | {"storePathCommitLog": str(tmp_path / "log")})
    assert case.publish()["replaced"]


# --------------------------------------------------------------------------------------------------------- what is said
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


SETTING = "broker.conf must say "
ASKED_FOR, ROCKSDB = ({"queue_store": QueueStoreChoice(kind, kind == "file")} for kind in ("file", "rocksdb"))


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
        publish._queue_store_notes(str(tmp_path), plain_manifest(topics=topics, **ASKED_FOR if asked else {}))
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
    publish._check_queue_types(str(tmp_path), replace(wrong, **ROCKSDB))


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
    for log_elsewhere in (False, error is NotAStore):
        with pytest.raises(error) as caught:
            backups.local_root(str(tmp_path), log_elsewhere=log_elsewhere)
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
        digest="0123456789abcdef01",
        settings={"a": "b", "c": ""},
        broker_version="5.1",
        queue_store=QueueStoreChoice("file", was_asked_for=False),
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
