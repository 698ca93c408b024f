"""Files of a store against the staged runs of its log, inside a Spark task.

The counterpart of ``build``: same plan and slices, but the bytes are compared instead of written. Each task gets whole
files and returns one small row a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Bools, LogExtent, Structs
from storeformat.index import index_check, index_file
from storeformat.index.entries import ROW, Rows
from storeformat.index.index_check import FileContext, IndexComparison
from storeformat.log.block_window import BlockWindow
from storeformat.log.segments import Segment, segment_with
from storeformat.queues import consume_queue, consume_queue_ext, queue_check
from storeformat.queues.batch_consume_queue import UNIT as BATCH_UNIT
from storeformat.queues.queue_check import Expectation, UnitComparison
from storeformat.record.decode import DecodeRules, decode
from storeformat.record.dispatch import DispatchRules, tags_codes
from storeformat.storage import extents, files, locations
from udfs.files.build import PlannedQueueFile, staged_units
from udfs.log.staged_files import Readers

_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class ExtFile:
    """One file of a queue's consumequeue_ext: ``base`` is the byte offset in its name, ``size`` its length."""

    path: str
    base: int
    size: int


@dataclass(frozen=True)
class QueueCheck:
    """A consume-queue file to check; the queue's own units are at [begin, end), in units, clipped to the file."""

    file: PlannedQueueFile
    begin: int
    end: int
    schedule: bool = False
    ext: tuple[ExtFile, ...] = ()


@dataclass(frozen=True)
class ComparedQueueFile:
    """Result for one file; ``size`` is None if it is missing, ``units`` None if its length is wrong.
    ``first_expected``, ``last_expected``: commit-log offsets of its first and last own unit.
    """

    queue: tuple[str, int]
    base: int
    size: int | None
    units: UnitComparison | None
    first_expected: int | None
    last_expected: int | None


@dataclass(frozen=True)
class CompareQueueFiles:
    """Compares consume-queue files in batches; ``dispatched``: where the broker must have come to (None: the end)."""

    root: str
    file_size: int
    segments: tuple[Segment, ...]
    decode_rules: DecodeRules
    log: LogExtent
    dispatched: int | None = None
    batch_queues: bool = False  # files of BatchCQ topics

    def __call__(self, batches: Iterator[Sequence[QueueCheck]]) -> Iterator[ComparedQueueFile]:
        buffer = _FileBuffer(self.file_size)
        with Readers() as readers:
            for batch in batches:
                for check in batch:
                    yield self._compare(check, readers, buffer)

    def _compare(self, check: QueueCheck, readers: Readers, buffer: _FileBuffer) -> ComparedQueueFile:
        file = check.file
        path = locations.join(self.root, file.path)
        size = files.size_of(path)
        kind = BATCH_UNIT if self.batch_queues else consume_queue.UNIT
        used = check.end
        if size == self.file_size:
            used = _used_units(buffer.load(path), check.end, kind.itemsize)
        expected = _expected_units(check, max(used, 1), kind, readers)
        own = expected["phy_offset"][check.begin : check.end]
        ends = (int(own[0]), int(own[-1])) if len(own) else (None, None)
        if size is not None and size != self.file_size:
            return ComparedQueueFile(file.queue, file.base, size, None, *ends)
        found = np.zeros(len(expected), kind)
        if size is not None:
            found = np.frombuffer(buffer.content, kind, len(expected))
        expectation = Expectation(
            units=expected,
            begin=check.begin,
            end=check.end,
            fillers=_fillers(file, len(expected)),
            log=self.log,
            dispatched=self.dispatched,
            schedule=check.schedule,
            ext=bool(check.ext),
        )
        comparison = queue_check.compare_units(expectation, found)
        hashed, in_ext = comparison.delivery_hashes, comparison.ext_places
        real = np.array([self._tags_hash(expected[place], readers) for place in hashed.tolist()], np.int64)
        agree = _agrees_in_ext(check.ext, expected[in_ext], found[in_ext], readers)
        wrong = np.concatenate([hashed[real != found["tags_code"][hashed]], in_ext[~agree]])
        comparison = queue_check.with_wrong_tags_codes(comparison, wrong, expected, found)
        return ComparedQueueFile(file.queue, file.base, size, comparison, *ends)

    def _tags_hash(self, unit: np.void, readers: Readers) -> int:
        offset, size = int(unit["phy_offset"]), int(unit["size"])
        segment = segment_with(self.segments, offset)
        window = BlockWindow(readers.open(segment.path), segment)
        window.load(offset, size)
        block, _ = decode(window.bytes, offset, np.zeros(1, np.int64), self.decode_rules)
        return int(tags_codes(block, DispatchRules(delay_millis=()))[0])


