"""A store as every command takes it: location, broker.conf, and release rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

from storeformat.errors import MissingInput, WrongSettings
from storeformat.index import index_file
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.record.dispatch import MultiDispatchRules
from storeformat.storage import broker_lock, files, locations
from storeformat.store import config_files, layout
from storeformat.store.broker_rules import (
    DEFAULT,
    NEWEST,
    NEWEST_DIFFERS,
    BrokerRules,
    is_known,
    release_numbers,
    rules_of,
)
from storeformat.store.checkpoint import FIELDS, PAGE_SIZE, StoreCheckpoint, is_plausible, parse_checkpoint
from storeformat.store.config_files import ConfigFile, read_config
from storeformat.store.layout import queue_directories
from storeformat.store.settings import BATCH_SIZE, ENTRIES, EXT_SIZE, QUEUE_SIZE, SLOTS, Settings

NO_SIGNS = "nothing in the store shows the release"
_FILES_TO_ASK = 64
_SIZES_OF_QUEUES = dict(zip(layout.QUEUE_KINDS, (QUEUE_SIZE, BATCH_SIZE, EXT_SIZE), strict=True))
_UNITS = {layout.CONSUME_QUEUE: consume_queue.UNIT_SIZE, layout.BATCH_CONSUME_QUEUE: batch_consume_queue.UNIT_SIZE}


@dataclass(frozen=True)
class Store:
    """A store below ``root``; ``suggests``: other rules that its files show. ``settings``: those of the release."""

    root: str
    settings: Settings
    rules: BrokerRules
    release_reason: str
    suggests: str | None

    @property
    def release_assumed(self) -> bool:
        return self.release_reason == NO_SIGNS

    @cached_property
    def configs(self) -> Mapping[str, ConfigFile]:
        """The files of ``config/``; of the two with offsets, the one in use."""
        unread = config_files.CONSUMER_OFFSETS if self.settings.flag("enableLmq") else config_files.LMQ_OFFSETS
        return {name: read_config(self.root, name) for name in config_files.DECODERS if name != unread}

    @property
    def queues_in_rocksdb(self) -> bool:
        """Brokers before 5.2.0 do not know this storeType."""
        return self.rules.knows_rocksdb and self.settings.queues_in_rocksdb

    @property
    def multi_dispatch(self) -> MultiDispatchRules | None:
        """Light-queue rules of its broker, None without light queues."""
        light, rules = self.settings.flag("enableLmq"), self.rules
        if not self.settings.flag("enableMultiDispatch"):
            return None
        return MultiDispatchRules(light, rules.no_light_topics, rules.no_light_prefixes)

    @cached_property
    def compacted_topics(self) -> frozenset[str]:
        """Topics served from ``compaction/``, which the broker fills only from what it dispatches."""
        on = self.rules.reads_batches_and_timers and self.settings.flag("enableCompaction")
        topics = read_config(self.root, config_files.TOPICS_JSON).value if on else None
        return frozenset(topic for topic, own in (topics or {}).items() if own.compacted)

    @property
    def is_slave(self) -> bool:
        """True if its broker fetches missing data from a master."""
        return self.settings.text("brokerRole") == "SLAVE"

    @property
    def is_live(self) -> bool:
        return broker_lock.is_live(self.place(layout.LOCK))

    def place(self, *parts: str) -> str:
        return locations.join(self.root, *parts)


def find_store(root: str, settings: Settings, version: str | None = None) -> Store:
    """Open the store below a directory with the rules of ``version`` or of what its files show."""
    root = locations.absolute(root)
    if not files.exists(root):
        raise MissingInput("there is no such store", path=root)
    guessed, why = guess_version(root, settings)
    if version is None and why == NO_SIGNS:
        return Store(root, settings, rules_of(guessed), why, None)
    rules = rules_of(version or guessed)
    known = {name: text for name, text in settings.given.items() if is_known(name, rules.version)}
    settings = replace(settings, given=known)
    if version is None:
        return Store(root, settings, rules, why, None)
    reason = "as given by --broker-version"
    if version != rules.version:
        numbers = release_numbers(version)
        unknown = ", which this program does not know" if numbers > NEWEST else ""
        reason += f" {version}{NEWEST_DIFFERS if numbers == NEWEST else unknown}"
    suggests = f"{guessed}: {why}" if guessed not in (rules.version, DEFAULT) else None
    return Store(root, settings, rules, reason, suggests)


def fit_to_store(root: str, settings: Settings, *, needs_index_sizes: bool) -> tuple[Settings, list[str]]:
    """The settings with sizes of the store's files, and notes. Raises WrongSettings if a given size contradicts."""
    notes: list[str] = []
    for kind, name in _SIZES_OF_QUEUES.items():
        own_size = _shown_file_size(root, kind)
        set_size = settings.queue_file_size if kind == layout.CONSUME_QUEUE else settings.number(name)
        if own_size in (None, set_size) or (
            kind == layout.CONSUME_QUEUE_EXT and not settings.flag("enableConsumeQueueExt")
        ):
            continue
        if name in settings.given:
            what = f"{name} makes files of {set_size} bytes, the store's own have {own_size}"
            advice = f"if this is the broker's value, the files are damaged: move {kind}/ away, it is rebuilt"
            raise WrongSettings(what, path=locations.join(root, kind), advice=advice)
        settings = settings.showing(**{name: own_size})
        notes.append(f"{kind} files have {own_size} bytes, as the store's own")
    settings, more = _fit_index_sizes(root, settings, required=needs_index_sizes)
    return settings, notes + more


