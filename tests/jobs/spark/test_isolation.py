"""Attacks on a running Spark: from its ports, from the directory of its files, from the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.patching import stand_in

from jobs.spark import isolation

ROOT = Path(__file__).resolve().parents[3]


def block_manager_port(spark: SparkSession) -> int:
    environment: Any = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    return int(environment.blockManager().blockManagerId().port())


@pytest.mark.spark
class TestPorts:
    def test_a_client_without_the_secret_gets_no_blocks(self, spark: SparkSession) -> None:
        """What any user of the machine can do: ask the port for the blocks of a broadcast."""
        shared = spark.sparkContext.broadcast("topics of somebody")
        java: Any = spark.sparkContext._jvm
        network, shuffle = java.org.apache.spark.network, java.org.apache.spark.network.shuffle.protocol
        settings = network.util.TransportConf("shuffle", network.util.MapConfigProvider.EMPTY)
        context = network.TransportContext(settings, network.server.NoOpRpcHandler())
        factory = context.createClientFactory()
        client = factory.createClient("127.0.0.1", block_manager_port(spark))
        blocks = spark.sparkContext._gateway.new_array(java.String, 1)  # type: ignore[union-attr]
        blocks[0] = f"broadcast_{shared._jbroadcast.id()}_piece0"  # type: ignore[attr-defined]
        asked = shuffle.OpenBlocks(spark.sparkContext.applicationId, "driver", blocks).toByteBuffer()
        try:
            with pytest.raises(Exception, match=r"SASL|Sasl|auth|Expected"):
                client.sendRpcSync(asked, 10_000)
        finally:
            factory.close()

    def test_they_listen_for_this_machine_alone(self, spark: SparkSession) -> None:
        process: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        links = [str(one.readlink()) for one in Path(f"/proc/{process.pid}/fd").iterdir() if one.is_symlink()]
        sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
        listening = []
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
                local, state, inode = (line.split()[at] for at in (1, 3, 9))
                if state == "0A" and inode in sockets:
                    listening.append(local.partition(":")[0])
        assert listening
        loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
        assert set(listening) <= loopback

    def test_the_secret_is_on_no_command_line(self, spark: SparkSession) -> None:
        environment: Any = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
        secret = environment.securityManager().getSecretKey()
        assert len(secret) >= 32
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert not [line for line in lines if secret.encode() in line]
        assert secret not in str(spark.sparkContext.getConf().getAll())


@pytest.mark.spark
def test_nobody_else_enters_the_directory_of_shuffled_rows(spark: SparkSession) -> None:
    spark.range(1000).repartition(3).count()
    environment: Any = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    [directory] = environment.blockManager().diskBlockManager().localDirsString()
    above = Path(directory).parent
    assert above.name.startswith("rocketmq-store-spark-")
    assert above.stat().st_mode & 0o777 == 0o700
    assert [path for path in Path(directory).rglob("*") if path.is_file()], "it has files of the shuffle"


def test_a_forked_process_leaves_the_directories_to_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_made", [])  # those of the tests' own session stay
    [directory] = isolation.private_directories({"spark.local.dir": str(tmp_path)})
    child = os.fork()
    if child == 0:
        isolation.remove_private_directories()
        os._exit(0)
    os.waitpid(child, 0)
    assert directory.is_dir()
    isolation.remove_private_directories()
    assert not directory.exists()


class TestPrivateDirectories:
    @pytest.fixture(autouse=True)
    def _of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(isolation, "_made", [])  # those of the tests' own session stay
        monkeypatch.setattr(isolation.atexit, "register", lambda *given: None)
        monkeypatch.delenv(isolation.LOCAL_DIRS, raising=False)

    def test_they_lie_where_the_user_says(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(isolation.tempfile, "tempdir", str(tmp_path / "tmp"))
        places = (tmp_path / name for name in ("tmp", "a", "b"))
        tmp, a, b = places
        tmp.mkdir()
        assert [one.parent for one in isolation.private_directories({})] == [tmp]
        found = isolation.private_directories({"spark.local.dir": f" {a}/c , ,{b},"})
        assert [one.parent for one in found] == [a / "c", b]
        assert isolation.LOCAL_DIRS not in os.environ
        isolation.remove_private_directories()
        assert [*tmp.iterdir(), *(a / "c").iterdir(), *b.iterdir()] == []

    def test_the_variable_that_spark_prefers_names_them_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(isolation.LOCAL_DIRS, f"{tmp_path}/a,{tmp_path}/b")
        found = isolation.private_directories({"spark.local.dir": f"{tmp_path}/c"})
        assert [one.parent for one in found] == [tmp_path / "a", tmp_path / "b"]

    def test_they_go_when_the_process_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        registered: list[Any] = []
        monkeypatch.setattr(isolation.atexit, "register", registered.append)
        for _ in range(2):
            isolation.private_directories({"spark.local.dir": str(tmp_path)})
        assert registered == [isolation.remove_private_directories]

    def test_a_program_for_workers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stand_in(monkeypatch, isolation, "sys", version_info=(3, 10, 9))
        stand_in(monkeypatch, isolation, "sys", executable="/it's/python")
        program = Path(isolation.worker_python(tmp_path))
        assert (program, program.stat().st_mode & 0o777) == (tmp_path / "python", 0o700)
        assert "exec '/it'\\''s/python' -c 'import sys\n" in program.read_text(encoding="utf-8")
        stand_in(monkeypatch, isolation, "sys", version_info=(3, 11, 0))
        assert isolation.worker_python(tmp_path) == "/it's/python"


class TestWorkingDirectory:
    """Modules of the standard library, numpy and our own, planted where somebody starts a job."""

    @pytest.fixture
    def hostile(self, tmp_path: Path) -> Path:
        for name in ("runpy", "json", "socket", "select", "numpy", "zipfile", "gc", "signal"):
            (tmp_path / f"{name}.py").write_text("import sys; sys.exit('planted code ran')\n")
        (tmp_path / "udfs").mkdir()
        (tmp_path / "udfs" / "__init__.py").write_text("import sys; sys.exit('planted code ran')\n")
        return tmp_path

    def test_a_worker_takes_no_module_from_it(
        self, hostile: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on Python 3.10, which knows no PYTHONSAFEPATH."""
        stand_in(monkeypatch, isolation, "sys", version_info=(3, 10, 0))
        python = isolation.worker_python(tmp_path_factory.mktemp("private"))
        assert python != sys.executable
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        environment["PYTHONPATH"] = str(ROOT)
        plain = subprocess.run(
            [sys.executable, "-m", "udfs.worker_daemon"],
            cwd=hostile,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "planted code ran" in plain.stderr, "the attack works on a Python that is started as usual"
        # It serves until its stdin ends, which it does at once: then it has written its port.
        kept = subprocess.run(
            [python, "-m", "udfs.worker_daemon"],
            cwd=hostile, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert b"planted" not in kept.stderr
        assert len(kept.stdout) == 4, kept.stderr

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has the program of the test above")
    def test_later_pythons_obey_the_variable(self, hostile: Path) -> None:
        assert isolation.worker_python(hostile) == sys.executable
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
        kept = subprocess.run(
            [sys.executable, "-m", "udfs.worker_daemon"],
            cwd=hostile, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        assert b"planted" not in kept.stderr
