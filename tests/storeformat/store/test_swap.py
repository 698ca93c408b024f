"""A replacement by itself: small files in a store and in a source, every step of the journal, no commit log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from support.refusals import refusal
from support.swapping import ABORT_COMES, INDEX, NEW, OLD, QUEUES, journal, read, write

from storeformat.errors import WriteFailed
from storeformat.storage import durable, local_copies
from storeformat.store import swap
from storeformat.store.swap import Swap, SwapJournal, SwapLog, SwapPath


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


def test_what_others_put_in_the_way_is_set_aside_each_time(begun: Swap, root: Path) -> None:
    item = swap.stage(begun)
    (root / "index").rename(item.at("index"))  # killed after the first move
    write(root, {"index/theirs": "first"})
    swap.finish(item)
    assert read(root) == in_place()
    Path(item.at("new")).mkdir()
    (root / "index").rename(item.at("new", "index"))  # killed on the way back, then once more
    write(root, {"index/theirs": "second"})
    item = swap.finish(item.saved("swapping"))
    assert read(root) == in_place()
    kept = read(Path(item.directory))
    assert (kept["aside/index/theirs"], kept["aside-1/index/theirs"]) == ("first", "second")
    assert {name: kept[name] for name in OLD} == OLD


def test_every_directory_that_a_move_changes_is_synced(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the backup are new, so their parents change, too; nothing above the store does."""
    synced: set[str] = set()
    monkeypatch.setattr(durable, "sync_all", synced.update)
    item = swap.begin(str(root), journal(source, SwapPath("consumequeue/T", old=True, new=True)))
    assert synced == {str(root), str(root / "backup"), item.directory}
    synced.clear()
    item = swap.stage(item)
    new = {item.directory, item.at("new"), item.at("new", "consumequeue")}
    assert synced == {str(source / "consumequeue"), str(root), str(root / "backup"), *new}
    synced.clear()
    swap.finish(item)
    inside = {str(root), str(root / "backup"), str(root / "consumequeue"), item.directory, item.at("consumequeue")}
    assert inside | new == synced


def durable_steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """From here on, every move with its target, every sync, and every state that a journal gets, in order."""
    steps: list[tuple[str, str]] = []
    move, sync_all, replace_file = durable.move, durable.sync_all, durable.replace_file

    def noted_move(source: str, target: str) -> bool:
        steps.append(("move", target))
        return move(source, target)

    def noted_sync(paths: Iterable[str]) -> None:
        paths = list(paths)
        steps.extend(("sync", path) for path in paths)
        sync_all(paths)

    def noted_state(path: str, data: bytes) -> None:
        steps.append(("state", json.loads(data)["state"]))
        replace_file(path, data)

    monkeypatch.setattr(durable, "move", noted_move)
    monkeypatch.setattr(durable, "sync_all", noted_sync)
    monkeypatch.setattr(durable, "replace_file", noted_state)
    return steps


