"""Steps of the set-up: their order, what is told, what is done again."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.setup.setup_steps import LeftOut, SetupError, Step, StepProgress, Steps


def step(name: str, work: Callable[[StepProgress], str], *after: str, key: str = "k") -> Step:
    return Step(name, work, lambda: key, after)


def lines(text: io.StringIO) -> list[str]:
    return [re.sub(r" +", " ", line) for line in re.sub(r"\(\d+\.\d s\)", "(T)", text.getvalue()).splitlines()]


def test_a_step_runs_after_those_it_needs_and_beside_the_others(tmp_path: Path) -> None:
    meet = threading.Barrier(2, timeout=20)
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

    shown = threading.Event()

    def work(progress: StepProgress) -> str:
        progress.text = "pyspark (450 MB)"
        shown.wait(0.6)
        return "done"

    told = Terminal()
    Steps(tmp_path / "steps", told).run([step("Spark", work)])
    assert "Spark pyspark (450 MB) 0 s" in told.getvalue()
    assert re.search(r"\r  Spark  done  \(\d\.\d s\)\n", told.getvalue()), "what was drawn is wiped out first"


def test_a_command_is_heard_and_logged(tmp_path: Path) -> None:
    progress = StepProgress(tmp_path / "log")
    heard: list[str] = []
    assert progress.run(["sh", "-c", "echo one; echo ERROR: two >&2; echo $X"], heard.append, {"X": "three"})
    assert sorted(heard) == ["ERROR: two\n", "one\n", "three\n"]
    assert progress.errors("ERROR") == "ERROR: two"
    assert not progress.run(["false"])
