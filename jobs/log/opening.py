"""Opening a store: settings, segments and rules, checked against what lies in it, before anything heavy starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from jobs.config import LogOptions
from storeformat import message as m
from storeformat.errors import DamagedLog, MissingInput, UsageError, WrongSettings
from storeformat.index import index_file
from storeformat.javaproperties import parse_properties
from storeformat.log.log_end import growing_log_end
from storeformat.log.segments import Segment
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import DispatchRules, parse_delay_levels
from storeformat.record.light_queues import MultiDispatchRules
from storeformat.storage import files, locations
from storeformat.storage.durable import is_live
from storeformat.store import checkpoint
from storeformat.store.broker_rules import DEFAULT, NOTHING_SHOWN, BrokerRules, ReleaseSigns, guess_version, rules_of
from storeformat.store.layout import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    ROCKSDB_STORE,
    StoreLayout,
    apply_settings,
    broker_name,
    file_name,
    find_segments,
    is_file_name,
)
from storeformat.store.log_directories import (
    commit_log_directories,
    group_directories,
    groups_of,
    paths_unread_by_broker,
    with_committed,
)
from storeformat.store.topic_config import find_batch_topics

_FILES_TO_ASK = 64
_SIZES_OF_QUEUES = {
    CONSUME_QUEUE: "mapped_file_size_consume_queue",
    BATCH_CONSUME_QUEUE: "mapper_file_size_batch_consume_queue",
    CONSUME_QUEUE_EXT: "mapped_file_size_consume_queue_ext",
}
_UNITS = {CONSUME_QUEUE: consume_queue.UNIT_SIZE, BATCH_CONSUME_QUEUE: batch_consume_queue.UNIT_SIZE}


@dataclass(frozen=True)
class OpenedStore:
    """A store that can be read: where it is, its settings, its segments, and whose rules apply and why."""

    root: str
    layout: StoreLayout
    segments: list[Segment]
    rules: BrokerRules
    version_reason: str
    notes: tuple[str, ...] = ()
    batch_topics: frozenset[str] = frozenset()
    as_broker: bool = False
    """Whether the log ends where a broker's recovery ends it (``--on-damage stop``)."""
    committed: int | None = None
    """Up to where a DLedger group is known to agree on its log; None where that is all of it, or no group."""
    missing_from: int | None = None
    """From where on entries are lost of which the group's checkpoint says that they are committed."""

    def decode_rules(self) -> DecodeRules:
        """Returns how records are decoded and checked."""
        light = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET) if self.layout.enable_multi_dispatch else ()
        return DecodeRules(
            split_parser=self.rules.split_parser,
            as_broker=self.as_broker,
            properties=(*DISPATCH_PROPERTIES, *light),
        )

    def second_rules(self) -> DecodeRules:
        """Returns how records are decoded again that a scan has checked, or has kept although they fail."""
        return replace(self.decode_rules(), check_crc=False)

    def dispatch_rules(self) -> DispatchRules:
        """Returns what records become."""
        return DispatchRules(
            delay_millis=parse_delay_levels(self.layout.message_delay_level),
            message_index_enable=self.layout.message_index_enable,
            index_tags=self.rules.index_tags,
            multi_dispatch=self._multi_dispatch_rules(),
            batch_topics=frozenset(topic.encode() for topic in self.batch_topics),
        )

    def until(self, offset: int | None) -> int | None:
        """Returns where to end the reading: at the offset that was asked for, else where a group's agreement ends; and
        with a live broker no later than the log ends now, because what comes behind that changes while it is read.
        """
        offset = self.committed if offset is None else offset
        if not is_live(locations.join(self.root, LOCK)):
            return offset
        end = growing_log_end(self.segments, self.decode_rules())
        return end if offset is None else min(offset, end)

    def _multi_dispatch_rules(self) -> MultiDispatchRules | None:
        if not self.layout.enable_multi_dispatch:
            return None
        return MultiDispatchRules(self.layout.enable_lmq, self.rules.no_light_topics, self.rules.no_light_prefixes)