def test_an_undo_reaches_the_disk_in_order(
    begun: Swap, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may keep any of the moves since the last sync: it must never find new queues in a store without
    ``abort``, two artefacts for one name, or a journal that says more than the directories.
    """
    swapped = swap.finish(swap.stage(begun)).saved("swapping")
    steps = durable_steps(monkeypatch)
    swap.undo(swapped)
    at = {
        name: steps.index(("move", path))
        for name, path in (
            ("abort back", str(root / "abort")),
            ("first out", swapped.at("new", "index")),
            ("last out", swapped.at("new", "consumequeue")),
            ("first in", str(root / "index")),
            ("last in", str(root / "consumequeue")),
            ("first to its source", str(source / "manifest.json")),
            ("last to its source", str(source / "consumequeue")),
        )
    }
    at |= {name: steps.index(("state", name)) for name in ("staging", "undone")}
    assert sorted(at, key=lambda name: at[name]) == [
        "abort back", "first out", "last out", "first in", "last in", "staging", "first to its source",
        "last to its source", "undone",
    ]  # fmt: skip
    for before, after, directories in (
        ("abort back", "first out", {str(root), swapped.directory}),
        ("last out", "first in", {str(root), swapped.at("new")}),
        ("last in", "staging", {str(root), swapped.directory}),
        ("last to its source", "undone", {str(source), swapped.directory, swapped.at("new")}),
    ):
        assert {("sync", path) for path in directories} <= set(steps[at[before] : at[after]]), before


@pytest.mark.parametrize("gone", ["abort", "index"])
def test_what_somebody_removed_after_a_crash_does_not_stop_the_swap(
    gone: str, begun: Swap, root: Path, tmp_path: Path
) -> None:
    """An operator removes ``abort`` by hand, or a broker does when it stops."""
    item = swap.stage(begun)
    (root / gone).rename(tmp_path / "taken")
    for _ in range(2):  # a crash before the last change of the journal does it all again
        done = swap.finish(item)
        assert read(root) == in_place()
        item = item.saved("swapping")
    assert [place.path for place in done.journal.places if place.old] == [
        name for name in ("consumequeue", "index", "abort") if name != gone
    ]
    assert all(Path(done.at(place.path)).exists() == place.old for place in done.journal.places)


# ---------------------------------------------------------------------------------------------- another file system
def crossing(monkeypatch: pytest.MonkeyPatch, *apart: Path) -> None:
    """No rename leads out of these paths."""
    move = durable.move

    def refused(source: str, target: str) -> bool:
        return not source.startswith(tuple(map(str, apart))) and move(source, target)

    monkeypatch.setattr(durable, "move", refused)


def test_a_source_on_another_file_system_keeps_its_files(
    begun: Swap, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "index" / "empty").mkdir()
    (source / "config").mkdir()
    before = read(source)
    crossing(monkeypatch, source)
    told: list[int] = []
    item = swap.stage(begun, told.append)
    assert (item.journal.copied, item.journal.state) == (True, "swapping")
    assert told[-1] == sum(len(text) for text in NEW.values())
    swap.finish(item)
    assert read(root) == {**in_place(), "index/empty": "empty"}
    assert read(source) == before
    assert Path(item.at("manifest.json")).read_text() == "paper"


@pytest.mark.parametrize("fails_at", [None, 0, 2])
def test_copies_are_undone_without_a_trace(
    fails_at: int | None, begun: Swap, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the copying itself broke off: the journal has said before that the source keeps its files."""
    crossing(monkeypatch, source)
    copy_file = local_copies._copy_file

    def copied(old: str, *rest: Any) -> None:
        (begun_journal,) = swap.swaps(str(root))
        assert begun_journal.journal.copied
        if fails_at is not None and old.endswith(sorted(NEW)[fails_at]):
            raise WriteFailed("cannot be written: No space left on device", path=old)
        copy_file(old, *rest)

    monkeypatch.setattr(local_copies, "_copy_file", copied)
    if fails_at is None:
        swap.stage(begun)
    else:
        with pytest.raises(WriteFailed):
            swap.stage(begun)
    (found,) = swap.swaps(str(root))
    swap.undo(found)
    assert (read(root), read(source)) == (OLD, NEW)
    assert not list((root / "backup").iterdir())


def test_a_source_of_two_file_systems_is_refused_and_put_back(
    begun: Swap, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        crossing(patched, source / "index")
        said = {"what": "parts of this directory are on different file systems", "path": str(source)}
        assert refusal(WriteFailed, lambda: swap.stage(begun)) == said
    (found,) = swap.swaps(str(root))
    assert (found.journal.state, found.journal.copied) == ("staging", False)
    swap.undo(found)
    assert (read(root), read(source)) == (OLD, NEW)


def test_a_place_that_was_mounted_since_stops_the_swap_and_can_be_undone(
    begun: Swap, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = swap.stage(begun)
    with monkeypatch.context() as patched:
        crossing(patched, root / "index")
        said = {"what": "is on another file system than the store", "path": str(root / "index")}
        assert refusal(WriteFailed, lambda: swap.finish(item)) == said
    (found,) = swap.swaps(str(root))
    assert found.journal.state == "swapping"
    swap.undo(found)
    assert (read(root), read(source)) == (OLD, NEW)


def test_what_others_put_in_the_way_of_an_undo_is_set_aside(begun: Swap, root: Path, source: Path) -> None:
    item = swap.stage(begun)
    (root / "index").rename(item.at("index"))  # killed after the first move
    write(root, {"index/theirs": "text"})
    swap.undo(item)
    assert (read(root), read(source)) == (OLD, NEW)
    assert read(Path(item.directory))["aside/index/theirs"] == "text"


@pytest.mark.parametrize("kind", ["publish", "restore"])
def test_new_files_get_permissions_and_restored_ones_keep_theirs(
    kind: str, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "backup" / "first", NEW)
    given: list[tuple[str, str]] = []
    monkeypatch.setattr(durable, "give_permissions", lambda path, like: given.append((like, path)))
    name = str(source) if kind == "publish" else "first"
    made = SwapJournal(kind, 1, name, (INDEX,), SwapLog(0, 1, ("/the/log", "/more"), "5.3"), papers=("manifest.json",))
    item = swap.stage(swap.begin(str(root), made))
    everything = [(str(root), item.at("new", "index")), (str(root), item.at("manifest.json"))]
    assert given == (everything if kind == "publish" else [])
    assert Path(item.source) == (source if kind == "publish" else root / "backup" / "first")
    assert not (Path(item.source) / "index").exists()
