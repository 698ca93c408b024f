"""Notes and progress on the way, and the report at the end."""

from __future__ import annotations

import io
import re

import pytest
from support.patching import stand_in

from jobs.contract import reporter as reporter_module
from jobs.contract.options import JobOptions
from jobs.contract.reporter import Reporter, duration_text


class TestProgress:
    @pytest.mark.parametrize(
        ("done", "total", "share"), [(0, 1000, "0%"), (0, 0, "100%"), (5, 0, "100%"), (9, 9, "100%")]
    )
    def test_no_rest_is_told_at_the_start_and_at_the_end(self, done: int, total: int, share: str) -> None:
        with Reporter(stream=io.StringIO()).progress("scan", total) as progress:
            for now in (progress.begun, progress.begun + 1):
                text = progress.text(done, now)
                assert text.startswith(f"scan: {share}, ")
                assert "left" not in text

    def test_lines_of_a_job_have_a_time_unless_a_person_watches(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said, interval=0, dated=True)
        with reporter.progress("scan", 10) as progress:
            progress.update(5)
        reporter.warn("w")
        assert re.sub(r"\d", "0", said.getvalue()).splitlines()[1] == "0000-00-00 00:00:00 warning: w"
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d scan: 50%", said.getvalue())
        said.isatty = lambda: True  # type: ignore[method-assign]
        watched = Reporter(stream=said, dated=True)
        watched.warn("seen")
        assert said.getvalue().endswith("\nwarning: seen\n")
        assert Reporter.for_options(JobOptions()).dated

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

    def test_on_a_terminal_it_is_drawn_five_times_a_second(self) -> None:
        said = io.StringIO()
        said.isatty = lambda: True  # type: ignore[method-assign]
        with Reporter(stream=said).progress("scan", 10) as progress:
            for tick in range(20):
                progress.update(5, now=progress.begun + tick / 8)
        assert said.getvalue().count("scan") == 8

    def test_quiet_silences_notes_and_progress_but_no_warning(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said, quiet=True, interval=0)
        with reporter.progress("scan", 10) as progress:
            progress.update(5, now=progress.begun + 100)
        reporter.note("n")
        reporter.warn("w")
        assert said.getvalue() == "warning: w\n"

    def test_the_report_has_what_was_noted_and_how_long_it_took(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said)
        reporter.say("doing it")
        reporter.note("n", "m")
        reporter.warn("w")
        reporter.begun -= 100
        report = reporter.report("load", damaged=True, rows=3, notes=["last"])
        assert list(report) == ["job", "status", "rows", "seconds", "notes"]
        assert 100 <= report["seconds"] < 200
        assert (report.exit_code, report["notes"]) == (1, ["n", "m", "w", "last"])
        assert said.getvalue() == "doing it\nn\nm\nwarning: w\n"

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (3, "3 s"),
            (89, "89 s"),
            (90, "2 min"),
            (120, "2 min"),
            (5399, "90 min"),
            (5400, "1.5 h"),
            (9000, "2.5 h"),
            (3_600_000, "1000.0 h"),
        ],
    )
    def test_times(self, seconds: float, text: str) -> None:
        assert duration_text(seconds) == text


def test_a_part_says_its_name_and_keeps_its_notes() -> None:
    said = io.StringIO()
    whole = Reporter(stream=said, interval=0)
    part = whole.for_part("broker-a")
    with part.progress("scan", 10) as progress:
        progress.update(5)
    part.note("by the way")
    part.warn("look")
    assert said.getvalue() == "broker-a: by the way\nbroker-a: warning: look\n"
    assert (part.notes, whole.notes) == (["by the way", "look"], [])


def test_a_part_of_a_quiet_whole_is_quiet() -> None:
    said = io.StringIO()
    part = Reporter(stream=said, quiet=True).for_part("broker-a")
    part.note("by the way")
    assert said.getvalue() == ""


def test_what_must_not_be_missed_is_said_of_a_quiet_run_too() -> None:
    said = io.StringIO()
    reporter = Reporter(stream=said, quiet=True)
    reporter.tell("  a ", "b")
    reporter.say("c")
    assert (said.getvalue(), reporter.notes) == ("a\nb\n", [])


def test_what_a_reporter_is_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter.for_options(JobOptions(quiet=True))
    assert (reporter.quiet, reporter.dated, reporter.interval) == (True, True, 30)
    reporter = Reporter()
    assert (reporter.quiet, reporter.dated, reporter.terminal) == (False, False, False)
    reporter.say("a")
    assert capsys.readouterr().err == "a\n"


def test_the_clock_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 102.34567])
    stand_in(monkeypatch, reporter_module, "time", monotonic=lambda: next(times))
    assert Reporter(stream=io.StringIO()).seconds == 2.346


def test_what_a_report_is_given() -> None:
    report = Reporter(quiet=True).report("query", differs=True, text=["t"], rows=2)
    assert (report["job"], report["status"], report.exit_code, report.text) == ("query", "differences", 1, ["t"])
    assert (report["rows"], report["notes"]) == (2, [])
    assert Reporter(quiet=True).report("query")["status"] == "ok"


def test_the_first_progress_on_a_terminal_comes_after_half_a_second() -> None:
    said = io.StringIO()
    said.isatty = lambda: True  # type: ignore[method-assign]
    with Reporter(stream=said).progress("scan", 10) as progress:
        for tick, lines in ((0.25, 0), (0.5, 1), (0.625, 1), (0.75, 2)):
            progress.update(5, now=progress.begun + tick)
            assert said.getvalue().count("scan") == lines


def test_progress_goes_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    now = [1000.0]
    stand_in(monkeypatch, reporter_module, "time", monotonic=lambda: now[0])
    with Reporter(stream=said, interval=30).progress("scan", 1000) as progress:
        for now[0] in (1000.0, 1029.9, 1030.0, 1059.9, 1060.0):
            progress.update(500)
    amounts = ("500 B of 1.0 kB, 17 B/s, about 30 s left", "500 B of 1.0 kB, 8 B/s, about 60 s left")
    assert said.getvalue() == "".join(f"scan: 50%, {amount}\n" for amount in amounts)
    assert progress.text(2, progress.begun) == "scan: 0%, 2 B of 1.0 kB, 2.0 GB/s, about 0 s left"