def open_store(options: LogOptions, *, needs_index_sizes: bool = True) -> OpenedStore:
    """Returns the store that the options name; raises what is wrong with it in one line.

    A job that neither reads nor writes index files does not need their sizes, and is not refused for them.
    """
    if options.keep_crc_failures and options.on_damage != "salvage":
        raise UsageError(
            "--keep-crc-failures needs --on-damage salvage: what to do with damaged records is asked there"
        )
    root = locations.absolute(options.store)
    if not files.exists(root):
        raise MissingInput("there is no such store", path=root)
    layout, given = _configured_layout(options)
    directories = commit_log_directories(root, layout, given, options.commitlog)
    sized = "mappedFileSizeCommitLog" in given
    segments = find_segments(directories, layout.mapped_file_size_commit_log if sized else None)
    layout = replace(layout, mapped_file_size_commit_log=segments[0].size)
    layout, notes = _fit_to_store(root, layout, given, needs_index_sizes=needs_index_sizes)
    notes += [
        f"{path} has no bytes and is left out: a broker was making it when it died, or what it held is lost"
        for directory in directories
        if files.size_of(path := locations.join(directory, file_name(segments[-1].end))) == 0
    ]
    version, reason = options.broker_version, "as given by --broker-version"
    if version is None:
        version, reason = guess_version(_release_signs(root, layout))
        if reason == NOTHING_SHOWN and layout.enable_multi_dispatch:
            raise WrongSettings(
                "which records go to light queues depends on the broker's release, and the store does not show it",
                path=root,
                advice="say --broker-version 4.9, 5.1, 5.3 or 5.5",
            )
    else:
        shown, why = guess_version(_release_signs(root, layout))
        if shown not in (version, DEFAULT):
            notes.append(f"the rules are those of {version}, as told; what the store shows would be {shown}: {why}")
    if len(segments) == 1 and not sized and segments[0].size != StoreLayout().mapped_file_size_commit_log:
        notes.append(
            f"the only segment has {segments[0].size} bytes: if the broker's mappedFileSizeCommitLog is another, the "
            "file was cut or is still being copied"
        )
    batch_topics = find_batch_topics(root, options.batch_topics)
    as_broker = options.on_damage == "stop"
    groups = groups_of(directories) or group_directories(root, layout.d_leger_self_id)
    segments, committed = with_committed(segments, groups)
    unread = None if options.commitlog else paths_unread_by_broker(layout)
    notes += [note for note in (committed.note, unread) if note]
    if committed.missing_from is not None and options.on_damage == "fail":
        raise DamagedLog(
            f"the commit log is damaged: {committed.note}",
            path=next(segment.path for segment in segments if committed.missing_from <= segment.end),
            offset=committed.missing_from,
            advice="--on-damage stop ends the log there as the broker would; salvage reads on behind it",
        )  # fmt: skip
    return OpenedStore(
        root, layout, segments, rules_of(version), reason, tuple(notes), batch_topics, as_broker, committed.end,
        committed.missing_from,
    )  # fmt: skip


def _configured_layout(options: LogOptions) -> tuple[StoreLayout, set[str]]:
    """Returns the layout from broker.conf and ``--set``, and the names that were given."""
    layout, given = StoreLayout(), set()
    if options.broker_conf is not None:
        conf = parse_properties(files.read_bytes(options.broker_conf).decode("utf-8", "replace"))
        try:
            layout = apply_settings(layout, conf, strict=False)
        except WrongSettings as error:
            error.path = options.broker_conf
            raise
        given |= set(conf)
    settings = dict(options.settings)
    return apply_settings(layout, settings, strict=True), given | set(settings)


def _fit_to_store(
    root: str, layout: StoreLayout, given: set[str], *, needs_index_sizes: bool
) -> tuple[StoreLayout, list[str]]:
    """Returns the layout with sizes that the store's own files show; a given size that they contradict is an error."""
    notes: list[str] = []
    for kind, field in _SIZES_OF_QUEUES.items():
        shown = _shown_file_size(root, kind)
        set_size = layout.consume_queue_file_size if kind == CONSUME_QUEUE else getattr(layout, field)
        if shown is None or shown == set_size or (kind == CONSUME_QUEUE_EXT and not layout.enable_consume_queue_ext):
            continue
        if broker_name(field) in given:
            raise WrongSettings(
                f"{broker_name(field)} makes files of {set_size} bytes, the store's own have {shown}",
                path=locations.join(root, kind),
                advice=f"if this is the broker's value, the files are damaged: move {kind}/ away, it is rebuilt",
            )
        layout = replace(layout, **{field: shown})  # type: ignore[arg-type]
        notes.append(f"{kind} files have {shown} bytes, as the store's own")
    layout, more = _fit_index_sizes(root, layout, given, required=needs_index_sizes)
    return layout, notes + more


