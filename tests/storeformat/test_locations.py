"""Locations and their clients."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from storeformat.errors import DependencyMissing
from storeformat.storage import files, locations
from storeformat.storage.locations import without_secrets


# ----------------------------------------------------------------------------------------------------- locations
class TestWithoutSecrets:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("s3://KEY:SECRET@bucket/a@b", "s3://***@bucket/a@b"),
            ("s3://KEY:SE/C+R@ET@bucket/a", "s3://***@bucket/a"),
            ("/data/s3:/KEY:SECRET@bucket?token=SECRET", "/data/s3:/***@bucket?token=***"),
            ("S3A://:SECRET@bucket", "S3A://***@bucket"),
            ("hdfs://user:SECRET@name-node:8020/a", "hdfs://***@name-node:8020/a"),
            ("hdfs://user:5SECRET@name-node/a", "hdfs://***@name-node/a"),
            ("s3://b/x?secret_key=SECRET&region=eu&SAS=SECRET", "s3://b/x?secret_key=***&region=eu&SAS=***"),
            ("s3://b/x?endpoint_override=http://u:SECRET@h", "s3://b/x?endpoint_override=http://***@h"),
            ("no (s3://K:SECRET@b/x, 's3://b?token=SECRET'): at 1", "no (s3://***@b/x, 's3://b?token=***'): at 1"),
            ("s3://b/x?REGION=eu&a=1", "s3://b/x?REGION=eu&a=***"),
            ("s3://b/x?a=1&b=2: no (s3://c?d=3)", "s3://b/x?a=***&b=***: no (s3://c?d=***)"),
            ("s3://b/x?a=1) and more", "s3://b/x?a=***) and more"),
        ],
    )  # fmt: skip
    def test_passwords_and_keys_are_masked(self, text: str, shown: str) -> None:
        assert without_secrets(text) == shown
        assert "SECRET" not in shown

    @pytest.mark.parametrize(
        "text",
        [
            "/a/b:c@d?secret=x", "hdfs://name-node:8020/a@b", "abfs://container@account.dfs/a", "s3://bucket?region=eu",
            "file:///a/b", "://", "s3://b/x?", "at 12:30: s3://b/x",
        ],
    )  # fmt: skip
    def test_what_is_no_secret_stays(self, text: str) -> None:
        assert without_secrets(text) == text


@pytest.mark.parametrize("text", ["a" * 300_000 + " :/", "+.-" * 100_000 + ":/", "a://b?" + "x" * 300_000])
def test_a_long_text_is_looked_through_once(text: str) -> None:
    """A message's body, a topic: each word was scanned again from each of its letters, 40 kB in 40 s."""
    begun = time.monotonic()
    assert without_secrets(text) == text
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("path", "local"), [("a/b", True), ("/a", True), ("file:///a", True), ("s3://b/a", False), ("hdfs://n:1/a", False)]
)
def test_a_path_without_a_scheme_is_local(path: str, local: bool) -> None:
    assert locations.is_local(path) == local


def test_escapes_are_decoded_in_file_uris_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.local_path("file:///a/b%20c") == "/a/b c"
    assert locations.local_path("file://localhost/a/../%25RETRY%25g") == "/%RETRY%g"
    assert locations.local_path("/a/%20") == "/a/%20"
    assert locations.local_path("b/./c") == f"{tmp_path}/b/c"


def test_settings_stay_at_the_end_of_a_uri() -> None:
    bucket = "s3://bucket/a/?region=eu&x=?"
    assert locations.split_settings(bucket) == ("s3://bucket/a", "?region=eu&x=?")
    assert locations.split_settings("/a/?b") == ("/a/?b", "")
    assert locations.join(bucket, "b", "c") == "s3://bucket/a/b/c?region=eu&x=?"
    assert locations.name_of(bucket) == "a"
    assert locations.parent_of(bucket) == "s3://bucket?region=eu&x=?"
    assert locations.absolute("s3://bucket/a/?region=eu") == "s3://bucket/a?region=eu"


def test_parts_of_local_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.join("/a", "b", "c") == "/a/b/c"
    assert [locations.name_of(path) for path in ("/a/b", "/a/b/", "b")] == ["b", "b", "b"]
    assert [locations.parent_of(path) for path in ("/a/b", "/a/b/", "b")] == ["/a", "/a", ""]
    assert locations.absolute("b/../c") == f"{tmp_path}/c"


@pytest.mark.parametrize(
    ("path", "directory", "inside"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a", "/a/", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("s3://b/a/c?x=1", "s3://b/a?y=2", True),
        ("s3://b/ac?x=1", "s3://b/a?y=2", False),
    ],
)
def test_what_lies_in_a_directory(path: str, directory: str, inside: bool) -> None:
    assert locations.is_inside(path, directory) == inside


# ------------------------------------------------------------------------------------------------------- clients
def test_hdfs_without_a_client_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's own would end the process where it finds no class path."""
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    files.client_of.cache_clear()
    with pytest.raises(DependencyMissing, match=r"no client for HDFS is installed \(hdfs://node:8020\)"):
        files.exists("hdfs://node:8020/store")


@pytest.mark.parametrize("name", ["HADOOP_HOME", "ARROW_LIBHDFS_DIR"])
def test_where_hadoop_is_installed_its_own_client_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.setenv(name, "/hadoop")

    class FileSystems:
        @staticmethod
        def from_uri(uri: str) -> tuple[str, str]:
            return f"client of {uri}", "root"

    monkeypatch.setattr(files.pafs, "FileSystem", FileSystems)
    monkeypatch.delenv("CLASSPATH", raising=False)
    with pytest.raises(DependencyMissing):
        files.hdfs_client("hdfs://node")
    monkeypatch.setenv("CLASSPATH", "jars")
    monkeypatch.delenv(name)
    with pytest.raises(DependencyMissing):
        files.hdfs_client("hdfs://node")
    monkeypatch.setenv(name, "/hadoop")
    assert files.hdfs_client("hdfs://node") == "client of hdfs://node"


@pytest.mark.parametrize(
    ("uri", "where"),
    [("hdfs://node:8020?user=a", ("node", 8020)), ("hdfs://service", ("service", None)), ("hdfs://", (None, None))],
)
def test_a_client_is_of_a_host_and_a_port(
    uri: str, where: tuple[str | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = pytest.importorskip("hdfs_native.fsspec")
    asked: list[object] = []
    monkeypatch.setattr(native.HdfsFileSystem, "__init__", lambda self, *where: asked.append(where))
    monkeypatch.setattr(files.pafs, "FSSpecHandler", lambda made: made)
    monkeypatch.setattr(files.pafs, "PyFileSystem", lambda handler: handler)
    files.hdfs_client(uri)
    assert asked == [where]
