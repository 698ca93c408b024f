"""A store with a rebuild of it that is ready to be published, and how tests look at both."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import golden
from support.rebuilding import rebuild_here

from jobs.contract.options import PublishOptions, RestoreOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.publish import publish, restore

STORE = "lag-killed-5.1.4"
QUIET = Reporter(quiet=True)


@dataclass(frozen=True)
class Case:
    """A store, and a rebuild of it that is ready to be published."""

    root: Path
    out: Path

    def copy(self, target: Path) -> Case:
        shutil.rmtree(target, ignore_errors=True)
        for name, source in (("root", self.root), ("out", self.out)):
            shutil.copytree(source, target / name, symlinks=True)
        return Case(target / "root", target / "out")

    def publish(self, **more: Any) -> Report:
        options = {"after_crash": True, **more}
        return publish.run(PublishOptions(store=str(self.root), rebuilt=str(self.out), **options), QUIET)

    def restore(self, **more: Any) -> Report:
        return restore.run(RestoreOptions(store=str(self.root), **more), QUIET)

    @property
    def backups(self) -> list[Path]:
        return sorted((self.root / "backup").glob("*"))


Snapshot = dict[str, str]


def snapshot(directory: Path) -> Snapshot:
    """Every file with its SHA-256, and every directory; of a store without its backups."""
    found = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if name.partition("/")[0] != "backup":
            found[name] = "directory" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def contents(*directories: Path) -> Counter[str]:
    """How often each content of a file occurs, backups and all, without journals."""
    paths = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if "journal" not in path.name)


def make_case(directory: Path, name: str, **options: Any) -> Case:
    (store,) = golden.stores(name)
    root = golden.unpack(store, directory)
    built = rebuild_here(root, directory / "work", store.settings, **options)
    return Case(root, Path(built.directory))


def manifest(case: Case) -> dict[str, Any]:
    return dict(json.loads((case.out / "manifest.json").read_text()))


def own_bytes(path: Path) -> Path:
    """Gives a file bytes of its own: in a copied case they have two names."""
    if path.exists():
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    return path


def cut_the_log(case: Case, end: int) -> None:
    """Takes the last records away, as if the rebuild were of a longer log."""
    segment = max(path for path in (case.root / "commitlog").iterdir() if int(path.name) < end)
    data = bytearray(own_bytes(segment).read_bytes())
    begin = max(0, end - int(segment.name) - 2000)
    data[begin:] = bytes(len(data) - begin)
    segment.write_bytes(data)
