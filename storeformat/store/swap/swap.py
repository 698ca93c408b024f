"""Swaps: artefacts of a store are replaced all or nothing, by moves that can be finished or undone after any crash.

``begin`` makes the directory of a swap and its journal, ``stage`` brings the new files there, ``finish`` moves the old
ones out and the new ones in, ``undo`` does the opposite; see ``swap_journal`` for what lies where. Between moves out
and moves in, and at every change of state, the directories are synced. No link is followed below the store, nor below
the rebuild.

``abort`` leaves the store last and comes back first: a broker that is started on half a swap takes the recovery that
trusts its queues least.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from storeformat.errors import WriteFailed
from storeformat.storage import beneath, durable, files, local_copies, locations
from storeformat.store.layout import ABORT, BACKUP
from storeformat.store.swap.swap_journal import (
    FINISHED,
    JOURNAL,
    PUBLISH,
    STAGING,
    SWAPPING,
    UNDONE,
    Swap,
    SwapJournal,
    SwapPath,
)


def begin(root: str, journal: SwapJournal, now: datetime | None = None) -> Swap:
    """Returns a new swap, in state staging, in a directory that is named after the UTC time."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    names = (stamp if count == 0 else f"{stamp}-{count}" for count in range(1 << 20))
    name = next(name for name in names if not durable.present(locations.join(root, BACKUP, name)))
    made, backup = Swap(root, name, journal), locations.join(root, BACKUP)
    beneath.make_directory(backup, root, beneath.ownership_of(root))
    beneath.make_directory(made.directory, root)
    durable.sync_all([made.directory, backup, root])
    return made.saved(STAGING)


def stage(item: Swap, advance: local_copies.Advance = lambda count: None) -> Swap:
    """Returns the swap with all new files below NAME/new: moved there, or copied from another file system; raises
    WriteFailed where they are on several.
    """
    pairs = _staged(item)
    if not all(durable.move(source, target, (item.root, item.source)) for source, target in pairs[:1]):
        item = item.saved(STAGING, copied=True)
        with beneath.held(item.directory, item.root) as here:
            held = [(source, here + target.removeprefix(item.directory)) for source, target in pairs]
            local_copies.copy_trees(held, advance, (item.source,))
    for source, target in () if item.journal.copied else pairs[1:]:
        if not durable.move(source, target, (item.root, item.source)):
            raise WriteFailed("parts of this directory are on different file systems", path=item.source)
    if item.journal.kind == PUBLISH:
        owner = beneath.ownership_of(item.root)
        for _, target in pairs:
            beneath.give(target, item.root, owner)
    _sync_parents(item, (path for pair in pairs for path in pair))
    return item.saved(SWAPPING)


def _staged(item: Swap) -> list[tuple[str, str]]:
    """Returns (where it is, where it waits) of everything that comes in, papers last."""
    places = [(locations.join(item.source, place.path), item.new(place)) for place in item.journal.places if place.new]
    return places + [(locations.join(item.source, paper), item.at(paper)) for paper in item.journal.papers]


def finish(item: Swap) -> Swap:
    """Returns the finished swap; works from every point of swapping, in either direction.

    What somebody removed after a crash, ``abort`` for one, has no way out: the finished journal does not claim it.
    """
    places = item.journal.places
    for group in _groups(places):
        for place in group:
            if _waits_to_go(item, place):
                _move(item, _home(item, place), item.at(place.path))
        _sync(item, group)
        for place in group:
            if place.new and durable.present(item.new(place)):
                _clear(item, place)
                _move(item, item.new(place), _home(item, place))
        _sync(item, group)
    kept = tuple(replace(place, old=place.old and durable.present(item.at(place.path))) for place in places)
    item = item.saved(FINISHED, places=kept)
    _tidy(item)
    return item


