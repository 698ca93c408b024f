"""Replacing artefacts of a store, all or nothing: a journal, and moves that can be finished or undone after any crash.

Every replacement has a directory of its own below ``ROOT/backup``. Nothing is deleted: what leaves the store is there.

==================  ====================================================================================
ROOT/backup/NAME/   holds
==================  ====================================================================================
``journal.json``    what is replaced by what, and how far: staging, swapping, finished, undone
``new/PLACE``       what will come to PLACE; on the store's own file system, complete and on disk
``PLACE``           what was at PLACE (``consumequeue``, ``index``, ``consumequeue/TOPIC/0``, ``abort``, ...)
``aside*/PLACE``    what somebody else put at PLACE between two runs
==================  ====================================================================================

The journal is written when the state changes, never for a single move, because each move shows by itself whether it
happened: only this program touches the backup's side of it. PLACE went out if NAME/PLACE is there, and it came in if
NAME/new/PLACE is not there any more. So ``finish`` and ``undo`` both work from every state that a crash leaves, also a
crash of theirs. Between moves out and moves in, and at every change of state, the directories are synced.

=========  =======================================================  ==========================
state      means                                                    after a crash
=========  =======================================================  ==========================
staging    new files are on their way into NAME/new                 undone: nothing was touched
swapping   NAME/new is complete                                     finished or undone
finished   the new ones are in place, the old ones in NAME          done
undone     the old ones are in place                                done
=========  =======================================================  ==========================

``abort`` leaves the store last and comes back first: whoever starts a broker on half a replacement gets the recovery
that trusts its queues least.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from storeformat.errors import Refused, WriteFailed
from storeformat.storage import durable, files, local_copies, locations, owners
from storeformat.store.layout import ABORT

BACKUP = "backup"
JOURNAL = "journal.json"
JOURNAL_FORMAT = 1

PUBLISH, RESTORE = "publish", "restore"
STAGING, SWAPPING, FINISHED, UNDONE = "staging", "swapping", "finished", "undone"


@dataclass(frozen=True)
class Place:
    """A path below ROOT: ``old`` says that something is there to be taken out, ``new`` that something comes in."""

    path: str
    old: bool
    new: bool


@dataclass(frozen=True)
class LogRange:
    """The log that the new files belong to: [begin, end) in ``directories``, and by whose rules it was read."""

    begin: int
    end: int
    directories: tuple[str, ...]
    broker_version: str
    past_damage: bool = False
    as_broker: bool = False


@dataclass(frozen=True)
class Journal:
    """What one replacement does; ``sequence`` orders them.

    ``source`` holds the new files under the names of their places: a directory, or for a restore the name of a backup.
    ``papers`` are files of the source that go into the backup itself. ``copied``: the source is on another file system
    and keeps its files. ``digest`` identifies what is published (SHA-256 of its manifest).
    """

    kind: str
    sequence: int
    source: str
    places: tuple[Place, ...]
    log: LogRange
    papers: tuple[str, ...] = ()
    copied: bool = False
    digest: str = ""
    state: str = STAGING

    def to_json(self) -> bytes:
        return (json.dumps({"format": JOURNAL_FORMAT, **asdict(self)}, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> Journal:
        """Returns the journal; raises ValueError, KeyError or TypeError if it is none of ours."""
        facts: dict[str, Any] = json.loads(data)
        if facts.pop("format") != JOURNAL_FORMAT or facts["state"] not in (STAGING, SWAPPING, FINISHED, UNDONE):
            raise ValueError("another format")
        log = facts.pop("log")
        return cls(
            places=tuple(Place(**place) for place in facts.pop("places")),
            papers=tuple(facts.pop("papers")),
            log=LogRange(**{**log, "directories": tuple(log["directories"])}),
            **facts,
        )


@dataclass(frozen=True)
class Replacement:
    """One directory of ROOT/backup with its journal."""

    root: str
    name: str
    journal: Journal

    @property
    def directory(self) -> str:
        return locations.join(self.root, BACKUP, self.name)

    @property
    def source(self) -> str:
        """The directory with the new files. That of a restore moves with the store."""
        journal = self.journal
        return locations.join(self.root, BACKUP, journal.source) if journal.kind == RESTORE else journal.source

    def at(self, *path: str) -> str:
        """Returns a path below the backup."""
        return locations.join(self.directory, *path)

    def new(self, place: Place) -> str:
        return self.at("new", place.path)

    def saved(self, state: str, **changes: Any) -> Replacement:
        """Returns the replacement in another state, which its journal on disk says too."""
        changed = replace(self, journal=replace(self.journal, state=state, **changes))
        durable.replace_file(self.at(JOURNAL), changed.journal.to_json())
        return changed


def replacements(root: str) -> list[Replacement]:
    """Returns the replacements of a store, oldest first. Directories without a journal are none."""
    found = []
    for entry in files.list_directory(locations.join(root, BACKUP)) or []:
        path = locations.join(entry.path, JOURNAL)
        if not entry.is_directory or not files.exists(path):
            continue
        try:
            journal = Journal.from_json(files.read_bytes(path))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise Refused(
                "the journal of a backup cannot be understood", path=path,
                advice="if the store is as it should be, move this backup away",
            ) from error  # fmt: skip
        found.append(Replacement(root, entry.name, journal))
    return sorted(found, key=lambda item: item.journal.sequence)


def begin(root: str, journal: Journal, now: datetime | None = None) -> Replacement:
    """Returns a new replacement, in state staging, in a directory that is named after the UTC time."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    names = (stamp if count == 0 else f"{stamp}-{count}" for count in range(1 << 20))
    name = next(name for name in names if not durable.present(locations.join(root, BACKUP, name)))
    made = Replacement(root, name, journal)
    files.make_directory(made.directory)
    durable.sync_all([made.directory, locations.join(root, BACKUP), root])
    return made.saved(STAGING)


