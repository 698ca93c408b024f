"""What a store's own files show of its settings, and what others do not."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.here import tasks_here
from support.store_builder import LogBuilder

from jobs.cli import command_line
from jobs.contract.options import LogOptions
from jobs.log import opening
from jobs.log.opening import open_store, with_queue_store
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import MissingInput, NotAStore, UsageError, WrongSettings
from storeformat.record.decode import DISPATCH_PROPERTIES
from storeformat.record.light_queues import MultiDispatchRules
from storeformat.store import store as store_module
from storeformat.store.broker_rules import DEFAULT, VERSIONS


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
    with tasks_here():
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
        with pytest.raises(UsageError) as error:
            open_store(LogOptions(store=str(root), keep_crc_failures=True, on_damage=policy))
        assert str(error.value) == "--keep-crc-failures needs --on-damage salvage, which alone keeps damaged records"


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
    with pytest.raises(WrongSettings, match=r"no broker before 5\.0\.0 reads queues of batches: found B"):
        open_store(LogOptions(store=str(root), batch_topics=("B",), broker_version="4.9.8"))


def test_a_store_as_it_is_opened(root: Path) -> None:
    store = open_store(LogOptions(store=str(root), batch_topics=("B",), on_damage="stop"))
    assert (store.root, store.log_size, store.batch_topics) == (str(root), 65536, frozenset({"B"}))
    assert store.facts() == {
        "store": str(root), "broker_version": store.rules.version, "broker_version_reason": store.release_reason,
    }  # fmt: skip
    assert (store.as_broker, store.decode_rules().as_broker) == (True, True)
    assert (store.committed, store.missing_from, store.queue_store) == (None, None, {})
    assert open_store(LogOptions(store=str(root))).as_broker is False
    assert (store.decode_rules().check_crc, store.second_rules().check_crc) == (True, False)
    assert replace(store.second_rules(), check_crc=True) == store.decode_rules()
    rules = store.dispatch_rules()
    assert (rules.batch_topics, rules.message_index_enable, rules.multi_dispatch) == (frozenset({b"B"}), True, None)
    assert rules.delay_millis[:2] == (1000, 5000)
    assert rules.index_tags == store.rules.index_tags


def test_light_queues_need_their_properties_and_a_release(root: Path) -> None:
    settings = (("enableMultiDispatch", "true"), ("enableLmq", "true"))
    with pytest.raises(WrongSettings) as error:
        open_store(LogOptions(store=str(root), settings=settings))
    what = "which records go to light queues depends on the broker's release, and the store does not show it"
    assert (str(error.value), error.value.advice) == (f"{what} ({root})", "give --broker-version 4.9, 5.1, 5.3 or 5.5")
    store = open_store(LogOptions(store=str(root), settings=settings, broker_version="5.3"))
    assert store.release_reason == "as given by --broker-version"
    for version, said in (("5.3.3", ""), ("5.5.1", "; beside these rules"), ("5.9.0", ", which this program")):
        given = open_store(LogOptions(store=str(root), broker_version=version)).release_reason
        assert given.startswith(f"as given by --broker-version {version}{said}")
    light = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
    assert store.decode_rules((b"more",)).properties == (*DISPATCH_PROPERTIES, *light, b"more")
    assert store.dispatch_rules().multi_dispatch == MultiDispatchRules(
        True, store.rules.no_light_topics, store.rules.no_light_prefixes
    )
    plain = open_store(LogOptions(store=str(root), broker_version="5.3"))
    assert plain.decode_rules((b"more",)).properties == (*DISPATCH_PROPERTIES, b"more")


def test_what_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(MissingInput) as error:
        open_store(LogOptions(store=str(root / "absent")))
    assert (str(error.value), error.value.advice) == (f"there is no such store ({root / 'absent'})", None)


def test_settings_of_a_file_stand_below_those_of_the_command_line(root: Path) -> None:
    conf = root / "broker.conf"
    conf.write_bytes(b"maxIndexNum = 7\nmaxHashSlotNum=9\nnobodys.setting = \xff\nflushDiskType=SYNC_FLUSH\n")
    options = LogOptions(store=str(root), broker_conf=str(conf), settings=(("maxIndexNum", "8"),))
    store = open_store(options)
    assert (store.layout.max_index_num, store.layout.max_hash_slot_num) == (8, 9)
    assert not [note for note in store.notes if "flushDiskType" in note], "a file says much that is not asked for here"
    conf.write_text("maxHashSlotNum = many\n")
    with pytest.raises(WrongSettings) as error:
        open_store(options)
    assert error.value.path == str(conf)


def test_a_release_that_the_store_contradicts_is_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "guess_version", lambda signs: ("5.1", "it has such a file"))
    store = open_store(LogOptions(store=str(root)))
    assert (store.rules.version, store.release_reason) == ("5.1", "it has such a file")
    said = [
        [note for note in open_store(LogOptions(store=str(root), broker_version=version)).notes if "rules" in note]
        for version in ("5.1", "5.3")
    ]
    assert said == [[], ["using the rules of 5.3, as requested; the store suggests 5.1: it has such a file"]]
    monkeypatch.setattr(store_module, "guess_version", lambda signs: (DEFAULT, "nothing"))
    version = next(version for version in VERSIONS if version != DEFAULT)
    notes = open_store(LogOptions(store=str(root), broker_version=version)).notes
    assert not [note for note in notes if "rules" in note]


def test_notes_of_segments(root: Path) -> None:
    (segment,) = (root / "commitlog").iterdir()
    empty = segment.with_name(f"{65536:020d}")
    empty.touch()
    died, cut = open_store(LogOptions(store=str(root))).notes[-2:]
    assert died == f"{empty} is empty and is ignored: the broker died while it created the file, or its content is lost"
    what = "the only segment has 65536 bytes: if the broker's mappedFileSizeCommitLog is another"
    assert cut == f"{what}, the file was cut or is still being copied"


def test_of_queues_that_are_written_twice_the_files_count(root: Path) -> None:
    options = LogOptions(store=str(root), settings=(("rocksdbCQDoubleWriteEnable", "true"),), batch_topics=("B",))
    store = with_queue_store(open_store(options))
    assert (store.queues_in.kind, store.batch_topics) == ("file", {"B"})
    assert store.notes[-1] == (
        "rocksdbCQDoubleWriteEnable=true: the database beside the queue files is neither made nor checked; rebuild"
        " --queue-store rocksdb makes it"
    )
    assert with_queue_store(open_store(options), "file").notes == store.notes[:-1]


def test_a_reading_ends_where_it_is_asked_to_or_where_a_live_broker_writes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(LogOptions(store=str(root)))
    assert [store.until(None), store.until(7)] == [None, 7]
    agreed = replace(store, committed=50)
    assert [agreed.until(None), agreed.until(7)] == [50, 7]
    asked: list[str] = []
    monkeypatch.setattr(store_module.broker_lock, "is_live", lambda path: not asked.append(path))
    monkeypatch.setattr(opening, "growing_log_end", lambda segments, rules: 40 if rules == store.decode_rules() else 0)
    assert [store.until(None), store.until(39), store.until(41), agreed.until(None)] == [40, 39, 40, 40]
    assert set(asked) == {str(root / "lock")}


def test_more_splits_than_a_driver_keeps_in_mind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_SPLITS", 10)
    options = LogOptions(store=str(root), split_size=5957)
    store = open_store(options)
    with pytest.raises(UsageError) as error:
        opening.read_log(store, options, Runner())
    assert str(error.value) == (
        "--split-size is in bytes, and this one makes too many splits: found 11 splits, expected at most 10"
    )
    assert opening.read_log(store, replace(options, split_size=None), Runner(), split_size=5958).records == 1
