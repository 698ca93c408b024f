"""Rules on files as such: those that end a start, those that the broker's user cannot open, space, and retention."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from jobs.contract.report import command
from jobs.preflight.configuration import PLUG_IN, TIERED
from jobs.preflight.stopped_store import Reason, StoppedStore, first_of
from storeformat import message as m
from storeformat.index import index_file
from storeformat.index.index_file import is_index_file_name
from storeformat.storage import files
from storeformat.storage.files import FileStatus
from storeformat.store import queue_ends
from storeformat.store.layout import (
    ABORT,
    CHECKPOINT,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    QUEUE_KINDS,
    is_file_name,
    queue_directories,
)
from storeformat.store.recovery import NEVER, doomed, warning_percent
from storeformat.store.settings import ENTRIES, EXT_SIZE, SLOTS

HEAD = 36  # bytes of a record up to its own physical offset


def store_in_use(store: StoppedStore) -> Iterator[Reason]:
    """A store whose lock is held (DefaultMessageStore#start, "Lock failed, MQ already started", 4.2.0 to 5.5.0)."""
    if store.is_live:
        yield Reason.of("store_in_use", lock=store.place(LOCK))


def log_files(store: StoppedStore) -> Iterator[Reason]:
    """Every file of the log that ends a start: stray ones, wrong lengths, directories, gaps.

    Mirrors MappedFileQueue#load (4.8.0) and #doLoad (4.9.2 to 5.5.0): another length ends the start, 4.9.2 apart; so
    does a name that is no number (MappedFile#init). From 5.1.0 on directories are passed over, from 5.1.3 on an empty
    last file is deleted.
    """
    log = store.log
    for file in log.stray:
        yield _stray(store, file, "is not a segment: the broker does not start")
    again = "fetch the file again: it was cut, or is being copied"
    setting = "mappedFileSizeCommitLog"
    yield from wrong_lengths("segment_size", setting, log.wrong_size, len(log.files), log.size, lambda _: again)
    if (empty := log.empty_last) is not None:
        yield empty_last_file(store, "segment_size", empty)
    for folder in log.folders:
        if is_file_name(folder.name):
            yield _stray(store, folder, "is a directory in the place of a segment, whose messages are lost")
        elif store.release_assumed or not store.rules.passes_over_directories:
            yield _stray(store, folder, "is a directory in the log: a broker before 5.1.0 does not start")
    for one, other in log.twice:
        yield Reason.of("segment_twice", one=one.path, other=other.path, aside=store.set_aside(other.path))
    for before, after in log.gaps:
        if before.size == log.size and after.size in (log.size, 0):
            yield Reason.of("segment_missing", before=before.path, after=after.name)


def segments_misplaced(store: StoppedStore) -> Iterator[Reason]:
    """Segments whose first record has the offset of another place: a broker finds records by the names of files."""
    wrong = []
    for file in () if store.log.of_group else store.log.files:
        head = files.read_range(file.path, 0, HEAD) if file.size >= HEAD else b""
        own = int.from_bytes(head[28:36], "big", signed=True)
        if head[4:8] in (m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES) and own != int(file.name):
            wrong.append((file, own))
    for file, own in wrong[:1]:
        yield Reason.of("segment_misplaced", count=len(wrong), path=file.path, own=own)


def _stray(store: StoppedStore, file: FileStatus, what: str) -> Reason:
    return Reason.of("stray_file", path=file.path, what=what, aside=store.set_aside(file.path))


def wrong_lengths(
    rule: str, setting: str, wrong: Sequence[FileStatus], count: int, size: int, cure: Callable[[FileStatus], str]
) -> Iterator[Reason]:
    """Files of a log or of queues that have not the ``size`` of a setting: one reason where all ``count`` have one
    length, which is that of the setting then; else one a file, with its cure.
    """
    if len(wrong) == count > 1 and len({file.size for file in wrong}) == 1:
        first = wrong[0]
        yield Reason.of(f"{rule}.all", count=count, size=first.size, path=first.path, right=f"{setting}={first.size}")
        return
    for file in wrong:
        own = f"; or set {setting}={file.size} in broker.conf, if it always was so" if count == 1 else ""
        yield Reason.of(f"{rule}.one", path=file.path, size=file.size, expected=size, cure=cure(file) + own)


def empty_last_file(store: StoppedStore, rule: str, file: FileStatus) -> Reason:
    """What a start makes of a last file of the log or of a queue that has no bytes.

    Mirrors MappedFileQueue#doLoad (5.1.3 to 5.5.0), which deletes it.
    """
    kept = store.release_assumed or not store.rules.deletes_empty_file
    then = "does not start (5.1.3 and later delete it)" if kept else "deletes it"
    return Reason.of(f"{rule}.empty", unsafe=kept, path=file.path, then=then, remove=command("rm", "--", file.path))


def index_sizes(store: StoppedStore) -> Iterator[Reason]:
    """Index files of another length than the settings make: each is mapped in that length, and read wrongly
    (IndexService#load and the constructor of IndexFile, 4.9.8 to 5.5.1).
    """
    given = store.settings.from_file or {SLOTS, ENTRIES} & store.settings.given.keys()
    if not given or not store.settings.flag("messageIndexEnable"):
        return
    size = store.settings.index_file_size
    own = [file for file in files.statuses_in(store.place(INDEX)) if is_index_file_name(file.name)]
    wrong = [file for file in own if file.size not in (size, 0, -1)]
    if wrong:
        aside = store.set_aside(store.place(INDEX))
        yield Reason.of("index_size", count=len(wrong), path=wrong[0].path, aside=aside)


def index_deleted(store: StoppedStore) -> Iterator[Reason]:
    """Index files that are not there, or that a start after a crash deletes, and does not write again from their first
    entry on (IndexService#load keeps those that end before the checkpoint's time of the index, 4.9.8 to 5.5.0).
    """
    if store.log.of_group or not store.settings.writes_index_files:
        return
    headers = [
        index_file.parse_header(files.read_range(file.path, 0, index_file.HEADER_SIZE))
        for file in files.statuses_in(store.place(INDEX))
        if is_index_file_name(file.name) and file.size >= index_file.HEADER_SIZE
    ]
    begin = store.redispatch.begin
    if not headers and begin > store.log.begin and store.log.segments:
        then = "none again" if begin == NEVER else f"only messages from offset {begin} on"
        yield Reason.of("index_deleted.absent", then=then)
    if not store.after_crash:
        return
    gone = [one for one in headers if one.end_timestamp > store.checkpoint.index_msg_timestamp and one.entries]
    lost = sum(one.entries for one in gone if not store.redispatch.covers(one.begin_phy_offset))
    if lost:
        yield Reason.of("index_deleted", count=len(gone), begin=begin, keys=lost)


def mapped_files(store: StoppedStore) -> Iterator[Reason]:
    """Files of extended queues and of compacted topics that end a start: of another length (MappedFileQueue#doLoad), or
    of none; the lengths of ``compaction/`` are not judged.
    """
    size = store.settings.number(EXT_SIZE)
    kinds: dict[str, int | None] = {}
    if store.settings.flag("enableConsumeQueueExt") and store.settings.from_file:
        kinds[CONSUME_QUEUE_EXT] = size
    if store.rules.reads_batches_and_timers and store.settings.flag("enableCompaction"):
        kinds |= {"compaction/compactionLog": None, "compaction/compactionCq": None}
    for kind, expected in kinds.items():
        for queue in queue_directories(store.root, kind):
            for file in queue.files():
                if file.size == 0 or expected not in (None, file.size):
                    aside = store.set_aside(file.path)
                    yield Reason.of("mapped_file", path=file.path, size=file.size, aside=aside)


def not_files(store: StoppedStore) -> Iterator[Reason]:
    """Directories, pipes and the like where a broker opens a file: StoreCheckpoint, IndexService#load and the lock of
    DefaultMessageStore end its start (4.9.8 to 5.5.0), its ``abort`` and TimerCheckpoint from 5.0.0 on.
    """
    since_5_0 = (ABORT, "timerwheel", "config/timercheck") if store.rules.reads_batches_and_timers else ()
    single = [files.status_of(store.place(name)) for name in (LOCK, CHECKPOINT, *since_5_0)]
    numbered = [status for status in files.statuses_in(store.place(INDEX)) if status.name.isdigit()]
    for status in (*single, *numbered):
        if status is not None and status.size < 0 and not stat.S_ISLNK(status.mode):  # a file is made where it leads
            kind = "a directory" if status.is_directory else "no regular file"
            yield _stray(store, status, f"is {kind}, where the broker opens a file: it does not start")


def not_the_brokers(store: StoppedStore) -> Iterator[Reason]:
    """Files that the user who owns the log may not open for writing: a lock that root made is enough.

    Mirrors DefaultMessageStore's RandomAccessFile of ``lock``, DefaultMappedFile#init, StoreCheckpoint and
    ConfigManager#persist, which all open for reading and writing (4.9.8 to 5.5.0).
    """
    owner = files.status_of(store.log.directories[0])
    if owner is None or owner.owner == 0:
        return
    shut = [file.path for file in _opened_files(store) if not file.may_write(owner.owner, owner.group)]
    if shut:
        change = command("chown", "-R", f"{owner.owner}:{owner.group}", "--", store.root)
        yield Reason.of("files_not_writable", owner=owner.owner, count=len(shut), first=first_of(shut), change=change)


def _opened_files(store: StoppedStore) -> Iterator[FileStatus]:
    for name in ("", LOCK, CHECKPOINT, ABORT, "config", INDEX, "timerwheel", "timerlog", *QUEUE_KINDS):
        status = files.status_of(store.place(name) if name else store.root)
        if status is not None:
            yield status
    yield from store.log.files
    for name in ("config", INDEX):
        yield from (entry for entry in files.statuses_in(store.place(name)) if not entry.is_directory)
    for queue in store.queues.values():
        yield from queue.files.own


def free_space(store: StoppedStore) -> Iterator[Reason]:
    """A disk without room for the next segment, or so full that the broker takes no message.

    Mirrors AllocateMappedFileService, DefaultMappedFile#init (a sparse file: writes into its map end the process where
    the disk is full) and DefaultMessageStore.CleanCommitLogService#isSpaceToDelete (4.9.8 to 5.5.0).
    """
    if not store.log.segments:
        return
    directory = store.log.directories[0]
    for place in dict.fromkeys((directory, store.root)):
        if not files.space_of(place).takes_files:
            yield Reason.of("free_space.read_only", place=place)
            return
    space, stops = files.space_of(directory), warning_percent(store.settings, store.rules)
    if space.available < store.log.size:
        yield Reason.of("free_space.segment", directory=directory, free=space.available, needed=store.log.size)
    elif space.used_percent > stops:
        yield Reason.of("free_space.percent", directory=directory, used=space.used_percent, stops=stops)


def messages_deleted(store: StoppedStore) -> Iterator[Reason]:
    """What is deleted soon after the start: how much of the log, when, and which groups have not read it; a group
    counts for topics in which it has committed an offset.
    """
    paths = (*store.log.directories, store.place(CONSUME_QUEUE))
    part = doomed(store.log.files, paths, store.settings, store.rules, store.now_ms)
    if part is None:
        return
    if TIERED in store.settings.text(PLUG_IN):
        counts = {"count": part.count, "all": len(store.log.files), "begin": part.begin}
        yield Reason.of("messages_deleted.tiered", unsafe=False, when=part.when, **counts)
        return
    unread, unread_text = _unread(store, part.begin), ""
    for (group, topic), most in unread.most_common(1):
        unread_text = f"; {sum(unread.values()):,} messages of them some group has not read, most of all {group} in "
        unread_text += f"{topic} ({most:,})"
    yield Reason.of(
        "messages_deleted.forced" if part.forced else "messages_deleted.age",
        unsafe=bool(unread),
        count=part.count,
        all=len(store.log.files),
        begin=part.begin,
        when=part.when,
        unread=unread_text,
        touch=command("touch", "--", store.log.directories[0]),
    )


def _unread(store: StoppedStore, begin: int) -> Counter[tuple[str, str]]:
    """The messages before a log offset that each group (group, topic) has not read. Of a queue in which it has
    no offset, but has one in another queue of the topic, it has read none.
    """
    committed = {key: offsets for key, offsets in (store.offsets_file.value or {}).items() if offsets}
    deleted: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic, _ in committed}
    for topic, queue_id in {*store.queues, *store.tail.rows.keys}:
        if topic in deleted:
            deleted[topic][queue_id] = _deleted(store, (topic, queue_id), begin)
    unread: Counter[tuple[str, str]] = Counter()
    for (topic, group), offsets in committed.items():
        for queue_id, (first, kept) in deleted[topic].items():
            unread[group, topic] += max(kept - max(offsets.get(queue_id, 0), first), 0)
    return +unread


