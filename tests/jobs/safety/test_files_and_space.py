"""Files that end a start, and room for the next segment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from storeformat.storage import broker_lock, local_status
from storeformat.storage.local_status import Space


def test_all_stray_files_at_once(store: StoreToStart) -> None:
    for name in ("a.txt", "b", ".DS_Store"):
        (store.root / "commitlog" / name).write_text("x")
    assert [reason.found for reason in store.reasons("stray_file")] == [".DS_Store", "a.txt", "b"]


def test_a_directory_ends_the_start_before_5_1_0(store: StoreToStart) -> None:
    (store.root / "commitlog" / "old").mkdir()
    assert store.answer().safe
    for store.version in ("4.9", "5.0"):  # of the latter 5.1.0 alone starts
        assert store.only_reason("stray_file").unsafe


def test_a_segment_of_another_length(store: StoreToStart) -> None:
    os.truncate(store.segment(0), 4000)
    reason = store.only_reason("segment_size")
    assert (reason.found, reason.expected, reason.unsafe) == (4000, 4096, True)


def test_sizes_that_broker_conf_does_not_have(store: StoreToStart) -> None:
    del store.conf["mappedFileSizeCommitLog"]
    assert {reason.expected for reason in store.reasons("segment_size")} == {1 << 30}


def test_an_empty_last_segment(store: StoreToStart) -> None:
    end = int(store.segment(-1).name) + 4096
    (store.root / "commitlog" / f"{end:020d}").touch()
    reason = store.only_reason("segment_size")
    assert (reason.found, reason.expected, reason.unsafe) == (0, 4096, False)
    store.version = "4.9"
    assert store.only_reason("segment_size").unsafe


def test_a_missing_segment(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=80)
    store.segment(1).unlink()
    assert store.only_reason("segment_missing").expected == 4096


def test_a_preallocated_segment_is_fine(store: StoreToStart) -> None:
    end = int(store.segment(-1).name) + 4096
    (store.root / "commitlog" / f"{end:020d}").write_bytes(bytes(4096))
    assert store.answer().first_line == "safe to start"


def test_a_store_in_use(store: StoreToStart) -> None:
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, store.root / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert store.only_reason("store_in_use").unsafe
        holder.communicate(b"\n")
    with broker_lock.hold(str(store.root / "lock"), create=False):
        assert store.reasons("store_in_use") == []  # its own


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_lock_of_root(store: StoreToStart) -> None:
    for path in (store.root, *store.root.rglob("*")):
        os.chown(path, 12_345, 12_345)
    assert store.answer().first_line == "safe to start"
    os.chown(store.root / "lock", 0, 0)
    (store.root / "lock").chmod(0o644)
    reason = store.only_reason("files_not_writable")
    assert reason.found == [str(store.root / "lock")]
    assert reason.cure == f"chown -R 12345:12345 {store.root}"


@pytest.mark.parametrize(
    ("space", "unsafe"),
    [
        (Space(100_000, 50_000, 50_000), None),
        (Space(100_000, 3_000, 3_000), True),
        (Space(100_000, 8_000, 8_000), False),
    ],
)
def test_free_space(store: StoreToStart, monkeypatch: pytest.MonkeyPatch, space: Space, unsafe: bool | None) -> None:
    store.conf["cleanFileForciblyEnable"] = "false"
    monkeypatch.setattr(local_status, "space_of", lambda path: space)
    assert [reason.unsafe for reason in store.reasons("free_space")] == ([] if unsafe is None else [unsafe])


def test_links_count_as_what_they_lead_to(store: StoreToStart, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    (store.root / "commitlog").rename(elsewhere)
    (store.root / "commitlog").symlink_to(elsewhere)
    assert store.answer().first_line == "safe to start"
