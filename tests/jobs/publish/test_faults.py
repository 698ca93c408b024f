"""A publish or restore that a signal or a failing disk ends: the store is all old or all new."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.killing import Ended, Killer
from support.publishing import Case, after_publish, snapshot
from support.system_calls import Fault

FAULTS = pytest.mark.parametrize("fault", ["SIGINT", "SIGTERM", "EIO", "ENOSPC"])


def assert_told(ended: Ended, fault: str, job: str) -> None:
    """One line, two with advice, and an exit code that says what kind of end it was; a rebuild may be what fails."""
    if fault.startswith("SIG"):
        said = f"interrupted; the store has all of this {job} or nothing of it\n"
        assert (ended.exit_code, ended.trace) == (128 + signal.Signals[fault], said)
    elif ended.exit_code:
        assert ended.exit_code in (66, 74), ended.trace
        assert ended.trace.startswith("error: ")
        assert "Traceback" not in ended.trace


@FAULTS
def test_a_publish_is_undone_or_done(killer: Killer, faults: tuple[Case, range], tmp_path: Path, fault: str) -> None:
    whole, numbers = faults
    old, new = snapshot(whole.root), after_publish(whole)
    for number in numbers:
        case = whole.copy(tmp_path / "case")
        words = ["publish", "--store", str(case.root), "--from", str(case.out), "--after-crash", "--quiet"]
        ended = killer.command(words, Fault(fault, number, str(tmp_path / "case")))
        if not ended.came:
            break
        assert_told(ended, fault, "publish")
        found = snapshot(case.root)
        assert (number, found) in [(number, new), *([(number, old)] if ended.exit_code else [])]
    assert number > 70


@FAULTS
def test_a_restore_is_undone_or_done(killer: Killer, faults: tuple[Case, range], tmp_path: Path, fault: str) -> None:
    whole, numbers = faults
    old, new = snapshot(whole.root), after_publish(whole)
    published = whole.copy(tmp_path / "published")
    published.publish()
    for number in numbers:
        case = published.copy(tmp_path / "case")
        words = ["restore", "--store", str(case.root), "--quiet"]
        ended = killer.command(words, Fault(fault, number, str(tmp_path / "case")))
        if not ended.came:
            break
        assert_told(ended, fault, "restore")
        found = snapshot(case.root)
        assert (number, found) in [(number, old), *([(number, new)] if ended.exit_code else [])]
    assert number > 50
