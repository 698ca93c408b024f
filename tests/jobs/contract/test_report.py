"""What a run says: the report in both forms, notes, and progress."""

from __future__ import annotations

import io
import json
import platform
import re
import signal
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.cli import command_line
from jobs.contract.options import JobOptions
from jobs.contract.report import Interrupted, Report, failure_report, printable, size_text
from jobs.contract.reporter import Reporter
from storeformat.errors import MissingInput

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
        report.text = SECRET
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

    @pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (10**13, "10.0 TB")])
    def test_sizes(self, count: int, text: str) -> None:
        assert size_text(count) == text


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


def test_a_text_of_several_lines_is_shown_line_by_line() -> None:
    report = Report("report", rows=1)
    report.text = "a\nb\x1b"
    assert report.to_text() == "a\nb\\x1b"
