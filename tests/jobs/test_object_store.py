"""Stores, rebuilds and publishing by URI, against an S3 server."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto", reason="the S3 server is not installed")
from support import golden
from support.golden import GoldenStore
from support.golden_differences import Difference, index_differences, queue_differences
from support.here import tasks_here
from support.object_store import Bucket, serving
from support.publishing import quiet
from support.rebuilding import SETTINGS

from jobs.cli import command_line
from jobs.contract.options import LoadOptions, LogOptions, PublishOptions, RebuildOptions
from jobs.contract.report import Report
from jobs.log.opening import open_store, read_log
from jobs.log.restored_log import restored
from jobs.publish import publish
from jobs.rebuild import build_store, manifest, rebuild
from jobs.rebuild.build_store import claimed, staging_beside, staging_for
from jobs.rebuild.rebuild import repair_log
from jobs.spark import session
from jobs.spark.runner import Runner
from jobs.table import load
from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.storage import files, locations

pytestmark = pytest.mark.thorough

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving() as found:
        yield found


@pytest.fixture
def bucket(endpoint: str) -> Bucket:
    made = Bucket(endpoint, f"bucket-{next(NUMBERS)}")
    made.client.create_bucket(Bucket=made.name)
    return made


@pytest.fixture
def store() -> GoldenStore:
    (found,) = golden.stores("base-clean-5.3.3")
    return found


def settings_of(store: GoldenStore) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(store.settings[key])) for key in SETTINGS if key in store.settings)


def rebuilt(bucket: Bucket, store: GoldenStore, source: str, output: str, work: Path, **more: Any) -> RebuildOptions:
    """Rebuilds from and to the bucket, in this process."""
    options = RebuildOptions(store=source, output=bucket.uri(output), settings=settings_of(store), **more)
    with claimed(options.output), staging_beside(str(work / "staging")) as staging:
        build_store.rebuild(options, open_store(options), staging, Runner(), made=options.output)
    return options


def differences(root: Path, out: Path, store: GoldenStore) -> list[Difference]:
    """Objects end with their data: their copies get the length of files, as `publish` gives it to them."""
    for name, content in manifest.read_manifest(str(out)).files.items():
        os.truncate(out / name, content.size)
    return queue_differences(root, out, store) + index_differences(root, out, store)


def fill_and_fail(bucket: Bucket) -> None:
    with claimed(bucket.uri("out")):
        files.write_bytes(bucket.uri("out/index/20260101000000000"), b"half")
        assert len(bucket.names("out")) == 2
        raise ZeroDivisionError


def write_and_fail(uri: str) -> None:
    with files.FileWriter(uri) as writer:
        writer.write(b"half")
        raise ZeroDivisionError


def only_log(root: Path, target: Path) -> Path:
    shutil.copytree(root / "commitlog", target / "commitlog")
    return target


@pytest.mark.spark
@pytest.mark.golden
def test_a_job_of_spark_from_bucket_to_bucket(spark: Any, bucket: Bucket, store: GoldenStore, tmp_path: Path) -> None:
    root = golden.unpack(store)
    source = bucket.upload(only_log(root, tmp_path / "log"), "broker-a/store")
    options = RebuildOptions(
        store=source, output=bucket.uri("broker-a/out"), settings=settings_of(store), split_size=100_000
    )
    report = rebuild.run(options, quiet())
    assert report["status"] == "ok"
    out = bucket.download("broker-a/out", tmp_path / "out")
    assert differences(root, out, store) == []
    listed = {row["path"] for row in json.loads((out / "manifest.json").read_text())["files"]}
    assert set(bucket.names("broker-a/out")) == listed | {"manifest.json"}
    assert [name for name in bucket.names("broker-a") if "staging" in name] == []
    table = str(tmp_path / "messages")
    loaded = load.run(
        LoadOptions(store=source, table=table, cluster="c", broker="b", settings=settings_of(store)), quiet()
    )
    assert loaded["rows"] == report["messages"] == spark.read.format("delta").load(table).count()
    history = "".join(path.read_text() for path in Path(table, "_delta_log").glob("*.json"))
    assert f"s3://***@{bucket.name}/broker-a" in history
    assert "secret@" not in history


@pytest.mark.golden
def test_staged_in_the_bucket_too(
    bucket: Bucket, store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden.unpack(store)
    options = RebuildOptions(store=str(root), output=bucket.uri("out"), settings=settings_of(store), split_size=1 << 20)
    monkeypatch.setattr(session, "on_one_machine", lambda: False)
    with claimed(options.output), staging_for(options.output) as staging:
        assert staging.startswith("s3://")
        build_store.rebuild(options, open_store(options), staging, Runner(), made=options.output)
    assert differences(root, bucket.download("out", tmp_path / "out"), store) == []


def test_what_comes_in_between_is_no_output(bucket: Bucket, store: GoldenStore, tmp_path: Path) -> None:
    root = golden.unpack(store)
    with pytest.raises(ZeroDivisionError):
        fill_and_fail(bucket)
    assert bucket.names("out") == []
    options = rebuilt(bucket, store, str(root), "out", tmp_path)
    with pytest.raises(Refused, match="not empty"):
        rebuilt(bucket, store, str(root), "out", tmp_path)
    assert "manifest.json" in bucket.names("out"), "the refused one left the first alone"
    with pytest.raises(Refused, match="at the same time"):
        manifest.write_pieces(options.output, [b"{}"])


def test_of_two_at_once_one_is_refused(bucket: Bucket) -> None:
    output = bucket.uri("out")
    with claimed(output):
        with pytest.raises(Refused, match="not empty") as refusal, claimed(output):
            pass
        assert refusal.value.advice is not None
        assert "killed" in refusal.value.advice
        assert len(bucket.names("out")) == 1
    assert bucket.names("out") == []


def test_a_file_that_somebody_else_put_there(bucket: Bucket, store: GoldenStore, tmp_path: Path) -> None:
    root = golden.unpack(store)
    options = RebuildOptions(store=str(root), output=bucket.uri("out"), settings=settings_of(store))

    class Meddled(Runner):
        def map(self, what: str, *rest: Any) -> Any:
            if what.startswith("write"):
                bucket.client.put_object(Bucket=bucket.name, Key="out/index/stray", Body=b"x")
            return super().map(what, *rest)

    with (
        pytest.raises(WriteFailed, match="stray"),
        claimed(options.output),
        staging_beside(str(tmp_path / "work")) as staging,
    ):
        build_store.rebuild(options, open_store(options), staging, Meddled(), made=options.output)
    assert bucket.names("out") == []


@pytest.mark.parametrize(
    ("place", "line"), [("store", "--commitlog {uri} --debug --json"), ("store", ""), ("nowhere", "--debug")]
)
def test_no_output_holds_a_secret_of_a_uri(
    bucket: Bucket, store: GoldenStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, place: str
) -> None:
    bucket.upload(golden.unpack(store), "store")
    uri, file = bucket.uri(place), tmp_path / "report.json"
    words = ["inspect", "--store", uri, "--limit", "1", "--report", str(file), *line.format(uri=uri).split()]
    with tasks_here():
        command_line.main(words, command_line.JOBS)
    said = capfd.readouterr()
    assert bucket.name in said.err + said.out
    assert "secret" not in said.err + said.out + file.read_text()


class TestPublish:
    def publish(self, root: Path, source: str, **more: Any) -> Report:
        return publish.run(PublishOptions(store=str(root), rebuilt=source, after_crash=True, **more), quiet())

    @pytest.fixture
    def damaged(self, store: GoldenStore, tmp_path: Path) -> Path:
        root = tmp_path / "store"
        shutil.copytree(golden.unpack(store), root)
        shutil.rmtree(root / "consumequeue")
        return root

    def test_from_a_bucket(self, bucket: Bucket, store: GoldenStore, damaged: Path, tmp_path: Path) -> None:
        """Copied as its advice says, by another client than ours."""
        options = rebuilt(bucket, store, str(damaged), "out", tmp_path)
        sizes = files.tree_sizes(options.output)
        for name, content in manifest.read_manifest(options.output).files.items():
            assert sizes[name] == content.data_size
        with pytest.raises(Refused, match="not on the file system of the store") as caught:
            self.publish(damaged, options.output)
        assert f"{damaged}/backup/out" in (caught.value.advice or "")
        for name in bucket.names("out"):
            (damaged / "backup" / "out" / name).parent.mkdir(parents=True, exist_ok=True)
            bucket.client.download_file(bucket.name, f"out/{name}", str(damaged / "backup" / "out" / name))
        self.publish(damaged, str(damaged / "backup" / "out"))
        own = golden.unpack(store)
        assert queue_differences(own, damaged, store) + index_differences(own, damaged, store) == []


class TestTrouble:
    def test_no_such_store(self, bucket: Bucket) -> None:
        for there in (bucket, Bucket(bucket.endpoint, "absent")):
            with pytest.raises(MissingInput, match="there is no such store"):
                open_store(RebuildOptions(store=there.uri("store"), output="o"))

    def test_no_such_bucket_for_the_output(self, endpoint: str, store: GoldenStore) -> None:
        absent = Bucket(endpoint, "absent")
        options = RebuildOptions(store=str(golden.unpack(store)), output=absent.uri("out"), settings=settings_of(store))
        with pytest.raises(WriteFailed, match="there is no such bucket"):
            rebuild.run(options, quiet())


def test_endpoint_and_keys_from_the_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "AWS_ENDPOINT_URL": f"http://{bucket.endpoint}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for scheme in ("s3", "s3a"):
        files.write_bytes(f"{scheme}://{bucket.name}/by/{scheme}", b"there")
    assert bucket.names("by") == ["s3", "s3a"]
    assert files.tree_sizes(f"s3://{bucket.name}/by") == {"s3": 5, "s3a": 5}
    files.remove_tree(f"s3a://{bucket.name}/by")
    assert files.tree_sizes(f"s3://{bucket.name}/by") == {}


class TestPaths:
    def test_names_are_taken_as_they_are(self, bucket: Bucket) -> None:
        path = locations.join(bucket.uri("x"), "%RETRY%group", "0")
        files.write_bytes(path, b"y")
        assert bucket.names("x") == ["%RETRY%group/0"]
        assert files.read_bytes(path) == b"y"
        assert [entry.name for entry in files.list_directory(bucket.uri("x")) or []] == ["%RETRY%group"]

    def test_an_object_is_there_whole_or_not_at_all(self, bucket: Bucket) -> None:
        with pytest.raises(ZeroDivisionError):
            write_and_fail(bucket.uri("x"))
        assert bucket.names("x") == []
        with files.FileWriter(bucket.uri("x")) as writer:
            writer.write_at(10, b"b")
            writer.write_at(2, b"a")
            writer.finish(12)
        assert files.read_bytes(bucket.uri("x")) == b"\0\0a" + bytes(7) + b"b\0"

    def test_nothing_is_compressed_whatever_the_name(self, bucket: Bucket) -> None:
        with files.FileWriter(bucket.uri("x.gz")) as writer:
            writer.write(b"as it is")
        assert files.read_bytes(bucket.uri("x.gz")) == b"as it is"
        with files.new_stream(bucket.uri("y.gz")) as target:
            target.write(b"as it is")
        assert files.read_bytes(bucket.uri("y.gz")) == b"as it is"


@pytest.mark.parametrize("staged", ["here", "there"])
def test_copies_of_a_log_in_a_bucket_heal_each_other(
    bucket: Bucket, store: GoldenStore, tmp_path: Path, staged: str
) -> None:
    root = golden.unpack(store)
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    whole = {name: (root / "commitlog" / name).read_bytes() for name in names}
    uris = []
    for copy, spoiled in (("one", 0), ("other", 2)):
        log = only_log(root, tmp_path / copy) / "commitlog"
        data = bytearray(whole[names[spoiled]])
        data[200:260] = b"\xff" * 60
        (log / names[spoiled]).write_bytes(data)
        if copy == "one":
            (log / names[1]).unlink()
        uris.append(bucket.upload(tmp_path / copy, f"{copy}/store"))
    options = LogOptions(store=uris[0], replicas=(uris[1],), settings=settings_of(store))
    work = str(tmp_path / "work") if staged == "here" else bucket.uri("work")
    found = restored(open_store(options, restores=True), options, Runner(), work)
    reading = read_log(found.store, options, Runner())
    assert (reading.damaged, reading.losses.rows) == ([], [])
    repaired = repair_log(reading, bucket.uri("repaired"), found.made)
    assert repaired == names[:2]
    bucket.download("repaired", tmp_path / "repaired")
    assert {name: (tmp_path / "repaired" / name).read_bytes() for name in repaired} == {
        name: whole[name] for name in repaired
    }
