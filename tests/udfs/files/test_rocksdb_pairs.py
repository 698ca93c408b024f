"""Parquet files of the pairs of RocksDB queues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from storeformat.queues import consume_queue
from udfs.files.file_rows import FileRows
from udfs.files.output_files import OutputDirectory
from udfs.files.rocksdb_pairs import PlannedPairsFile, QueueEnds, UnitSlice, WritePairs, end_pairs


def test_a_unit_lies_under_its_queue_offset(tmp_path: Path) -> None:
    units, times = tmp_path / "s.units", tmp_path / "s.times"
    units.write_bytes(consume_queue.pack_units([500, 600, 700], [91, 92, 93], [7, -8, 9]).tobytes())
    times.write_bytes(np.array([11, 12, 13], "<i8").tobytes())
    file = PlannedPairsFile("rocksdb/0", (UnitSlice("T", 3, 40, str(units), str(times), 1, 2),))
    write = WritePairs(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")))
    (row,) = FileRows.of(write(iter([file])))
    assert (row.path, row.count, row.offset_sum) == ("rocksdb/0", 2, 1300)
    first, second = pq.read_table(tmp_path / "made" / "rocksdb" / "0").to_pylist()
    assert first["key"] == bytes.fromhex("00000001 01 54 01 00000003 01 0000000000000028")
    assert first["value"] == bytes.fromhex("0000000000000258 0000005c fffffffffffffff8 000000000000000c")
    assert (second["queue_offset"], second["phy_offset"], second["tags_code"]) == (41, 700, 9)
    assert row.content.size == row.content.data_size == (tmp_path / "made" / "rocksdb" / "0").stat().st_size


def test_ends_of_queues_and_of_dispatch() -> None:
    rows = end_pairs([QueueEnds("T", 3, first=(40, 600), last=(41, 700))], dispatched=793).to_pylist()
    assert [row["key"] for row in rows] == [
        bytes.fromhex("00000001 01 54 01") + b"max" + bytes.fromhex("01 00000003"),
        bytes.fromhex("00000001 01 54 01") + b"min" + bytes.fromhex("01 00000003"),
        bytes.fromhex("00000010 01") + b"CHECKPOINT_TOPIC" + b"\x01max\x01" + bytes(4),
    ]
    assert [row["value"].hex() for row in rows] == [f"{700:016x}{41:016x}", f"{600:016x}{40:016x}", f"{793:016x}"]
    assert {row["family"] for row in rows} == {"offset"}
    columns = ("topic", "queue_id", "queue_offset", "phy_offset", "size", "tags_code", "store_timestamp")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("T", 3, 41, 700, None, None, None),
        ("T", 3, 40, 600, None, None, None),
        ("CHECKPOINT_TOPIC", 0, None, None, None, None, None),
    ]