def stage(item: Replacement, advance: local_copies.Advance = lambda count: None) -> Replacement:
    """Returns the replacement with all new files below NAME/new: moved there, or copied from another file system."""
    pairs = _staged(item)
    if not all(durable.move(source, target) for source, target in pairs[:1]):
        item = item.saved(STAGING, copied=True)
        local_copies.copy_trees(pairs, advance)
    for source, target in () if item.journal.copied else pairs[1:]:
        if not durable.move(source, target):
            raise WriteFailed("parts of this directory are on different file systems", path=item.source)
    if item.journal.kind == PUBLISH:
        for _, target in pairs:
            owners.give_to_owner_of(item.journal.log.directories[0], target)
    _sync_parents(item, (path for pair in pairs for path in pair))
    return item.saved(SWAPPING)


def _staged(item: Replacement) -> list[tuple[str, str]]:
    """Returns (where it is, where it waits) of everything that comes in, papers last."""
    places = [(locations.join(item.source, place.path), item.new(place)) for place in item.journal.places if place.new]
    return places + [(locations.join(item.source, paper), item.at(paper)) for paper in item.journal.papers]


def finish(item: Replacement) -> Replacement:
    """Returns the finished replacement; works from every point of swapping, in either direction.

    What somebody removed after a crash, ``abort`` for one, has no way out: the finished journal does not claim it.
    """
    places = item.journal.places
    for group in _groups(places):
        for place in group:
            if _waits_to_go(item, place):
                _move(_home(item, place), item.at(place.path))
        _sync(item, group)
        for place in group:
            if place.new and durable.present(item.new(place)):
                _clear(item, place)
                _move(item.new(place), _home(item, place))
        _sync(item, group)
    kept = tuple(replace(place, old=place.old and durable.present(item.at(place.path))) for place in places)
    item = item.saved(FINISHED, places=kept)
    _tidy(item)
    return item


def _waits_to_go(item: Replacement, place: Place) -> bool:
    """Returns whether the old one of a place is still there: not out, and nothing new came in for it."""
    if not place.old or durable.present(item.at(place.path)) or not durable.present(_home(item, place)):
        return False
    return not place.new or durable.present(item.new(place))


def undo(item: Replacement) -> Replacement:
    """Returns the undone replacement: the old files in place, the new ones in their source, if it has room for them."""
    if item.journal.state == SWAPPING:
        for group in reversed(_groups(item.journal.places)):
            for place in reversed(group):
                if place.new and not durable.present(item.new(place)) and durable.present(_home(item, place)):
                    _move(_home(item, place), item.new(place))
            _sync(item, group)
            for place in reversed(group):
                if place.old and durable.present(item.at(place.path)):
                    _clear(item, place)
                    _move(item.at(place.path), _home(item, place))
            _sync(item, group)
        item = item.saved(STAGING)
    pairs = _staged(item)
    if item.journal.copied:
        # Copies of our own, perhaps half done; the source has kept its files.
        files.remove_tree(item.at("new"))
        for paper in item.journal.papers:
            durable.remove_file(item.at(paper))
    else:
        for source, target in reversed(pairs):
            if durable.present(target) and not durable.present(source):
                _move(target, source)
        _sync_parents(item, (path for pair in pairs for path in pair))
    item = item.saved(UNDONE)
    _tidy(item)
    return item


def _groups(places: Sequence[Place]) -> list[list[Place]]:
    """Returns the places in the order of a swap: ``abort`` first if it comes in, last if it only goes."""
    first = [place for place in places if place.path == ABORT and place.new]
    last = [place for place in places if place.path == ABORT and not place.new]
    return [group for group in (first, [place for place in places if place.path != ABORT], last) if group]


def _home(item: Replacement, place: Place) -> str:
    return locations.join(item.root, place.path)


def _move(source: str, target: str) -> None:
    if not durable.move(source, target):
        raise WriteFailed("is on another file system than the store", path=source)


def _clear(item: Replacement, place: Place) -> None:
    """Moves aside what somebody else put at a place that must be free now."""
    if durable.present(_home(item, place)):
        names = ("aside" if count == 0 else f"aside-{count}" for count in range(1 << 20))
        free = next(path for path in (item.at(name, place.path) for name in names) if not durable.present(path))
        _move(_home(item, place), free)


def _sync(item: Replacement, group: Iterable[Place]) -> None:
    paths = (path for place in group for path in (_home(item, place), item.at(place.path), item.new(place)))
    _sync_parents(item, paths)


def _sync_parents(item: Replacement, paths: Iterable[str]) -> None:
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


def _tidy(item: Replacement) -> None:
    """Removes empty directories that are left over; of an undone replacement only what could not be put back stays."""
    if item.journal.state == FINISHED:
        durable.remove_empty(item.at("new"))
        if not item.journal.copied:
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
