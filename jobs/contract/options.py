"""Options of each job: fields, help texts and defaults. Must import with a bare Python."""

from __future__ import annotations

import argparse
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from storeformat.errors import UsageError
from storeformat.queues.topic_filter import TopicFilter
from storeformat.store.broker_rules import EFFECTS, nearest_names, rules_of

Artefact = Literal["consumequeue", "index", "checkpoint", "consumer-offsets", "delay-offsets", "timers"]
ARTEFACTS: tuple[Artefact, ...] = ("consumequeue", "index", "checkpoint")
"""What a broker derives from its log."""
CONSUMER_OFFSETS: Artefact = "consumer-offsets"
JUDGED: tuple[Artefact, ...] = (*ARTEFACTS, CONSUMER_OFFSETS)
"""What ``verify`` checks."""
DELAY_OFFSETS: Artefact = "delay-offsets"
TIMERS: Artefact = "timers"
MADE: tuple[Artefact, ...] = (*JUDGED, DELAY_OFFSETS, TIMERS)
"""What ``rebuild`` can make."""


@dataclass(frozen=True)
class Given:
    """argparse settings of one option; ``flag`` if it differs from the field's name, ``many`` if it is repeatable."""

    value: Callable[[str], Any] | tuple[str, ...]
    metavar: str | None = None
    flag: str | None = None
    many: bool = False


def natural(text: str) -> int:
    """A whole number from 0 on."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    if value >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on."""
    value = natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is too small")
    return value


def milliseconds(text: str) -> int:
    """Milliseconds since 1970, given as such or as ISO 8601 with a zone."""
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor a time with its zone, such as 2026-01-31T23:59:59.123Z"
        )
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def release(text: str) -> str:
    """A release or the name of a set of rules."""
    try:
        rules_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def path(text: str) -> str:
    """A path or URI; ``~`` is expanded, and ``file:/x`` becomes ``file:///x``."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    if re.match("[a-z][a-z0-9+.-]+:/[^/]", text, re.I) and not text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text} has one slash after its scheme; a URI has two, a local path ./ first")
    if text.rstrip("/").endswith(":") and "://" in text and not text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text} is incomplete: it has a scheme and no path")
    if text.startswith("file:/") and not text.startswith("file://"):
        return "file://" + text.removeprefix("file:")
    return str(Path(text).expanduser()) if text == "~" or text.startswith("~/") else text


def name(text: str) -> str:
    """A name that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def setting(text: str) -> tuple[str, str]:
    """Name and value of a broker setting."""
    name, equals, value = (side.strip() for side in text.partition("="))
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    if name not in EFFECTS:
        near = " or ".join(nearest_names(name))
        raise argparse.ArgumentTypeError(f"brokers know no setting {name!r}" + (f"; is it {near}?" if near else ""))
    return name, value


def time_zone(text: str) -> str:
    """The name of a time zone."""
    try:
        zoneinfo.ZoneInfo(text)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise argparse.ArgumentTypeError(f"{text}: no such time zone") from None
    return text


