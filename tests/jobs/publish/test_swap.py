"""The journal of a swap, its steps, and whose files they are."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.patching import stand_in
from support.publishing import Case, Snapshot, snapshot
from support.refusals import refusal

from jobs.publish import backups, swap
from jobs.publish.swap import Swap, SwapJournal, SwapLog, SwapPath
from storeformat.errors import NotAStore, Refused, WriteFailed
from storeformat.storage import durable

# ----------------------------------------------------------------------------------------------------------------- swap
QUEUES, INDEX = SwapPath("consumequeue", old=True, new=True), SwapPath("index", old=True, new=True)
ABORT_GOES, ABORT_COMES = SwapPath("abort", old=True, new=False), SwapPath("abort", old=False, new=True)
OLD = {"abort": "old", "consumequeue/T/0/0": "old queue", "index/1": "old index"}
NEW = {"consumequeue/T/0/0": "new queue", "index/2": "new index", "manifest.json": "paper"}


def write(directory: Path, names: dict[str, str]) -> None:
    for name, text in names.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def read(directory: Path) -> dict[str, str]:
    """Every file with its text, and every empty directory; of a store without its backups."""
    paths = [path for path in directory.rglob("*") if path.is_file() or not any(path.iterdir())]
    found = {path.relative_to(directory).as_posix(): path.read_text() if path.is_file() else "empty" for path in paths}
    return {name: text for name, text in found.items() if name.partition("/")[0] != "backup"}


def journal(source: Path | str, *places: SwapPath, **more: Any) -> SwapJournal:
    log = SwapLog(0, 100, (str(source),), "5.3")
    return SwapJournal("publish", 1, str(source), places or (QUEUES, INDEX, ABORT_GOES), log, **more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "store", OLD)
    return tmp_path / "store"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "made", NEW)
    return tmp_path / "made"


@pytest.fixture
def begun(root: Path, source: Path) -> Swap:
    return swap.begin(str(root), journal(source, papers=("manifest.json",)))


# ---------------------------------------------------------------------------------------------------------- swap
def in_place() -> dict[str, str]:
    return {name: text for name, text in NEW.items() if name != "manifest.json"}


def test_a_backup_is_named_after_the_time_and_a_second_one_in_it_is_numbered(root: Path, source: Path) -> None:
    now = datetime(2024, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    names = [swap.begin(str(root), journal(source), now).name for _ in range(3)]
    assert names == ["20240203T040506Z", "20240203T040506Z-1", "20240203T040506Z-2"]


# ------------------------------------------------------------------------------------------------ there, and back again
def test_all_is_swapped_and_nothing_empty_is_left(begun: Swap, root: Path, source: Path) -> None:
    (source / "config").mkdir()
    done = swap.finish(swap.stage(begun))
    assert read(root) == in_place()
    kept = read(Path(done.directory))
    facts = json.loads(kept.pop("journal.json"))
    assert (facts["format"], facts["state"]) == (1, "finished"), "stores have backups of this format"
    assert kept == {**OLD, "manifest.json": "paper"}
    assert read(source) == {}
    assert source.is_dir()


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_all_is_undone_and_no_backup_is_left(steps: int, begun: Swap, root: Path, source: Path) -> None:
    """After the journal alone, staged, and with everything swapped but the journal."""
    item = begun
    if steps:
        item = swap.stage(begun)
    if steps == 2:
        swap.finish(item)
        item = item.saved("swapping")
    assert swap.undo(item).journal.state == "undone"
    assert (read(root), read(source)) == (OLD, NEW)
    assert not list((root / "backup").iterdir())


def test_what_cannot_go_back_to_its_source_stays_in_the_backup(begun: Swap, root: Path, source: Path) -> None:
    item = swap.stage(begun)
    write(source, {"index/3": "another rebuild"})
    swap.undo(item)
    assert read(root) == OLD
    assert read(source) == {
        "consumequeue/T/0/0": "new queue", "index/3": "another rebuild", "manifest.json": "paper",
    }  # fmt: skip
    kept = read(Path(item.directory))
    assert json.loads(kept.pop("journal.json"))["state"] == "undone"
    assert kept == {"new/index/2": "new index"}


def moves(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """From here on, the names in the store that a move takes from or gives to, in order."""
    seen: list[str] = []
    move = durable.move

    def noted(source: str, target: str) -> bool:
        names = [Path(path).relative_to(root).as_posix() for path in (source, target) if path.startswith(str(root))]
        seen.extend(name for name in names if not name.startswith("backup/"))
        return move(source, target)

    monkeypatch.setattr(durable, "move", noted)
    return seen


def test_abort_leaves_last_and_comes_back_first(begun: Swap, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = swap.stage(begun)
    seen = moves(monkeypatch, root)
    swap.finish(item)
    assert seen == ["consumequeue", "index"] * 2 + ["abort"]
    seen.clear()
    swap.undo(item.saved("swapping"))
    assert seen == ["abort"] + ["index", "consumequeue"] * 2


def test_an_abort_that_is_restored_comes_first(root: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "abort").unlink()
    write(source, {"abort": "restored"})
    item = swap.stage(swap.begin(str(root), journal(source, QUEUES, ABORT_COMES)))
    seen = moves(monkeypatch, root)
    swap.finish(item)
    assert seen == ["abort"] + ["consumequeue"] * 2
    seen.clear()
    swap.undo(item.saved("swapping"))
    assert seen == ["consumequeue"] * 2 + ["abort"]
    assert read(source) == {**NEW, "abort": "restored"}


def test_what_others_put_in_the_way_of_an_undo_is_named(begun: Swap, root: Path, source: Path, tmp_path: Path) -> None:
    item = swap.stage(begun)
    (root / "index").rename(item.at("index"))  # killed after the first move
    write(root, {"index/theirs": "text"})
    with pytest.raises(WriteFailed, match="already taken") as caught:
        swap.undo(item)
    assert (caught.value.path, caught.value.advice) == (str(root / "index"), "move it away, and run this again")
    (root / "index").rename(tmp_path / "theirs")
    swap.undo(item)
    assert (read(root), read(source)) == (OLD, NEW)


# -------------------------------------------------------------------------------------------------- swap journal
def test_replacements_are_found_in_their_order_and_nothing_else_is_one(root: Path, source: Path) -> None:
    times = [datetime(2024, 1, day, tzinfo=timezone.utc) for day in (3, 1, 2)]  # a clock may be set back
    log = SwapLog(7, 9, ("a", "b"), "5.3")
    made = [
        swap.begin(str(root), SwapJournal("publish", number, str(source), (QUEUES,), log), now)
        for number, now in zip((2, 10, 1), times, strict=True)
    ]
    (root / "backup" / "begun-only").mkdir()
    (root / "backup" / "a-file").write_text("")
    assert swap.swaps(str(root)) == [made[2], made[0], made[1]]
    assert swap.swaps(str(source)) == []


LOG = {"begin": 0, "end": 100, "directories": ["/d"], "broker_version": "5.3", "past_damage": False, "as_broker": False}
PLACE = {"path": "index", "old": True, "new": True}
FACTS = {
    "format": 1, "kind": "publish", "sequence": 1, "source": "/made", "places": [PLACE], "log": LOG, "papers": [],
    "digest": "", "state": "staging",
}  # fmt: skip


def parsed(**changes: Any) -> SwapJournal:
    return SwapJournal.from_json(json.dumps({**FACTS, **changes}).encode())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        *((changes, "another format") for changes in ({"format": 2}, {"state": "begun"})),
        *(({"sequence": number}, "not what this") for number in (-1, 1 << 63, 1.5, float("inf"))),
        ({"log": {**LOG, "begin": -1}}, "not what this"),
        *(({"log": {**LOG, "end": number}}, "not what this") for number in (1 << 63, float("inf"))),
        *(({"log": {**LOG, "directories": found}}, "not what this") for found in ([], [3])),
        ({"log": {**LOG, "broker_version": "6"}}, "not what this"),
        ({"papers": ["manifest.json", "../paper"]}, "not what this"),
        *(({"kind": "restore", "source": name}, "not what this") for name in ("a/b", "..")),
        ({"kind": "publish", "source": "made"}, "not what this"),
        ({"kind": "move", "source": "/made"}, "not what this"),
        ({"source": "/made\0"}, "not what this"),
        ({"source": "/\ud800"}, "surrogates not allowed"),
        ({"places": [PLACE, {**PLACE, "path": "commitlog"}]}, "not what this"),
        ({"places": [{**PLACE, "old": 1}]}, "not what this"),
        ({"places": [PLACE, PLACE]}, "not what this"),
        ({"places": [{**PLACE, "path": path} for path in ("consumequeue/T", "consumequeue/T/0")]}, "not what this"),
    ],
)
def test_what_this_program_never_writes_is_no_journal(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parsed(**changes)


def test_journals_that_this_program_writes() -> None:
    log = SwapLog(0, 100, ("/d",), "5.3")
    plain = SwapJournal("publish", 1, "/made", (SwapPath("index", old=True, new=True),), log)
    assert parsed() == plain
    for state in ("staging", "swapping", "finished", "undone"):
        assert parsed(state=state) == replace(plain, state=state)
    assert parsed(kind="restore", source="20240203T040506Z").kind == "restore"
    assert parsed(log={"begin": 0, "end": 100, "directories": ["/d"], "broker_version": "5.3"}) == plain, "an older one"
    most = parsed(sequence=(1 << 63) - 1, papers=["manifest.json"], digest="ab", log={**LOG, "begin": 0})
    assert (most.sequence, most.papers, most.digest) == ((1 << 63) - 1, ("manifest.json",), "ab")


def test_the_text_of_a_journal() -> None:
    journal = SwapJournal("publish", 1, "/名", (SwapPath("index", old=True, new=False),), SwapLog(0, 1, ("/d",), "5.3"))
    text = journal.to_json().decode()
    assert text.startswith('{\n "format": 1,\n "kind": "publish",\n "sequence": 1,\n "source": "/名",\n "places": [\n')
    assert SwapJournal.from_json(text.encode()) == journal


OTHERS: list[dict[str, Any]] = [
    {"state": "begun"}, {"places": [{"path": "index"}]}, {"log": None}, {"more": 1}, {"papers": None}, {"sequence": ""},
]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "3", "[" * 100_000, *(json.dumps({**FACTS, **changes}) for changes in OTHERS)]
)
def test_what_is_no_journal_is_refused(text: str, begun: Swap) -> None:
    Path(begun.at("journal.json")).write_text(text)
    with pytest.raises(Refused, match=r"the journal of a backup cannot be understood \(.*journal.json\)"):
        swap.swaps(begun.root)


SWAPPED = (
    "consumequeue", "consumequeue/T/0", "consumequeue_ext/T", "batchconsumequeue/%RETRY%g/0", "index", "checkpoint",
    "abort", "config", "config/topics.json", "config/consumerOffset.json",
)  # fmt: skip
NOT_SWAPPED = (
    "config/subscriptionGroup.json", "index/20240101000000000", "commitlog", "lock", "", "/etc", "../etc",
    "consumequeue/../commitlog", "consumequeue//0", "consumequeue/./0", "consumequeue/T\0",
    "consumequeue/T/0/00000000000000000000",
)  # fmt: skip


def test_paths_that_a_swap_may_replace() -> None:
    assert [path for path in (*SWAPPED, *NOT_SWAPPED) if swap.is_swapped(path)] == list(SWAPPED)


# --------------------------------------------------------------------------------------------------------------- owners
both = pytest.mark.parametrize("job", ["publish", "restore"])
NO_LOG = {"begin": 0, "end": 1, "directories": ["/nowhere"], "broker_version": "5.3"}


def plant(case: Case, **changes: Any) -> Path:
    """A backup with a journal as this program, or somebody else, would write it."""
    directory = case.root / "backup" / "20240101T000000Z"
    (directory / "new").mkdir(parents=True)
    journal = {
        "format": 1, "kind": "publish", "sequence": 1, "source": str(case.root / "made"), "places": [], "log": NO_LOG,
        "papers": [], "digest": "", "state": "swapping", **changes,
    }  # fmt: skip
    (directory / "journal.json").write_text(json.dumps(journal))
    return directory


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.mkdir()
    (path / "consumequeue").mkdir()
    return path


@both
@pytest.mark.parametrize("sudo", [None, "/usr/bin/sudo"])
@pytest.mark.parametrize("user", ["broker", None])
def test_only_the_owner_changes_a_store(
    job: str, user: str | None, sudo: str | None, case: Case, old: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a name, or where there is no sudo, is a number."""
    owner = case.root.stat()

    def named(number: int) -> SimpleNamespace:
        if user is None:
            raise KeyError(number)
        return SimpleNamespace(pw_name=user)

    stand_in(monkeypatch, backups, "os", geteuid=lambda: owner.st_uid + 1)
    stand_in(monkeypatch, backups, "pwd", getpwuid=named)
    stand_in(monkeypatch, backups, "shutil", which=lambda name: sudo)
    monkeypatch.setattr(sys, "argv", ["jobs", job, "--store", "a b"])
    become = (
        "sudo -u broker" if user and sudo else f"setpriv --reuid {owner.st_uid} --regid {owner.st_gid} --clear-groups"
    )
    assert refusal(Refused, getattr(case, job)) == {
        "what": "only the owner of a store changes it", "path": str(case.root),
        "found": f"user {owner.st_uid + 1}", "expected": f"user {owner.st_uid}",
        "advice": f"{become} ./spark-submit.sh {job} --store 'a b'",
    }  # fmt: skip
    assert snapshot(case.root) == old


