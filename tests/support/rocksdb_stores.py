"""Stores with RocksDB queues, made of those in files, and their databases opened for changes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import rocksdict
from support import golden
from support.rebuilding import rebuild_here

from storeformat.queues import rocksdb_queues
from storeformat.queues.rocksdb_queues import rocksdb_queues_in
from storeformat.storage import rocksdb


def with_database(name: str, directory: Path) -> tuple[Path, dict[str, Any]]:
    """A golden store whose queues are a database, and its settings."""
    (store,) = golden.stores(name)
    settings = {**store.settings, "storeType": "defaultRocksDB"}
    root = golden.unpack(store, directory / "store")
    (directory / "work").mkdir()
    built = rebuild_here(root, directory / "work", settings)
    shutil.rmtree(root / "consumequeue")
    shutil.move(Path(built.directory) / "consumequeue", root / "consumequeue")
    return root, settings


def pairs_in(directory: Path) -> dict[str, dict[bytes, bytes]]:
    """The pairs of a database, by family."""
    with rocksdb_queues_in(str(directory)) as queues:
        return {family: dict(queues.database.pairs(family)) for family in ("default", "offset")}


def empty(directory: Path, what: str = "no pairs") -> None:
    """Leaves a database without pairs, as a broker does that was killed before it flushed; or none at all."""
    shutil.rmtree(directory)
    if what == "no pairs":
        directory.mkdir()
        rocksdb.make_database(str(directory), {family: [] for family in rocksdb_queues.FAMILIES})


class ChangedDatabase:
    """The database of a store, open for changes: ``units`` and ``ends`` are its families."""

    def __init__(self, root: Path) -> None:
        columns = {name: rocksdict.Options(raw_mode=True) for name in ("default", "offset")}
        self.handle = rocksdict.Rdict(str(root / "consumequeue"), rocksdict.Options(raw_mode=True), columns)
        self.units = self.handle.get_column_family("default")
        self.ends = self.handle.get_column_family("offset")

    def __enter__(self) -> ChangedDatabase:  # noqa: PYI034  (Self is not in typing before Python 3.11)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in (self.units, self.ends):
            part.flush()
            part.close()
        self.handle.close()

    def queue(self, least: int = 5) -> tuple[bytes, int, list[tuple[bytes, bytes]]]:
        """The first queue with so many units, and its pairs."""
        found: dict[tuple[bytes, int], list[tuple[bytes, bytes]]] = {}
        for key, value in self.units.items():
            queue = rocksdb_queues.parse_queue(key)
            assert queue is not None
            found.setdefault(queue, []).append((key, value))
        return next((*queue, pairs) for queue, pairs in found.items() if len(pairs) >= least)

    def end_at(self, offset: int) -> None:
        """Says that the log is dispatched up to an offset."""
        self.ends[rocksdb_queues.CHECKPOINT_KEY] = rocksdb_queues.OFFSET.pack(offset)


def broker_settings(settings: Mapping[str, Any], **more: str) -> dict[str, str]:
    """Settings as broker.conf has them."""
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return {**text, **more}
