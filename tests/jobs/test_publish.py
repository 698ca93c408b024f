"""publish and restore: what is swapped, what is refused, and that a crash anywhere leaves nothing lost or half done."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.killing import Killer
from support.real_store import RealStore, wiped_copy
from support.rebuilding import rebuild_here

from jobs import publish, restore
from jobs.config import PublishOptions, RestoreOptions, TopicFilter
from jobs.reporting import Report, Reporter
from storeformat import durable, files
from storeformat.errors import MissingInput, Refused, StoreFormatError, WriteFailed

ROOT = Path(__file__).resolve().parent.parent.parent
QUIET = Reporter(quiet=True)
STORE = "lag-killed-5.1.4"
DERIVED = ("consumequeue", "index", "checkpoint", "abort")


@dataclass(frozen=True)
class Case:
    """A store, and a rebuild of it that is ready to be published."""

    root: Path
    out: Path

    def copy(self, target: Path) -> Case:
        """Hard links: publishing renames files and never writes into one (``test_publish_leaves_bytes_alone``)."""
        shutil.rmtree(target, ignore_errors=True)
        for name, source in (("root", self.root), ("out", self.out)):
            shutil.copytree(source, target / name, copy_function=os.link, symlinks=True)
        return Case(target / "root", target / "out")

    def publish(self, **more: Any) -> Report:
        options = {"after_crash": True, **more}
        return publish.run(PublishOptions(store=str(self.root), rebuilt=str(self.out), **options), QUIET)

    def restore(self, **more: Any) -> Report:
        return restore.run(RestoreOptions(store=str(self.root), **more), QUIET)

    @property
    def backups(self) -> list[Path]:
        return sorted((self.root / "backup").glob("*"))


Snapshot = dict[str, str]


def snapshot(directory: Path) -> Snapshot:
    """Every file with its SHA-256, and every directory; of a store without its backups."""
    found = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if name.partition("/")[0] != "backup":
            found[name] = "directory" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def contents(*directories: Path) -> Counter[str]:
    """How often each content of a file occurs, backups and all, without journals."""
    paths = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if "journal" not in path.name)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("original"), STORE)


def make_case(directory: Path, name: str, **options: Any) -> Case:
    (store,) = golden.stores(name)
    root = golden.unpack(store, directory)
    built = rebuild_here(root, directory / "work", store.settings, **options)
    return Case(root, Path(built.directory))


@pytest.fixture
def case(original: Case, tmp_path: Path) -> Case:
    return original.copy(tmp_path / "case")


@pytest.fixture(scope="module")
def old(original: Case) -> Snapshot:
    return snapshot(original.root)


@pytest.fixture(scope="module")
def new(original: Case, old: Snapshot) -> Snapshot:
    kept = {name: value for name, value in old.items() if name.partition("/")[0] not in DERIVED}
    return {**kept, **{name: value for name, value in snapshot(original.out).items() if name != "manifest.json"}}


# ------------------------------------------------------------------------------------------------------ ordinary
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


def test_publish_leaves_bytes_alone(case: Case, original: Case, old: Snapshot) -> None:
    before = snapshot(original.out)
    case.publish()
    case.restore()
    assert snapshot(original.root) == old
    assert snapshot(original.out) == before


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
    with pytest.raises(Refused, match="put back already"):
        case.restore(backup=first)


def test_restore_takes_a_backup_by_name_or_path(case: Case, old: Snapshot) -> None:
    name = case.publish()["backup"]
    with pytest.raises(MissingInput, match="no such backup") as caught:
        case.restore(backup="20010101T000000Z")
    assert name in (caught.value.advice or "")
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


def test_dry_runs_change_nothing(case: Case, old: Snapshot, new: Snapshot) -> None:
    before = snapshot(case.out)
    report = case.publish(dry_run=True)
    assert (report["dry_run"], report["backup"], report["replaced"][0]) == (True, None, "consumequeue")
    assert (snapshot(case.root), snapshot(case.out), case.backups) == (old, before, [])
    case.publish()
    assert case.restore(dry_run=True)["restored"] == ["consumequeue", "index", "checkpoint", "abort"]
    assert (snapshot(case.root), len(case.backups)) == (new, 1)


def test_a_rebuild_on_another_file_system_is_copied(case: Case, new: Snapshot) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == case.root.stat().st_dev:
        pytest.skip("there is no second file system")
    elsewhere = memory / f"publish-{os.getpid()}"
    try:
        shutil.copytree(case.out, elsewhere)
        before = snapshot(elsewhere)
        times = {path.name: path.stat().st_mtime_ns for path in (elsewhere / "index").iterdir()}
        Case(case.root, elsewhere).publish()
        assert snapshot(case.root) == new
        assert snapshot(elsewhere) == before
        assert {path.name: path.stat().st_mtime_ns for path in (case.root / "index").iterdir()} == times
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


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


# ------------------------------------------------------------------------------------------------------------- refusals
def _own(path: Path) -> Path:
    """Gives a file bytes of its own: in a copied case they have two names."""
    if path.exists():
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    return path


def flip_a_byte(case: Case) -> None:
    path = _own(min((case.out / "index").iterdir()))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def manifest(case: Case) -> dict[str, Any]:
    return dict(json.loads((case.out / "manifest.json").read_text()))


def edit_manifest(case: Case, **changes: Any) -> None:
    facts = manifest(case) | changes
    _own(case.out / "manifest.json").write_text(json.dumps(facts))


def cut_the_log(case: Case, end: int) -> None:
    """Takes the last records away, as if the rebuild were of a longer log."""
    segment = max(path for path in (case.root / "commitlog").iterdir() if int(path.name) < end)
    data = bytearray(_own(segment).read_bytes())
    begin = max(0, end - int(segment.name) - 2000)
    data[begin:] = bytes(len(data) - begin)
    segment.write_bytes(data)


def make_rocksdb(case: Case) -> None:
    (case.root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")


def make_batch_topics(case: Case) -> None:
    topics = {path.name: {"attributes": {"queue.type": "BatchCQ"}} for path in (case.out / "consumequeue").iterdir()}
    (case.root / "config").mkdir(exist_ok=True)
    _own(case.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))


REFUSALS: dict[str, tuple[Callable[[Case], object], str]] = {
    "changed file": (flip_a_byte, "not as the rebuild wrote it"),
    "short file": (lambda case: os.truncate(_own(case.out / "checkpoint"), 100), "not as the rebuild wrote it"),
    "missing file": (lambda case: (case.out / "checkpoint").unlink(), "is missing"),
    "extra file": (lambda case: (case.out / "index" / "x").touch(), "not in the manifest"),
    "link": (lambda case: (case.out / "index" / "x").symlink_to("/"), "not in the manifest"),
    "no manifest": (lambda case: (case.out / "manifest.json").unlink(), "no manifest"),
    "no json": (lambda case: _own(case.out / "manifest.json").write_text("{"), "cannot be understood"),
    "other format": (lambda case: edit_manifest(case, format=99), "another program"),
    "other artefact": (lambda case: edit_manifest(case, artefacts=["commitlog"]), "does not know"),
    "path outside": (
        lambda case: edit_manifest(case, files=[{"path": "index/../../x", "size": 0, "sha256": ""}]),
        "does not belong",
    ),
    "first segment gone": (lambda case: min((case.root / "commitlog").iterdir()).unlink(), "the log begins at"),
    "log too short": (lambda case: cut_the_log(case, manifest(case)["log_end"]), "the log ends before"),
    "batch topic": (make_batch_topics, "another type for this queue"),
    "rocksdb": (make_rocksdb, "RocksDB"),
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


def test_a_log_that_went_on_is_refused(tmp_path: Path) -> None:
    whole = make_case(tmp_path / "whole", STORE)
    early = make_case(tmp_path / "early", STORE, until_offset=manifest(whole)["log_end"] - 1)
    with pytest.raises(Refused, match="the log goes on behind"):
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


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores("plain"), ids=str)
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
        process.communicate("\n", timeout=30)


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
def test_a_store_whose_log_a_process_has_mapped_is_live(case: Case, old: Snapshot) -> None:
    """A broker that is still loading its log has not taken its lock yet."""
    segment = min((case.root / "commitlog").iterdir())
    program = f"import mmap; f = open({str(segment)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert said(process) == "1"
        with pytest.raises(Refused, match=f"process {process.pid} has its log mapped"):
            case.publish()
        process.communicate("\n")
    assert snapshot(case.root) == old


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_new_files_belong_to_the_owner_of_the_log(case: Case) -> None:
    os.chown(case.root / "commitlog", 12345, 12346)
    case.publish()
    for name in ("consumequeue", "index", "checkpoint"):
        for path in [case.root / name, *(case.root / name).rglob("*")]:
            assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_no_jvm_gets_the_lock_while_a_publish_runs(case: Case, holder: Callable[[Path], subprocess.Popen[str]]) -> None:
    with durable.broker_lock(str(case.root / "lock"), create=True):
        assert said(holder(case.root / "lock")) == "taken"


# ------------------------------------------------------------------------------------------------------------- crashes
@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with Killer() as running:
        yield running


def killed_publish(killer: Killer, case: Case, number: int) -> bool:
    options = {"store": str(case.root), "rebuilt": str(case.out), "after_crash": True}
    ended = killer.run("publish", options, number)
    assert ended.killed or ended.exit_code == 0, ended.trace
    return ended.killed


def killed_restore(killer: Killer, case: Case, number: int) -> bool:
    ended = killer.run("restore", {"store": str(case.root)}, number)
    assert ended.killed or ended.exit_code == 0 or "no backup" in ended.trace, ended.trace
    return ended.killed


def recover_to_old(case: Case) -> None:
    if set(states(case)) - {"undone"}:
        case.restore()
    else:  # killed before anything had happened, or when all was undone
        with pytest.raises(Refused, match="no backup"):
            case.restore()


def test_a_publish_killed_anywhere_ends_old_or_new(
    killer: Killer, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path
) -> None:
    out = snapshot(original.out)
    everything = contents(original.root, original.out)
    for number in range(1000):
        case = original.copy(tmp_path / "case")
        if not killed_publish(killer, case, number):
            break
        again = Case(case.root, case.out)
        shutil.copytree(tmp_path / "case", tmp_path / "twin", copy_function=os.link)
        case.publish()
        assert (number, snapshot(case.root)) == (number, new)
        assert contents(case.root, case.out) == everything
        # The twin has to stand where the journal says the rebuild was.
        shutil.rmtree(tmp_path / "case")
        (tmp_path / "twin").rename(tmp_path / "case")
        recover_to_old(again)
        assert (number, snapshot(case.root)) == (number, old)
        assert contents(case.root, case.out) == everything
        if not list((case.root / "backup").glob("*/manifest.json")):
            assert snapshot(case.out) == out
    assert number > 40


def test_a_restore_killed_anywhere_ends_old_or_new(
    killer: Killer, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path
) -> None:
    everything = contents(original.root, original.out)
    published = original.copy(tmp_path / "published")
    published.publish()
    for number in range(1000):
        case = published.copy(tmp_path / "case")
        if not killed_restore(killer, case, number):
            break
        finished = snapshot(case.root) == old and not unfinished(case)
        case.restore()
        assert (number, snapshot(case.root)) == (number, new if finished else old)
        assert contents(case.root, case.out) == everything
    assert number > 20


def unfinished(case: Case) -> bool:
    return not set(states(case)) <= {"finished", "undone"}


def states(case: Case) -> list[str]:
    return [json.loads(path.read_text())["state"] for path in case.root.glob("backup/*/journal.json")]


@pytest.mark.parametrize("recovery", ["publish", "restore"])
def test_a_recovery_killed_too_ends_old_or_new(
    recovery: str, killer: Killer, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path
) -> None:
    check_double_kills(recovery, killer, original, old, new, tmp_path, tries=40)


@pytest.mark.slow
@pytest.mark.parametrize("recovery", ["publish", "restore"])
def test_many_recoveries_killed_too_end_old_or_new(
    recovery: str, killer: Killer, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path
) -> None:
    check_double_kills(recovery, killer, original, old, new, tmp_path, tries=1000)


def check_double_kills(
    recovery: str, killer: Killer, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path, tries: int
) -> None:
    """A publish dies, its recovery dies, sometimes another; then the last one decides, and either way is complete."""
    everything = contents(original.root, original.out)
    draw = random.Random(f"{recovery} {tries}")
    for _ in range(tries):
        case = original.copy(tmp_path / "case")
        kills = [draw.randrange(10, 80), draw.randrange(30), *[draw.randrange(30)] * draw.randrange(2)]
        killed_publish(killer, case, kills[0])
        for number in kills[1:]:
            if unfinished(case):
                (killed_publish if recovery == "publish" else killed_restore)(killer, case, number)
        was_unfinished, before = unfinished(case), snapshot(case.root)
        if draw.randrange(2):
            case.publish()
            expected = new
        else:
            recover_to_old(case)
            # Without unfinished work it is an ordinary restore: the way back from whatever is in place.
            expected = old if was_unfinished or before in (new, old) else before
        assert (kills, snapshot(case.root)) == (kills, expected)
        assert contents(case.root, case.out) == everything


def test_a_failure_on_the_way_undoes_all(
    original: Case, old: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every single move fails once: the store and the rebuild are as before, and no backup is left."""
    before = snapshot(original.out)
    move = durable.move
    for number in range(100):
        case = original.copy(tmp_path / "case")
        moves = iter(range(1000))

        def fail_once(source: str, target: str, moves: Iterator[int] = moves, number: int = number) -> bool:
            if next(moves) == number:
                raise WriteFailed("cannot be written: Input/output error", path=target)
            return move(source, target)

        monkeypatch.setattr(durable, "move", fail_once)
        try:
            case.publish()
        except WriteFailed:
            assert (snapshot(case.root), snapshot(case.out), case.backups) == (old, before, [])
        else:
            break
    assert number == 4 + 4 + 3  # staged with the manifest; out; in


