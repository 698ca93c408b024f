"""Loads into tables on S3: each record once, whoever loads at the same time; refused where a server cannot do that."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from moto.s3 import responses
from support.loading import load_here
from support.object_store import Bucket, serving
from support.store_builder import LogBuilder

from jobs.report.facts import CHECKS
from jobs.table.table_places import place_of
from storeformat.errors import Refused, UsageError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Yields a server that looks whether an object is there and puts it in one step, as S3 does."""
    put, one_step = responses.S3Response.put_object, threading.Lock()

    def put_object(self: Any) -> Any:
        with one_step:
            return put(self)

    with pytest.MonkeyPatch.context() as patch, serving() as found:
        patch.setattr(responses.S3Response, "put_object", put_object)
        yield found


@pytest.fixture
def bucket(endpoint: str, request: pytest.FixtureRequest) -> Bucket:
    one = Bucket(endpoint, f"tables-{abs(hash(request.node.name))}")
    one.client.create_bucket(Bucket=one.name)
    return one


def grown(log: LogBuilder, root: Path, count: int) -> Path:
    for number in range(count):
        log.message(topic=f"T{number % 3}", body=b"x" * 50, keys=f"k{number}")
    return log.write(root)


def rows(table: str) -> list[tuple[str, int]]:
    uri, options = place_of(table)
    found = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=["broker", "commit_log_offset"])
    return sorted(zip(*found.to_pydict().values(), strict=True))


def test_what_a_path_says_to_delta_rs() -> None:
    uri = "s3a://k%2Fey:s%2Bec@b/a/t?scheme=http&endpoint_override=h:9000&region=eu"
    found, options = place_of(uri)
    assert found == "s3://b/a/t"
    assert options == {
        "aws_endpoint_url": "http://h:9000", "aws_region": "eu", "aws_access_key_id": "k/ey",
        "aws_secret_access_key": "s+ec", "aws_allow_http": "true", "aws_conditional_put": "etag",
    }  # fmt: skip
    assert place_of("s3://b/t") == (
        "s3://b/t", {"aws_allow_http": "true", "aws_conditional_put": "etag"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "place", "options"),
    [
        ("/a b/t", "/a b/t", {}),
        ("file:///a%20b/t", "/a b/t", {}),
        ("hdfs://n:9000/t", "hdfs://n:9000/t", {}),
        ("gs://b/t", "gs://b/t", {}),
        ("gs://anonymous@b/t", "gs://b/t", {"google_skip_signature": "true"}),
        ("abfss://c@acc.dfs.core.windows.net/a/t", "az://c/a/t", {"azure_storage_account_name": "acc"}),
        (
            "abfs://acc:k%2Fey@h:1/c/t?enable_tls=false", "az://c/t",
            {"azure_storage_account_key": "k/ey", "azure_storage_account_name": "acc",
             "azure_storage_endpoint": "http://h:1/acc", "allow_http": "true"},
        ),
    ],
)  # fmt: skip
def test_other_places(path: str, place: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY", raising=False)
    assert place_of(path) == (place, options)


def test_a_path_that_delta_rs_takes_for_another_is_refused() -> None:
    assert place_of("/a/50%") == ("/a/50%", {})
    with pytest.raises(UsageError, match="delta-rs takes %20 in the path of a table for another character: /a/c%20d"):
        place_of("/a/c%20d")


def test_loads_what_is_new(bucket: Bucket, tmp_path: Path) -> None:
    log, table = LogBuilder(1 << 16), bucket.uri("t")
    first = load_here(grown(log, tmp_path / "s", 300), table)
    second = load_here(grown(log, tmp_path / "s", 200), table)
    third = load_here(tmp_path / "s", table)
    assert [one["rows"] for one in (first, second, third)] == [300, 200, 0]
    assert (second["from_offset"], third["skipped"]) == (first["to_offset"], True)
    assert rows(table) == [("b", placed.offset) for placed in log.records]


def test_a_log_that_was_rewritten_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    load_here(grown(LogBuilder(1 << 16), tmp_path / "s", 300), bucket.uri("t"))
    other = LogBuilder(1 << 16, clock=1_600_000_000_000)
    with pytest.raises(Refused, match="not the one that was loaded"):
        load_here(grown(other, tmp_path / "other", 400), bucket.uri("t"))


@pytest.mark.slow
def test_two_processes_side_by_side(bucket: Bucket, tmp_path: Path) -> None:
    """Of one broker each record is there once; of two brokers all."""
    log = LogBuilder(1 << 16)
    root, table = grown(log, tmp_path / "s", 500), bucket.uri("t")
    program = Path(load_here.__code__.co_filename)
    for _ in range(2):
        grown(log, root, 100)
        running = [
            subprocess.Popen(
                [sys.executable, str(program), "none", str(root), table, broker], stdout=subprocess.PIPE, text=True
            )
            for broker in ("a", "a", "b")
        ]
        said = [process.communicate(timeout=120)[0].split() for process in running]
        assert [process.returncode for process in running] == [0, 0, 0]
        assert sorted(skipped for _, skipped in said[:2]) == ["False", "True"]
    assert rows(table) == [(broker, placed.offset) for broker in ("a", "b") for placed in log.records]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_loads_and_reads_a_table(bucket: Bucket, tmp_path: Path) -> None:
    """Tasks in a Spark of its own write the rows, and read them: nothing of Java knows the place."""
    root, table = grown(LogBuilder(1 << 16), tmp_path / "s", 300), bucket.uri("t")
    line = [sys.executable, "-m", "jobs", "--master", "local[1]"]
    load = ("load", "--store", str(root), "--table", table, "--cluster", "c", "--broker", "b")
    for words in (load, ("report", "--table", table, "--checks", "--by", "date")):
        done = subprocess.run([*line, *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["messages"], found["groups_in_all"], set(found["checks"])) == (300, 1, set(CHECKS))
