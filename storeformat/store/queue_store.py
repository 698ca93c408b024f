"""Where a broker keeps its consume queues: in files, or in RocksDB (``storeType=defaultRocksDB``, 5.2.0 and later).

===========================================  ==========================================================================
what is there                                what it shows
===========================================  ==========================================================================
``storeType`` in the settings                the answer (MessageStoreConfig#isEnableRocksDBStore)
``rocksdbCQDoubleWriteEnable=true``          queues in files, and in RocksDB beside them (CombineConsumeQueueStore)
``consumequeue/CURRENT``                     RocksDB (RocksDBConsumeQueueStore)
``consumequeue_rocksdb/CURRENT``             RocksDB, if there are no queues in files beside (5.5.0)
``config/topics/``, ``consumerOffsets/``,    RocksDB: brokers with this ``storeType`` keep their configuration there,
``subscriptionGroups/`` with tables          too (RocksDBTopicConfigManager and its kin, 5.2.0 to 5.5.0)
``rocksdbstore/``                            nothing: every broker from 5.4.0 on makes it
===========================================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

from storeformat.storage import files, locations
from storeformat.store.layout import CONSUME_QUEUE, ROCKSDB_QUEUES
from storeformat.store.not_rebuilt import holds_pairs
from storeformat.store.queue_directories import queue_directories

STORE_TYPE = "storeType"
DOUBLE_WRITE = "rocksdbCQDoubleWriteEnable"
QUEUE_STORE_SETTINGS = (STORE_TYPE, DOUBLE_WRITE)
_ROCKSDB_TYPE = "defaultrocksdb"
_CONFIGURATIONS = ("topics", "consumerOffsets", "subscriptionGroups")


def rocksdb_queues(root: str, settings: Mapping[str, str]) -> str | None:
    """Returns what shows that a store's consume queues are in RocksDB; None where they are in files.

    ``settings`` are those that were told, under their broker.conf names; they count before what lies in the store.
    """
    told = settings.get(STORE_TYPE, "").strip()
    if told:
        return f"{STORE_TYPE}={told}" if told.lower() == _ROCKSDB_TYPE else None
    if settings.get(DOUBLE_WRITE, "").strip().lower() == "true":
        return None
    if files.exists(locations.join(root, CONSUME_QUEUE, "CURRENT")):
        return f"{CONSUME_QUEUE}/ is a RocksDB database"
    if files.exists(locations.join(root, ROCKSDB_QUEUES, "CURRENT")) and not _has_queue_files(root):
        return f"{ROCKSDB_QUEUES}/ is a RocksDB database, and {CONSUME_QUEUE}/ has no queue"
    for name in _CONFIGURATIONS:
        if holds_pairs(locations.join(root, "config", name)):
            return f"config/{name}/ is a RocksDB database"
    return None


def _has_queue_files(root: str) -> bool:
    return any(queue.files() for queue in queue_directories(root, CONSUME_QUEUE))
