"""``query --scan``: messages that are looked for in the log itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.store_builder import ROLLBACK, LogBuilder

from jobs.contract.options import QueryOptions
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore
from jobs.spark.runner import Runner


def scan(root: Path, kind: Any, **more: Any) -> list[int]:
    """The commit-log offsets of what ``query --scan`` answers."""
    options = QueryOptions(store=str(root), kind=kind, topic="T", scan=True, **more)
    answer = {"key": query.by_key, "offset": query.by_offset}[kind]
    return [
        row["commit_log_offset"] for row in answer(options, OfflineStore(open_store(options)), Runner())["messages"]
    ]


def test_messages_before_the_time_take_no_room(tmp_path: Path) -> None:
    log = LogBuilder()
    placed = [log.message(topic="T", keys="k") for _ in range(100)]
    root = log.write(tmp_path)
    times = [one.message.store_timestamp for one in placed]
    offsets = [one.offset for one in placed]
    assert scan(root, "key", key="k") == offsets[:64]
    assert scan(root, "key", key="k", begin=times[70]) == offsets[70:]
    assert scan(root, "key", key="k", begin=times[70], end=times[71]) == offsets[70:72]
    assert scan(root, "key", key="k", end=times[1], max_messages=1) == offsets[:1]
    assert scan(root, "key", key="other") == []


def test_messages_without_a_place_in_a_queue_take_no_room(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(70):
        log.message(topic="T", sys_flag=ROLLBACK)
    placed = log.message(topic="T")
    assert scan(log.write(tmp_path), "offset", queue_id=0, offset=0) == [placed.offset]


def test_messages_of_other_topics_take_no_room(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(70):
        log.message(topic="Other", keys="k")
    placed = log.message(topic="T", keys="k")
    assert scan(log.write(tmp_path), "key", key="k") == [placed.offset]
