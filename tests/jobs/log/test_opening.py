"""What a store's own files show of its settings, and what others do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import LogBuilder

from jobs.cli import command_line
from jobs.contract.options import LogOptions
from jobs.log.opening import open_store, refuse_rocksdb_queues
from storeformat.errors import Refused


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one message and one queue file."""
    log = LogBuilder()
    log.message(topic="T")
    root = log.write(tmp_path)
    for name in ("consumequeue/T/0", "batchconsumequeue"):
        (root / name).mkdir(parents=True)
    (root / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(bytes(200))
    return root


def test_a_stray_file_shows_no_size_of_queue_files(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / ".nfs0001").write_bytes(bytes(40))
    assert open_store(LogOptions(store=str(root))).layout.consume_queue_file_size == 200


def test_a_stray_file_shows_no_topic_of_type_batch(root: Path) -> None:
    (root / "batchconsumequeue" / "T").write_bytes(b"")
    assert open_store(LogOptions(store=str(root))).batch_topics == frozenset()


JOBS = {"verify": [], "rebuild": ["--output", "out"], "verify of one topic": ["--topic", "T"]}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("shown", ["config/topics/000009.sst", "consumequeue/CURRENT", "storeType"])
def test_queues_in_rocksdb_are_refused_with_the_reason(
    root: Path, job: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    if shown == "storeType":
        told = ["--set", "storeType=defaultRocksDB"]
    else:
        (root / shown).parent.mkdir(parents=True, exist_ok=True)
        (root / shown).write_bytes(b"pairs")
    more = [str(root.parent / part) if part == "out" else part for part in JOBS[job]]
    assert command_line.main([job.split(maxsplit=1)[0], "--store", str(root), *more, *told, "--json"]) == 2
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["status"] == "refused"
    assert "RocksDB" in report["error"]
    assert "no queue was" in report["error"]
    assert shown.rpartition("/")[0] in report["error"]
    assert not (root.parent / "out").exists()


def test_a_store_type_that_is_told_counts_before_what_lies_in_the_store(root: Path) -> None:
    (root / "config" / "topics").mkdir(parents=True)
    (root / "config" / "topics" / "000009.sst").write_bytes(b"pairs")
    store = open_store(LogOptions(store=str(root), settings=(("storeType", "default"),)))
    refuse_rocksdb_queues(store, ("consumequeue",), "made")
    refuse_rocksdb_queues(open_store(LogOptions(store=str(root))), ("index", "checkpoint"), "made")
    with pytest.raises(Refused, match="config/topics/"):
        refuse_rocksdb_queues(open_store(LogOptions(store=str(root))), ("consumequeue",), "made")


def test_a_setting_of_brokers_without_effect_is_a_note(root: Path) -> None:
    settings = (("flushDiskType", "SYNC_FLUSH"), ("maxIndexNum", "20"), ("storeType", "default"))
    store = open_store(LogOptions(store=str(root), settings=settings), needs_index_sizes=False)
    assert [note for note in store.notes if note.startswith("--set")] == [
        "--set flushDiskType: the files of a store do not depend on it"
    ]
