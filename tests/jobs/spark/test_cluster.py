"""A cluster of machines, played by processes: executors get code and Python from the start script, and may be lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from support import golden, packing
from support.golden import GoldenStore
from support.golden_differences import index_differences, queue_differences
from support.rebuilding import SETTINGS
from support.standalone import Cluster, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.golden]

ROOT = Path(__file__).resolve().parents[3]
SPLIT = 100_000


def start(cluster: Cluster, store: GoldenStore, root: Path, output: Path, *options: str) -> subprocess.Popen[str]:
    settings = [word for key in SETTINGS if key in store.settings for word in ("--set", f"{key}={store.settings[key]}")]
    properties = ROOT / "conf" / "standalone.properties"
    line = [
        sys.executable, str(ROOT / "jobs" / "__main__.py"), "--properties-file", str(properties),
        "--master", cluster.url, "--conf", "spark.driver.host=127.0.0.1", *options,
        "rebuild", "--store", str(root), "--output", str(output), "--split-size", str(SPLIT), "--json", *settings,
    ]  # fmt: skip
    hidden = ("PYSPARK_", "PYTHON", "SPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return subprocess.Popen(
        line, env=environment, cwd=output.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str], store: GoldenStore, root: Path, output: Path) -> dict[str, object]:
    """The report of a run that has made the broker's own files."""
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert queue_differences(root, output, store) + index_differences(root, output, store) == []
    assert [path.name for path in output.parent.iterdir() if "staging" in path.name] == []
    report: dict[str, object] = json.loads(said)
    return report


@pytest.mark.slow
def test_a_worker_is_lost_in_mid_job(tmp_path: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    root, output = golden.unpack(store), tmp_path / "out"
    with standalone_cluster(tmp_path / "cluster") as cluster:
        process = start(cluster, store, root, output, "--conf", f"spark.pyspark.python={sys.executable}")
        deadline = time.monotonic() + 200
        while len(list(tmp_path.glob(".out.*/runs/*.entries"))) < 4:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        scanned = len(list(tmp_path.glob(".out.*/runs/*.entries")))
        assert list((tmp_path / "cluster" / "worker-0").glob("app-*/*")), "it had an executor of this job"
        cluster.workers[0].kill()
        report = finished(process, store, root, output)
    assert report["messages"] == store.entry["counts"]["messages"]
    assert scanned < store.end_offset // SPLIT, "it was lost before everything was scanned"


@pytest.mark.slow
def test_executors_take_the_python_that_comes_with_the_job(tmp_path: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    root, output = golden.unpack(store), tmp_path / "out"
    packed = tmp_path / "python.tar.gz"
    packing.pack(packed)
    with tarfile.open(packed) as archive:
        names = archive.getnames()
    assert {"numpy", "pyarrow", "deltalake", "numba"} <= {name.split("/")[-1] for name in names}
    assert not [name for name in names if "site-packages/pyspark" in name or name.endswith(".pyc")]
    with standalone_cluster(tmp_path / "cluster", workers=1) as cluster:
        shipped = ("spark.archives", f"{packed}#environment"), ("spark.pyspark.python", "./environment/bin/python")
        options = [word for name, value in shipped for word in ("--conf", f"{name}={value}")]
        report = finished(start(cluster, store, root, output, *options), store, root, output)
    assert report["messages"] == store.entry["counts"]["messages"]
