"""What a load writes into Delta's log, and what keeps two loads from committing the same rows.

==========================  ==========================================================================================
transaction of Delta's      ``rocketmq-store-spark/CLUSTER/BROKER/EPOCH`` -> the commit-log offset where the last load
                            ended. Kept for ever. A repair begins the next epoch, because its end may be lower
loads of some topics        ``rocketmq-store-spark/CLUSTER/BROKER/EPOCH/TOPIC,TOPIC:QUEUE`` -> the same offset
loads past damage           ``rocketmq-store-spark/CLUSTER/BROKER/salvaged/EPOCH`` -> where the first damage was
another                     ``rocketmq-store-spark/CLUSTER/BROKER/tail/EPOCH`` -> CRC-32 of the last bytes loaded
files that were added       with the smallest and largest values that Delta skips files by
user metadata of a commit   range, settings and program version, for people: DESCRIBE HISTORY
==========================  ==========================================================================================

An append checks its broker's transactions of this epoch and the next, and fails if another commit has written one
since. delta-rs commits only directly after the version that was read. So one of two loads of a broker passes; loads of
different brokers do not conflict.

``RESTORE TABLE ... TO VERSION``, and FSCK for lost files, remove rows but keep Delta's transactions; only the history
shows it, read back from the newest commit to the load.

==========================  ==========================================================================================
``_delta_log/N.json``       one action a line; N has 20 digits. Old ones go after ``delta.logRetentionDuration``
``{"txn": ...}``            ``appId`` and ``version``: what a load records
``{"commitInfo": ...}``     ``operation`` is RESTORE or FSCK; ``operationParameters`` has ``version``, or ``timestamp``
==========================  ==========================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

from storeformat.errors import MissingInput, NotAStore
from storeformat.limits import READ_WHOLE
from storeformat.storage import files, locations
from udfs.table import schemas

APPLICATION = "rocketmq-store-spark"
_SALVAGED, _TAIL = "salvaged", "tail"
_MOST_PARTS = 10_000
"""More than a checkpoint has: each part takes up to a million files."""
_READ = re.compile(r"_last_checkpoint|\d{20}\..*(?:json|parquet|crc)")
"""Names in Delta's log that delta-rs opens."""
_ACTIONS = re.compile(r"\d{20}\.(?:checkpoint\..*)?json")
"""Those with one action a line."""
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.[\w.-]+)?\.(?:parquet|json)")


@dataclass(frozen=True)
class BrokerState:
    """How far a broker was loaded, by transactions if ``recorded``; ``tail``: CRC-32 of the bytes before ``end``."""

    end: int
    epoch: int
    topics: tuple[str, ...] = ()
    recorded: bool = True
    salvaged_from: int | None = None
    tail: int | None = None


@dataclass(frozen=True)
class BrokerRows:
    """Rows of a broker from ``begin`` on; the log ended at ``done``; ``metadata`` goes into the history."""

    cluster: str
    broker: str
    begin: int
    done: int
    epoch: int
    metadata: Mapping[str, Any]
    salvaged_from: int | None = None
    tail: int | None = None


@dataclass(frozen=True)
class Commit:
    """A version of the table, its new rows, and whether delayed messages may be among them."""

    version: int
    rows: int
    delayed: bool = True


class Overtaken(Exception):
    """Another load of the same broker was committed first."""


def recorded_state(transactions: Mapping[str, int], cluster: str, broker: str) -> BrokerState | None:
    """How far a broker was loaded according to a table's transactions."""
    prefix = application_prefix(cluster, broker)
    ends: dict[int, int] = {}
    topics: dict[int, tuple[str, ...]] = {}
    for name, version in transactions.items():
        epoch, _, selection = name.removeprefix(prefix).partition("/")
        if not (name.startswith(prefix) and epoch.isdigit()):
            continue
        if selection:
            topics[int(epoch)] = tuple(unquote(topic) for topic in selection.split(","))
        else:
            ends[int(epoch)] = version
    if not ends:
        return None
    epoch_now = max(ends)
    salvaged = transactions.get(f"{prefix}{_SALVAGED}/{epoch_now}")
    tail = transactions.get(f"{prefix}{_TAIL}/{epoch_now}")
    return BrokerState(ends[epoch_now], epoch_now, topics.get(epoch_now, ()), salvaged_from=salvaged, tail=tail)


