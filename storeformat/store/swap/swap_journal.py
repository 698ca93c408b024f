"""The journal of a swap: artefacts of a store are replaced all or nothing, and it says by what, and how far.

Every swap has a directory of its own below ``ROOT/backup``. Nothing is deleted: what leaves the store is there.

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
NAME/new/PLACE is not there any more. So ``swap.finish`` and ``swap.undo`` both work from every state that a crash
leaves, also a crash of theirs.

Whoever can write a journal says what the next run moves, and that run may be root's. So a journal counts only if it and
its directory belong to the user who runs this, or to root, and if it names what this program writes, by relative paths.
``backup/`` itself belongs to the owner of the store, who can so make swaps of his own beside those of root. What root
has swapped root alone takes back; the files themselves are the owner's all the time.

=========  =======================================================  ==========================
state      means                                                    after a crash
=========  =======================================================  ==========================
staging    new files are on their way into NAME/new                 undone: nothing was touched
swapping   NAME/new is complete                                     finished or undone
finished   the new ones are in place, the old ones in NAME          done
undone     the old ones are in place                                done
=========  =======================================================  ==========================
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from storeformat.errors import Refused
from storeformat.storage import beneath, durable, files, locations
from storeformat.store.config.consumer_offsets import OFFSETS, OFFSETS_WITH_LIGHT_GROUPS
from storeformat.store.config.topic_config import TOPICS
from storeformat.store.layout import (
    ABORT,
    BACKUP,
    CHECKPOINT,
    INDEX,
    QUEUE_KINDS,
    ROCKSDB_QUEUES,
)

JOURNAL = "journal.json"
JOURNAL_FORMAT = 1

PUBLISH, RESTORE = "publish", "restore"
STAGING, SWAPPING, FINISHED, UNDONE = "staging", "swapping", "finished", "undone"

MOST_BYTES = 64 << 20
"""More than any journal has: with ``--topic`` one queue takes some 80 bytes."""

_TIMERS = ("timerlog", "timerwheel", "config/timercheck")
_CONFIG = (TOPICS, OFFSETS, OFFSETS_WITH_LIGHT_GROUPS, locations.parent_of(TOPICS))
_WHOLE = (*QUEUE_KINDS, ROCKSDB_QUEUES, INDEX, CHECKPOINT, ABORT, *_CONFIG, *_TIMERS)
PAPERS = ("manifest.json",)


@dataclass(frozen=True)
class SwapPath:
    """A path below ROOT: ``old`` says that something is there to be taken out, ``new`` that something comes in."""

    path: str
    old: bool
    new: bool


def is_swapped(path: str) -> bool:
    """Returns whether a path below ROOT is one that a swap may replace: a whole artefact, or queues below theirs."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    return path in _WHOLE or parts[0] in QUEUE_KINDS


@dataclass(frozen=True)
class SwapLog:
    """The log that the new files belong to: [begin, end) in ``directories``, and by whose rules it was read."""

    begin: int
    end: int
    directories: tuple[str, ...]
    broker_version: str
    past_damage: bool = False
    as_broker: bool = False


@dataclass(frozen=True)
class SwapJournal:
    """What one replacement does; ``sequence`` orders them.

    ``source`` holds the new files under the names of their places: a directory, or for a restore the name of a backup.
    ``papers`` are files of the source that go into the backup itself. ``copied``: the source is on another file system
    and keeps its files. ``digest`` identifies what is published (SHA-256 of its manifest).
    """

    kind: str
    sequence: int
    source: str
    places: tuple[SwapPath, ...]
    log: SwapLog
    papers: tuple[str, ...] = ()
    copied: bool = False
    digest: str = ""
    state: str = STAGING

    def to_json(self) -> bytes:
        return (json.dumps({"format": JOURNAL_FORMAT, **asdict(self)}, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> SwapJournal:
        """Returns the journal; raises ValueError, KeyError or TypeError if it is none that this program writes."""
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
        journal._check()
        return journal

    def _check(self) -> None:
        """Raises ValueError or TypeError for what this program never writes."""
        numbers = (self.sequence, self.log.begin, self.log.end)
        switches = (self.copied, *(switch for place in self.places for switch in (place.old, place.new)))
        texts = (self.source, self.digest, self.log.broker_version, *self.log.directories)
        if (
            any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers)
            or any(type(switch) is not bool for switch in switches)
            or any(type(text) is not str or "\0" in text for text in texts)
            or not set(self.papers) <= set(PAPERS)
            or not all(is_swapped(place.path) for place in self.places)
        ):
            raise ValueError("not what this program writes")
        if self.kind == RESTORE and (self.source in ("", ".", "..") or "/" in self.source):
            raise ValueError("no name of a backup")
        if self.kind not in (PUBLISH, RESTORE) or (self.kind == PUBLISH and not self.source.startswith("/")):
            raise ValueError("no directory of a rebuild")


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
        """The directory with the new files. That of a restore moves with the store."""
        journal = self.journal
        return locations.join(self.root, BACKUP, journal.source) if journal.kind == RESTORE else journal.source

    def at(self, *path: str) -> str:
        """Returns a path below the backup."""
        return locations.join(self.directory, *path)

    def new(self, place: SwapPath) -> str:
        return self.at("new", place.path)

    def saved(self, state: str, **changes: Any) -> Swap:
        """Returns the replacement in another state, which its journal on disk says too."""
        changed = replace(self, journal=replace(self.journal, state=state, **changes))
        beneath.replace_file(self.at(JOURNAL), changed.journal.to_json(), self.root)
        return changed


def swaps(root: str) -> list[Swap]:
    """Returns the swaps of a store, oldest first. Directories without a journal are none.

    Raises Refused for a journal that is not to be trusted, or that this program did not write; NotAStore for one that
    is absurdly large.
    """
    found = []
    backup = locations.join(root, BACKUP)
    if not durable.present(backup):
        return []
    with beneath.held(backup, root) as here:
        entries = files.list_directory(here) or []
    for entry in entries:
        path = locations.join(backup, entry.name, JOURNAL)
        if not entry.is_directory or not durable.present(path):
            continue
        data = beneath.read_trusted(path, root, MOST_BYTES)
        try:
            journal = SwapJournal.from_json(data)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise Refused(
                "the journal of a backup cannot be understood", path=path,
                advice="if the store is as it should be, move this backup away",
            ) from error  # fmt: skip
        found.append(Swap(root, entry.name, journal))
    return sorted(found, key=lambda item: item.journal.sequence)
