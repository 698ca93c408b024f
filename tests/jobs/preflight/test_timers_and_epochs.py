"""Timer state, and the epochs of a controller's group."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, finished, healthy_store

from jobs.preflight.offsets_and_timers import epoch_file, timer_state
from jobs.preflight.reason import Reason
from storeformat.errors import NotAStore
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.config.timer_files import TimerUnit, timer_log

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


def lost(store: StoreToStart, what: str, *, queued: int = 5) -> Reason:
    return Reason(
        RULE,
        f"{what} lost, but timercheck says that {queued} messages of rmq_sys_wheel_timer are queued in it: those of "
        "them that still wait are never delivered",
        "rebuild --only timers, then publish: what still waits is delivered once; or "
        f"mv --backup=numbered -t {store.root}/.. -- {store.root}/config/timercheck: all are queued again, those "
        "delivered before a second time",
    )


QUEUED_AGAIN = Reason(
    RULE,
    "timercheck is absent or says nothing: 5 messages of rmq_sys_wheel_timer are queued again, those delivered before "
    "come a second time",
    unsafe=False,
)


def test_a_whole_state_is_fine(waiting: StoreToStart) -> None:
    assert waiting.answer().first_line == "safe to start"


def test_state_of_messages_that_are_gone(waiting: StoreToStart) -> None:
    """Units beyond the log, and a timercheck ahead of the queue; what the log has and the queue not yet is no loss."""
    end = waiting.log.end_offset
    units = [TimerUnit(1000, 0, 1, offset, 100) for offset in (0, end - 100, end - 99, end + 5)]
    ((_, data),) = timer_log(units, 1000)
    (waiting.root / "timerlog" / f"{0:020d}").write_bytes(data.ljust(1000, b"\0"))
    check(waiting, queued=7)
    reason = waiting.only_reason("timer_beyond_log")
    assert reason.what.startswith("2 units of timerlog/ are of messages beyond the log's end, and timercheck is 2 mess")
    assert reason.unsafe
    assert reason.cure == "rebuild --only timers, then publish"
    ((_, data),) = timer_log(units[:2], 1000)
    (waiting.root / "timerlog" / f"{0:020d}").write_bytes(data.ljust(1000, b"\0"))
    check(waiting, queued=5)
    assert waiting.answer().first_line == "safe to start"


def test_wheel_and_log_lost(waiting: StoreToStart) -> None:
    (waiting.root / "timerwheel").unlink()
    lose_log(waiting)
    assert waiting.answer().reasons == (lost(waiting, "timerwheel and timerlog/"),)
    waiting.config("timercheck").unlink()
    assert waiting.answer().reasons == (QUEUED_AGAIN,)


def test_the_log_lost(waiting: StoreToStart) -> None:
    lose_log(waiting)
    assert waiting.answer().reasons == (lost(waiting, "timerlog/"),)
    check(waiting, queued=2)
    assert waiting.answer().reasons == (lost(waiting, "timerlog/", queued=2),)
    check(waiting, queued=9)  # more than there are
    assert [reason.rule for reason in waiting.answer().reasons] == ["timer_beyond_log"]
    waiting.conf["timerWheelEnable"] = "false"
    assert waiting.answer().reasons == ()


@pytest.mark.parametrize(("files", "unsafe"), [(1, False), (2, False), (3, True)])
def test_the_wheel_lost(waiting: StoreToStart, files: int, unsafe: bool) -> None:
    """Recovery puts the entries of the last two files of the timer log back."""
    (waiting.root / "timerwheel").write_bytes(b"")
    for number in range(1, files):
        (waiting.root / "timerlog" / f"{number * 1000:020d}").write_bytes(bytes(1000))
    assert waiting.answer().reasons == ((lost(waiting, "timerwheel"),) if unsafe else ())


@pytest.mark.parametrize("content", [None, b"", bytes(4096), bytes(10)])
def test_timercheck_lost_delivers_twice(waiting: StoreToStart, content: bytes | None) -> None:
    waiting.config("timercheck").unlink()
    if content is not None:
        waiting.config("timercheck").write_bytes(content)
    both = ", and so do those that wait, for wheel and log still hold them"
    assert waiting.answer().reasons == (replace(QUEUED_AGAIN, what=QUEUED_AGAIN.what + both),)
    (waiting.root / "timerwheel").unlink()
    assert waiting.answer().reasons == (QUEUED_AGAIN,)


@pytest.mark.parametrize("size", [1, 100, WHEEL_SIZE - 1, WHEEL_SIZE + 32])
def test_a_wheel_of_another_length(waiting: StoreToStart, size: int) -> None:
    with (waiting.root / "timerwheel").open("r+b") as wheel:
        wheel.truncate(size)
    assert waiting.answer().reasons == (
        Reason(
            "timer_wheel_size",
            f"timerwheel has {size} bytes: the broker does not start",
            f"mv --backup=numbered -t {waiting.root}/.. -- {waiting.root}/timerwheel {waiting.root}/config/timercheck: "
            "all waiting messages are queued again",
        ),
    )


def test_a_timer_log_of_another_length(waiting: StoreToStart) -> None:
    (waiting.root / "timerlog" / f"{0:020d}").write_bytes(bytes(999))
    said = Reason(
        "timer_log_size",
        "timerlog/ has a file of 999 bytes: the broker does not start",
        "rebuild --only timers, then publish; or set mappedFileSizeTimerLog right in broker.conf",
    )
    assert waiting.answer().reasons == (said,)
    del waiting.conf["mappedFileSizeTimerLog"]
    assert waiting.answer().reasons == (said,)
    settings = BrokerConf(waiting.conf, from_file=False)
    assert list(timer_state(replace(waiting.stopped(), conf=settings))) == []


def test_a_queue_that_began_later_has_fewer_messages(waiting: StoreToStart) -> None:
    """What ``timercheck`` says, and how many there are, counts from the queue's first message."""
    lose_log(waiting)
    stopped = waiting.stopped()
    key = ("rmq_sys_wheel_timer", 0)
    later = replace(stopped, queues={key: replace(stopped.queues[key], begin=3)})
    assert list(timer_state(later)) == [lost(waiting, "timerlog/", queued=2)]
    check(waiting, queued=3)
    (said,) = timer_state(replace(waiting.stopped(), queues=later.queues))
    assert said == replace(QUEUED_AGAIN, what=QUEUED_AGAIN.what.replace("5", "2"))
    none_left = {key: replace(stopped.queues[key], begin=5)}
    assert list(timer_state(replace(stopped, queues=none_left))) == []


