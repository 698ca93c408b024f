"""Tables whose log or files are no files, or not as Delta writes them: one line and an exit code, at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.drilling import run_job
from support.hostile import KINDS, at_once, plant
from support.loading import load_here
from support.store_builder import LogBuilder

LOG = "_delta_log"
LAST = f"{LOG}/_last_checkpoint"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a table of its first messages with a checkpoint, and the next load in no checkpoint."""
    place, log = tmp_path_factory.mktemp("hostile"), LogBuilder(4096)
    for number in range(20):
        log.message(topic=f"T{number % 2}", body=b"x" * 100)
    log.write(place / "store")
    load_here(place / "store", place / "table", until_offset=log.records[5].offset)
    DeltaTable(str(place / "table")).create_checkpoint()
    load_here(place / "store", place / "table", until_offset=log.records[10].offset)
    return place


def commit(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020d}.json"


def load(made: Path, work: Path, change: Callable[[Path], object]) -> tuple[int, str]:
    """Exit code and error of a load into a table that was changed."""
    table = work / "table"
    shutil.copytree(made / "table", table)
    change(table)
    with at_once():
        done = run_job(
            "load", "--store", made / "store", "--table", table, "--cluster", "c", "--broker", "b", "--quiet"
        )
    return done.code, str(done.report.get("error", ""))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes devices")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [LOG, f"{LOG}/{1:020d}.json", f"{LOG}/{2:020d}.json", LAST, "store_date=*/*.parquet"])
def test_what_is_no_regular_file_is_named_at_once(made: Path, tmp_path: Path, place: str, kind: str) -> None:
    code, said = load(made, tmp_path, lambda table: plant(table, place, kind))
    assert (code in (65, 66) and said.count("\n") == 0 and str(tmp_path) in said) or code == 0, (code, said)
    assert code or (place, kind) in [(LAST, "loop"), ("store_date=*/*.parquet", "giant")]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\x00", b'{"add":{"pa', b"1", b"[]", b'"x"', b"null", b'{"txn":1}', b'{"add":{}}',
        b'{"txn":{"appId":"a"}}', b'{"txn":{"appId":"a","version":"x"}}', b'{"metaData":{"id":"x"}}',
        b'{"protocol":{"minReaderVersion":"x"}}', b'{"commitInfo":' + b"9" * 5_000 + b"}",
        b'{"txn":{"appId":"rocketmq-store-spark/c/b/' + b"9" * 5_000 + b'","version":5}}', b'{"commitInfo":[]}',
        b'{"commitInfo":{"operation":"RESTORE","operationParameters":{"version":[]}}}', b'{"metaData":1}',
        b'{"add":{"path":1}}', b'{"add":{"path":"x","size":"y"}}', b'{"remove":[]}', b'{"txn":null}', b"{}",
        b'{"add":{"path":"x","partitionValues":{},"size":-1,"modificationTime":1,"dataChange":true}}',
        b'{"txn":{"appId":1,"version":2}}', b'{"txn":{"appId":"a","version":true}}',
    ],
    ids=lambda line: repr(line[:24]),
)  # fmt: skip
def test_a_line_that_delta_does_not_write_is_one_line(made: Path, tmp_path: Path, line: bytes) -> None:
    def add(table: Path) -> None:
        with commit(table, 2).open("ab") as file:
            file.write(b"\n" + line + b"\n")  # delta-rs ends a commit without one

    code, said = load(made, tmp_path, add)
    assert code in (0, 65, 66), said
    assert "\n" not in said


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 5_000, b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7fPAR1"])
def test_a_checkpoint_that_is_no_parquet_is_one_line(made: Path, tmp_path: Path, content: bytes) -> None:
    def spoil(table: Path) -> None:
        (path,) = (table / LOG).glob("*.checkpoint.parquet")
        path.write_bytes(content)
        for version in (0, 1):
            commit(table, version).unlink()

    code, said = load(made, tmp_path, spoil)
    assert code in (65, 66), said
    assert "\n" not in said


@pytest.mark.parametrize("zone", ["Mars/x", "../../etc/passwd", ""])
def test_a_time_zone_that_nobody_knows_is_the_tables_fault(made: Path, tmp_path: Path, zone: str) -> None:
    def change(table: Path) -> None:
        DeltaTable(str(table)).alter.set_table_properties({"rocketmq.timeZone": zone}, raise_if_not_exists=False)

    code, said = load(made, tmp_path, change)
    assert (code, said.partition(" (")[0]) == (65, f"the table's property rocketmq.timeZone: {zone}: no such time zone")
