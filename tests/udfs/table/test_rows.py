"""Rows of the table ``messages`` against a slow decoder, on the logs of real brokers and on drawn ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import broker_model, golden, messages_model, strategies
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.store_builder import LogBuilder

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.segments import LogPart, Segment, plan_splits
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules, parse_delay_levels
from storeformat.storage import files
from storeformat.store.broker_rules import rules_of
from udfs.table import schemas
from udfs.table.rows import RowRules, record_batch

ALL = tuple(schemas.MESSAGES_WITH_BODY.names)
DELAYS = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


def batches(
    root: Path, rules: RowRules, *, until: int | None = None, block_size: int = 4096
) -> Iterator[pa.RecordBatch]:
    """The rows of every segment of a log, walked from its first byte."""
    paths = sorted((root / "commitlog").iterdir())
    segments = [Segment(str(path), int(path.name), path.stat().st_size) for path in paths]
    for split in plan_splits(segments, 1 << 40, LogPart(until=until)):
        with files.RangeReader(split.segment.path) as reader:
            decode = DecodeRules(check_crc=False, split_parser=rules.split_parser, properties=rules.properties)
            for block in ChainWalk(BlockWindow(reader, split.segment), split, split.start, decode, block_size):
                yield record_batch(block, rules)


def rows(root: Path, rules: RowRules, **more: Any) -> list[dict[str, Any]]:
    found = [batch for batch in batches(root, rules, **more) if len(batch)]
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(schemas.select(rules.columns))
    return [_with_dicts(row) for batch in found for row in batch.to_pylist()]


def _with_dicts(row: dict[str, Any]) -> dict[str, Any]:
    if "properties" in row:
        pairs = row["properties"]
        row["properties"] = dict(pairs)
        assert len(row["properties"]) == len(pairs), "a name occurs twice in a map"
    return row


def rules_for(version: tuple[int, ...], delays: Sequence[int] = DELAYS, **more: Any) -> RowRules:
    name = ".".join(map(str, version[:2]))
    rules = rules_of("5.5" if version >= (5, 4) else name if name in ("4.6", "4.9", "5.1", "5.3") else "5.3")
    return RowRules(DispatchRules(tuple(delays), index_tags=rules.index_tags), rules.split_parser, **more)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("store", "zone"),
    [
        pytest.param(store, zone, id=f"{store}-{zone}", marks=() if number % 2 == at else pytest.mark.slow)
        for number, store in enumerate(golden.stores())
        for at, zone in enumerate(("UTC", "Asia/Shanghai"))
    ],
)
def test_every_record_of_a_real_store(store: GoldenStore, zone: str) -> None:
    root = golden.unpack(store)
    broker = BrokerSettings.of(store.version, store.settings)
    rules = rules_for(
        store.version_tuple, tuple(broker.delays.values()), columns=ALL, time_zone=zone, cluster="c", broker="b"
    )
    expected = messages_model.rows(broker_model.read_segments(root), broker, until=store.end_offset, zone=zone)
    found = rows(root, rules, until=store.end_offset)
    assert found == [{"cluster": "c", "broker": "b", **row} for row in expected]
    assert len(found) == store.entry["counts"]["messages"]


@given(
    log=strategies.logs(strategies.LogShape(stale=False, odd_blanks=False)),
    split_parser=st.booleans(),
    block_size=st.integers(1, 9000),
)
@settings(max_examples=min(60, settings.default.max_examples))
def test_every_record_of_drawn_logs(
    tmp_path_factory: pytest.TempPathFactory, log: LogBuilder, split_parser: bool, block_size: int
) -> None:
    """Odd properties, malformed text and every time of 64 bits."""
    root = log.write(tmp_path_factory.mktemp("store"))
    version = (4, 9, 0) if split_parser else (5, 3, 3)
    broker = BrokerSettings(
        version=(4, 6, 1) if split_parser else version, mapped_file_size_commit_log=log.segment_size
    )
    rules = RowRules(DispatchRules(DELAYS), split_parser, columns=ALL)
    magic = {placed.offset for placed in log.records if len(placed.message.topic_bytes) > 127}
    if split_parser and magic:
        return
    expected = [{"cluster": None, "broker": None, **row} for row in messages_model.rows(log.segments, broker)]
    assert rows(root, rules, block_size=block_size) == expected


def one_log(tmp_path: Path, **fields: Any) -> Path:
    log = LogBuilder(1 << 16)
    log.message(topic="A")
    log.message(topic="A", **fields)
    return log.write(tmp_path)


def test_only_the_columns_asked_for_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of head columns looks at no property."""
    root = one_log(tmp_path, tags="t", keys="a b", uniq_key="u")
    assert rows(root, rules_for((5, 3), columns=("tags", "keys")))[1] == {"tags": "t", "keys": ["a", "b"]}

    def refuse(*unused: object) -> None:
        raise AssertionError("properties were looked at")

    for name in ("property_spans", "property_pieces"):
        monkeypatch.setattr(f"storeformat.kernels.numpy_kernels.{name}", refuse)
    columns = ("size", "topic", "store_timestamp", "store_host", "offset_msg_id", "body", "dispatched")
    assert [row["topic"] for row in rows(root, rules_for((5, 3), columns=columns))] == ["A", "A"]


