"""In words, what messages under a broker's own topics are waiting for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.query.offline_store import stored_at, utc_text
from storeformat.record.pending import HALF_TOPICS, Pending, belongs_to, pending


def waiting_of(row: dict[str, Any]) -> Pending | None:
    """What the message of a row waits for."""
    return pending(row["topic"], row["tags_code"], row["properties"] or {})


def split_waiting(
    rows: Sequence[dict[str, Any]], topic: str, ended: Mapping[tuple[int, int], int] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows under their topic, and rows that wait for it elsewhere, with ``waits_for``. ``ended``: log offset of the op
    message by queue id and queue offset of ended half messages, None if not looked up.
    """
    own = [row for row in rows if row["topic"] == topic]
    waiting = []
    for row in rows:
        found = waiting_of(row) if row["topic"] != topic else None
        if found is not None and belongs_to(row["topic"], found, topic):
            text = waiting_text(row, found, topic)
            later = _later_copy(row, rows)
            if later is not None:
                what = "delivered" if later["topic"] == topic else f"stored again under {later['topic']}"
                text += f"; {what} at offset {later['commit_log_offset']}"
            elif found.kind == "half":
                text += end_of_half(row, ended)
            waiting.append({**row, "waits_for": text})
    return own, waiting


def half_places(rows: Sequence[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    """Places of the half messages among rows, as in ``pending.ended_half``."""
    return tuple(place for row in rows if row["topic"] in HALF_TOPICS for place in _places(row))


def _places(row: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    return (row["queue_id"], row["queue_offset"]), (-1, row["commit_log_offset"])


def _later_copy(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    offset = row["commit_log_offset"]
    for other in rows:
        same = row["uniq_key"] is not None and other["uniq_key"] == row["uniq_key"]
        same |= other["transaction_type"] == "commit" and other["prepared_transaction_offset"] == offset
        if same and other["commit_log_offset"] > offset:
            return other
    return None


def end_of_half(row: dict[str, Any], ended: Mapping[tuple[int, int], int] | None) -> str:
    """Fate of a half message without a later copy."""
    if ended is None:
        return ", waits for its producer to commit it, or was rolled back: --scan says which"
    offset = next((ended[place] for place in _places(row) if place in ended), None)
    if offset is None:
        return ", waits for its producer to commit it or to roll it back"
    return f"; its producer rolled it back, or the broker gave it up, at offset {offset}"


def waiting_text(row: dict[str, Any], waiting: Pending, topic: str) -> str:
    """What a message waits for, in words; the row needs ``store_timestamp_ms``."""
    queue = waiting.topics[0] if waiting.topics else topic
    if waiting.queue_id is not None:
        queue = f"{queue}:{waiting.queue_id}"
    place = f"{row['topic']}:{row['queue_id']} at {row['queue_offset']}"
    due = "" if waiting.due is None else f", delivery due {utc_text(waiting.due)}"
    stored = f"stored {utc_text(stored_at(row))}{due}"
    what = {
        "delayed": f"delayed message of {queue}",
        "timer": f"timer message of {queue}",
        "half": f"half message of {queue}",
        "retried": f"to be consumed again, in {place}",
        "dead": f"dead letter in {place}",
    }[waiting.kind]
    return f"{what}: {stored}"
