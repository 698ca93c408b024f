"""Why a key is not found: what the log holds of it, and what became of each message on its way through the index."""

from __future__ import annotations

from typing import Any

from jobs.contract.options import QueryOptions
from jobs.query.offline_store import OfflineStore, stored_at
from storeformat.index import index_file


def explain_key(
    options: QueryOptions, offline: OfflineStore, stored: list[dict[str, Any]], answered: set[int]
) -> list[dict[str, Any]]:
    """Returns a row for each message that the log holds with the key: found, or why the index does not lead to it.

    Without such a message one row says so, and from where on the log still is.
    """
    if not stored:
        reason = (
            f"no message with this key is in the log, which starts at offset {offline.min_phy_offset}: neither under"
            " this topic nor waiting for it (never stored, or deleted with its segment)"
        )
        return [{"commit_log_offset": None, "reason": reason}]
    return [
        {"commit_log_offset": row["commit_log_offset"], "reason": _reason(options, offline, row, answered)}
        for row in stored
    ]


def _reason(options: QueryOptions, offline: OfflineStore, row: dict[str, Any], answered: set[int]) -> str:
    offset = row["commit_log_offset"]
    if "waits_for" in row:
        return str(row["waits_for"])
    if offset in answered:
        return "found"
    if row["transaction_type"] == "rollback":
        return "never indexed: a rolled back message"
    if not offline.store.layout.writes_index_files:
        return "never indexed: messageIndexEnable or indexFileWriteEnable is false"
    if not options.begin <= stored_at(row) <= options.end:
        return "stored outside of the time that was asked for"
    headers = offline.index_files()
    if not headers:
        return "the store has no index: rebuild --only index"
    if offset > max(header.end_phy_offset for header, _ in headers):
        return "the index lags: it ends before this message (rebuild --only index)"
    if offset < min(header.begin_phy_offset for header, _ in headers):
        return "the index starts after this message: its file has expired or was lost (rebuild --only index)"
    return _reason_inside(options, offline, row, headers)


def _reason_inside(
    options: QueryOptions,
    offline: OfflineStore,
    row: dict[str, Any],
    headers: list[tuple[index_file.IndexHeader, index_file.Read]],
) -> str:
    """The index reaches over the message: looks for its entry, linked or not."""
    offset, slots = row["commit_log_offset"], offline.store.layout.max_hash_slot_num
    hashed = index_file.key_hash(row["topic"], options.key or "")
    for header, read in headers:
        content = read(index_file.entries_position(slots), index_file.ENTRY_SIZE * (header.entries + 1))
        entries = index_file.parse_entries(content)
        numbers = [int(n) for n in ((entries["phy_offset"] == offset) & (entries["key_hash"] == hashed)).nonzero()[0]]
        if not numbers or numbers == [0]:
            continue
        linked = {entry.number for entry in index_file.chain(read, header, slots, hashed)}
        if linked.isdisjoint(numbers):
            return "its entry is there, but the chain of its slot does not lead to it (rebuild --only index)"
        return "its entry is there and linked: --max newer entries have its hash, or its second is outside of the range"
    return "the index covers its offset but has no entry for it (rebuild --only index)"
