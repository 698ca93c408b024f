"""Rules on queues against the log: what is not served, what a recovery cuts, and how the log ends."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mode

import numpy as np

from jobs.contract.commands import command
from jobs.contract.reporter import duration_text
from jobs.preflight.configuration import configured_topics
from jobs.preflight.files_and_space import empty_last_file, wrong_lengths
from jobs.preflight.reason import Reason, first_of
from jobs.preflight.stopped_store import StoppedStore
from jobs.preflight.store_paths import log_elsewhere, log_of_group
from storeformat.arrays import Bools, Int64s
from storeformat.errors import RecordDefect
from storeformat.log.log_tail import LogTail
from storeformat.queues.consume_queue import UNIT_SIZE, file_size_of
from storeformat.storage.local_status import FileStatus
from storeformat.store import queue_ends
from storeformat.store.layout import StoreLayout
from storeformat.store.queue_ends import QueueEnd

_VERIFY = "rebuild and publish before the start; verify names every message"


def log_missing(store: StoppedStore) -> Iterator[Reason]:
    """Yields a log without segments beside queues that have messages: the broker deletes those.

    Mirrors CommitLog#recoverNormally and #recoverAbnormally, "The commitlog files are deleted" (4.9.8 to 5.5.0).
    """
    if store.log.files or any(reason.unsafe for rule in (log_elsewhere, log_of_group) for reason in rule(store)):
        return  # settings that lead away from segments are the reason why none are seen
    count, unsafe = sum(queue.end_offset >= 0 for queue in store.queues.values()), True
    if count:
        what = f"{count} queues have messages: the broker deletes the queues and begins at 0"
        cure = "put the segments back, or storePathCommitLog right"
    elif topics := configured_topics(store):
        what = f"{len(topics)} topics are configured ({first_of(topics)}): the broker begins without a message; "
        what += "a slave that never met its master looks like that"
        cure = "nothing, if no message was ever stored; else start another copy, or put the segments back"
        unsafe = any(number > 0 for own in (store.offsets_file.value or {}).values() for number in own.values())
    else:
        return
    expected = "segments in " + ", ".join(store.log.directories)
    yield Reason("log_missing", f"the log has no segment, and {what}", 0, expected, cure, unsafe)


def messages_not_served(store: StoppedStore) -> Iterator[Reason]:
    """Yields messages at the end of the log that are in no queue, and which the release's recovery does not put there.

    Mirrors CommitLog#recoverNormally and #recoverAbnormally, DefaultMessageStore#start (4.9.8 to 5.5.0); see
    ``recovery`` for what each release makes good. From then on the queues reach the log's end, and no later start
    looks back.
    """
    tail = store.tail
    if store.queues_in_rocksdb or not len(tail.offsets):
        return
    beyond, again = _beyond_queues(store), store.redispatch
    if store.log.of_group and (count := int(beyond.sum())):
        yield Reason(
            "messages_not_served",
            f"{count:,} messages at the end of this member's log are in no queue; those that its group has not agreed "
            "on are replaced or dispatched when it meets the others, which is not judged here",
            found=count,
            cure="verify compares the queues with what the group has committed",
            unsafe=False,
        )
    if store.log.of_group:
        return
    not_served = beyond & ~again.covers(tail.offsets)
    certain, doubtful = _by_certainty(store, not_served)
    everything = store.furthest_unit < tail.begin and not again.covers(store.log.begin)
    at_least = "at least " if everything and tail.begin > store.log.begin else ""
    if again.begin >= tail.end:
        done = "nothing is dispatched again; 5.3.2 and 5.3.3: all but the first of them"
    else:
        done = f"it dispatches from offset {again.begin} on" + (", but the first record" if again.skipped > 0 else "")
    for rows, unsafe in ((certain, True), (doubtful, False)):
        if not rows.size:
            continue
        first = int(tail.offsets[rows[0]])
        shown = _queues_of(tail, rows)
        start = "a start after a crash" if store.after_crash else "a start after a clean stop"
        yield Reason(
            "messages_not_served",
            f"{at_least if unsafe else ''}{rows.size:,} messages from offset {first} on are in no queue ({shown}), and "
            f"{start} does not put them there ({done})" + ("" if unsafe else "; their topics may have been deleted"),
            found=int(rows.size),
            expected=0,
            cure=_VERIFY,
            unsafe=unsafe,
        )


_SECONDS, _SECONDS_A_GB = 4, 2.5
"""How long a start takes, and how much longer it dispatches (5.3.3 on two cores: 10.6 GB in 30.8 s, 0.3 in 5.3)."""


def queues_made_again(store: StoppedStore) -> Iterator[Reason]:
    """Yields that there are no queues at all, where the next start makes all of them again."""
    tail = store.tail
    if store.queues or store.queues_in_rocksdb or store.log.of_group or not len(tail.offsets):
        return
    if store.redispatch.covers(store.log.begin):
        seconds = _SECONDS + _SECONDS_A_GB * (tail.end - store.log.begin) / 1e9
        yield Reason(
            "queues_made_again",
            f"there are no queues; missing queues are made again by this start (about {duration_text(seconds)})",
            found=0,
            expected=f"{len(tail.keys)} or more",
            unsafe=False,
        )


def _beyond_queues(store: StoppedStore) -> Bools:
    """Returns the records of the tail that end after the last unit of their queue."""
    tail = store.tail
    ends = [store.queues[key].end_offset if key in store.queues else -1 for key in tail.keys]
    beyond = np.asarray(tail.ends > np.array(ends, np.int64)[tail.key_of])
    for number in np.unique(tail.key_of[beyond]).tolist():
        queue, rows = store.queues.get(tail.keys[number]), tail.rows_of[tail.keys[number]]
        if queue is None or queue.batch or tail.queue_offsets[rows[-1]] >= queue.end:
            continue
        if _points_to(tail, rows[-1:], queue).all():
            beyond[rows] = False  # its last units are old ones: the queue was cut, and the log with it
    return beyond


def _points_to(tail: LogTail, rows: Int64s, queue: QueueEnd) -> Bools:
    """Returns of some records of an ordinary queue whether the unit at their queue offset is theirs."""
    units, begins = queue_ends.units_at(queue, tail.queue_offsets[rows]), tail.offsets[rows]
    return np.asarray((units["phy_offset"] == begins) & (units["size"] == tail.ends[rows] - begins))


def _lies_before_its_place(tail: LogTail, rows: Int64s, queue: QueueEnd) -> Bools:
    """Returns of some records of an ordinary queue whether their unit lies at an earlier place of it, in order: brokers
    of 5.0.0 left gaps in queue offsets, and none leaves a gap in a queue.
    """
    first, last = (queue_ends.offset_at(queue, int(tail.offsets[row])) for row in rows[[0, -1]])
    held = sum(file.size for file in queue.files) // UNIT_SIZE  # names of files may be far apart
    stop = min(last + 1, queue.end, first + held)
    begins = queue_ends.units_at(queue, np.arange(first, stop))["phy_offset"].astype(np.int64)
    if not begins.size or (np.diff(begins) <= 0).any():
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(begins, tail.offsets[rows]), len(begins) - 1)
    return np.asarray((begins[at] == tail.offsets[rows]) & (first + at < tail.queue_offsets[rows]))


def _misplaced(tail: LogTail, rows: Int64s, queue: QueueEnd) -> Int64s:
    """Returns those records of an ordinary queue that it should have, and has not at their place."""
    rows = rows[tail.queue_offsets[rows] < queue.end]
    later = np.minimum.accumulate(tail.queue_offsets[rows][::-1])[::-1]
    rows = rows[np.append(tail.queue_offsets[rows][:-1] < later[1:], True)[: len(rows)]]  # not of a deleted topic
    rows = rows[~_points_to(tail, rows, queue)]
    return rows[~_lies_before_its_place(tail, rows, queue)] if rows.size else rows


def wrong_units(store: StoppedStore) -> Iterator[Reason]:
    """Yields messages at the end of the log whose unit is not the one that their queue has at their queue offset.

    No recovery mends that: ConsumeQueue#putMessagePositionInfo (4.9.8 to 5.5.0) takes what lies before the end of its
    queue for dispatched. Queues of batches are left to ``verify``.
    """
    tail = store.tail
    if store.queues_in_rocksdb or store.log.of_group:
        return
    queues = {key: queue for key, queue in store.queues.items() if not queue.batch}
    wrong = [_misplaced(tail, rows, queues[key]) for key, rows in tail.rows_of.items() if key in queues]
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *wrong]))
    if rows.size:
        yield Reason(
            "wrong_units",
            f"{rows.size:,} messages from offset {int(tail.offsets[rows[0]])} on are not at their place in "
            f"their queue ({_queues_of(tail, rows)}): the unit there is missing or is that of another message, and no "
            "start mends it",
            found=int(rows.size),
            expected=0,
            cure=_VERIFY,
        )


def _queues_of(tail: LogTail, rows: Int64s) -> str:
    """Returns the names of the first queues of which some records are."""
    names = sorted({tail.keys[key] for key in np.unique(tail.key_of[rows]).tolist()})
    return first_of([f"{topic}:{queue_id}" for topic, queue_id in names])


def _by_certainty(store: StoppedStore, not_served: Bools) -> tuple[Int64s, Int64s]:
    """Returns the rows of messages that a topic's deletion does not explain, and of those that it may.

    A queue without files may be that of a deleted topic whose messages the log still has: then the topic is not
    configured, or its queues have started over after them.
    """
    tail = store.tail
    topics = store.configs["topics.json"].value
    births: dict[str, int] = {}
    _, firsts = np.unique(tail.key_of, return_index=True)
    for row in np.setdiff1d(np.flatnonzero(tail.queue_offsets == 0), firsts).tolist():
        births[tail.keys[int(tail.key_of[row])][0]] = int(tail.offsets[row])
    certain = np.zeros(len(tail.keys), np.bool_)
    anew = np.zeros(len(tail.keys), np.int64)
    served = {topic for topic, _ in store.queues}
    for number, key in enumerate(tail.keys):
        configured = key[0] in topics if topics is not None else key[0] in served or not served
        certain[number] = key in store.queues or configured
        anew[number] = -1 if key in store.queues else births.get(key[0], -1)
    older_life = tail.offsets < anew[tail.key_of]
    sure = certain[tail.key_of] & ~older_life
    return np.flatnonzero(not_served & sure), np.flatnonzero(not_served & ~sure)


def units_beyond_log(store: StoppedStore) -> Iterator[Reason]:
    """Yields queues that reach beyond the end of the log: the broker cuts them there.

    Mirrors ConsumeQueue#truncateDirtyLogicFiles (4.9.8 to 5.5.0). What those units were of is not in the log: a tail
    that never reached the disk, or a copy that is shorter.
    """
    end = store.tail.end
    if store.queues_in_rocksdb or store.log.of_group or not store.log.segments or store.tail.goes_on_at is not None:
        return
    beyond = [queue for queue in store.queues.values() if queue.end_offset > end and not queue.ends_in_pre_blank]
    if beyond:
        furthest = max(queue.end_offset for queue in beyond)
        units = sum(max(queue.end - queue_ends.offset_at(queue, end), 1) for queue in beyond)
        last = store.log.segments[-1].end  # a broker makes the next segment before it needs it, and writes none across
        gone = end == last or (store.tail.defect == RecordDefect.TRUNCATED and furthest > last)
        yield Reason(
            "units_beyond_log",
            f"the log ends at offset {end}, {len(beyond)} queues have units up to {furthest}: the broker cuts "
            f"those of {units:,} messages off" + (", and writes new messages at their offsets" * gone),
            found=furthest,
            expected=f"at most {end}",
            cure="put back first what is missing of the log; if it is lost, rebuild and publish"
            if gone
            else "nothing, if the log's tail is lost; else put the missing segment back first",
            unsafe=gone,
        )


def log_damaged(store: StoppedStore) -> Iterator[Reason]:
    """Yields a log that breaks and goes on after the break: recovery cuts it there, if it reads that far back.

    Mirrors CommitLog#recoverNormally and MappedFileQueue#truncateDirtyFiles (4.9.8 to 5.5.0), which delete every
    segment after the one with the first bytes that are not a record. ``recovery`` says from where on it reads.
    """
    tail = store.tail
    if tail.passed:
        yield Reason(
            "log_damaged",
            f"the log is damaged at {len(tail.passed)} places, the first at offset {tail.passed[0]}; a start after a "
            "clean stop reads what comes after them and keeps them, one after a crash may cut the log there",
            found=list(tail.passed[:100]),
            cure="rebuild --on-damage salvage says what is lost",
            unsafe=False,
        )
    if tail.goes_on_at is None:
        return
    last = store.log.segments[-1].end
    yield Reason(
        "log_damaged",
        f"the log is damaged at offset {tail.end} ({tail.defect.name}) and goes on at {tail.goes_on_at}: the broker "
        f"cuts it at {tail.end} and deletes what follows, up to {last - tail.end:,} bytes",
        found=tail.defect.name,
        expected="a record",
        cure="do not start; rebuild --on-damage salvage --repair-log DIR2, then put the repaired segments in place",
    )


def torn_tail(store: StoppedStore) -> Iterator[Reason]:
    """Yields a log that ends in bytes that are not a record, with nothing after them: an append that was cut short.

    Mirrors CommitLog#recoverAbnormally (4.9.8 to 5.5.0), which cuts them off: one message that was not acknowledged, or
    not flushed.
    """
    tail = store.tail
    if tail.is_torn and store.log.segments:
        yield Reason(
            "torn_tail",
            f"the log ends at offset {tail.end} with bytes that are not a record ({tail.defect.name}): the broker cuts "
            "them off; that is one message at most that was being written",
            found=tail.defect.name,
            expected="a record, or zeros",
            unsafe=False,
        )


def queue_files(store: StoppedStore) -> Iterator[Reason]:
    """Yields queues whose files a broker does not load, or cuts.

    Mirrors MappedFileQueue#doLoad: a stray file or one of another length ends the start (4.5.1 to 5.5.0, but 4.9.2);
    ConsumeQueue#recover: files after an unfinished one are deleted, and a last unit that is a filler stops the queue; a
    last file without a unit counts as one message (4.9.8 to 5.5.0), or ends the start (5.0.0 to 5.4.0).
    """
    reads_batches = store.rules.reads_batches_and_timers
    for batch in (False, True) if reads_batches else (False,):
        queues = [queue for _, queue in sorted(store.queues.items()) if queue.batch == batch]
        files = [file for queue in queues for file in queue.files]
        setting, size = _queue_file_size(store, [file.size for file in files], batch=batch)
        last = {queue.files[-1] for queue in queues if queue.files}
        wrong = [file for file in files if file.size != size and (file.size or file not in last)]
        yield from wrong_lengths("queue_files", setting, wrong, len(files), size, lambda file: _made_again(store, file))
        unread = set(wrong)
        for queue in queues:
            if queue.files and not queue.files[-1].size:
                yield empty_last_file(store, "queue_files", queue.files[-1], size)
            for file in queue.stray:
                yield Reason(
                    "queue_files",
                    f"{file.path} is not a queue file",
                    found=file.name,
                    expected="20 digits",
                    cure=_made_again(store, file),
                )
            name = f"queue {queue.queue_id} of {queue.topic}"
            if not unread.isdisjoint(queue.files):
                continue
            if queue.lost_units:
                yield Reason(
                    "queue_files",
                    f"{name} has an unfinished file before its last one: the broker deletes the files after it, "
                    f"{queue.lost_units:,} messages are not served",
                    found=queue.lost_units,
                    expected=0,
                    cure=_VERIFY,
                )
            elif queue.empty_last:
                yield Reason(
                    "queue_files",
                    f"{name} has a last file without a message: the broker does not start, or the next message "
                    "gets a queue offset that is one too high",
                    found=queue.files[-1].path,
                    cure=command("rm", "--", queue.files[-1].path),
                )
            elif queue.ends_in_pre_blank:
                yield Reason(
                    "queue_files",
                    f"{name} holds only fillers: it takes no new message, and up to 4.9.8 no queue does",
                    found=queue.end,
                    cure=_VERIFY,
                )
    batches = sorted({queue.topic for queue in store.queues.values() if queue.batch and queue.end > queue.begin})
    if batches and not reads_batches:
        yield Reason(
            "queue_files",
            f"{len(batches)} topics have queues of batches, which no broker before 5.0.0 reads: {first_of(batches)}",
            found=batches,
            cure="start a broker of 5.0.0 or later",
        )


def _made_again(store: StoppedStore, file: FileStatus) -> str:
    return store.set_aside(file.path) + "; rebuild makes the queue again"


def _queue_file_size(store: StoppedStore, sizes: list[int], *, batch: bool) -> tuple[str, int]:
    """Returns the setting of the length of queue files, and that length; without a broker.conf it is that of most."""
    conf, default = store.conf, StoreLayout()
    name = "mapperFileSizeBatchConsumeQueue" if batch else "mappedFileSizeConsumeQueue"
    if not conf.from_file and name not in conf.given:
        return name, mode(sizes or [0])
    if batch:
        return name, conf.number(name, default.mapper_file_size_batch_consume_queue)
    return name, file_size_of(conf.number(name, default.mapped_file_size_consume_queue))
