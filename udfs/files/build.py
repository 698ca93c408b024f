"""Staged runs -> consume-queue, ext and index files, inside a Spark task.

Each task makes whole files from slices of staged rows, so no two tasks touch one file and the bytes do not depend on
the task. ``output_files`` writes and reads back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import overload

import numpy as np
import pyarrow as pa

from storeformat.arrays import Bools, Int32s, Int64s, Structs, sum_of_offsets
from storeformat.errors import TotalsDisagree
from storeformat.index import index_file
from storeformat.index.entries import ROW
from storeformat.javacompat import decode_java_utf8
from storeformat.log.segments import Segment, segment_with
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files, locations
from storeformat.storage.extents import Content, measured, stray_byte
from storeformat.store.layout import file_name
from udfs.files.output_files import FileRow, OutputDirectory, Totals, batch_of, stored_size
from udfs.log.staged_files import Readers, Slices
from udfs.log.staged_runs import TIME

_READ_CHUNK = index_file.ENTRY_SIZE * (1 << 16)
_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class PlannedQueueFile:
    """One consume-queue file to make, named by the byte offset ``base``: ``pre_blanks``, then the units of the slices.
    A slice in ``fillers`` is one unit repeated. Ext addresses from ``ext_begins[i]`` on (unless -1) replace tags codes.
    """

    directory: str
    queue: tuple[str, int]
    base: int
    slices: Slices
    pre_blanks: int = 0
    fillers: Bools | None = None
    ext_begins: Int64s | None = None

    @property
    def path(self) -> str:
        """Path below the output."""
        return queue_file_path(self.directory, self.queue, self.base)


def queue_file_path(directory: str, queue: tuple[str, int], base: int) -> str:
    """Path of a queue's file below the store."""
    return locations.join(directory, queue[0], str(queue[1]), file_name(base))


