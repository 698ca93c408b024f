"""Questions to a store of RocksDB queues get the answers that the same store with queues in files gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.rebuilding import SETTINGS, rebuild_here

from jobs.contract.options import QUESTIONS
from jobs.contract.report import Reporter
from jobs.query import query
from storeformat.errors import MissingInput

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.golden

(STORE,) = golden.stores("base-clean-5.5.0")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The store as its broker left it, and the same with its queues in a database."""
    files = golden.unpack(STORE, tmp_path_factory.mktemp("files"))
    other, work = golden.unpack(STORE, tmp_path_factory.mktemp("rocksdb")), tmp_path_factory.mktemp("work")
    built = rebuild_here(other, work, {**STORE.settings, "storeType": "defaultRocksDB"})
    shutil.rmtree(other / "consumequeue")
    shutil.move(Path(built.directory) / "consumequeue", other / "consumequeue")
    return files, other


def ask(root: Path, kind: str, **question: Any) -> dict[str, Any]:
    settings = tuple((name, str(STORE.settings[name])) for name in SETTINGS if name in STORE.settings)
    options = QUESTIONS[kind](store=str(root), settings=settings, **question)
    return dict(query.run(options, Reporter(quiet=True)))


def alike(roots: tuple[Path, Path], **question: Any) -> dict[str, Any]:
    first, second = (ask(root, **question) for root in roots)
    for report in (first, second):
        report.pop("store")
        report.pop("seconds", None)
    assert first == second
    return first


@pytest.mark.thorough
def test_offsets_and_times(roots: tuple[Path, Path]) -> None:
    asked = 0
    for queue in STORE.entry["answers"]["queues"]:
        name = {"topic": queue["topic"], "queue_id": queue["queueId"]}
        for offset in {0, queue["minOffset"], queue["maxOffset"] - 1, queue["maxOffset"]}:
            alike(roots, kind="offset", offset=offset, **name)
        for time, expected in zip(STORE.entry["answers"]["times"][:3], queue["offsetByTime"][:3], strict=True):
            assert ask(roots[1], kind="time", time=time, **name)["queue_offset"] in (expected, -1)
            asked += 1
    assert asked > 10


def test_lag(roots: tuple[Path, Path]) -> None:
    queues = {queue["topic"]: {queue["queueId"]: queue["minOffset"] + 1} for queue in STORE.entry["answers"]["queues"]}
    table = {f"{topic}@readers": offsets for topic, offsets in queues.items()} | {"Nobody@readers": {0: 5}}
    for root in roots:
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    rows = alike(roots, kind="lag")["queues"]
    assert [row["topic"] for row in rows if row["lag"] is None] == ["Nobody"]
    assert len(rows) == len(table) > 2


def test_lists(roots: tuple[Path, Path]) -> None:
    topics = {queue["topic"] for queue in STORE.entry["answers"]["queues"]}
    assert sum(alike(roots, kind="list", topic=topic)["found"] for topic in topics) > 100


def test_a_queue_that_is_not_there_is_said(roots: tuple[Path, Path]) -> None:
    with pytest.raises(MissingInput, match="no such consume queue"):
        ask(roots[1], kind="offset", topic="Nobody", queue_id=0, offset=0)