def log_begins_late(store: StoppedStore) -> Iterator[Reason]:
    """Queues with messages from before a log whose first one is too young for them to have been deleted for their age:
    a disk that is too full does that (``doomed``), and so does a hand.
    """
    begin = store.log.begin
    if not begin or not store.begins_young:
        return
    before = [queue_ends.offset_at(queue, begin) - queue.begin for queue in store.queues.values() if not queue.batch]
    if count := sum(before):
        yield Reason.of("log_begins_late", begin=begin, count=count, hours=store.settings.number("fileReservedTime"))


def _deleted(store: StoppedStore, key: tuple[str, int], begin: int) -> tuple[int, int]:
    """The first queue offset of a queue, and that of its first message from a log offset on; messages that are
    in no queue yet, but will be dispatched again, count.
    """
    queue, tail = store.queues.get(key), store.tail
    first, kept = (queue.begin, queue_ends.offset_at(queue, begin)) if queue is not None else (0, 0)
    if key in tail.rows.by_queue:
        rows = tail.rows.by_queue[key]
        covered = (tail.rows.offsets[rows] < begin) & store.redispatch.covers(tail.rows.offsets[rows])
        again = tail.rows.queue_offsets[rows[covered]].tolist()
        if again:
            first, kept = (first if queue is not None else again[0]), max(kept, again[-1] + 1)
    return first, kept
