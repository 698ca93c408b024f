"""Which files are the log, and which of them are segments in one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.log.segments import Segment
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.segment_files import LogFiles, log_files

SHOWN = BrokerConf({}, from_file=False)


def files_in(directory: Path, *files: tuple[int, int]) -> None:
    """Files named after a base, of a length."""
    directory.mkdir(parents=True, exist_ok=True)
    for base, size in files:
        with (directory / f"{base:020d}").open("wb") as file:
            file.truncate(size)


def read(root: Path, settings: BrokerConf = SHOWN) -> LogFiles:
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
        (BrokerConf(), 1 << 30),
        (BrokerConf({"mappedFileSizeCommitLog": "50"}), 50),
        (BrokerConf({"mappedFileSizeCommitLog": "50"}, from_file=False), 50),
    ],
)
def test_the_length_of_a_segment(tmp_path: Path, settings: BrokerConf, size: int) -> None:
    files_in(tmp_path / "commitlog", (0, 100))
    found = read(tmp_path, settings)
    assert (found.size, len(found.wrong_size)) == (size, int(size != 100))


def test_several_directories_that_settings_name(tmp_path: Path) -> None:
    """Those that are not there are passed over, one that is named twice counts once; segments are put in order."""
    a, b = tmp_path / "a", tmp_path / "b"
    files_in(a, (100, 100))
    files_in(b, (0, 100), (200, 100))
    given = {"storePathCommitLog": f" {a},{tmp_path}/absent,,{b} ", "readOnlyCommitLogStorePaths": str(a)}
    found = read(tmp_path, BrokerConf(given, from_file=False))
    assert found.directories == (str(a), str(b))
    assert [segment.base for segment in found.segments] == [0, 100, 200]
    read_only = read(tmp_path, BrokerConf({"readOnlyCommitLogStorePaths": str(b)}, from_file=False))
    assert read_only.directories == (str(b),)
    assert read_only.gaps == [(read_only.files[0], read_only.files[1])]
    assert read(tmp_path, BrokerConf({"storePathCommitLog": "/absent/x"})).directories == (f"{tmp_path}/commitlog",)


def test_the_folder_of_a_group(tmp_path: Path) -> None:
    files_in(tmp_path / "dledger-n0" / "data", (0, 100))
    files_in(tmp_path / "dledger-n1" / "data", (0, 100))
    group = {"enableDLegerCommitLog": "true"}
    assert read(tmp_path, BrokerConf({**group, "dLegerSelfId": "n1"})).directories == (f"{tmp_path}/dledger-n1/data",)
    found = read(tmp_path, BrokerConf(group))
    assert (found.directories, found.of_group) == (
        (f"{tmp_path}/dledger-n0/data", f"{tmp_path}/dledger-n1/data"), True,
    )  # fmt: skip
    named = read(tmp_path, BrokerConf({**group, "storePathDLedgerCommitLog": f"{tmp_path}/own"}))
    assert (named.directories, named.of_group) == ((f"{tmp_path}/own",), False)
