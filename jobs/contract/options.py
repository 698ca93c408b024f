"""What a command line says, as frozen values: one class per job, with the fields and the defaults of its options.

The command line fills them (``from_arguments``); notebooks and tests construct them directly, so every default lives
here and only here. Paths stay strings, because each may be a path or a URI.
"""

from __future__ import annotations

import argparse
from dataclasses import MISSING, dataclass, fields, replace
from typing import Literal, TypeVar

from storeformat.errors import UsageError
from storeformat.queues.topic_filter import TopicFilter
from storeformat.storage import locations

DamagePolicy = Literal["fail", "stop", "salvage"]
Artefact = Literal["consumequeue", "index", "checkpoint", "consumer-offsets", "timers", "rocksdb"]
ARTEFACTS: tuple[Artefact, ...] = ("consumequeue", "index", "checkpoint")
"""What a broker derives from its log, all of it."""
CONSUMER_OFFSETS: Artefact = "consumer-offsets"
JUDGED: tuple[Artefact, ...] = (*ARTEFACTS, CONSUMER_OFFSETS)
"""What ``verify`` looks at."""
TIMERS: Artefact = "timers"
MADE: tuple[Artefact, ...] = (*JUDGED, TIMERS)
"""What ``rebuild`` can make for ``publish``."""
QueueStoreKind = Literal["file", "rocksdb", "both"]
ROCKSDB: tuple[Artefact, ...] = ("rocksdb",)
"""What ``rebuild`` makes by itself alone: the pairs of RocksDB queues as a table."""

PLACEHOLDERS = ("{cluster}", "{broker}")
"""What stands for parts of paths that differ between the brokers of a fleet."""
NAMED_BY_LINES = ("store", "cluster", "broker")
"""Options that a file of stores may have in place of the command line."""

Options = TypeVar("Options", bound="JobOptions")


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of every job: where its report goes, and how much it says on the way."""

    json: bool = False
    report_file: str | None = None
    metrics: str | None = None
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class LogOptions(JobOptions):
    """Options of every job that reads a commit log."""

    store: str
    commitlog: tuple[str, ...] = ()
    """Where the segments are, if not in ``<store>/commitlog``; several directories form one log."""
    broker_conf: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    """``--set`` pairs under their broker.conf names, in the order given."""
    broker_version: str | None = None
    batch_topics: tuple[str, ...] = ()
    on_damage: DamagePolicy = "fail"
    keep_crc_failures: bool = False
    """With ``salvage``: a record counts although its body is damaged, if nothing else is."""
    until_offset: int | None = None
    split_size: int | None = None
    replicas: tuple[str, ...] = ()
    """Stores with copies of the log: ``rebuild``, ``inspect`` and ``verify`` heal damage from them."""


@dataclass(frozen=True, kw_only=True)
class FleetOptions(LogOptions):
    """Options of a job that takes the stores of several brokers, each as if it were alone."""

    stores: str | None = None
    """A file that names them, a line each; ``store`` is then empty."""

    @property
    def names_several(self) -> bool:
        """Whether ``jobs.cli.fleet`` has to find out which stores are meant."""
        return self.stores is not None or any(name in self.store for name in PLACEHOLDERS)


@dataclass(frozen=True, kw_only=True)
class DemoOptions(JobOptions):
    """``demo``; without ``output`` the results go to a temporary directory and are removed."""

    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class RebuildOptions(LogOptions):
    """``rebuild``."""

    output: str
    topics: tuple[TopicFilter, ...] = ()
    only: tuple[Artefact, ...] = ARTEFACTS
    queue_store: QueueStoreKind | None = None
    """Where queues are to be kept; without it where the broker's settings, or the store, say."""
    topics_json: bool = False
    """Whether to make ``config/topics.json``, too."""
    consumer_offsets_at: int | None = None
    """The time, in milliseconds, to which all groups are set; without it they keep what they had committed."""
    repair_log: str | None = None
    """With ``salvage``: where to write repaired copies of damaged segments."""
    ignore_free_space: bool = False
    """Whether to write although less is free than the output will take."""
    compact: bool = False
    """Whether objects end where their data ends; files on a disk keep their length, for their zeros are holes."""
    dry_run: bool = False

    @property
    def ends_with_data(self) -> bool:
        """Whether the files of the output have no zeros after their data."""
        return self.compact and not locations.is_local(self.output)


