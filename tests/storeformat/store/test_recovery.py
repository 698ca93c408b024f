"""What each release dispatches again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import LogBuilder

from storeformat.log.segments import Segment
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import rules_of
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.recovery import NEVER, Redispatch, looks_from, redispatch

SIZE = 1024
T0 = 1_700_000_000_000


@pytest.fixture
def segments(tmp_path: Path) -> list[Segment]:
    """Fifteen segments; that of number n begins at T0 + 10,000 n."""
    log = LogBuilder(SIZE)
    for number in range(15):
        log.message(store_timestamp=T0 + 10_000 * number)
        if number < 14:
            log.blank()
    log.write(tmp_path)
    return [Segment(str(path), int(path.name), SIZE) for path in sorted((tmp_path / "commitlog").iterdir())]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.6", Redispatch(7000)), ("4.9", Redispatch(7000)), ("5.0", Redispatch(NEVER)), ("5.1", Redispatch(NEVER)),
     ("5.3", Redispatch(NEVER)), ("5.5", Redispatch(7000, 7000))],
)  # fmt: skip
def test_after_a_clean_stop(segments: list[Segment], version: str, expected: Redispatch) -> None:
    page, settings = StoreCheckpoint(), BrokerConf()
    assert redispatch(segments, page, rules_of(version), settings, 7000, after_crash=False) == expected


@pytest.mark.parametrize(
    ("version", "number"), [("4.6", 12), ("4.9", 12), ("5.0", 12), ("5.1", 12), ("5.3", 7), ("5.5", 7)]
)
def test_where_a_start_after_a_clean_stop_begins_to_read(segments: list[Segment], version: str, number: int) -> None:
    """The furthest queue ends in segment 7 of 15."""
    read = looks_from(segments, rules_of(version), BrokerConf(), 7 * SIZE + 9, after_crash=False)
    assert read == number * SIZE


@pytest.mark.parametrize(
    ("version", "count", "furthest", "given", "number"),
    [
        ("5.1", 2, -1, {}, 0),
        ("5.1", 4, -1, {}, 1),
        ("5.3", 15, -1, {}, 0),
        ("5.3", 15, 7 * SIZE, {}, 7),
        ("5.3", 15, 7 * SIZE - 1, {}, 6),
        ("5.3", 15, 14 * SIZE, {}, 12),
        ("5.5", 15, 14 * SIZE, {}, 14),
        ("5.5", 15, 2 * SIZE, {}, 5),
        ("5.5", 15, 14 * SIZE, {"commitLogRecoverMaxNum": "0"}, 14),
        ("5.5", 15, 2 * SIZE, {"commitLogRecoverMaxNum": "0"}, 5),
        ("5.5", 15, 2 * SIZE, {"commitLogRecoverMaxNum": "1"}, 14),
        ("5.5", 15, 14 * SIZE, {"storeType": "DefaultRocksDB"}, 0),
        *(
            ("5.5", 15, 14 * SIZE, {name: "true"}, 5)
            for name in ("messageIndexSafe", "transRocksDBEnable", "indexRocksDBEnable", "timerRocksDBEnable")
        ),
    ],
)
def test_where_a_start_begins_to_read(
    segments: list[Segment], version: str, count: int, furthest: int, given: dict[str, str], number: int
) -> None:
    settings, rules = BrokerConf(given), rules_of(version)
    assert looks_from(segments[:count], rules, settings, furthest, after_crash=False) == number * SIZE
    assert looks_from(segments[1:], rules, settings, furthest, after_crash=True) == SIZE


def test_without_segments_nothing_is_read() -> None:
    rules = rules_of("5.5")
    assert looks_from([], rules, BrokerConf(), -1, after_crash=False) == 0
    assert redispatch([], StoreCheckpoint(), rules, BrokerConf(), -1, after_crash=True) == Redispatch(NEVER)


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_queues_that_end_before_the_log(segments: list[Segment], version: str) -> None:
    again = redispatch(segments[7:9], StoreCheckpoint(), rules_of(version), BrokerConf(), 100, after_crash=False)
    assert again == Redispatch(7 * SIZE, 100 if version == "5.5" else -1)


def test_ten_segments_at_most(segments: list[Segment]) -> None:
    rules, page = rules_of("5.5"), StoreCheckpoint()
    assert redispatch(segments, page, rules, BrokerConf(), -1, after_crash=False) == Redispatch(5 * SIZE)
    more = BrokerConf({"commitLogRecoverMaxNum": "12"})
    assert redispatch(segments, page, rules, more, -1, after_crash=True) == Redispatch(3 * SIZE)


def test_recheck_from_queues(segments: list[Segment]) -> None:
    settings = BrokerConf({"recheckReputOffsetFromCq": "true"})
    again = redispatch(segments, StoreCheckpoint(), rules_of("5.1"), settings, 7000, after_crash=False)
    assert again == Redispatch(7000)


@pytest.mark.parametrize(
    ("version", "page", "segment"),
    [
        ("5.3", StoreCheckpoint(), 0),
        ("5.3", StoreCheckpoint(T0 + 43_000, T0 + 60_000), 4),
        ("5.3", StoreCheckpoint(T0 + 42_999, T0 + 60_000), 3),
        ("5.3", StoreCheckpoint(T0 + 60_000, T0 + 43_000), 4),
        ("5.3", StoreCheckpoint(T0 + 12_999, T0 + 12_999), 0),
        ("5.3", StoreCheckpoint(T0 + 13_000, T0 + 13_000), 1),
        ("5.5", StoreCheckpoint(), 5),
        ("5.5", StoreCheckpoint(T0 + 93_000, T0 + 60_000), 6),
        ("5.5", StoreCheckpoint(0, T0 + 79_999), 7),
        ("5.5", StoreCheckpoint(T0 + 93_000, T0 + 93_000, logics_physical_offset=6 * SIZE - 1), 5),
        ("5.5", StoreCheckpoint(0, 0, logics_physical_offset=1), 5),
        ("5.5", StoreCheckpoint(0, 0, logics_physical_offset=6 * SIZE), 6),
        ("5.5", StoreCheckpoint(0, T0 + 80_000), 8),
        ("5.5", StoreCheckpoint(0, T0 + 80_000, logics_physical_offset=6 * SIZE + 3), 6),
        ("5.5", StoreCheckpoint(0, T0 + 80_000, logics_physical_offset=9_999_999), 14),
    ],
)
def test_after_a_crash(segments: list[Segment], version: str, page: StoreCheckpoint, segment: int) -> None:
    found = redispatch(segments, page, rules_of(version), BrokerConf(), 7000, after_crash=True)
    assert found == Redispatch(segment * SIZE)


def test_the_index_may_hold_it_back(segments: list[Segment]) -> None:
    page = StoreCheckpoint(T0 + 90_000, T0 + 90_000, T0 + 20_000)
    settings = BrokerConf({"messageIndexSafe": "true"})
    assert redispatch(segments, page, rules_of("5.3"), settings, 7000, after_crash=True) == Redispatch(2 * SIZE)


def test_segments_of_zeros_are_passed_over(segments: list[Segment]) -> None:
    page = StoreCheckpoint(T0 + 99_000, T0 + 99_000)
    assert redispatch(segments, page, rules_of("5.3"), BrokerConf(), 7000, after_crash=True) == Redispatch(9 * SIZE)
    Path(segments[9].path).write_bytes(bytes(SIZE))
    assert redispatch(segments, page, rules_of("5.3"), BrokerConf(), 7000, after_crash=True) == Redispatch(8 * SIZE)


def test_what_is_covered() -> None:
    again = Redispatch(100, 100)
    assert [again.covers(offset) for offset in (99, 100, 101)] == [False, False, True]