@pytest.mark.parametrize("time", [-(1 << 63), (1 << 63) - 1, 253_402_300_800_000, -62_135_596_800_001])
def test_times_that_no_calendar_has(tmp_path: Path, time: int) -> None:
    root = one_log(tmp_path, store_timestamp=time, born_timestamp=time)
    row = rows(root, rules_for((5, 3), time_zone="Pacific/Kiritimati"))[1]
    assert (row["store_timestamp"], row["born_timestamp"], row["store_date"]) == (None, None, None)


@pytest.mark.parametrize(
    ("zone", "time", "day"),
    [
        ("Europe/Berlin", "2024-06-30T22:30", "2024-07-01"),
        ("Europe/Berlin", "2040-06-30T22:30", "2040-07-01"),  # after the last change that the zone's file lists
        ("Europe/Paris", "1911-03-10T23:55", "1911-03-10"),  # at 23:50:39 the clock went back by 9 min 21 s
        ("America/St_Johns", "1919-05-06T02:31", "1919-05-06"),  # at 02:30:52 it became midnight: summer time
        ("America/New_York", "2200-07-02T04:30", "2200-07-02"),
        ("Africa/Monrovia", "1972-01-07T00:44:29", "1972-01-06"),  # at 00:44:30 clocks were set to UTC
        ("Africa/Monrovia", "1972-01-07T00:44:30", "1972-01-07"),
    ],
)
def test_the_date_in_a_time_zone(tmp_path: Path, zone: str, time: str, day: str) -> None:
    milliseconds = int(datetime.fromisoformat(time + "+00:00").timestamp()) * 1000
    root = one_log(tmp_path, store_timestamp=milliseconds)
    assert rows(root, rules_for((5, 3), time_zone=zone))[1]["store_date"] == date.fromisoformat(day)


def test_a_property_that_occurs_twice_has_its_last_value(tmp_path: Path) -> None:
    properties = b"a\x01first\x02TAGS\x01x\x02a\x01last\x02TAGS\x01y\x02b\xff\x011\x02b\xfe\x012\x02"
    row = rows(one_log(tmp_path, properties=properties), rules_for((5, 3)))[1]
    assert row["properties"] == {"a": "last", "TAGS": "y", "b\ufffd": "2"}
    assert row["tags"] == "y"


def test_columns_and_their_order() -> None:
    """The contract with everybody who reads the table."""
    assert ", ".join(schemas.MESSAGES.names) == (
        "cluster, broker, store_date, commit_log_offset, size, topic, queue_id, queue_offset, tags, tags_code, keys, "
        "uniq_key, offset_msg_id, flag, sys_flag, transaction_type, reconsume_times, prepared_transaction_offset, "
        "born_timestamp, born_host, store_timestamp, store_host, body_crc, body_size, properties, magic_code, "
        "dispatched, salvaged, delay_level, timer_due, real_topic, inner_num, queue_run, log_run"
    )
    spark = schemas.to_spark(schemas.MESSAGES_WITH_BODY)
    assert spark.names == [*schemas.MESSAGES.names, "body"]
    assert all(field.metadata["comment"] for field in spark)
    assert set(schemas.STATISTICS_COLUMNS) <= set(schemas.MESSAGES.names)
