"""The layout of a store: directories, and file name <-> offset (StorePathConfigHelper, UtilAll#offset2FileName).

==========================  ==========================================================================
directory or file           holds
==========================  ==========================================================================
commitlog/                  segments, 20-digit names
dledger-ID/data/            segments of a DLedger group's log, after those of commitlog/ if there are any
consumequeue/TOPIC/QUEUE/   20-byte units, 20-digit names; alike batchconsumequeue/ and consumequeue_ext/
index/                      index files, 17-digit names
checkpoint, abort, lock     one page of stamps; unclean exit; held by a live broker
backup/                     of this program: what a swap took out of the store
==========================  ==========================================================================
"""

from __future__ import annotations

from storeformat.javacompat import LONG_MAX

COMMIT_LOG = "commitlog"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
QUEUE_KINDS = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)
"""Directories of queues in files: a rebuild always fills the first, the others where the store has them."""
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
BACKUP = "backup"
ROCKSDB_QUEUES = "consumequeue_rocksdb"
ROCKSDB_STORE = "rocksdbstore"


def file_name(offset: int) -> str:
    """The 20-digit name of the file that begins at ``offset`` (UtilAll#offset2FileName)."""
    return f"{offset:020d}"


def is_file_name(name: str) -> bool:
    """True for the name of a segment or queue file: an offset, which is a long."""
    return len(name) == 20 and name.isascii() and name.isdigit() and name <= file_name(LONG_MAX)
