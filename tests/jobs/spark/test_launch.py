"""How Spark is started: what goes to spark-submit, with which settings, and what a packed Python is."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.command_line import JOBS
from jobs.spark import isolation, launch
from storeformat import errors


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Puts the environment back, which ``prepare`` sets for the whole process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


class TestSplittingOffSparksOptions:
    @pytest.mark.parametrize(
        ("line", "options"),
        [
            ("rebuild --store demo", ""),
            ("--master local[2] rebuild --store S", "--master local[2]"),
            ("--name demo --conf spark.x=report -v rebuild", "--name demo --conf spark.x=report -v"),
            ("--master=yarn --deploy-mode client verify --store S", "--master=yarn --deploy-mode client"),
            ("-c a=b load", "-c a=b"),
            ("nonsense rebuild", ""),
            ("--help", ""),
            ("", ""),
        ],
    )
    def test_up_to_the_first_word_that_is_a_job_and_no_value(self, line: str, options: str) -> None:
        words = line.split()
        assert launch.split_command_line(words, JOBS) == (options.split(), words[len(options.split()) :])

    def test_an_unknown_option_before_the_job_is_named(self) -> None:
        for words in (["--store", "S", "rebuild"], ["-v", "--store=S", "rebuild"], ["--verbose=1", "rebuild"]):
            with pytest.raises(errors.UsageError) as error:
                launch.split_command_line(words, JOBS)
            word = next(word for word in words if word not in launch.SWITCHES)
            assert str(error.value) == f"{word} is not an option of spark-submit"
            assert error.value.advice == "options of a job come after its name"
        assert launch.split_command_line(["--store", "S"], JOBS) == ([], ["--store", "S"])
        assert launch.split_command_line(["--master"], JOBS) == (["--master"], [])

    @pytest.mark.parametrize(
        ("line", "values"),
        [
            ("-c a=b --conf c=d --conf=e=f --name --conf", ["a=b", "c=d", "e=f"]),
            ("--conf", []), ("-c", []), ("--config x --confa=b", []), ("--conf= -c=", ["", ""]),
        ],
    )  # fmt: skip
    def test_values_of_options(self, line: str, values: list[str]) -> None:
        assert launch.values_of(line.split(), "--conf", "-c") == values


class TestLaunch:
    @pytest.fixture(autouse=True)
    def nothing_of_spark_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "PYSPARK_GATEWAY_PORT",
            "PYSPARK_PYTHON",
            "SPARK_CONF_DIR",
            "SPARK_LOCAL_IP",
            "MASTER",
            "SPARK_SUBMIT_OPTS",
            "PYSPARK_SUBMIT_ARGS",
        ):
            monkeypatch.delenv(name, raising=False)
        for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "SPARK_LAUNCHER_OPTS"):
            monkeypatch.setenv(name, "set by a test")
        monkeypatch.setattr(launch, "require_yarn", lambda *unused: None)

    @staticmethod
    def submitted(*options: str, **settings: Any) -> list[str]:
        launch.prepare(options, **settings)
        words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert words[-1] == "pyspark-shell"
        return words[:-1]

    @pytest.mark.parametrize(("job", "fast"), [("load", True), ("demo", True), ("report", False), ("", False)])
    def test_only_jobs_of_python_keep_javas_fast_compiler_and_room_for_its_code(self, job: str, fast: bool) -> None:
        flags = launch.jvm_flags(job, debug=False)
        assert ("-XX:TieredStopAtLevel=1" in flags) == fast
        assert ("-XX:ReservedCodeCacheSize=240m" in flags) == fast

    def test_defaults_come_from_conf_and_stand_below_the_users_options(self) -> None:
        words = self.submitted("--conf", "spark.ui.enabled=true", "--driver-memory", "8g")
        confs = launch.values_of(words, "--conf")
        assert "spark.sql.session.timeZone=UTC" in confs
        assert "spark.ui.enabled=false" not in confs
        assert not [conf for conf in confs if conf.startswith("spark.driver.memory=")]
        assert words[-4:] == ["--conf", "spark.ui.enabled=true", "--driver-memory", "8g"]

    def test_a_properties_file_of_the_user_wins_over_ours(self, tmp_path: Path) -> None:
        (tmp_path / "mine.conf").write_text("# a comment\nspark.ui.enabled true\nspark.master=local[3]\n")
        chosen = launch.user_settings(["--properties-file", str(tmp_path / "mine.conf"), "--master", "local[1]"])
        assert chosen == {"spark.ui.enabled": "true", "spark.master": "local[1]"}

    def test_a_properties_file_is_read_as_java_does(self, tmp_path: Path) -> None:
        (tmp_path / "mine.conf").write_text(
            "spark.driver.extraJavaOptions  -Dx=1 -Dy=2\nspark.jars s3://b/day=1/y.jar\nspark.a=b=c \nspark.b : d e\n"
            "! a comment\n#spark.c f\nspark.empty\nspark.none =\n\n"
        )
        assert launch.user_settings(["--properties-file", str(tmp_path / "mine.conf")]) == {
            "spark.driver.extraJavaOptions": "-Dx=1 -Dy=2",
            "spark.jars": "s3://b/day=1/y.jar",
            "spark.a": "b=c",
            "spark.b": "d e",
        }

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (["--conf", "nonsense"], "--conf nonsense: this is not name=value"),
            (["-c", "=x"], "--conf =x: this is not name=value"),
            (["--master", ""], "--master has an empty value"),
            (["--jars= "], "--jars has an empty value"),
            (["--properties-file", "absent"], "there is no such properties file (absent)"),
        ],
    )
    def test_what_spark_submit_would_answer_with_a_trace(
        self, options: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises((errors.UsageError, errors.MissingInput)) as error:
            launch.user_settings(options)
        assert str(error.value) == text

    def test_options_stand_above_settings_and_both_above_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MASTER", "local[7]")
        assert launch.user_settings([]) == {"spark.master": "local[7]"}
        assert launch.user_settings(["--conf", "spark.master=local[6]"]) == {"spark.master": "local[6]"}
        words = ["--conf", "spark.master=local[6]", "--conf", "spark.empty=", "--master", "a", "--master", "b"]
        assert launch.user_settings(words) == {"spark.master": "b", "spark.empty": ""}
        for option, name in launch.SETTING_OF_OPTION.items():
            assert launch.user_settings([option, "x"])[name] == "x"

    @pytest.mark.parametrize(
        ("options", "job", "debug", "expected"),
        [
            ((), "load", False, {launch.OPTIONAL: "1", launch.WORKER_ROWS: "1", launch.DEBUG: "0"}),
            ((), "report", True, {launch.OPTIONAL: "1", launch.WORKER_ROWS: "0", launch.DEBUG: "1"}),
            (("-v",), "verify", False, {launch.OPTIONAL: "0", launch.WORKER_ROWS: "0", launch.ONE_MACHINE: "1"}),
            (("--master", "local[2]"), "demo", False, {launch.OPTIONAL: "0", launch.WORKER_ROWS: "1"}),
            (("--master", "local-cluster[1,1,1024]"), "load", False, {launch.ONE_MACHINE: "1", launch.OPTIONAL: "0"}),
            (("--master", "spark://h:1"), "load", False, {launch.ONE_MACHINE: "0", launch.OPTIONAL: "0"}),
        ],
    )
    def test_what_later_parts_of_the_program_read(
        self, options: tuple[str, ...], job: str, debug: bool, expected: dict[str, str]
    ) -> None:
        launch.prepare(options, [job], job, debug=debug)
        assert {name: os.environ[name] for name in expected} == expected
        assert launch.on_one_machine() == (os.environ[launch.ONE_MACHINE] == "1")
        assert launch.spark_is_optional() == (os.environ[launch.OPTIONAL] == "1")

    def test_the_environment_of_a_local_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "SPARK_LAUNCHER_OPTS", "PYTHONPATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
        words = self.submitted(job="load", job_arguments=["load"])
        confs = launch.values_of(words, "--conf")
        (private,) = (conf.partition("=")[2] for conf in confs if conf.startswith("spark.local.dir="))
        worker = sys.executable if sys.version_info >= (3, 11) else f"{private}/python"
        expected = {
            "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": worker, "PYTHONPATH": str(launch.ROOT),
            "PYTHONSAFEPATH": "1", "SPARK_HOME": str(launch.spark_home()),
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_SUBMIT_OPTS": " ".join([*launch.jvm_flags("load", debug=False), "-Dmine=1"]),
        }  # fmt: skip
        assert {name: os.environ[name] for name in expected} == expected
        defaults = launch.read_properties(launch.CONF / "spark-defaults.conf")
        assert json.loads(os.environ[launch.WORKER_ENVIRONMENT]) == launch.worker_environment(defaults)
        assert f"spark.python.daemon.module={launch.WORKER_DAEMON}" in confs
        assert isolation.is_private(f"{private}/x")
        assert f"{launch.SOCKETS}.dir={private}" in confs
        monkeypatch.setenv("PYTHONPATH", "/mine")
        self.submitted("--conf", "spark.pyspark.python=/py", job="report", job_arguments=["report"])
        assert os.environ["PYTHONPATH"] == f"{launch.ROOT}{os.pathsep}/mine"
        assert os.environ["PYSPARK_PYTHON"] == "/py"
        assert launch.WORKER_ENVIRONMENT not in os.environ

    def test_a_python_of_an_earlier_session_has_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = "/tmp/rocketmq-store-spark-x/python"
        monkeypatch.setenv("PYSPARK_PYTHON", gone)
        launch.prepare()
        found = os.environ["PYSPARK_PYTHON"]
        assert found != gone
        assert isolation.is_private(found) if sys.version_info < (3, 11) else found == sys.executable
        monkeypatch.setenv("PYSPARK_PYTHON", gone)
        launch.prepare(["--master", "spark://h:1"])
        assert os.environ["PYSPARK_PYTHON"] == gone, "there it is the executors' own"

    def test_a_driver_that_spark_submit_has_started_is_left_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        before = dict(os.environ)
        launch.prepare(["--master", ""], ["load"], "load")
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

    @pytest.mark.parametrize(
        ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[1,1,1]", False), ("yarn", False)]
    )
    def test_where_executors_are_threads(self, master: str, local: bool) -> None:
        assert launch.is_local(master) == local

    def test_options_of_the_jvm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(launch, "CONF", tmp_path)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        level = "-Drocketmq.store.spark.log.level="
        assert launch.jvm_flags("report", debug=False) == [f"{level}off"]
        assert launch.jvm_flags("", debug=True) == [f"{level}info"]
        (tmp_path / "log4j2.properties").touch()
        (tmp_path / "spark.jsa").touch()
        assert launch.jvm_flags("load", debug=False) == [
            f"{level}off", f'"-Dlog4j2.configurationFile=file://{tmp_path}/log4j2.properties"',
            f'"-XX:SharedArchiveFile={tmp_path}/spark.jsa"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off",
            "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m",
        ]  # fmt: skip

    def test_a_pyspark_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(errors.DependencyMissing) as error:
            launch.spark_home()
        assert str(error.value) == "pyspark is not installed"
        assert error.value.advice == "./spark-submit.sh installs what is needed"

    def test_the_jar_of_delta_fits_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.metadata.version", {"pyspark": "4.2.1", "delta-spark": "4.4.0"}.get)
        assert launch.delta_coordinate() == "io.delta:delta-spark_4.2_2.13:4.4.0"

    def test_the_users_conf_directory_is_read_unless_a_properties_file_replaces_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "spark-defaults.conf").write_text("spark.master  yarn\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        (tmp_path / "other.conf").write_text("spark.a b c\n")
        assert launch.user_settings([]) == {"spark.master": "yarn"}
        other = ["--properties-file", str(tmp_path / "other.conf")]
        assert launch.user_settings(other) == {"spark.a": "b c"}
        assert launch.user_settings([*other, "--load-spark-defaults"]) == {"spark.master": "yarn", "spark.a": "b c"}

    def test_sockets_lie_where_their_paths_fit(self) -> None:
        assert launch.socket_settings("/tmp", {}) == {f"{launch.SOCKETS}.dir": "/tmp"}
        assert launch.socket_settings("/tmp/" + "x" * 55, {}) == {f"{launch.SOCKETS}.dir": "/tmp/" + "x" * 55}
        assert launch.socket_settings("/tmp/" + "x" * 56, {}) == {f"{launch.SOCKETS}.enabled": "false"}
        assert launch.socket_settings("/tmp", {f"{launch.SOCKETS}.dir": "/mine"}) == {}

    @pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host:6443"])
    def test_executors_elsewhere_meet_their_workers_by_tcp(self, master: str) -> None:
        confs = launch.values_of(self.submitted("--master", master), "--conf")
        asked = [conf for conf in confs if conf.startswith(launch.SOCKETS)]
        assert asked[-1] == f"{launch.SOCKETS}.enabled=false"
        assert "spark.authenticate=true" not in confs, "it would need a secret that both sides know"
        confs = launch.values_of(
            self.submitted("--master", master, "--conf", f"{launch.SOCKETS}.enabled=true"), "--conf"
        )
        assert [conf for conf in confs if conf.startswith(launch.SOCKETS)] == [f"{launch.SOCKETS}.enabled=true"]

    def test_a_local_spark_asks_for_a_secret_and_names_none(self) -> None:
        confs = launch.values_of(self.submitted("--master", "local[2]"), "--conf")
        assert "spark.authenticate=true" in confs
        assert {"spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"} <= set(confs)
        assert not [conf for conf in confs if "secret" in conf]
        confs = launch.values_of(self.submitted("--conf", "spark.authenticate=false"), "--conf")
        assert [conf for conf in confs if "authenticate" in conf] == ["spark.authenticate=false"]

    def test_its_files_lie_in_a_directory_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(isolation, "_made", [])  # those of the tests' own session stay
        words = self.submitted("--conf", f"spark.local.dir={tmp_path}/one,{tmp_path}/two")
        *_, last = [conf for conf in launch.values_of(words, "--conf") if conf.startswith("spark.local.dir=")]
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
        [shipped] = launch.values_of(self.submitted("--master", "yarn", "--py-files", "a.zip"), "--py-files")[1:]
        mine, ours = shipped.split(",")
        assert mine == "a.zip"
        assert Path(ours).parent == tmp_path / "build"  # not among what is set up
        names = zipfile.ZipFile(ours).namelist()
        assert {"jobs/__init__.py", "storeformat/errors.py", "udfs/__init__.py"} <= set(names)
        assert not [name for name in names if "__pycache__" in name]
        before = Path(ours).stat().st_mtime_ns
        assert launch.application_zip().stat().st_mtime_ns == before
        assert launch.values_of(self.submitted("--master", "local[2]"), "--py-files") == []

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
        assert launch.values_of(self.submitted("--packages", own, delta=True), "--packages") == [own]
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "delta-spark.jar").touch()
        words = self.submitted("--jars", "x.jar", "--conf", "spark.sql.extensions=E", delta=True)
        assert launch.values_of(words, "--jars")[-1] == f"x.jar,{tmp_path}/jars/delta-spark.jar"
        confs = launch.values_of(words, "--conf")
        assert confs[-1] == "spark.sql.extensions=E,io.delta.sql.DeltaSparkSessionExtension"
        assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" in confs
        assert launch.values_of(self.submitted(), "--jars", "--packages") == []
        named = "--conf", "spark.sql.catalog.spark_catalog=io.delta.C"
        assert launch.values_of(self.submitted(*named), "--conf")[-2] == named[1]
        words = self.submitted(*named)
        assert launch.values_of(words, "--jars") == [f"{tmp_path}/jars/delta-spark.jar"], "it is asked for by its name"
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
        monkeypatch.setattr("os.execv", lambda *call: called.append(call))
        launch.prepare(["--master", "yarn", "--deploy-mode", "cluster"], ["rebuild", "--store", "hdfs://s"])
        [(program, words)] = called
        assert program.endswith("pyspark/bin/spark-submit")
        assert words[-3:] == ["rebuild", "--store", "hdfs://s"]
        assert words[-4] == str(launch.ROOT / "jobs" / "__main__.py")
        assert Path(words[-4]).is_file()
        assert (words[0], launch.values_of(words, "--deploy-mode")) == (program, ["cluster"])

    def test_cluster_mode_shows_nobody_a_secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        monkeypatch.setattr("os.execv", lambda *call: pytest.fail(str(call)))
        arguments = ["rebuild", "--store", "s3://KEY:SECRET@bucket/store", "--output", "s3://bucket/new"]
        with pytest.raises(errors.UsageError, match="holds a secret") as refused:
            launch.prepare(["--master", "yarn", "--deploy-mode", "cluster"], arguments)
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
            launch.prepare(["--master", "yarn"], ["verify", "--store", "/s"])

    def test_the_archive_for_executors_is_not_there(self, hadoop: Path) -> None:
        (hadoop / "python.tar.gz").touch()
        launch.require_yarn({"spark.archives": f"{hadoop}/python.tar.gz#environment,hdfs://n/x.tgz"}, ())
        with pytest.raises(errors.DependencyMissing, match=r"there is no absent\.tgz") as missing:
            launch.require_yarn(launch.user_settings(["--archives", "absent.tgz#environment"]), ())
        assert missing.value.advice == "`./spark-submit.sh --pack absent.tgz` makes it"
        assert str(missing.value) == "there is no absent.tgz for executors"

    def test_a_client_of_hdfs_is_not_installed(self, hadoop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        launch.require_yarn({}, ["verify", "--store", "/nfs/store"])
        with pytest.raises(errors.DependencyMissing) as missing:
            launch.require_yarn({}, ["verify", "--store", "hdfs://n/store"])
        assert str(missing.value) == "hdfs:// needs hdfs-native"
        install = "`python jobs/setup/environment.py --extra hdfs` in .venv/bin, then --pack again"
        assert missing.value.advice == install
