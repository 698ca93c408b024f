"""Committed offsets of groups beside the ends of their queues, both read from the store alone."""

from __future__ import annotations

from typing import Any

from jobs.log.opening import OpenedStore
from storeformat.errors import MissingInput, NotAStore
from storeformat.queues.rocksdb_queues import rocksdb_queues_in
from storeformat.storage import locations, rocksdb
from storeformat.store import config_files
from storeformat.store.config_files import (
    DataVersion,
    FileState,
    Offsets,
    data_version,
    decode_consumer_offsets,
    read_offsets,
)
from storeformat.store.layout import holds_pairs
from storeformat.store.queue_ends import offset_at, queue_ends

DATABASE = "config/consumerOffsets"


def committed_offsets(store: OpenedStore) -> Offsets:
    """Committed offsets by topic and group, then by queue id."""
    root = store.root
    if not locations.is_local(root):
        raise NotAStore("committed offsets can only be read from a local disk", path=root)
    found, database = read_offsets(root, enable_lmq=store.settings.flag("enableLmq")), locations.join(root, DATABASE)
    if holds_pairs(database) and (found.value is None or store.queues_in.in_rocksdb):
        return offsets_in_database(database)
    if found.value is None:
        torn = FileState.TORN in (found.main.content, found.backup.content)
        what = f"{found.name} is torn, and its backup cannot be used" if torn else "there are no committed offsets"
        raise MissingInput(what, path=found.main.path, advice="a replica, or a backup, may have them")
    return dict(found.value)


def offsets_in_database(path: str) -> Offsets:
    """Decode ``topic@group`` to JSON with an offsetTable (RocksDBConsumerOffsetManager#decodeOffset, 5.3.3, 5.5.0)."""
    table = {}
    try:
        with rocksdb.reading(path, ("default",)) as database:
            for key, value in database.pairs("default"):
                document = config_files.parse(value.decode("utf-8", "replace"))
                offsets = document.get("offsetTable") if isinstance(document, dict) else None
                table[key.decode("utf-8", "replace")] = offsets or {}
        return decode_consumer_offsets({"offsetTable": table})
    except (ValueError, RecursionError) as error:
        raise NotAStore(f"these are not committed offsets: {error}", path=path) from error


def version_of_database(path: str) -> DataVersion | None:
    """Data version, None before 5.3.0 (ConfigRocksDBStorage#getKvDataVersion, 5.3.0 to 5.5.0)."""
    try:
        with rocksdb.reading(path, ("kvDataVersion",)) as database:
            found = database.get("kvDataVersion", b"kvDataVersionKey")
    except NotAStore:
        return None
    return None if found is None else data_version('{"dataVersion":' + found.decode("utf-8", "replace") + "}")


def lag_rows(store: OpenedStore, group: str | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """One row for each group, topic and queue with a committed offset, largest lag first; and notes."""
    ends = _ranges(store)
    rows = [  # a queue without a message has no files: a group that begins there commits 0
        _row(name, topic, queue, at, *ends.get((topic, queue), (0, 0) if ends and not at else (None, None)))
        for (topic, name), queues in committed_offsets(store).items()
        if group in (None, name)
        for queue, at in queues.items()
    ]
    rows.sort(key=lambda row: (-(row["lag"] or 0), row["group"], row["topic"], row["queue_id"]))
    notes = []
    if unknown := sum(row["lag"] is None for row in rows):
        notes.append(
            f"the lag of {unknown} committed offsets is not known: their queues are not there, or cannot be read; "
            "rebuild makes them from the log"
        )
    if beyond := sum(row["beyond_end"] for row in rows):
        notes.append(f"{beyond} committed offsets are beyond the end of their queue: the group gets nothing new there")
    if deleted := sum(row["deleted"] for row in rows):
        notes.append(f"{deleted} messages were deleted before their group had read them")
    if holds_pairs(locations.join(store.root, DATABASE)) and not store.queues_in.in_rocksdb:
        notes.append(f"{DATABASE}/ is a RocksDB database, which a broker of another storeType reads")
    return rows, notes


def _ranges(store: OpenedStore) -> dict[tuple[str, int], tuple[int, int]]:
    begin = store.segments[0].base
    if store.queues_in.in_rocksdb:
        with rocksdb_queues_in(locations.join(store.root, store.queues_in.database)) as queues:
            return {
                (topic.decode("utf-8", "replace"), queue_id): queues.range_of((topic, queue_id), begin)
                for topic, queue_id in queues.ends()
            }
    found = [queue for queue in queue_ends(store.root) if queue.files.own]
    return {(queue.topic, queue.queue_id): (offset_at(queue, begin), queue.end) for queue in found}


def _row(group: str, topic: str, queue_id: int, committed: int, begin: int | None, end: int | None) -> dict[str, Any]:
    return {
        "group": group,
        "topic": topic,
        "queue_id": queue_id,
        "committed": committed,
        "begin": begin,
        "end": end,
        "lag": None if end is None or begin is None else max(end - max(committed, begin), 0),
        "deleted": 0 if begin is None else max(begin - max(committed, 0), 0),
        "beyond_end": end is not None and committed > end,
    }


def totals_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Queues and lag of each group and topic, largest lag first; None if the end of a queue is unknown."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["group"], row["topic"])
        total = found.setdefault(key, {"group": key[0], "topic": key[1], "queues": 0, "lag": 0})
        total["queues"] += 1
        total["lag"] = None if total["lag"] is None or row["lag"] is None else total["lag"] + row["lag"]
    return sorted(found.values(), key=lambda total: -(total["lag"] or 0))
