"""Rules on files as such: those that end a start, those that the broker's user cannot open, and space for the next."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence

from jobs.contract.commands import command
from jobs.preflight.reason import Reason, first_of
from jobs.preflight.retention import warning_percent
from jobs.preflight.stopped_store import StoppedStore
from storeformat import message as m
from storeformat.index import index_file
from storeformat.index.index_file import is_index_file_name
from storeformat.storage import files, local_status
from storeformat.storage.local_status import FileStatus
from storeformat.store.layout import ABORT, CHECKPOINT, INDEX, LOCK, QUEUE_KINDS, is_file_name

HEAD = 36
"""Bytes of a record up to its own physical offset."""


def store_in_use(store: StoppedStore) -> Iterator[Reason]:
    """Yields a store whose lock is held.

    Mirrors DefaultMessageStore#start, "Lock failed, MQ already started" (4.2.0 to 5.5.0).
    """
    if store.is_live:
        what = f"a process holds {store.place(LOCK)}: a broker runs on this store, a second one does not start"
        yield Reason("store_in_use", what, "held", "free", "stop that broker first")


def log_files(store: StoppedStore) -> Iterator[Reason]:
    """Yields every file of the log that ends a start: stray ones, wrong lengths, directories, gaps.

    Mirrors MappedFileQueue#load (4.8.0) and #doLoad (4.9.2 to 5.5.0): another length ends the start, 4.9.2 apart; so
    does a name that is no number (MappedFile#init). From 5.1.0 on directories are passed over, from 5.1.3 on an empty
    last file is deleted.
    """
    log = store.log
    for file in log.stray:
        yield _stray(store, file, "is not a segment: the broker does not start", "20 digits")
    again = "fetch the file again: it was cut, or is being copied"
    setting = "mappedFileSizeCommitLog"
    yield from wrong_lengths("segment_size", setting, log.wrong_size, len(log.files), log.size, lambda _: again)
    if (empty := log.empty_last) is not None:
        yield empty_last_file(store, "segment_size", empty, log.size)
    for folder in log.folders:
        if is_file_name(folder.name):
            yield _stray(store, folder, "is a directory in the place of a segment, whose messages are lost", "a file")
        elif store.release_assumed or not store.rules.passes_over_directories:
            yield _stray(store, folder, "is a directory in the log: a broker before 5.1.0 does not start", "segments")
    for one, other in log.twice:
        what = f"{one.path} and {other.path} are one segment in two paths: the broker may look into the wrong one"
        cure = store.set_aside(other.path) + ", if it is the one without the messages"
        yield Reason("segment_twice", what, found=2, expected=1, cure=cure)
    for before, after in log.gaps:
        if before.size == log.size and after.size in (log.size, 0):
            yield Reason(
                "segment_missing",
                f"a segment is missing between {before.path} and {after.name}: its messages are not served, and the "
                "broker finds wrong segments for offsets after it",
                found=int(after.name),
                expected=int(before.name) + log.size,
                cure="put the segment back, or rebuild --on-damage salvage",
            )


def segments_misplaced(store: StoppedStore) -> Iterator[Reason]:
    """Segments whose first record has the offset of another place: files renamed, or copied over one another.

    A broker finds records by the names of files, and serves other messages than those that were asked for.
    """
    wrong = []
    for file in () if store.log.of_group else store.log.files:
        head = files.read_range(file.path, 0, HEAD) if file.size >= HEAD else b""
        own = int.from_bytes(head[28:36], "big", signed=True)
        if head[4:8] in (m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES) and own != int(file.name):
            wrong.append((file, own))
    for file, own in wrong[:1]:
        yield Reason(
            "segment_misplaced",
            f"{len(wrong)} segments begin with records of other offsets, such as {file.path} with that of {own}: the "
            "broker serves wrong messages, or does not start",
            found=own,
            expected=int(file.name),
            cure="put the right files back; or rebuild --on-damage salvage --repair-log, which keeps the others",
        )


def _stray(store: StoppedStore, file: FileStatus, what: str, expected: str) -> Reason:
    return Reason("stray_file", f"{file.path} {what}", file.name, expected, store.set_aside(file.path))


def wrong_lengths(
    rule: str, setting: str, wrong: Sequence[FileStatus], count: int, size: int, cure: Callable[[FileStatus], str]
) -> Iterator[Reason]:
    """Yields files of a log or of queues that have not the ``size`` of a setting: one reason where all ``count`` have
    one length, which is that of the setting then; else one a file, with its cure.
    """
    if len(wrong) == count > 1 and len({file.size for file in wrong}) == 1:
        yield Reason(
            rule,
            f"all {count} files have {wrong[0].size} bytes, such as {wrong[0].path}: the broker does not start",
            found=wrong[0].size,
            expected=size,
            cure=f"set {setting}={wrong[0].size} in broker.conf",
        )
        return
    for file in wrong:
        else_set = f"; or set {setting}={file.size} in broker.conf, if it always was so" if count == 1 else ""
        yield Reason(
            rule,
            f"{file.path} has {file.size} bytes: the broker does not start",
            found=file.size,
            expected=size,
            cure=cure(file) + else_set,
        )


def empty_last_file(store: StoppedStore, rule: str, file: FileStatus, size: int) -> Reason:
    """Returns what a start makes of a last file of the log or of a queue that has no bytes, and should have ``size``.

    Mirrors MappedFileQueue#doLoad (5.1.3 to 5.5.0), which deletes it.
    """
    kept = store.release_assumed or not store.rules.deletes_empty_file
    return Reason(
        rule,
        f"{file.path} has no bytes: the broker "
        + ("does not start (5.1.3 and later delete it)" if kept else "deletes it"),
        found=0,
        expected=size,
        cure=command("rm", "--", file.path),
        unsafe=kept,
    )


def index_sizes(store: StoppedStore) -> Iterator[Reason]:
    """Yields index files of another length than the settings make: each is mapped in that length, and read wrongly.

    Mirrors IndexService#load and the constructor of IndexFile (4.9.8 to 5.5.1).
    """
    given = store.conf.from_file or {"maxHashSlotNum", "maxIndexNum"} & store.conf.given.keys()
    if not given or not store.conf.flag("messageIndexEnable", default=True):
        return
    size = store.conf.index_sizes().index_file_size
    own = [file for file in local_status.statuses_in(store.place(INDEX)) if is_index_file_name(file.name)]
    wrong = [file for file in own if file.size not in (size, 0, -1)]
    if wrong:
        yield Reason(
            "index_size",
            f"{len(wrong)} index files have another length than maxHashSlotNum and maxIndexNum make, such as "
            f"{wrong[0].path}: the broker finds no message by key in them",
            found=wrong[0].size,
            expected=size,
            cure="set both as they were; or "
            + store.set_aside(store.place(INDEX))
            + ", rebuild --only index with them, and publish",
            unsafe=False,
        )


def index_deleted(store: StoppedStore) -> Iterator[Reason]:
    """Index files that a start after a crash deletes, and does not write again from their first entry on.

    Mirrors IndexService#load, which keeps the files that end before the checkpoint's time of the index, and what
    recovery dispatches (4.9.8 to 5.5.0).
    """
    if not store.after_crash or store.log.of_group or not store.conf.flag("messageIndexEnable", default=True):
        return
    headers = [
        index_file.parse_header(files.read_range(file.path, 0, index_file.HEADER_SIZE))
        for file in local_status.statuses_in(store.place(INDEX))
        if is_index_file_name(file.name) and file.size >= index_file.HEADER_SIZE
    ]
    gone = [one for one in headers if one.end_timestamp > store.checkpoint.index_msg_timestamp and one.entries]
    lost = [one for one in gone if not store.redispatch.covers(one.begin_phy_offset)]
    if lost:
        yield Reason(
            "index_deleted",
            f"this start after a crash deletes {len(gone)} index files, which the checkpoint does not vouch for, and "
            f"writes only messages from offset {store.redispatch.begin} on into new ones: older ones are not found by "
            f"key (at most {sum(one.entries for one in lost):,} keys)",
            found=len(gone),
            expected=0,
            cure="rebuild --only index,checkpoint, then publish --after-crash",
            unsafe=False,
        )


def not_files(store: StoppedStore) -> Iterator[Reason]:
    """Yields directories, pipes and the like where a broker opens a file: StoreCheckpoint, IndexService#load and the
    lock of DefaultMessageStore end its start (4.9.8 to 5.5.0), its ``abort`` and TimerCheckpoint from 5.0.0 on.
    """
    names = [
        LOCK,
        CHECKPOINT,
        *((ABORT, "timerwheel", "config/timercheck") if store.rules.reads_batches_and_timers else ()),
    ]
    single = [local_status.status_of(store.place(name)) for name in names]
    numbered = [status for status in local_status.statuses_in(store.place(INDEX)) if status.name.isdigit()]
    for status in (*single, *numbered):
        if status is not None and status.size < 0 and not stat.S_ISLNK(status.mode):  # a file is made where it leads
            what = "a directory" if status.is_directory else "no regular file"
            yield _stray(store, status, f"is {what}, where the broker opens a file: it does not start", "a file")


def not_the_brokers(store: StoppedStore) -> Iterator[Reason]:
    """Yields files that the user who owns the log may not open for writing: a lock that root made is enough.

    Mirrors DefaultMessageStore's RandomAccessFile of ``lock``, MappedFile#init (4.9.8; from 5.0.0 on
    DefaultMappedFile#init), StoreCheckpoint and ConfigManager#persist, which all open for reading and writing (4.9.8 to
    5.5.0).
    """
    owner = local_status.status_of(store.log.directories[0])
    if owner is None or owner.owner == 0:
        return
    shut = [file for file in _opened_files(store) if not file.may_write(owner.owner, owner.group)]
    if shut:
        yield Reason(
            "files_not_writable",
            f"the user {owner.owner}, who owns the log, may not write {len(shut)} files or directories: "
            + first_of([file.path for file in shut])
            + "; the broker does not start, or fails at its first write",
            found=[file.path for file in shut[:100]],
            expected=f"owner {owner.owner}:{owner.group}",
            cure=command("chown", "-R", f"{owner.owner}:{owner.group}", "--", store.root),
        )


def _opened_files(store: StoppedStore) -> Iterator[FileStatus]:
    for name in ("", LOCK, CHECKPOINT, ABORT, "config", INDEX, "timerwheel", "timerlog", *QUEUE_KINDS):
        status = local_status.status_of(store.place(name) if name else store.root)
        if status is not None:
            yield status
    yield from store.log.files
    for name in ("config", INDEX):
        yield from (entry for entry in local_status.statuses_in(store.place(name)) if not entry.is_directory)
    for queue in store.queues.values():
        yield from queue.files


def free_space(store: StoppedStore) -> Iterator[Reason]:
    """Yields a disk without room for the next segment, or so full that the broker takes no message.

    Mirrors AllocateMappedFileService, MappedFile#init (4.9.8; from 5.0.0 on DefaultMappedFile#init; a sparse file:
    writes into its map end the process where the disk is full) and
    DefaultMessageStore.CleanCommitLogService#isSpaceToDelete (4.9.8 to 5.5.0).
    """
    if not store.log.segments:
        return
    directory = store.log.directories[0]
    for place in dict.fromkeys((directory, store.root)):
        if not local_status.space_of(place).takes_files:
            what = f"the file system of {place} is mounted read-only"
            cure = "mount it for writing"
            yield Reason("free_space", what, place, "a file system to write to", cure)
            return
    space, stops = local_status.space_of(directory), warning_percent(store.conf, store.rules)
    if space.available < store.log.size:
        yield Reason(
            "free_space",
            f"{directory} has {space.available:,} bytes free and the next segment needs {store.log.size:,}: the "
            "broker ends, or loses messages, when it writes there",
            found=space.available,
            expected=store.log.size,
            cure="free some space, or add a path to storePathCommitLog",
        )
    elif space.used_percent > stops:
        what = (
            f"the disk of {directory} is {space.used_percent} % full: the broker takes no new message above {stops} %"
        )
        yield Reason("free_space", what, space.used_percent, f"at most {stops}", "free some space", unsafe=False)
