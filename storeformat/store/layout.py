"""Names of a store's directories and files (FORMAT.md, Files): StorePathConfigHelper, UtilAll#offset2FileName.

A broker keeps consume queues in files ``ROOT/KIND/TOPIC/QUEUE``, KIND one of ``QUEUE_KINDS``, or in RocksDB
(``storeType=defaultRocksDB``, 5.2.0 and later).

``rocksdb_queues`` has the evidence, by MessageStoreConfig#isEnableRocksDBStore, RocksDBConsumeQueueStore and, for
``config/``, RocksDBTopicConfigManager and its kin (5.2.0 to 5.5.0). ``rocksdbstore/`` shows nothing: every broker from
5.4.0 on makes it. With ``rocksdbCQDoubleWriteEnable=true`` queues are in files, and in RocksDB beside them
(CombineConsumeQueueStore, 5.3.x: CommitLogDispatcherBuildRocksdbConsumeQueue).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from storeformat.errors import WrongSettings
from storeformat.javacompat import LONG_MAX
from storeformat.storage import files, locations
from storeformat.store.settings import DOUBLE_WRITE, LIGHT_IN_ROCKSDB, LOADED, SEPARATE, STORE_TYPE, Settings

COMMIT_LOG = "commitlog"
GROUP_PREFIX, DATA = "dledger-", "data"  # with a member's id: of its group, and in it the entries, see ``log.dledger``
BATCH_CONSUME_QUEUE = "batchconsumequeue"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
QUEUE_KINDS = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)  # a rebuild always fills the first
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
BACKUP = "backup"  # of this program: what a swap took out of the store
REPAIRED_LOG = "commitlog-repaired-"  # and a number: of this program, a log that a broker can read past damage
ROCKSDB_QUEUES = "consumequeue_rocksdb"
ROCKSDB_STORE = "rocksdbstore"

QueueStoreKind = Literal["file", "rocksdb"]
_ROCKSDB_TYPE = "defaultrocksdb"
_CONFIGURATIONS = ("topics", "consumerOffsets", "subscriptionGroups")


def file_name(offset: int) -> str:
    return f"{offset:020d}"


def is_file_name(name: str) -> bool:
    """True for the name of a segment or queue file: an offset, which is a long."""
    return len(name) == 20 and name.isascii() and name.isdigit() and name <= file_name(LONG_MAX)


def queue_id_of(name: str) -> int | None:
    """Queue id of a directory's name, None for one that a broker ignores (ConsumeQueueStore#loadConsumeQueues)."""
    return int(name) if name.isascii() and name.isdigit() else None


@dataclass(frozen=True)
class QueueDirectory:
    topic: str
    queue: str  # the directory's name
    path: str

    @property
    def queue_id(self) -> int | None:
        return queue_id_of(self.queue)

    def entries(self) -> list[files.FileStatus]:
        return files.list_directory(self.path) or []

    def files(self) -> list[files.FileStatus]:
        """Queue files, by name."""
        return [entry for entry in self.entries() if is_file_name(entry.name) and not entry.is_directory]


def queue_directories(root: str, kind: str, topics: Collection[str] = ()) -> Iterator[QueueDirectory]:
    """Queue directories of a kind, by topic and name; all topics by default."""
    for topic in files.list_directory(locations.join(root, kind)) or []:
        if topic.is_directory and (not topics or topic.name in topics):
            for name, path in files.directories_in(topic.path):
                yield QueueDirectory(topic.name, name, path)


def holds_pairs(directory: str) -> bool:
    """True if a RocksDB database has a table, or a write log that is not empty."""
    return any(
        entry.name.endswith(".sst") or (entry.name.endswith(".log") and entry.size > 0)
        for entry in files.list_directory(directory) or []
    )


@dataclass(frozen=True)
class QueueStore:
    """Where queues are kept, and what shows it; ``written_twice``: a database beside the files."""

    kind: QueueStoreKind = "file"
    database: str = CONSUME_QUEUE
    evidence: str | None = None
    written_twice: bool = False

    @property
    def in_rocksdb(self) -> bool:
        return self.kind == "rocksdb"


def queue_store(root: str, settings: Settings, kind: QueueStoreKind | None = None) -> QueueStore:
    """Where a store's broker keeps its queues, or would for ``kind``; if written twice, the files count."""
    evidence, twice = rocksdb_queues(root, settings), False
    if kind is None:
        kind = "rocksdb" if evidence else "file"
        if not evidence and settings.flag(DOUBLE_WRITE):
            evidence, both = f"{DOUBLE_WRITE}=true", {"default", _ROCKSDB_TYPE}
            loaded = {part.strip().lower() for part in settings.text(LOADED).split(";")} & both or both
            twice = len(loaded) == 2
            kind = "file" if "default" in loaded else "rocksdb"
    if twice and settings.flag(LIGHT_IN_ROCKSDB):
        raise WrongSettings(
            f"with {LIGHT_IN_ROCKSDB}=true light queues are in RocksDB only: they are neither rebuilt nor checked",
            path=root, advice="--only index,checkpoint does the rest",
        )  # fmt: skip
    apart = settings.flag(SEPARATE)
    if SEPARATE not in settings.given:
        here, there = (files.exists(locations.join(root, name, "CURRENT")) for name in (CONSUME_QUEUE, ROCKSDB_QUEUES))
        apart = there and not here
    return QueueStore(kind, ROCKSDB_QUEUES if apart else CONSUME_QUEUE, evidence, twice)


def rocksdb_queues(root: str, settings: Settings) -> str | None:
    """Evidence that queues are in RocksDB; None if in files. Given settings win over files in the store."""
    if given := settings.text(STORE_TYPE):
        return f"{STORE_TYPE}={given}" if settings.queues_in_rocksdb else None
    if settings.flag(DOUBLE_WRITE):
        return None
    if files.exists(locations.join(root, CONSUME_QUEUE, "CURRENT")):
        return f"{CONSUME_QUEUE}/ is a RocksDB database"
    if files.exists(locations.join(root, ROCKSDB_QUEUES, "CURRENT")) and not any(
        queue.files() for queue in queue_directories(root, CONSUME_QUEUE)
    ):
        return f"{ROCKSDB_QUEUES}/ is a RocksDB database, and {CONSUME_QUEUE}/ has no queue"
    for name in _CONFIGURATIONS:
        if holds_pairs(locations.join(root, "config", name)):
            return f"config/{name}/ is a RocksDB database"
    return None
