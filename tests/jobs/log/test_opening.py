"""What a store's own files show of its settings, and what others do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import LogBuilder

from jobs.cli import command_line
from jobs.contract.options import LogOptions
from jobs.log.opening import open_store, with_queue_store
from storeformat.errors import NotAStore, UsageError


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


@pytest.mark.parametrize("job", [["verify"], ["rebuild", "--output", "out"]])
@pytest.mark.parametrize("shown", ["config/topics/000009.sst", "consumequeue/CURRENT", "storeType"])
def test_a_database_that_would_be_needed_and_cannot_be_read_or_written_is_named(
    root: Path, job: list[str], shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    told = []
    if shown == "storeType":
        told = ["--set", "storeType=defaultRocksDB"]
    else:
        (root / shown).parent.mkdir(parents=True, exist_ok=True)
        (root / shown).write_bytes(b"pairs")
    more = [str(root.parent / part) if part == "out" else part for part in job[1:]]
    assert command_line.main([job[0], "--store", str(root), *more, *told, "--json"]) == 69
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["status"] == "error"
    assert "RocksDB" in report["error"]
    assert not (root.parent / "out").exists()


def test_a_store_type_that_is_told_counts_before_what_lies_in_the_store(root: Path) -> None:
    (root / "config" / "topics").mkdir(parents=True)
    (root / "config" / "topics" / "000009.sst").write_bytes(b"pairs")
    store = open_store(LogOptions(store=str(root), settings=(("storeType", "default"),)))
    assert with_queue_store(store).queues_in.kind == "file"
    assert with_queue_store(open_store(LogOptions(store=str(root)))).queues_in.kind == "rocksdb"


def test_a_setting_of_brokers_without_effect_is_a_note(root: Path) -> None:
    settings = (("flushDiskType", "SYNC_FLUSH"), ("maxIndexNum", "20"), ("storeType", "default"))
    store = open_store(LogOptions(store=str(root), settings=settings), needs_index_sizes=False)
    assert [note for note in store.notes if note.startswith("--set")] == [
        "--set flushDiskType: the files of a store do not depend on it"
    ]


def test_records_with_damaged_bodies_are_kept_by_salvage_alone(root: Path) -> None:
    assert open_store(LogOptions(store=str(root), keep_crc_failures=True, on_damage="salvage")).segments
    for policy in ("fail", "stop"):
        with pytest.raises(UsageError, match="--on-damage salvage"):
            open_store(LogOptions(store=str(root), keep_crc_failures=True, on_damage=policy))


def test_the_size_of_an_only_segment_is_doubted_unless_it_is_told(root: Path) -> None:
    (segment,) = (root / "commitlog").iterdir()
    size = segment.stat().st_size
    said = f"the only segment has {size} bytes"
    assert any(said in note for note in open_store(LogOptions(store=str(root))).notes)
    told = (("mappedFileSizeCommitLog", str(size)),)
    assert not any(said in note for note in open_store(LogOptions(store=str(root), settings=told)).notes)
    with pytest.raises(NotAStore):
        open_store(LogOptions(store=str(root), settings=(("mappedFileSizeCommitLog", str(size + 1)),)))


def test_queues_in_rocksdb_are_plain_ones_of_every_topic(root: Path) -> None:
    pytest.importorskip("rocksdict")
    store = open_store(LogOptions(store=str(root), batch_topics=("B",)))
    assert with_queue_store(store, "file").batch_topics == frozenset({"B"})
    assert with_queue_store(store, "rocksdb").batch_topics == frozenset()