def test_what_somebody_put_in_between_is_set_aside(
    killer: Killer, original: Case, new: Snapshot, old: Snapshot, tmp_path: Path
) -> None:
    seen: set[int] = set()
    for number in range(20, 80):
        if seen == {0, 1}:
            break
        case = original.copy(tmp_path / "case")
        killed_publish(killer, case, number)
        if not unfinished(case) or (case.root / "consumequeue").exists():
            continue
        (case.root / "consumequeue").mkdir()
        (case.root / "consumequeue" / "foreign").write_bytes(b"a broker was here")
        decide = case.publish if number % 2 else case.restore
        decide()
        assert snapshot(case.root) == (new if number % 2 else old)
        assert contents(case.root)[hashlib.sha256(b"a broker was here").hexdigest()] == 1
        seen.add(number % 2)
    assert seen == {0, 1}


def test_changes_reach_the_disk_in_order(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut must not reorder: files before the swap, moves out before moves in, all before `finished`."""
    events: list[tuple[str, str]] = []
    rename, replace, fsync = os.rename, os.replace, os.fsync

    def note_rename(source: str, target: str) -> None:
        events.append(("rename", str(target)))
        rename(source, target)

    def note_replace(source: str, target: str) -> None:
        events.append((json.loads(Path(source).read_text())["state"], str(target)))
        replace(source, target)

    def note_fsync(handle: int) -> None:
        events.append(("fsync", str(Path(f"/proc/self/fd/{handle}").readlink())))
        fsync(handle)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    monkeypatch.setattr(os, "rename", note_rename)
    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(os, "fsync", note_fsync)
    built = [str(path) for path in case.out.rglob("*")]
    case.publish()
    root, backup = str(case.root), str(case.backups[0])
    states = {kind: at for at, (kind, _) in enumerate(events) if kind in ("staging", "swapping", "finished")}
    synced = {path for kind, path in events[: states["swapping"]] if kind == "fsync"}
    assert set(built) - {str(case.out / "manifest.json")} <= synced
    assert {backup, f"{backup}/new", root, str(case.root / "backup")} <= synced
    out = [at for at, event in enumerate(events) if event[0] == "rename" and Path(event[1]).parent == Path(backup)]
    came = [at for at, event in enumerate(events) if event == ("rename", f"{root}/{Path(event[1]).name}")]
    taken = [at for at in out if states["swapping"] < at < came[0]]
    assert len(taken) == 3
    assert len(came) == 3
    for path in (root, backup):
        assert ("fsync", path) in events[taken[-1] : came[0]]
    assert ("fsync", root) in events[max(out) : states["finished"]]
    assert ("fsync", f"{backup}/new") in events[came[-1] : states["finished"]]


# --------------------------------------------------------------------------------------------------- the command line
def run_command(*arguments: str | Path) -> tuple[int, str, str]:
    """Runs the command line where there is no Java."""
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
        publish.run(PublishOptions(store="s3://bucket/store", rebuilt="out"), QUIET)
    assert caught.value.exit_code == 69


def test_names_of_links_are_theirs(tmp_path: Path) -> None:
    """A queue directory on another disk, linked into the store, is replaced by its link; the disk keeps its files."""
    target = tmp_path / "disk"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    assert durable.present(str(tmp_path / "link"))
    assert durable.tree(str(tmp_path / "link")) == ([], [str(tmp_path / "link")])
    target.rmdir()
    assert durable.present(str(tmp_path / "link"))
    assert not files.exists(str(tmp_path / "link"))


# -------------------------------------------------------------------------------------------------------- real brokers
@pytest.mark.realstore
@pytest.mark.parametrize("release", ["5.1.4", "5.3.3"])
def test_a_real_store_serves_what_was_published(release: str, tmp_path: Path) -> None:
    """Queues, index and checkpoint wiped after a crash: rebuild, publish, open; then restore gives back the wreck."""
    judge = RealStore(release)
    (written,) = judge.write(tmp_path / "written", count=1, seed=7)
    broken = wiped_copy(written.root, tmp_path / "broken")
    (broken / "index").mkdir()
    (broken / "index" / "20200101000000000").write_bytes(b"damaged")
    before = snapshot(broken)
    (broken / "index").rename(tmp_path / "set-aside")
    built = rebuild_here(broken, tmp_path / "work", written.settings)
    (tmp_path / "set-aside").rename(broken / "index")
    case = Case(broken, Path(built.directory))
    case.publish()
    published = snapshot(broken)
    (opened,) = judge.open([broken], settings=written.settings)
    assert opened.store.loaded
    assert opened.store.end_offset == written.end_offset
    assert {(queue.topic, queue.queue_id): queue.max_offset for queue in opened.store.queues} == {
        (queue.topic, queue.queue_id): queue.max_offset for queue in written.queues
    }
    derived = {name: value for name, value in published.items() if name.startswith(("consumequeue/", "index/"))}
    after = snapshot(broken)
    assert {name: after.get(name) for name in derived} == derived
    case.restore()
    restored = snapshot(broken)
    assert {name: restored.get(name) for name in before if name.partition("/")[0] != "commitlog"} == {
        name: value for name, value in before.items() if name.partition("/")[0] != "commitlog"
    }
