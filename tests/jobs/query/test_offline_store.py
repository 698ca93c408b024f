"""Rows as a person sees them."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from support.store_builder import LogBuilder
from support.store_to_start import finished

from jobs.contract.options import LogOptions
from jobs.log.opening import open_store
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
