"""Export of message rows as Parquet or JSON lines, where a UTF-8 body is ``body``, any other ``body_base64``."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.query.offline_store import plain_row
from storeformat.errors import Refused, UsageError
from storeformat.storage import files, local_files, locations

SUFFIXES = (".jsonl", ".parquet")


def check_target(path: str) -> None:
    """Refuse a name without a known suffix, or an existing file."""
    if not path.endswith(SUFFIXES):
        raise UsageError("--export takes a file that ends in .jsonl or .parquet", found=path)
    if files.exists(path):
        raise Refused("the file of --export exists", path=path, advice="move it away, or name another one")


def export(path: str, tables: Iterable[pa.Table]) -> int:
    """Write rows and return their number; after a failure there is no file."""
    whole = local_files.replacing(locations.local_path(path)) if locations.is_local(path) else files.FileWriter(path)
    with files.writing(path), whole as writer:
        return _write_parquet(writer, tables) if path.endswith(".parquet") else _write_lines(writer, tables)


def _write_lines(writer: files.FileWriter | BinaryIO, tables: Iterable[pa.Table]) -> int:
    count = 0
    for table in tables:
        for row in table.to_pylist():
            line = json.dumps(_json_row(row), ensure_ascii=False, default=str) + "\n"
            writer.write(line.encode("utf-8", "backslashreplace"))
        count += table.num_rows
    return count


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    body = row.pop("body", None)
    shown = plain_row(row)
    if body is not None:
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = base64.b64encode(body).decode()
    return shown


def _write_parquet(writer: files.FileWriter | BinaryIO, tables: Iterable[pa.Table]) -> int:
    count, rest = 0, iter(tables)
    first = next(rest, pa.schema([]).empty_table())
    sink = pa.PythonFile(_Sink(writer), mode="w")
    with pq.ParquetWriter(sink, first.schema, compression="zstd") as parquet:
        for table in chain([first], rest):
            parquet.write_table(table)
            count += table.num_rows
    return count


class _Sink(io.RawIOBase):
    """A writer as an Arrow file."""

    def __init__(self, writer: files.FileWriter | BinaryIO) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._writer.write(data)
        return len(data)
