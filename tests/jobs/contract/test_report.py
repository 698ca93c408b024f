"""What a run says: the report in both forms, notes, and progress."""

from __future__ import annotations

import io
import json
import platform
import re
import signal
import sys
import traceback
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.cli import command_line
from jobs.contract.options import JobOptions
from jobs.contract.report import Interrupted, Report, failure_report, printable, size_text
from jobs.contract.reporter import Reporter
from storeformat.errors import MissingInput, Refused, WriteFailed

HOSTILE = "x\x1b]0;PWN\x07\x1b[31my\nerror: fake\r\x7f\x9b2J\u2028\u2029\u202e\u2066\u200b\ufeff\U000e0041\udcff"
SECRET = "s3://KEY:SECRET@bucket/store?secret_key=SECRET&region=eu"


def obeyed(text: str) -> list[str]:
    """Returns what a terminal would obey or hide, by the Unicode categories; newlines between lines are ours."""
    return [sign for sign in text if unicodedata.category(sign) in {"Cc", "Zl", "Zp", "Cs"} or sign in HIDDEN]


HIDDEN = "\xad\u061c\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"


class TestPrintable:
    @given(st.text(min_size=1) | st.text(min_size=1, alphabet="ab:@/?=& " + HOSTILE + HIDDEN))
    @example(HOSTILE)
    def test_nothing_that_a_terminal_obeys_leaves_the_program(self, text: str) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said)
        reporter.note(text)
        reporter.warn(text)
        with reporter.progress(text, 0) as progress:
            progress.update(0, now=progress.begun + 100)
        shown = Report("query", "error", topic=text, names=[text], places={text: text}, rows=[{"topic": text}])
        lines = [*said.getvalue().split("\n"), *shown.to_text().split("\n")]
        assert len(lines) == 3 + 1 + 6
        assert [line for line in lines if obeyed(line)] == []

    @given(
        st.recursive(
            st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        )
    )
    @example({HOSTILE: [HOSTILE]})
    def test_json_holds_the_same_and_nothing_to_obey(self, value: object) -> None:
        for ascii_only in (False, True):
            text = Report("query", value=value).to_json(ascii_only=ascii_only)
            assert json.loads(text)["value"] == value or "://" in str(value)
            assert obeyed(text) == []

    def test_topics_of_any_script_stay_readable(self) -> None:
        for topic in (
            "\u4e2d\u6587",
            "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
            "\u0939\u093f\u0928\u094d\u0926\u0940",
            "\U0001f980",
            "%RETRY%g-1_a|b",
        ):
            assert printable(topic) == topic

    @pytest.mark.parametrize(
        ("text", "shown"), [("\x1b", "\\x1b"), ("\x9b", "\\x9b"), ("\u202e", "\\u202e"), ("\U000e0041", "\\U000e0041")]
    )
    def test_each_is_shown_as_python_would_write_it(self, text: str, shown: str) -> None:
        assert printable(f"a{text}b") == f"a{shown}b"

    def test_a_hostile_name_forges_no_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        report = failure_report("inspect", MissingInput("cannot be read", path=HOSTILE, advice=HOSTILE))
        assert command_line.deliver(report, JobOptions()) == 66
        lines = capsys.readouterr().err.splitlines()
        assert [line[:14] for line in lines] == ["error: cannot ", "  x\\x1b]0;PWN\\"]
        assert [line for line in lines if obeyed(line)] == []

    def test_no_form_of_a_report_shows_a_secret_but_data_stays(self, tmp_path: Path) -> None:
        said = io.StringIO()
        Reporter(stream=said).note(f"reads {SECRET}")
        report = Report("inspect", store=SECRET, notes=[SECRET], places={"a": [SECRET]}, path=Path(SECRET))
        report.write(str(tmp_path / "r.json"))
        forms = [said.getvalue(), report.to_json(), report.to_text(), (tmp_path / "r.json").read_text()]
        forms += failure_report("load", MissingInput("no", path=SECRET)).to_json()
        report.text = [SECRET]
        assert not [form for form in [*forms, report.to_text()] if "SECRET" in form]
        assert "region=eu" in forms[1]
        assert json.loads(Report("query", records=[{"body": SECRET}]).to_json())["records"] == [{"body": SECRET}]