@dataclass(frozen=True)
class PlannedQueueFiles(Sequence[PlannedQueueFile]):
    """Consume-queue files to make, as columns: objects would take a kilobyte each in the driver and in transit. Per
    file: queue (``topic_of`` into ``topics``, ``queue_ids``), ``first_queue_offsets``, ``pre_blanks``, slices
    ``[edges[i], edges[i + 1])``. Per slice: as in ``PlannedQueueFile``.
    """

    directory: str
    topics: tuple[bytes, ...]
    topic_of: Int32s
    queue_ids: Int32s
    first_queue_offsets: Int64s
    pre_blanks: Int32s
    edges: Int32s
    slices: Slices
    fillers: Bools
    ext_begins: Int64s | None = None

    def __len__(self) -> int:
        return len(self.queue_ids)

    @overload
    def __getitem__(self, at: int) -> PlannedQueueFile: ...

    @overload
    def __getitem__(self, at: slice) -> PlannedQueueFiles: ...

    def __getitem__(self, at: int | slice) -> PlannedQueueFile | PlannedQueueFiles:
        if isinstance(at, slice):
            return self._part(*at.indices(len(self))[:2])
        number = range(len(self))[at]
        part = slice(int(self.edges[number]), int(self.edges[number + 1]))
        return PlannedQueueFile(
            directory=self.directory,
            queue=self._queue(number),
            base=self._base(number),
            slices=self.slices[part],
            pre_blanks=int(self.pre_blanks[number]),
            fillers=self.fillers[part],
            ext_begins=None if self.ext_begins is None else self.ext_begins[part],
        )

    def units(self) -> Iterator[tuple[str, int]]:
        """Path and number of units of each file."""
        for number, count in enumerate(self.counts().tolist()):
            yield queue_file_path(self.directory, self._queue(number), self._base(number)), count

    def batches(self, most_files: int, units: int) -> list[PlannedQueueFiles]:
        """Parts of at most ``most_files`` files and ``units`` units, or of one file."""
        parts: list[PlannedQueueFiles] = []
        begin, room = 0, units
        for number, count in enumerate(self.counts().tolist()):
            if number > begin and (count > room or number - begin == most_files):
                parts.append(self[begin:number])
                begin, room = number, units
            room -= count
        return [*parts, self[begin:]] if len(self) else []

    def _queue(self, number: int) -> tuple[str, int]:
        return decode_java_utf8(self.topics[self.topic_of[number]]), int(self.queue_ids[number])

    def _base(self, number: int) -> int:
        return int(self.first_queue_offsets[number]) * consume_queue.UNIT_SIZE

    def counts(self) -> Int64s:
        """Units of each file, with fillers, without pre-blanks."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.add.reduceat(self.slices.counts, self.edges[:-1], dtype=np.int64)

    def _part(self, begin: int, end: int) -> PlannedQueueFiles:
        end = max(begin, end)
        part = slice(int(self.edges[begin]), int(self.edges[end]))
        topics, topic_of = np.unique(self.topic_of[begin:end], return_inverse=True)
        return PlannedQueueFiles(
            directory=self.directory,
            topics=tuple(self.topics[topic] for topic in topics.tolist()),
            topic_of=topic_of.astype(np.int32),
            queue_ids=self.queue_ids[begin:end],
            first_queue_offsets=self.first_queue_offsets[begin:end],
            pre_blanks=self.pre_blanks[begin:end],
            edges=self.edges[begin : end + 1] - part.start,
            slices=self.slices[part],
            fillers=self.fillers[part],
            ext_begins=None if self.ext_begins is None else self.ext_begins[part],
        )


@dataclass(frozen=True)
class BuildQueueFiles:
    """Makes consume-queue files. ``stamped_from``: segments for modification times (time search up to 5.1.0)."""

    output: OutputDirectory
    file_size: int
    stamped_from: tuple[Segment, ...] = ()
    ext_file_size: int = 0
    batch_queues: bool = False

    def __call__(self, batches: Iterator[Sequence[PlannedQueueFile]]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for batch in batches:
                yield batch_of(self._build(file, readers) for file in batch)

    def _build(self, file: PlannedQueueFile, readers: Readers) -> FileRow:
        if self.batch_queues:
            units = _bytes_of(staged_units(file, readers, batch_consume_queue.UNIT))
            return self.output.make_of(file.path, units, self.file_size, _tally_batch_units, what="a batch-queue file")
        units = _bytes_of(self._with_addresses(file, staged_units(file, readers, consume_queue.UNIT)))
        pieces = consume_queue.file_pieces(self.file_size, file.pre_blanks, units)
        return self.output.make_of(
            file.path, pieces, self.file_size, lambda stored: self._tally(stored, file, readers),
            what="a consume-queue file",
        )  # fmt: skip

    def _with_addresses(self, file: PlannedQueueFile, slices: Iterator[Structs]) -> Iterator[Structs]:
        """Replace tags codes by addresses; the copies of a filler share one."""
        if file.ext_begins is None:
            yield from slices
            return
        for number, (units, begin) in enumerate(zip(slices, file.ext_begins.tolist(), strict=True)):
            if begin >= 0:
                count = 1 if file.fillers is not None and file.fillers[number] else len(units)
                units["tags_code"] = consume_queue_ext.addresses(begin, count, self.ext_file_size)
            yield units

    def _tally(self, stored: memoryview, file: PlannedQueueFile, readers: Readers) -> Totals:
        units = consume_queue.parse_units(stored)
        own = units[file.pre_blanks : consume_queue.written_units(units)]
        if bool(consume_queue.is_pre_blank(own).any()):
            raise TotalsDisagree("a consume-queue file holds a pre-blank unit after its first message", path=file.path)
        modified = None
        if self.stamped_from:
            offset = int(own["phy_offset"][-1])
            segment = segment_with(self.stamped_from, offset)
            modified = store_timestamp_at(readers.open(segment.path), offset - segment.base)
        return Totals(len(own), sum_of_offsets(own["phy_offset"]), modified)


def staged_units(file: PlannedQueueFile, readers: Readers, kind: np.dtype[np.void]) -> Iterator[Structs]:
    """Units of a consume-queue file, rows of ``kind``, slice by slice, writable. Lost messages get copies of a
    neighbour's unit: a filler must be valid or recovery ends the queue, and no pre-blank, or consumers skip messages.
    """
    for number, (path, begin, count) in enumerate(file.slices):
        filler = file.fillers is not None and bool(file.fillers[number])
        units = readers.rows(path, kind, begin, 1 if filler else count)
        yield np.repeat(units, count) if filler else units


def _bytes_of(slices: Iterator[Structs]) -> Iterator[memoryview]:
    return (units.view(np.uint8).data for units in slices)


def _tally_batch_units(stored: memoryview) -> Totals:
    units = batch_consume_queue.parse_units(stored)
    own = units[: batch_consume_queue.written_units(units)]
    return Totals(len(own), sum_of_offsets(own["phy_offset"]))


@dataclass(frozen=True, slots=True)
class PlannedIndexFile:
    """One index file to make; ``previous`` is source and row of the previous file's last entry."""

    path: str
    slices: Slices
    previous: tuple[str, int] | None


