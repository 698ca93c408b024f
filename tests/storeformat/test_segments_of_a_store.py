"""Which segments a store has, and what of it is not rebuilt."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.entry_log import a_log
from support.refusals import refusal

from jobs.rebuild.rebuild import parts_not_rebuilt
from storeformat.errors import MissingInput, NotAStore, StoreFormatError, WrongSettings
from storeformat.log.dledger import ENTRIES, Committed, EntryFraming
from storeformat.log.segments import PLAIN, Segment
from storeformat.store import segment_files
from storeformat.store.layout import file_name
from storeformat.store.segment_files import LogFiles, commit_log_directories, find_segments, log_files
from storeformat.store.settings import Settings

# ----------------------------------------------------------------------------------------------- log directories


def a_store(root: Path, *directories: str) -> str:
    for name in directories:
        (root / name).mkdir(parents=True)
        (root / name / "00000000000000000000").write_bytes(b"x")
    root.mkdir(exist_ok=True)
    return str(root)


def found(root: str, named: tuple[str, ...] = (), **settings: str) -> list[str]:
    """The directories, relative to the store where they lie in it."""
    paths = commit_log_directories(root, Settings(settings), named)
    return [path.removeprefix(root + "/") for path in paths]


def test_the_stores_own_folder_unless_told(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "commitlog")
    assert found(root) == ["commitlog"]
    assert found(root, named=("/a/../b", "s3://c/d")) == ["/b", "s3://c/d"]
    assert found(str(tmp_path / "none")) == ["commitlog"], "whoever reads it says that there is none"


def test_paths_of_the_settings_count_once_and_where_they_are(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "commitlog", "one", "two", "three")
    one, two, three = (f"{root}/{name}" for name in ("one", "two", "three"))
    assert found(root, storePathCommitLog=f" {one},,{two}, ") == ["one", "two"]
    assert (
        found(root, storePathCommitLog=two, readOnlyCommitLogStorePaths=f"{three},{two},{one}")
        == ["two", "three", "one"]
    )  # fmt: skip
    assert found(root, storePathCommitLog="/not/of/this/machine") == ["commitlog"]


def test_a_path_that_is_missing_beside_others_is_an_error(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "one")
    with pytest.raises(MissingInput, match=r"a directory of the commit log is missing \(/gone/a\)"):
        found(root, storePathCommitLog=f"/gone/a,{root}/one,/gone/b")
    with pytest.raises(MissingInput, match=r"a directory of the commit log is missing \(/gone/b\)"):
        found(root, storePathCommitLog=f"{root}/one", readOnlyCommitLogStorePaths="/gone/b")


def test_entries_of_a_group_follow_what_is_in_the_old_log(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "commitlog", "dledger-n0/data")
    assert found(root) == ["commitlog", "dledger-n0/data"]
    assert found(root, enableDLegerCommitLog="true") == ["commitlog", "dledger-n0/data"]
    assert found(root, enableDLegerCommitLog="false") == ["commitlog"], "told that there is no group"
    (tmp_path / "s" / "commitlog" / "00000000000000000000").unlink()
    assert found(root) == ["dledger-n0/data"], "the old folder is empty"
    (tmp_path / "s" / "commitlog" / "sub").mkdir()
    assert found(root) == ["dledger-n0/data"], "a directory is no segment"
    (tmp_path / "s" / "dledger-n0" / "data" / "00000000000000000000").unlink()
    assert found(root) == ["commitlog"], "neither has files"


def test_a_path_of_its_own_for_entries(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "elsewhere", "dledger-n0/data")
    assert found(root, storePathDLedgerCommitLog=f"{root}/elsewhere") == ["elsewhere"]
    assert found(root, storePathDLedgerCommitLog="/gone") == ["dledger-n0/data"]


BOTH = "{root}/dledger-n0/data and {root}/dledger-n1/data"


@pytest.mark.parametrize(
    ("groups", "settings", "said"),
    [
        (("n0",), {"dLegerSelfId": "n7"}, ("{root}/dledger-n0/data", "dledger-n7/data")),
        (("n1", "n0"), {"dLegerSelfId": "n"}, (BOTH, "dledger-n/data")),
        ((), {"enableDLegerCommitLog": "true"}, ("no dledger-ID/data", "dledger-ID/data")),
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


def test_of_several_members_one_is_chosen(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "dledger-n1/data", "dledger-n0/data", "dledger-n10/data")
    with pytest.raises(WrongSettings, match="the logs of several members of a DLedger group") as refused:
        found(root)
    assert refused.value.found == " and ".join(f"{root}/dledger-{name}/data" for name in ("n0", "n1", "n10"))
    assert found(root, dLegerSelfId="n1") == ["dledger-n1/data"]


def test_groups_are_folders_of_their_name(tmp_path: Path) -> None:
    root = a_store(tmp_path / "s", "dledger-n1/data", "dledger-n0", "my-dledger-n2", "dledge")
    (tmp_path / "s" / "dledger-file").write_text("")
    assert segment_files.group_directories(root) == [f"{root}/dledger-n0", f"{root}/dledger-n1"]
    assert segment_files.group_directories(root, "n1") == [f"{root}/dledger-n1"]
    assert segment_files.group_directories(root, "n") == []
    assert segment_files.group_directories(f"{root}/none") == []
    directories = ["/s/commitlog", "/s/dledger-n0/data", "/s/dledger-n1/other", "/s/n/data"]
    assert segment_files.groups_of(directories) == ["/s/dledger-n0"]


NOTE = (
    "a broker with these settings does not serve what lies in {path}: it looks at readOnlyCommitLogStorePaths"
    " only where storePathCommitLog has a comma (one at its end will do)"
)


def test_a_path_that_a_broker_does_not_read_is_noted(tmp_path: Path) -> None:
    path = a_store(tmp_path / "old")

    def note(**settings: str) -> str | None:
        return segment_files.paths_unread_by_broker(Settings(settings))

    read_only = {"readOnlyCommitLogStorePaths": f" {path} "}
    assert note(**read_only) == note(storePathCommitLog="/a", **read_only) == NOTE.format(path=path)
    assert note(storePathCommitLog="/a,", **read_only) is None
    assert note(enableDLegerCommitLog="true", **read_only) is None
    assert note(readOnlyCommitLogStorePaths="/gone") is None
    assert note(readOnlyCommitLogStorePaths=" ") is None


def test_a_plain_log_is_committed_whole() -> None:
    segments = [Segment("/s/commitlog/0", 0, 100)]
    assert segment_files.with_committed(segments, ["/s/dledger-n0"]) == (segments, Committed())


def test_without_a_checkpoint_nothing_shows_what_is_committed(tmp_path: Path) -> None:
    segments = [Segment("/s/0", 0, 100), Segment("/s/1", 100, 100, ENTRIES)]
    note = "no checkpoint of the group was found: nothing shows how far its log is committed"
    several = [a_group(tmp_path / "a", 5), a_group(tmp_path / "b", 5)]
    for groups in ([], [str(tmp_path)], several):
        assert segment_files.with_committed(segments, groups) == (segments, Committed(None, note))


def a_group(path: Path, committed: int) -> str:
    path.mkdir()
    (path / "checkpoint").write_text(f"endIndex=9\ncommittedIndex={committed}\n")
    return str(path)


def test_segments_of_entries_know_what_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100"
    path.write_bytes(bytes(100))
    segments = [Segment("/s/0", 0, 100), Segment(str(path), 100, 100, ENTRIES)]
    known, committed = segment_files.with_committed(segments, [a_group(tmp_path / "g", -1)])
    assert (known, committed) == ([segments[0], Segment(str(path), 100, 100, EntryFraming(-1))], Committed())
    known, committed = segment_files.with_committed(segments, [a_group(tmp_path / "h", 5)])
    assert [segment.framing for segment in known] == [PLAIN, EntryFraming(5)]
    assert committed == Committed()
    log = a_log(20)
    group = log.write(tmp_path / "store", 7) / "dledger-n0"
    segments = find_segments([str(group / "data")], None)
    _, committed = segment_files.with_committed(segments, [str(group)])
    assert committed.end == log.records[7].end
    assert "committedIndex=7" in committed.note


# ----------------------------------------------------------------------------------------------------- log files
SHOWN = Settings({}, from_file=False)


def files_in(directory: Path, *files: tuple[int, int]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for base, size in files:
        with (directory / f"{base:020d}").open("wb") as file:
            file.truncate(size)


def read(root: Path, settings: Settings = SHOWN) -> LogFiles:
    return log_files(str(root), settings)


@pytest.mark.parametrize(
    ("files", "size", "row"),
    [
        ([], 1 << 30, []),
        ([(0, 0)], 1 << 30, []),
        ([(0, 100)], 100, [0]),
        ([(0, 100), (100, 100), (200, 0)], 100, [0, 100]),
        ([(0, 100), (100, 0), (200, 100)], 100, [200]),
        ([(0, 100), (100, 100), (200, 0), (300, 0)], 100, [0, 100]),
        ([(0, 100), (200, 100), (300, 100)], 100, [200, 300]),
        ([(0, 90), (100, 100), (200, 100)], 100, [100, 200]),
        ([(0, 100), (100, 100), (200, 90)], 100, []),
        ([(0, 1), (1, 2), (2, 2)], 2, [2]),
    ],
)
def test_segments_are_those_in_one_row_up_to_the_end(
    tmp_path: Path, files: list[tuple[int, int]], size: int, row: list[int]
) -> None:
    """The length is that of most; empty files at the end are passed over."""
    directory = tmp_path / "commitlog"
    files_in(directory, *files)
    found = read(tmp_path)
    assert (found.directories, found.size, found.of_group) == ((str(directory),), size, False)
    assert found.segments == tuple(Segment(str(directory / f"{base:020d}"), base, size) for base in row)
    assert [(int(file.name), file.size) for file in found.files] == files
    assert found.begin == (files[0][0] if files else 0)


def test_strays_and_folders(tmp_path: Path) -> None:
    directory = tmp_path / "commitlog"
    files_in(directory, (7, 5))
    (directory / "x").touch()
    (directory / f"{9:020d}").mkdir()
    found = read(tmp_path)
    assert [[file.name for file in part] for part in (found.files, found.stray, found.folders)] == [
        [f"{7:020d}"], ["x"], [f"{9:020d}"],
    ]  # fmt: skip
    assert found.begin == 7


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        (SHOWN, 100),
        (Settings(), 1 << 30),
        (Settings({"mappedFileSizeCommitLog": "50"}), 50),
        (Settings({"mappedFileSizeCommitLog": "50"}, from_file=False), 50),
    ],
)
def test_the_length_of_a_segment(tmp_path: Path, settings: Settings, size: int) -> None:
    files_in(tmp_path / "commitlog", (0, 100))
    found = read(tmp_path, settings)
    assert (found.size, len(found.wrong_size)) == (size, int(size != 100))


def test_several_directories_that_settings_name(tmp_path: Path) -> None:
    """Those that are not there are passed over, one that is named twice counts once; segments are put in order."""
    a, b = tmp_path / "a", tmp_path / "b"
    files_in(a, (100, 100))
    files_in(b, (0, 100), (200, 100))
    given = {"storePathCommitLog": f" {a},{tmp_path}/absent,,{b} ", "readOnlyCommitLogStorePaths": str(a)}
    found = read(tmp_path, Settings(given, from_file=False))
    assert found.directories == (str(a), str(b))
    assert [segment.base for segment in found.segments] == [0, 100, 200]
    read_only = read(tmp_path, Settings({"readOnlyCommitLogStorePaths": str(b)}, from_file=False))
    assert read_only.directories == (str(b),)
    assert read_only.gaps == [(read_only.files[0], read_only.files[1])]
    assert read(tmp_path, Settings({"storePathCommitLog": "/absent/x"})).directories == (f"{tmp_path}/commitlog",)


def test_the_folder_of_a_group(tmp_path: Path) -> None:
    files_in(tmp_path / "dledger-n0" / "data", (0, 100))
    files_in(tmp_path / "dledger-n1" / "data", (0, 100))
    group = {"enableDLegerCommitLog": "true"}
    assert read(tmp_path, Settings({**group, "dLegerSelfId": "n1"})).directories == (f"{tmp_path}/dledger-n1/data",)
    found = read(tmp_path, Settings(group))
    assert (found.directories, found.of_group) == (
        (f"{tmp_path}/dledger-n0/data", f"{tmp_path}/dledger-n1/data"), True,
    )  # fmt: skip
    named = read(tmp_path, Settings({**group, "storePathDLedgerCommitLog": f"{tmp_path}/own"}))
    assert (named.directories, named.of_group) == ((f"{tmp_path}/own",), False)


# ------------------------------------------------------------------------------------------------- segment files
SIZE = 4096


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments; a broker may have deleted those before them."""
    for number in (2, 3, 4):
        (tmp_path / file_name(number * SIZE)).write_bytes(bytes(SIZE))
    return tmp_path


