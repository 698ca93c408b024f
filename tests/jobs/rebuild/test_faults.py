"""A rebuild that a signal or a failing disk ends anywhere: one line, the right exit code, all of the output or none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.killing import Ended, Killer
from support.publishing import Snapshot, snapshot
from support.store_builder import LogBuilder
from support.system_calls import Fault

EVERY = pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
"""A fault before each 29th change of the disk, in the slow run before each."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, three queues."""
    log = LogBuilder(4096)
    for number in range(60):
        log.message(topic=f"T{number % 2}", queue_id=number % 3, keys=f"k{number}")
    return log.write(tmp_path_factory.mktemp("faults") / "store")


def words(store: Path, place: Path) -> Sequence[str]:
    sizes = ("mappedFileSizeConsumeQueue=400", "maxHashSlotNum=10", "maxIndexNum=40")
    settings = [word for size in sizes for word in ("--set", size)]
    output = str(place / "new" / "out")
    return ["rebuild", "--store", str(store), "--output", output, "--quiet", *settings]


@pytest.fixture(scope="module")
def whole(killer: Killer, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """What lies there after a rebuild that nothing disturbed, without its manifest, which has paths and times."""
    place = tmp_path_factory.mktemp("whole")
    ended = killer.command(words(store, place), Fault("EIO", 1 << 30, str(place)))
    assert (ended.exit_code, ended.trace) == (0, "")
    return without_manifest(place)


def without_manifest(place: Path) -> Snapshot:
    found = snapshot(place)
    found.pop("new/out/manifest.json", None)
    return found


def runs(killer: Killer, store: Path, place: Path, fault: str, step: int) -> Iterator[tuple[int, Ended]]:
    """What became of runs to which the fault came at another place each, until one is over before it."""
    for number in range(0, 2000, step):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        ended = killer.command(words(store, place), Fault(fault, number, str(place)))
        if not ended.came or (fault.startswith("SIG") and ended.exit_code == 0):  # it came when all was done
            assert (number > 30, ended.exit_code) == (True, 0)
            return
        yield number, ended


@EVERY
@pytest.mark.parametrize(("fault", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal(
    killer: Killer, store: Path, whole: Snapshot, tmp_path: Path, fault: str, code: int, step: int
) -> None:
    place, done = tmp_path / "place", 0
    for number, ended in runs(killer, store, place, fault, step):
        said = "interrupted; the output is all there or not at all\n"
        assert (number, ended.exit_code, ended.trace) == (number, code, said)
        found = without_manifest(place)
        assert (number, found) in [(number, {}), (number, whole)]
        done += found == whole
    assert done < 10


@EVERY
@pytest.mark.parametrize("fault", ["EIO", "ENOSPC"])
def test_a_change_that_fails(
    killer: Killer, store: Path, whole: Snapshot, tmp_path: Path, fault: str, step: int
) -> None:
    """A directory that is there already may as well not be made: then the rebuild goes on."""
    place = tmp_path / "place"
    for number, ended in runs(killer, store, place, fault, step):
        if ended.exit_code == 0:
            assert (number, ended.trace, without_manifest(place)) == (number, "", whole)
            continue
        assert (number, ended.exit_code, ended.trace[:7]) == (number, 74, "error: ")
        assert (number, snapshot(place)) == (number, {})