def obstacle(metadata: Mapping[str, Any]) -> str | None:
    """Property or column of a table's ``metadata`` that plain files of rows would violate."""
    for name, value in metadata["configuration"].items():
        if name.startswith("delta.constraints."):
            return f"the constraint {name.rpartition('.')[2]}"
        if name == "delta.columnMapping.mode" and value != "none":
            return "column mapping"
    if metadata["partitionColumns"] != list(schemas.PARTITION_COLUMNS):
        return f"other partitions than store_date ({', '.join(metadata['partitionColumns']) or 'none'})"
    for field in json.loads(metadata["schemaString"])["fields"]:
        if special := field["metadata"].keys() - {"comment"}:
            return f"{min(special)} of column {field['name']}"
        if not field["nullable"]:
            return f"NOT NULL of column {field['name']}"
    return None


def recorded_by(what: BrokerRows, topics: Sequence[str], transactions: Mapping[str, int]) -> dict[str, int]:
    """The transactions of a load; ``transactions`` are the previous ones."""
    prefix = application_prefix(what.cluster, what.broker)
    found = {f"{prefix}{what.epoch}": what.done}
    if topics:
        found[f"{prefix}{what.epoch}/{','.join(quote(topic, safe='') for topic in topics)}"] = what.done
    if what.tail is not None:
        found[f"{prefix}{_TAIL}/{what.epoch}"] = what.tail
    if what.salvaged_from is not None:
        name = f"{prefix}{_SALVAGED}/{what.epoch}"
        found[name] = min(what.salvaged_from, transactions.get(name, what.salvaged_from))
    return found


def refuse_overtaken(transactions: Mapping[str, int], what: BrokerRows, seen: BrokerState | None) -> None:
    """Raise Overtaken if the broker's transactions changed since ``seen``, or a repair began the next epoch."""
    prefix = application_prefix(what.cluster, what.broker)
    epoch, end = (seen.epoch, seen.end) if seen and seen.recorded else (what.epoch, None)
    if transactions.get(f"{prefix}{epoch}") != end or f"{prefix}{epoch + 1}" in transactions:
        raise Overtaken(f"{what.cluster}/{what.broker} was loaded meanwhile")


def application_prefix(cluster: str, broker: str) -> str:
    """Prefix of the names of a broker's transactions."""
    return f"{APPLICATION}/{quote(cluster, safe='')}/{quote(broker, safe='')}/"


Actions = Sequence[Mapping[str, Any]]
_TAKING = ("RESTORE", "FSCK")
"""Operations that remove rows and keep transactions."""


def refuse_irregular_log(table: str) -> None:
    """Refuse what delta-rs waits for (pipes), reads whole (huge files), or dies of (deep JSON, bad sizes)."""
    log = locations.join(table, "_delta_log")
    if not locations.is_local(table) or (entries := files.list_directory(log)) is None:
        return
    sidecars = files.list_directory(locations.join(log, "_sidecars")) or []
    for entry in [*filter(lambda one: one.leads_nowhere or _READ.fullmatch(one.name), entries), *sidecars]:
        if entry.size < 0:
            raise NotAStore("this is not a regular file", path=entry.path)
        if entry.size > READ_WHOLE and not entry.name.endswith(".parquet"):
            raise NotAStore("too large", path=entry.path, found=entry.size, expected=f"at most {READ_WHOLE} bytes")
    checkpoint = newest_checkpoint(table, 1 << 62)
    first = f"{checkpoint[0] if checkpoint else 0:020d}"
    for entry in entries:
        if entry.name >= first and _ACTIONS.fullmatch(entry.name):
            _actions_in(table, files.read_bytes(entry.path))


def commits_back_from(table: str, newest: int) -> Iterator[tuple[int, Actions]]:
    """Version and actions of a table's commits, newest first, as far as Delta's log has them."""
    for version in range(newest, -1, -1):
        try:
            content = files.read_bytes(locations.join(table, "_delta_log", f"{version:020d}.json"))
        except MissingInput:
            return
        yield version, _actions_in(table, content)


def _actions_in(table: str, content: bytes) -> Actions:
    with understanding(table):
        actions = [dict(json.loads(line)) for line in content.splitlines() if line.strip()]
        for added in (action["add"] for action in actions if "add" in action):
            json.loads(added.get("stats") or "{}")
            if added["size"] < 0:
                raise ValueError("a size below zero")
    return actions