def topic_filter(text: str) -> TopicFilter:
    """The filter ``TOPIC`` or ``TOPIC:QUEUE``."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a topic needs a name")
    named = TopicFilter.parse(text)
    strange = {"/", "\0"} if named.topic.startswith("%LMQ%") else {"/", "\0", ":"}  # no broker judges light queues
    if strange & {*named.topic} or named.topic in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a topic; one queue is TOPIC:QUEUE")
    return named


def artefacts(text: str, known: tuple[Artefact, ...] = JUDGED) -> tuple[Artefact, ...]:
    """The artefacts of a comma-separated list."""
    named = {part.strip() for part in text.split(",")}
    unknown = sorted(named - set(known))
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(name for name in known if name in named)


def rebuilt_artefacts(text: str) -> tuple[Artefact, ...]:
    """The artefacts of a comma-separated list that ``rebuild`` can make."""
    return artefacts(text, MADE)


def paths(text: str) -> tuple[str, ...]:
    """The paths of a comma-separated list."""
    named = tuple(path(part.strip()) for part in text.split(",") if part.strip())
    if not named:
        raise argparse.ArgumentTypeError("the path is empty")
    return named


DamagePolicy = Literal["fail", "stop", "salvage"]
QueueStoreKind = Literal["file", "rocksdb"]
Grouping = Literal["topic", "queue", "tag", "host", "hour", "date"]
Boundary = Literal["lower", "upper"]

Options = TypeVar("Options", bound="JobOptions")

FILE, DIR, ROOT = Given(path, "FILE"), Given(path, "DIR"), Given(path, "ROOT")
RELEASE = Given(release, "RELEASE")
NUMBER, COUNT, TIME = Given(natural, "N"), Given(positive, "N"), Given(milliseconds, "MS")
CommitLog = Annotated[tuple[str, ...], Given(paths, "PATH[,PATH]"), "where the segments are, if not in ROOT/commitlog"]
Settings = Annotated[
    tuple[tuple[str, str], ...],
    Given(setting, "NAME=VALUE", "--set", many=True),
    "a setting under its broker.conf name, which overrides the file; repeatable",
]
Replicas = Annotated[
    tuple[str, ...],
    Given(path, "ROOT", "--replica", many=True),
    "a store with a copy of the log, such as a slave: replaces what is damaged or missing here; repeatable",
]
Topics = Annotated[
    tuple[TopicFilter, ...],
    Given(topic_filter, "TOPIC[:QUEUE]", "--topic", many=True),
    "only this topic, or this queue of it; repeatable",
]
StoppedStore = Annotated[str, ROOT, "the store of the stopped broker"]
BrokerConf = Annotated[str | None, FILE, "the broker.conf with which the broker will be started"]
Table = Annotated[str, Given(path, "TABLE"), "path or URI of the Delta table"]
DryRun = Annotated[bool, "say what would be written, write nothing"]
Bodies = Annotated[bool, "show bodies, too"]
Scan = Annotated[bool, "read the log itself, use neither index nor queues"]
Topic = Annotated[str, Given(name, "T"), "its topic"]
QueueId = Annotated[int, Given(natural, "Q", "--queue"), "the queue's id"]
Begin = Annotated[int, TIME, "stored at or after this time: milliseconds since 1970, or ISO 8601 with its zone"]
End = Annotated[int, TIME, "stored at or before this time"]
FOREVER = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of every job: where the report goes, and how much is printed."""

    json: Annotated[bool, "print the report as one JSON object, and nothing else on stdout"] = False
    report_file: Annotated[str | None, Given(path, "FILE", "--report"), "write the same object into FILE"] = None
    metrics: Annotated[str | None, FILE, "also write the outcome in Prometheus' text format"] = None
    quiet: Annotated[bool, "no progress and no notes on stderr"] = False
    verbose: Annotated[bool, "all figures of the report"] = False
    debug: Annotated[bool, "Spark's log, and Java and Python stack traces, on stderr"] = False

    @property
    def scans_log(self) -> bool:
        """The job certainly reads the log with tasks, so Spark can start at once."""
        return False


@dataclass(frozen=True, kw_only=True)
class StoreOptions(JobOptions):
    """The store and its broker's settings."""

    store: Annotated[str, ROOT, "the broker's storePathRootDir, a path or a URI"]
    commitlog: CommitLog = ()
    broker_conf: Annotated[str | None, FILE, "the broker.conf to take sizes and switches from"] = None
    settings: Settings = ()
    broker_version: Annotated[
        str | None,
        RELEASE,
        "the broker's release, such as 5.1.4 (default: what the store shows)",
    ] = None
    batch_topics: Annotated[
        tuple[str, ...],
        Given(name, "TOPIC", "--batch-topic", many=True),
        "a BatchCQ topic (default: as topics.json and batchconsumequeue/ say); repeatable",
    ] = ()


@dataclass(frozen=True, kw_only=True)
class LogOptions(StoreOptions):
    """Options of every job that reads a commit log."""

    on_damage: Annotated[
        DamagePolicy,
        Given(get_args(DamagePolicy)),
        "at damage: refuse the log (default), end there as a broker does, or continue past it",
    ] = "fail"
    keep_crc_failures: Annotated[bool, "with salvage: keep a record if nothing but the CRC of its body is wrong"] = (
        False
    )
    until_offset: Annotated[int | None, NUMBER, "ignore records that end after this commit-log offset"] = None
    split_size: Annotated[int | None, Given(positive, "BYTES"), "bytes a task reads; never changes the result"] = None
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DemoOptions(JobOptions):
    """``demo``."""

    output: Annotated[str | None, DIR, "keep the rebuilt files and the table in DIR (default: remove them)"] = None
    scans_log = True


@dataclass(frozen=True, kw_only=True)
class RebuildOptions(LogOptions):
    """``rebuild``."""

    replicas: Replicas = ()
    output: Annotated[str, DIR, "absent or empty; appears whole or not at all"]
    repair_log: Annotated[
        str | None,
        Given(path, "DIR2"),
        "with salvage or --replica: write repaired copies of damaged segments, with fillers for what is lost",
    ] = None
    topics: Topics = ()
    only: Annotated[
        tuple[Artefact, ...],
        Given(rebuilt_artefacts, "LIST"),
        "some of consumequeue,index,checkpoint (the default), consumer-offsets, delay-offsets, timers",
    ] = ARTEFACTS
    queue_store: Annotated[
        QueueStoreKind | None,
        Given(get_args(QueueStoreKind)),
        "files, or the database of storeType=defaultRocksDB (default: as broker.conf and the store say)",
    ] = None
    topics_json: Annotated[
        bool,
        "also make config/topics.json; a lost one has as many queues as the log shows",
    ] = False
    consumer_offsets_at: Annotated[
        int | None,
        Given(milliseconds, "TIME"),
        "with consumer-offsets: groups begin at the first message stored from this time on",
    ] = None
    """Milliseconds; without it groups keep their committed offsets."""
    ignore_free_space: Annotated[bool, "write even if DIR's disk seems too small"] = False
    dry_run: DryRun = False
    scans_log = True


