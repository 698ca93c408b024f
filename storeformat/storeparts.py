"""Parts of a store that are no function of the log this program computes: named, so that nobody believes they were.

==========================  ==================================================================================
part                        why it is not rebuilt
==========================  ==================================================================================
``consumequeue_ext/``       filter bit maps come from consumers; plain tags codes are written instead
``compaction/``             compaction topics: the broker compacts again by itself
``timerwheel``, ``timerlog``  timer messages on their way; the broker recovers them from its timer topic
``consumequeue/CURRENT``    RocksDB consume queues (``storeType=defaultRocksDB``)
``consumequeue_rocksdb/``   the same, apart
``rocksdbstore/``           5.4.0 and later make it in every store; empty unless RocksDB features are on
``dledger-*/``              DLedger logs are framed otherwise and not read
==========================  ==================================================================================
"""

from __future__ import annotations

from storeformat import files
from storeformat.layout import CONSUME_QUEUE

_PARTS = {
    "consumequeue_ext": "filter bit maps are not in the log; queues carry plain tags codes, which every broker accepts",
    "compaction": "queues of compaction topics are made again by the broker",
    "timerwheel": "timer messages on their way are not in queues or index; the broker recovers them",
    "timerlog": "timer messages on their way are not in queues or index; the broker recovers them",
    "consumequeue_rocksdb": "consume queues in RocksDB are not rebuilt, only those in files",
}


def parts_not_rebuilt(root: str) -> list[dict[str, str]]:
    """Returns ``part`` and ``reason`` for everything in a store root that a rebuild does not make."""
    names = {entry.name: entry for entry in files.list_directory(root) or []}
    found = [{"part": name, "reason": reason} for name, reason in _PARTS.items() if _holds_something(root, name, names)]
    if files.exists(files.join(root, CONSUME_QUEUE, "CURRENT")):
        reason = "consume queues in RocksDB are not rebuilt, only those in files"
        found.append({"part": f"{CONSUME_QUEUE}/CURRENT", "reason": reason})
    found += [
        {"part": name, "reason": "a DLedger log is not read; records in it are in no queue and no index of this output"}
        for name in sorted(names)
        if name.startswith("dledger-")
    ]
    return found


def _holds_something(root: str, name: str, names: dict[str, files.Entry]) -> bool:
    entry = names.get(name)
    if entry is None:
        return False
    return bool(files.list_directory(files.join(root, name))) if entry.is_directory else entry.size != 0
