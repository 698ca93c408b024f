"""What a store's own files show of its settings and of the places of its log, and what others do not."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.entry_log import SIZE, EntryLogBuilder, a_log
from support.here import tasks_here
from support.reading import opened, queue_offsets, rebuilt
from support.store_builder import LogBuilder

from jobs.cli import command_line
from jobs.contract.options import LogOptions
from jobs.log import opening
from jobs.log.opening import open_store, with_queue_store
from jobs.rebuild.not_rebuilt import parts_not_rebuilt
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.errors import MissingInput, NotAStore, UsageError, WrongSettings
from storeformat.log.dledger import EntryFraming
from storeformat.log.framing import PLAIN
from storeformat.record.decode import DISPATCH_PROPERTIES
from storeformat.record.light_queues import MultiDispatchRules
from storeformat.store import store as store_module
from storeformat.store.broker_rules import DEFAULT, VERSIONS
from storeformat.store.segment_files import find_segments
from storeformat.store.settings import ENTRIES, SLOTS


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
    assert open_store(LogOptions(store=str(root))).settings.queue_file_size == 200


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
    assert [note.partition(":")[0] for note in store.notes if note.startswith("--set")] == ["--set flushDiskType"]


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


def test_light_queues_need_their_properties_and_a_release(root: Path) -> None:
    settings = (("enableMultiDispatch", "true"), ("enableLmq", "true"))
    with pytest.raises(WrongSettings, match="which records go to light queues depends on the broker's release"):
        open_store(LogOptions(store=str(root), settings=settings))
    store = open_store(LogOptions(store=str(root), settings=settings, broker_version="5.3"))
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


def test_settings_of_a_file_stand_below_those_of_the_command_line(root: Path) -> None:
    conf = root / "broker.conf"
    conf.write_bytes(b"maxIndexNum = 7\nmaxHashSlotNum=9\nnobodys.setting = \xff\nflushDiskType=SYNC_FLUSH\n")
    options = LogOptions(store=str(root), broker_conf=str(conf), settings=(("maxIndexNum", "8"),))
    store = open_store(options)
    assert (store.settings.number(ENTRIES), store.settings.number(SLOTS)) == (8, 9)
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
    empty = root / "commitlog" / f"{65536:020d}"
    empty.touch()
    died, cut = open_store(LogOptions(store=str(root))).notes[-2:]
    assert died.startswith(f"{empty} is empty and is ignored")
    assert cut.startswith("the only segment has 65536 bytes")


def test_of_queues_that_are_written_twice_the_files_count(root: Path) -> None:
    options = LogOptions(store=str(root), settings=(("rocksdbCQDoubleWriteEnable", "true"),), batch_topics=("B",))
    store = with_queue_store(open_store(options))
    assert (store.queues_in.kind, store.batch_topics) == ("file", {"B"})
    assert store.notes[-1].startswith("rocksdbCQDoubleWriteEnable=true: the database beside the queue files")
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
    with pytest.raises(UsageError, match="found 11 splits, expected at most 10"):
        opening.read_log(store, options, Runner())
    assert opening.read_log(store, replace(options, split_size=None), Runner(), split_size=5958).records == 1


# ----------------------------- where a log lies: entries after an old log, one member of several, several paths
def old_log(root: Path, count: int = 20) -> LogBuilder:
    """What a broker wrote before it became a member, closed as it closes it then."""
    log = LogBuilder(SIZE)
    for number in range(count):
        log.message(topic="T", queue_id=number % 3, body=bytes(30))
    log.blank()
    (root / "commitlog").mkdir(parents=True)
    for base, data in log.segments.items():
        if base < log.end_offset:
            (root / "commitlog" / f"{base:020d}").write_bytes(data)
    return log


def mixed(root: Path) -> tuple[LogBuilder, EntryLogBuilder]:
    old = old_log(root)
    new = EntryLogBuilder(SIZE, old.end_offset)
    new.queue_offsets = dict(old.queue_offsets)
    for number in range(30):
        new.message(topic="T", queue_id=number % 3, body=bytes(30))
    new.write(root, 29)
    return old, new


@pytest.mark.parametrize("split_size", [100, 1 << 30])
def test_entries_after_an_old_log(tmp_path: Path, split_size: int) -> None:
    old, new = mixed(tmp_path / "store")
    assert {segment.framing for segment in opened(tmp_path / "store").segments} == {PLAIN, EntryFraming(29)}
    made = rebuilt(tmp_path / "store", tmp_path / "work", split_size=split_size)
    assert queue_offsets(made) == [placed.offset for placed in (*old.records, *new.records)]


def test_a_switch_that_is_off_leaves_entries_out_and_names_them(tmp_path: Path) -> None:
    old, _ = mixed(tmp_path / "store")
    store = opened(tmp_path / "store", settings=(("enableDLegerCommitLog", "false"),))
    assert {segment.framing for segment in store.segments} == {PLAIN}
    assert store.segments[-1].end == old.end_offset
    (part,) = parts_not_rebuilt(store.root, store.segments)
    assert part["part"] == "dledger-n0"


def test_entries_must_go_on_where_the_old_log_ends(tmp_path: Path) -> None:
    old_log(tmp_path / "store")
    a_log().write(tmp_path / "store", 59)
    with pytest.raises(NotAStore, match="the commit log has a segment twice") as refused:
        opened(tmp_path / "store")
    assert "commitlog" in str(refused.value)
    assert "dledger-n0" in str(refused.value)
    named = opened(tmp_path / "store", commitlog=(str(tmp_path / "store" / "dledger-n0" / "data"),))
    assert {segment.framing for segment in named.segments} == {EntryFraming(59)}


def test_of_several_members_one_must_be_named(tmp_path: Path) -> None:
    root = a_log().write(tmp_path / "store", 59)
    shutil.copytree(root / "dledger-n0", root / "dledger-n1")
    with pytest.raises(WrongSettings, match="several members"):
        opened(root)
    store = opened(root, settings=(("dLegerSelfId", "n1"),))
    assert {Path(segment.path).parent.parent.name for segment in store.segments} == {"dledger-n1"}
    assert [part["part"] for part in parts_not_rebuilt(store.root, store.segments)] == ["dledger-n0"]
    (root / "dledger-n1" / "checkpoint").write_text("committedIndex=10\n")
    store = opened(root, commitlog=(str(root / "dledger-n1" / "data"),))
    assert "committedIndex=10" in store.notes[-1]


@pytest.mark.parametrize("setting", [("enableDLegerCommitLog", "true"), ("dLegerSelfId", "n7")])
def test_a_member_without_entries_is_a_contradiction(tmp_path: Path, setting: tuple[str, str]) -> None:
    old_log(tmp_path / "store")
    if setting[0] == "dLegerSelfId":
        a_log().write(tmp_path / "store", 59)
    with pytest.raises(WrongSettings, match="entries are not in the store") as refused:
        opened(tmp_path / "store", settings=(setting,))
    assert "expected dledger-" in str(refused.value)


# ------------------------------------------------------------------------------------------------------- several paths
def spread(tmp_path: Path, *names: str) -> tuple[LogBuilder, list[Path]]:
    """A log whose segments lie in several directories in turn, as the broker places them."""
    log = LogBuilder(SIZE)
    for number in range(80):
        log.message(queue_id=number % 2, body=bytes(60))
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.mkdir(parents=True)
    for base, data in log.segments.items():
        (paths[base // SIZE % len(paths)] / f"{base:020d}").write_bytes(data)
    (tmp_path / "store").mkdir(exist_ok=True)
    return log, paths


def test_a_log_on_several_paths(tmp_path: Path) -> None:
    log, (one, two) = spread(tmp_path, "one", "two")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={one},{two}\n")
    made = rebuilt(tmp_path / "store", tmp_path / "work", broker_conf=str(conf))
    assert queue_offsets(made) == [placed.offset for placed in log.records]
    for writable, served in ((f"{two},", True), (str(two), False)):
        conf.write_text(f"storePathCommitLog={writable}\nreadOnlyCommitLogStorePaths={one},{two}\n")
        store = opened(tmp_path / "store", broker_conf=str(conf))
        assert len(store.segments) == len(log.segments)
        assert ["does not serve" in note for note in store.notes] == ([] if served else [True])
    named = opened(tmp_path / "store", commitlog=(str(one), str(two)))
    assert len(named.segments) == len(log.segments)


def test_a_path_that_is_not_mounted_is_no_shorter_log(tmp_path: Path) -> None:
    _, (one, two) = spread(tmp_path, "one", "two")
    shutil.rmtree(two)
    paths = (("storePathCommitLog", str(one)), ("readOnlyCommitLogStorePaths", str(two)))
    with pytest.raises(MissingInput, match="a directory of the commit log is missing") as refused:
        opened(tmp_path / "store", settings=paths)
    assert str(two) in str(refused.value)


def test_a_segment_on_two_paths_is_refused_with_both(tmp_path: Path) -> None:
    _, (one, two) = spread(tmp_path, "one", "two")
    shutil.copy(one / f"{0:020d}", two)
    with pytest.raises(NotAStore, match="the commit log has a segment twice") as refused:
        find_segments([str(one), str(two)], None)
    assert f"{one}/{0:020d} and {two}/{0:020d}" in str(refused.value)