def _fit_index_sizes(root: str, settings: Settings, *, required: bool) -> tuple[Settings, list[str]]:
    """Settings with the sizes of a full index file; raises WrongSettings if files do not fit and none shows them."""
    own = _index_files(root)
    sizes = {entry.size for entry in own}
    if not sizes or not settings.writes_index_files or settings.index_file_size in sizes:
        return settings, []
    if not {SLOTS, ENTRIES} & settings.given.keys():
        for entry in own:
            with files.RangeReader(entry.path) as reader:
                capacity = index_file.capacity_of_file(entry.size, partial(_read_part, reader, entry.size))
            if capacity is not None:
                note = f"index files have {capacity[0]} slots and {capacity[1]} entries, as the store's own"
                return settings.showing(**{SLOTS: capacity[0], ENTRIES: capacity[1]}), [note]
    if not required:
        return settings, []
    raise WrongSettings(
        f"maxHashSlotNum and maxIndexNum make files of {settings.index_file_size} bytes, "
        f"the store's own have {' and '.join(map(str, sorted(sizes)))}",
        path=locations.join(root, layout.INDEX),
        advice="give the broker's values by --broker-conf FILE or --set maxHashSlotNum=N --set maxIndexNum=N; if these"
        " are the broker's, the files are damaged: move index/ away, it is rebuilt",
    )


def _index_files(root: str) -> list[files.FileStatus]:
    """Files no longer than a header show nothing."""
    entries = files.list_directory(locations.join(root, layout.INDEX)) or []
    return [
        entry for entry in entries if index_file.is_index_file_name(entry.name) and entry.size > index_file.HEADER_SIZE
    ]


def _read_part(reader: files.RangeReader, size: int, position: int, length: int) -> bytes:
    return reader.read(position, max(min(length, size - position), 0))


def _shown_file_size(root: str, kind: str) -> int | None:
    """Most common length of a kind's queue files; one without whole units was cut."""
    few = islice((file for queue in queue_directories(root, kind) for file in queue.files()), _FILES_TO_ASK)
    sizes = Counter(entry.size for entry in few if entry.size > 0 and entry.size % _UNITS.get(kind, 1) == 0)
    return sizes.most_common(1)[0][0] if sizes else None


def guess_version(root: str, settings: Settings) -> tuple[str, str]:
    """Release whose rules fit the files of a store, and the reason."""
    every_put = counts_every_put(root, settings)
    path = locations.join(root, layout.CHECKPOINT)
    page = files.read_bytes(path) if FIELDS.size <= (files.size_of(path) or 0) <= PAGE_SIZE else b""
    stamps = parse_checkpoint(page) if is_plausible(page) else StoreCheckpoint()
    if files.exists(locations.join(root, layout.ROCKSDB_STORE)):
        return "5.5", "the store holds rocksdbstore/, which brokers from 5.4.0 on create"
    if stamps.logics_physical_offset > 0:
        return "5.5", "the checkpoint holds logicsPhysicalOffset, which 5.5.0 writes"
    if every_put:
        return "4.6", "index headers count every put, as brokers up to 4.7.0 do"
    if stamps.confirm_phy_offset > 0:
        why = "the checkpoint holds confirmPhyOffset (5.1.1 and later), and there is no rocksdbstore/ (5.4.0 and later)"
        return "5.3", why
    return DEFAULT, NO_SIGNS


def counts_every_put(root: str, settings: Settings) -> bool | None:
    """True if the headers of index files count every put; None if they show nothing.

    Keys share slots: if far more entries than slots should be in use and the header says they are equal, it counts
    entries. Files of another length and contradictory headers are ignored; the majority decides.
    """
    sizes = Settings({name: settings.given[name] for name in (SLOTS, ENTRIES) if name in settings.given})
    if all(entry.size != sizes.index_file_size for entry in _index_files(root)):
        sizes, _ = _fit_index_sizes(root, Settings(), required=False)
    own = [entry for entry in _index_files(root) if entry.size == sizes.index_file_size]
    votes: Counter[bool] = Counter()
    for entry in own[:_FILES_TO_ASK]:
        with files.RangeReader(entry.path) as reader:
            header = index_file.parse_header(_read_part(reader, entry.size, 0, index_file.HEADER_SIZE))
        slots, capacity, counted = sizes.number(SLOTS), sizes.number(ENTRIES), header.hash_slot_count
        if 0 < counted < header.entries < capacity:
            votes[False] += 1
        elif 0 <= counted - header.entries <= 1 and header.entries < capacity:  # off by one after a kill
            votes[True] += header.entries - slots * (1 - (1 - 1 / slots) ** header.entries) > 8
    return None if votes[True] == votes[False] else votes[True] > votes[False]
