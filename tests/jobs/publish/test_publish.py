"""Publish and restore: what is put in place, what a fault leaves, and configuration of topics that the log proves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.drilling import run_job
from support.killing import Ended, Killer
from support.publishing import (
    DERIVED,
    STORE,
    Case,
    Snapshot,
    after_publish,
    contents,
    cut_the_log,
    make_case,
    manifest,
    quiet,
    snapshot,
)
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder
from support.system_calls import Fault

from jobs.contract.options import PublishOptions, RestoreOptions, TopicFilter
from jobs.publish import publish, restore, swap
from storeformat.errors import MissingInput, Refused, StoreFormatError
from storeformat.storage import files

# ------------------------------------------------------------------------------------------------------- publish
ROOT = Path(__file__).resolve().parent.parent.parent.parent


def test_publish_replaces_everything_and_keeps_what_it_replaced(case: Case, old: Snapshot, new: Snapshot) -> None:
    report = case.publish()
    assert snapshot(case.root) == new
    (backup,) = case.backups
    kept = {name: value for name, value in old.items() if name.partition("/")[0] in DERIVED}
    found = snapshot(backup)
    assert {name: found[name] for name in kept} == kept
    assert found.keys() - kept.keys() == {"journal.json", "manifest.json"}
    assert (report.exit_code, report["backup"], report["notes"]) == (0, backup.name, [])
    assert report["replaced"] == ["consumequeue", "index", "checkpoint"]
    assert report["backed_up"] == ["consumequeue", "index", "checkpoint", "abort"]
    assert not list(case.out.iterdir())


def test_a_second_publish_says_that_it_is_done(case: Case, new: Snapshot) -> None:
    first = case.publish()
    second = case.publish(after_crash=False)
    assert (second.exit_code, second["backup"]) == (0, first["backup"])
    assert "published already" in second["notes"][0]
    assert snapshot(case.root) == new


def test_restore_goes_back_and_forth(case: Case, old: Snapshot, new: Snapshot) -> None:
    everything = contents(case.root, case.out)
    first = case.publish()["backup"]
    for expected in (old, new, old):
        report = case.restore()
        assert report.exit_code == 0
        assert snapshot(case.root) == expected
        assert contents(case.root, case.out) == everything
    with pytest.raises(Refused, match="already been restored"):
        case.restore(backup=first)


def test_restore_takes_a_backup_by_name_or_path(case: Case, old: Snapshot) -> None:
    name = case.publish()["backup"]
    with pytest.raises(MissingInput, match="no such backup") as caught:
        case.restore(backup="20010101T000000Z")
    assert name in (caught.value.advice or "")
    assert caught.value.path == str(case.root / "backup" / "20010101T000000Z")
    case.restore(backup=str(case.root / "backup" / name))
    assert snapshot(case.root) == old


def test_restore_without_a_backup_is_refused(case: Case, old: Snapshot) -> None:
    with pytest.raises(Refused, match="no backup"):
        case.restore()
    assert snapshot(case.root) == old


def test_restore_of_a_wiped_store_takes_the_new_files_out(case: Case, new: Snapshot) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(case.root / name)
    for name in ("checkpoint", "abort"):
        (case.root / name).unlink()
    wiped = snapshot(case.root)
    case.publish(after_crash=False)
    assert snapshot(case.root) == new
    case.restore()
    assert snapshot(case.root) == wiped


def test_restore_says_that_the_log_went_on(case: Case) -> None:
    cut_the_log(case, case.publish()["log_end"])
    assert any("the log has changed" in note for note in case.restore()["notes"])


def test_a_queue_that_the_log_does_not_make_goes_out(case: Case, tmp_path: Path) -> None:
    """Nothing comes in its place."""
    (store,) = golden.stores(STORE)
    gone = case.root / "consumequeue" / "Gone" / "0"
    gone.mkdir(parents=True)
    (gone / f"{0:020d}").write_bytes(bytes(20))
    topics = (TopicFilter("Gone"),)
    built = rebuild_here(case.root, tmp_path / "work", store.settings, topics=topics, only=("consumequeue",))
    report = Case(case.root, Path(built.directory)).publish()
    assert (report["replaced"], report["backed_up"]) == ([], ["consumequeue/Gone"])
    assert not gone.parent.exists()


def test_dry_runs_change_nothing(case: Case, old: Snapshot, new: Snapshot) -> None:
    before = snapshot(case.out)
    report = case.publish(dry_run=True)
    assert (report["dry_run"], report["backup"], report["replaced"][0]) == (True, None, "consumequeue")
    assert (snapshot(case.root), snapshot(case.out), case.backups) == (old, before, [])
    case.publish()
    planned = case.restore(dry_run=True)
    assert (planned["dry_run"], planned["restored"]) == (True, ["consumequeue", "index", "checkpoint", "abort"])
    assert (snapshot(case.root), len(case.backups)) == (new, 1)


@pytest.mark.parametrize(
    ("source", "how"),
    [
        ("OUT", "cp -a OUT ROOT/backup/NAME, then"),
        ("s3://b/made?region=eu", "aws s3 cp --recursive s3://b/made ROOT/backup/made, then"),
        ("hdfs://h/made", "copy it to ROOT/backup/made, then"),
    ],
)
def test_a_rebuild_elsewhere_is_brought_by_a_command(
    source: str, how: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    device_of = files.device_of
    monkeypatch.setattr(files, "device_of", lambda path: device_of(path) + (path == str(case.out)))
    with pytest.raises(Refused, match="not on the file system of the store") as caught:
        case.publish(rebuilt=source.replace("OUT", str(case.out)))
    said = (caught.value.advice or "").replace(str(case.out), "OUT").replace(str(case.root), "ROOT")
    assert said.replace(case.out.name, "NAME").startswith(how)
    assert not case.backups


def test_a_copy_of_objects_gets_the_length_of_its_files(case: Case, new: Snapshot) -> None:
    for row in manifest(case)["files"]:
        os.truncate(case.out / row["path"], row["data_size"])
    case.publish()
    assert snapshot(case.root) == new


@pytest.mark.parametrize("is_apart", [False, True], ids=["same disk", "another disk"])
def test_store_and_rebuild_may_be_named_by_links(
    is_apart: bool, case: Case, old: Snapshot, new: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``store -> /data/1/store``: the link may lie on another file system than what it leads to."""
    store, rebuilt = case.root.parent / "store", case.root.parent / "latest"
    store.symlink_to(case.root)
    rebuilt.symlink_to(case.out)
    device_of = files.device_of
    monkeypatch.setattr(files, "device_of", lambda path: device_of(path) + (is_apart and Path(path).is_symlink()))
    linked = Case(store, rebuilt)
    linked.publish()
    assert snapshot(case.root) == new
    assert "published already" in linked.publish()["notes"][0]
    linked.restore()
    assert snapshot(case.root) == old


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.sampled("plain"), ids=str)
def test_every_real_store_takes_its_own_rebuild(store: golden.GoldenStore, tmp_path: Path) -> None:
    case = make_case(tmp_path, store.name)
    before, built = snapshot(case.root), snapshot(case.out)
    case.publish()
    after = snapshot(case.root)
    assert {name: after[name] for name in built if name != "manifest.json"} == {
        name: value for name, value in built.items() if name != "manifest.json"
    }
    case.restore()
    assert snapshot(case.root) == before


