"""A load that a signal or a failing disk ends anywhere: one line, the right exit code, all of its rows
or none, and no file that is of no version of the table.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from support.killing import Ended, Killer
from support.store_builder import LogBuilder
from support.system_calls import Fault

SOME = pytest.mark.parametrize("step", [280, pytest.param(3, marks=pytest.mark.slow)])
"""A fault before each 280th change of the disk, and before some of the last, which commit; in the slow run before
every third (there are some 1,100 changes, each takes a load: two minutes a fault on an idle core).
"""
MESSAGES, COMMIT = 60, 12


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments, whose messages are of three days."""
    log = LogBuilder(8192)
    for number in range(MESSAGES):
        log.clock += 3_000_000
        log.message(topic=f"T{number % 2}", queue_id=number % 3, keys=f"k{number}", body=bytes(100))
    return log.write(tmp_path_factory.mktemp("faults") / "store")


def load(killer: Killer, store: Path, place: Path, fault: Fault) -> Ended:
    """A load into a new table, after which nothing is there that is of no version of it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    words = ["load", "--store", str(store), "--table", str(place / "new" / "table"), "--cluster", "c", "--broker", "b"]
    ended = killer.command([*words, "--split-size", "3000", "--quiet"], fault)
    assert (fault.before, strays(place)) == (fault.before, [])
    return ended


def runs(killer: Killer, store: Path, place: Path, fault: str, step: int) -> Iterator[tuple[int, Ended]]:
    """What became of loads to which the fault came at another place each."""
    undisturbed = load(killer, store, place, Fault(fault, 1 << 30, str(place)))
    assert (undisturbed.exit_code, undisturbed.trace, rows(place)) == (0, "", MESSAGES)
    last = undisturbed.changes - COMMIT
    for number in sorted({*range(0, undisturbed.changes, step), *range(last, undisturbed.changes, min(step, 4))}):
        ended = load(killer, store, place, Fault(fault, number, str(place)))
        if ended.came:
            yield number, ended


def rows(place: Path) -> int:
    """The rows of the table, 0 where there is none."""
    try:
        return len(DeltaTable(place / "new" / "table").to_pyarrow_table())
    except TableNotFoundError:
        return 0


def strays(place: Path) -> list[str]:
    """Files that are of no version of the table."""
    try:
        known = {Path(uri).name for uri in DeltaTable(place / "new" / "table").file_uris()}
    except TableNotFoundError:
        known = set()
    found = [path for path in place.rglob("*") if path.is_file() and path.name not in known]
    return [str(path) for path in found if path.parent.name != "_delta_log" or path.suffix != ".json"]


@SOME
@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.thorough)])
def test_a_signal(killer: Killer, store: Path, tmp_path: Path, name: str, step: int) -> None:
    place, ends = tmp_path / "place", []
    for number, ended in runs(killer, store, place, name, step):
        said = "interrupted; the table has all of this load or nothing of it\n"
        assert (number, ended.exit_code, ended.trace) == (number, 128 + signal.Signals[name], said)
        ends.append(rows(place))
    assert set(ends) <= {0, MESSAGES}
    assert ends == sorted(ends)
    assert ends.count(0) > 3


@SOME
@pytest.mark.parametrize("name", ["ENOSPC", pytest.param("EIO", marks=pytest.mark.thorough)])
def test_a_change_that_fails(killer: Killer, store: Path, tmp_path: Path, name: str, step: int) -> None:
    """Some a load can do without: then it goes on."""
    place, failed = tmp_path / "place", 0
    for number, ended in runs(killer, store, place, name, step):
        if ended.exit_code == 0:
            assert (number, ended.trace, rows(place)) == (number, "", MESSAGES)
            continue
        said = ended.trace.splitlines()
        assert (number, ended.exit_code, said[0][:7], len(said) < 3) == (number, 74, "error: ", True), ended.trace
        assert (number, rows(place)) == (number, 0)
        failed += 1
    assert failed > 3
