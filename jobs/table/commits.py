"""What a load writes into Delta's log, and what keeps two loads from committing the same rows.

==========================  ==========================================================================================
transaction of Delta's      ``rocketmq-store-spark/CLUSTER/BROKER/EPOCH`` -> the commit-log offset where the last load
                            ended. Kept for ever. A repair begins the next epoch, because its end may be lower
loads of some topics        ``rocketmq-store-spark/CLUSTER/BROKER/topics/EPOCH`` -> CRC-32 of their names
loads past damage           ``rocketmq-store-spark/CLUSTER/BROKER/salvaged/EPOCH`` -> where the first damage was
another                     ``rocketmq-store-spark/CLUSTER/BROKER/tail/EPOCH`` -> CRC-32 of the last bytes loaded
files that were added       with the smallest and largest values that Delta skips files by
user metadata of a commit   range, settings and program version, for people: DESCRIBE HISTORY
==========================  ==========================================================================================

delta-rs refuses a commit if one after the version that was read has a transaction of the same name: one of two loads of
a broker passes, and loads of different brokers do not conflict. A repair also records the epoch before, as an append at
the same time does. It passes only directly after the version that was read.

``RESTORE TABLE ... TO VERSION``, and FSCK for lost files, remove rows but keep Delta's transactions; only the history
shows it, read back from the newest commit to the load: ``operation`` is RESTORE or FSCK, ``operationParameters`` has
``version``, or ``timestamp``. A transaction that has expired (``delta.setTransactionRetentionDuration``) is not seen.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from jobs.spark.runner import Runner
from storeformat.errors import StoreFormatError
from storeformat.storage import files, locations
from udfs.log.scan import ScanTask
from udfs.table import schemas
from udfs.table.parquet_files import PARTITION, DraftTask, WriteFiles, WrittenFile
from udfs.table.proven_ranges import ProvenRange
from udfs.table.rows import NO_DOUBT, Doubt

APPLICATION = "rocketmq-store-spark"
_TOPICS, _SALVAGED, _TAIL = "topics", "salvaged", "tail"


@dataclass(frozen=True)
class BrokerState:
    """How far a broker was loaded, by transactions if ``recorded``; ``topics``: ``code_of``; ``tail``: CRC-32 of the
    bytes before ``end``.
    """

    end: int
    epoch: int
    topics: int = 0
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


def recorded_state(transaction: Callable[[str], int | None], cluster: str, broker: str) -> BrokerState | None:
    """How far a broker was loaded according to a table's transactions."""
    prefix, epoch = application_prefix(cluster, broker), 0
    while transaction(f"{prefix}{epoch + 1}") is not None:
        epoch += 1
    if (end := transaction(f"{prefix}{epoch}")) is None:
        return None
    topics, salvaged, tail = (transaction(f"{prefix}{kind}/{epoch}") for kind in (_TOPICS, _SALVAGED, _TAIL))
    return BrokerState(end, epoch, topics or 0, salvaged_from=salvaged, tail=tail)


def code_of(topics: Sequence[str]) -> int:
    """What a transaction records of the topics of a load; 0 for all."""
    return zlib.crc32("\n".join(topics).encode()) if topics else 0


def obstacle(properties: Mapping[str, str], schema: str, partition_columns: Sequence[str]) -> str | None:
    """Property or column of a table that plain files of rows would violate; ``schema`` is Delta's JSON."""
    for name, value in properties.items():
        if name.startswith("delta.constraints."):
            return f"the constraint {name.rpartition('.')[2]}"
        if name == "delta.columnMapping.mode" and value != "none":
            return "column mapping"
    if tuple(partition_columns) != schemas.PARTITION_COLUMNS:
        return f"other partitions than store_date ({', '.join(partition_columns) or 'none'})"
    for field in json.loads(schema)["fields"]:
        if special := field["metadata"].keys() - {"comment"}:
            return f"{min(special)} of column {field['name']}"
        if not field["nullable"]:
            return f"NOT NULL of column {field['name']}"
    return None


def recorded_by(what: BrokerRows, topics: Sequence[str], transaction: Callable[[str], int | None]) -> dict[str, int]:
    """The transactions of a load; ``transaction`` gives the previous ones."""
    prefix = application_prefix(what.cluster, what.broker)
    found = {f"{prefix}{what.epoch}": what.done}
    if what.epoch:
        before = f"{prefix}{what.epoch - 1}"
        found[before] = transaction(before) or 0
    if topics:
        found[f"{prefix}{_TOPICS}/{what.epoch}"] = code_of(topics)
    if what.tail is not None:
        found[f"{prefix}{_TAIL}/{what.epoch}"] = what.tail
    if what.salvaged_from is not None:
        name = f"{prefix}{_SALVAGED}/{what.epoch}"
        first = transaction(name)
        found[name] = what.salvaged_from if first is None else min(what.salvaged_from, first)
    return found


