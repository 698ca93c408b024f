"""A replacement by itself: small files in a store and in a source, every step of the journal, no commit log."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from support.swapping import ABORT_COMES, NEW, OLD, QUEUES, journal, read, write

from storeformat.errors import WriteFailed
from storeformat.storage import durable
from storeformat.store import swap
from storeformat.store.swap import Swap


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
