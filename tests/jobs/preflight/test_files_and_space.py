"""Files that end a start, and room for the next segment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from jobs.preflight import files_and_space
from jobs.preflight.reason import Reason
from storeformat.storage import broker_lock, local_status
from storeformat.storage.local_status import FileStatus, Space
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.segment_files import LogFiles


def test_all_stray_files_at_once(store: StoreToStart) -> None:
    log, names = store.root / "commitlog", (".DS_Store", "a.txt", "b")
    for name in names:
        (log / name).write_text("x")
    assert store.answer().reasons == tuple(
        Reason(
            "stray_file",
            f"{log}/{name} is not a segment: the broker does not start",
            f"mv --backup=numbered -t {store.root}/.. -- {log}/{name}",
        )
        for name in names
    )


def test_a_directory_ends_the_start_before_5_1_0(store: StoreToStart) -> None:
    folder = store.root / "commitlog" / "old"
    folder.mkdir()
    assert store.answer().reasons == ()
    for store.version in ("4.9", "5.0"):  # of the latter 5.1.0 alone starts
        assert store.answer().reasons == (
            Reason(
                "stray_file",
                f"{folder} is a directory in the log: a broker before 5.1.0 does not start",
                f"mv --backup=numbered -t {store.root}/.. -- {folder}",
            ),
        )


def test_a_directory_in_the_place_of_a_segment_is_not_passed_over(store: StoreToStart) -> None:
    segment = store.segment(0)
    segment.unlink()
    segment.mkdir()
    what = f"{segment} is a directory in the place of a segment, whose messages are lost"
    assert what in [reason.what for reason in store.answer().reasons]


def test_a_segment_of_another_length(store: StoreToStart) -> None:
    os.truncate(store.segment(0), 4000)
    assert store.only_reason("segment_size") == Reason(
        "segment_size",
        f"{store.segment(0)} has 4000 bytes and should have 4096: the broker does not start",
        "fetch the file again: it was cut, or is being copied",
    )


def test_sizes_that_broker_conf_does_not_have(store: StoreToStart) -> None:
    del store.conf["mappedFileSizeCommitLog"]
    assert {reason.values["size"] for reason in store.reasons("segment_size")} == {4096}


@pytest.mark.parametrize(
    ("version", "then"),
    [("4.9", "does not start (5.1.3 and later delete it)"), ("5.3", "deletes it")],
)
def test_an_empty_last_segment(store: StoreToStart, version: str, then: str) -> None:
    store.version = version
    path = store.root / "commitlog" / f"{8192:020d}"
    path.touch()
    what = f"{path} has no bytes: the broker {then}"
    assert store.answer().reasons == (Reason("segment_size", what, f"rm -- {path}", unsafe=then != "deletes it"),)


def test_a_segment_in_two_paths(store: StoreToStart, tmp_path: Path) -> None:
    """One reason; the copy without messages is named to go, and with it gone the store is safe."""
    own, copy = store.segment(0), tmp_path / "other" / store.segment(0).name
    copy.parent.mkdir()
    copy.write_bytes(bytes(own.stat().st_size))
    store.conf["storePathCommitLog"] = f"{copy.parent},{own.parent}"
    (reason,) = store.answer().reasons
    assert (reason.rule, reason.unsafe) == ("segment_twice", True)
    assert reason.what.startswith(f"{own} and {copy} are one segment in two paths")
    copy.unlink()
    assert store.answer().safe


def test_a_missing_segment(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", messages=80)
    store.segment(1).unlink()
    assert store.only_reason("segment_missing") == Reason(
        "segment_missing",
        f"a segment is missing between {store.segment(0)} and {8192:020d}: its messages are not served, and the broker "
        "finds wrong segments for offsets after it",
        "put the segment back, or rebuild --on-damage salvage",
    )


@pytest.mark.parametrize(
    ("segments", "said"),
    [
        ([(0, 4096), (4096, 4096)], []),
        ([(0, 4096), (8192, 4096)], ["segment_missing"]),
        ([(0, 4096), (8192, 0)], ["segment_size", "segment_missing"]),
        ([(0, 4000), (8192, 4096)], ["segment_size"]),
        ([(0, 4096), (8192, 4000)], ["segment_size"]),
        ([(0, 0), (4096, 4096)], ["segment_size"]),
        ([(0, 4096), (0, 4096)], ["segment_missing"]),
    ],
)
def test_lengths_and_gaps(store: StoreToStart, segments: list[tuple[int, int]], said: list[str]) -> None:
    """Where a length is wrong, the gap after it or before it says nothing more."""
    found = tuple(FileStatus(f"{base:020d}", f"/{base}", size, 0, 0, 0, 0o100644) for base, size in segments)
    stopped = replace(store.stopped(), log=LogFiles(("/",), 4096, found))
    reasons = files_and_space.log_files(stopped)
    assert [reason.rule for reason in reasons] == said


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
        assert store.only_reason("store_in_use") == Reason(
            "store_in_use",
            f"a process holds {store.root}/lock: a broker runs on this store, a second one does not start",
            "stop that broker first",
        )
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
    assert reason.values["first"] == str(store.root / "lock")
    assert reason.cure == f"chown -R 12345:12345 -- {store.root}"


OPENED = (
    "", "lock", "checkpoint", "abort", "config", "index", "consumequeue", f"commitlog/{0:020d}", "config/topics.json",
    "index/00000000000000000", f"consumequeue/Orders/0/{0:020d}",
)  # fmt: skip
"""A file or directory of each kind that a broker opens for writing, in the order in which they are told."""


@pytest.mark.parametrize(
    ("mode", "count"), [(0o644, 0), (0o644, 1), (0o644, 3), (0o644, 4), (0o644, len(OPENED)), (0o777, len(OPENED))]
)
def test_files_of_another_user(store: StoreToStart, monkeypatch: pytest.MonkeyPatch, mode: int, count: int) -> None:
    """As if all but some belonged to a user 12345; a folder of ``config/`` is a database's, which has its own rule."""
    for name in ("checkpoint", "abort", "config/topics"):
        (store.root / name).mkdir() if name == "config/topics" else (store.root / name).touch()
    shut = [str(store.root / name).rstrip("/") for name in OPENED[:count]]
    status_of, statuses_in = local_status.status_of, local_status.statuses_in

    def given(status: FileStatus) -> FileStatus:
        user = 0 if status.path in {*shut, str(store.root / "config" / "topics")} else 12_345
        return replace(status, owner=user, group=user + 1, mode=status.mode & ~0o777 | mode)

    monkeypatch.setattr(local_status, "status_of", lambda path: (found := status_of(path)) and given(found))
    monkeypatch.setattr(local_status, "statuses_in", lambda path: [given(found) for found in statuses_in(path)])
    if mode == 0o644:  # a directory has to let its owner search, too
        monkeypatch.setattr(
            FileStatus, "may_write", lambda status, user, group: (user, group) == (status.owner, 12_346)
        )
    reasons = tuple(files_and_space.not_the_brokers(store.stopped()))
    if not count or mode == 0o777:
        assert reasons == ()
        return
    what = ", ".join(shut[:5]) + (f" and {count - 5} more" if count > 5 else "")
    assert reasons == (
        Reason(
            "files_not_writable",
            f"the user 12345, who owns the log, may not write {count} files or directories: {what}; the broker does "
            "not start, or fails at its first write",
            f"chown -R 12345:12346 -- {store.root}",
        ),
    )


