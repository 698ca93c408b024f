"""The settings of a broker.conf, as a broker takes them.

==========  ========================================================================================================
numbers     what Integer#parseInt does not take, for a blank at its end, too, is passed over: the default stands
booleans    all but ``true``, in any case of letters, is false, with a blank at its end, too
text        from 5.2.0 on without the blanks around it, before with them
==========  ========================================================================================================

Mirrors BrokerStartup#buildBrokerController and MixAll#properties2Object (4.9.8, 5.1.4, 5.2.0, 5.3.3 and 5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storeformat.errors import WrongSettings
from storeformat.index import index_file
from storeformat.javacompat import parse_int
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.record.dispatch import parse_delay_levels
from storeformat.storage import files
from storeformat.store.broker_rules import DEFAULTS, EFFECTS, nearest_names, parse_properties

_NUMBERS = {name: int(text) for name, text in DEFAULTS.items() if text.isdigit() and name != "deleteWhen"}
SEGMENT_SIZE = "mappedFileSizeCommitLog"
QUEUE_SIZE = "mappedFileSizeConsumeQueue"
BATCH_SIZE = "mapperFileSizeBatchConsumeQueue"
EXT_SIZE = "mappedFileSizeConsumeQueueExt"
SLOTS, ENTRIES = "maxHashSlotNum", "maxIndexNum"
STORE_TYPE = "storeType"
DOUBLE_WRITE = "rocksdbCQDoubleWriteEnable"
SEPARATE = "useSeparateStorePathForRocksdbCQ"
LOADED, LIGHT_IN_ROCKSDB = "combineCQLoadingCQTypes", "combineCQUseRocksdbForLmq"
QUEUE_STORE_SETTINGS = (STORE_TYPE, DOUBLE_WRITE, SEPARATE, LOADED, LIGHT_IN_ROCKSDB)
_MAX_FILE_SIZE = (1 << 31) - 1  # the broker maps files with an int length
_LEAST = {SEGMENT_SIZE: 1, QUEUE_SIZE: 1, SLOTS: 1, ENTRIES: 2}
_OF_FILES = (
    SEGMENT_SIZE, QUEUE_SIZE, SLOTS, ENTRIES, "messageIndexEnable", "indexFileWriteEnable", "messageDelayLevel",
    "storePathCommitLog", BATCH_SIZE, "enableLmq", "enableMultiDispatch", "enableConsumeQueueExt", EXT_SIZE,
    "readOnlyCommitLogStorePaths", "enableDLegerCommitLog", "dLegerSelfId", "storePathDLedgerCommitLog",
)  # fmt: skip
_TEXTS = ("messageDelayLevel", "storePathCommitLog", "readOnlyCommitLogStorePaths", "dLegerSelfId",
          "storePathDLedgerCommitLog")  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Settings by broker.conf name. ``given``: as written; ``observed``: sizes of the store's own files, which count
    for what is not given. Without a file, they decide all sizes.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    from_file: bool = True
    path: str | None = None
    observed: Mapping[str, int] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.given.get(name, DEFAULTS.get(name, "")).strip()

    def number(self, name: str) -> int:
        number = parse_int(self.given.get(name, ""))
        return self.observed.get(name, _NUMBERS[name]) if number is None else number

    def flag(self, name: str) -> bool:
        return self.given.get(name, DEFAULTS.get(name, "")).lower() == "true"

    def paths(self, *names: str) -> list[str]:
        """Distinct comma-separated paths of settings; blanks count."""
        return list(dict.fromkeys(path for name in names for path in self.text(name).split(",") if path))

    def showing(self, **sizes: int) -> Settings:
        """The settings with sizes of the store's own files."""
        return replace(self, observed={**self.observed, **sizes})

    @property
    def queues_in_rocksdb(self) -> bool:
        """MessageStoreConfig#isEnableRocksDBStore."""
        return self.text("storeType").lower() == "defaultrocksdb"

    @property
    def reserved_ms(self) -> int:
        return self.number("fileReservedTime") * 3_600_000

    @property
    def queue_file_size(self) -> int:
        """``mappedFileSizeConsumeQueue`` rounded up to whole units."""
        return -(-self.number(QUEUE_SIZE) // UNIT_SIZE) * UNIT_SIZE

    @property
    def index_file_size(self) -> int:
        return index_file.index_file_size(self.number(SLOTS), self.number(ENTRIES))

    @property
    def writes_index_files(self) -> bool:
        """False too if 5.5.0 has its index in RocksDB alone."""
        return self.flag("messageIndexEnable") and self.flag("indexFileWriteEnable")

    def not_taken(self) -> Iterator[tuple[str, str]]:
        """Numbers that Java cannot parse, of settings that this program uses."""
        yield from ((name, text) for name, text in self.given.items() if name in _NUMBERS and parse_int(text) is None)

    def of_files(self) -> dict[str, int | bool | str]:
        """Settings that shape files, and those given that say where queues are kept."""
        shaping: dict[str, int | bool | str] = {}
        for name in _OF_FILES:
            is_number, is_text = name in _NUMBERS, name in _TEXTS
            shaping[name] = self.number(name) if is_number else self.text(name) if is_text else self.flag(name)
        return shaping | {name: self.given[name] for name in QUEUE_STORE_SETTINGS if name in self.given}

    def checked(self) -> Settings:
        """Itself. Raises WrongSettings for a value that shapes files and that no broker could use."""
        try:
            for name in _OF_FILES:
                if name in self.given and name not in _TEXTS:
                    self._check(name, self.given[name])
            _ = self.index_file_size  # raises where no broker could map one
            parse_delay_levels(self.text("messageDelayLevel"))
        except WrongSettings as error:
            error.path = self.path
            raise
        return self

    def _check(self, name: str, text: str) -> None:
        if name not in _NUMBERS:
            if text.lower() not in ("true", "false"):
                raise WrongSettings(f"{name} is not a boolean", found=text, expected="true or false")
        elif parse_int(text) is None:
            expected = "bytes or a count up to 2147483647, and no blank"
            raise WrongSettings(f"{name} is not an integer", found=text, expected=expected)
        elif self.number(name) < (least := _LEAST.get(name, 0)):
            raise WrongSettings(f"{name} is out of range", found=text, expected=f"{least} to {_MAX_FILE_SIZE}")


def read_settings(path: str | None, given: Sequence[tuple[str, str]] = ()) -> Settings:
    """Settings of a broker.conf and the command line, which wins. Raises WrongSettings for unknown names there."""
    for name, _ in given:
        if name not in EFFECTS:
            raise WrongSettings("no such setting", found=name, expected=" or ".join(nearest_names(name)) or None)
    if path is None:
        return Settings(dict(given), from_file=False)
    written = parse_properties(files.read_bytes(path).decode("latin-1"))
    if torn := [name for name, text in written.items() if "\0" in text]:
        raise WrongSettings("this broker.conf is torn: a value holds a byte of zero", path=path, found=torn[0])
    return Settings({**written, **dict(given)}, path=path)
