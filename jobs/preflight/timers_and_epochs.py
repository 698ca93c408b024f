"""Rules on timer state and on the history of a controller's group."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.record.pending import TIMER_TOPIC
from storeformat.storage import files
from storeformat.store.config.timer_files import DEFAULT_FILE_SIZE, LOG, TIMER_CHECK, WHEEL, WHEEL_SIZE

_EPOCHS = "epochFileCheckpoint"
_IDENTITY = "brokerIdentity"
"""What a member keeps of its registration with the controller (5.1.0 and later)."""
_NUMBER = re.compile("[+-]?[0-9]+")
_LARGEST_EPOCHS = 16 << 20
_FILES_REVISED = 2
"""Files of the timer log, from its end, whose entries recovery puts back into the wheel."""


def timer_state(store: StoppedStore) -> Iterator[Reason]:
    """Yields combinations of timer wheel, timer log and ``timercheck`` with which waiting messages are never delivered,
    delivered twice, or the broker does not start.

    Mirrors TimerWheel's constructor, TimerLog#load and TimerMessageStore#recover, #recoverAndRevise and
    #reviseQueueOffset (5.0.0 to 5.5.0). What ``timercheck`` calls queued is looked for in wheel and log alone; without
    it, or with a 0 in it, everything that the timer queue has is queued again.
    """
    timers = store.timers
    if not store.rules.reads_batches_and_timers or not store.conf.flag("timerWheelEnable", default=True):
        return
    if timers.wheel_size not in (None, 0, WHEEL_SIZE):
        yield Reason(
            "timer_wheel_size",
            f"{WHEEL} has {timers.wheel_size} bytes: the broker does not start",
            found=timers.wheel_size,
            expected=WHEEL_SIZE,
            cure=store.set_aside(store.place(WHEEL), store.place("config", TIMER_CHECK))
            + ": all waiting messages are queued again",
        )
        return
    log_size = store.conf.number("mappedFileSizeTimerLog", DEFAULT_FILE_SIZE)
    wrong = [size for size in timers.log_sizes if size != log_size]
    if wrong and store.conf.from_file:
        yield Reason(
            "timer_log_size",
            f"{LOG}/ has a file of {wrong[0]} bytes: the broker does not start",
            found=wrong[0],
            expected=log_size,
            cure="rebuild --only timers, then publish; or set mappedFileSizeTimerLog right in broker.conf",
        )
    queue = store.queues.get((TIMER_TOPIC, 0))
    if beyond := list(_beyond_log(store, 0 if queue is None else queue.end)):
        yield from beyond
        return
    waiting = 0 if queue is None else queue.end - queue.begin
    if queue is None or not waiting:
        return
    has_wheel, has_log = bool(timers.wheel_size), bool(timers.log_sizes)
    queued = 0 if timers.queued_up_to is None else max(min(timers.queued_up_to, queue.end) - queue.begin, 0)
    if queued and not has_wheel and has_log and len(timers.log_sizes) <= _FILES_REVISED:
        return  # the start rebuilds the wheel from these files
    if queued and has_wheel and has_log:
        return
    lost, cure = "timercheck", ""
    if queued:
        lost = " and ".join(name for name, there in ((WHEEL, has_wheel), (f"{LOG}/", has_log)) if not there)
        what = f"{lost} lost, but timercheck says that {queued} messages of {TIMER_TOPIC} are queued in it: those of "
        what += "them that still wait are never delivered"
        cure = "rebuild --only timers, then publish: what still waits is delivered once; or "
        cure += store.set_aside(store.place("config", TIMER_CHECK))
        cure += ": all are queued again, those delivered before a second time"
    else:
        what = f"timercheck is absent or says nothing: {waiting} messages of {TIMER_TOPIC} are queued again, those "
        what += "delivered before come a second time"
        what += ", and so do those that wait, for wheel and log still hold them" if has_wheel and has_log else ""
    expected = "wheel, log and timercheck of one time"
    yield Reason("timer_state_lost", what, f"no {lost}", expected, cure, unsafe=bool(queued))


def _beyond_log(store: StoppedStore, end: int) -> Iterator[Reason]:
    """Yields timer state of messages that neither the log nor its queue, which ends at ``end``, has: 5.1.1 and 5.3.3
    stop delivering timers when they meet it.
    """
    timers, tail = store.timers, store.tail
    rows = tail.rows_of.get((TIMER_TOPIC, 0))
    end = max(end, int(tail.queue_offsets[rows].max()) + 1 if rows is not None else 0)
    if not store.log.segments or store.log.of_group or tail.goes_on_at is not None:
        return
    units = sum(place > tail.end for place in timers.last_ends)
    offsets = max((timers.queued_up_to or 0) - end, 0)
    if units or offsets:
        yield Reason(
            "timer_beyond_log",
            f"{units} units of {LOG}/ are of messages beyond the log's end, and timercheck is {offsets} messages ahead "
            f"of {TIMER_TOPIC}: timers are no longer delivered",
            found=max(timers.last_ends, default=0) if units else timers.queued_up_to,
            expected=f"at most {tail.end if units else end}",
            cure="rebuild --only timers, then publish",
        )


def epoch_file(store: StoppedStore) -> Iterator[Reason]:
    """Yields an epoch file that a broker of a controller's group cannot read, or has lost.

    Mirrors CheckpointFile#read and EpochFileCache#initCacheFromFile (5.0.0 to 5.5.0): number of lines, CRC32 of the
    lines (0: not checked), the lines ``epoch-offset``. Where these do not fit, or there are none, the ``.bak`` is read;
    where that does not fit either, AutoSwitchHAService begins without a history. AutoSwitchHAClient#doTruncate then
    skips the comparison, and the member goes on at its own log's end; as master it knows its new epoch alone, in which
    EpochFileCache#findConsistentPoint of the others finds no place. What should be a number and is none is no
    IOException: it ends the start (DefaultMessageStore#start), whatever the ``.bak`` holds.
    """
    if not store.conf.flag("enableControllerMode", default=False):
        return
    path = store.conf.text("storePathEpochFile", store.place(_EPOCHS))
    main, backup = _epochs(path), _epochs(path + ".bak")
    if main == "sound":
        return
    found, cure, unsafe = main, "", True
    if "not numbers" in (main, backup):
        wrong, other = (path, backup) if main == "not numbers" else (path + ".bak", main)
        found, what = "not numbers", f"{wrong} does not hold numbers where it should: the broker does not start"
        cure = store.set_aside(wrong) + ("" if other == "sound" else ", and put a sound copy in place")
    elif backup == "sound":
        what = f"{_EPOCHS} is {main}: the broker takes its .bak, which may lack the last epoch"
        unsafe = False
    elif store.log.segments:
        what = f"{_EPOCHS} is {main} and its .bak {backup}: this member does not know its history: as a slave it keeps "
        what += "messages that its master may not have, as a master it has no followers"
        cure = "put a sound copy in place; or empty this member and let it replicate again from another"
        was_member = files.exists(store.conf.text("storePathBrokerIdentity", store.place(_IDENTITY)))
        unsafe = was_member or "torn" in (main, backup)
    else:
        return
    yield Reason("epoch_file", what, found, "epochs with the right CRC32", cure, unsafe)


def _epochs(path: str) -> str:
    """Returns ``absent``, ``torn``, ``not numbers`` or ``sound``."""
    if files.size_of(path) is None:
        return "absent"
    try:
        lines = re.split("\r\n|\r|\n", files.read_bytes(path, _LARGEST_EPOCHS).decode())
    except UnicodeDecodeError:
        return "torn"
    lines = lines[:-1] if lines[-1] == "" else lines
    entries = [entry for line in lines[2:] if len(entry := line.rstrip("-").split("-")) == 2]
    numbers = [*(lines[:2] if len(lines) > 1 else [""]), *(number for entry in entries for number in entry)]
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        return "not numbers"
    crc = zlib.crc32("".join(f"{line}\n" for line in lines[2:]).encode()) & 0x7FFFFFFF
    if len(entries) != int(lines[0]) or int(lines[1]) not in (0, crc):
        return "torn"
    return "sound" if entries else "absent"