@dataclass(frozen=True, kw_only=True)
class PublishOptions(JobOptions):
    """``publish``; ``rebuilt`` is the directory that ``rebuild`` filled."""

    store: str
    rebuilt: str
    commitlog: tuple[str, ...] = ()
    after_crash: bool = False
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class RestoreOptions(JobOptions):
    """``restore``; without ``backup`` the newest one."""

    store: str
    backup: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(JobOptions):
    """``preflight``; without ``broker_version`` the rules are those of the release that the store shows."""

    store: str
    broker_conf: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    broker_version: str | None = None
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(FleetOptions):
    """``verify``."""

    topics: tuple[TopicFilter, ...] = ()
    only: tuple[Artefact, ...] = JUDGED


Selecting = TypeVar("Selecting", RebuildOptions, VerifyOptions)


def narrow_to_queues(options: Selecting) -> Selecting:
    """Returns the options with ``only`` narrowed to what a selection of topics can mean: their queues, nothing shared
    by all topics. Raises UsageError where index or checkpoint were asked for.
    """
    if not options.topics or options.only in (("consumequeue",), ROCKSDB):
        return options
    if options.only in (ARTEFACTS, JUDGED):
        return replace(options, only=("consumequeue",))
    raise UsageError("--topic selects consume queues only: index, checkpoint and offsets belong to all topics")


@dataclass(frozen=True, kw_only=True)
class QueryOptions(LogOptions):
    """``query``; which fields count depends on ``kind``."""

    kind: Literal["key", "id", "offset", "time", "list", "lag"]
    topic: str | None = None
    key: str | None = None
    message_id: str | None = None
    queue_id: int | None = None
    offset: int | None = None
    time: int | None = None
    begin: int = 0
    end: int = 2**63 - 1
    max_messages: int = 64
    boundary: Literal["lower", "upper"] = "lower"
    scan: bool = False
    explain: bool = False
    bodies: bool = False
    most: int | None = None
    """Of ``list``: without it all messages of an export, else 64."""
    export: str | None = None
    waiting: bool = False
    group: str | None = None
    not_consumed: bool = False


@dataclass(frozen=True, kw_only=True)
class InspectOptions(FleetOptions):
    """``inspect``; with ``from_offset`` or ``limit`` the records themselves."""

    topics: tuple[TopicFilter, ...] = ()
    from_offset: int | None = None
    limit: int | None = None
    bodies: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadOptions(FleetOptions):
    """``load``; without ``time_zone`` the table's own, UTC for a new one."""

    table: str
    cluster: str
    broker: str
    topics: tuple[TopicFilter, ...] = ()
    time_zone: str | None = None
    with_bodies: bool = False
    allow_gap: bool = False
    repair_from: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportOptions(JobOptions):
    """``report``; a page has the checks, too."""

    table: str
    by: Literal["topic", "queue", "tag", "host", "hour", "date"] = "topic"
    checks: bool = False
    html: str | None = None
    csv: str | None = None


def from_arguments(kind: type[Options], arguments: argparse.Namespace) -> Options:
    """Returns the options that parsed arguments describe; arguments that were not given keep the field's default.

    Raises UsageError when a field without a default was not given.
    """
    given = vars(arguments)
    if "stores" in given:
        given = dict.fromkeys(NAMED_BY_LINES, "") | given
    missing = [
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING and f.name not in given
    ]
    if missing:
        names = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise UsageError(f"the following arguments are required: {names}")
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})
