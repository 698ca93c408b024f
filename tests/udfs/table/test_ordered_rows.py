"""Records collected from many blocks become rows in the order of date, topic, queue and log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import messages_model
from support.store_builder import LogBuilder, Message

from storeformat.log.segments import Segment, Split
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.record.dispatch import DispatchRules
from udfs.table import ordered_rows, schemas
from udfs.table.ordered_rows import OrderedRows
from udfs.table.proven_ranges import ProvenRange, proven_blocks
from udfs.table.rows import RowRules, record_batch

DAY = 86_400_000
COLUMNS = ("store_date", "topic", "body", "queue_id", "commit_log_offset", "keys", "uniq_key", "born_host",
           "store_host", "offset_msg_id", "properties")  # fmt: skip
RULES = RowRules(DispatchRules(()), columns=COLUMNS)
HOSTS = (("10.0.0.1", 1), ("fe80::2", 70000))


def blocks(log: LogBuilder, tmp_path: Path, rules: RowRules, block_size: int) -> Iterator[RecordBlock]:
    (path,) = (log.write(tmp_path / "store") / "commitlog").iterdir()
    segment = Segment(str(path), 0, path.stat().st_size)
    proven = ProvenRange(Split(0, segment, 0, log.end_offset, log.end_offset, 0), len(log.records))
    yield from proven_blocks(proven, DecodeRules(properties=rules.properties), block_size)


def a_log(*rows: tuple[str, int, int]) -> LogBuilder:
    """Records of topic, queue id and day, each with keys, hosts and a body of its own; day 99 is no date."""
    log = LogBuilder(1 << 16)
    for number, (topic, queue_id, day) in enumerate(rows):
        time = 1 << 62 if day == 99 else day * DAY
        log.message(
            Message(topic=topic, queue_id=queue_id, store_timestamp=time, body=b"body %d" % number),
            keys=f"k{number}", uniq_key=None if number % 3 else f"u{number}",
            born_host=HOSTS[number % 2], store_host=HOSTS[number // 2 % 2],
        )  # fmt: skip
    return log


ROWS = [("B", 1, 1), ("A", 2, 0), ("B", 0, 99), ("A", 1, 1), ("B", 1, 0), ("A", 2, 0), ("AA", 0, 0), ("A", 10, 1)]


def said(table: pa.Table) -> list[dict[str, Any]]:
    return [{**row, "properties": dict(row["properties"])} for row in table.to_pylist()]


def in_order(log: LogBuilder, *sorted_by: str) -> list[dict[str, Any]]:
    """The rows as they should be, made from what was written."""
    rows = []
    for number, placed in enumerate(log.records):
        message = placed.message
        (born, born_port), (stored, store_port) = message.born_host, message.store_host
        keys = {"KEYS": f"k{number}"} | ({} if number % 3 else {"UNIQ_KEY": f"u{number}"})
        day = None if message.store_timestamp == 1 << 62 else (message.store_timestamp or 0) // DAY
        address = "FE800000000000000000000000000002" if ":" in stored else "0A000001"
        rows.append({
            "store_date": None if day is None else date(1970, 1, 1 + day),
            "topic": message.topic, "body": b"body %d" % number, "queue_id": message.queue_id,
            "commit_log_offset": placed.offset,
            "keys": [f"k{number}"], "uniq_key": keys.get("UNIQ_KEY"),
            "born_host": f"[{born}]:{born_port}" if ":" in born else f"{born}:{born_port}",
            "store_host": f"[{stored}]:{store_port}" if ":" in stored else f"{stored}:{store_port}",
            "offset_msg_id": f"{address}{store_port:08X}{placed.offset:016X}",
            "properties": keys,
        })  # fmt: skip
    order = {"store_date": lambda row: (row["store_date"] is None, row["store_date"] or date.min)}
    return sorted(rows, key=lambda row: [order.get(name, lambda row, name=name: row[name])(row) for name in sorted_by])


@pytest.mark.parametrize("block_size", [200, 700, 1 << 20])
@pytest.mark.parametrize("encoded", [False, True])
def test_rows_are_in_order_and_whole(tmp_path: Path, block_size: int, encoded: bool) -> None:
    log, rules = a_log(*ROWS), replace(RULES, encoded=encoded)
    rows = OrderedRows(rules)
    for block in blocks(log, tmp_path, rules, block_size):
        rows.add(block)
    assert rows.rows == len(ROWS)
    table = rows.chunk()
    assert table.schema.names == list(COLUMNS)
    assert said(table) == in_order(log, "store_date", "topic", "queue_id", "commit_log_offset")
    assert (rows.rows, rows.size) == (0, 0)


@pytest.mark.parametrize(
    ("without", "sorted_by"),
    [
        ("store_date", ("topic", "queue_id", "commit_log_offset")),
        ("topic", ("store_date", "commit_log_offset")),
        ("queue_id", ("store_date", "commit_log_offset")),
    ],
)
def test_what_is_no_column_is_no_order(tmp_path: Path, without: str, sorted_by: tuple[str, ...]) -> None:
    log = a_log(*ROWS)
    rows = OrderedRows(replace(RULES, columns=tuple(name for name in COLUMNS if name != without)))
    for block in blocks(log, tmp_path, rows.rules, 700):
        rows.add(block)
    expected = [{name: value for name, value in row.items() if name != without} for row in in_order(log, *sorted_by)]
    assert said(rows.chunk()) == expected


@pytest.mark.parametrize("ordered", [[("A", 0, 0), ("A", 1, 0), ("B", 0, 0)], [("A", 0, 0)] * 3, [("A", 3, 2)]])
def test_records_in_order_stay_as_they_are(tmp_path: Path, ordered: list[tuple[str, int, int]]) -> None:
    log, rows = a_log(*ordered), OrderedRows(RULES)
    for block in blocks(log, tmp_path, RULES, 1 << 20):
        rows.add(block)
    assert said(rows.chunk()) == in_order(log, "commit_log_offset")


def test_a_second_chunk_has_nothing_of_the_first(tmp_path: Path) -> None:
    log, rows, chunks = a_log(*ROWS), OrderedRows(RULES), []
    for block in blocks(log, tmp_path, RULES, 700):
        rows.add(block)
        chunks += said(rows.chunk())
    assert sorted(row["commit_log_offset"] for row in chunks) == [placed.offset for placed in log.records]
    assert sorted(chunks, key=lambda row: int(row["commit_log_offset"])) == in_order(log, "commit_log_offset")


def test_foreign_records_are_no_rows(tmp_path: Path) -> None:
    log = a_log(("A", 0, 0), ("B", 0, 0))
    log.foreign_record(log.records[0])
    rows = OrderedRows(RULES)
    (block,) = blocks(log, tmp_path, RULES, 1 << 20)
    assert len(block) == 3
    rows.add(block)
    rows.add(block.take(np.array([2])))
    assert rows.rows == 2
    assert len(rows._blocks) == 1
    assert said(rows.chunk()) == in_order(log, "commit_log_offset")


def test_a_chunk_is_full_by_its_rows_or_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks(a_log(*ROWS), tmp_path, RULES, 1 << 20)
    rows = OrderedRows(RULES)
    rows.add(block)
    alone = record_batch(block, RULES)["body"]
    # Fixed fields, hosts and properties, and bodies, each with offsets of four bytes.
    assert rows.size >= len(ROWS) * 120 + alone.nbytes
    assert not rows.is_full
    for name, most in (("_CHUNK_ROWS", rows.rows), ("_CHUNK_BYTES", rows.size)):
        with monkeypatch.context() as patch:
            patch.setattr(ordered_rows, name, most + 1)
            assert not rows.is_full
            patch.setattr(ordered_rows, name, most)
            assert rows.is_full


def by_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["commit_log_offset"]))


@pytest.mark.parametrize("seed", range(12))
def test_the_ends_of_runs(tmp_path: Path, seed: int) -> None:
    """Over days; some messages go to no queue, some have many numbers of theirs, some no time."""
    random = Random(seed)
    log, number = LogBuilder(1 << 16), {queue: random.choice((0, 5)) for queue in "ABC"}
    for _ in range(120):
        topic = random.choice("ABC" if seed % 2 else "A")
        batch = random.choice((0, 0, 0, 3))
        given = {"INNER_NUM": str(batch), "INNER_BASE": str(number[topic])} if batch else {}
        log.message(
            topic=topic, queue_id=0, queue_offset=number[topic], properties=given,
            sys_flag=4 if random.random() < 0.1 else 0,
            store_timestamp=1 << 62 if random.random() < 0.05 else random.randint(0, seed) * DAY // 4,
        )  # fmt: skip
        number[topic] += (batch or 1) + random.choice((0, 0, 0, 0, 0, 0, 1, -2))
    rules = RowRules(DispatchRules(()))
    rows, plain = OrderedRows(rules), []
    for block in blocks(log, tmp_path, rules, 700):
        plain += record_batch(block, rules).to_pylist()
        rows.add(block)
    assert {row[name] for row in plain for name in schemas.RUNS} == {None}
    messages_model.mark_runs(plain)
    found = rows.chunk().to_pylist()
    assert by_offset(found) == plain
    assert [row["queue_run"] for row in by_offset(found)].count(1) > 2