@dataclass(frozen=True)
class BuildIndexFiles:
    """Makes index files. ``count_every_put``: hashSlotCount of brokers before 4.7.1."""

    output: OutputDirectory
    slots: int
    max_index_num: int
    count_every_put: bool = False

    def __call__(self, planned: Iterator[PlannedIndexFile]) -> Iterator[pa.RecordBatch]:
        for file in planned:
            with Readers() as readers:
                yield batch_of([self._build(file, readers)])

    def _build(self, file: PlannedIndexFile, readers: Readers) -> FileRow:
        start = index_file.first_header()
        if file.previous is not None:
            entry = readers.rows(file.previous[0], ROW, file.previous[1], 1)[0]
            start = index_file.first_header(int(entry["store_timestamp"]), int(entry["offset"]))
        size = index_file.index_file_size(self.slots, self.max_index_num)
        header = start

        def write(writer: files.FileWriter) -> None:
            nonlocal header
            header = index_file.build_index_file(
                _entry_chunks(file.slices, readers),
                self.slots,
                self.max_index_num,
                writer.write_at,
                start=start,
                count_every_put=self.count_every_put,
            )
            writer.finish(stored_size(self.output.root, self._data_size(header), size))

        return self.output.make(file.path, write, lambda draft: self._read_back(file.path, draft, size, header))

    def _data_size(self, header: index_file.IndexHeader) -> int:
        return index_file.entries_position(self.slots) + index_file.ENTRY_SIZE * (1 + header.entries)

    def _read_back(self, path: str, draft: str, size: int, written: index_file.IndexHeader) -> tuple[Content, Totals]:
        digest, total = hashlib.sha256(), 0
        first_entry = index_file.entries_position(self.slots) + index_file.ENTRY_SIZE
        end = self._data_size(written)
        edges = [*range(0, first_entry, _READ_CHUNK), *range(first_entry, end, _READ_CHUNK), end]
        buffer = memoryview(bytearray(_READ_CHUNK))
        with files.RangeReader(draft) as reader:
            length = reader.size
            for begin, stop in pairwise(edges):
                view = buffer[: stop - begin]
                reader.read_into(begin, view)
                digest.update(view)
                if begin == 0:
                    header = index_file.parse_header(view)
                if begin >= first_entry:
                    total += sum_of_offsets(index_file.parse_entries(view)["phy_offset"])
        content = measured(digest, length, end, stray_byte(draft, end))
        if header != written or (content.size, content.data_size) != (stored_size(self.output.root, end, size), end):
            raise TotalsDisagree(
                "an index file differs from what was written", path=path, found=f"{header}, {content}",
                expected=f"{written}, data to {end} of {size}",
            )  # fmt: skip
        return replace(content, size=size), Totals(header.entries, total % (1 << 64))


def _entry_chunks(slices: Slices, readers: Readers) -> Iterator[tuple[Int32s, Int64s, Int64s]]:
    """Staged columns of a file in pieces; each is overwritten by the next."""
    buffer = bytearray(_ROWS_AT_A_TIME * ROW.itemsize)
    for source, begin, count in slices.steps(_ROWS_AT_A_TIME):
        rows = readers.rows(source, ROW, begin, count, buffer)
        yield rows["key_hash"], rows["offset"], rows["store_timestamp"]


def staged_timestamp(source: str, row: int) -> int:
    """Store time (milliseconds) of one staged index entry."""
    with Readers() as readers:
        return int(readers.rows(source, ROW, row, 1)["store_timestamp"][0])


@dataclass(frozen=True)
class BuildFiles:
    """Makes index files and batches of consume-queue files."""

    queues: BuildQueueFiles
    index: BuildIndexFiles

    def __call__(self, planned: Iterator[PlannedIndexFile | Sequence[PlannedQueueFile]]) -> Iterator[pa.RecordBatch]:
        for item in planned:
            if isinstance(item, PlannedIndexFile):
                yield from self.index(iter([item]))
            else:
                yield from self.queues(iter([item]))


_UNITS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class PlannedExtFile:
    """One ext file to make; ``times_of`` maps units files to times files. ``closed``: not the queue's last file."""

    path: str
    slices: Slices
    times_of: dict[str, str]
    closed: bool


@dataclass(frozen=True)
class BuildExtFiles:
    """Makes ext files of one size, and counts their units when reading back."""

    output: OutputDirectory
    file_size: int

    def __call__(self, planned: Iterator[PlannedExtFile]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for file in planned:
                pieces = consume_queue_ext.file_pieces(_units(file, readers), closed=file.closed)
                yield batch_of([self.output.make_of(file.path, pieces, self.file_size, _tally, what="an ext file")])


def _tally(stored: memoryview) -> Totals:
    return Totals(consume_queue_ext.written_units(stored))


def _units(file: PlannedExtFile, readers: Readers) -> Iterator[Structs]:
    for source, begin, count in file.slices.steps(_UNITS_AT_A_TIME):
        units = readers.rows(source, consume_queue.UNIT, begin, count)
        yield consume_queue_ext.pack_units(units["tags_code"], readers.rows(file.times_of[source], TIME, begin, count))
