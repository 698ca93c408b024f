"""A store with a rebuild of it that is ready to be published, and how tests look at both."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import golden
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder
from support.store_to_start import configure

from jobs.contract.options import ARTEFACTS, PublishOptions, RestoreOptions
from jobs.contract.report import Report, Reporter
from jobs.publish import publish, restore
from jobs.rebuild.manifest import Manifest, QueueStoreChoice, RebuiltLog
from storeformat.storage.durable import Content

STORE = "lag-killed-5.1.4"
SMALL = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 10, "maxIndexNum": 20}
DERIVED = ("consumequeue", "index", "checkpoint", "abort")


def plain_manifest(paths: Sequence[str] = (), **changes: Any) -> Manifest:
    facts = {
        "digest": "", "log": RebuiltLog(0, 100, "fail", 0), "broker_version": "5.3", "artefacts": ARTEFACTS,
        "topics": (), "settings": {}, "queue_store": QueueStoreChoice("file", was_asked_for=False),
    }  # fmt: skip
    return Manifest(**{**facts, **changes}, files={name: Content(1, 1, bytes(32)) for name in paths})


def quiet() -> Reporter:
    """A reporter that says nothing, of one's own: it keeps its notes for the report."""
    return Reporter(quiet=True)


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
        options = {"rebuilt": str(self.out), "after_crash": True, **more}
        return publish.run(PublishOptions(store=str(self.root), **options), quiet())

    def restore(self, **more: Any) -> Report:
        return restore.run(RestoreOptions(store=str(self.root), **more), quiet())

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
    """How often each content of a file occurs, backups and all, without journals and manifests, which are copied."""
    paths = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    papers = ("journal.json", "journal.json.draft", "manifest.json")
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.name not in papers)


def make_case(directory: Path, name: str, **options: Any) -> Case:
    (store,) = golden.stores(name)
    root = golden.unpack(store, directory)
    configure(root)
    return Case(root, Path(rebuild_here(root, directory / "work", store.settings, **options).directory))


def make_small_case(directory: Path) -> Case:
    """A log of three messages: few changes of the disk, so that a kill can come before each of them."""
    log = LogBuilder(4096)
    for _ in range(3):
        log.message(topic="T", queue_id=0, keys="k", body=b"x")
    root = log.write(directory / "store")
    for name, content in (("abort", b""), ("lock", b"lock")):  # a broker that was killed leaves both
        (root / name).write_bytes(content)
    built = rebuild_here(root, directory / "work", SMALL)
    configure(root, Path(built.directory))
    return Case(root, Path(built.directory))


def after_publish(case: Case) -> Snapshot:
    """What a store is to be once its rebuild is published."""
    kept = {name: value for name, value in snapshot(case.root).items() if name.partition("/")[0] not in DERIVED}
    return {**kept, **{name: value for name, value in snapshot(case.out).items() if name != "manifest.json"}}


def manifest(case: Case) -> dict[str, Any]:
    return dict(json.loads((case.out / "manifest.json").read_text()))


def cut_the_log(case: Case, end: int) -> None:
    """Takes the last records away, as if the rebuild were of a longer log."""
    segment = max(path for path in (case.root / "commitlog").iterdir() if int(path.name) < end)
    data = bytearray(segment.read_bytes())
    begin = max(0, end - int(segment.name) - 2000)
    data[begin:] = bytes(len(data) - begin)
    segment.write_bytes(data)