class TestReport:
    def test_any_script_on_any_stdout(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        topic = "\u4e2d\U0001f980\udcff"
        for encoding in ("latin-1", "utf-8"):
            raw = io.BytesIO()
            monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
            options = JobOptions(json=True, report_file=str(tmp_path / "r.json"))
            assert command_line.deliver(Report("inspect", topic=topic), options) == 0
            assert json.loads(raw.getvalue())["topic"] == topic
            assert json.loads((tmp_path / "r.json").read_text())["topic"] == topic
            assert command_line.deliver(Report("inspect", topic=topic), JobOptions()) == 0

    def test_statuses_have_exit_codes(self) -> None:
        codes = [
            Report("j", status).exit_code
            for status in ("ok", "differences", "nothing_found", "damaged", "refused", "error")
        ]
        assert codes == [0, 1, 1, 1, 2, 70]
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

    @pytest.mark.parametrize(
        ("name", "value", "lines"),
        [
            ("bytes", 1000, ["1,000 (1.0 kB)"]),
            ("bytes", "many", ["many"]),
            ("seconds", 12.34, ["12.3"]),
            ("rows", 1234, ["1,234"]),
            ("rows", 1234.5, ["1234.5"]),
            ("skipped", True, ["True"]),
            ("log_begin", 1234, ["1234"]),
            ("from_offset", 1234, ["1234"]),
            ("to_offset", 1234, ["1234"]),
            ("counts", {"a": 1234, "b": {"c": 1, "d": None, "e": 2}}, ["a: 1234", "b: c 1, e 2"]),
            ("names", ("a", 1), ["a", "1"]),
            ("names", [*"abcdefghij"], [*"abcdefghij"]),
            ("names", [*"abcdefghijk"], [*"abcdefghij", "... and 1 more (--json has them all)"]),
            ("names", ["a"] * 1510, [*["a"] * 10, "... and 1,500 more (--json has them all)"]),
            ("rows", [{str(one): one for one in range(10)}], ["0 0, 1 1, 2 2, 3 3, 4 4, 5 5, 6 6, 7 7, 8 8, 9 9"]),
            (
                "rows",
                [
                    "a",
                    {"long_name": 0, "b": None, "c": "", "d": [], "e": {}, "f": [1, 2], "g": {"h": 1, "i": None},
                     "k": False, "l": 1, "m": 2, "n": 3},
                ],
                ["a", "long name  0", "f          1 2", "g          h=1, i=None", "k          False", "l          1",
                 "m          2", "n          3", ""],
            ),
        ],
    )  # fmt: skip
    def test_how_a_fact_is_shown(self, name: str, value: object, lines: list[str]) -> None:
        shown = Report("j", **{name: value}).to_text().split("\n")
        indent = max(len(name), len("status")) + 2
        assert shown[:2] == [f"{'job':<{indent}}j", f"{'status':<{indent}}ok"]
        assert shown[2] == f"{name.replace('_', ' '):<{indent}}{lines[0]}"
        assert shown[3:] == [" " * indent + line for line in lines[1:]]

    def test_only_what_says_something_is_shown(self) -> None:
        report = Report("j", none=None, false=False, words="", rows=[], zero=0, fraction=0.0)
        assert report.to_text() == "job       j\nstatus    ok\nzero      0\nfraction  0.0"

    def test_a_report_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        path = str(tmp_path / "file" / "r.json")
        with pytest.raises(WriteFailed) as caught:
            Report("j").write(path)
        assert str(caught.value) in {f"cannot be written: {why} ({path})" for why in ("File exists", "Not a directory")}

    def test_a_report_in_a_file_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        report = Report("j", topic="\u4e2d")
        report.write("r.json")
        assert (tmp_path / "r.json").read_text(encoding="utf-8") == '{"job": "j", "status": "ok", "topic": "\u4e2d"}\n'
        assert report.to_json(ascii_only=True) == '{"job": "j", "status": "ok", "topic": "\\u4e2d"}'

    def test_text_holds_no_control_characters_of_messages(self) -> None:
        text = Report("query", messages=[{"topic": "a\x1b[31mb\n"}], topics={"x\x07": 1}, key="\x9b2J").to_text()
        assert text.splitlines()[2:] == [
            "messages  topic a\\x1b[31mb\\x0a", "topics    x\\x07: 1", "key       \\x9b2J",
        ]  # fmt: skip

    def test_text_shows_ten_of_a_list_and_a_line_of_ten_facts(self) -> None:
        text = Report("j", names=["x"] * 10, rows=[{f"f{number}": 1 for number in range(10)}]).to_text()
        assert text.count("x") == 10
        assert "more" not in text
        assert "f0 1, f1 1, " in text

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

    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_900, "999.9 kB"), (10**6, "1.0 MB"), (10**9, "1.0 GB"),
            (10**12, "1.0 TB"), (10**13, "10.0 TB"), (10**15, "1000.0 TB"), (0.4, "0 B"),
        ],
    )  # fmt: skip
    def test_sizes(self, count: int, text: str) -> None:
        assert size_text(count) == text


