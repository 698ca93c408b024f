"""What publish and restore refuse, and that a refusal touches nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.publishing import STORE, Case, Snapshot, cut_the_log, make_case, manifest, own_bytes, snapshot

from storeformat.errors import MissingInput, NotAStore, Refused
from storeformat.storage import broker_lock, local_status


def flip_a_byte(case: Case) -> None:
    path = own_bytes(min((case.out / "index").iterdir()))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def write_after_the_data(case: Case) -> None:
    """One bit in the last byte of a queue file, which is a hole in all other files."""
    queues = sorted((case.out / "consumequeue").glob("*/*/*"))
    path = own_bytes(next(path for path in queues if not any(path.read_bytes()[-100:])))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"\x80")


def edit_manifest(case: Case, **changes: Any) -> None:
    facts = manifest(case) | changes
    own_bytes(case.out / "manifest.json").write_text(json.dumps(facts))


def make_rocksdb(case: Case) -> None:
    (case.root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")


def make_rocksdb_configuration(case: Case) -> None:
    (case.root / "config" / "consumerOffsets").mkdir(parents=True)
    (case.root / "config" / "consumerOffsets" / "000009.sst").write_bytes(b"pairs")


def make_batch_topics(case: Case) -> None:
    topics = {path.name: {"attributes": {"queue.type": "BatchCQ"}} for path in (case.out / "consumequeue").iterdir()}
    (case.root / "config").mkdir(exist_ok=True)
    own_bytes(case.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))


REFUSALS: dict[str, tuple[Callable[[Case], object], str]] = {
    "changed file": (flip_a_byte, "differs from what the rebuild wrote"),
    "byte after the data": (write_after_the_data, "differs from what the rebuild wrote"),
    "longer file": (
        lambda case: os.truncate(own_bytes(case.out / "checkpoint"), 8_192),
        "differs from what the rebuild",
    ),
    "short file": (lambda case: os.truncate(own_bytes(case.out / "checkpoint"), 100), "differs from what the rebuild"),
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
    monkeypatch.setattr(local_status, "mount_points", lambda: frozenset(["/", str(case.root / path)]))


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


def test_mount_points_with_blanks_have_their_names() -> None:
    line = "36 35 98:0 /part /mnt/my\\040disk\\134 rw,noatime master:1 - ext4 /dev/root rw\n"
    assert local_status.parse_mount_points([line]) == {"/mnt/my disk\\"}
    assert "/" in local_status.mount_points() or sys.platform != "linux"


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
