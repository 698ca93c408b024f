"""The layout of a store: sizes by broker.conf name, directories, and file name <-> offset.

Mirrors ``MessageStoreConfig`` (names and defaults), ``StorePathConfigHelper`` and ``UtilAll#offset2FileName``. Sizes
are not stored: they come from broker.conf, the command line, or the lengths of existing files, and must agree.

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

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from storeformat.errors import WrongSettings
from storeformat.index import index_file
from storeformat.javacompat import LONG_MAX, parse_long
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.record.dispatch import DEFAULT_DELAY_LEVELS, parse_delay_levels

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

_MAX_FILE_SIZE = (1 << 31) - 1  # the broker maps files with an int length


@dataclass(frozen=True)
class StoreLayout:
    """Settings that shape a store's files, by broker.conf name in snake case; sizes are bytes. Validates them."""

    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * consume_queue.UNIT_SIZE
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True
    index_file_write_enable: bool = True
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    store_path_commit_log: str = ""
    mapper_file_size_batch_consume_queue: int = 300_000 * batch_consume_queue.UNIT_SIZE
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 << 20
    read_only_commit_log_store_paths: str = ""
    enable_d_leger_commit_log: bool = False
    d_leger_self_id: str = ""
    store_path_d_ledger_commit_log: str = ""

    def __post_init__(self) -> None:
        for name in ("mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_hash_slot_num"):
            _check_range(name, getattr(self, name), 1, _MAX_FILE_SIZE)
        _check_range("max_index_num", self.max_index_num, 2, _MAX_FILE_SIZE)
        _ = self.index_file_size  # raises where no broker could map one
        parse_delay_levels(self.message_delay_level)

    @property
    def consume_queue_file_size(self) -> int:
        """The setting rounded up to whole units."""
        return consume_queue.file_size_of(self.mapped_file_size_consume_queue)

    @property
    def index_file_size(self) -> int:
        return index_file.index_file_size(self.max_hash_slot_num, self.max_index_num)

    @property
    def writes_index_files(self) -> bool:
        """False too if 5.5.0 has its index in RocksDB alone."""
        return self.message_index_enable and self.index_file_write_enable

    def settings(self) -> dict[str, object]:
        """The settings by broker.conf name."""
        return {broker_name(field.name): getattr(self, field.name) for field in fields(self)}


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise WrongSettings(f"{broker_name(name)} is out of range", found=value, expected=f"{low} to {high}")


def broker_name(field_name: str) -> str:
    """The broker.conf name of a setting."""
    head, *rest = field_name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def apply_settings(layout: StoreLayout, settings: Mapping[str, str]) -> StoreLayout:
    """The layout with these settings (broker.conf names); ignores those that shape no file.

    >>> apply_settings(StoreLayout(), {"mappedFileSizeCommitLog": "65536"}).mapped_file_size_commit_log
    65536
    """
    known = {broker_name(field.name): field for field in fields(StoreLayout)}
    changes: dict[str, object] = {}
    for name, text in settings.items():
        if (field := known.get(name)) is not None:
            changes[field.name] = _parse_value(name, text, str(field.type))
    return replace(layout, **changes)  # type: ignore[arg-type]


def _parse_value(name: str, text: str, kind: str) -> object:
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise WrongSettings(f"{name} is not a boolean", found=text, expected="true or false")
        return text.lower() == "true"
    if kind == "int":
        if (number := parse_long(text)) is None:
            raise WrongSettings(f"{name} is not an integer", found=text, expected="bytes or a count, and no blank")
        return number
    return text


def file_name(offset: int) -> str:
    """The 20-digit name of the file that begins at ``offset`` (UtilAll#offset2FileName)."""
    return f"{offset:020d}"


def is_file_name(name: str) -> bool:
    """True for the name of a segment or queue file: an offset, which is a long."""
    return len(name) == 20 and name.isascii() and name.isdigit() and name <= file_name(LONG_MAX)