def found_segments(*directories: Path, size: int | None = None) -> list[tuple[int, int]]:
    return [(one.base, one.size) for one in find_segments([str(path) for path in directories], size)]


THREE = [(2 * SIZE, SIZE), (3 * SIZE, SIZE), (4 * SIZE, SIZE)]


def test_segments_are_found_in_order_with_their_length(log: Path) -> None:
    (log / "directory").mkdir()
    (log / file_name(5 * SIZE)).touch()  # a broker was making it when it died
    assert found_segments(log) == found_segments(log, size=SIZE) == THREE


def test_segments_of_several_directories_are_one_log(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (log / file_name(3 * SIZE)).rename(other / file_name(3 * SIZE))
    assert found_segments(log, other) == found_segments(other, log) == THREE


def refused(kind: type[StoreFormatError], *directories: Path, size: int | None = None) -> tuple[object, ...]:
    said = refusal(kind, lambda: find_segments([str(path) for path in directories], size))
    return tuple(text for part, text in said.items() if part != "advice")


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_segments_of_another_length_are_refused(log: Path, size: int) -> None:
    path = log / file_name(3 * SIZE)
    path.write_bytes(bytes(size))
    assert refused(NotAStore, log) == ("a segment has the wrong length", str(path), size, SIZE)
    path.write_bytes(bytes(SIZE))
    first = str(log / file_name(2 * SIZE))
    assert refused(NotAStore, log, size=size) == ("a segment has the wrong length", first, SIZE, size)


def test_names_must_be_multiples_of_the_length_and_leave_no_gap(log: Path) -> None:
    (log / file_name(3 * SIZE)).unlink()
    expected = ("a segment is missing in the commit log", str(log / file_name(4 * SIZE)), 4 * SIZE, 3 * SIZE)
    assert refused(NotAStore, log) == expected
    path = log / file_name(3 * SIZE + 1)
    path.write_bytes(bytes(SIZE))
    what = "a segment's name is not a multiple of the segment size"
    assert refused(NotAStore, log) == (what, str(path), 3 * SIZE + 1, SIZE)


def test_a_log_without_bytes_or_without_segments_is_none(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "config").mkdir()
    for path in log.iterdir():
        path.write_bytes(b"")
    assert refused(NotAStore, log, other) == ("the commit log is empty", f"{log}, {other}")
    assert refused(NotAStore, other) == ("the commit log is empty", str(other))
    (other / "notes.txt").touch()
    assert refused(NotAStore, other) == ("this is not a commit log: it has no segments", str(other), "notes.txt")


def test_stray_files_are_all_named_up_to_twenty(log: Path) -> None:
    (log / "a01.txt").touch()
    assert refused(NotAStore, log) == ("there is a stray file in the commit log", str(log / "a01.txt"))
    for count, rest in ((2, ""), (20, ""), (21, " and 1 more"), (22, " and 2 more")):
        names = [f"a{number:02d}.txt" for number in range(1, count + 1)]
        for name in names:
            (log / name).touch()
        what = f"there are {count} stray files in the commit log"
        assert refused(NotAStore, log) == (what, str(log), ", ".join(names[:20]) + rest)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(make: Callable[[Path], None], log: Path) -> None:
    path = log / file_name(5 * SIZE)
    make(path)
    assert refused(NotAStore, log) == ("this is not a regular file", str(path))


def test_a_segment_in_two_directories_is_refused(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / file_name(3 * SIZE)).write_bytes(bytes(SIZE))
    both = f"{log / file_name(3 * SIZE)} and {other / file_name(3 * SIZE)}"
    assert refused(NotAStore, log, other) == ("the commit log has a segment twice", both)


def test_a_broken_link_or_no_directory_is_missing_input(log: Path) -> None:
    link = log / file_name(5 * SIZE)
    link.symlink_to("nowhere")
    assert refused(MissingInput, log) == ("a link in the commit log is broken", str(link))
    assert refused(MissingInput, log / "nowhere") == ("there is no commit log", str(log / "nowhere"))


# ----------------------------------------------------------------------------------------------------- missing segments
def with_missing(root: Path, *bases: int, size: int | None = None, **lengths: int) -> list[tuple[str, int, int, int]]:
    """Name, base, size and missing bytes of each segment of a log of these bases; some have a length ``b`` + base."""
    for base in bases:
        (root / file_name(base)).write_bytes(bytes(lengths.get(f"b{base}", 100)))
    found_segments = find_segments([str(root)], size, with_missing=True)
    assert all(Path(one.path).parent == root for one in found_segments)
    return [(Path(one.path).name, one.base, one.size, one.missing) for one in found_segments]


def test_missing_bytes_and_segments_are_counted_where_they_may_be(tmp_path: Path) -> None:
    found_segments = with_missing(tmp_path, 200, 300, 600, b300=40)
    assert found_segments == [
        (file_name(200), 200, 100, 0),
        (file_name(300), 300, 100, 60),
        (file_name(400), 400, 100, 100),
        (file_name(500), 500, 100, 100),
        (file_name(600), 600, 100, 0),
    ]


def test_segments_of_another_log_are_not_counted_as_missing(tmp_path: Path) -> None:
    """Up to a thousand in a row may be missing; a name that is no multiple is another log's."""
    assert len(with_missing(tmp_path, 0, 1_001 * 100)) == 1_002
    (tmp_path / file_name(1_001 * 100)).rename(tmp_path / file_name(1_002 * 100))
    with pytest.raises(NotAStore, match="a segment is missing in the commit log"):
        find_segments([str(tmp_path)], None, with_missing=True)
    (tmp_path / file_name(1_002 * 100)).rename(tmp_path / file_name(450))
    with pytest.raises(NotAStore, match="not a multiple"):
        find_segments([str(tmp_path)], 100, with_missing=True)


def test_the_length_is_what_most_have_and_what_names_are_apart(tmp_path: Path) -> None:
    """One of two is short: the names tell which."""
    assert with_missing(tmp_path, 0, 100, b0=60)[0][2:] == (100, 40)
    (tmp_path / file_name(0)).write_bytes(bytes(100))
    (tmp_path / file_name(100)).write_bytes(bytes(60))
    assert find_segments([str(tmp_path)], None, with_missing=True)[1].missing == 40


def test_a_directory_shows_how_its_segments_are_framed(tmp_path: Path) -> None:
    """By the first segment that shows it; where none does, by the directory's name."""
    entry = struct.pack(">iiqqqiiii", 1, 48, 0, 0, 100, 0, 0, 0, 0)
    group = tmp_path / "dledger-n0" / "data"
    group.mkdir(parents=True)
    for directory in (tmp_path, group):
        for base in (0, 100):
            (directory / file_name(base)).write_bytes(bytes(100))

    def framings(directory: Path) -> list[object]:
        return [segment.framing for segment in find_segments([str(directory)], None)]

    assert (framings(tmp_path), framings(group)) == ([PLAIN] * 2, [ENTRIES] * 2)
    (tmp_path / file_name(100)).write_bytes(entry + bytes(52))
    assert framings(tmp_path) == [ENTRIES] * 2
    (group / file_name(100)).write_bytes(bytes.fromhex("00000064 daa320a7") + bytes(92))
    assert framings(group) == [PLAIN] * 2


# ---------------------------------------------------------------------------------------------------------- not rebuilt
def named(root: Path, *, extended: bool = False) -> list[str]:
    return [part["part"] for part in parts_not_rebuilt(str(root), extended=extended)]


def put(root: Path, path: str, content: bytes = b"x") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("consumequeue_ext/T/0/00000000000000000000", "consumequeue_ext"),
        ("compaction/compactionLog/T/0/00000000000000000000", "compaction"),
        ("timerwheel", "timerwheel"),
        ("timerwheel.1048576", "timerwheel.1048576"),
        ("timerlog/00000000000000000000", "timerlog"),
        ("kvStore/000012.sst", "kvStore"),
        ("consumequeue/CURRENT", "consumequeue/CURRENT"),
        ("consumequeue_rocksdb/000004.log", "consumequeue_rocksdb"),
        ("rocksdbstore/000012.sst", "rocksdbstore"),
        ("rocksdbstore/000012.log", "rocksdbstore"),
        ("config/topics/000012.sst", "config/topics"),
        ("config/metadata/000012.sst", "config/metadata"),
        ("config/rdb/000004.log", "config/rdb"),
        ("epochFileCheckpoint", "epochFileCheckpoint"),
        ("brokerIdentity", "brokerIdentity"),
        ("tieredstore/a", "tieredstore"),
        ("transaction/statetable/00000000000000000000", "transaction"),
        ("notes.txt", "notes.txt"),
        ("dledger-n0/data/00000000000000000000", "dledger-n0"),
    ],
)
def test_a_part_is_named_with_a_reason(path: str, part: str, tmp_path: Path) -> None:
    put(tmp_path, "commitlog/00000000000000000000")
    put(tmp_path, path)
    (found,) = parts_not_rebuilt(str(tmp_path))
    assert found["part"] == part
    assert len(found["reason"]) > 30


