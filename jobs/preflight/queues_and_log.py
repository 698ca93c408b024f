"""Rules on queues, in files and in RocksDB, against the log: what is not served, what a recovery cuts.

===============  ============================================================================================
release          where a start begins to dispatch into queues in RocksDB
===============  ============================================================================================
5.2.0 to 5.3.3   with the segment in which the database ends
5.4.0 and later  the same, but with the tenth-last segment at the earliest (``commitLogRecoverMaxNum``)
===============  ============================================================================================

After a clean stop the record that begins exactly where the database ends is passed over (CommitLog#recoverNormally asks
for offsets beyond it). A broker flushes before it stops, so no such record exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mode

import numpy as np

from jobs.contract.report import command, duration_text
from jobs.preflight.configuration import configured_topics, is_the_brokers, log_elsewhere, log_of_group
from jobs.preflight.files_and_space import empty_last_file, wrong_lengths
from jobs.preflight.stopped_store import Reason, StoppedStore, first_of, furthest_unit
from storeformat.arrays import Bools, Int64s
from storeformat.errors import RecordDefect
from storeformat.log import dledger
from storeformat.log.log_tail import LogTail
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.queues.rocksdb_queues import StoredEnds
from storeformat.record.dispatch import LIGHT_PREFIX
from storeformat.storage import locations
from storeformat.storage.files import FileStatus
from storeformat.store import queue_ends
from storeformat.store.layout import ABORT, is_file_name
from storeformat.store.queue_ends import QueueEnd, given_twice, misplaced, points_to
from storeformat.store.recovery import recovered_from
from storeformat.store.segment_files import with_committed
from storeformat.store.settings import BATCH_SIZE, QUEUE_SIZE

_SECONDS, _SECONDS_A_GB = 4, 2.5  # a start, and each GB that it dispatches (5.3.3 on two cores: 10.6 GB in 30.8 s)


def log_missing(store: StoppedStore) -> Iterator[Reason]:
    """A log without segments beside queues that have messages: the broker deletes those (CommitLog#recoverNormally and
    #recoverAbnormally, "The commitlog files are deleted", 4.9.8 to 5.5.0).
    """
    if store.log.files or any(reason.unsafe for rule in (log_elsewhere, log_of_group) for reason in rule(store)):
        return  # settings that lead away from segments are the reason why none are seen
    if count := sum(queue.end_offset >= 0 for queue in store.queues.values()):
        yield Reason.of("log_missing.queues", count=count)
    elif topics := configured_topics(store):
        read = any(number > 0 for own in (store.offsets_file.value or {}).values() for number in own.values())
        yield Reason.of("log_missing.topics", unsafe=read, count=len(topics), first=first_of(topics))


def messages_not_served(store: StoppedStore) -> Iterator[Reason]:
    """Messages at the end of the log that are in no queue, and which the release's recovery does not put there; no
    later start looks back.

    Mirrors CommitLog#recoverNormally and #recoverAbnormally, DefaultMessageStore#start (4.9.8 to 5.5.0); see
    ``recovery`` for what each release dispatches again.
    """
    tail, records = store.tail, store.tail.rows
    if store.queues_in_rocksdb or not len(records.offsets):
        return
    beyond, again = _beyond_queues(store), store.redispatch
    if store.log.of_group:
        yield from _not_served_in_group(store, beyond)
        return
    not_served = beyond & ~again.covers(records.offsets)
    certain, doubtful = _by_certainty(store, not_served)
    everything = furthest_unit(store.queues.values()) < tail.begin and not again.covers(store.log.begin)
    at_least = "at least " if everything and tail.begin > store.log.begin else ""
    done = f"it dispatches from offset {again.begin} on" + ", but the first record" * (again.skipped > 0)
    if again.begin >= tail.end:
        done = "nothing is dispatched again; 5.3.2 and 5.3.3: all but the first of them"
    compacted = np.array([topic in store.compacted_topics for topic, _ in records.keys], np.bool_)
    compacted = compacted[records.key_of[certain]]
    for rows, case in (
        (certain[~compacted], "messages_not_served"),
        (certain[compacted], "messages_not_served.compacted"),
        (doubtful, "messages_not_served.doubtful"),
    ):
        if rows.size:
            yield Reason.of(
                case,
                abort=command("touch", "--", store.place(ABORT)),
                at_least=at_least,
                count=int(rows.size),
                first=int(records.offsets[rows[0]]),
                queues=_queues_of(tail, rows),
                stop="a crash" if store.after_crash else "a clean stop",
                done=done,
            )


def _not_served_in_group(store: StoppedStore, beyond: Bools) -> Iterator[Reason]:
    """What a member's start makes of its log: up to 5.1.4 it dispatches nothing that is committed already; from 5.2.0
    on and before 5.4.0, after a crash, it counts the last segment without the heads of its entries, and cuts the queues
    there (DLedgerCommitLog#dledgerRecoverAbnormally, apache/rocketmq #9084).
    """
    tail, records = store.tail, store.tail.rows
    _, committed = with_committed(store.log.segments, [locations.parent_of(store.log.directories[0])])
    end = tail.end if committed.end is None else committed.end
    lost = beyond & (records.ends <= end) & (not store.rules.dispatch_uncommitted)
    for rows, case in ((beyond & ~lost, "messages_not_served.group"), (lost, "messages_not_served.committed")):
        if count := int(rows.sum()):
            yield Reason.of(case, count=count)
    if store.after_crash and store.rules.dispatch_uncommitted and not store.rules.bounded_recovery:
        base = max(segment.base for segment in store.log.segments if segment.base < max(tail.end, 1))
        cut = tail.end - dledger.HEAD_SIZE * len(np.unique(records.offsets[records.offsets >= base]))
        if count := int((~beyond & (records.offsets >= cut)).sum()):
            yield Reason.of("messages_not_served.cut", count=count, cut=cut)


def queues_read_beside(store: StoppedStore) -> Iterator[Reason]:
    """Messages that a database lacks from which queues are read although files have them, and light messages in a
    database alone: no start dispatches them again (CombineConsumeQueueStore, 5.5.0).
    """
    ends = store.rocksdb.ends
    lacking: dict[str, dict[tuple[str, int], int]] = {"beside": {}, "light": {}}
    if store.reads_rocksdb_beside:
        for key, queue in store.queues.items():
            first, end = _held(ends.get(key))
            both = max(min(end, queue.end) - max(first, queue.begin), 0)
            lacking["beside"][key] = queue.end - queue.begin - both
    if store.light_in_rocksdb:
        for key, rows in store.tail.rows.by_queue.items():
            if key[0].startswith(LIGHT_PREFIX):
                first, end = _held(ends.get(key))
                places = store.tail.rows.queue_offsets[rows]
                lacking["light"][key] = int(((places < first) | (places >= end)).sum())
    for case, counts in lacking.items() if store.rocksdb.unread is None else ():
        if names := [f"{topic}:{queue_id}" for (topic, queue_id), count in sorted(counts.items()) if count]:
            yield Reason.of(f"messages_not_served.{case}", count=sum(counts.values()), queues=first_of(names))


def _held(ends: StoredEnds | None) -> tuple[int, int]:
    """The first queue offset of a queue in a database, and the one after the last."""
    if ends is None or ends.last is None:
        return 0, 0
    return ends.first[1] if ends.first else 0, ends.last[1] + 1


def queues_made_again(store: StoppedStore) -> Iterator[Reason]:
    """No queues at all, where the next start makes all of them again."""
    tail = store.tail
    if store.queues or store.queues_in_rocksdb or store.log.of_group or not len(tail.rows.offsets):
        return
    if store.redispatch.covers(store.log.begin):
        seconds = _SECONDS + _SECONDS_A_GB * (tail.end - store.log.begin) / 1e9
        yield Reason.of("queues_made_again", duration=duration_text(seconds))


def _beyond_queues(store: StoppedStore) -> Bools:
    """The records of the tail that end after the last unit of their queue."""
    records = store.tail.rows
    ends = [store.queues[key].end_offset if key in store.queues else -1 for key in records.keys]
    beyond = np.asarray(records.ends > np.array(ends, np.int64)[records.key_of])
    if store.light_in_rocksdb:  # see ``queues_read_beside``
        beyond &= ~np.array([name.startswith(LIGHT_PREFIX) for name, _ in records.keys], np.bool_)[records.key_of]
    for number in np.unique(records.key_of[beyond]).tolist():
        queue, rows = store.queues.get(records.keys[number]), records.by_queue[records.keys[number]]
        light = records.keys[number][0].startswith(LIGHT_PREFIX)
        if queue is None or queue.batch or light or records.queue_offsets[rows[-1]] >= queue.end:
            continue
        if points_to(records, rows[-1:], queue).all():
            beyond[rows] = False  # its last units are old ones: the queue was cut, and the log with it
    return beyond


def wrong_units(store: StoppedStore) -> Iterator[Reason]:
    """Messages at the end of the log whose queue has another unit at their queue offset. No recovery
    mends that: ConsumeQueue#putMessagePositionInfo (4.9.8 to 5.5.0) skips each record before the end of its queue.
    Queues of batches are left to ``verify``.
    """
    tail, records = store.tail, store.tail.rows
    if store.queues_in_rocksdb or store.log.of_group:
        return
    queues = {key: queue for key, queue in store.queues.items() if not queue.batch and key not in store.settled}
    found: dict[str, list[Int64s]] = {"wrong_units": [], "queue_offsets_twice": []}
    for key, rows in records.by_queue.items():
        if key in queues and (wrong := misplaced(records, rows, queues[key])).size:
            twice = given_twice(records, rows, wrong, queues[key])
            found["wrong_units"].append(wrong[~twice])
            found["queue_offsets_twice"].append(wrong[twice])
    for case, parts in found.items():
        rows = np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))
        if rows.size:
            first = int(records.offsets[rows[0]])
            yield Reason.of(case, count=int(rows.size), first=first, queues=_queues_of(tail, rows))


def messages_moved(store: StoppedStore) -> Iterator[Reason]:
    """Messages that the start dispatches to another place than theirs, for their queue ends before what it lacks."""
    if store.queues_in_rocksdb or store.rules.leaves_gaps:
        return
    tail, moved = store.tail, [np.zeros(0, np.int64)]
    for key, replayed in store.replayed.items():
        if (rows := replayed.misplaced).size:
            moved.append(rows[~points_to(tail.rows, rows, store.queues[key])] if key in store.queues else rows)
    if (rows := np.sort(np.concatenate(moved))).size:
        first = int(tail.rows.offsets[rows[0]])
        yield Reason.of("messages_moved", count=int(rows.size), first=first, queues=_queues_of(tail, rows))


def _queues_of(tail: LogTail, rows: Int64s) -> str:
    """Names of the first queues of some records."""
    names = sorted({tail.rows.keys[key] for key in np.unique(tail.rows.key_of[rows]).tolist()})
    return first_of([f"{topic}:{queue_id}" for topic, queue_id in names])


def _by_certainty(store: StoppedStore, not_served: Bools) -> tuple[Int64s, Int64s]:
    """The rows of messages that a topic's deletion does not explain, and of those that it may.

    A queue without files may be that of a deleted topic whose messages the log still has: then the topic is not
    configured, or its queues have started over after them.
    """
    records = store.tail.rows
    topics = store.configs["topics.json"].value
    births: dict[str, int] = {}
    _, firsts = np.unique(records.key_of, return_index=True)
    for row in np.setdiff1d(np.flatnonzero(records.queue_offsets == 0), firsts).tolist():
        births[records.keys[int(records.key_of[row])][0]] = int(records.offsets[row])
    certain = np.zeros(len(records.keys), np.bool_)
    anew = np.zeros(len(records.keys), np.int64)
    served = {topic for topic, _ in store.queues}
    for number, key in enumerate(records.keys):
        configured = key[0] in topics if topics is not None else key[0] in served or not served
        certain[number] = key in store.queues or configured or is_the_brokers(key[0])
        anew[number] = -1 if key in store.queues else births.get(key[0], -1)
    older_life = records.offsets < anew[records.key_of]
    sure = certain[records.key_of] & ~older_life
    return np.flatnonzero(not_served & sure), np.flatnonzero(not_served & ~sure)


def units_beyond_log(store: StoppedStore) -> Iterator[Reason]:
    """Queues that reach beyond the end of the log: the broker cuts them there (ConsumeQueue#truncateDirtyLogicFiles,
    4.9.8 to 5.5.0). What those units were of is not in the log: a tail that never reached the disk, or a shorter copy.
    """
    end, damage = store.tail.end, store.tail.damage
    if store.queues_in_rocksdb or store.log.of_group or not store.log.segments or damage.goes_on_at is not None:
        return
    beyond = [queue for queue in store.queues.values() if queue.end_offset > end and not queue.ends_in_pre_blank]
    if beyond:
        furthest = max(queue.end_offset for queue in beyond)
        units = sum(max(queue.end - queue_ends.offset_at(queue, end), 1) for queue in beyond)
        last = store.log.segments[-1].end  # a broker makes the next segment before it needs it, and writes none across
        gone = end == last or (damage.defect == RecordDefect.TRUNCATED and furthest > last)
        case = "units_beyond_log.gone" if gone else "units_beyond_log.tail"
        yield Reason.of(case, end=end, queues=len(beyond), furthest=furthest, units=units)


def log_damaged(store: StoppedStore) -> Iterator[Reason]:
    """A log that breaks and goes on after the break: recovery cuts it there, if it reads that far back
    (CommitLog#recoverNormally and MappedFileQueue#truncateDirtyFiles, 4.9.8 to 5.5.0).
    """
    end, damage = store.tail.end, store.tail.damage
    if damage.passed:
        yield Reason.of("log_damaged.passed", places=len(damage.passed), first=damage.passed[0])
    heads = {segment.base for segment in store.log.segments}  # see ``segments_misplaced``
    if damage.foreign is not None and damage.foreign not in heads and not store.log.of_group:
        yield Reason.of("log_damaged.foreign", at=damage.foreign)
    if damage.goes_on_at is not None:
        after = store.log.segments[-1].end - end
        yield Reason.of("log_damaged", end=end, defect=damage.defect.name, goes_on=damage.goes_on_at, after=after)


def recovered_beyond_log(store: StoppedStore) -> Iterator[Reason]:
    """A checkpoint beyond the end of a log whose broker believes it (``enableAcceleratedRecovery``, 5.5.0)."""
    reached = store.checkpoint.logics_physical_offset
    if store.settings.flag("enableAcceleratedRecovery") and reached > store.tail.end:
        yield Reason.of("recovered_beyond_log", reached=reached, end=store.tail.end)


def torn_tail(store: StoppedStore) -> Iterator[Reason]:
    """A log that ends in bytes that are not a record, with nothing after them: recovery cuts off an append that was cut
    short (CommitLog#recoverAbnormally, 4.9.8 to 5.5.0), one message that was not acknowledged, or not flushed.
    """
    if store.tail.damage.is_torn and store.log.segments:
        yield Reason.of("torn_tail", end=store.tail.end, defect=store.tail.damage.defect.name)


def queue_files(store: StoppedStore) -> Iterator[Reason]:
    """Queues whose files a broker does not load, or cuts.

    Mirrors MappedFileQueue#doLoad: a stray file or one of another length ends the start (4.5.1 to 5.5.0, but 4.9.2);
    ConsumeQueue#recover: files after an unfinished one are deleted, and a last unit that is a filler stops the queue; a
    last file without a unit counts as one message (4.9.8 to 5.5.0), or ends the start (5.0.0 to 5.4.0).
    """
    reads_batches = store.rules.reads_batches_and_timers
    for batch in (False, True) if reads_batches else (False,):
        queues = [queue for _, queue in sorted(store.queues.items()) if queue.batch == batch]
        files = [file for queue in queues for file in queue.files.own]
        setting, size = _queue_file_size(store, [file.size for file in files], batch=batch)
        last = {queue.files.own[-1] for queue in queues if queue.files.own}
        wrong = [file for file in files if file.size != size and (file.size or file not in last)]
        yield from wrong_lengths("queue_files", setting, wrong, len(files), size, lambda file: _made_again(store, file))
        unread = set(wrong)
        for queue in queues:
            if queue.files.own and not queue.files.own[-1].size:
                yield empty_last_file(store, "queue_files", queue.files.own[-1])
            for file in (*queue.files.stray, *_at_no_place(queue)):
                yield Reason.of("queue_files.stray", path=file.path, cure=_made_again(store, file))
            for folder in queue.files.folders:
                if is_file_name(folder.name) or store.release_assumed or not store.rules.passes_over_directories:
                    yield Reason.of("queue_files.folder", path=folder.path, aside=store.set_aside(folder.path))
            if unread.isdisjoint(queue.files.own):
                yield from _end_of_queue(store, queue)
    batches = sorted({queue.topic for queue in store.queues.values() if queue.batch and queue.end > queue.begin})
    if batches and not reads_batches:
        yield Reason.of("queue_files.batches", count=len(batches), first=first_of(batches))


def _at_no_place(queue: QueueEnd) -> Iterator[FileStatus]:
    """Files up to a queue's end (recovery deletes those after it) that do not follow the one before, or are at no place
    of a file (MappedFileQueue#tryCreateMappedFile).
    """
    for before, file in zip((None, *queue.files.own), queue.files.own, strict=False):
        place = int(file.name)
        if place > queue.end * UNIT_SIZE and not queue.batch:
            return
        if file.size and place != (int(before.name) + before.size if before else place - place % file.size):
            yield file


def _end_of_queue(store: StoppedStore, queue: QueueEnd) -> Iterator[Reason]:
    name = f"queue {queue.queue_id} of {queue.topic}"
    if queue.files.lost_units:
        if count := queue.files.lost_units if queue.batch else _lost_after_end(store, queue):
            yield Reason.of("queue_files.unfinished", name=name, count=count)
    elif queue.files.empty_last:
        if not _is_filled(store, queue):
            yield Reason.of("queue_files.no_unit", name=name, remove=command("rm", "--", queue.files.own[-1].path))
    elif queue.ends_in_pre_blank:
        yield Reason.of("queue_files.fillers", name=name)


def _lost_after_end(store: StoppedStore, queue: QueueEnd) -> int:
    """How many messages have units in files that recovery deletes, and are not dispatched again; a copy of
    another file has none of its own.
    """
    tail, records = store.tail, store.tail.rows
    places, units = queue_ends.units_after_end(queue)
    offsets = units["phy_offset"].astype(np.int64)
    rows = records.by_queue.get((queue.topic, queue.queue_id), np.zeros(0, np.int64))
    lost = ~store.redispatch.covers(offsets)
    for at in np.flatnonzero(lost & (offsets >= tail.begin)).tolist():
        own = rows[np.searchsorted(records.offsets[rows], offsets[at]) :][:1]
        lost[at] = [*records.offsets[own], *records.queue_offsets[own]] == [offsets[at], places[at]]
    return int(lost.sum())


def _is_filled(store: StoppedStore, queue: QueueEnd) -> bool:
    """Whether a start after a crash puts units into a last file that has none."""
    replayed = store.replayed[queue.topic, queue.queue_id]
    return store.after_crash and replayed.end > queue.end and not replayed.misplaced.size


def _made_again(store: StoppedStore, file: FileStatus) -> str:
    return store.set_aside(file.path) + "; rebuild makes the queue again"


def _queue_file_size(store: StoppedStore, sizes: list[int], *, batch: bool) -> tuple[str, int]:
    """The setting of the length of queue files, and that length; without a broker.conf it is that of most."""
    settings, name = store.settings, BATCH_SIZE if batch else QUEUE_SIZE
    if not settings.from_file and name not in settings.given:
        return name, mode(sizes or [0])
    return name, settings.number(name) if batch else settings.queue_file_size


def database_not_read(store: StoppedStore) -> Iterator[Reason]:
    """A database of queues that could not be read: a broken one ends the start (AbstractRocksDBStorage#start and
    RocksDBConsumeQueueStore#load, 5.3.3, 5.5.0). Without the library nothing is known of it.
    """
    unread, broken = store.rocksdb.unread, store.rocksdb.broken
    if unread is not None:
        yield Reason.of(f"database_not_read.{'broken' if broken else 'unknown'}", unread=unread)


def not_dispatched(store: StoppedStore) -> Iterator[Reason]:
    """Messages after the end of the database that the start does not put there: a queue that lacks a message is served
    up to there; in 5.5.0 DefaultMessageStore#getMessage throws there.
    """
    dispatched, segments = store.rocksdb.dispatched, store.log.segments
    if dispatched is None or not segments:
        return
    first = recovered_from(segments, store.rules, store.settings)
    if max(dispatched, segments[0].base) < first:
        what = f"the start goes back to {first} only: the messages between are in no queue"
    elif not store.after_crash and dispatched and np.isin(dispatched, store.tail.rows.offsets).any():
        what = "the start skips the record there and dispatches those after it"
    else:
        return
    yield Reason.of("messages_not_served.rocksdb", dispatched=dispatched, what=what)
