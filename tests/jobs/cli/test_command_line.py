"""What a command line means, and how a run ends."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.patching import stand_in

from jobs.cli import command_line
from jobs.cli.command_line import JOBS, deliver, main, parse, refuse_unwritable
from jobs.contract import options as job_options
from jobs.contract.report import Interrupted, Report
from jobs.spark import session
from storeformat import errors


class TestParsing:
    @pytest.mark.parametrize(
        "line", ["--store S key --topic T --key K --max 3", "key --topic T --key K --max 3 --store S"]
    )
    def test_query_takes_the_store_on_either_side_of_the_question(self, line: str) -> None:
        _, options = parse(["query", *line.split()], JOBS)
        assert options == job_options.KeyOptions(store="S", topic="T", key="K", max_messages=3)

    @pytest.mark.parametrize(
        "line",
        [
            "rebuild --sto S --output D", "rebuid --store S --output D", "inspect --store S extra",
            "inspect --store S --commitlog ,", "--store S inspect",
            "query --store S time --topic T --queue 0 --time 2026-01-31",
        ],
    )  # fmt: skip
    def test_wrong_lines_are_usage_errors(self, line: str) -> None:
        with pytest.raises(errors.UsageError):
            parse(line.split(), JOBS)

    def test_an_unknown_option_is_the_jobs(self) -> None:
        with pytest.raises(errors.UsageError, match="--frm 5") as wrong:
            parse(["inspect", "--store", "S", "--frm", "5"], JOBS)
        assert wrong.value.advice == "is it --from? see ./spark-submit.sh inspect --help"

    def test_an_unknown_job_is_told_the_nearest(self) -> None:
        with pytest.raises(errors.UsageError, match="invalid choice: 'rebuld'") as wrong:
            parse(["rebuld", "--store", "S"], JOBS)
        assert wrong.value.advice == "is it rebuild? see ./spark-submit.sh --help"


# --------------------------------------------------------------------------------------------------------- running jobs
@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Returns a stand-in for a job's module; its ``run`` may be replaced."""
    module = SimpleNamespace(run=lambda *_: Report("inspect", messages=3))
    monkeypatch.setitem(sys.modules, "jobs.query.inspection", module)
    monkeypatch.setattr(session.Spark, "begin", lambda *_: None)
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

    def test_a_wrong_line_ends_with_64_and_its_report_goes_where_it_was_asked_for(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert main(["inspect", "--json", "--report", str(tmp_path / "r.json")], JOBS) == 64
        said = capsys.readouterr()
        missing = "the following arguments are required: --store"
        assert json.loads(said.out) == {"job": "", "status": "error", "error": missing}
        assert json.loads((tmp_path / "r.json").read_text()) == json.loads(said.out)
        assert said.err == f"error: {missing}\n  see ./spark-submit.sh inspect --help\n"
        assert main([*LINE, "--report="], JOBS) == 64
        assert main(["inspect", "--stor", "S"], JOBS) == 64
        assert "unknown arguments: --stor\n  is it --store or --set? see" in capsys.readouterr().err

    @pytest.mark.parametrize(("words", "named"), [([], list(JOBS)), (["inspect", "--help"], ["--from N", "inspect"])])
    def test_help(self, words: list[str], named: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(words, JOBS)
        said = capsys.readouterr().out
        assert ended.value.code == 0
        assert all(name in said for name in named)

    @pytest.mark.parametrize(
        ("words", "job", "begins", "given"),
        [
            (["inspect", "--store", "S"], "inspect", True, ((), False)),
            (["inspect", "--store", "S", "--limit", "1"], "inspect", False, ((), False)),
            (["--master", "local[2]", "inspect", "--store", "S", "--debug"], "inspect", True,
             (("--master", "local[2]"), True)),
            (["report", "--table", "T"], "report", False, ((), False)),
            (["load", "--store", "S", "--table", "T", "--cluster", "C", "--broker", "B"], "load", False, ((), False)),
            (["query", "--store", "S", "key", "--topic", "T", "--key", "k"], "query", False, None),
            (["query", "--store", "S", "key", "--topic", "T", "--key", "k", "--scan"], "query", True, ((), False)),
            (["preflight", "--store", "S"], "preflight", False, None),
        ],
    )  # fmt: skip
    def test_when_spark_begins(
        self, words: list[str], job: str, begins: bool, given: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where it is sure to be needed, before anything else."""
        done: list[Any] = []

        def run(options: Any, reporter: Any) -> Report:
            spark = session._spark
            done.append(spark and (tuple(spark._options), spark._debug))
            return Report("x")

        monkeypatch.setattr(session.Spark, "begin", lambda spark: done.append("begin"))
        monkeypatch.setitem(sys.modules, JOBS[job].module, SimpleNamespace(run=run))
        assert main(words, JOBS) == 0
        assert done == [*["begin"] * begins, given]

    def test_signals_unwind_the_stack_but_those_that_were_ignored(self, job: Any) -> None:
        def run(options: Any, reporter: Any) -> Report:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError

        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            job.run = run
            assert main(LINE, JOBS) == 143
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        finally:
            signal.signal(signal.SIGHUP, before)

    @pytest.mark.parametrize(("option", "heard"), [([], ""), (["--debug"], "ERROR:root:the gateway is gone\n")])
    def test_what_py4j_logs_is_heard_with_debug_alone(
        self,
        job: Any,
        option: list[str],
        heard: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def run(options: Any, reporter: Any) -> Report:
            logging.error("the gateway is gone")  # noqa: LOG015  (as py4j does)
            return Report("inspect")

        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        job.run = run
        assert main([*LINE, *option], JOBS) == 0
        assert capsys.readouterr().err == heard

    def test_a_check_runs_nothing(
        self, job: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job.run = raising(AssertionError("must not run"))
        monkeypatch.setenv("ROCKETMQ_STORE_SPARK_CHECK", "1")
        assert main(LINE, JOBS) == 0
        assert main(["inspect"], JOBS) == 64
        assert capsys.readouterr().out == ""

    def test_a_report_that_cannot_be_written_is_known_before_the_work(
        self, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        job.run = raising(AssertionError("must not run"))
        for file in (tmp_path, tmp_path / "absent" / "r.json"):
            assert main([*LINE, "--json", "--report", str(file)], JOBS) == 74
            said = capsys.readouterr()
            assert said.err.count("report cannot be written") == 1
            assert json.loads(said.out)["status"] == "error"

    @pytest.mark.parametrize("option", ["--report", "--metrics"])
    def test_no_report_goes_into_a_store(
        self, option: str, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Nor over a segment of its log, through a link either."""
        (tmp_path / "store").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "store")
        job.run = raising(AssertionError("must not run"))
        line = ["inspect", "--store", str(tmp_path / "store")]
        for place in ("store/00000000000000000000", "link/r"):
            assert main([*line, option, str(tmp_path / place)], JOBS) == 2
        assert "only publish and restore write into a store" in capsys.readouterr().err
        both = str(tmp_path / "r")
        assert main([*line, "--report", both, "--metrics", both], JOBS) == 64
        assert not list((tmp_path / "store").iterdir())

    def test_stdout_has_a_report_that_its_file_cannot_take_any_more(
        self, job: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def run(options: Any, reporter: Any) -> Report:
            (tmp_path / "reports").rmdir()
            (tmp_path / "reports").touch()
            return Report("inspect", "damaged")

        (tmp_path / "reports").mkdir()
        job.run = run
        assert main([*LINE, "--json", "--report", str(tmp_path / "reports" / "r.json")], JOBS) == 1
        said = capsys.readouterr()
        assert json.loads(said.out)["status"] == "damaged"
        assert "report cannot be written" in said.err


class TestUnwritable:
    """Where reports cannot go."""

    @pytest.mark.parametrize(
        ("file", "reason", "path"),
        [
            ("", "this is a directory", ""),
            ("absent/r.json", "there is no such directory", "absent"),
            ("f/r.json", "there is no such directory", "f"),
            ("closed/r.json", "permission denied", "closed/r.json"),
        ],
    )
    def test_it_is_said_why(
        self, tmp_path: Path, file: str, reason: str, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "closed").mkdir()
        (tmp_path / "f").touch()
        closed = ("closed", os.W_OK)
        stand_in(monkeypatch, command_line, "os", access=lambda place, mode: (Path(place).name, mode) != closed)
        with pytest.raises(errors.WriteFailed) as error:
            refuse_unwritable(str(tmp_path / file))
        assert str(error.value) == f"the report cannot be written: {reason} ({tmp_path / path})"


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (job_options.VerifyOptions(store="/a/store"), "/a/store"),
        (job_options.ReportOptions(table="/a/table"), "/a/table"),
        (job_options.DemoOptions(), ""),
    ],
)
def test_metrics_name_the_store_or_the_table(
    options: job_options.JobOptions, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.prom"
    assert deliver(Report("verify", "ok"), replace(options, metrics=str(path))) == 0
    assert f'store="{place}"' in path.read_text()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("status", "code"), [("ok", 74), ("damaged", 1)])
def test_metrics_that_cannot_be_written_are_no_success(
    status: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f").touch()
    options = job_options.VerifyOptions(metrics=str(tmp_path / "f" / "f.prom"), store="/s")
    assert deliver(Report("verify", status), options) == code
    said = capsys.readouterr()
    assert said.err.startswith("error: metrics: ")
    assert said.err.count("\n") == 1
    assert status in said.out


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")


class TestStdout:
    """The report on other streams than a terminal's."""

    @pytest.mark.parametrize(
        ("encoding", "json", "said"),
        [
            ("utf-8", False, "job     verify\nstatus  ok\ntopic   ä\\udcff\n".encode()),
            ("ascii", False, b"job     verify\nstatus  ok\ntopic   \\xe4\\udcff\n"),
            ("utf-8", True, '{"job": "verify", "status": "ok", "topic": "ä\\udcff"}\n'.encode()),
            ("UTF-8", True, '{"job": "verify", "status": "ok", "topic": "ä\\udcff"}\n'.encode()),
            ("latin-1", True, b'{"job": "verify", "status": "ok", "topic": "\\u00e4\\udcff"}\n'),
        ],
    )
    def test_topics_in_any_script(
        self, encoding: str, json: bool, said: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
        assert deliver(Report("verify", topic="ä\udcff"), job_options.VerifyOptions(store="S", json=json)) == 0
        assert written.getvalue() == said

    def test_a_reader_that_has_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            assert deliver(Report("verify", "damaged"), job_options.VerifyOptions(store="S")) == 1
            assert os.fstat(writing).st_rdev == Path(os.devnull).stat().st_rdev
            stdout.write("said as the interpreter ends")

    @FULL
    @pytest.mark.parametrize(("status", "code"), [("damaged", 1), ("ok", 74)])
    def test_a_full_disk(
        self, status: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with suppress(OSError), open("/dev/full", "w", encoding="utf-8") as stdout:  # noqa: PTH123
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", stdout)
                assert deliver(Report("verify", status), job_options.VerifyOptions(store="S")) == code
            assert capsys.readouterr().err == (
                "error: the report cannot be written: No space left on device (stdout)\n"
            )


# Output that cannot be shown changes no verdict, and is no defect.
ROOT = Path(__file__).resolve().parents[3]


@FULL
@pytest.mark.parametrize("streams", ["2>&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full", "2>&1 >/dev/null | :"])
def test_a_refusal_stays_one(streams: str, tmp_path: Path) -> None:
    """Exit code 66, as with streams that work; the shell tells it by a file."""
    line = (
        f'{{ "{sys.executable}" -m jobs preflight --store "{tmp_path}/absent"; echo $? >"{tmp_path}/code"; }} {streams}'
    )
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (tmp_path / "code").read_text() == "66\n"
    assert "Traceback" not in done.stdout + done.stderr


@FULL
@pytest.mark.parametrize(("streams", "code"), [(">/dev/full", 74), (">&-", 0), ("| :", 0), ("2>/dev/full", 0)])
def test_a_report_that_is_not_shown(streams: str, code: int, tmp_path: Path) -> None:
    program = (
        "from jobs.__main__ import *; from jobs.contract.report import Report; import jobs.preflight.preflight as p; "
    )
    program += (
        "p.run = lambda *given: (given[1].say('x' * 9000), Report('preflight', text=['y' * 9000]))[1]; sys.exit(main())"
    )
    words = "preflight --store /"
    line = f'{{ "{sys.executable}" -c "{program}" {words}; echo $? >"{tmp_path}/code"; }} {streams}'
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (tmp_path / "code").read_text() == f"{code}\n", done.stderr
    assert ("error: the report cannot be written: No space left on device (stdout)" in done.stderr) == (code == 74)