NOT_DELTAS = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors from a log that Delta did not write."""


@contextmanager
def understanding(table: str) -> Iterator[None]:
    """Turn errors from a malformed log into MissingInput."""
    try:
        yield
    except NOT_DELTAS as error:
        what = f"the table cannot be read: its log is not as Delta writes one ({type(error).__name__})"
        raise MissingInput(what, path=locations.join(table, "_delta_log")) from error


def newest_checkpoint(table: str, newest: int) -> tuple[int, list[str]] | None:
    """Version and files of the newest checkpoint up to a version."""
    log = locations.join(table, "_delta_log")
    try:
        last = json.loads(files.read_bytes(locations.join(log, "_last_checkpoint")))
        version, parts = int(last["version"]), last.get("parts")
        name = f"{version:020d}.checkpoint"
        if "v2Checkpoint" in last:
            names = [locations.name_of(last["v2Checkpoint"]["path"])]
        elif parts is None:
            names = [f"{name}.parquet"]
        else:
            names = [f"{name}.{part:010d}.{parts:010d}.parquet" for part in range(1, min(parts, _MOST_PARTS) + 1)]
        paths = [locations.join(log, name) for name in names]
        if version <= newest and len(names) < _MOST_PARTS and all(files.exists(path) for path in paths):
            return version, paths
    except (MissingInput, *NOT_DELTAS):
        pass  # it is only the shortest way to them, and another load may have come in between
    there = [(match[1], entry.path) for entry in files.list_directory(log) or ()
             if (match := _CHECKPOINT.fullmatch(entry.name)) and int(match[1]) <= newest]  # fmt: skip
    latest = max((version for version, _ in there), default=None)
    return None if latest is None else (int(latest), [path for version, path in there if version == latest])


def transactions_of(table: str, newest: int) -> dict[str, int]:
    """Newest version of each application's transactions; MissingInput if the log lacks commits."""
    found: dict[str, int] = {}
    checkpoint = newest_checkpoint(table, newest)
    reached, first = newest + 1, checkpoint[0] + 1 if checkpoint else 0
    for version, actions in commits_back_from(table, newest):
        if version < first:
            break
        reached = version
        with understanding(table):
            for action in actions:
                if "txn" in action:
                    found.setdefault(action["txn"]["appId"], int(action["txn"]["version"]))
    if reached > first:
        raise MissingInput("the table's log lacks versions, and no checkpoint has them", path=table)
    for name in checkpoint[1] if checkpoint else ():
        with files.reading(name), understanding(table):
            for row in _transactions_in(table, name):
                found.setdefault(row["appId"], int(row["version"]))
    return found


def is_whole(table: str, newest: int) -> bool:
    """True if Delta's log has every version since the first one or the newest checkpoint."""
    checkpoint = newest_checkpoint(table, newest)
    there = {entry.name for entry in files.list_directory(locations.join(table, "_delta_log")) or ()}
    return all(f"{version:020d}.json" in there for version in range(checkpoint[0] + 1 if checkpoint else 0, newest + 1))


def _transactions_in(table: str, checkpoint: str) -> Iterator[Mapping[str, Any]]:
    if checkpoint.endswith(".json"):
        yield from (action["txn"] for action in _actions_in(table, files.read_bytes(checkpoint)) if "txn" in action)
        return
    filesystem, inner = files.resolve(checkpoint)
    if "txn" in pq.read_schema(inner, filesystem=filesystem).names:
        rows = pq.read_table(inner, columns=["txn"], filesystem=filesystem)["txn"].drop_null().to_pylist()
        yield from (row for row in rows if row["appId"] is not None)


def taken_away(commits: Iterable[tuple[int, Actions]], transaction: str, end: int) -> tuple[int, str] | None:
    """Version and operation of the RESTORE or FSCK that removed the rows of the commit with ``end`` for
    ``transaction``; if the log no longer has it, a RESTORE may have gone back before it. Raises ``NOT_DELTAS``.
    """
    taken: dict[int, tuple[int, str]] = {}
    newest = version = -1
    for version, actions in commits:
        newest = max(newest, version)
        if (transaction, end) in [(txn["appId"], txn["version"]) for action in actions if (txn := action.get("txn"))]:
            break
        for action in actions:
            information = action.get("commitInfo", {})
            if (operation := information.get("operation")) in _TAKING:
                target = information.get("operationParameters", {}).get("version")
                # Of a time it is not known which version that was; FSCK takes single files.
                taken[version] = -1 if target is None or operation != "RESTORE" else int(target), operation
                if taken[version][0] >= version:
                    raise ValueError("a version that was restored before it was there")
    content = newest
    while content > version:  # the rows of a RESTORE are those of its target
        content = taken[content][0] if content in taken else content - 1
    newest = max(taken, default=-1)
    return (newest, taken[newest][1]) if content < version else None
