"""RocksDB databases on a local file system, written and read with ``rocksdict`` (the extra ``rocksdb``).

Tasks write sorted files, one process ingests them; nothing is compacted or logged. A broker opens the database with its
own options; those stored in the files are set here:

==============  ===========================================================================================
what            why
==============  ===========================================================================================
format_version  5, as brokers have it: the RocksDB of 5.3.3 and 5.5.0 (8.4) refuses tables of version 6
Bloom filter    16 bits a key, as brokers have it: readers of old tables skip by it
compression     LZ4 or none, per family; each block says which
comparator      bytewise, the default: keys in the order of their bytes
==============  ===========================================================================================

Reading never touches a database, because rocksdict leaves a file where it opens one: it opens a view, a temporary
directory with copies of the small files and links to the tables. A live broker may remove tables; a view shows what
it has flushed.
"""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from storeformat.errors import DependencyMissing, MissingInput, NotAStore, WriteFailed
from storeformat.storage import files, local_files, locations

CURRENT = "CURRENT"
_OWN_FILES = ("rocksdict-config.json", "LOG", "LOCK")  # left by rocksdict, unused by brokers
_TABLE = ".sst"
_LINKED = (_TABLE, ".log")
_NAMING = ("CURRENT", "MANIFEST-", "OPTIONS-", "IDENTITY")
_MOST_READ = {"MANIFEST": 2 << 30, "log": 1 << 30, "": 1 << 20}
"""Bytes of a file, holes included, that RocksDB reads whole. Brokers start a new MANIFEST at 1 GiB."""
_MOST_OPEN_FILES = 256
_AT_ONCE = 1 << 20
_LOG_BLOCK, _LOG_HEADER = 32 << 10, struct.Struct("<4xHB")
_TYPES, _RECYCLED = range(1, 5), (5, 6, 7, 8, 11, 131)  # full, first, middle, last; recycled files
_BLOCK_SIZE, _BLOOM_BITS, _FORMAT_VERSION = 32 << 10, 16, 5


@dataclass(frozen=True)
class Family:
    """A column family and its table options."""

    name: str
    compressed: bool = False
    universal: bool = False  # compaction style (else by levels), which decides how a database orders its tables


def require() -> Any:
    """Import rocksdict. Raises DependencyMissing without it."""
    try:
        import rocksdict  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise DependencyMissing(
            "no library for RocksDB is installed",
            advice="install the extra rocksdb (rocksdict): ./spark-submit.sh --setup --with rocksdb",
        ) from error
    return rocksdict


def _options(family: Family | None = None) -> Any:
    rocksdict = require()
    options = rocksdict.Options(raw_mode=True)
    options.set_max_open_files(_MOST_OPEN_FILES)
    if family is None:
        return options
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(_FORMAT_VERSION)
    tables.set_block_size(_BLOCK_SIZE)
    tables.set_bloom_filter(_BLOOM_BITS, False)
    options.set_block_based_table_factory(tables)
    compressions, styles = rocksdict.DBCompressionType, rocksdict.DBCompactionStyle
    options.set_compression_type(compressions.lz4() if family.compressed else compressions.none())
    options.set_compaction_style(styles.universal() if family.universal else styles.level())
    return options