def test_a_log_that_is_gone_meanwhile_has_no_owner(store: StoreToStart) -> None:
    stopped = store.stopped()
    shutil.rmtree(store.root / "commitlog")
    assert list(files_and_space.not_the_brokers(stopped)) == []


@pytest.mark.parametrize(
    ("space", "what"),
    [
        (Space(100_000, 50_000, 50_000), None),
        (Space(8_000, 4_096, 4_096), None),
        (
            Space(8_000, 4_095, 4_095),
            (
                "{} has 4,095 bytes free and the next segment needs 4,096: the broker ends, or loses messages, when it "
                "writes there"
            ),
        ),
        (
            Space(100_000, 50_000, 50_000, takes_files=False),
            "the file system of {} is mounted read-only",
        ),
        (Space(100_000, 10_000, 10_000), None),
        (
            Space(100_000, 9_000, 9_000),
            "the disk of {} is 91 % full: the broker takes no new message above 90 %",
        ),
    ],
)
def test_free_space(store: StoreToStart, monkeypatch: pytest.MonkeyPatch, space: Space, what: str | None) -> None:
    store.conf["cleanFileForciblyEnable"] = "false"
    monkeypatch.setattr(local_status, "space_of", lambda path: space)
    reasons = store.reasons("free_space")
    if what is None:
        assert reasons == []
        return
    text = what.format(store.root / "commitlog")
    ends = Reason("free_space", text, "free some space, or add a path to storePathCommitLog")
    full = Reason("free_space", text, "free some space", unsafe=False)
    shut = Reason("free_space", text, "mount it for writing")  # fmt: skip
    assert reasons == [shut if not space.takes_files else ends if space.available < 4_096 else full]


def test_a_store_without_a_log_needs_no_space_yet(store: StoreToStart, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    monkeypatch.setattr(local_status, "space_of", lambda path: Space(8_000, 1, 1))
    assert store.reasons("free_space") == []


def test_links_count_as_what_they_lead_to(store: StoreToStart, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    (store.root / "commitlog").rename(elsewhere)
    (store.root / "commitlog").symlink_to(elsewhere)
    assert store.answer().first_line == "safe to start"


def test_index_files_of_another_length(store: StoreToStart) -> None:
    """As the settings say: without them no length is wrong."""
    for path in (store.root / "index").iterdir():
        path.unlink()
    store.conf |= {"maxHashSlotNum": "10", "maxIndexNum": "20"}
    for name, size in (("20260101000000000", 40 + 40 + 400), ("20260101000000001", 0), ("20260101000000002", 500)):
        (store.root / "index" / name).write_bytes(bytes(size))
    reason = store.only_reason("index_size")
    assert (reason.values["count"], reason.unsafe) == (1, False)
    store.conf["messageIndexEnable"] = "false"
    assert store.reasons("index_size") == []
    assert list(files_and_space.index_sizes(replace(store.stopped(), conf=BrokerConf({}, from_file=False)))) == []
