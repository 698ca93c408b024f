"""How Spark is started: what goes to spark-submit, with which settings, and what a packed Python is."""

from __future__ import annotations

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
        with pytest.raises(errors.UsageError, match=r"^--store is not an option of spark-submit"):
            launch.split_command_line(["--store", "S", "rebuild"], JOBS)


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
        "options", [["--conf", "nonsense"], ["--conf", "=x"], ["--master", ""], ["--properties-file", "absent"]]
    )
    def test_what_spark_submit_would_answer_with_a_trace(self, options: list[str], tmp_path: Path) -> None:
        with pytest.raises((errors.UsageError, errors.MissingInput)):
            launch.user_settings([str(tmp_path / word) if word == "absent" else word for word in options])

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
        assert "--setup" in (missing.value.advice or "")
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

    def test_cluster_mode_becomes_spark_submit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        called: list[Any] = []
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        monkeypatch.setattr("os.execv", lambda *call: called.append(call))
        launch.prepare(["--master", "yarn", "--deploy-mode", "cluster"], ["rebuild", "--store", "hdfs://s"])
        [(program, words)] = called
        assert program.endswith("pyspark/bin/spark-submit")
        assert words[-3:] == ["rebuild", "--store", "hdfs://s"]
        assert words[-4].endswith("jobs/__main__.py")
        assert Path(words[-4]).is_file()

    def test_cluster_mode_shows_nobody_a_secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        monkeypatch.setattr("os.execv", lambda *call: pytest.fail(str(call)))
        arguments = ["rebuild", "--store", "s3://KEY:SECRET@bucket/store", "--output", "s3://bucket/new"]
        with pytest.raises(errors.UsageError, match="holds a secret") as refused:
            launch.prepare(["--master", "yarn", "--deploy-mode", "cluster"], arguments)
        assert "SECRET" not in str(refused.value)


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
        with pytest.raises(errors.DependencyMissing, match=r"has no yarn-site\.xml"):
            launch.require_yarn({}, ())
        monkeypatch.delenv("HADOOP_CONF_DIR")
        with pytest.raises(errors.DependencyMissing, match="HADOOP_CONF_DIR, which is not set, has no"):
            launch.prepare(["--master", "yarn"], ["verify", "--store", "/s"])

    def test_the_archive_for_executors_is_not_there(self, hadoop: Path) -> None:
        (hadoop / "python.tar.gz").touch()
        launch.require_yarn({"spark.archives": f"{hadoop}/python.tar.gz#environment,hdfs://n/x.tgz"}, ())
        with pytest.raises(errors.DependencyMissing, match=r"there is no absent\.tgz") as missing:
            launch.require_yarn(launch.user_settings(["--archives", "absent.tgz#environment"]), ())
        assert "--pack absent.tgz" in (missing.value.advice or "")

    def test_a_client_of_hdfs_is_not_installed(self, hadoop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        launch.require_yarn({}, ["verify", "--store", "/nfs/store"])
        with pytest.raises(errors.DependencyMissing, match="hdfs:// needs hdfs-native"):
            launch.require_yarn({}, ["verify", "--store", "hdfs://n/store"])
