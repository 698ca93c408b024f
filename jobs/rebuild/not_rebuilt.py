"""Parts of a store that a rebuild does not make, for the report.

==================================================  ==================================================================
in the store root                                   who writes it
==================================================  ==================================================================
``compaction/``                                     CompactionStore (5.1.0)
``timerwheel``, ``timerwheel.<pos>``, ``timerlog/``  TimerMessageStore (5.0.0; with snapshots 5.4.0)
``kvStore/``                                        PopConsumerService (5.3.2)
``consumequeue/CURRENT``, ``consumequeue_rocksdb/``  RocksDBConsumeQueueStore (5.2.0; a path of its own 5.5.0)
``rocksdbstore/``                                   MessageRocksDBStorage (5.4.0), empty in most stores
``config/{topics,metadata,rdb}/``                   RocksDBTopicConfigManager (5.2.0), ConfigStorage (5.3.2)
``epochFileCheckpoint``, ``brokerIdentity``         AutoSwitchHAService, ReplicasManager (5.0.0), each with a backup
``dledger-<id>/``, ``commitlog/`` that was not read  this or another member of a group, an older log
==================================================  ==================================================================

Other names in the root are reported as unknown, except dot files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from storeformat.log.dledger import DATA, GROUP_PREFIX
from storeformat.log.segments import Segment
from storeformat.queues.consume_queue_ext import UNIT_HEAD
from storeformat.storage import files, locations
from storeformat.store.layout import (
    ABORT,
    BACKUP,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    ROCKSDB_QUEUES,
    ROCKSDB_STORE,
)
from storeformat.store.queue_places import holds_pairs, queue_directories
from storeformat.store.segment_files import group_directories

_PLAIN_EXT = "queues carry plain tags codes, which every broker accepts; --set enableConsumeQueueExt=true writes it"
_BIT_MAPS = "written, but without the filters' bit maps, which come from consumers and not from the log"
_TIMERS = "which timer messages wait is in no queue or index; --only timers makes a timer log of them"
_ROCKSDB_QUEUES = "consume queues in RocksDB are not made here, only those in files; --queue-store rocksdb makes them"
_DLEDGER = "this DLedger log was not read; records in it are in no queue and no index of this output"
_CONFIGURED = "topics are configured in RocksDB, which is not read: --batch-topic says which are of type BatchCQ"
_OTHER_LOG = "these segments were not read: the log was read from elsewhere"
_HISTORY = "who led the group of this broker, and until where: no log shows it, it is left as it is"
_UNKNOWN = "unknown to this program: neither read nor made"
_PARTS = {
    "compaction": "queues of compaction topics are made again by the broker",
    "timerwheel": _TIMERS,
    "timerlog": _TIMERS,
    "kvStore": "what POP consumers hold and have not acknowledged is known to the broker alone",
    ROCKSDB_QUEUES: _ROCKSDB_QUEUES,
    ROCKSDB_STORE: "an index, half messages or timers in RocksDB are not rebuilt, only index files",
    "epochFileCheckpoint": _HISTORY,
    "brokerIdentity": _HISTORY,
}
_CONFIGURATIONS = ("topics", "metadata", "rdb")
_KNOWN = {
    COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CHECKPOINT, ABORT, f"{ABORT}.bak",
    LOCK, "config", BACKUP, "lost+found", "epochFileCheckpoint.bak", "brokerIdentity.bak", *_PARTS,
}  # fmt: skip
_KNOWN_PREFIXES = (GROUP_PREFIX, "timerwheel.")
_ROCKSDB = (ROCKSDB_QUEUES, ROCKSDB_STORE, "kvStore")
_EXT_FILES_TO_ASK = 64


def parts_not_rebuilt(
    root: str, segments: Sequence[Segment] = (), *, extended: bool = False, in_rocksdb: bool = False
) -> list[dict[str, str]]:
    """``part`` and ``reason`` of everything in a store root that a rebuild does not make. ``extended``: it makes
    consumequeue_ext, without bit maps. ``in_rocksdb``: it makes the database of queues.
    """
    names = {entry.name: entry for entry in files.list_directory(root) or []}
    read = {locations.parent_of(segment.path) for segment in segments}
    found = []
    if _holds_something(names.get(CONSUME_QUEUE_EXT)) and (not extended or _has_bit_maps(root)):
        found.append({"part": CONSUME_QUEUE_EXT, "reason": _BIT_MAPS if extended else _PLAIN_EXT})
    for name, reason in _PARTS.items():
        if in_rocksdb and name == ROCKSDB_QUEUES:
            continue
        if holds_pairs(locations.join(root, name)) if name in _ROCKSDB else _holds_something(names.get(name)):
            found.append({"part": name, "reason": reason})
    found += [{"part": name, "reason": _TIMERS} for name in sorted(names) if name.startswith("timerwheel.")]
    if not in_rocksdb and files.exists(locations.join(root, CONSUME_QUEUE, "CURRENT")):
        found.append({"part": f"{CONSUME_QUEUE}/CURRENT", "reason": _ROCKSDB_QUEUES})
    for name in _CONFIGURATIONS:
        if holds_pairs(locations.join(root, "config", name)):
            found.append({"part": f"config/{name}", "reason": _CONFIGURED})
    for group in group_directories(root):
        data = locations.join(group, DATA)
        if files.list_directory(data) and data not in read:
            found.append({"part": locations.name_of(group), "reason": _DLEDGER})
    commit_log = locations.join(root, COMMIT_LOG)
    if read and commit_log not in read and files.list_directory(commit_log):
        found.append({"part": COMMIT_LOG, "reason": _OTHER_LOG})
    unknown = (name for name in sorted(names) if name not in _KNOWN and not name.startswith((".", *_KNOWN_PREFIXES)))
    found += [{"part": name, "reason": _UNKNOWN} for name in unknown if names[name].path not in read]
    return found


def _holds_something(entry: files.FileStatus | None) -> bool:
    if entry is None:
        return False
    return bool(files.list_directory(entry.path)) if entry.is_directory else entry.size != 0


def _has_bit_maps(root: str) -> bool:
    """Checks the first units of some ext files."""
    first_files = (entry for queue in queue_directories(root, CONSUME_QUEUE_EXT) for entry in queue.entries()[:1])
    asked = islice((entry for entry in first_files if entry.size >= UNIT_HEAD.itemsize), _EXT_FILES_TO_ASK)
    heads = (np.frombuffer(files.read_range(entry.path, 0, UNIT_HEAD.itemsize), UNIT_HEAD) for entry in asked)
    return any(head["bit_map_size"][0] > 0 for head in heads)
