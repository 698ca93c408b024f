"""Steps of the set-up: their order, what is told, what is done again."""

from __future__ import annotations

import io
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.setup import setup_steps
from jobs.setup.setup_steps import LeftOut, SetupError, Step, StepProgress, Steps


def step(name: str, work: Callable[[StepProgress], str], *after: str, key: str = "k") -> Step:
    return Step(name, work, key, after)


def lines(text: io.StringIO) -> list[str]:
    return [re.sub(r" +", " ", line) for line in re.sub(r"\(\d+\.\d s\)", "(T)", text.getvalue()).splitlines()]


def test_a_step_runs_after_those_it_needs_and_beside_the_others(tmp_path: Path) -> None:
    meet = threading.Barrier(2, timeout=120)
    order: list[str] = []

    def together(progress: StepProgress) -> str:
        meet.wait()
        return "met"

    def last(progress: StepProgress) -> str:
        order.append("last")
        return "done"

    told = io.StringIO()
    Steps(tmp_path / "steps", told).run([step("c", last, "a", "b"), step("a", together), step("b", together)])
    assert sorted(lines(told)[:2]) == [" a met (T)", " b met (T)"]
    assert lines(told)[2] == " c done (T)"


def test_what_was_done_is_gone_past_until_its_key_changes(tmp_path: Path) -> None:
    runs: list[str] = []

    def work(name: str) -> Callable[[StepProgress], str]:
        return lambda progress: runs.append(name) or "done"  # type: ignore[func-returns-value]

    def failing(progress: StepProgress) -> str:
        raise SetupError("no network")

    with pytest.raises(SetupError, match="no network"):
        Steps(tmp_path / "steps", io.StringIO()).run(
            [step("a", work("a")), step("b", failing, "a"), step("c", work("c"), "b"), step("d", work("d"), "c")]
        )
    assert runs == ["a"], "c was not begun: what it needs has failed"
    told = io.StringIO()
    Steps(tmp_path / "steps", told).run([step("a", work("a")), step("b", work("b"), "a"), step("c", work("c"), "b")])
    assert runs == ["a", "b", "c"]
    assert lines(told)[0] == " a done before"
    Steps(tmp_path / "steps", io.StringIO()).run([step("a", work("again"), key="other")])
    assert runs[-1] == "again"


def test_what_is_left_out_is_told_and_tried_again(tmp_path: Path) -> None:
    def without(progress: StepProgress) -> str:
        raise LeftOut("no Maven here")

    for _ in range(2):
        told = io.StringIO()
        Steps(tmp_path / "steps", told).run([step("jars", without)])
        assert lines(told) == [" jars no Maven here"]


