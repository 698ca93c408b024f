"""The peer: a commit log into a Delta table as one would write it in an hour, with struct, pyarrow and delta-rs.

One process, records decoded one by one, no CRC looked at, no chain proven, no damage known, nothing loaded just once.
"""

from __future__ import annotations

import mmap
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

HEAD = struct.Struct(">iiIiiqqiq4siq4siiq")
BLANK = -875286124
BATCH = 200_000
SCHEMA = pa.schema([
    ("commit_log_offset", pa.int64()), ("size", pa.int32()), ("topic", pa.string()), ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()), ("tags", pa.string()), ("keys", pa.list_(pa.string())), ("uniq_key", pa.string()),
    ("flag", pa.int32()), ("sys_flag", pa.int32()), ("reconsume_times", pa.int32()),
    ("prepared_transaction_offset", pa.int64()), ("born_timestamp", pa.timestamp("us", "UTC")),
    ("born_host", pa.string()), ("store_timestamp", pa.timestamp("us", "UTC")), ("store_host", pa.string()),
    ("body_crc", pa.int32()), ("body_size", pa.int32()), ("properties", pa.map_(pa.string(), pa.string())),
    ("magic_code", pa.int32()),
])  # fmt: skip


def records(data: mmap.mmap) -> Iterator[tuple[Any, ...]]:
    at = 0
    while at + HEAD.size < len(data):
        (
            size, magic, crc, queue_id, flag, queue_offset, offset, sys_flag, born, born_ip, born_port, stored,
            store_ip, store_port, reconsumed, prepared,
        ) = HEAD.unpack_from(data, at)  # fmt: skip
        if size == 0 or magic == BLANK:
            return
        body_at = at + HEAD.size + 4
        body_size = int.from_bytes(data[body_at - 4 : body_at], "big")
        topic_at = body_at + body_size
        topic_end = topic_at + 1 + data[topic_at]
        properties_size = int.from_bytes(data[topic_end : topic_end + 2], "big")
        text = data[topic_end + 2 : topic_end + 2 + properties_size].decode()
        properties = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        yield (
            offset, size, data[topic_at + 1 : topic_end].decode(), queue_id, queue_offset, properties.get("TAGS"),
            properties.get("KEYS", "").split(), properties.get("UNIQ_KEY"), flag, sys_flag, reconsumed, prepared,
            born * 1000, f"{socket.inet_ntoa(born_ip)}:{born_port}",
            stored * 1000, f"{socket.inet_ntoa(store_ip)}:{store_port}", crc, body_size, list(properties.items()),
            magic,
        )  # fmt: skip
        at += size


def batches(store: Path) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    for segment in sorted((store / "commitlog").iterdir()):
        with segment.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for row in records(data):
                rows.append(row)
                if len(rows) == BATCH:
                    yield batch(rows)
                    rows = []
    if rows:
        yield batch(rows)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def main(store: str, table: str) -> None:
    begun = time.monotonic()
    write_deltalake(table, pa.RecordBatchReader.from_batches(SCHEMA, batches(Path(store))))
    print(f"{time.monotonic() - begun:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
