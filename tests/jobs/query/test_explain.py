"""Why the index does not lead to a message: each reason, and where one ends and the next begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder, Placed

from jobs.contract.options import QueryOptions
from jobs.log.opening import open_store
from jobs.query.explain import explain_key
from jobs.query.offline_store import OfflineStore, stored_at

SIZES = {"maxHashSlotNum": 10, "maxIndexNum": 20}
OUTSIDE = "stored outside of the time that was asked for"
LAGS = "the index lags: it ends before this message (rebuild --only index)"
LATE = "the index starts after this message: its file has expired or was lost (rebuild --only index)"


def reason(row: dict[str, Any], *, headers: Any = ((100, 200), (200, 300)), enabled: bool = True) -> str:
    """What is said of a row where nothing is in the index files; each of these begins and ends at an offset."""

    def read(position: int, length: int) -> bytes:
        return bytes(length)

    found = [(SimpleNamespace(begin_phy_offset=begin, end_phy_offset=end, entries=0), read) for begin, end in headers]
    layout = SimpleNamespace(writes_index_files=enabled, max_hash_slot_num=10)
    offline: Any = SimpleNamespace(
        store=SimpleNamespace(layout=layout), index_files=lambda: found, min_phy_offset=0
    )  # fmt: skip
    stored = {
        "commit_log_offset": 150, "transaction_type": "none", "store_timestamp_ms": 2000, "topic": "T", **row,
    }  # fmt: skip
    options = QueryOptions(store="S", kind="key", topic="T", key="k", begin=1000, end=3000)
    (answer,) = explain_key(options, offline, [stored], {7})
    assert answer["commit_log_offset"] == stored["commit_log_offset"]
    return str(answer["reason"])


LINKED = "its entry is there and linked: --max newer entries have its hash, or its second is outside of the range"
UNLINKED = "its entry is there, but the chain of its slot does not lead to it (rebuild --only index)"
NO_ENTRY = "the index covers its offset but has no entry for it (rebuild --only index)"


@pytest.mark.parametrize(
    ("row", "more", "says"),
    [
        ({"waits_for": "half message", "commit_log_offset": 7}, {}, "half message"),
        ({"commit_log_offset": 7, "transaction_type": "rollback"}, {}, "found"),
        ({"transaction_type": "rollback"}, {"enabled": False}, "never indexed: a rolled back message"),
        ({}, {"enabled": False, "headers": ()}, "never indexed: messageIndexEnable or indexFileWriteEnable is false"),
        ({"store_timestamp_ms": 999}, {"headers": ()}, OUTSIDE),
        ({"store_timestamp_ms": 1000}, {}, NO_ENTRY),
        ({"store_timestamp_ms": 3000}, {}, NO_ENTRY),
        ({"store_timestamp_ms": 3001}, {}, OUTSIDE),
        ({}, {"headers": ()}, "the store has no index: rebuild --only index"),
        ({"commit_log_offset": 99}, {}, LATE),
        ({"commit_log_offset": 100}, {}, NO_ENTRY),
        ({"commit_log_offset": 300}, {}, NO_ENTRY),
        ({"commit_log_offset": 301}, {}, LAGS),
    ],
)
def test_each_reason_has_its_range(row: dict[str, Any], more: dict[str, Any], says: str) -> None:
    assert reason(row, **more) == says


def test_a_row_without_a_time_was_stored_at_its_beginning() -> None:
    assert [stored_at({"store_timestamp_ms": at}) for at in (None, 0, 5)] == [0, 0, 5]


@pytest.fixture
def indexed(tmp_path: Path) -> tuple[OfflineStore, list[Placed]]:
    """A store with an index file of three entries, and a second with one."""
    log = LogBuilder()
    records = [log.message(topic="T", keys=key) for key in ("k", "other", "k", "last")]
    root = log.write(tmp_path / "store")
    sizes = {**SIZES, "maxIndexNum": 4}  # the first number is no entry's
    built = Path(rebuild_here(root, tmp_path / "work", sizes, only=("index",)).directory)
    (built / "index").rename(root / "index")
    settings = tuple((name, str(size)) for name, size in sizes.items())
    return OfflineStore(open_store(QueryOptions(store=str(root), settings=settings, kind="key"))), records


@pytest.mark.parametrize(
    ("number", "key", "says"),
    [
        (0, "k", LINKED),
        (2, "k", LINKED),
        (3, "last", LINKED),
        (1, "k", NO_ENTRY),
        (0, "other", NO_ENTRY),
    ],
)  # fmt: skip
def test_an_entry_is_looked_for_in_all_files(
    indexed: tuple[OfflineStore, list[Placed]], number: int, key: str, says: str
) -> None:
    store, records = indexed
    assert len(store.index_files()) == 2
    row = {
        "commit_log_offset": records[number].offset, "transaction_type": "none", "store_timestamp_ms": 5, "topic": "T",
    }  # fmt: skip
    options = QueryOptions(store="S", kind="key", topic="T", key=key)
    assert explain_key(options, store, [row], set()) == [
        {"commit_log_offset": row["commit_log_offset"], "reason": says}
    ]


def test_an_entry_that_no_slot_leads_to(indexed: tuple[OfflineStore, list[Placed]]) -> None:
    store, records = indexed
    for path in Path(store.store.root, "index").iterdir():
        content = bytearray(path.read_bytes())
        content[40:80] = bytes(40)
        path.write_bytes(content)
    rows = [
        {"commit_log_offset": placed.offset, "transaction_type": "none", "store_timestamp_ms": 5, "topic": "T"}
        for placed in records
    ]
    options = QueryOptions(store="S", kind="key", topic="T", key="k")
    found = explain_key(options, store, rows, set())
    assert [row["reason"] for row in found] == [UNLINKED, NO_ENTRY, UNLINKED, NO_ENTRY]
