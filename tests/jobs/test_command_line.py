"""What a command line means, how a run ends, and what it says."""

from __future__ import annotations

import io
import json
import signal
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs import arguments, command_line, config, launch, packing, session
from jobs.command_line import JOBS, main, parse
from jobs.reporting import Interrupted, Report, Reporter, failure_report, size_text, time_text
from storeformat import errors

LEAST = {
    "demo": [],
    "rebuild": ["--store", "S", "--output", "D"],
    "publish": ["--store", "S", "--from", "D"],
    "restore": ["--store", "S"],
    "verify": ["--store", "S"],
    "query": ["--store", "S", "id", "C0A8000900002A9F0000000000000064"],
    "inspect": ["--store", "S"],
    "load": ["--store", "S", "--table", "T", "--cluster", "C", "--broker", "B"],
    "report": ["--table", "T"],
}


class TestParsing:
    def test_the_table_of_jobs_is_the_documented_one(self) -> None:
        assert list(JOBS) == list(LEAST)

    @pytest.mark.parametrize("job", LEAST)
    def test_the_least_arguments_give_every_other_field_its_default(self, job: str) -> None:
        name, options = parse([job, *LEAST[job]], JOBS)
        assert name == job
        assert type(options) is JOBS[job].options
        given = {"store", "output", "rebuilt", "kind", "message_id", "table", "cluster", "broker"}
        for field in fields(options):
            if field.name not in given:
                assert getattr(options, field.name) == field.default, field.name

    @pytest.mark.parametrize("job", LEAST)
    def test_help_explains_every_option(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            parse([job, "--help"], JOBS)
        assert ended.value.code == 0
        said = capsys.readouterr().out
        assert f"spark-submit.sh {job}" in said
        assert "exit codes" in said

    def test_rebuild_with_everything(self) -> None:
        line = """
            rebuild --store s3://b/store --output D --commitlog /a/log,/b/log --broker-conf b.conf --set maxIndexNum=20
            --set a= --broker-version 4.9 --topic T --topic %RETRY%g:3 --batch-topic B --only index,consumequeue
            --on-damage salvage --until-offset 100 --split-size 4096 --dry-run --json --report R --quiet --debug
        """
        assert parse(line.split(), JOBS)[1] == config.RebuildOptions(
            store="s3://b/store",
            output="D",
            commitlog=("/a/log", "/b/log"),
            broker_conf="b.conf",
            settings=(("maxIndexNum", "20"), ("a", "")),
            broker_version="4.9",
            topics=(config.TopicFilter("T"), config.TopicFilter("%RETRY%g", 3)),
            batch_topics=("B",),
            only=("consumequeue", "index"),
            on_damage="salvage",
            until_offset=100,
            split_size=4096,
            dry_run=True,
            json=True,
            report_file="R",
            quiet=True,
            debug=True,
        )

    @pytest.mark.parametrize(
        "line", ["--store S key --topic T --key K --max 3", "key --topic T --key K --max 3 --store S"]
    )
    def test_query_takes_the_store_on_either_side_of_the_question(self, line: str) -> None:
        _, options = parse(["query", *line.split()], JOBS)
        assert options == config.QueryOptions(store="S", kind="key", topic="T", key="K", max_messages=3)

    def test_query_without_a_store_is_told_so(self) -> None:
        with pytest.raises(errors.UsageError, match="required: --store"):
            parse(["query", "id", "X"], JOBS)

    @pytest.mark.parametrize(
        "line",
        [
            "rebuild --store S",
            "rebuild --store S --output D --split-size 0",
            "rebuild --store S --output D --until-offset -1",
            "rebuild --store S --output D --set novalue",
            "rebuild --store S --output D --only index,queues",
            "rebuild --store S --output D --on-damage ignore",
            "rebuild --sto S --output D",
            "query --store S offset --topic T --queue 0",
            "rebuid --store S --output D",
            "inspect --store S extra",
            "inspect --store=",
            "inspect --store S --commitlog ,",
            "rebuild --store S --output=",
            "rebuild --store S --output D --topic=",
            "query --store S time --topic T --queue 0 --time 2026-01-31",
            "query --store S time --topic T --queue 0 --time 2026-01-31T23:59:59",
        ],
    )
    def test_wrong_lines_are_usage_errors(self, line: str) -> None:
        with pytest.raises(errors.UsageError):
            parse(line.split(), JOBS)

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("~", "HOME"),
            ("~/store", "HOME/store"),
            ("~other/x", "~other/x"),
            ("file:/data/x", "file:///data/x"),
            ("file:///data/x", "file:///data/x"),
            ("s3://bucket/~/x", "s3://bucket/~/x"),
            ("a b/\U0001f980/", "a b/\U0001f980/"),
        ],
    )
    def test_paths(self, text: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        assert arguments.path(text) == meant.replace("HOME", "/home/me")
        assert arguments.paths(f"{text},b") == (meant.replace("HOME", "/home/me"), "b")

    @pytest.mark.parametrize(
        "text",
        ["1626079567052", "2021-07-12T08:46:07.052Z", "2021-07-12T08:46:07.052+00:00", "2021-07-12 10:46:07.052+02:00"],
    )
    def test_times(self, text: str) -> None:
        assert arguments.milliseconds(text) == 1626079567052

    def test_an_unknown_option_is_the_jobs(self) -> None:
        with pytest.raises(errors.UsageError, match="--frm 5") as wrong:
            parse(["inspect", "--store", "S", "--frm", "5"], JOBS)
        assert wrong.value.advice == "see ./spark-submit.sh inspect --help"


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
        with pytest.raises(errors.UsageError, match=r"^--store is no option of spark-submit"):
            launch.split_command_line(["--store", "S", "rebuild"], JOBS)


class TestLaunch:
    @pytest.fixture(autouse=True)
    def environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "PYSPARK_GATEWAY_PORT",
            "PYSPARK_PYTHON",
            "SPARK_CONF_DIR",
            "SPARK_LOCAL_IP",
            "MASTER",
            "SPARK_SUBMIT_OPTS",
        ):
            monkeypatch.delenv(name, raising=False)
        for name in (
            "PYSPARK_SUBMIT_ARGS",
            "SPARK_SUBMIT_OPTS",
            "SPARK_HOME",
            "PYTHONPATH",
            "PYTHONSAFEPATH",
            launch.DEBUG,
        ):
            monkeypatch.setenv(name, "")
        for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "SPARK_LAUNCHER_OPTS"):
            monkeypatch.setenv(name, "set by a test")

    @staticmethod
    def submitted(*options: str, **settings: Any) -> list[str]:
        import os
        import shlex

        launch.prepare(options, **settings)
        words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert words[-1] == "pyspark-shell"
        return words[:-1]

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
        assert launch.socket_settings("/tmp") == {"spark.python.unix.domain.socket.dir": "/tmp"}
        assert launch.socket_settings("/tmp/" + "x" * 55) == {f"{launch.SOCKETS}.dir": "/tmp/" + "x" * 55}
        assert launch.socket_settings("/tmp/" + "x" * 56) == {"spark.python.unix.domain.socket.enabled": "false"}

    def test_executors_elsewhere_get_the_packages_as_a_zip(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import zipfile

        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        [shipped] = launch.values_of(self.submitted("--master", "yarn", "--py-files", "a.zip"), "--py-files")[1:]
        mine, ours = shipped.split(",")
        assert mine == "a.zip"
        names = zipfile.ZipFile(ours).namelist()
        assert {"jobs/__init__.py", "storeformat/errors.py", "udfs/__init__.py"} <= set(names)
        assert not [name for name in names if "__pycache__" in name]
        before = Path(ours).stat().st_mtime_ns
        assert launch.application_zip().stat().st_mtime_ns == before
        assert launch.values_of(self.submitted("--master", "local[2]"), "--py-files") == []

    def test_delta_brings_its_jars_or_asks_for_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        words = self.submitted("--packages", "a:b:1", delta=True)
        assert launch.values_of(words, "--packages")[-1] == f"a:b:1,{launch.delta_coordinate()}"
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


# --------------------------------------------------------------------------------------------------------- running jobs
@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Returns a stand-in for a job's module; its ``run`` may be replaced."""
    module = SimpleNamespace(run=lambda options, reporter: Report("inspect", messages=3))
    monkeypatch.setitem(sys.modules, "jobs.inspection", module)
    monkeypatch.setattr(launch, "prepare", lambda *words, **settings: None)
    return module


def raising(error: BaseException) -> Any:
    def run(options: Any, reporter: Any) -> Report:
        raise error

    return run


LINE = ["inspect", "--store", "S"]


class TestRunning:
    def test_the_text_report_is_all_of_stdout(self, job: Any, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(LINE, JOBS) == 0
        assert capsys.readouterr().out.split() == ["job", "inspect", "status", "ok", "messages", "3"]

    def test_json_is_one_object_alone(self, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert main([*LINE, "--json", "--report", str(tmp_path / "r.json")], JOBS) == 0
        said = capsys.readouterr()
        assert json.loads(said.out) == {"job": "inspect", "status": "ok", "messages": 3}
        assert said.out.count("\n") == 1
        assert json.loads((tmp_path / "r.json").read_text()) == json.loads(said.out)
        assert [path.name for path in tmp_path.iterdir()] == ["r.json"]

    @pytest.mark.parametrize(
        ("error", "code", "status"),
        [
            (errors.NotAStore("x"), 65, "error"),
            (errors.WrongSettings("x"), 65, "error"),
            (errors.MissingInput("x"), 66, "error"),
            (errors.Refused("x"), 2, "refused"),
            (errors.DamagedLog("x"), 2, "refused"),
            (errors.DependencyMissing("x"), 69, "error"),
            (errors.WriteFailed("x"), 74, "error"),
            (errors.TotalsDisagree("x"), 70, "error"),
            (errors.UsageError("x"), 64, "error"),
            (OSError(28, "No space left on device", "/full"), 74, "error"),
            (ZeroDivisionError("by zero"), 70, "error"),
            (Interrupted(signal.SIGTERM), 143, "error"),
            (KeyboardInterrupt(), 130, "error"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
    )
    def test_errors_have_their_exit_code_and_at_most_two_lines(
        self, job: Any, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, status: str
    ) -> None:
        job.run = raising(error)
        assert main([*LINE, "--json"], JOBS) == code
        said = capsys.readouterr()
        assert json.loads(said.out)["status"] == status
        assert 1 <= said.err.count("\n") <= 2
        assert "Traceback" not in said.err
        assert main(LINE, JOBS) == code
        assert capsys.readouterr().out == ""

    def test_an_error_says_what_where_and_what_to_do(self, job: Any, capsys: pytest.CaptureFixture[str]) -> None:
        job.run = raising(errors.DamagedLog("bad size", path="/log", offset=7, found=1, expected=2, advice="do this"))
        main([*LINE, "--json"], JOBS)
        said = capsys.readouterr()
        assert said.err == "error: bad size: found 1, expected 2 (/log, offset 7)\n  do this\n"
        assert json.loads(said.out)["offset"] == 7

    def test_debug_shows_the_trace(self, job: Any, capsys: pytest.CaptureFixture[str]) -> None:
        job.run = raising(ZeroDivisionError("by zero"))
        assert main([*LINE, "--debug"], JOBS) == 70
        assert "Traceback" in capsys.readouterr().err

    def test_wrong_lines_end_with_64_and_json_if_asked_for(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["inspect", "--json"], JOBS) == 64
        said = capsys.readouterr()
        assert "--store" in json.loads(said.out)["error"]
        assert (
            said.err == "error: the following arguments are required: --store\n  see ./spark-submit.sh inspect --help\n"
        )
        assert main(["--store", "S", "inspect"], JOBS) == 64

    def test_no_arguments_show_the_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main([], JOBS)
        assert ended.value.code == 0
        said = capsys.readouterr().out
        assert all(name in said for name in JOBS)

    def test_a_check_runs_nothing(
        self, job: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job.run = raising(AssertionError("must not run"))
        monkeypatch.setenv("ROCKETMQ_STORE_SPARK_CHECK", "1")
        assert main(LINE, JOBS) == 0
        assert main(["inspect"], JOBS) == 64
        assert capsys.readouterr().out == ""

    def test_a_report_that_cannot_be_written_is_no_success(
        self, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert main([*LINE, "--report", str(tmp_path / "r.json" / "r.json")], JOBS) == 74
        assert "report cannot be written" in capsys.readouterr().err

    def test_a_report_that_cannot_be_written_is_known_before_the_work(
        self, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        job.run = raising(AssertionError("must not run"))
        for file in (tmp_path, tmp_path / "absent" / "r.json"):
            assert main([*LINE, "--json", "--report", str(file)], JOBS) == 74
            said = capsys.readouterr()
            assert said.err.count("report cannot be written") == 1
            assert json.loads(said.out)["status"] == "error"

    def test_stdout_has_a_report_that_its_file_cannot_take_any_more(
        self, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def run(options: Any, reporter: Any) -> Report:
            (tmp_path / "reports").rmdir()
            return Report("inspect", "damaged")

        (tmp_path / "reports").mkdir()
        job.run = run
        assert main([*LINE, "--json", "--report", str(tmp_path / "reports" / "r.json")], JOBS) == 1
        said = capsys.readouterr()
        assert json.loads(said.out)["status"] == "damaged"
        assert "report cannot be written" in said.err

    def test_the_report_of_a_wrong_line_goes_to_its_file(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert main(["inspect", "--json", "--report", str(tmp_path / "r.json")], JOBS) == 64
        assert json.loads((tmp_path / "r.json").read_text()) == json.loads(capsys.readouterr().out)

    def test_signals_are_as_before_afterwards(self, job: Any) -> None:
        before = signal.getsignal(signal.SIGTERM)
        seen = []
        job.run = lambda options, reporter: seen.append(signal.getsignal(signal.SIGTERM)) or Report("inspect")
        main(LINE, JOBS)
        assert seen == [command_line.orderly_signals.interrupt]
        assert signal.getsignal(signal.SIGTERM) == before


class TestPacking:
    @pytest.mark.parametrize(
        ("words", "code"), [(["--pack"], 64), (["--pack", "absent/x.tgz"], 74), (["--pack", "."], 74)]
    )
    def test_what_cannot_be_packed(
        self, words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["packing.py", *words])
        monkeypatch.setattr(packing, "PACKED", ())
        with pytest.raises(SystemExit) as ended:
            packing.main()
        assert ended.value.code == code
        assert list(tmp_path.iterdir()) == []


class TestReport:
    def test_any_script_on_any_stdout(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        topic = "\u4e2d\U0001f980\udcff"
        for encoding in ("latin-1", "utf-8"):
            raw = io.BytesIO()
            monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
            options = config.JobOptions(json=True, report_file=str(tmp_path / "r.json"))
            assert command_line.deliver(Report("inspect", topic=topic), options) == 0
            assert json.loads(raw.getvalue())["topic"] == topic
            assert json.loads((tmp_path / "r.json").read_text())["topic"] == topic
            assert command_line.deliver(Report("inspect", topic=topic), config.JobOptions()) == 0

    def test_statuses_have_exit_codes(self) -> None:
        codes = [Report("j", status).exit_code for status in ("ok", "differences", "damaged", "refused", "error")]
        assert codes == [0, 1, 1, 2, 70]
        assert Report("query", "ok", exit_code=1).exit_code == 1

    def test_text_shows_what_there_is(self) -> None:
        report = Report(
            "rebuild", bytes=3_200_000_000, messages=0, log_end=1234567, seconds=1.234, dry_run=False, absent=None,
            damaged_ranges=[{"begin": 1, "end": 2, "reason": "x"}] * 12, counts={"a": 1},
        )  # fmt: skip
        assert [line.split(None, 1) for line in report.to_text().splitlines()] == [
            ["job", "rebuild"],
            ["status", "ok"],
            ["bytes", "3,200,000,000 (3.2 GB)"],
            ["messages", "0"],
            ["log", "end         1234567"],
            ["seconds", "1.2"],
            ["damaged", "ranges  begin 1, end 2, reason x"],
            *[["begin", "1, end 2, reason x"]] * 9,
            ["...", "and 2 more (--json has them all)"],
            ["counts", "a: 1"],
        ]

    def test_text_shows_a_message_as_a_block(self) -> None:
        message = {f"fact_{number}": number for number in range(12)} | {
            "keys": ["a", "b"],
            "tags": None,
            "properties": {"A": "1"},
        }
        text = Report("query", messages=[message] * 30).to_text()
        assert text.count("fact 11     11") == 30
        assert "keys        a b\n" in text
        assert "properties  A=1\n" in text
        assert "tags" not in text

    def test_json_takes_what_numpy_and_python_have(self) -> None:
        import numpy as np

        report = Report("j", n=np.int64(3), s={"b", "a"}, b=b"\xff", t="日本")
        assert json.loads(report.to_json()) == {
            "job": "j", "status": "ok", "n": 3, "s": ["a", "b"], "b": "\\xff", "t": "日本",
        }  # fmt: skip

    @pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (10**13, "10.0 TB")])
    def test_sizes(self, count: int, text: str) -> None:
        assert size_text(count) == text

    @pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (120, "2 min"), (9000, "2.5 h")])
    def test_times(self, seconds: float, text: str) -> None:
        assert time_text(seconds) == text


class TestProgress:
    def test_elsewhere_than_on_a_terminal_a_line_every_interval(self) -> None:
        said = io.StringIO()
        with Reporter(stream=said, interval=30).progress("scan", 1000) as progress:
            for second in range(0, 100, 10):
                progress.update(10 * second, now=progress.begun + second)
        assert said.getvalue() == (
            "scan: 30%, 300 B of 1.0 kB, 10 B/s, about 70 s left\n"
            "scan: 60%, 600 B of 1.0 kB, 10 B/s, about 40 s left\n"
            "scan: 90%, 900 B of 1.0 kB, 10 B/s, about 10 s left\n"
        )

    def test_on_a_terminal_one_line_that_is_wiped_at_the_end(self) -> None:
        said = io.StringIO()
        said.isatty = lambda: True  # type: ignore[method-assign]
        reporter = Reporter(stream=said)
        with reporter.progress("scan", 10, "files") as progress:
            progress.update(5, now=progress.begun + 1)
            reporter.note("by the way")
        line = "scan: 50%, 5 files of 10 files, 5 files/s, about 1 s left"
        assert said.getvalue() == f"{line}\r{' ' * len(line)}\rby the way\n"

    def test_quiet_silences_notes_and_progress_but_no_warning(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said, quiet=True, interval=0)
        with reporter.progress("scan", 10) as progress:
            progress.update(5, now=progress.begun + 100)
        reporter.note("n")
        reporter.warn("w")
        assert said.getvalue() == "warning: w\n"


class TestWhatSparkSays:
    def test_traces_and_known_noise_are_left_out_and_nothing_else(self) -> None:
        said = b"""WARNING: Using incubator modules: jdk.incubator.vector
one
Traceback (most recent call last):
  File "daemon.py", line 262, in manager
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
two
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
Caused by: java.io.IOException
\t... 3 more
three
Traceback (most recent call last):
Traceback (most recent call last):
  x
KeyError: 1
four
"""
        assert b"".join(session.without_noise(said.splitlines(keepends=True))).decode().split("\n") == [
            "one",
            "two",
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
            "three",
            "four",
            "",
        ]


class TestErrorsOfTasks:
    def test_ours_keep_their_class(self) -> None:
        text = 'x\n  File "a.py", line 1\nstoreformat.errors.DamagedLog: bad size (/log, offset 7)\n\n\tat org.apache'
        cause = session.raised_by_task(session.RAISED.findall(text))
        assert type(cause) is errors.DamagedLog
        assert failure_report("rebuild", cause).error_lines == ["error: bad size (/log, offset 7)"]

    def test_a_full_disk_is_a_full_disk(self) -> None:
        text = "OSError: [Errno 28] No space left on device: '/full/x'\n"
        cause = session.raised_by_task(session.RAISED.findall(text))
        assert isinstance(cause, OSError)
        assert failure_report("rebuild", cause).exit_code == 74
        assert failure_report("rebuild", cause)["path"] == "/full/x"

    def test_an_executor_without_our_dependencies_is_named(self) -> None:
        cause = session.raised_by_task([("ModuleNotFoundError", "No module named 'numpy'")])
        assert isinstance(cause, errors.DependencyMissing)

    def test_others_are_nobodys(self) -> None:
        assert session.raised_by_task([("ValueError", "bad"), ("SparkException", "Job aborted")]) is None