def test_a_terminal_shows_what_runs_and_keeps_the_lines(tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if "pyspark" in text:
                shown.set()
            return super().write(text)

    shown = threading.Event()

    def work(progress: StepProgress) -> str:
        progress.text = "pyspark (450 MB)"
        assert shown.wait(120)
        return "done"

    told = Terminal()
    Steps(tmp_path / "steps", told).run([step("Spark", work)])
    assert re.search(r"Spark pyspark \(450 MB\) \d+ s", told.getvalue())
    assert re.search(r"\r  Spark  done  \(\d\.\d s\)\n", told.getvalue()), "what was drawn is wiped out first"


def test_a_command_is_heard_and_logged(tmp_path: Path) -> None:
    progress = StepProgress(tmp_path / "log")
    heard: list[str] = []
    assert progress.run(["sh", "-c", "echo one; echo ERROR: two >&2; echo $X"], heard.append, {"X": "three"})
    assert sorted(heard) == ["ERROR: two\n", "one\n", "three\n"]
    assert progress.errors("ERROR") == "ERROR: two"
    assert not progress.run(["false"])


def test_the_log_of_a_command(tmp_path: Path) -> None:
    progress = StepProgress(tmp_path / "log")
    progress.log.write_text("before\n")
    assert progress.run(["sh", "-c", 'pwd; echo "$0"; cat', "x"])
    assert progress.log.read_text() == f'before\n$ sh -c pwd; echo "$0"; cat x\n{tmp_path}\nx\n'
    progress.log.write_text("ERROR: one\nWARNING: two\nERROR: three\nend\n")
    assert [progress.errors("ERROR"), progress.errors("W", "ERR"), progress.errors("one")] == [
        "ERROR: three", "ERROR: three", "",
    ]  # fmt: skip
    progress.log.write_bytes(b"ERROR: \xff\n")
    assert progress.errors("ERROR") == "ERROR: \ufffd"


def test_a_set_up_that_has_ended_begins_no_command(tmp_path: Path) -> None:
    progress = StepProgress(tmp_path / "log")
    progress.ended.set()
    with pytest.raises(SetupError, match=r"^the set-up was interrupted$") as error:
        progress.run(["touch", str(tmp_path / "made")])
    assert error.value.advice == ""
    assert list(tmp_path.iterdir()) == []


def test_what_a_step_leaves(tmp_path: Path) -> None:
    """Its key in a stamp, and its own log; what it began and did not wait for is gone."""
    (tmp_path / "setup-class-archive.log").write_text("of an earlier one")
    begun: list[subprocess.Popen[str]] = []

    def work(progress: StepProgress) -> str:
        assert progress.log == tmp_path / "setup-class-archive.log"
        assert not progress.log.exists()
        begun.append(subprocess.Popen(["sleep", "600"], text=True))
        progress.processes += begun
        return "21 MB"

    told = io.StringIO()
    Steps(tmp_path / "steps", told).run([step("class archive", work, key="what it is of"), step("x", str)])
    assert begun[0].wait(120) != 0
    assert (tmp_path / "steps" / "class-archive").read_text() == "what it is of"
    assert [path.name for path in sorted((tmp_path / "steps").iterdir())] == ["class-archive", "x"]
    assert re.search(r"^  class archive  21 MB  \(\d+\.\d s\)$", told.getvalue(), re.MULTILINE)
    assert any(line.startswith("  x              ") for line in told.getvalue().splitlines())


def test_a_step_that_was_cut_short_has_no_stamp(tmp_path: Path) -> None:
    told = io.StringIO()
    steps = Steps(tmp_path / "steps", told)

    def work(progress: StepProgress) -> str:
        steps._ended.set()
        return "done"

    steps.run([step("a", work)])
    assert not (tmp_path / "steps").exists()
    assert told.getvalue() == ""


def test_without_a_terminal_there_is_a_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_steps, "INTERVAL", 0.3)
    go_on = threading.Event()

    class Told(io.StringIO):
        def write(self, text: str) -> int:
            if "..." in text:
                go_on.set()
            return super().write(text)

    def first(progress: StepProgress) -> str:
        progress.text = "(5 MB)"
        assert go_on.wait(120)
        return "done"

    def second(progress: StepProgress) -> str:
        assert go_on.wait(120)
        return "done"

    told = Told()
    Steps(tmp_path / "steps", told).run([step("a", first), step("b", second)])
    line = re.sub(r"\d+ s", "T", told.getvalue().splitlines()[0])
    assert line in ("  ... a (5 MB) T | b T", "  ... b T | a (5 MB) T")


def test_a_line_of_a_terminal_fits_its_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "10")
    steps = Steps(tmp_path / "steps", told := Terminal())
    steps._show("0123456789abc")
    steps._show("ab")
    steps._line("done")
    steps._line("again")
    assert told.getvalue() == f"012345678\r{' ' * 9}\rab\r  \rdone\nagain\n"


def test_what_is_said_goes_to_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    setup_steps.say("one")
    Steps(tmp_path / "steps").run([step("a", lambda progress: "done")])
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"one\n  a  done  \(\d+\.\d s\)\n", said.err)
