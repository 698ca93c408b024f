"""How Spark is started: what goes to spark-submit, with which settings, and what a packed Python is."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in

from jobs.spark import isolation, launch, spark_options
from jobs.spark.execution import Execution
from storeformat import errors
from udfs.worker_daemon import ROWS


class TestLaunch:
    @pytest.fixture(autouse=True)
    def nothing_of_spark_is_set(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        for name in (
            "PYSPARK_PYTHON",
            "SPARK_CONF_DIR",
            "SPARK_LOCAL_IP",
            "MASTER",
            "SPARK_SUBMIT_OPTS",
            "PYSPARK_SUBMIT_ARGS",
        ):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(isolation, "_made", [])  # those of the tests' own session stay
        monkeypatch.setattr(launch, "require_yarn", lambda *unused: None)
        yield
        isolation.remove_private_directories()

    @staticmethod
    def submitted(*options: str, **settings: Any) -> list[str]:
        planned = launch.plan(Execution(options=options, **settings))
        isolation.remove_private_directories()
        return list(planned.arguments)

    @pytest.mark.parametrize(("job", "fast"), [("load", True), ("report", True), ("", False)])
    def test_jobs_keep_javas_fast_compiler_and_room_for_its_code(self, job: str, fast: bool) -> None:
        flags = launch.jvm_flags(Execution(job))
        assert ("-XX:TieredStopAtLevel=1" in flags) == fast
        assert ("-XX:ReservedCodeCacheSize=240m" in flags) == fast
        assert ("-XX:+UseParallelGC" in flags) == fast

    def test_a_collector_of_the_users_is_the_only_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = ("--conf", "spark.driver.extraJavaOptions=-XX:+UseG1GC")
        for options in (("--driver-java-options", "-XX:+UseZGC"), own):
            assert "-XX:+UseParallelGC" not in launch.jvm_flags(Execution("load", options))
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
        assert "-XX:+UseParallelGC" not in launch.jvm_flags(Execution("load"))

    def test_defaults_come_from_conf_and_stand_below_the_users_options(self) -> None:
        words = self.submitted("--conf", "spark.ui.enabled=true", "--driver-memory", "8g")
        confs = spark_options.values_of(words, "--conf")
        assert "spark.sql.session.timeZone=UTC" in confs
        assert "spark.ui.enabled=false" not in confs
        assert not [conf for conf in confs if conf.startswith("spark.driver.memory=")]
        at = words.index("spark.ui.enabled=true")
        assert words[at - 1 : at + 3] == ["--conf", "spark.ui.enabled=true", "--driver-memory", "8g"]

    @pytest.mark.parametrize(("job", "rows"), [("load", "1"), ("demo", "1"), ("verify", "0"), ("report", None)])
    def test_workers_import_what_rows_need_where_tasks_make_rows(self, job: str, rows: str | None) -> None:
        assert launch.plan(Execution(job)).environment.get(ROWS) == rows

    def test_the_environment_of_a_local_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "PYTHONPATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
        before = dict(os.environ)
        planned = launch.plan(Execution("load"))
        assert dict(os.environ) == before, "this process keeps its own"
        private = planned.directory
        assert private is not None
        worker = sys.executable if sys.version_info >= (3, 11) else f"{private}/python"
        expected = {
            "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": worker, "PYTHONPATH": str(launch.ROOT),
            "PYTHONSAFEPATH": "1", "SPARK_HOME": str(launch.spark_home()),
            "SPARK_SUBMIT_OPTS": " ".join(
                [f'"-Djava.io.tmpdir={private}"', *launch.jvm_flags(Execution("load")), "-Dmine=1"]
            ),
        }  # fmt: skip
        assert {name: planned.environment[name] for name in expected} == expected
        assert planned.python == worker
        defaults = spark_options.read_properties(spark_options.CONF / "spark-defaults.conf")
        assert planned.worker_environment == launch.worker_environment(defaults)
        assert f"spark.python.daemon.module={launch.WORKER_DAEMON}" in planned.arguments
        assert {f"spark.local.dir={private}", f"{launch.SOCKETS}.dir={private}"} <= set(planned.arguments)
        monkeypatch.setenv("PYTHONPATH", "/mine")
        planned = launch.plan(Execution("report", options=("--conf", "spark.pyspark.python=/py")))
        assert planned.environment["PYTHONPATH"] == f"{launch.ROOT}{os.pathsep}/mine"
        assert (planned.environment["PYSPARK_PYTHON"], planned.python) == ("/py", "/py")
        assert planned.worker_environment is None

    @pytest.mark.parametrize(
        ("options", "variable", "killed"),
        [
            ((), None, True),
            (("--master", "local[2]", "--driver-memory", "8g"), None, True),
            (("--conf", "spark.eventLog.enabled=true"), None, False),
            (("--driver-java-options", "-Dx=1"), None, False),
            (("--master", "spark://h:1"), None, False),
            ((), "SPARK_SUBMIT_OPTS", False),
        ],
    )
    def test_which_jvm_may_be_killed(
        self, options: tuple[str, ...], variable: str | None, killed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if variable is not None:
            monkeypatch.setenv(variable, "x")
        assert launch.plan(Execution("load", options=options)).may_be_killed == killed

    def test_the_machines_own_python_is_for_other_machines_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A profile that names one for another Spark broke each job here."""
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/python")
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
        planned = launch.plan(Execution())
        worker = sys.executable if sys.version_info >= (3, 11) else f"{planned.directory}/python"
        assert (planned.python, planned.environment["PYSPARK_PYTHON"]) == (worker, worker)
        assert planned.environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
        elsewhere = launch.plan(Execution(options=("--master", "spark://h:1")))
        assert elsewhere.python == "/opt/other/python", "the executors' own"

    def test_a_program_of_its_own_gets_what_pysparks_start_reads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = dict(os.environ)
        try:
            launch.prepare(["--master", "local[3]"])
            words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
            assert words[-1] == "pyspark-shell"
            assert {"local[3]", "spark.sql.session.timeZone=UTC"} <= set(words)
            assert os.environ["SPARK_HOME"] == str(launch.spark_home())
        finally:
            os.environ.clear()
            os.environ.update(before)

    def test_a_driver_that_spark_submit_has_started_is_left_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(launch, "STARTED_BY_SPARK", True)
        before = dict(os.environ)
        launch.prepare(["--master", ""])
        launch.check(Execution("load", options=("--master", "")))
        assert dict(os.environ) == before

    def test_the_address_of_a_driver_may_be_the_users(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
        settings = launch.local_settings({}, Path("/p"))
        assert settings == {
            "spark.authenticate": "true", "spark.python.daemon.module": launch.WORKER_DAEMON,
            f"{launch.SOCKETS}.dir": "/p",
        }  # fmt: skip

    def test_workers_get_what_executors_are_told(self) -> None:
        settings = {"spark.executorEnv.A": "1", "spark.executorEnv.OMP_NUM_THREADS": "9", "spark.task.cpus": "3"}
        assert launch.worker_environment(settings) == {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "9", "A": "1"}
        assert launch.worker_environment({"spark.task.cpus": "3"})["OMP_NUM_THREADS"] == "3"

    def test_options_of_the_jvm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(launch, "CONF", tmp_path)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        level, perf = "-Drocketmq.store.spark.log.level=", "-XX:-UsePerfData"
        assert launch.jvm_flags(Execution("")) == [f"{level}off", perf]
        assert launch.jvm_flags(Execution(debug=True)) == [f"{level}info", perf]
        (tmp_path / "log4j2.properties").touch()
        (tmp_path / "spark.jsa").touch()
        assert launch.jvm_flags(Execution("load")) == [
            f"{level}off", perf, f'"-Dlog4j2.configurationFile=file://{tmp_path}/log4j2.properties"',
            f'"-XX:SharedArchiveFile={tmp_path}/spark.jsa"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off",
            "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseParallelGC",
        ]  # fmt: skip

    def test_a_pyspark_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(errors.DependencyMissing) as error:
            launch.spark_home()
        assert str(error.value) == "pyspark is not installed"
        assert error.value.advice == "./spark-submit.sh installs what is needed"

    def test_a_spark_of_the_machine_is_used_or_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ours = launch.spark_home()
        version = launch._version_in(ours)
        for jar in (f"same/jars/spark-core_2.13-{version}.jar", "old/jars/spark-core_2.12-3.5.1.jar"):
            (tmp_path / jar).parent.mkdir(parents=True)
            (tmp_path / jar).touch()
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "same"))
        assert launch.spark_home() == tmp_path / "same"
        for name, found in (("old", "Spark 3.5.1"), ("nowhere", "no Spark")):
            monkeypatch.setenv("SPARK_HOME", str(tmp_path / name))
            with pytest.raises(errors.DependencyMissing) as error:
                launch.plan(Execution("rebuild"))
            assert str(error.value) == f"SPARK_HOME={tmp_path / name} is {found}, and the pyspark here is {version}"

    def test_the_jar_of_delta_fits_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.metadata.version", {"pyspark": "4.2.1", "delta-spark": "4.4.0"}.get)
        assert launch.delta_coordinate() == "io.delta:delta-spark_4.2_2.13:4.4.0"

    def test_sockets_lie_where_their_paths_fit(self) -> None:
        assert launch.socket_settings("/tmp", {}) == {f"{launch.SOCKETS}.dir": "/tmp"}
        assert launch.socket_settings("/tmp/" + "x" * 55, {}) == {f"{launch.SOCKETS}.dir": "/tmp/" + "x" * 55}
        assert launch.socket_settings("/tmp/" + "x" * 56, {}) == {f"{launch.SOCKETS}.enabled": "false"}
        assert launch.socket_settings("/tmp", {f"{launch.SOCKETS}.dir": "/mine"}) == {}

    @pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host:6443"])
    def test_executors_elsewhere_meet_their_workers_by_tcp(self, master: str) -> None:
        confs = spark_options.values_of(self.submitted("--master", master), "--conf")
        asked = [conf for conf in confs if conf.startswith(launch.SOCKETS)]
        assert asked[-1] == f"{launch.SOCKETS}.enabled=false"
        assert "spark.authenticate=true" not in confs, "it would need a secret that both sides know"
        confs = spark_options.values_of(
            self.submitted("--master", master, "--conf", f"{launch.SOCKETS}.enabled=true"), "--conf"
        )
        assert [conf for conf in confs if conf.startswith(launch.SOCKETS)] == [f"{launch.SOCKETS}.enabled=true"]

    def test_a_local_spark_asks_for_a_secret_and_names_none(self) -> None:
        confs = spark_options.values_of(self.submitted("--master", "local[2]"), "--conf")
        assert "spark.authenticate=true" in confs
        assert {"spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"} <= set(confs)
        assert not [conf for conf in confs if "secret" in conf]
        confs = spark_options.values_of(self.submitted("--conf", "spark.authenticate=false"), "--conf")
        assert [conf for conf in confs if "authenticate" in conf] == ["spark.authenticate=false"]

    def test_its_files_lie_in_a_directory_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        words = launch.plan(Execution(options=("--conf", f"spark.local.dir={tmp_path}/one,{tmp_path}/two"))).arguments
        *_, last = [conf for conf in spark_options.values_of(words, "--conf") if conf.startswith("spark.local.dir=")]
        directories = [Path(one) for one in last.partition("=")[2].split(",")]
        assert [one.parent for one in directories] == [tmp_path / "one", tmp_path / "two"]
        assert [one.stat().st_mode & 0o777 for one in directories] == [0o700, 0o700]
        isolation.remove_private_directories()
        assert list((tmp_path / "one").iterdir()) == list((tmp_path / "two").iterdir()) == []

    def test_executors_elsewhere_get_the_packages_as_a_zip(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import zipfile

        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        [shipped] = spark_options.values_of(self.submitted("--master", "yarn", "--py-files", "a.zip"), "--py-files")[1:]
        mine, ours = shipped.split(",")
        assert mine == "a.zip"
        assert Path(ours).parent == tmp_path / "build"  # not among what is set up
        names = zipfile.ZipFile(ours).namelist()
        assert {"jobs/__init__.py", "storeformat/errors.py", "udfs/__init__.py"} <= set(names)
        assert not [name for name in names if "__pycache__" in name]
        before = Path(ours).stat().st_mtime_ns
        assert launch.application_zip().stat().st_mtime_ns == before
        assert spark_options.values_of(self.submitted("--master", "local[2]"), "--py-files") == []

    def test_checkouts_that_share_an_environment_ship_their_own_code(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        made = []
        for number in range(3):
            source = tmp_path / str(number) / "jobs" / "one.py"
            source.parent.mkdir(parents=True)
            source.write_text(f"NUMBER = {number}")
            monkeypatch.setattr(launch, "ROOT", tmp_path / str(number))
            if number == 2:  # an environment of somebody else
                stand_in(monkeypatch, launch, "os", access=lambda *_: False)
                monkeypatch.setenv(isolation.LOCAL_DIRS, str(tmp_path / "private"))
            made.append(launch.application_zip())
        assert len({path.name for path in made}) == 3
        assert [path.parent for path in made[:2]] == [tmp_path / "build"] * 2
        assert made[2].parent.parent == tmp_path / "private"
        isolation.remove_private_directories()
        assert not made[2].parent.exists(), "it goes with this start"

    def test_delta_brings_its_jars_or_says_how_to_get_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        with pytest.raises(errors.DependencyMissing) as missing:
            self.submitted("--packages", "a:b:1", delta=True)
        assert str(missing.value) == "Delta's jars are not there"
        assert missing.value.advice == (
            "`./spark-submit.sh --setup` fetches them and knows their bytes; elsewhere: --packages "
            + launch.delta_coordinate()
        )
        own = f"a:b:1,{launch.delta_coordinate()}"
        assert spark_options.values_of(self.submitted("--packages", own, delta=True), "--packages") == [own]
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "delta-spark.jar").touch()
        words = self.submitted("--jars", "x.jar", "--conf", "spark.sql.extensions=E", delta=True)
        assert spark_options.values_of(words, "--jars")[-1] == f"x.jar,{tmp_path}/jars/delta-spark.jar"
        confs = spark_options.values_of(words, "--conf")
        assert "spark.sql.extensions=E,io.delta.sql.DeltaSparkSessionExtension" in confs
        assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" in confs
        assert spark_options.values_of(self.submitted(), "--jars", "--packages") == []
        named = "--conf", "spark.sql.catalog.spark_catalog=io.delta.C"
        assert named[1] in spark_options.values_of(self.submitted(*named), "--conf")
        words = self.submitted(*named)
        assert spark_options.values_of(words, "--jars") == [f"{tmp_path}/jars/delta-spark.jar"], (
            "it is asked for by its name"
        )
        assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" not in words
        ours = {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension", "spark.jars": "/x/delta-spark_1.jar"}
        settings: dict[str, str] = {}
        assert launch.delta_options(ours, settings) == []
        assert settings == {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
        assert launch.delta_options({}, {}) == [
            "--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
            "--jars", f"{tmp_path}/jars/delta-spark.jar",
        ]  # fmt: skip

    def test_cluster_mode_becomes_spark_submit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        called: list[Any] = []
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        stand_in(monkeypatch, launch, "os", execv=lambda *call: called.append(call))
        options = ("--master", "yarn", "--deploy-mode", "cluster")
        launch.check(Execution("rebuild", options=options, arguments=("rebuild", "--store", "hdfs://s")))
        [(program, words)] = called
        assert program.endswith("pyspark/bin/spark-submit")
        assert words[-3:] == ["rebuild", "--store", "hdfs://s"]
        assert words[-4] == str(launch.ROOT / "jobs" / "__main__.py")
        assert Path(words[-4]).is_file()
        assert (words[0], spark_options.values_of(words, "--deploy-mode")) == (program, ["cluster"])

    @pytest.mark.parametrize("master", [(), ("--master", "local[2]"), ("--master", "local-cluster[1,1,1024]")])
    def test_cluster_mode_needs_a_cluster(self, master: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        stand_in(monkeypatch, launch, "os", execv=lambda *call: pytest.fail(str(call)))
        with pytest.raises(errors.UsageError, match="--deploy-mode cluster needs a cluster, and the master is local"):
            launch.check(Execution(options=("--deploy-mode", "cluster", *master), arguments=("verify", "--store", "s")))

    def test_cluster_mode_shows_nobody_a_secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        stand_in(monkeypatch, launch, "os", execv=lambda *call: pytest.fail(str(call)))
        arguments = ("rebuild", "--store", "s3://KEY:SECRET@bucket/store", "--output", "s3://bucket/new")
        with pytest.raises(errors.UsageError, match="holds a secret") as refused:
            launch.check(Execution(options=("--master", "yarn", "--deploy-mode", "cluster"), arguments=arguments))
        assert str(refused.value) == (
            "an argument of the job holds a secret, and in cluster mode it can be read in command lines"
        )
        assert refused.value.advice == (
            "give it to the cluster in a --properties-file: spark.yarn.appMasterEnv.* and spark.executorEnv.*"
        )


class TestYarn:
    """What is missing is said in one line before anything starts."""

    @pytest.fixture
    def hadoop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "yarn-site.xml").write_text("<configuration/>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        monkeypatch.delenv("YARN_CONF_DIR", raising=False)
        return tmp_path

    def test_no_cluster_is_named(self, hadoop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        launch.require_yarn({}, ())
        (hadoop / "yarn-site.xml").unlink()
        monkeypatch.setenv("YARN_CONF_DIR", "/y")
        with pytest.raises(errors.DependencyMissing) as error:
            launch.require_yarn({}, ())
        assert str(error.value) == f"{hadoop} and /y has no yarn-site.xml: no YARN is known"
        assert error.value.advice == "name Hadoop's configuration"
        monkeypatch.delenv("YARN_CONF_DIR")
        monkeypatch.delenv("HADOOP_CONF_DIR")
        with pytest.raises(errors.DependencyMissing, match="HADOOP_CONF_DIR, which is not set, has no"):
            launch.check(Execution(options=("--master", "yarn"), arguments=("verify", "--store", "/s")))

    def test_the_archive_for_executors_is_not_there(self, hadoop: Path) -> None:
        (hadoop / "python.tar.gz").touch()
        launch.require_yarn({"spark.archives": f"{hadoop}/python.tar.gz#environment,hdfs://n/x.tgz"}, ())
        with pytest.raises(errors.DependencyMissing, match=r"there is no absent\.tgz") as missing:
            launch.require_yarn(spark_options.user_settings(["--archives", "absent.tgz#environment"]), ())
        assert missing.value.advice == "./spark-submit.sh --pack absent.tgz makes it"
        assert str(missing.value) == "there is no absent.tgz for executors"

    def test_a_client_of_hdfs_is_not_installed(self, hadoop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        launch.require_yarn({}, ["verify", "--store", "/nfs/store"])
        with pytest.raises(errors.DependencyMissing) as missing:
            launch.require_yarn({}, ["verify", "--store", "hdfs://n/store"])
        assert str(missing.value) == "hdfs:// needs hdfs-native"
        install = "`./spark-submit.sh --setup --with hdfs`, then --pack again"
        assert missing.value.advice == install
