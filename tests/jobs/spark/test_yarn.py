"""Jobs on Hadoop's own HDFS and YARN, with the driver here and in the cluster: the bytes are those of one machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import golden, packing
from support.golden import GoldenStore
from support.hadoop_cluster import HadoopCluster, hadoop_cluster
from support.rebuilding import SETTINGS, rebuild_here, rebuilt_files

from jobs.spark.launch import spark_home
from storeformat import kernels
from storeformat.storage import files, locations

pytestmark = [pytest.mark.spark, pytest.mark.golden, pytest.mark.hadoop]

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 600
"""Seconds that a job may take: containers start some processes each, on a machine that may be busy."""
SPLIT = 60_000


@dataclass(frozen=True)
class Bench:
    """A cluster with a store on its file system, and the Python packages of executors."""

    cluster: HadoopCluster
    store: GoldenStore
    work: Path
    compiled: str
    """Where kernels lie compiled: a job whose processes each compile them, all at once, takes a minute more."""

    def uri(self, name: str) -> str:
        return locations.join(self.cluster.files, name)

    def start(
        self, mode: str, job: str, *arguments: str, executors: int = 1, stock: bool = False
    ) -> subprocess.Popen[str]:
        """Starts a job, with ``stock`` by Spark's own spark-submit, as README says."""
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        path = f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}"  # nodes have a Python of this version
        settings = (
            f"spark.executorEnv.PATH={path}",
            f"spark.yarn.appMasterEnv.PATH={path}",
            f"spark.submit.deployMode={mode}",
            f"spark.executor.instances={executors}",
            f"spark.archives={self.uri('python.tar.gz')}#environment",
            f"spark.yarn.jars=local:{spark_home() / 'jars'}/*",  # else each start uploads 400 MB of them
            "spark.driver.host=127.0.0.1" if mode == "client" else f"spark.driver.extraJavaOptions={java}",
            f"spark.executor.extraJavaOptions={java}",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP=127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP=127.0.0.1",
            *(f"spark.{those}.NUMBA_CACHE_DIR={self.compiled}" for those in ("executorEnv", "yarn.appMasterEnv")),
        )
        main = str(ROOT / "jobs" / "__main__.py")
        options = [
            "--properties-file", str(ROOT / "conf" / "yarn.properties"),
            *(word for setting in settings for word in ("--conf", setting)),
        ]  # fmt: skip
        if stock:
            program = self.work / "rocketmq-store-spark.zip"
            zipfile.main(["-c", str(program), *(str(ROOT / name) for name in ("jobs", "storeformat", "udfs"))])
            submit = str(spark_home() / "bin" / "spark-submit")
            options += ["--conf", f"spark.pyspark.driver.python={sys.executable}", "--py-files", str(program)]
            line = [submit, *options, main, job, *arguments, "--json"]
        else:
            line = [sys.executable, main, *options, job, *arguments, "--json", "--debug"]
        hidden = ("PYSPARK_", "PYTHON", "SPARK_", "HADOOP_", "YARN_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        environment |= {"HADOOP_CONF_DIR": str(self.cluster.conf), "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.Popen(
            line, env=environment, cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finished(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Returns the report of a job that has succeeded: from its stdout, in cluster mode from its container's, which
        has what it said on the way, too.
        """
        try:
            said, complaint = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        assert process.returncode == 0, complaint[-20_000:] + self.logs()
        if not said.strip():
            newest = max(self.work.rglob("container_*_000001/stdout"), key=lambda path: path.stat().st_mtime)
            said = newest.read_text()
        report: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        return report

    def run(self, mode: str, job: str, *arguments: str, stock: bool = False) -> dict[str, Any]:
        return self.finished(self.start(mode, job, *arguments, stock=stock))

    def logs(self) -> str:
        """Returns the ends of what the newest containers and the cluster complained of."""
        paths = sorted(self.work.rglob("container_*/stderr"), key=lambda path: path.stat().st_mtime)
        paths = [*paths[-3:], self.work / "cluster.log"]
        return "".join(f"\n== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)

    def settings(self) -> list[str]:
        named = [key for key in SETTINGS if key in self.store.settings]
        return [word for key in named for word in ("--set", f"{key}={self.store.settings[key]}")]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    pytest.importorskip("hdfs_native")
    (store,) = golden.stores("base-larger-5.3.3")
    work = tmp_path_factory.mktemp("yarn")
    kernels.compiled()
    try:
        with ThreadPoolExecutor() as beside:
            packed = beside.submit(packing.pack, work / "python.tar.gz")
            with hadoop_cluster(work, yarn=True) as cluster:
                packed.result()
                cluster.put(work / "python.tar.gz", "/python.tar.gz")
                cluster.put(golden.unpack(store), "/snap/broker-a/store")
                yield Bench(cluster, store, work, os.environ.get("NUMBA_CACHE_DIR", ""))
    finally:
        shutil.rmtree(work, ignore_errors=True)  # each node has unpacked the packages


def test_the_driver_in_the_cluster(bench: Bench) -> None:
    messages = bench.store.entry["counts"]["messages"]
    named = ("--store", bench.uri("snap/broker-a/store"), "--cluster", "c", "--broker", "broker-a")
    loaded = bench.run("cluster", "load", *named, "--table", bench.uri("messages"), *bench.settings())
    assert loaded["rows"] == messages
    assert bench.run("cluster", "report", "--table", bench.uri("messages"))["messages"] == messages


def test_the_driver_here(bench: Bench) -> None:
    of_the_store = ("--store", bench.uri("snap/broker-a/store"), *bench.settings())
    verified = bench.run("client", "verify", *of_the_store, stock=True)
    assert (verified["status"], verified["messages"]) == ("ok", bench.store.entry["counts"]["messages"])


def test_a_node_manager_ends_in_mid_job(bench: Bench, tmp_path: Path) -> None:
    output = bench.uri("here/rebuilt")
    process = bench.start(
        "client", "rebuild", "--store", bench.uri("snap/broker-a/store"), "--output", output, "--split-size",
        str(SPLIT), *bench.settings(), executors=2,
    )  # fmt: skip
    deadline, lost, scanned = time.monotonic() + PATIENCE, 0, 0
    while not lost:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, bench.logs()
        scanned = sum(name.endswith(".entries") for name in files.tree_sizes(bench.uri("here")))
        lost = bench.cluster.lose_a_node() if scanned else 0
        time.sleep(0.05)
    assert scanned < bench.store.end_offset // SPLIT, "it was lost before everything was scanned"
    assert bench.finished(process)["messages"] == bench.store.entry["counts"]["messages"]
    local = rebuild_here(golden.unpack(bench.store), tmp_path, bench.store.settings)
    wanted = rebuilt_files(local.directory)
    assert rebuilt_files(output, wanted) == wanted