# --------------------------------------------------------------------------------------------------------------- a part
def test_one_queue_is_replaced_and_abort_stays(original: Case, old: Snapshot, tmp_path: Path) -> None:
    whole = snapshot(original.out)
    name = next(name for name in sorted(old) if name.startswith("consumequeue/") and name.count("/") == 3)
    _, topic, queue, _ = name.split("/")
    part = make_case(tmp_path, STORE, topics=(TopicFilter(topic, int(queue)),), only=("consumequeue",))
    place = f"consumequeue/{topic}/{queue}"
    shutil.rmtree(part.root / place)
    broken = snapshot(part.root)
    report = part.publish()
    assert report["replaced"] == [place]
    assert any("abort stays" in note for note in report["notes"])
    assert any("a broker resumes where the furthest queue ends" in note for note in report["notes"])
    expected = {**broken, **{item: value for item, value in whole.items() if item.startswith(place)}}
    assert snapshot(part.root) == expected
    part.restore()
    assert snapshot(part.root) == broken


def test_a_topic_that_the_store_lacks_comes_with_its_directory(original: Case, tmp_path: Path) -> None:
    topic = sorted(path.name for path in (original.out / "consumequeue").iterdir())[0]
    part = make_case(tmp_path, STORE, topics=(TopicFilter(topic, 0),), only=("consumequeue",))
    shutil.rmtree(part.root / "consumequeue" / topic)
    broken = snapshot(part.root)
    assert part.publish()["replaced"] == [f"consumequeue/{topic}"]
    assert (part.root / "consumequeue" / topic / "0").is_dir()
    part.restore()
    assert snapshot(part.root) == broken