@dataclass(frozen=True, kw_only=True)
class PublishOptions(JobOptions):
    """``publish``; ``rebuilt`` is the output of ``rebuild``."""

    store: StoppedStore
    rebuilt: Annotated[str, Given(path, "DIR", "--from"), "what `rebuild` wrote"]
    commitlog: CommitLog = ()
    broker_conf: BrokerConf = None
    after_crash: Annotated[bool, "the broker did not stop cleanly: accept its abort file"] = False
    dry_run: DryRun = False


@dataclass(frozen=True, kw_only=True)
class RestoreOptions(JobOptions):
    """``restore``."""

    store: StoppedStore
    backup: Annotated[str | None, Given(name, "NAME"), "which directory of ROOT/backup (default: the newest)"] = None
    broker_conf: BrokerConf = None
    dry_run: DryRun = False


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(JobOptions):
    """``preflight``."""

    store: Annotated[str, ROOT, "the broker's storePathRootDir, a local path"]
    broker_conf: BrokerConf = None
    settings: Settings = ()
    broker_version: Annotated[
        str | None, RELEASE, "the release that will be started, such as 5.3.3 (default: what the store shows)"
    ] = None
    replicas: Annotated[
        tuple[str, ...],
        Given(path, "ROOT", "--replica", many=True),
        "a store with a copy of the log, such as a slave: says which is longer, and what is lost by starting this one",
    ] = ()


@dataclass(frozen=True, kw_only=True)
class RecoverOptions(PreflightOptions):
    """``recover``."""

    work: Annotated[
        str | None,
        Given(path, "DIR"),
        "where the rebuild goes until it is published, on the file system of the store: beside it (default:"
        " ROOT.recover), or in ROOT/backup",
    ] = None
    yes: Annotated[bool, "carry out the plan (default: print it)"] = False
    scans_log = True

    @property
    def dry_run(self) -> bool:
        return not self.yes


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(LogOptions):
    """``verify``."""

    replicas: Replicas = ()
    topics: Topics = ()
    only: Annotated[
        tuple[Artefact, ...], Given(artefacts, "LIST"), "some of consumequeue,index,checkpoint,consumer-offsets"
    ] = JUDGED
    scans_log = True


Selecting = TypeVar("Selecting", RebuildOptions, VerifyOptions)


def narrow_to_queues(options: Selecting) -> Selecting:
    """Narrow ``only`` to consume queues if topics are selected: everything else belongs to all topics."""
    if not options.topics or options.only == ("consumequeue",):
        return options
    if options.only in (ARTEFACTS, JUDGED):
        return replace(options, only=("consumequeue",))
    raise UsageError("--topic selects consume queues only: index, checkpoint and offsets belong to all topics")


@dataclass(frozen=True, kw_only=True)
class QueryOptions(LogOptions):
    """``query``; each question has a class."""

    kind: ClassVar[str]
    summary: ClassVar[str]
    scan = False

    @property
    def scans_log(self) -> bool:
        return self.scan


@dataclass(frozen=True, kw_only=True)
class KeyOptions(QueryOptions):
    """``query key``."""

    kind, summary = "key", "messages with a key (queryMsgByKey)"
    topic: Topic
    key: Annotated[str, Given(name, "K"), "one of its keys, or its UNIQ_KEY"]
    begin: Begin = 0
    end: End = FOREVER
    scan: Scan = False
    bodies: Bodies = False
    max_messages: Annotated[int | None, Given(positive, "N", "--max"), "at most N (default 64)"] = None


@dataclass(frozen=True, kw_only=True)
class IdOptions(QueryOptions):
    """``query id``; with a topic it is a question for a key."""

    kind, summary = "id", "one message by offsetMsgId, or by UNIQ_KEY with --topic (queryMsgById)"
    message_id: Annotated[str, Given(str, "MESSAGE_ID", "message_id"), "an offsetMsgId, or with --topic a UNIQ_KEY"]
    topic: Annotated[str, Given(name, "T"), "its topic: the id is then a UNIQ_KEY, as producers know it"] = ""
    scan: Scan = False
    bodies: Bodies = False
    begin, end, max_messages = 0, FOREVER, None

    @property
    def key(self) -> str:
        return self.message_id