@pytest.mark.parametrize("place", ["root/consumequeue", "root/backup", "out", "out/index"])
def test_what_its_owner_may_not_move_is_refused(place: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(case.root.parent / place.replace("root", case.root.name).replace("out", case.out.name))
    Path(path).mkdir(exist_ok=True)
    before = snapshot(case.root)
    stand_in(monkeypatch, backups, "os", access=lambda name, mode: name != path)
    with pytest.raises(Refused, match="may not move or change this directory") as caught:
        case.publish()
    assert (caught.value.path, snapshot(case.root)) == (path, before)


# ----------------------------------------------------------------------------------- what somebody has put into backup
@both
def test_a_backup_reached_through_a_link_is_refused(job: str, case: Case, tmp_path: Path) -> None:
    directory = plant(case, places=[{"path": "index", "old": True, "new": False}])
    directory.rename(tmp_path / "elsewhere")
    (case.root / "backup").rmdir()
    (case.root / "backup").symlink_to(tmp_path)
    with pytest.raises(Refused, match="a link"):
        getattr(case, job)()


INDEX_SWAPPED = [{"path": "index", "old": True, "new": True}]
DEEP = [{"path": "consumequeue/T/config", "old": True, "new": True}]


@both
@pytest.mark.parametrize(("link", "places"), [("", INDEX_SWAPPED), ("new", INDEX_SWAPPED), ("consumequeue", DEEP)])
def test_a_link_in_a_backup_leads_nowhere(
    job: str, link: str, places: list[dict[str, Any]], case: Case, old: Snapshot, victim: Path
) -> None:
    """Neither are files planted through it, nor taken."""
    directory = plant(case, places=places)
    if not link:
        directory.rename(victim / "X")
    elif link == "new":
        (directory / "new").rmdir()
    (directory / link).symlink_to(victim / "X" if not link else victim)
    before = snapshot(victim)
    with pytest.raises(NotAStore, match="a link leads away") as caught:
        getattr(case, job)()
    assert str(caught.value.path).startswith(str(directory / link))
    assert (snapshot(victim), snapshot(case.root)) == (before, old)


@pytest.mark.parametrize("link", ["X", "X/consumequeue"])
def test_a_finished_backup_behind_a_link_is_not_restored(link: str, case: Case, old: Snapshot, victim: Path) -> None:
    directory = plant(case, state="finished", places=DEEP)
    (victim / "consumequeue" / "T" / "config").mkdir(parents=True)
    if link == "X":
        (directory / "journal.json").rename(victim / "journal.json")
        shutil.rmtree(directory)
        directory.symlink_to(victim)
    else:
        (directory / "consumequeue").symlink_to(victim / "consumequeue")
    before = snapshot(victim)
    with pytest.raises(NotAStore, match="a link leads away"):
        case.restore()
    assert (snapshot(victim), snapshot(case.root)) == (before, old)


@both
@pytest.mark.parametrize("state", ["staging", "swapping"])
def test_new_files_go_back_to_no_source_that_a_journal_alone_names(
    job: str, state: str, case: Case, victim: Path
) -> None:
    places = [{"path": "config", "old": False, "new": True}]
    directory = plant(case, state=state, source=str(victim), places=places, papers=["manifest.json"])
    (directory / "new" / "config").write_text("ProxyCommand planted")
    (directory / "manifest.json").write_text("{}")
    before = snapshot(victim)
    report = getattr(case, job)()
    assert report["notes"][0].startswith(f"what {directory.name} was to publish stays in {directory}/new")
    assert (directory / "new" / "config").exists()
    assert snapshot(victim) == before


@both
def test_an_unfinished_restore_takes_from_backups_alone(job: str, case: Case) -> None:
    directory = plant(case, kind="restore", source="other", places=INDEX_SWAPPED)
    (case.root / "backup" / "other").mkdir()
    with pytest.raises(NotAStore, match="no backup of the store") as caught:
        getattr(case, job)()
    assert (caught.value.path, caught.value.found) == (str(directory / "journal.json"), "other")


def test_the_draft_of_a_journal_follows_no_link(case: Case, victim: Path) -> None:
    directory = plant(case, state="staging")
    (directory / "journal.json.draft").symlink_to(victim / "planted")
    case.restore()
    assert not (victim / "planted").exists()


def test_queues_reached_through_a_link_are_not_swapped(case: Case, victim: Path) -> None:
    """A journal of our own whose store has changed since: the topic's directory is a link now."""
    directory = plant(case, places=[{"path": "consumequeue/T/0", "old": True, "new": False}])
    (directory / "consumequeue" / "T" / "0").mkdir(parents=True)
    (case.root / "consumequeue" / "T").symlink_to(victim)
    with pytest.raises(Refused, match="a link"):
        case.restore()
    assert [path.name for path in victim.iterdir()] == ["consumequeue"]


def test_a_rebuild_with_files_that_have_other_names_is_refused(case: Case, tmp_path: Path, old: Snapshot) -> None:
    """Whoever has the other name could change what was published."""
    os.link(case.out / "checkpoint", tmp_path / "kept")
    with pytest.raises(Refused, match="hard links") as caught:
        case.publish()
    assert caught.value.path == str(case.out / "checkpoint")
    assert snapshot(case.root) == old