# --------------------------------------------------------------------------------------------------- the command line
def run_command(*arguments: str | Path) -> tuple[int, str, str]:
    environment = {**os.environ, "PATH": "/nowhere", "ROCKETMQ_STORE_SPARK_KERNELS": "numpy"}
    environment.pop("JAVA_HOME", None)
    ran = subprocess.run(
        [sys.executable, "-m", "jobs", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_the_commands_need_no_java(case: Case, old: Snapshot, new: Snapshot) -> None:
    code, out, error = run_command("publish", "--store", case.root, "--from", case.out, "--json")
    assert (code, json.loads(out)["status"]) == (2, "refused")
    assert error.startswith("error: the store is live, or its broker did not stop cleanly")
    assert len(error.splitlines()) == 2
    code, out, _ = run_command("publish", "--store", case.root, "--from", case.out, "--after-crash", "--json")
    assert (code, json.loads(out)["status"], snapshot(case.root)) == (0, "ok", new)
    code, out, _ = run_command("restore", "--store", case.root, "--json")
    assert (code, json.loads(out)["status"], snapshot(case.root)) == (0, "ok", old)


def test_other_storage_is_refused_in_one_line() -> None:
    with pytest.raises(StoreFormatError, match="only a local store") as caught:
        publish.run(PublishOptions(store="s3://bucket/store", rebuilt="out"), quiet())
    assert caught.value.exit_code == 69


# ------------------------------------------------------------------------------------------------------- restore
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


# -------------------------------------------------------------------------------------------------------- faults
def assert_told(ended: Ended, fault: str, job: str) -> None:
    """One line, two with advice, and an exit code that says what kind of end it was; a rebuild may be what fails."""
    if fault.startswith("SIG"):
        said = f"interrupted; the store has all of this {job} or nothing of it\n"
        assert (ended.exit_code, ended.trace) == (128 + signal.Signals[fault], said)
    elif ended.exit_code:
        assert ended.exit_code in (66, 74), ended.trace
        assert ended.trace.startswith("error: ")
        assert "Traceback" not in ended.trace


@pytest.mark.parametrize("fault", ["SIGTERM", "ENOSPC"])
@pytest.mark.parametrize(("job", "changes"), [("publish", 70), ("restore", 50)])
def test_a_job_that_a_fault_ends_is_undone_or_done(
    job: str, changes: int, killer: Killer, faults: tuple[Case, range], tmp_path: Path, fault: str
) -> None:
    whole, numbers = faults
    old, new = snapshot(whole.root), after_publish(whole)
    begun = whole.copy(tmp_path / "begun")
    if job == "restore":
        begun.publish()
        old, new = new, old
    for number in numbers:
        case = begun.copy(tmp_path / "case")
        more = ["--from", str(case.out), "--after-crash"] if job == "publish" else []
        words = [job, "--store", str(case.root), "--quiet", *more]
        ended = killer.command(words, Fault(fault, number, str(tmp_path / "case")))
        if not ended.came:
            break
        assert_told(ended, fault, job)
        found = snapshot(case.root)
        assert (number, found) in [(number, new), *([(number, old)] if ended.exit_code else [])]
    assert number > changes


# ---------------------------------------------------------------------------------------------------------- topics json
BATCHES = "batch-cq-5.3.3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (source,) = golden.stores(BATCHES)
    root = Path(shutil.copytree(golden.unpack(source), tmp_path / "store"))
    shutil.rmtree(root / "config", ignore_errors=True)
    return root


def table(root: Path) -> dict[str, Any]:
    found = json.loads((root / "config" / "topics.json").read_text(encoding="utf-8"))
    return dict(found["topicConfigTable"])


def made_and_published(root: Path, work: Path) -> Path:
    (source,) = golden.stores(BATCHES)
    built = rebuild_here(root, work, source.settings, topics_json=True)
    publish.run(PublishOptions(store=str(root), rebuilt=built.directory, after_crash=True), quiet())
    return root


def test_lost_topics_are_published_and_taken_back(store: Path, tmp_path: Path) -> None:
    directories = {
        kind: {path.name: max(int(queue.name) for queue in path.iterdir()) + 1 for path in (store / kind).iterdir()}
        for kind in ("consumequeue", "batchconsumequeue")
    }
    topics = table(made_and_published(store, tmp_path / "work"))
    expected = {**directories["consumequeue"], **directories["batchconsumequeue"]}
    made_by_broker = {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    assert {name: entry["readQueueNums"] for name, entry in topics.items()} == {
        name: queues for name, queues in expected.items() if name not in made_by_broker
    }
    batch = {name for name, entry in topics.items() if entry["attributes"] == {"queue.type": "BatchCQ"}}
    assert batch == set(directories["batchconsumequeue"])
    assert {entry["writeQueueNums"] - entry["readQueueNums"] for entry in topics.values()} == {0}
    restore.run(RestoreOptions(store=str(store)), quiet())
    assert not (store / "config").exists()


def test_what_the_store_still_has_stays_and_comes_back(store: Path, tmp_path: Path) -> None:
    (name, *_) = sorted(path.name for path in (store / "batchconsumequeue").iterdir())
    entry = {"attributes": {"queue.type": "BatchCQ"}, "perm": 4, "readQueueNums": 99, "writeQueueNums": 99}
    before = json.dumps({"topicConfigTable": {name: entry}})
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(before, encoding="utf-8")
    (store / "config" / "consumerOffset.json").write_text("{}", encoding="utf-8")
    topics = table(made_and_published(store, tmp_path / "work"))
    assert topics[name] == entry
    assert len(topics) > 3
    assert (store / "config" / "consumerOffset.json").read_text(encoding="utf-8") == "{}"
    restore.run(RestoreOptions(store=str(store)), quiet())
    assert (store / "config" / "topics.json").read_text(encoding="utf-8") == before


def test_topics_that_have_waiting_messages_only(tmp_path: Path) -> None:
    log = LogBuilder()
    for holding, topic, queue_id in (
        ("SCHEDULE_TOPIC_XXXX", "Delayed", "5"), ("SCHEDULE_TOPIC_XXXX", "%RETRY%g", "0"),
        ("rmq_sys_wheel_timer", "Timed", "0"), ("rmq_sys_wheel_timer", "Timed", "2"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "Sold", "1"), ("rmq_sys_wheel_timer", "Odd", "-1"),
        ("rmq_sys_wheel_timer", "Huge", "99999999"), ("Ordinary", "Elsewhere", "7"),
    ):  # fmt: skip
        log.message(topic=holding, properties={"REAL_TOPIC": topic, "REAL_QID": queue_id})
    root = log.write(tmp_path / "store")
    built = rebuild_here(root, tmp_path / "work", {}, only=("consumequeue",), topics_json=True)
    topics = {name: entry["readQueueNums"] for name, entry in table(Path(built.directory)).items()}
    assert topics == {"Delayed": 6, "%RETRY%g": 1, "Timed": 3, "Sold": 2, "Ordinary": 1}


def test_one_bit_of_a_queue_id_makes_no_queues(tmp_path: Path) -> None:
    log = LogBuilder()
    for topic, queue_id in (("T", 3), ("T", 3 ^ 1 << 30), ("Sparse", 1023), ("Gone", 1 << 28)):
        log.message(topic=topic, queue_id=queue_id)
    root = log.write(tmp_path / "store")
    done = run_job("rebuild", "--store", root, "--output", tmp_path / "out", "--topics-json")
    assert {name: entry["readQueueNums"] for name, entry in table(tmp_path / "out").items()} == {"T": 4, "Sparse": 1024}
    assert any("leaves out 2 queue ids" in note and "Gone:268435456" in note for note in done.report["notes"])