def _fit_index_sizes(
    root: str, layout: StoreLayout, given: set[str], *, required: bool
) -> tuple[StoreLayout, list[str]]:
    """Returns the layout with the numbers that a full index file of the store shows, and a note if they are not the
    defaults; raises WrongSettings where the files do not fit and none tells the numbers.
    """
    own = _index_files(root)
    sizes = {entry.size for entry in own}
    if not sizes or not layout.message_index_enable or layout.index_file_size in sizes:
        return layout, []
    if not given & {"maxHashSlotNum", "maxIndexNum"}:
        for entry in own:
            with files.RangeReader(entry.path) as reader:
                shown = index_file.sizes_shown(entry.size, partial(_read_part, reader, entry.size))
            if shown is not None:
                note = f"index files have {shown[0]} slots and {shown[1]} entries, as the store's own"
                return replace(layout, max_hash_slot_num=shown[0], max_index_num=shown[1]), [note]
    if not required:
        return layout, []
    raise WrongSettings(
        f"maxHashSlotNum and maxIndexNum make files of {layout.index_file_size} bytes, "
        f"the store's own have {' and '.join(map(str, sorted(sizes)))}",
        path=locations.join(root, INDEX),
        advice="give the broker's values by --broker-conf FILE or --set maxHashSlotNum=N --set maxIndexNum=N; if these"
        " are the broker's, the files are damaged: move index/ away, it is rebuilt",
    )


def _index_files(root: str) -> list[files.Entry]:
    """Returns the store's own index files; one that is no longer than a header shows nothing."""
    entries = files.list_directory(locations.join(root, INDEX)) or []
    return [
        entry for entry in entries if index_file.is_index_file_name(entry.name) and entry.size > index_file.HEADER_SIZE
    ]


def _read_part(reader: files.RangeReader, size: int, position: int, length: int) -> bytes:
    data = bytearray(max(min(length, size - position), 0))
    reader.read_into(position, memoryview(data))
    return bytes(data)


def _shown_file_size(root: str, kind: str) -> int | None:
    """Returns the length of the store's own queue files of a kind: all have the same, so most of a few show it. One
    that holds no whole units was cut.
    """
    few = islice(_queue_files(root, kind), _FILES_TO_ASK)
    sizes = Counter(entry.size for entry in few if entry.size > 0 and entry.size % _UNITS.get(kind, 1) == 0)
    return sizes.most_common(1)[0][0] if sizes else None


def _queue_files(root: str, kind: str) -> Iterator[files.Entry]:
    for topic in files.list_directory(locations.join(root, kind)) or []:
        for queue in (files.list_directory(topic.path) or []) if topic.is_directory else []:
            entries = (files.list_directory(queue.path) or []) if queue.is_directory else []
            yield from (entry for entry in entries if is_file_name(entry.name))


def _release_signs(root: str, layout: StoreLayout) -> ReleaseSigns:
    """Returns what a store root shows of the release that wrote it."""
    path = locations.join(root, CHECKPOINT)
    size = files.size_of(path)
    tail: tuple[int, ...] = ()
    if size is not None and checkpoint.FIELDS.size <= size <= checkpoint.PAGE_SIZE:
        page = files.read_bytes(path)
        if checkpoint.is_plausible(page):
            tail = checkpoint.FIELDS.unpack(page[: checkpoint.FIELDS.size])[3:]
    return ReleaseSigns(
        has_rocksdb_store=files.exists(locations.join(root, ROCKSDB_STORE)),
        checkpoint_tail=tail,
        counts_every_put=_counts_every_put(root, layout),
    )


def _counts_every_put(root: str, layout: StoreLayout) -> bool | None:
    """Returns whether the store's index headers count entries instead of slots; None where they show neither.

    Keys share slots: where many more entries than slots should be in use and the header says they are equal, it counts
    entries. Files of another length, and headers that contradict themselves, are no index files; of the others most
    decide.
    """
    own = [entry for entry in _index_files(root) if entry.size == layout.index_file_size]
    votes: Counter[bool] = Counter()
    for entry in own[:_FILES_TO_ASK]:
        with files.RangeReader(entry.path) as reader:
            header = index_file.parse_header(_read_part(reader, entry.size, 0, index_file.HEADER_SIZE))
        slots, counted = layout.max_hash_slot_num, header.hash_slot_count
        if 0 < counted < header.entries < layout.max_index_num:
            votes[False] += 1
        elif 0 <= counted - header.entries <= 1 and header.entries < layout.max_index_num:  # a kill comes in between
            votes[True] += header.entries - slots * (1 - (1 - 1 / slots) ** header.entries) > 8
    return None if votes[True] == votes[False] else votes[True] > votes[False]