def _waits_to_go(item: Swap, place: SwapPath) -> bool:
    """Returns whether the old one of a place is still there: not out, and nothing new came in for it."""
    if not place.old or durable.present(item.at(place.path)) or not durable.present(_home(item, place)):
        return False
    return not place.new or durable.present(item.new(place))


def undo(item: Swap) -> Swap:
    """Returns the undone swap: the old files in place, the new ones in their source, if it has room for them."""
    if item.journal.state == SWAPPING:
        for group in reversed(_groups(item.journal.places)):
            for place in reversed(group):
                if place.new and not durable.present(item.new(place)) and durable.present(_home(item, place)):
                    _move(item, _home(item, place), item.new(place))
            _sync(item, group)
            for place in reversed(group):
                if place.old and durable.present(item.at(place.path)):
                    _clear(item, place)
                    _move(item, item.at(place.path), _home(item, place))
            _sync(item, group)
        item = item.saved(STAGING)
    pairs = _staged(item)
    if item.journal.copied:
        # Copies of our own, perhaps half done; the source has kept its files.
        beneath.remove_tree(item.at("new"), item.root)
        for paper in item.journal.papers:
            beneath.remove_file(item.at(paper), item.root)
    else:
        for source, target in reversed(pairs):
            if durable.present(target) and not durable.present(source):
                _move(item, target, source)
        _sync_parents(item, (path for pair in pairs for path in pair))
    item = item.saved(UNDONE)
    _tidy(item)
    return item


def _groups(places: Sequence[SwapPath]) -> list[list[SwapPath]]:
    """Returns the places in the order of a swap: ``abort`` first if it comes in, last if it only goes."""
    first = [place for place in places if place.path == ABORT and place.new]
    last = [place for place in places if place.path == ABORT and not place.new]
    return [group for group in (first, [place for place in places if place.path != ABORT], last) if group]


def _home(item: Swap, place: SwapPath) -> str:
    return locations.join(item.root, place.path)


def _move(item: Swap, source: str, target: str) -> None:
    if not durable.move(source, target, (item.root, item.source)):
        raise WriteFailed("is on another file system than the store", path=source)


def _clear(item: Swap, place: SwapPath) -> None:
    """Moves aside what somebody else put at a place that must be free now."""
    if durable.present(_home(item, place)):
        names = ("aside" if count == 0 else f"aside-{count}" for count in range(1 << 20))
        free = next(path for path in (item.at(name, place.path) for name in names) if not durable.present(path))
        _move(item, _home(item, place), free)


def _sync(item: Swap, group: Iterable[SwapPath]) -> None:
    paths = (path for place in group for path in (_home(item, place), item.at(place.path), item.new(place)))
    _sync_parents(item, paths)


def _sync_parents(item: Swap, paths: Iterable[str]) -> None:
    """Syncs the directories above these paths: below the store all, because a backup's may be new."""
    above: dict[str, None] = {}
    for path in paths:
        parent = locations.parent_of(path)
        while parent not in above:
            above[parent] = None
            if not parent.startswith(locations.join(item.root, "")):
                break
            parent = locations.parent_of(parent)
    durable.sync_all(path for path in above if durable.present(path))


def _tidy(item: Swap) -> None:
    """Removes empty directories that are left over; of an undone swap only what could not be put back stays."""
    if item.journal.state == FINISHED:
        beneath.remove_empty(item.at("new"), item.root)
        if not item.journal.copied:
            _remove_empty_below(item.source, item)
        return
    _remove_empty_below(item.directory, item)
    if [entry.name for entry in files.list_directory(item.directory) or []] == [JOURNAL]:
        beneath.remove_file(item.at(JOURNAL), item.root)
        beneath.remove_empty(item.directory, item.root)


def _remove_empty_below(directory: str, item: Swap) -> None:
    base = item.root if locations.is_inside(directory, item.root) else directory
    for entry in files.list_directory(directory) or []:
        if entry.is_directory:
            beneath.remove_empty(entry.path, base)
