"""The journal of a swap: what a publish or a restore replaced in a store, and how far it came.

Every swap has a directory below ``ROOT/backup``, which keeps what leaves the store.

==================  ====================================================================================
ROOT/backup/NAME/   holds
==================  ====================================================================================
``journal.json``    what is replaced by what, and how far: staging, swapping, finished, undone
``new/PLACE``       what will come to PLACE; on the store's own file system, complete and on disk
``PLACE``           what was at PLACE (``consumequeue``, ``index``, ``consumequeue/TOPIC/0``, ``abort``, ...)
==================  ====================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
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
        return log if locations.name_of(log).startswith(REPAIRED_LOG) else None

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