def application_prefix(cluster: str, broker: str) -> str:
    """Prefix of the names of a broker's transactions."""
    return f"{APPLICATION}/{quote(cluster, safe='')}/{quote(broker, safe='')}/"


_TAKING = ("RESTORE", "FSCK")
"""Operations that remove rows and keep transactions."""


def loads_of(commit: Mapping[str, Any], cluster: str, broker: str) -> dict[str, Any] | None:
    """What a commit of the history says of the load of a broker that it is, if it is one."""
    with suppress(ValueError, TypeError, KeyError):  # of another program
        found = json.loads(commit.get("userMetadata") or "null")
        if found and (found["program"], found["cluster"], found["broker"]) == (APPLICATION, cluster, broker):
            return dict(found)
    return None


def taken_away(history: Iterable[Mapping[str, Any]], cluster: str, broker: str, end: int) -> tuple[int, str] | None:
    """Version and operation of the RESTORE or FSCK that removed the rows of the load of a broker up to ``end``; if the
    ``history``, newest first, no longer has it, a RESTORE may have gone back before it.
    """
    taken: dict[int, tuple[int, str]] = {}
    newest = version = -1
    for commit in history:
        version = int(commit["version"])
        newest = max(newest, version)
        if (load := loads_of(commit, cluster, broker)) and load.get("to_offset") == end:
            break
        if (operation := commit.get("operation")) in _TAKING:
            target = (commit.get("operationParameters") or {}).get("version")
            # Of a time it is not known which version that was; FSCK takes single files.
            taken[version] = -1 if target is None or operation != "RESTORE" else int(target), operation
    content = newest
    while content > version:  # the rows of a RESTORE are those of its target
        content = taken[content][0] if content in taken else content - 1
    newest = max(taken, default=-1)
    return (newest, taken[newest][1]) if content < version else None


Item = TypeVar("Item")
Row = TypeVar("Row")


class Drafts(Runner):
    """The drafts of one load, and a runner whose scans write them."""

    def __init__(self, runner: Runner, write: WriteFiles) -> None:
        super().__init__()
        self._runner = runner
        self._write = write
        self._files: dict[tuple[int, ...], Sequence[WrittenFile]] = {}

    def map(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        """Run a task; a scan of splits also writes their rows."""
        if not isinstance(task, ScanTask):
            return self._runner.map(what, task, items)
        splits: Any = items
        drafted = self._runner.map(what, DraftTask(task, self._write), splits)
        scans: list[Any] = []
        for scan, written in drafted:
            scans.append(scan)
            place = _place(ProvenRange.of(scan.report, scan.records))
            remove_files(self._write.table, self._files.pop(place, ()))
            self._files[place] = written
        return scans

    def take(
        self, ranges: Sequence[ProvenRange], from_offset: int, doubt: Doubt = NO_DOUBT
    ) -> tuple[list[WrittenFile], tuple[ProvenRange, ...]]:
        """Usable files of proven ranges, and the ranges without one; all other drafts are removed."""
        held: list[WrittenFile] = []
        missing = []
        for proven in ranges:
            doubtful = doubt.meets(proven.split.start, proven.split.stop)
            usable = from_offset == self._write.read.from_offset and not doubtful
            found = self._files.pop(_place(proven), None) if usable else None
            if found is None:
                missing.append(proven)
            else:
                held += found
        self.discard()
        return held, tuple(missing)

    def discard(self) -> None:
        for found in self._files.values():
            remove_files(self._write.table, found)
        self._files = {}


def remove_files(table: str, written: Iterable[WrittenFile]) -> None:
    """Remove files that are in no version of the table."""
    for file in written:
        with suppress(StoreFormatError):  # what stays is harmless, VACUUM removes it; why the load ended says more
            files.remove_object(locations.join(table, file.path))


def remove_files_of(run: str, table: str) -> None:
    """Remove all files of a run, also those of killed tasks, from a local table; no version may have them."""
    if locations.is_local(table):
        for path in Path(locations.local_path(table)).glob(f"{PARTITION}=*/part-*-{run}-*"):
            with suppress(OSError):
                path.unlink()


def _place(proven: ProvenRange) -> tuple[int, ...]:
    return proven.split.segment.base, proven.split.start, proven.split.stop, proven.records
