"""Swaps: replace artefacts of a store all or nothing, by moves that can be finished or undone after any crash.

Directories are synced between moves out and in, and at every change of state. The journal (``store.swap_journal``) is
written when the state changes, not for a single move, because each move shows whether it happened: PLACE went out if
NAME/PLACE exists, and came in if NAME/new/PLACE does not. So ``finish`` and ``undo`` work from every state after a
crash, also of their own. ``abort`` leaves the store last and comes back first: a broker started on half a swap then
runs the recovery that trusts its queues least. In state staging new files are on their way into NAME/new, and a crash
means undo; in state swapping NAME/new is complete, and the swap is finished or undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from storeformat.storage import durable, files, locations
from storeformat.store.layout import ABORT, BACKUP
from storeformat.store.swap_journal import FINISHED, JOURNAL, STAGING, SWAPPING, UNDONE, Swap, SwapJournal, SwapPath


def begin(root: str, journal: SwapJournal, now: datetime | None = None) -> Swap:
    """Start a swap in a directory named by UTC time, in state staging."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    names = (stamp if count == 0 else f"{stamp}-{count}" for count in range(1 << 20))
    name = next(name for name in names if not durable.present(locations.join(root, BACKUP, name)))
    made = Swap(root, name, journal)
    files.make_directory(made.directory)
    durable.sync_all([made.directory, locations.join(root, BACKUP), root])
    return made.saved(STAGING)


def stage(item: Swap) -> Swap:
    """Move all new files below NAME/new. Papers are copied: they identify the source until the swap is done."""
    places, papers = _staged(item)
    for source, target in places:
        durable.move(source, target)
    for source, target in papers:
        durable.replace_file(target, files.read_bytes(source))
    _sync_parents(item, (path for pair in places + papers for path in pair))
    return item.saved(SWAPPING)


def _staged(item: Swap) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(current, staged) paths of everything that comes in, and of papers."""
    places = [(locations.join(item.source, place.path), item.new(place)) for place in item.journal.places if place.new]
    return places, [(locations.join(item.source, paper), item.at(paper)) for paper in item.journal.papers]


def finish(item: Swap) -> Swap:
    """Finish a swap from any point, in either direction. The journal drops old files that disappeared after a crash."""
    places = item.journal.places
    for group in _groups(places):
        for place in group:
            is_out = not place.old or durable.present(item.at(place.path)) or not durable.present(_home(item, place))
            if not is_out and (not place.new or durable.present(item.new(place))):
                durable.move(_home(item, place), item.at(place.path))
        _sync(item, group)
        for place in group:
            if place.new and durable.present(item.new(place)):
                durable.move(item.new(place), _home(item, place))
        _sync(item, group)
    kept = tuple(replace(place, old=place.old and durable.present(item.at(place.path))) for place in places)
    item = item.saved(FINISHED, places=kept)
    tidy(item)
    return item


def undo(item: Swap, *, is_our_source: bool = True) -> Swap:
    """Restore the old files; the new ones return to their source if it is ours and free, else stay in the backup."""
    if item.journal.state == SWAPPING:
        for group in reversed(_groups(item.journal.places)):
            for place in reversed(group):
                if place.new and not durable.present(item.new(place)) and durable.present(_home(item, place)):
                    durable.move(_home(item, place), item.new(place))
            _sync(item, group)
            for place in reversed(group):
                if place.old and durable.present(item.at(place.path)):
                    durable.move(item.at(place.path), _home(item, place))
            _sync(item, group)
        item = item.saved(STAGING)
    if is_our_source:
        places, papers = _staged(item)
        for source, target in reversed(places + papers):
            if durable.present(target) and not durable.present(source):
                durable.move(target, source)
        _sync_parents(item, (path for pair in places + papers for path in pair))
        for source, target in papers:
            durable.remove_file(f"{target}.draft")
            if durable.present(target) and durable.are_equal(source, target):
                durable.remove_file(target)
    item = item.saved(UNDONE)
    tidy(item)
    return item


def _groups(places: Sequence[SwapPath]) -> list[list[SwapPath]]:
    """``abort`` comes first if it comes in, last if it only goes."""
    first = [place for place in places if place.path == ABORT and place.new]
    last = [place for place in places if place.path == ABORT and not place.new]
    return [group for group in (first, [place for place in places if place.path != ABORT], last) if group]


def _home(item: Swap, place: SwapPath) -> str:
    return locations.join(item.root, place.path)


def _sync(item: Swap, group: Iterable[SwapPath]) -> None:
    paths = (path for place in group for path in (_home(item, place), item.at(place.path), item.new(place)))
    _sync_parents(item, paths)


def _sync_parents(item: Swap, paths: Iterable[str]) -> None:
    """Below the store all parents, because a backup's may be new."""
    above: dict[str, None] = {}
    for path in paths:
        parent = locations.parent_of(path)
        while parent not in above:
            above[parent] = None
            if not parent.startswith(locations.join(item.root, "")):
                break
            parent = locations.parent_of(parent)
    durable.sync_all(path for path in above if durable.present(path))


def tidy(item: Swap) -> None:
    """Remove leftovers of a finished or undone swap; after an undo, what could not be put back stays."""
    if item.journal.state == FINISHED:
        durable.remove_empty(item.at("new"))
        for paper in item.journal.papers:
            durable.remove_file(locations.join(item.source, paper))
        _remove_empty_below(item.source)
        return
    _remove_empty_below(item.directory)
    if [entry.name for entry in files.list_directory(item.directory) or []] == [JOURNAL]:
        durable.remove_file(item.at(JOURNAL))
        durable.remove_empty(item.directory)


def _remove_empty_below(directory: str) -> None:
    for entry in files.list_directory(directory) or []:
        if entry.is_directory:
            durable.remove_empty(entry.path)
