"""Where a log lies: entries of a DLedger group after an old log, one member of several, several paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.entry_log import SIZE, EntryLogBuilder, a_log
from support.reading import opened, queue_offsets, rebuilt
from support.store_builder import LogBuilder

from storeformat.errors import MissingInput, NotAStore, WrongSettings
from storeformat.log.dledger import EntryFraming
from storeformat.log.framing import PLAIN
from storeformat.store.not_rebuilt import parts_not_rebuilt
from storeformat.store.segment_files import find_segments


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


def test_a_path_of_its_own(tmp_path: Path) -> None:
    root = a_log().write(tmp_path / "store", 41)
    (root / "dledger-n0" / "data").rename(tmp_path / "elsewhere")
    store = opened(root, settings=(("storePathDLedgerCommitLog", str(tmp_path / "elsewhere")),))
    assert len(store.segments) > 1
    assert store.committed is not None


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
