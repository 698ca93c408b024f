"""A rebuild onto Azure's storage, on a server that answers like it (Azurite, which npm brings once)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from pyarrow import fs
from support import golden
from support.loading import load_here
from support.rebuilding import options_for, rebuild_here, rebuilt_files
from support.store_builder import LogBuilder

from jobs.log.opening import open_store
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from jobs.table.messages_table import place_of
from storeformat.storage import files

pytestmark = [pytest.mark.golden, pytest.mark.servers]

HOME = Path(__file__).resolve().parents[1] / "azurite" / "target"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite has for a start, in every place."""
CONTAINER = "rmq"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server with an empty container listens."""
    program = HOME / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        if shutil.which("npm") is None:
            pytest.skip("Azurite comes by npm, and there is none")
        line = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", HOME,
                "azurite@3.37.0"]  # fmt: skip
        if subprocess.run(line, check=False, capture_output=True).returncode:
            pytest.skip("npm does not bring Azurite")
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--silent", "--skipApiVersionCheck",
               "--inMemoryPersistence", "--disableTelemetry"]  # fmt: skip
    place = tmp_path_factory.mktemp("azurite")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=place, text=True) as server:
        try:
            assert server.stdout is not None
            at = next(
                line.rpartition("listens on http://")[2].strip() for line in server.stdout if "listens on" in line
            )
            fs.AzureFileSystem(
                account_name=ACCOUNT, account_key=KEY, blob_storage_authority=at, dfs_storage_authority=at,
                blob_storage_scheme="http", dfs_storage_scheme="http",
            ).create_dir(CONTAINER)  # fmt: skip
            yield at
        finally:
            server.terminate()


def test_a_rebuild_is_that_of_a_local_disk(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    output = f"abfs://{ACCOUNT}@{host}/{CONTAINER}/out?enable_tls=false"
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    local = rebuild_here(root, tmp_path / "local", store.settings)
    (tmp_path / "work").mkdir()
    options = options_for(root, tmp_path / "work" / "unused", store.settings)
    build_store.rebuild(options, open_store(options), str(tmp_path / "work"), Runner(), made=output)
    assert rebuilt_files(output) == rebuilt_files(local.directory)
    files.remove_tree(output)
    assert files.tree_sizes(output) == {}


def test_loads_what_is_new(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    table, log = f"abfs://{ACCOUNT}@{host}/{CONTAINER}/table?enable_tls=false", LogBuilder(1 << 16)
    loaded = []
    for count in (300, 200, 0):
        for _ in range(count):
            log.message(topic="T")
        loaded.append(load_here(log.write(tmp_path / "s"), table)["rows"])
    assert loaded == [300, 200, 0]
    uri, options = place_of(table)
    found = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=["commit_log_offset"])
    assert sorted(found["commit_log_offset"].to_pylist()) == [record.offset for record in log.records]
