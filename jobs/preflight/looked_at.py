"""What an answer rests on: the parts of a store that were looked at, and those that were not."""

from __future__ import annotations

from jobs.preflight.stopped_store import StoppedStore
from storeformat.store.setting_names import NOT_JUDGED


def looked_at(store: StoppedStore) -> list[str]:
    """Returns what the rules looked at."""
    conf, in_databases = store.conf, store.config_in_databases
    queues = "how far the queues in RocksDB are" if store.queues_in_rocksdb else f"{len(store.queues)} queues"
    return [
        f"the log from offset {store.tail.begin} to {store.tail.end}",
        queues,
        "that the databases of config/ are there" if in_databases else "topics, groups and committed offsets",
        *([] if store.queues_in_rocksdb else ["delay levels and timers"]),
        "lengths and owners of files, and free space",
        *(["broker.conf"] if conf.from_file else []),
        f"what a broker does that has the rules of {store.rules.version} ({store.release_reason})",
    ]


def not_looked_at(store: StoppedStore) -> list[str]:
    """Returns what no rule looked at, and may matter."""
    conf, tail, root = store.conf, store.tail, store.conf.given.get("storePathRootDir")
    return [
        *([f"the log before offset {tail.begin}, and its queues there"] if tail.begin > store.log.begin else []),
        *(["units of queues in RocksDB, delay levels and timers"] if store.queues_in_rocksdb else []),
        *(["topics, groups and committed offsets in databases"] if store.config_in_databases else []),
        "entries of the index",
        "what consumers of POP hold",
        *([] if conf.from_file else ["broker.conf, which was not given"]),
        *(["~/store, which a broker takes without storePathRootDir"] if conf.from_file and not root else []),
        *([f"settings: {', '.join(sorted(settings))}"] if (settings := NOT_JUDGED & conf.given.keys()) else []),
    ]
