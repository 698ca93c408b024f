"""Tasks as a cluster runs them: twice, half, at the same time, or where the driver's files are not seen. In process."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.publishing import snapshot
from support.rebuilding import rebuild_here

from jobs.rebuild.build_store import Workplace, staging_beside
from jobs.spark.runner import Runner
from storeformat.errors import WriteFailed
from udfs.files.build import BuildFiles

STORES = ("base-clean-5.3.3", "batch-cq-5.3.3", "cq-ext-5.3.3")

Task = Callable[[Iterator[Any]], Iterable[Any]]


class Twice(Runner):
    """Every task runs twice, and the second one counts, as after the loss of a machine that had finished it."""

    def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
        super().map(what, task, items)
        return super().map(what, task, items)


class KilledHalfway(Runner):
    """Every task that makes files is killed once while it writes, and runs again."""

    def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
        if isinstance(task, BuildFiles):
            Path(task.output.drafts, f"left-by-{len(items)}").write_bytes(b"half")
        return super().map(what, task, items)


@pytest.mark.golden
@pytest.mark.parametrize("runner", [Twice(), KilledHalfway()], ids=lambda runner: type(runner).__name__)
@pytest.mark.parametrize("name", STORES)
def test_the_same_files(name: str, runner: Runner, tmp_path: Path) -> None:
    (store,) = golden.stores(name)
    root = golden.unpack(store)
    once = rebuild_here(root, tmp_path / "once", store.settings, split_size=20_000)
    again = rebuild_here(root, tmp_path / "again", store.settings, split_size=20_000, runner=runner)
    assert snapshot(Path(again.directory)) == snapshot(Path(once.directory))


def test_nobody_else_may_enter_a_staging_directory_and_the_output_is_as_usual(tmp_path: Path) -> None:
    with staging_beside(str(tmp_path / "deep" / "out")) as staging:
        assert stat.S_IMODE(Path(staging).stat().st_mode) == 0o700
        made = Path(Workplace.within(staging, None).made)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (made, Path(staging).parent)] == [0o777 & ~umask()] * 2


def umask() -> int:
    os.umask(now := os.umask(0o077))
    return now


def test_a_machine_that_does_not_see_the_staging_directory(tmp_path: Path) -> None:
    class Elsewhere(Runner):
        def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
            shutil.rmtree(tmp_path / "work" / "runs")
            return super().map(what, task, items)

    (store,) = golden.stores(STORES[0])
    with pytest.raises(WriteFailed, match="not every machine of the cluster sees this directory") as failure:
        rebuild_here(golden.unpack(store), tmp_path / "work", store.settings, runner=Elsewhere())
    assert failure.value.exit_code == 74
    assert not (tmp_path / "work" / "runs").exists(), "nobody makes it anew on a disk of its own"


def test_files_that_were_made_where_the_driver_does_not_see_them(tmp_path: Path) -> None:
    class Elsewhere(Runner):
        def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
            rows = super().map(what, task, items)
            if isinstance(task, BuildFiles):
                Path(task.output.root, rows[-1]["path"][-1].as_py()).unlink()
            return rows

    (store,) = golden.stores(STORES[0])
    with pytest.raises(WriteFailed, match="found no file, expected 1000") as failure:
        rebuild_here(golden.unpack(store), tmp_path / "work", store.settings, runner=Elsewhere())
    assert failure.value.advice is not None
    assert "every machine" in failure.value.advice
