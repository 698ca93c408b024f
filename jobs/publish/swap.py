"""Swaps: replace artefacts of a store all or nothing, by moves that can be finished or undone after any crash.

Directories are synced between moves out and in, and at every change of state. Every swap has a directory below
``ROOT/backup``, which keeps what leaves the store.

==================  ====================================================================================
ROOT/backup/NAME/   holds
==================  ====================================================================================
``journal.json``    what is replaced by what, and how far: staging, swapping, finished, undone
``new/PLACE``       what will come to PLACE; on the store's own file system, complete and on disk
``PLACE``           what was at PLACE (``consumequeue``, ``index``, ``consumequeue/TOPIC/0``, ``abort``, ...)
==================  ====================================================================================

The journal is written when the state changes, not for a single move, because each move shows whether it happened:
PLACE went out if NAME/PLACE exists, and came in if NAME/new/PLACE does not. So ``finish`` and ``undo`` work from every
state after a crash, also of their own. ``abort`` leaves the store last and comes back first: a broker started on
half a swap then runs the recovery that trusts its queues least. In state staging new files are on their way into
NAME/new, and a crash means undo; in state swapping NAME/new is complete, and the swap is finished or undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from typing import Any

from storeformat.errors import Refused
from storeformat.storage import durable, files, locations
from storeformat.store.broker_rules import VERSIONS
from storeformat.store.config_files import DELAYS, OFFSETS, OFFSETS_WITH_LIGHT_GROUPS, TOPICS
from storeformat.store.layout import ABORT, BACKUP, CHECKPOINT, INDEX, QUEUE_KINDS, REPAIRED_LOG, ROCKSDB_QUEUES

JOURNAL = "journal.json"
JOURNAL_FORMAT = 1
PUBLISH, RESTORE = "publish", "restore"
STAGING, SWAPPING, FINISHED, UNDONE = "staging", "swapping", "finished", "undone"
LAST_SEQUENCE = (1 << 63) - 1

_TIMERS = ("timerlog", "timerwheel", "config/timercheck")
_CONFIG = (TOPICS, DELAYS, OFFSETS, OFFSETS_WITH_LIGHT_GROUPS, locations.parent_of(TOPICS))
_WHOLE = (*QUEUE_KINDS, ROCKSDB_QUEUES, INDEX, CHECKPOINT, ABORT, *_CONFIG, *_TIMERS)
PAPERS = ("manifest.json",)


@dataclass(frozen=True)
class SwapPath:
    """A path below ROOT: ``old`` goes out, ``new`` comes in."""

    path: str
    old: bool
    new: bool


def is_swapped(path: str) -> bool:
    """True for a path below ROOT that a swap may replace: an artefact, or queues of one."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    return path in _WHOLE or (parts[0] in QUEUE_KINDS and len(parts) <= 3)


@dataclass(frozen=True)
class SwapLog:
    """The log of the new files: [begin, end) in ``directories``, and the rules used."""

    begin: int
    end: int
    directories: tuple[str, ...]
    broker_version: str
    past_damage: bool = False
    as_broker: bool = False


@dataclass(frozen=True)
class SwapJournal:
    """One replacement, ordered by ``sequence``. ``source``: directory of the new files, for a restore the name of a
    backup. ``papers``: files of the source for the backup itself. ``digest``: SHA-256 of the published manifest.
    """

    kind: str
    sequence: int
    source: str
    places: tuple[SwapPath, ...]
    log: SwapLog
    papers: tuple[str, ...] = ()
    digest: str = ""
    state: str = STAGING

    def to_json(self) -> bytes:
        return (json.dumps({"format": JOURNAL_FORMAT, **asdict(self)}, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> SwapJournal:
        facts: dict[str, Any] = json.loads(data)
        if facts.pop("format") != JOURNAL_FORMAT or facts["state"] not in (STAGING, SWAPPING, FINISHED, UNDONE):
            raise ValueError("another format")
        log = facts.pop("log")
        journal = cls(
            places=tuple(SwapPath(**place) for place in facts.pop("places")),
            papers=tuple(facts.pop("papers")),
            log=SwapLog(**{**log, "directories": tuple(log["directories"])}),
            **facts,
        )
        if not journal._is_ours():
            raise ValueError("not what this program writes")
        return journal

    def _is_ours(self) -> bool:
        self.to_json()  # UnicodeEncodeError is a ValueError
        paths = {place.path for place in self.places}
        is_name = "/" not in self.source and self.source not in ("", ".", "..")
        is_source = self.source.startswith("/") if self.kind == PUBLISH else is_name
        return (
            all(_has_its_types(row) for row in (self, self.log, *self.places))
            and is_source
            and "\0" not in self.source
            and self.kind in (PUBLISH, RESTORE)
            and set(self.papers) <= set(PAPERS)
            and all(is_swapped(path) and paths.isdisjoint(locations.with_parents(path)[:-1]) for path in paths)
            and len(paths) == len(self.places)
            and 0 <= self.sequence <= LAST_SEQUENCE
            and 0 <= self.log.begin <= self.log.end < 1 << 63
            and self.log.broker_version in VERSIONS
            and bool(self.log.directories)
            and all(
                type(path) is str and "\0" not in path and locations.is_local(path) for path in self.log.directories
            )
        )


def _has_its_types(row: Any) -> bool:
    """True if fields match their annotations; JSON may hold anything."""
    return all(type(getattr(row, one.name)).__name__ == str(one.type).partition("[")[0] for one in fields(row))


@dataclass(frozen=True)
class Swap:
    """One directory of ROOT/backup with its journal."""

    root: str
    name: str
    journal: SwapJournal

    @property
    def directory(self) -> str:
        return locations.join(self.root, BACKUP, self.name)

    @property
    def source(self) -> str:
        """The directory with the new files; for a restore it moves with the store."""
        journal = self.journal
        return locations.join(self.root, BACKUP, journal.source) if journal.kind == RESTORE else journal.source

    @property
    def repaired_log(self) -> str | None:
        """The log beside the store's own that was repaired for its files."""
        log = self.journal.log.directories[0]
        return log if log.startswith(locations.join(self.root, REPAIRED_LOG)) else None

    def at(self, *path: str) -> str:
        return locations.join(self.directory, *path)

    def new(self, place: SwapPath) -> str:
        return self.at("new", place.path)

    def saved(self, state: str, **changes: Any) -> Swap:
        """Change the state, also in the journal on disk."""
        changed = replace(self, journal=replace(self.journal, state=state, **changes))
        durable.replace_file(self.at(JOURNAL), changed.journal.to_json())
        return changed


def swaps(root: str) -> list[Swap]:
    """The swaps of a store, oldest first. Raises Refused for a journal that this program did not write."""
    found = []
    for entry in files.list_directory(locations.join(root, BACKUP)) or []:
        path = locations.join(entry.path, JOURNAL)
        if not entry.is_directory or not durable.present(path):
            continue
        data = files.read_bytes(path)
        try:
            journal = SwapJournal.from_json(data)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise Refused(
                "the journal of a backup cannot be understood", path=path,
                advice="if the store is as it should be, move this backup away",
            ) from error  # fmt: skip
        found.append(Swap(root, entry.name, journal))
    return sorted(found, key=lambda item: item.journal.sequence)


def newest_publish(known: Sequence[Swap]) -> Swap | None:
    """The newest finished swap, if it is a publish."""
    finished = [item for item in known if item.journal.state == FINISHED]
    return finished[-1] if finished and finished[-1].journal.kind == PUBLISH else None


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
