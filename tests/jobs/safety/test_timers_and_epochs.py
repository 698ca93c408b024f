"""Timer state, and the epochs of a controller's group."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, finished, healthy_store

WHEEL_SIZE = 38_707_200
RULE = "timer_state_lost"


@pytest.fixture
def waiting(tmp_path: Path) -> StoreToStart:
    """A store with five timer messages, all of them queued."""
    log = healthy_store(tmp_path / "first").log
    for _ in range(5):
        log.message(topic="rmq_sys_wheel_timer", queue_id=0)
    store = finished(tmp_path / "store", log)
    store.conf["mappedFileSizeTimerLog"] = "1000"
    with (store.root / "timerwheel").open("wb") as wheel:
        wheel.truncate(WHEEL_SIZE)
    (store.root / "timerlog").mkdir()
    (store.root / "timerlog" / f"{0:020d}").write_bytes(bytes(1000))
    check(store, queued=5)
    return store


def check(store: StoreToStart, queued: int) -> None:
    (store.config("timercheck")).write_bytes(struct.pack(">4q", 1, 260, queued, queued).ljust(4096, b"\0"))


def lose_log(store: StoreToStart) -> None:
    (store.root / "timerlog" / f"{0:020d}").unlink()


def test_a_whole_state_is_fine(waiting: StoreToStart) -> None:
    assert waiting.answer().first_line == "safe to start"


def test_wheel_and_log_lost(waiting: StoreToStart) -> None:
    (waiting.root / "timerwheel").unlink()
    lose_log(waiting)
    reason = waiting.only_reason(RULE)
    assert (reason.found, reason.unsafe) == ("no timerwheel and timerlog/", True)
    waiting.config("timercheck").unlink()
    assert not waiting.only_reason(RULE).unsafe


def test_the_log_lost(waiting: StoreToStart) -> None:
    lose_log(waiting)
    assert waiting.only_reason(RULE).unsafe


@pytest.mark.parametrize(("files", "unsafe"), [(1, False), (2, False), (3, True)])
def test_the_wheel_lost(waiting: StoreToStart, files: int, unsafe: bool) -> None:
    """Recovery puts the entries of the last two files of the timer log back."""
    (waiting.root / "timerwheel").write_bytes(b"")
    for number in range(1, files):
        (waiting.root / "timerlog" / f"{number * 1000:020d}").write_bytes(bytes(1000))
    assert waiting.only_reason(RULE).unsafe is unsafe


@pytest.mark.parametrize("content", [None, b"", bytes(4096), bytes(10)])
def test_timercheck_lost_delivers_twice(waiting: StoreToStart, content: bytes | None) -> None:
    waiting.config("timercheck").unlink()
    if content is not None:
        waiting.config("timercheck").write_bytes(content)
    reason = waiting.only_reason(RULE)
    assert not reason.unsafe
    assert "and so do those that wait" in reason.what
    (waiting.root / "timerwheel").unlink()
    assert "and so do those that wait" not in waiting.only_reason(RULE).what


def test_a_wheel_of_another_length(waiting: StoreToStart) -> None:
    (waiting.root / "timerwheel").write_bytes(bytes(100))
    reason = waiting.only_reason("timer_wheel_size")
    assert reason.expected == WHEEL_SIZE
    assert f"mv {waiting.root}/timerwheel {waiting.root}/config/timercheck elsewhere" in reason.cure


def test_a_timer_log_of_another_length(waiting: StoreToStart) -> None:
    (waiting.root / "timerlog" / f"{0:020d}").write_bytes(bytes(999))
    assert waiting.only_reason("timer_log_size").found == 999


def test_no_timer_messages_no_loss(store: StoreToStart) -> None:
    check(store, queued=0)
    assert store.answer().first_line == "safe to start"


# -------------------------------------------------------------------------------------------------------------- epochs
def epochs(text: str = "7-0\n8-4096\n", crc: int | None = None, count: int = 2) -> str:
    return f"{count}\n{zlib.crc32(text.encode()) & 0x7FFFFFFF if crc is None else crc}\n{text}"


@pytest.mark.parametrize("text", [epochs(), epochs(crc=0)])
def test_sound_epochs(store: StoreToStart, text: str) -> None:
    store.conf["enableControllerMode"] = "true"
    (store.root / "epochFileCheckpoint").write_text(text)
    assert store.reasons("epoch_file") == []


@pytest.mark.parametrize("text", [epochs(crc=5), epochs(count=3), epochs("7\n8-1\n"), epochs("7-0\n8-\n"), "2\n0\n"])
def test_torn_epochs(store: StoreToStart, text: str) -> None:
    store.conf["enableControllerMode"] = "true"
    (store.root / "epochFileCheckpoint").write_text(text)
    assert store.only_reason("epoch_file").unsafe
    (store.root / "epochFileCheckpoint.bak").write_text(epochs())
    assert not store.only_reason("epoch_file").unsafe


@pytest.mark.parametrize("text", ["", "2", "2\n", "x\ny\n", "2\n 5\n7-0\n", epochs("7-0\nx-1\n")])
@pytest.mark.parametrize("name", ["epochFileCheckpoint", "epochFileCheckpoint.bak"])
def test_epochs_that_are_no_numbers_end_the_start(store: StoreToStart, name: str, text: str) -> None:
    """Even where the other file is sound, if this one is read at all."""
    store.conf["enableControllerMode"] = "true"
    (store.root / name).write_text(text)
    assert "does not start" in store.only_reason("epoch_file").what
    if name == "epochFileCheckpoint":
        (store.root / "epochFileCheckpoint.bak").write_text(epochs())
        assert store.only_reason("epoch_file").unsafe
    else:
        (store.root / "epochFileCheckpoint").write_text(epochs())
        assert store.reasons("epoch_file") == []


def test_bytes_that_are_no_text_are_torn(store: StoreToStart) -> None:
    store.conf["enableControllerMode"] = "true"
    (store.root / "epochFileCheckpoint").write_bytes(b"1\n0\n\xff-0\n")
    (store.root / "epochFileCheckpoint.bak").write_text(epochs())
    assert not store.only_reason("epoch_file").unsafe


@pytest.mark.parametrize("was_member", [False, True])
def test_lost_epochs_of_a_member(store: StoreToStart, was_member: bool) -> None:
    """A broker that never was in a group has none."""
    store.conf["enableControllerMode"] = "true"
    if was_member:
        (store.root / "brokerIdentity").write_text("x")
    assert store.only_reason("epoch_file").unsafe is was_member


def test_epochs_matter_to_a_controller_alone(store: StoreToStart) -> None:
    (store.root / "epochFileCheckpoint").write_text("torn")
    assert store.reasons("epoch_file") == []