def test_what_every_store_has_is_not_named(tmp_path: Path) -> None:
    """5.4.0 and later create rocksdbstore/ in every store, and a timer wheel that is off leaves empty files."""
    for path in ("commitlog/00000000000000000000", "consumequeue/T/0/00000000000000000000", "checkpoint", "config/a"):
        put(tmp_path, path)
    for path in ("abort", "abort.bak", "lock", "config/topics.json", "config/users/CURRENT", "backup/x/manifest.json"):
        put(tmp_path, path)
    for path in ("batchconsumequeue/T/0/00000000000000000000", "index/20240101000000000", ".claim-1", "lost+found/a"):
        put(tmp_path, path)
    for path in ("rocksdbstore/000004.log", "timerwheel"):
        put(tmp_path, path, b"")
    for path in ("rocksdbstore/CURRENT", "rocksdbstore/MANIFEST-000005", "rocksdbstore/OPTIONS-000007"):
        put(tmp_path, path)
    (tmp_path / "compaction").mkdir()
    assert named(tmp_path) == []


def test_segments_that_were_not_read_are_named(tmp_path: Path) -> None:
    for path in ("commitlog", "commitlog-b", "repaired"):
        put(tmp_path, f"{path}/{0:020d}", bytes(100))
    for read in ("commitlog", "commitlog-b"):
        segments = find_segments([str(tmp_path / read)], None)
        found = [part["part"] for part in parts_not_rebuilt(str(tmp_path), segments)]
        assert found == sorted({"commitlog", "commitlog-b", "repaired"} - {read})


@pytest.mark.parametrize(("bit_map", "parts"), [(0, []), (14, ["consumequeue_ext"])])
def test_where_ext_units_are_written_only_bit_maps_are_missing(bit_map: int, parts: list[str], tmp_path: Path) -> None:
    unit = (20 + bit_map).to_bytes(2, "big") + bytes(16) + bit_map.to_bytes(2, "big") + bytes(bit_map)
    put(tmp_path, "consumequeue_ext/A/0/00000000000000000000", unit.ljust(100, b"\0"))
    assert named(tmp_path) == ["consumequeue_ext"]
    assert named(tmp_path, extended=True) == parts


def test_a_database_of_queues_that_is_made_is_not_named(tmp_path: Path) -> None:
    put(tmp_path, "consumequeue/CURRENT")
    put(tmp_path, "consumequeue_rocksdb/000004.sst")
    put(tmp_path, "rocksdbstore/000004.sst")
    found = parts_not_rebuilt(str(tmp_path), in_rocksdb=True)
    assert [part["part"] for part in found] == ["rocksdbstore"]