def write_sorted_file(path: str, family: Family, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write a table of at least one pair, keys ascending."""
    writer = require().SstFileWriter(options=_options(family))
    try:
        writer.open(locations.local_path(path))
        for key, value in pairs:
            writer[key] = value
        writer.finish()
    except Exception as error:  # it has no class of its own
        raise WriteFailed(f"a table of RocksDB cannot be written: {error}", path=path) from error


def make_database(directory: str, tables: Mapping[Family, Sequence[str]]) -> None:
    """Make a database from sorted files, which it moves, into an absent or empty directory. Tables must not overlap."""
    rocksdict, local = require(), locations.local_path(directory)
    options = _options(next(family for family in tables if family.name == "default"))
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    try:
        database = rocksdict.Rdict(local, options, column_families={each.name: _options(each) for each in tables})
        taking = rocksdict.IngestExternalFileOptions()
        taking.set_move_files(True)
        for family, paths in tables.items():
            if paths:
                column = database.get_column_family(family.name)
                column.ingest_external_file([locations.local_path(path) for path in paths], taking)
                column.close()
        database.close()
    except Exception as error:  # it has no class of its own
        raise WriteFailed(f"a database of RocksDB cannot be made: {error}", path=directory) from error
    for name in _OWN_FILES:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(local, name))
    for paths in tables.values():
        for path in paths:  # copied where no link could be made
            with suppress(FileNotFoundError):
                os.unlink(locations.local_path(path))


@dataclass(frozen=True)
class Database:
    """A database opened for reading."""

    path: str
    families: Mapping[str, Any]

    def get(self, family: str, key: bytes) -> bytes | None:
        with _naming(self.path):
            value: bytes | None = self.families[family].get(key)
        return value

    def pairs(self, family: str, begin: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with keys in [begin, end), in order."""
        with _naming(self.path):
            for key, value in self.families[family].items(from_key=begin):
                if end is not None and key >= end:
                    return
                yield key, value

    def key_from(self, family: str, key: bytes) -> bytes | None:
        """First key not before ``key``."""
        with _naming(self.path):
            found = self.families[family].iter()
            found.seek(key)
            return found.key() if found.valid() else None


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn rocksdict's errors into NotAStore with the database's path."""
    try:
        yield
    except Exception as error:  # it has no class of its own
        if isinstance(error, (GeneratorExit, NotAStore)):
            raise
        raise NotAStore(f"this RocksDB database cannot be read: {error}", path=path) from error


@contextmanager
def reading(directory: str, families: Sequence[str]) -> Iterator[Database]:
    """Open a database for reading. Raises NotAStore if it cannot be opened."""
    rocksdict, local = require(), locations.local_path(directory)
    if not os.path.isfile(os.path.join(local, CURRENT)):
        raise MissingInput("there is no RocksDB database", path=directory)
    with tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-view-") as view:
        with _naming(directory):
            _link(local, view)
            columns = {name: _options() for name in families}
            access = rocksdict.AccessType.read_only()
            handle = rocksdict.Rdict(view, _options(), column_families=columns, access_type=access)
        opened = {name: handle.get_column_family(name) for name in families}
        try:
            yield Database(directory, opened)
        finally:
            for column in opened.values():
                column.close()
            handle.close()


def _link(directory: str, view: str) -> None:
    """Fill the view: first copy the files that name the tables, then link all tables. Refuses what would block RocksDB
    or exhaust memory: pipes, files larger than ``_MOST_READ``, and ``_refuse_foreign_records``.
    """
    logs = 0
    for begins, ends in ((_NAMING, ()), ((), _LINKED)):
        for name in os.listdir(directory):
            if not (name.startswith(begins) or name.endswith(ends)):
                continue
            path, new = os.path.join(directory, name), os.path.join(view, name)
            try:
                status = os.stat(path)
            except FileNotFoundError:  # a broker has removed it just now
                continue
            if not stat.S_ISREG(status.st_mode):
                raise NotAStore("this is not a regular file", path=path)
            kind = "log" if name.endswith(".log") else "MANIFEST" if name.startswith("MANIFEST-") else ""
            logs += status.st_size if kind == "log" else 0
            size = logs if kind == "log" else status.st_size
            if not name.endswith(_TABLE) and size > _MOST_READ[kind]:
                raise NotAStore(
                    "this RocksDB database has too much to read",
                    path=path,
                    expected=f"at most {_MOST_READ[kind]} bytes",
                )
            if kind:
                _refuse_foreign_records(path)
            if name.startswith(begins):
                _copy(path, new, status.st_size)
            else:
                os.symlink(path, new)


def _copy(path: str, new: str, size: int) -> None:
    """Keeps holes."""
    with files.opened(path) as old, open(new, "wb") as made:
        for low, high in local_files.data_ranges(old.fileno(), 0, size):
            for at in range(low, high, _AT_ONCE):
                made.seek(at)
                made.write(local_files.read_at(old.fileno(), at, min(_AT_ONCE, high - at)))
        made.truncate(size)


def _refuse_foreign_records(path: str) -> None:
    """At other record types RocksDB searches for the rest of a recycled file for ever, and no signal ends it. Blocks of
    32 KiB: CRC (4 bytes), length (2), type (1), content; zero-padded (log_format.h).
    """
    with open(path, "rb") as log:
        while block := log.read(_LOG_BLOCK):
            at = 0
            while at + _LOG_HEADER.size <= len(block):
                length, kind = _LOG_HEADER.unpack_from(block, at)
                if kind in _RECYCLED:
                    raise NotAStore("this RocksDB database has a damaged log", path=path)
                if kind not in _TYPES:
                    break
                at += _LOG_HEADER.size + length
