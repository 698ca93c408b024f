"""A publish or restore that is killed, fails or is disturbed anywhere ends exactly old or exactly new."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.killing import Killer
from support.patching import stand_in
from support.publishing import Case, Snapshot, after_publish, contents, cut_the_log, make_case, manifest, snapshot

from storeformat.errors import Refused, WriteFailed
from storeformat.queues.rocksdb_queues import rocksdb_queues_in
from storeformat.storage import durable


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


EVERYWHERE = pytest.mark.parametrize(
    ("name", "step"),
    [("small", 3), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("small", "original"))],
)
"""A kill before each third change, in the slow run before each, of a broker's store, too."""


@EVERYWHERE
def test_a_publish_killed_anywhere_ends_old_or_new(
    name: str, step: int, request: pytest.FixtureRequest, killer: Killer, tmp_path: Path
) -> None:
    whole: Case = request.getfixturevalue(name)
    old, new, out = snapshot(whole.root), after_publish(whole), snapshot(whole.out)
    everything = contents(whole.root, whole.out)
    for number in range(0, 1000, step):
        case = whole.copy(tmp_path / "case")
        if not killed_publish(killer, case, number):
            break
        again = Case(case.root, case.out)
        shutil.copytree(tmp_path / "case", tmp_path / "twin")
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
    assert number > 60


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "step"), [("base-killed-5.5.0", 27), pytest.param("base-killed-5.3.3", 9, marks=pytest.mark.slow)]
)
def test_a_database_swapped_in_ends_old_or_new(name: str, step: int, killer: Killer, tmp_path: Path) -> None:
    """Queues in files make room for a RocksDB database."""
    pytest.importorskip("rocksdict")
    original = make_case(tmp_path / "original", name, queue_store="rocksdb")
    old, new = snapshot(original.root), after_publish(original)
    assert "consumequeue/CURRENT" in new
    for number in range(0, 1000, step):
        case = original.copy(tmp_path / "case")
        if not killed_publish(killer, case, number):
            break
        if number % 2:
            recover_to_old(case)
            assert (number, snapshot(case.root)) == (number, old)
            continue
        case.publish()
        assert (number, snapshot(case.root)) == (number, new)
        with rocksdb_queues_in(str(case.root / "consumequeue")) as queues:
            assert queues.dispatched()
    assert number > 20


@EVERYWHERE
def test_a_restore_killed_anywhere_ends_old_or_new(
    name: str, step: int, request: pytest.FixtureRequest, killer: Killer, tmp_path: Path
) -> None:
    whole: Case = request.getfixturevalue(name)
    old, new, everything = snapshot(whole.root), after_publish(whole), contents(whole.root, whole.out)
    published = whole.copy(tmp_path / "published")
    published.publish()
    for tried, number in enumerate(range(0, 1000, step)):
        case = published.copy(tmp_path / "case")
        if not killed_restore(killer, case, number):
            break
        finished = snapshot(case.root) == old and not unfinished(case)
        if tried % 3 == 1:  # somebody publishes another rebuild instead
            again = Case(case.root, whole.copy(tmp_path / "again").out)
            again.publish()
            assert (number, snapshot(case.root), unfinished(case)) == (number, new, False)
            continue
        case.restore()
        assert (number, snapshot(case.root)) == (number, new if finished else old)
        assert contents(case.root, case.out) == everything
    assert number > 20


def unfinished(case: Case) -> bool:
    return not set(states(case)) <= {"finished", "undone"}


def states(case: Case) -> list[str]:
    return [json.loads(path.read_text())["state"] for path in case.root.glob("backup/*/journal.json")]


@pytest.mark.parametrize(
    ("recovery", "tries"),
    [
        ("publish", 10),
        pytest.param("restore", 10, marks=pytest.mark.thorough),
        pytest.param("publish", 400, marks=pytest.mark.slow),
        pytest.param("restore", 400, marks=pytest.mark.slow),
    ],
)
def test_a_recovery_killed_too_ends_old_or_new(
    recovery: str, tries: int, killer: Killer, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path
) -> None:
    """A publish dies, its recovery dies, sometimes another; then the last one decides, and either way is complete."""
    everything = contents(original.root, original.out)
    draw = random.Random(f"{recovery} {tries}")
    for _ in range(tries):
        case = original.copy(tmp_path / "case")
        kills = [draw.randrange(40, 130), draw.randrange(60), *[draw.randrange(60)] * draw.randrange(2)]
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
    assert number == 3 + 4 + 3  # staged; out; in


