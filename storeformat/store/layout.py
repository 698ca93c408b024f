"""Names of a store's directories and files (FORMAT.md, Files): StorePathConfigHelper, UtilAll#offset2FileName."""

from __future__ import annotations

from storeformat.javacompat import LONG_MAX

COMMIT_LOG = "commitlog"
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


def file_name(offset: int) -> str:
    return f"{offset:020d}"


def is_file_name(name: str) -> bool:
    """True for the name of a segment or queue file: an offset, which is a long."""
    return len(name) == 20 and name.isascii() and name.isdigit() and name <= file_name(LONG_MAX)