class _FileBuffer:
    """Reused buffer for files of one length; holes at their ends are not read."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self._data_end = 0

    def load(self, path: str) -> memoryview:
        """Load a file. Returns the bytes before the hole at its end."""
        end = extents.data_end(path, len(self.content))
        with files.RangeReader(path) as reader:
            reader.read_into(0, memoryview(self.content)[:end])
        if end < self._data_end:
            self.content[end : self._data_end] = bytes(self._data_end - end)
        self._data_end = end
        return memoryview(self.content)[:end]


def _used_units(content: bytearray | memoryview, at_least: int, unit: int) -> int:
    """Number of units up to the last non-zero one, at least ``at_least``."""
    end = at_least * unit
    if end >= len(content):
        return at_least
    begin, stop = min(-(-end // 8) * 8, len(content)), len(content) // 8 * 8
    words = np.frombuffer(content, np.uint64, max(stop - begin, 0) // 8, min(begin, stop))
    if not (words.any() or any(content[end:begin]) or any(content[max(stop, end) :])):
        return at_least
    last = int(np.flatnonzero(np.frombuffer(content, np.uint8, offset=end))[-1]) + end
    return last // unit + 1


def _expected_units(check: QueueCheck, count: int, kind: np.dtype[np.void], readers: Readers) -> Structs:
    units = np.zeros(count, kind)
    at = check.begin
    if kind == consume_queue.UNIT:
        units[:at] = np.frombuffer(consume_queue.PRE_BLANK, kind)
    for piece in staged_units(check.file, readers, kind):
        units[at : at + len(piece)] = piece
        at += len(piece)
    return units


def _agrees_in_ext(ext: Sequence[ExtFile], expected: Structs, found: Structs, readers: Readers) -> Bools:
    """Which addresses lead to a unit of consumequeue_ext with the expected tags code."""
    offsets = consume_queue_ext.unit_offsets(found["tags_code"])
    agree = np.zeros(len(found), bool)
    for file in ext:
        mine = np.flatnonzero((offsets >= file.base) & (offsets < file.base + file.size))
        if not len(mine):
            continue
        positions = offsets[mine] - file.base
        begin = int(positions.min())
        content = bytearray(min(int(positions.max()) + consume_queue_ext.UNIT_HEAD.itemsize, file.size) - begin)
        readers.open(file.path).read_into(begin, memoryview(content))
        heads = consume_queue_ext.parse_unit_heads(np.frombuffer(content, np.uint8), positions - begin)
        whole = heads["size"] == heads["bit_map_size"] + consume_queue_ext.UNIT_HEAD.itemsize
        agree[mine] = whole & (heads["tags_code"] == expected["tags_code"][mine])
    return agree


def _fillers(file: PlannedQueueFile, units: int) -> Bools:
    marks = np.zeros(units, bool)
    table = file.slices.table
    if table["filler"].any():
        marks[file.pre_blanks : file.pre_blanks + file.slices.rows] = np.repeat(table["filler"], table["count"])
    return marks


@dataclass(frozen=True)
class EntrySource:
    """A staging file of index entries: their number, and the last one's commit-log offset."""

    path: str
    entries: int
    last_offset: int


class StagedRows:
    """The log's index entries, read from the staging files on demand."""

    def __init__(self, sources: Sequence[EntrySource], readers: Readers) -> None:
        self._sources = sources
        self._readers = readers
        self._ends = np.cumsum([source.entries for source in sources], dtype=np.int64)
        self._last_offsets = np.array([source.last_offset for source in sources], np.int64)
        self._cached = (0, np.zeros(0, ROW))
        self.rows = Rows(int(self._ends[-1]) if len(sources) else 0, self.read, self.find)

    def read(self, begin: int, end: int) -> Structs:
        first, block = self._cached
        if not (first <= begin and end <= first + len(block)):
            stop = min(max(end, begin + _ROWS_AT_A_TIME), self.rows.total)
            first, block = begin, self._load(begin, stop)
            self._cached = first, block
        return block[begin - first : end - first]

    def _load(self, begin: int, end: int) -> Structs:
        parts = [np.zeros(0, ROW)]
        source = int(np.searchsorted(self._ends, begin, "right"))
        while begin < end:
            place, stop = self._sources[source], min(end, int(self._ends[source]))
            first = begin - int(self._ends[source]) + place.entries
            parts.append(self._readers.rows(place.path, ROW, first, stop - begin))
            begin, source = stop, source + 1
        return np.concatenate(parts)

    def find(self, offset: int) -> int:
        """First row at or after a commit-log offset."""
        source = int(np.searchsorted(self._last_offsets, offset, "left"))
        if source == len(self._sources):
            return self.rows.total
        high = int(self._ends[source]) - 1
        low = high - self._sources[source].entries + 1
        while high - low > 64:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._offset(middle) < offset else (low, middle)
        offsets = self._load(low, high + 1)["offset"]
        return low + int(np.searchsorted(offsets, offset, "left"))

    def _offset(self, row: int) -> int:
        return int(self._load(row, row + 1)["offset"][0])


@dataclass(frozen=True)
class IndexCheck:
    """An index file to check."""

    path: str
    context: FileContext


@dataclass(frozen=True)
class CompareIndexFiles:
    """Compares index files with the staged entries."""

    root: str
    slots: int
    max_index_num: int
    sources: tuple[EntrySource, ...]

    def __call__(self, checks: Iterator[IndexCheck]) -> Iterator[IndexComparison]:
        for check in checks:
            with Readers() as readers, files.RangeReader(locations.join(self.root, check.path)) as reader:
                staged = StagedRows(self.sources, readers)
                yield index_check.compare_index_file(
                    _reading(reader, index_file.index_file_size(self.slots, self.max_index_num)),
                    self.slots,
                    self.max_index_num,
                    staged.rows,
                    check.context,
                )


def _reading(reader: files.RangeReader, size: int) -> index_file.Read:
    def read(position: int, length: int) -> bytes | memoryview:
        content = memoryview(bytearray(max(min(length, size - position), 0)))
        reader.read_into(position, content)
        return content

    return read
