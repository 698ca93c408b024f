"""What a run says: the report in both forms, notes, and progress."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from jobs import config
from jobs.cli import command_line
from jobs.reporting import Report, Reporter, duration_text, size_text


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

    def test_text_holds_no_control_characters_of_messages(self) -> None:
        text = Report("query", messages=[{"topic": "a\x1b[31mb\n"}], topics={"x\x07": 1}, key="\x9b2J").to_text()
        assert text.splitlines()[2:] == [
            "messages  topic a\\x1b[31mb\\x0a", "topics    x\\x07: 1", "key       \\x9b2J",
        ]  # fmt: skip

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
        assert duration_text(seconds) == text


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
        with reporter.progress("scan", 10) as progress:
            progress.update(5, now=progress.begun + 1)
            reporter.note("by the way")
        line = "scan: 50%, 5 B of 10 B, 5 B/s, about 1 s left"
        assert said.getvalue() == f"{line}\r{' ' * len(line)}\rby the way\n"

    def test_quiet_silences_notes_and_progress_but_no_warning(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said, quiet=True, interval=0)
        with reporter.progress("scan", 10) as progress:
            progress.update(5, now=progress.begun + 100)
        reporter.note("n")
        reporter.warn("w")
        assert said.getvalue() == "warning: w\n"
