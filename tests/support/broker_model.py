"""What a broker derives from a commit log: a slow, sequential model of its dispatch, one record after the other.

It shares nothing with ``storeformat``. Each class mirrors one of the broker's (apache/rocketmq 4.6.1 to 5.5.0):

========================  ======================================================================
``walk``                  ``DefaultMessageStore.ReputMessageService#doReput``, ``CommitLog#recoverAbnormally``
``ConsumeQueue``          ``ConsumeQueue#putMessagePositionInfo`` and ``#fillPreBlank``, 20-byte units
``BatchConsumeQueue``     ``queue/BatchConsumeQueue#putBatchMessagePositionInfo``, 46-byte units
``ConsumeQueueExt``       ``ConsumeQueueExt#put``
``broker_index``          ``index/IndexService#buildIndex``, ``index/IndexFile#putKey``
========================  ======================================================================

Two rules are a rebuild's, not the broker's: a record that carries the offset of another place is stepped over (the
broker dispatches it under that offset), and a queue offset of 0 begins a queue anew (the broker had deleted the topic
and its files in between, so its queue holds the last life only).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support import java_rules
from support.broker_check import (
    RECOVERY,
    REPUT,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    ByteBuffer,
    DispatchRequest,
    check_message_and_return_size,
)
from support.broker_index import IndexService
from support.broker_settings import BrokerSettings

CQ_UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")
PRE_BLANK = CQ_UNIT.pack(0, 0x7FFFFFFF, 0)
EXT_END_BLANK_DATA_LENGTH = 4
LONG_MIN_VALUE = -(1 << 63)


# --- the walk ---------------------------------------------------------------------------------------------------
def walk(
    segments: Mapping[int, bytes],
    settings: BrokerSettings,
    *,
    until: int | None = None,
    recovery: bool = False,
    step_over_foreign: bool = True,
) -> Iterator[DispatchRequest]:
    """The requests that a running broker dispatches, in order (``ReputMessageService#doReput`` of a master): it skips
    the rest of a segment where it meets no record. With ``recovery`` as ``CommitLog#recoverAbnormally`` from the first
    segment.
    """
    if not segments:
        return
    size = settings.mapped_file_size_commit_log
    end = max(segments) + size if until is None else until
    reput_from = min(segments)
    while reput_from < end:
        base = reput_from - reput_from % size
        if base not in segments:
            return
        limit = min(size, end - base)
        buffer = ByteBuffer(segments[base], reput_from - base, limit)
        result_size, read_size = buffer.remaining, 0
        while read_size < result_size and reput_from < end:
            here = base + buffer.position
            result = check_message_and_return_size(buffer, settings, RECOVERY if recovery else REPUT)
            if result.success and result.size == 0:
                reput_from = base + size
                break
            if result.success:
                assert result.request is not None
                if not step_over_foreign or result.request.commit_log_offset == here:
                    yield result.request
                reput_from += result.size
                read_size += result.size
            elif recovery:
                return
            elif result.size > 0:  # the length does not match: the position stays where the parser stopped
                reput_from += result.size
            else:
                reput_from += result_size - read_size
                break


# --- consume queues ---------------------------------------------------------------------------------------------
@dataclass
class QueueFiles:
    """The files of one queue by their base offset, and where the next unit goes."""

    file_size: int
    files: dict[int, bytearray] = field(default_factory=dict)
    end: int = 0

    def append(self, unit: bytes) -> None:
        """Writes one unit where the queue ends, in a new file if the last one is full."""
        base = self.end - self.end % self.file_size
        data = self.files.setdefault(base, bytearray(self.file_size))
        data[self.end - base : self.end - base + len(unit)] = unit
        self.end += len(unit)

    def begin_again(self) -> None:
        """Forgets the life before (not the broker: see the module's docstring)."""
        self.files, self.end = {}, 0


@dataclass
class ConsumeQueue(QueueFiles):
    """One queue of 20-byte units."""

    max_physic_offset: int = -1

    def put_message_position_info(self, offset: int, size: int, tags_code: int, cq_offset: int) -> None:
        """Appends the unit, or skips it: a success for the broker either way."""
        if offset + size <= self.max_physic_offset:
            return
        if cq_offset < 0:
            raise ValueError(f"queue offset {cq_offset} at {offset}: the model knows no negative file names")
        if cq_offset == 0:
            self.begin_again()
        expect = cq_offset * CQ_UNIT.size
        if not self.files:
            self._fill_pre_blank(expect)
        if cq_offset != 0 and expect < self.end:
            return
        # a unit that comes too early is appended all the same: the broker logs it and leaves no gap
        self.max_physic_offset = offset + size
        self.append(CQ_UNIT.pack(offset, size, tags_code))

    def _fill_pre_blank(self, until: int) -> None:
        self.end = until - until % self.file_size
        while self.end < until:
            self.append(PRE_BLANK)


@dataclass
class BatchConsumeQueue(QueueFiles):
    """One queue of a BatchCQ topic: one unit a record, in files from 0 on, without pre-blanks."""

    max_msg_phy_offset_in_commit_log: int = -1

    def put_batch_message_position_info(self, request: DispatchRequest) -> None:
        if request.msg_base_offset < 0 or request.batch_size < 0:
            return
        if request.commit_log_offset <= self.max_msg_phy_offset_in_commit_log:
            return
        if request.msg_base_offset == 0:
            self.begin_again()
        self.max_msg_phy_offset_in_commit_log = request.commit_log_offset
        place = (request.commit_log_offset, request.msg_size, request.tags_code, request.store_timestamp)
        self.append(BATCH_UNIT.pack(*place, request.msg_base_offset, request.batch_size, -1, 0))


@dataclass
class ConsumeQueueExt(QueueFiles):
    """The ext files of one queue; filter bit maps are zero, the log does not know them."""

    bitmap_bytes: int = 0

    def put(self, request: DispatchRequest) -> int:
        """The address of the new unit, as it stands in the tags code of the consume queue."""
        size = 20 + self.bitmap_bytes
        room = self.file_size - self.end % self.file_size
        if size > room - EXT_END_BLANK_DATA_LENGTH:
            self.append(struct.pack(">h", -1))
            self.end += room - 2
        address = self.end + LONG_MIN_VALUE
        head = struct.pack(">hqqh", size, request.tags_code, request.store_timestamp, self.bitmap_bytes)
        self.append(head + bytes(self.bitmap_bytes))
        return address


# --- dispatch ---------------------------------------------------------------------------------------------------
@dataclass
class Broker:
    """The dispatchers of one broker and what they have written."""

    settings: BrokerSettings
    queues: dict[tuple[str, int], ConsumeQueue] = field(default_factory=dict)
    batch_queues: dict[tuple[str, int], BatchConsumeQueue] = field(default_factory=dict)
    exts: dict[tuple[str, int], ConsumeQueueExt] = field(default_factory=dict)
    index: IndexService = field(init=False)
    requests: list[DispatchRequest] = field(default_factory=list)
    index_from: int = 0

    def __post_init__(self) -> None:
        self.index = IndexService(self.settings)

    def do_dispatch(self, request: DispatchRequest) -> None:
        """``DefaultMessageStore#doDispatch``: the consume queue first, then the index."""
        self.requests.append(request)
        if request.transaction_type in (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE):
            self._put_message_position_info(request)
        if self.settings.message_index_enable and request.commit_log_offset >= self.index_from:
            self.index.build_index(request)

    def _put_message_position_info(self, request: DispatchRequest) -> None:
        key = (request.topic, request.queue_id)
        if request.topic in self.settings.batch_topics:
            size = self.settings.mapper_file_size_batch_consume_queue
            self.batch_queues.setdefault(key, BatchConsumeQueue(size)).put_batch_message_position_info(request)
            return
        tags_code = request.tags_code
        self._begin_ext_again(key, request.consume_queue_offset)
        if self.settings.enable_consume_queue_ext:
            new = ConsumeQueueExt(
                self.settings.mapped_file_size_consume_queue_ext, bitmap_bytes=self.settings.filter_bitmap_bytes
            )
            tags_code = self.exts.setdefault(key, new).put(request)
        self._queue(key).put_message_position_info(
            request.commit_log_offset, request.msg_size, tags_code, request.consume_queue_offset
        )
        if self._is_multi_dispatched(request):
            self._multi_dispatch_lmq_queue(request)

    def _queue(self, key: tuple[str, int]) -> ConsumeQueue:
        return self.queues.setdefault(key, ConsumeQueue(self.settings.consume_queue_file_size))

    def _is_multi_dispatched(self, request: DispatchRequest) -> bool:
        """``ConsumeQueue#checkMultiDispatchQueue``, ``MultiDispatchUtils#isNeedHandleMultiDispatch``."""
        version, topic = self.settings.version, request.topic
        if not self.settings.enable_multi_dispatch:
            return False
        if version >= (5, 2, 0):
            excluded = topic.startswith(("%RETRY%", "rmq_sys_")) or topic == SCHEDULE_TOPIC
        elif version >= (5, 1, 2):
            excluded = topic.startswith("%RETRY%") or topic in ("rmq_sys_wheel_timer", SCHEDULE_TOPIC)
        else:
            excluded = False
        properties = request.properties or {}
        return not (
            excluded
            or java_rules.is_blank(properties.get("INNER_MULTI_DISPATCH"))
            or java_rules.is_blank(properties.get("INNER_MULTI_QUEUE_OFFSET"))
        )

    def _multi_dispatch_lmq_queue(self, request: DispatchRequest) -> None:
        """``ConsumeQueue#multiDispatchLmqQueue``."""
        assert request.properties is not None
        names = java_rules.split(request.properties["INNER_MULTI_DISPATCH"], ",")
        offsets = java_rules.split(request.properties["INNER_MULTI_QUEUE_OFFSET"], ",")
        if len(names) != len(offsets):
            return
        for name, offset in zip(names, offsets, strict=True):
            if self.settings.version >= (5, 1, 2) and "/" in name:
                continue
            queue_id = 0 if self.settings.enable_lmq and name.startswith("%LMQ%") else request.queue_id
            number = java_rules.parse_integer(offset, 64)
            self._begin_ext_again((name, queue_id), number)
            self._queue((name, queue_id)).put_message_position_info(
                request.commit_log_offset, request.msg_size, request.tags_code, number
            )

    def _begin_ext_again(self, key: tuple[str, int], cq_offset: int) -> None:
        """Ext files go with the files of their queue."""
        if cq_offset == 0:
            self.exts.pop(key, None)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of all queues by their path below the store's root."""
        files: dict[str, bytes] = {}
        kinds = {"consumequeue": self.queues, "batchconsumequeue": self.batch_queues, "consumequeue_ext": self.exts}
        for directory, queues in kinds.items():
            for (topic, queue_id), queue in queues.items():
                for base, data in queue.files.items():
                    files[f"{directory}/{topic}/{queue_id}/{base:020d}"] = bytes(data)
        return files

    @property
    def index_files(self) -> list[bytes]:
        """The index files in order of creation."""
        return [file.to_bytes() for file in self.index.files]

    def write(self, root: Path) -> Path:
        """Writes queues and index below ``root`` and returns it; index files are named by their number."""
        files = self.files | {f"index/{n:017d}": data for n, data in enumerate(self.index_files)}
        for name, data in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return root


def dispatch(
    segments: Mapping[int, bytes],
    settings: BrokerSettings | None = None,
    *,
    until: int | None = None,
    index_from: int = 0,
    recovery: bool = False,
    step_over_foreign: bool = True,
) -> Broker:
    """A broker that dispatched the log below ``until``, as ``walk`` reads it; its index begins at ``index_from``."""
    broker = Broker(settings or BrokerSettings(), index_from=index_from)
    for request in walk(segments, broker.settings, until=until, recovery=recovery, step_over_foreign=step_over_foreign):
        broker.do_dispatch(request)
    return broker


def read_segments(root: Path) -> dict[int, bytes]:
    """The segments of a store root by their base offset."""
    return {int(path.name): path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