@pytest.fixture(scope="module")
def half_way(killer: Killer, original: Case, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The change before which the old queues are gone and the new ones are not there yet."""
    directory = tmp_path_factory.mktemp("half-way")
    for number in range(30, 130, 3):
        case = original.copy(directory / "case")
        killed_publish(killer, case, number)
        if unfinished(case) and not (case.root / "consumequeue").exists():
            return number
    raise AssertionError("no kill point lies between the moves out and the moves in")


@pytest.fixture
def half_published(half_way: int, killer: Killer, original: Case, tmp_path: Path) -> Case:
    """A store whose publish was killed between the moves out and the moves in, which another run may make a few system
    calls earlier or later.
    """
    for number in (half_way, half_way + 1, half_way - 1, half_way + 2, half_way - 2, half_way + 3):
        case = original.copy(tmp_path / "case")
        killed_publish(killer, case, number)
        if unfinished(case) and not (case.root / "consumequeue").exists():
            return case
    raise AssertionError("no kill point lies between the moves out and the moves in")


@pytest.mark.parametrize("recovery", ["publish", "restore"])
def test_what_somebody_put_in_between_is_named(
    recovery: str, half_published: Case, old: Snapshot, new: Snapshot
) -> None:
    case, theirs = half_published, half_published.root / "consumequeue"
    theirs.mkdir()
    (theirs / "foreign").write_bytes(b"a broker was here")
    with pytest.raises(WriteFailed, match="already taken") as caught:
        getattr(case, recovery)()
    assert (caught.value.path, (theirs / "foreign").read_bytes()) == (str(theirs), b"a broker was here")
    shutil.rmtree(theirs)
    getattr(case, recovery)()
    assert snapshot(case.root) == (new if recovery == "publish" else old)


def test_another_rebuild_undoes_the_unfinished_one_first(
    half_published: Case, original: Case, old: Snapshot, new: Snapshot, tmp_path: Path
) -> None:
    second = Case(half_published.root, original.copy(tmp_path / "second").out)
    report = second.publish()
    assert report["undone_earlier_run"] is not None
    assert snapshot(second.root) == new
    assert snapshot(half_published.out) == snapshot(original.out)
    second.restore()
    assert snapshot(second.root) == old


def test_a_rebuild_that_was_made_again_in_the_same_place_is_published_itself(
    half_published: Case, original: Case, new: Snapshot
) -> None:
    """Other bytes of a manifest are another rebuild: the one that was cut short is undone, its manifest stays."""
    case = half_published
    facts = manifest(original)
    (case.out / "manifest.json").write_text(json.dumps({**facts, "note": "made again"}))
    report = case.publish()
    assert (snapshot(case.root), report["finished_earlier_run"]) == (new, None)
    assert report["undone_earlier_run"] is not None
    published = json.loads((case.root / "backup" / report["backup"] / "manifest.json").read_text())
    assert published["note"] == "made again"


def test_half_a_publish_is_undone_when_the_log_has_changed(half_published: Case, original: Case, old: Snapshot) -> None:
    case = half_published
    cut_the_log(case, manifest(original)["log_end"])
    cut = snapshot(case.root / "commitlog")
    with pytest.raises(Refused, match="not match the log"):
        case.publish()
    found = snapshot(case.root)
    assert {name: value for name, value in found.items() if not name.startswith("commitlog/")} == {
        name: value for name, value in old.items() if not name.startswith("commitlog/")
    }
    assert snapshot(case.root / "commitlog") == cut
    assert snapshot(case.out) == snapshot(original.out)


def test_an_abort_that_was_removed_in_between_stops_neither_way(
    half_published: Case, old: Snapshot, new: Snapshot
) -> None:
    (half_published.root / "abort").unlink()
    report = half_published.publish()
    assert (snapshot(half_published.root), report["backed_up"]) == (new, ["consumequeue", "index", "checkpoint"])
    half_published.restore()
    assert snapshot(half_published.root) == {name: value for name, value in old.items() if name != "abort"}


def test_a_dry_run_says_what_would_be_done_with_half_a_publish(half_published: Case) -> None:
    before = snapshot(half_published.root)
    for report, how in (
        (half_published.publish(dry_run=True), "finished first"),
        (half_published.restore(dry_run=True), "undone first"),
    ):
        assert how in report["notes"][0]
        assert (report["store"], report["dry_run"]) == (str(half_published.root), True)
        assert report["backup"] == half_published.backups[0].name
    assert snapshot(half_published.root) == before
    assert half_published.publish()["finished_earlier_run"] == half_published.backups[0].name


def test_changes_reach_the_disk_in_order(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut must not reorder: files before the swap, moves out before moves in, all before `finished`."""
    events: list[tuple[str, str]] = []
    rename, replace, fsync = os.rename, os.replace, os.fsync

    def note_rename(source: str, target: str) -> None:
        events.append(("rename", target))
        rename(source, target)

    def note_replace(source: str, target: str) -> None:
        events.append((json.loads(Path(source).read_text()).get("state", "paper"), target))
        replace(source, target)

    def note_fsync(handle: int) -> None:
        events.append(("fsync", str(Path(f"/proc/self/fd/{handle}").readlink())))
        fsync(handle)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    stand_in(monkeypatch, durable, "os", rename=note_rename, replace=note_replace, fsync=note_fsync)
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