@dataclass(frozen=True, kw_only=True)
class OffsetOptions(QueryOptions):
    """``query offset``."""

    kind, summary = "offset", "one message by its place in a queue (queryMsgByOffset)"
    topic: Topic
    queue_id: QueueId
    offset: Annotated[int, NUMBER, "its queue offset"]
    scan: Scan = False
    bodies: Bodies = False
    max_messages = None


@dataclass(frozen=True, kw_only=True)
class TimeOptions(QueryOptions):
    """``query time``."""

    kind, summary = "time", "the queue offset at a time (searchOffset)"
    topic: Topic
    queue_id: QueueId
    time: Annotated[int, TIME, "milliseconds since 1970, or ISO 8601 with its zone"]
    scan: Scan = False
    bodies: Bodies = False
    boundary: Annotated[
        Boundary,
        Given(get_args(Boundary)),
        "the first message at or after the time (lower, the default), or the last at or before it (upper)",
    ] = "lower"


@dataclass(frozen=True, kw_only=True)
class ListOptions(QueryOptions):
    """``query list``."""

    kind, summary = "list", "the messages of a topic in the order of its queues, or a file of them"
    topic: Topic
    queue_id: Annotated[int | None, Given(natural, "Q", "--queue"), "the queue's id"] = None
    begin: Begin = 0
    end: End = FOREVER
    bodies: Bodies = False
    max_messages: Annotated[int | None, Given(positive, "N", "--max"), "at most N (default 64, with --export all)"] = (
        None
    )
    export: Annotated[str | None, FILE, "write them into FILE: .jsonl, or .parquet; bodies with --bodies"] = None
    waiting: Annotated[
        bool, "show instead the topic's messages that the broker keeps elsewhere: delayed, timer, half, retried, dead"
    ] = False
    not_consumed: Annotated[bool, "only messages from the committed offset of --group on"] = False
    group: Annotated[str | None, Given(name, "G"), "the group of --not-consumed"] = None


@dataclass(frozen=True, kw_only=True)
class LagOptions(QueryOptions):
    """``query lag``."""

    kind, summary = "lag", "how far groups lag behind the ends of their queues"
    group: Annotated[str | None, Given(name, "G"), "only this group"] = None


QUESTIONS: dict[str, type[QueryOptions]] = {
    one.kind: one for one in (KeyOptions, IdOptions, OffsetOptions, TimeOptions, ListOptions, LagOptions)
}


@dataclass(frozen=True, kw_only=True)
class InspectOptions(LogOptions):
    """``inspect``; with ``from_offset`` or ``limit`` it shows records."""

    replicas: Replicas = ()
    topics: Topics = ()
    from_offset: Annotated[int | None, Given(natural, "N", "--from"), "show records from this offset on"] = None
    limit: Annotated[int | None, COUNT, "show at most N records"] = None
    bodies: Bodies = False

    @property
    def scans_log(self) -> bool:
        return self.from_offset is None and self.limit is None


@dataclass(frozen=True, kw_only=True)
class LoadOptions(LogOptions):
    """``load``; the default ``time_zone`` is the table's own, UTC for a new one."""

    table: Table
    cluster: Annotated[str, Given(name, "C"), "value of the column cluster"]
    broker: Annotated[str, Given(name, "B"), "value of the column broker"]
    topics: Topics = ()
    time_zone: Annotated[str | None, Given(name, "ZONE"), "the time zone of store_date (new table: UTC)"] = None
    with_bodies: Annotated[bool, "keep message bodies in the table"] = False
    allow_gap: Annotated[bool, "continue where retention deleted records that were never loaded"] = False
    repair_from: Annotated[int | None, NUMBER, "replace all rows of this broker from commit-log offset N on"] = None
    dry_run: DryRun = False


@dataclass(frozen=True, kw_only=True)
class ReportOptions(JobOptions):
    """``report``; a page includes the checks."""

    table: Table
    by: Annotated[Grouping, Given(get_args(Grouping)), "what to group by (default: topic)"] = "topic"
    broker: Annotated[str | None, Given(name, "B"), "only this broker"] = None
    topics: Topics = ()
    begin: Annotated[int | None, TIME, "stored at or after this time: milliseconds, or ISO 8601 with its zone"] = None
    end: Annotated[int | None, TIME, "stored at or before this time"] = None
    checks: Annotated[bool, "also check retries, duplicates, transactions, delays, gaps and clocks"] = False
    html: Annotated[str | None, FILE, "write one self-contained page with plots and all checks"] = None
    csv: Annotated[str | None, FILE, "write the 100,000 largest groups as CSV"] = None


def from_arguments(kind: type[Options], arguments: argparse.Namespace) -> Options:
    """Options from parsed arguments; UsageError if a required field is missing."""
    given = vars(arguments)
    missing = [
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING and f.name not in given
    ]
    if missing:
        names = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise UsageError(f"the following arguments are required: {names}")
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})
