"""The settings of a broker.conf, as a broker takes them.

==========  ========================================================================================================
numbers     one that Integer#parseInt does not take, for a blank at its end, too, is passed over: the default stands
booleans    all but ``true``, in any case of letters, is false, with a blank at its end, too
text        from 5.2.0 on without the blanks around it, before with them
==========  ========================================================================================================

Mirrors BrokerStartup#buildBrokerController and MixAll#properties2Object (4.9.8, 5.1.4, 5.2.0, 5.3.3 and 5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from storeformat.errors import WrongSettings
from storeformat.javacompat import parse_int
from storeformat.javaproperties import parse_properties
from storeformat.storage import files
from storeformat.store.layout import StoreLayout, apply_settings, broker_name
from storeformat.store.setting_names import EFFECTS, nearest_names

_NUMBERS = frozenset({
    *(broker_name(field.name) for field in fields(StoreLayout) if field.type == "int"),
    "commitLogRecoverMaxNum", "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio",
    "fileReservedTime", "mappedFileSizeTimerLog",
})  # fmt: skip
"""Int settings of a broker that this program uses."""


@dataclass(frozen=True)
class BrokerConf:
    """Settings by broker.conf name, as written. Without a file, the store's own files decide unnamed sizes."""

    given: Mapping[str, str] = field(default_factory=dict)
    from_file: bool = True
    path: str | None = None

    def text(self, name: str, default: str) -> str:
        return self.given.get(name, default).strip()

    def number(self, name: str, default: int) -> int:
        number = parse_int(self.given.get(name, ""))
        return default if number is None else number

    def flag(self, name: str, *, default: bool) -> bool:
        return self.given.get(name, str(default)).lower() == "true"

    @property
    def queues_in_rocksdb(self) -> bool:
        """MessageStoreConfig#isEnableRocksDBStore."""
        return self.text("storeType", "default").lower() == "defaultrocksdb"

    @property
    def reserved_hours(self) -> int:
        """MessageStoreConfig#fileReservedTime."""
        return self.number("fileReservedTime", 72)

    @property
    def reserved_ms(self) -> int:
        return self.reserved_hours * 3_600_000

    def paths(self, name: str) -> list[str]:
        """Distinct comma-separated paths of a setting; blanks count."""
        return list(dict.fromkeys(path for path in self.text(name, "").split(",") if path))

    def not_taken(self) -> Iterator[tuple[str, str]]:
        """Numbers that Java cannot parse, of settings that shape files or say what is kept."""
        yield from ((name, text) for name, text in self.given.items() if name in _NUMBERS and parse_int(text) is None)

    def index_sizes(self) -> StoreLayout:
        """Default layout with the index sizes that a broker takes from these settings."""
        default = StoreLayout()
        slots = self.number("maxHashSlotNum", default.max_hash_slot_num)
        return replace(
            default, max_hash_slot_num=slots, max_index_num=self.number("maxIndexNum", default.max_index_num)
        )

    def layout(self) -> StoreLayout:
        """File layout of these settings."""
        try:
            return apply_settings(StoreLayout(), self.given)
        except WrongSettings as error:
            error.path = self.path
            raise


def read_broker_conf(path: str | None, settings: Sequence[tuple[str, str]] = ()) -> BrokerConf:
    """Settings of a broker.conf and the command line, which wins. Raises WrongSettings for unknown names there."""
    for name, _ in settings:
        if name not in EFFECTS:
            raise WrongSettings("no such setting", found=name, expected=" or ".join(nearest_names(name)) or None)
    if path is None:
        return BrokerConf(dict(settings), from_file=False)
    written = parse_properties(files.read_bytes(path).decode("latin-1"))
    if torn := [name for name, text in written.items() if "\0" in text]:
        raise WrongSettings("this broker.conf is torn: a value holds a byte of zero", path=path, found=torn[0])
    return BrokerConf({**written, **dict(settings)}, path=path)