def test_no_timer_messages_no_loss(store: StoreToStart) -> None:
    check(store, queued=0)
    assert store.answer().first_line == "safe to start"


# -------------------------------------------------------------------------------------------------------------- epochs
def epochs(text: str = "7-0\n8-4096\n", crc: int | None = None, count: int = 2) -> str:
    return f"{count}\n{zlib.crc32(text.encode()) & 0x7FFFFFFF if crc is None else crc}\n{text}"


SOUND, TORN = epochs(), "2\n0\n"


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (None, "absent"),
        (epochs(), "sound"),
        (epochs(crc=0), "sound"),
        (epochs().replace("\n", "\r\n").replace(str(zlib.crc32(b"7-0\n8-4096\n") & 0x7FFFFFFF), "0"), "sound"),
        (epochs().rstrip("\n"), "sound"),  # the CRC is of lines, and the last one may lack its end
        (epochs("7-0-\n8-4096--\n"), "sound"),  # Java's split leaves out what is empty at the end
        (epochs("+7--0\n", count=1), "torn"),
        (epochs("-7-0\n", count=1), "torn"),
        (epochs("+7-0\n", count=1), "sound"),
        (epochs("", count=0), "absent"),
        ("0\n0", "absent"),
        ("1\n0", "torn"),
        (epochs(crc=5), "torn"),
        (epochs(count=3), "torn"),
        (epochs(count=1), "torn"),
        (epochs("7\n8-1\n"), "torn"),
        (epochs("7\n8-1\n", count=1), "sound"),  # lines of another form are passed over
        (epochs("7-0\n8-\n"), "torn"),
        ("2\n0\n", "torn"),
        (b"1\n0\n\xff-0\n", "torn"),
        ("", "not numbers"),
        ("2", "not numbers"),
        ("2\n", "not numbers"),
        ("x\n0\n", "not numbers"),
        ("0\ny\n", "not numbers"),
        ("2\n 5\n7-0\n", "not numbers"),
        (epochs("7-0\nx-1\n"), "not numbers"),
        (epochs("7-0\n1-x\n"), "not numbers"),
    ],
)
@pytest.mark.parametrize("backup", ["sound", "absent", "torn", "not numbers"])
def test_what_a_start_makes_of_epochs(
    store: StoreToStart, content: str | bytes | None, state: str, backup: str
) -> None:
    """What should be a number and is none ends the start, even where the other file is sound, if it is read at all."""
    store.conf["enableControllerMode"] = "true"
    path = store.root / "epochFileCheckpoint"
    other = {"sound": SOUND, "torn": TORN, "not numbers": "x"}.get(backup)
    for place, text in ((path, content), (path.with_name(path.name + ".bak"), other)):
        if text is not None:
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
    if state == "sound":
        assert store.answer().reasons == ()
        return
    if "not numbers" in (state, backup):
        wrong = path if state == "not numbers" else f"{path}.bak"
        sound = state == "not numbers" and backup == "sound"
        expected = Reason(
            "epoch_file",
            f"{wrong} does not hold numbers where it should: the broker does not start",
            f"mv --backup=numbered -t {store.root}/.. -- {wrong}"
            + ("" if sound else ", and put a sound copy in place"),
        )
    elif backup == "sound":
        what = f"epochFileCheckpoint is {state}: the broker takes its .bak, which may lack the last epoch"
        expected = Reason("epoch_file", what, unsafe=False)
    else:
        expected = Reason(
            "epoch_file",
            f"epochFileCheckpoint is {state} and its .bak {backup}: this member does not know its history: as a slave "
            "it keeps messages that its master may not have, as a master it has no followers",
            "put a sound copy in place; or empty this member and let it replicate again from another",
            unsafe="torn" in (state, backup),
        )
    assert store.answer().reasons == (expected,)


def test_a_member_without_a_log_needs_no_epochs(store: StoreToStart) -> None:
    store.conf["enableControllerMode"] = "true"
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert list(epoch_file(store.stopped())) == []


def test_where_broker_conf_puts_epochs_and_identity(store: StoreToStart, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere"
    store.conf |= {"enableControllerMode": "true", "storePathEpochFile": str(path)}
    path.write_text(SOUND)
    assert store.answer().reasons == ()
    path.unlink()
    assert not store.only_reason("epoch_file").unsafe
    (tmp_path / "identity").write_text("x")
    store.conf["storePathBrokerIdentity"] = str(tmp_path / "identity")
    assert store.only_reason("epoch_file").unsafe


def test_a_file_of_absurd_length_is_no_epoch_file(store: StoreToStart) -> None:
    store.conf["enableControllerMode"] = "true"
    path = store.root / "epochFileCheckpoint"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    assert "does not hold numbers where it should" in store.only_reason("epoch_file").what
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(NotAStore) as caught:
        store.answer()
    assert str(caught.value) == f"this file is too large: found 16777217, expected at most 16777216 bytes ({path})"


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
