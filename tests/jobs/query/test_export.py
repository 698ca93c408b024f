"""``query list --export``: rows in a file, bodies as their producers had them."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder

from jobs.contract.options import QueryOptions
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore
from jobs.query.query import export
from storeformat.errors import Refused, UsageError

BODIES = [b"text", zlib.compress(b"compressed"), b"\xff\x00"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LogBuilder()
    for number, body in enumerate(BODIES):
        log.message(topic="T", body=body, sys_flag=number == 1, keys=f"k{number}", properties={"a": "\u00e4"})
    log.message(topic="bare")
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", {}, only=("consumequeue",)).directory)
    (built / "consumequeue").rename(root / "consumequeue")
    return root


def exported(root: Path, name: str, **more: Any) -> dict[str, Any]:
    given = {"kind": "list", "topic": "T", "export": str(root.parent / name), **more}
    options = QueryOptions(store=str(root), **given)
    return query.by_list(options, OfflineStore(open_store(options)), None)


def test_json_lines(root: Path) -> None:
    answer = exported(root, "out.jsonl", bodies=True)
    rows = [json.loads(line) for line in (root.parent / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (answer["found"], [row["keys"] for row in rows]) == (3, [["k0"], ["k1"], ["k2"]])
    assert [row.get("body") for row in rows] == ["text", "compressed", None]
    assert base64.b64decode(rows[2]["body_base64"]) == BODIES[2]
    assert rows[0]["properties"]["a"] == "\u00e4"


def test_a_message_without_properties(root: Path) -> None:
    """An object, as of every other: tools take the type of a column from all rows."""
    exported(root, "out.jsonl", topic="bare")
    assert json.loads((root.parent / "out.jsonl").read_text(encoding="utf-8"))["properties"] == {}


def test_parquet(root: Path) -> None:
    assert exported(root, "out.parquet", bodies=True, most=2)["found"] == 2
    table = pq.read_table(root.parent / "out.parquet")
    assert table["body"].to_pylist() == [b"text", b"compressed"]
    assert "body" not in pq.read_table(root.parent / "out.parquet", columns=["topic", "keys"]).column_names


def test_nothing_to_write(root: Path) -> None:
    for name in ("none.jsonl", "none.parquet"):
        assert exported(root, name, begin=2**60)["found"] == 0
        assert (root.parent / name).exists()
    assert pq.read_table(root.parent / "none.parquet").num_rows == 0


def test_targets(root: Path) -> None:
    with pytest.raises(UsageError) as wrong:
        exported(root, "out.csv")
    assert str(wrong.value) == f"--export takes a file that ends in .jsonl or .parquet: found {root.parent / 'out.csv'}"
    (root.parent / "out.jsonl").touch()
    with pytest.raises(Refused) as refused:
        exported(root, "out.jsonl")
    assert str(refused.value) == f"the file of --export exists ({root.parent / 'out.jsonl'})"
    assert refused.value.advice == "move it away, or name another one"


def test_tables_one_after_the_other(tmp_path: Path) -> None:
    """A row count of all, zstd, and text that is not UTF-8."""
    tables = [
        pa.table({"a": [1, 2], "store_timestamp": pa.nulls(2)}),
        pa.table({"a": [3], "store_timestamp": pa.nulls(1)}),
    ]
    assert export(str(tmp_path / "f.parquet"), tables) == 3
    written = pq.ParquetFile(tmp_path / "f.parquet")
    assert written.read()["a"].to_pylist() == [1, 2, 3]
    assert written.metadata.row_group(0).column(0).compression == "ZSTD"
    odd = [pa.table({"a": ["\u4e2d"], "store_timestamp": pa.nulls(1)}), tables[1]]
    assert export(str(tmp_path / "f.jsonl"), odd) == 2
    assert (tmp_path / "f.jsonl").read_text(encoding="utf-8") == (
        '{"store_timestamp_ms": null, "a": "\u4e2d", "store_timestamp": null}\n'
        '{"store_timestamp_ms": null, "a": 3, "store_timestamp": null}\n'
    )