class TestFailures:
    """What a run says that ended with an exception: its facts, its exit code, and the lines on stderr."""

    @pytest.mark.parametrize(
        ("job", "left"),
        [
            ("load", "the table has all of this load or nothing of it"),
            ("rebuild", "the output is all there or not at all"),
            ("publish", "the store has all of this publish or nothing of it"),
            ("restore", "the store has all of this restore or nothing of it"),
            ("verify", "nothing was left behind"),
        ],
    )
    def test_an_interrupt_says_what_stands(self, job: str, left: str) -> None:
        for error, number, name in (
            (KeyboardInterrupt(), 2, "SIGINT"),
            (Interrupted(signal.SIGTERM), 15, "SIGTERM"),
            (Interrupted(signal.SIGHUP), 1, "SIGHUP"),
        ):
            report = failure_report(job, error)
            assert report == {"job": job, "status": "error", "error": f"interrupted by {name}"}
            assert (report.exit_code, report.error_lines) == (128 + number, [f"interrupted; {left}"])

    def test_errors_of_this_program(self) -> None:
        refused = failure_report("load", Refused("no", path="/p", offset=0, advice="do"))
        assert refused == {"job": "load", "status": "refused", "error": "no (/p, offset 0)", "path": "/p", "offset": 0}
        assert (refused.exit_code, refused.error_lines) == (2, ["error: no (/p, offset 0)", "  do"])
        missing = failure_report("load", MissingInput("no"))
        assert missing == {"job": "load", "status": "error", "error": "no"}
        assert (missing.exit_code, missing.error_lines) == (66, ["error: no"])

    def test_errors_of_the_file_system(self) -> None:
        for error, path, said in (
            (OSError(28, "No space left on device", "/f"), "/f", "No space left on device (/f)"),
            (OSError(5, "Input/output error"), None, "Input/output error"),
            (OSError("odd"), None, "odd"),
        ):
            report = failure_report("load", error)
            assert report == {"job": "load", "status": "error", "error": str(error), "path": path}
            assert report.exit_code == 74
            assert report.error_lines == [f"error: reading or writing failed: {said}"]

    def test_defects(self) -> None:
        for error, said in (
            (ValueError(" a\nb"), "ValueError: a"),
            (KeyError(), "KeyError: "),
            (MemoryError("\n"), "MemoryError: "),
        ):
            report = failure_report("load", error)
            assert report == {"job": "load", "status": "error", "error": said}
            version = platform.python_version()
            assert (report.exit_code, report.error_lines) == (
                70,
                [
                    f"error: a defect of this program: {said}",
                    f"  with Python {version}; run it again with --debug for the trace, and report it",
                ],
            )
        assert failure_report("demo", ValueError("a")).error_lines[2] == (
            "  its store is sound, so try another Python or Java: remove .venv, then name them in"
            " ROCKETMQ_STORE_SPARK_PYTHON and JAVA_HOME"
        )

    def test_a_package_that_is_missing_is_no_defect(self) -> None:
        report = failure_report("load", ModuleNotFoundError("No module named 'x'", name="deltalake.writer"))
        assert (report.exit_code, report["error"]) == (69, f"{sys.executable} has no module deltalake.writer")
        assert failure_report("load", ModuleNotFoundError("No module named 'x'", name="jobs.x")).exit_code == 70

    def test_the_place_is_the_last_of_the_programs_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not in a test, not in an installed package, and not where an error of Spark is only passed on."""
        monkeypatch.setattr("jobs.contract.report._ROOT", Path("/r"))
        ours = [("/r/udfs/a.py", 3), ("/r/storeformat/b/c.py", 5), ("/r/jobs/d.py", 7)]
        others = [("/r/jobs/spark/spark_errors.py", 9), ("/r/tests/t.py", 11), ("/usr/lib/jobs/x.py", 13)]
        for shown, place in (
            (others, ""),
            ([*ours, *others], " (jobs/d.py, line 7)"),
            ([*others, ours[0]], " (udfs/a.py, line 3)"),
            ([others[0], *ours[:2], others[2]], " (storeformat/b/c.py, line 5)"),
        ):
            frames = [traceback.FrameSummary(path, line, "f", lookup_line=False) for path, line in shown]
            monkeypatch.setattr(traceback, "extract_tb", lambda _, frames=frames: frames)
            assert failure_report("load", ValueError("x")).error_lines[0].endswith(f"ValueError: x{place}")


class TestDefects:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_with_its_own_exit_code(self, number: signal.Signals) -> None:
        report = failure_report("rebuild", Interrupted(number))
        assert (report.exit_code, report["error"]) == (128 + number, f"interrupted by {number.name}")

    def test_the_place_the_python_and_the_way_on_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jobs.contract.report.json", None)
        with pytest.raises(AttributeError) as caught:
            Report("demo").to_json()
        lines = failure_report("demo", caught.value).error_lines
        assert re.fullmatch(
            r"error: a defect of this program: AttributeError: .*'dumps' \(jobs/contract/report.py, line \d+\)",
            lines[0],
        )
        assert platform.python_version() in lines[1]
        assert "--debug" in lines[1]
        assert "ROCKETMQ_STORE_SPARK_PYTHON" in lines[2]
        assert len(failure_report("rebuild", caught.value).error_lines) == 2

    def test_one_without_a_place_of_ours(self) -> None:
        assert (
            failure_report("load", ValueError("x")).error_lines[0] == "error: a defect of this program: ValueError: x"
        )


def test_no_name_makes_a_line_of_its_own() -> None:
    report = Report("report", rows=1)
    report.text = ["a\nb\x1b", "c"]
    assert report.to_text() == "a\\x0ab\\x1b\nc"
