"""A store as every command takes it: location, broker.conf, and release rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from storeformat.errors import MissingInput
from storeformat.record.light_queues import MultiDispatchRules
from storeformat.storage import broker_lock, files, locations
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import (
    DEFAULT,
    DIFFERS,
    NEWEST,
    NOTHING_SHOWN,
    BrokerRules,
    guess_version,
    release_numbers,
    rules_of,
)
from storeformat.store.config.config_files import CONSUMER_OFFSETS, DECODERS, LMQ_OFFSETS, ConfigFile, read_config
from storeformat.store.config.topic_config import compacted_topics
from storeformat.store.layout import LOCK
from storeformat.store.setting_names import is_known
from storeformat.store.store_signs import release_signs


@dataclass(frozen=True)
class Store:
    """A store below ``root``; ``suggests``: other rules that its files show. ``conf``: settings of the release."""

    root: str
    conf: BrokerConf
    rules: BrokerRules
    release_reason: str
    suggests: str | None

    @property
    def release_assumed(self) -> bool:
        """True if neither the command line nor the store shows the release."""
        return self.release_reason == NOTHING_SHOWN

    @cached_property
    def configs(self) -> Mapping[str, ConfigFile]:
        """The files of ``config/``; of the two with offsets, the one in use."""
        unread = CONSUMER_OFFSETS if self.conf.flag("enableLmq", default=False) else LMQ_OFFSETS
        return {name: read_config(self.root, name) for name in DECODERS if name != unread}

    @property
    def queues_in_rocksdb(self) -> bool:
        """Brokers before 5.2.0 do not know this storeType."""
        return self.rules.knows_rocksdb and self.conf.queues_in_rocksdb

    @property
    def multi_dispatch(self) -> MultiDispatchRules | None:
        """Light-queue rules of its broker, None without light queues."""
        light, rules = self.conf.flag("enableLmq", default=False), self.rules
        if not self.conf.flag("enableMultiDispatch", default=False):
            return None
        return MultiDispatchRules(light, rules.no_light_topics, rules.no_light_prefixes)

    @cached_property
    def compacted_topics(self) -> frozenset[str]:
        """Topics served from ``compaction/``, which the broker fills only from what it dispatches."""
        on = self.rules.reads_batches_and_timers and self.conf.flag("enableCompaction", default=True)
        return compacted_topics(self.root) if on else frozenset()

    @property
    def is_slave(self) -> bool:
        """True if its broker fetches missing data from a master."""
        return self.conf.text("brokerRole", "") == "SLAVE"

    @property
    def is_live(self) -> bool:
        """True if a broker holds its lock."""
        return broker_lock.is_live(self.place(LOCK))

    def place(self, *parts: str) -> str:
        return locations.join(self.root, *parts)


def find_store(root: str, conf: BrokerConf, version: str | None = None) -> Store:
    """Open the store below a directory with the rules of ``version`` or of what its files show."""
    root = locations.absolute(root)
    if not files.exists(root):
        raise MissingInput("there is no such store", path=root)
    shown, why = guess_version(release_signs(root, conf.index_sizes()))
    if version is None and why == NOTHING_SHOWN:
        return Store(root, conf, rules_of(shown), why, None)
    rules = rules_of(version or shown)
    conf = replace(conf, given={name: text for name, text in conf.given.items() if is_known(name, rules.version)})
    if version is None:
        return Store(root, conf, rules, why, None)
    suggests = f"{shown}: {why}" if shown not in (rules.version, DEFAULT) else None
    return Store(root, conf, rules, _given(version, rules), suggests)


def _given(version: str, rules: BrokerRules) -> str:
    if version == rules.version:
        return "as given by --broker-version"
    numbers = release_numbers(version)
    more = ", which this program does not know" if numbers > NEWEST else DIFFERS.get(numbers, "")
    return f"as given by --broker-version {version}{more}"
