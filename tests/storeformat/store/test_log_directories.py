"""Which directories hold the log: as told, as settings say, or as the store shows. Jobs that read such logs are tested
in ``tests/jobs/log/test_log_directories.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.entry_log import a_log

from storeformat.errors import MissingInput, WrongSettings
from storeformat.log.dledger import ENTRIES, Committed, EntryFraming
from storeformat.log.framing import PLAIN
from storeformat.log.segments import Segment
from storeformat.store import log_directories
from storeformat.store.layout import StoreLayout
from storeformat.store.log_directories import commit_log_directories
from storeformat.store.segment_files import find_segments

SWITCH = ("enableDLegerCommitLog",)


def a_store(root: Path, *directories: str) -> str:
    """A store with one file in each of these directories."""
    for name in directories:
        (root / name).mkdir(parents=True)
        (root / name / "00000000000000000000").write_bytes(b"x")
    root.mkdir(exist_ok=True)
    return str(root)


def found(root: str, given: tuple[str, ...] = (), named: tuple[str, ...] = (), **settings: Any) -> list[str]:
    """The directories, relative to the store where they lie in it."""
    paths = commit_log_directories(root, StoreLayout(**settings), given, named)
    return [path.removeprefix(root + "/") for path in paths]


def test_the_stores_own_folder_unless_told(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "commitlog")
    assert found(root) == ["commitlog"]
    assert found(root, named=("/a/../b", "s3://c/d")) == ["/b", "s3://c/d"]
    assert found(str(tmp_path / "none")) == ["commitlog"], "whoever reads it says that there is none"


def test_paths_of_the_settings_count_once_and_where_they_are(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "commitlog", "one", "two", "three")
    one, two, three = (f"{root}/{name}" for name in ("one", "two", "three"))
    assert found(root, store_path_commit_log=f" {one},,{two}, ") == ["one", "two"]
    assert (
        found(root, store_path_commit_log=two, read_only_commit_log_store_paths=f"{three},{two},{one}")
        == ["two", "three", "one"]
    )  # fmt: skip
    assert found(root, store_path_commit_log="/not/of/this/machine") == ["commitlog"]


def test_a_path_that_is_missing_beside_others_is_an_error(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "one")
    with pytest.raises(MissingInput) as refused:
        found(root, store_path_commit_log=f"/gone/a,{root}/one,/gone/b")
    error = refused.value
    assert (error.what, error.path) == ("a directory of the commit log is missing", "/gone/a")
    assert error.advice == "mount it, or name those that hold the log with --commitlog PATH[,PATH]"


def test_entries_of_a_group_follow_what_is_in_the_old_log(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "commitlog", "dledger-n0/data")
    assert found(root) == ["commitlog", "dledger-n0/data"]
    assert found(root, SWITCH, enable_d_leger_commit_log=True) == ["commitlog", "dledger-n0/data"]
    assert found(root, SWITCH) == ["commitlog"], "told that there is no group"
    (tmp_path / "s" / "commitlog" / "00000000000000000000").unlink()
    assert found(root) == ["dledger-n0/data"], "the old folder is empty"
    (tmp_path / "s" / "commitlog" / "sub").mkdir()
    assert found(root) == ["dledger-n0/data"], "a directory is no segment"
    (tmp_path / "s" / "dledger-n0" / "data" / "00000000000000000000").unlink()
    assert found(root) == ["commitlog"], "neither has files"


def test_a_path_of_its_own_for_entries(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "elsewhere", "dledger-n0/data")
    assert found(root, store_path_d_ledger_commit_log=f"{root}/elsewhere") == ["elsewhere"]
    assert found(root, store_path_d_ledger_commit_log="/gone") == ["dledger-n0/data"]


BOTH = "{root}/dledger-n0/data and {root}/dledger-n1/data"


@pytest.mark.parametrize(
    ("groups", "settings", "said"),
    [
        (("n0",), {"d_leger_self_id": "n7"}, ("{root}/dledger-n0/data", "dledger-n7/data")),
        (("n1", "n0"), {"d_leger_self_id": "n"}, (BOTH, "dledger-n/data")),
        ((), {"enable_d_leger_commit_log": True}, ("no dledger-ID/data", "dledger-ID/data")),
    ],
)  # fmt: skip
def test_a_member_without_entries_is_a_contradiction(
    tmp_path: Path, groups: tuple[str, ...], settings: dict[str, Any], said: tuple[str, str]
) -> None:
    root = a_store(tmp_path / "s", "commitlog", *(f"dledger-{name}/data" for name in groups))
    with pytest.raises(WrongSettings) as refused:
        found(root, **settings)
    error = refused.value
    assert error.what == "the settings name a DLedger member whose entries are not in the store"
    assert (error.path, error.found, error.expected) == (root, said[0].format(root=root), said[1])
    advice = "--set enableDLegerCommitLog=false reads commitlog/ alone; --set dLegerSelfId=ID names another member"
    assert error.advice == advice


def test_of_several_members_one_is_chosen(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "dledger-n1/data", "dledger-n0/data", "dledger-n10/data")
    with pytest.raises(WrongSettings) as refused:
        found(root)
    error = refused.value
    assert error.what == "the store holds the logs of several members of a DLedger group"
    assert error.found == " and ".join(f"{root}/dledger-{name}/data" for name in ("n0", "n1", "n10"))
    assert (error.path, error.expected, error.advice) == (root, "one", "--set dLegerSelfId=ID chooses one")
    assert found(root, d_leger_self_id="n1") == ["dledger-n1/data"]


def test_groups_are_folders_of_their_name(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "dledger-n1/data", "dledger-n0", "my-dledger-n2", "dledge")
    (tmp_path / "s" / "dledger-file").write_text("")
    assert log_directories.group_directories(root) == [f"{root}/dledger-n0", f"{root}/dledger-n1"]
    assert log_directories.group_directories(root, "n1") == [f"{root}/dledger-n1"]
    assert log_directories.group_directories(root, "n") == []
    assert log_directories.group_directories(f"{root}/none") == []
    directories = ["/s/commitlog", "/s/dledger-n0/data", "/s/dledger-n1/other", "/s/n/data"]
    assert log_directories.groups_of(directories) == ["/s/dledger-n0"]


NOTE = (
    "a broker with these settings does not serve what lies in {path}: it looks at readOnlyCommitLogStorePaths"
    " only where storePathCommitLog has a comma (one at its end will do)"
)


def test_a_path_that_a_broker_does_not_read_is_noted(tmp_path: Path) -> None:
    path = a_store(tmp_path / "old")

    def note(**settings: Any) -> str | None:
        return log_directories.paths_unread_by_broker(StoreLayout(**settings))

    read_only = {"read_only_commit_log_store_paths": f" {path} "}
    assert note(**read_only) == note(store_path_commit_log="/a", **read_only) == NOTE.format(path=path)
    assert note(store_path_commit_log="/a,", **read_only) is None
    assert note(enable_d_leger_commit_log=True, **read_only) is None
    assert note(read_only_commit_log_store_paths="/gone") is None
    assert note(read_only_commit_log_store_paths=" ") is None


def test_a_plain_log_is_committed_whole() -> None:
    segments = [Segment("/s/commitlog/0", 0, 100)]
    assert log_directories.with_committed(segments, ["/s/dledger-n0"]) == (segments, Committed())


def test_without_a_checkpoint_nothing_shows_what_is_committed(tmp_path: Path) -> None:
    segments = [Segment("/s/0", 0, 100), Segment("/s/1", 100, 100, ENTRIES)]
    note = "no checkpoint of the group was found: nothing shows how far its log is committed"
    several = [a_group(tmp_path / "a", 5), a_group(tmp_path / "b", 5)]
    for groups in ([], [str(tmp_path)], several):
        assert log_directories.with_committed(segments, groups) == (segments, Committed(None, note))


def a_group(path: Path, committed: int) -> str:
    path.mkdir()
    (path / "checkpoint").write_text(f"endIndex=9\ncommittedIndex={committed}\n")
    return str(path)


def test_segments_of_entries_know_what_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100"
    path.write_bytes(bytes(100))
    segments = [Segment("/s/0", 0, 100), Segment(str(path), 100, 100, ENTRIES)]
    known, committed = log_directories.with_committed(segments, [a_group(tmp_path / "g", -1)])
    assert (known, committed) == ([segments[0], Segment(str(path), 100, 100, EntryFraming(-1))], Committed())
    known, committed = log_directories.with_committed(segments, [a_group(tmp_path / "h", 5)])
    assert [segment.framing for segment in known] == [PLAIN, EntryFraming(5)]
    assert committed == Committed()
    log = a_log(20)
    group = log.write(tmp_path / "store", 7) / "dledger-n0"
    segments = find_segments([str(group / "data")], None)
    _, committed = log_directories.with_committed(segments, [str(group)])
    assert committed.end == log.records[7].end
    assert "committedIndex=7" in committed.note
