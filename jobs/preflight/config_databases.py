"""Rules on topics, groups and offsets that a broker keeps in databases below ``config/``.

==================================  ===================================================================================
settings                            databases
==================================  ===================================================================================
``storeType=defaultRocksDB``        ``topics/``, ``subscriptionGroups/``, ``consumerOffsets/`` (5.2.0 and later)
``useSingleRocksDBForAllConfigs``   ``metadata/``, which takes those three in (5.4.0 and later)
``configManagerVersion=v2``         ``rdb/``, whatever the storeType (5.3.2 and later)
==================================  ===================================================================================

Beside the first three, a file of ``config/`` counts whose data version is above that of its database: from 5.3.2 on the
start takes it in, in place of what the database had.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.contract.commands import quoted
from jobs.preflight.configuration import WITHOUT
from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.storage import files, locations, rocksdb
from storeformat.store.config.config_files import FileState

_FILES = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
_SINGLE, _V2 = "metadata", "rdb"


_OPENED = ("kvStore", "rocksdbstore", "config/users", "config/acls")
"""Databases of every broker whose settings make one: POP, index and timers, users and their rights. Those of queues and
of the configuration are opened with ``storeType=defaultRocksDB`` alone.
"""


def databases_not_opened(store: StoppedStore) -> Iterator[Reason]:
    """Databases of RocksDB whose CURRENT does not name a MANIFEST that is there: the broker does not start."""
    of_config = [f"config/{name}" for name in store.rocksdb.made] if store.config_in_databases else []
    for name in (*_OPENED, *of_config):
        path = store.place(name)
        current = locations.join(path, rocksdb.CURRENT)
        if files.size_of(current) is None:
            continue
        named = files.read_bytes(current, 4096).decode("utf-8", "replace")
        if not (named.endswith("\n") and files.size_of(locations.join(path, named.strip()))):
            yield Reason(
                "database_not_opened",
                f"{current} does not name a MANIFEST that is there: the broker cannot open this database, and does not "
                "start",
                found=named.strip(),
                expected="MANIFEST-...",
                cure=f"{store.set_aside(path)}: what it held is lost; or put a sound copy of it in place",
            )


def config_databases_lost(store: StoppedStore) -> Iterator[Reason]:
    """Yields databases of the configuration that are not there, beside a log: the broker makes empty ones.

    Mirrors BrokerController#initializeMetadata, RocksDBTopicConfigManager#load, RocksDBSubscriptionGroupManager#load,
    RocksDBConsumerOffsetManager#load and their ``merge`` (5.2.0 to 5.5.0), TopicConfigManagerV2#load (5.3.2 to 5.5.0).
    """
    if not store.config_in_databases or not store.log.segments:
        return
    there = store.rocksdb.made
    if store.conf.text("configManagerVersion", "") == "v2":
        if _V2 not in there:
            yield _lost(store, _V2, "the broker starts without topics, groups and offsets, and reads no JSON")
        return
    if _SINGLE in there and store.conf.flag("useSingleRocksDBForAllConfigs", default=False):
        return
    sound = {name for name, file in store.configs.items() if file.main.content is FileState.SOUND}
    for name, file in _FILES.items():
        if name in there:
            continue
        if store.rules.restores_databases and file in sound:
            yield Reason(
                "config_from_json",
                f"config/{name} is not there: the broker takes {file} in its place",
                found="no database",
                unsafe=False,
            )
        else:
            yield _lost(store, name, WITHOUT[file])


def _lost(store: StoppedStore, name: str, then: str) -> Reason:
    cure = f"put {quoted(store.place('config', name))} back, or a replica's"
    if name == "consumerOffsets":
        cure += "; rebuild --only consumer-offsets makes a file that 5.3.2 and later take in"
    return Reason(
        "config_lost",
        f"config/{name} is not there: {then}",
        found="no database",
        expected=f"config/{name}/CURRENT",
        cure=cure,
    )


def config_json_torn(store: StoppedStore) -> Iterator[Reason]:
    """Yields files that are torn beside their databases: the start reads their data version, and ends there.

    Mirrors ``merge`` of RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager and RocksDBConsumerOffsetManager
    with #loadDataVersion, which looks at no ``.bak`` (5.3.2 to 5.5.0).
    """
    if not store.queues_in_rocksdb or store.conf.text("configManagerVersion", "") == "v2":
        return
    for name, file in store.configs.items():
        if name in _FILES.values() and file.main.content is FileState.TORN:
            path = file.main.path
            yield Reason(
                "config_torn",
                f"{path} is torn: the broker reads its data version beside that of the database, and does not start",
                found="torn",
                expected="JSON, or no file",
                cure=store.set_aside(path),
            )
