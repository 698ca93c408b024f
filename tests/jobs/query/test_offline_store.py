"""Rows as a person sees them."""

from __future__ import annotations

import zlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.store_builder import LogBuilder
from support.store_to_start import finished

from jobs.contract.options import LogOptions
from jobs.log.opening import open_store
from jobs.query import offline_store
from jobs.query.offline_store import OfflineStore, plain_row
from storeformat.errors import MissingInput


@pytest.mark.parametrize(
    ("stored", "flag", "shown"),
    [
        (b"order 4711", 0x0, "order 4711"),
        (zlib.compress(b"order 4711"), 0x1, "order 4711"),
        (b"no zlib", 0x1, "no zlib"),
        (None, 0x1, None),
    ],
)
def test_a_body_is_shown_as_the_producer_had_it(stored: bytes | None, flag: int, shown: str | None) -> None:
    assert plain_row({"store_timestamp": None, "sys_flag": flag, "body": stored})["body"] == shown


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(4096)
    for number in range(40):
        log.message(topic="T", queue_id=1, body=bytes(100), keys=f"k{number}")
    return log


@pytest.fixture
def root(log: LogBuilder, tmp_path: Path) -> Path:
    return finished(tmp_path / "store", log).root


def offline(root: Path) -> OfflineStore:
    sizes = (("maxHashSlotNum", "100"), ("maxIndexNum", "60"))
    return OfflineStore(open_store(LogOptions(store=str(root), settings=sizes)))


def test_a_unit_is_found_from_the_first_of_each_file_to_the_last(root: Path, log: LogBuilder) -> None:
    assert len(list((root / "consumequeue" / "T" / "1").iterdir())) > 1
    store = offline(root)
    expected = [(placed.offset, placed.size) for placed in log.records]
    assert [store.unit_at("T", 1, number) for number in range(-1, 41)] == [None, *expected, None]


def test_a_queue_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(MissingInput) as error:
        offline(root).unit_at("T", 7, 0)
    assert error.value.path == str(root / "consumequeue" / "T" / "7")


def test_what_is_no_index_file_is_passed_over(root: Path) -> None:
    there = [header for header, _ in offline(root).index_files()]
    assert there
    (root / "index" / "20240101000000000.tmp").write_bytes(b"draft")
    (root / "index" / "20240101000000000").mkdir()
    assert [header for header, _ in offline(root).index_files()] == there


def test_a_record_is_found_at_its_offset_alone(root: Path, log: LogBuilder) -> None:
    store = offline(root)
    placed = log.records[5]
    row = store.record_at(placed.offset)
    assert row is not None
    assert (row["commit_log_offset"], row["keys"], row["queue_offset"], "body" in row) == (
        placed.offset, ["k5"], 5, False,
    )  # fmt: skip
    with_body = store.record_at(placed.offset, bodies=True)
    assert with_body is not None
    assert with_body["body"] == "\0" * 100
    for offset in (placed.offset + 1, -1, log.records[-1].end, 1 << 40):
        assert store.record_at(offset) is None


def test_a_store_time_is_that_of_a_record_that_ends_in_its_segment(root: Path, log: LogBuilder) -> None:
    store = offline(root)
    placed = log.records[5]
    to_end = 4096 - placed.offset
    assert [store.store_time(placed.offset, size) for size in (placed.size, to_end, to_end + 1)] == [
        placed.message.store_timestamp, placed.message.store_timestamp, -1,
    ]  # fmt: skip
    assert store.store_time(1 << 40, 10) == -1


def test_units_are_given_from_a_queue_offset_on(root: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    store = offline(root)
    for begin in (0, 1, 19, 20, 21, 39, 40):
        parts = list(store.units("T", 1, begin))
        found = [offset for part in parts for offset in part.offsets.tolist()]
        assert found == [placed.offset for placed in log.records[begin:]]
    monkeypatch.setattr(offline_store, "_UNITS_AT_A_TIME", 7)
    assert {len(part.offsets) for part in store.units("T", 1)} == {7, 6}


@pytest.mark.parametrize(
    ("sizes", "parts"), [([], [0]), ([99, 1], [1, 1]), ([98, 1], [2]), ([50, 60, 300, 5, 5], [1, 1, 3]), ([500], [1])]
)
def test_records_are_read_some_bytes_at_a_time(
    sizes: list[int], parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_store, "_BYTES_AT_A_TIME", 100)
    units = list(offline_store.bounded(np.arange(len(sizes)), np.array(sizes, np.int64)))
    assert [len(part.sizes) for part in units] == parts
    assert [size for part in units for size in part.sizes.tolist()] == sizes
    assert [at for part in units for at in part.offsets.tolist()] == list(range(len(sizes)))


def test_a_file_is_read_as_a_broker_maps_it(tmp_path: Path) -> None:
    """Zeros after its end, nothing after what is mapped."""
    (tmp_path / "f").write_bytes(b"abcdef")
    wanted = {(0, 3): b"abc", (4, 3): b"ef\0", (6, 2): b"\0\0", (8, 5): b"\0\0", (10, 5): b"", (12, 1): b""}
    assert {place: offline_store._read_mapped(str(tmp_path / "f"), 10, *place) for place in wanted} == wanted


@pytest.mark.parametrize(
    ("row", "keys"),
    [
        ({"uniq_key": "u", "keys": ["a", "b"]}, {"u", "a", "b"}),
        ({"uniq_key": None, "keys": None}, set()),
        ({"uniq_key": "u", "keys": []}, {"u"}),
    ],
)
def test_a_key_is_one_of_the_rows_own(row: dict[str, Any], keys: set[str]) -> None:
    assert {key for key in ("u", "a", "b", "ab", "") if offline_store.has_key(row, key)} == keys


def test_a_row_as_json_holds_it() -> None:
    moment = datetime(2024, 5, 30, 7, 0, 0, 1499, timezone.utc)
    assert plain_row({
        "store_timestamp": moment, "store_date": moment.date(), "keys": ["a"], "none": [], "number": 7,
        "properties": [("a", "1"), ("b", "2")], "raw": b"a\xff",
    }) == {
        "store_timestamp_ms": 1717052400001, "store_timestamp": "2024-05-30T07:00:00.001+00:00",
        "store_date": "2024-05-30", "keys": ["a"], "none": [], "number": 7, "properties": {"a": "1", "b": "2"},
        "raw": "a\\xff",
    }  # fmt: skip
