"""Hadoop's own clusters for tests, HDFS and where asked for YARN, in one JVM on loopback (``tests/hadoop``).

Maven fetches them once; they are kept under ``tests/hadoop/target``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from support.real_store import RealStoreUnavailable, build_driver

_HOME = Path(__file__).resolve().parent.parent / "hadoop"
_VERSION = "3.5.0"


@dataclass(frozen=True)
class HadoopCluster:
    """``conf`` is what HADOOP_CONF_DIR names, ``files`` the URI of its file system."""

    conf: Path
    files: str
    process: subprocess.Popen[str]

    def lose_a_node(self) -> int:
        """Ends a node manager that runs executors alone; returns how many containers it had, 0 where there is none."""
        answer = self._answer("lose")
        return int(answer[1]) if answer[0] == "LOST" else 0

    def put(self, local: Path, path: str) -> None:
        """Copies a file or a directory as Hadoop's own client does."""
        assert self._answer(f"put\t{local}\t{path}") == ["PUT"]

    def _answer(self, line: str) -> list[str]:
        self._stream(self.process.stdin).write(line + "\n")
        self._stream(self.process.stdin).flush()
        answer = self._stream(self.process.stdout).readline().split()
        assert answer, "the cluster has ended"
        return list(map(str, answer))

    @staticmethod
    def _stream(stream: IO[Any] | None) -> IO[Any]:
        assert stream is not None
        return stream


@contextmanager
def hadoop_cluster(directory: Path, *, yarn: bool = False) -> Iterator[HadoopCluster]:
    """Yields a cluster of two data nodes, and with ``yarn`` two node managers, whose files lie in ``directory``."""
    try:
        sources = sorted((_HOME / "src").rglob("*.java"))
        class_path = build_driver(_VERSION, _HOME / "pom.xml", sources, _HOME / "target" / _VERSION)
    except RealStoreUnavailable as error:
        pytest.skip(str(error))
    (directory / "tmp").mkdir(parents=True, exist_ok=True)
    java = shutil.which("java")
    assert java is not None
    home = os.environ.get("JAVA_HOME") or str(Path(java).resolve().parent.parent)
    hidden = ("SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    with (directory / "cluster.log").open("w") as log:
        command = [
            java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={directory / 'tmp'}",
            f"-Dlog4j.configuration=file:{_HOME / 'log4j.properties'}", "-cp", class_path, "hadoop.MiniCluster",
            str(directory / "conf"), *(["yarn"] if yarn else []),
        ]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=directory, env={**environment, "JAVA_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        assert HadoopCluster._stream(process.stdout).readline() == "READY\n", (directory / "cluster.log").read_text()
        found = re.search(r"hdfs://[^<]+", (directory / "conf" / "core-site.xml").read_text())
        assert found is not None
        yield HadoopCluster(directory / "conf", found[0], process)
    finally:
        HadoopCluster._stream(process.stdin).close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
        HadoopCluster._stream(process.stdout).close()
