"""Packed runs -> consume-queue and index files, inside a Spark task.

Each task gets whole files to make and the slices of staged runs they consist of, so no two tasks touch one file and the
bytes do not depend on who made them. Every file is read back after it was written, as far as it holds data, and what
lies behind must be a hole: its SHA-256 and the count of what it holds come from the bytes on storage, not from what was
meant to be there. Only then it gets its name: a task that is run again because its machine was lost, or whose twin
still runs, puts the same bytes under the same names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storeformat.arrays import Bools, Int32s, Int64s, sum_of_offsets
from storeformat.errors import TotalsDisagree
from storeformat.index import index_file
from storeformat.index.entries import ROW
from storeformat.javacompat import decode_java_utf8
from storeformat.log.segments import Segment, segment_with
from storeformat.queues import consume_queue, consume_queue_ext
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files, locations, outputs
from storeformat.storage.extents import measured, read_back_whole, stray_byte
from storeformat.store.layout import file_name
from udfs.file_rows import FileRow, batch_of
from udfs.staged_files import Readers

_READ_CHUNK = index_file.ENTRY_SIZE * (1 << 16)
_ENTRIES_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class PlannedQueueFile:
    """One consume-queue file to make. Slice i is ``counts[i]`` units from unit ``begins[i]`` of
    ``sources[path_of[i]]``, or that one unit as often where ``fillers[i]``. With ``ext_begins`` the units' tags codes
    give way to the addresses of the queue's ext units from number ``ext_begins[i]`` on, except where that is -1.
    """

    path: str
    pre_blanks: int
    sources: tuple[str, ...]
    path_of: Int32s
    begins: Int32s
    counts: Int32s
    fillers: Bools
    ext_begins: Int64s | None = None


@dataclass(frozen=True)
class PlannedQueueFiles(Sequence[PlannedQueueFile]):
    """Many consume-queue files to make, as columns: a list of them would take a kilobyte each, in the driver and on the
    way to the tasks. A part of the sequence is one of its own, with nothing but what it needs. 32 bits are enough for
    units of a split, which lies in one segment, and for those of a file: neither is longer than 2 GiB.

    Per file: its queue (``topic_of`` into ``topics``, ``queue_ids``), ``first_queue_offsets`` of its first unit,
    ``pre_blanks``, and its slices ``[edges[i], edges[i + 1])``. Per slice: as in ``PlannedQueueFile``.
    """

    directory: str
    topics: tuple[bytes, ...]
    topic_of: Int32s
    queue_ids: Int32s
    first_queue_offsets: Int64s
    pre_blanks: Int32s
    edges: Int32s
    sources: tuple[str, ...]
    path_of: Int32s
    begins: Int32s
    counts: Int32s
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
        used: dict[int, int] = {}
        path_of = [used.setdefault(source, len(used)) for source in self.path_of[part].tolist()]
        return PlannedQueueFile(
            path=self.path(number),
            pre_blanks=int(self.pre_blanks[number]),
            sources=tuple(self.sources[source] for source in used),
            path_of=np.array(path_of, np.int32),
            begins=self.begins[part],
            counts=self.counts[part],
            fillers=self.fillers[part],
            ext_begins=None if self.ext_begins is None else self.ext_begins[part],
        )

    def path(self, number: int) -> str:
        """Returns the path of a file below the output."""
        name = file_name(int(self.first_queue_offsets[number]) * consume_queue.UNIT_SIZE)
        topic = decode_java_utf8(self.topics[self.topic_of[number]])
        return locations.join(self.directory, topic, str(self.queue_ids[number]), name)

    def units(self) -> Iterator[tuple[str, int]]:
        """Yields the path of each file, and how many units it gets."""
        return ((self.path(number), count) for number, count in enumerate(self._units_of_files()))

    def batches(self, most_files: int, units: int) -> list[PlannedQueueFiles]:
        """Returns the files in parts of at most ``most_files`` files and ``units`` units, or of one file."""
        parts: list[PlannedQueueFiles] = []
        begin, room = 0, units
        for number, count in enumerate(self._units_of_files()):
            if number > begin and (count > room or number - begin == most_files):
                parts.append(self[begin:number])
                begin, room = number, units
            room -= count
        return [*parts, self[begin:]] if len(self) else []

    def _units_of_files(self) -> list[int]:
        return np.add.reduceat(self.counts, self.edges[:-1], dtype=np.int64).tolist() if len(self) else []

    def _part(self, begin: int, end: int) -> PlannedQueueFiles:
        end = max(begin, end)
        slices = slice(int(self.edges[begin]), int(self.edges[end]))
        topics, topic_of = np.unique(self.topic_of[begin:end], return_inverse=True)
        sources, path_of = np.unique(self.path_of[slices], return_inverse=True)
        return PlannedQueueFiles(
            directory=self.directory,
            topics=tuple(self.topics[topic] for topic in topics.tolist()),
            topic_of=topic_of.astype(np.int32),
            queue_ids=self.queue_ids[begin:end],
            first_queue_offsets=self.first_queue_offsets[begin:end],
            pre_blanks=self.pre_blanks[begin:end],
            edges=self.edges[begin : end + 1] - slices.start,
            sources=tuple(self.sources[source] for source in sources.tolist()),
            path_of=path_of.astype(np.int32),
            begins=self.begins[slices],
            counts=self.counts[slices],
            fillers=self.fillers[slices],
            ext_begins=None if self.ext_begins is None else self.ext_begins[slices],
        )


@dataclass(frozen=True)
class BuildQueueFiles:
    """Makes consume-queue files, batch by batch. ``stamped_from`` are the segments to take a file's time of change from
    (brokers up to 5.1.0 look at it when they search by time); empty where the broker does not care. ``ext_file_size``
    is the length of the files that addresses lead into.
    """

    output: str
    drafts: str
    file_size: int
    stamped_from: tuple[Segment, ...] = ()
    ext_file_size: int = 0

    def __call__(self, batches: Iterator[Sequence[PlannedQueueFile]]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for batch in batches:
                yield batch_of(self._build(job, readers) for job in batch)

    def _build(self, job: PlannedQueueFile, readers: Readers) -> FileRow:
        target = locations.join(self.output, job.path)
        draft = outputs.draft_of(target, self.drafts)
        with files.FileWriter(draft) as writer:
            slices = queue_slices(job, readers)
            if job.ext_begins is not None:
                slices = _with_addresses(slices, job, self.ext_file_size)
            for piece in consume_queue.file_pieces(self.file_size, job.pre_blanks, slices):
                writer.write(piece)
            writer.finish(self.file_size)
        used = consume_queue.UNIT_SIZE * (job.pre_blanks + int(job.counts.sum()))
        stored, content = read_back_whole(draft, used, self.file_size, path=target, what="a consume-queue file")
        units = consume_queue.parse_units(stored)
        mine = units[job.pre_blanks : consume_queue.written_units(units)]
        if bool(consume_queue.is_pre_blank(mine).any()):
            raise TotalsDisagree("a consume-queue file holds a pre-blank unit after its first message", path=target)
        last = int(mine["phy_offset"][-1])
        if self.stamped_from:
            files.set_modified(draft, self._store_timestamp(last, readers))
        outputs.settle(draft, target)
        total = sum_of_offsets(mine["phy_offset"])
        return FileRow(job.path, content, len(mine), total)

    def _store_timestamp(self, offset: int, readers: Readers) -> int:
        segment = segment_with(self.stamped_from, offset)
        return store_timestamp_at(readers.open(segment.path), offset - segment.base)


def queue_slices(
    job: PlannedQueueFile, readers: Readers, unit: int = consume_queue.UNIT_SIZE
) -> Iterator[memoryview | bytes]:
    """Yields the packed units (of ``unit`` bytes) of a consume-queue file, slice by slice."""
    for path, begin, count, filler in zip(
        job.path_of.tolist(), job.begins.tolist(), job.counts.tolist(), job.fillers.tolist(), strict=True
    ):
        reader = readers.open(job.sources[path])
        piece = memoryview(bytearray(unit if filler else unit * count))
        reader.read_into(begin * unit, piece)
        yield consume_queue.filler_units(piece, count) if filler else piece


def _with_addresses(
    slices: Iterator[memoryview | bytes], job: PlannedQueueFile, ext_file_size: int
) -> Iterator[memoryview | bytes]:
    """Yields the slices with addresses in the place of tags codes; the copies of a filler share one."""
    assert job.ext_begins is not None
    for piece, begin, filler in zip(slices, job.ext_begins.tolist(), job.fillers.tolist(), strict=True):
        if begin < 0:
            yield piece
            continue
        units = consume_queue.parse_units(piece).copy()
        units["tags_code"] = consume_queue_ext.addresses(begin, 1 if filler else len(units), ext_file_size)
        yield units.view(np.uint8).data


@dataclass(frozen=True)
class PlannedIndexFile:
    """One index file to make: its entries are ``counts[i]`` rows from row ``begins[i]`` of ``sources[i]``, in this
    order. ``previous`` is where the last entry of the file before lies (source and row), None for the first file.
    """

    path: str
    sources: tuple[str, ...]
    begins: tuple[int, ...]
    counts: tuple[int, ...]
    previous: tuple[str, int] | None


@dataclass(frozen=True)
class BuildIndexFiles:
    """Makes index files. ``count_every_put`` is the hashSlotCount of brokers before 4.7.1."""

    output: str
    drafts: str
    slots: int
    max_index_num: int
    count_every_put: bool = False

    def __call__(self, jobs: Iterator[PlannedIndexFile]) -> Iterator[pa.RecordBatch]:
        for job in jobs:
            with Readers() as readers:
                yield batch_of([self._build(job, readers)])

    def _build(self, job: PlannedIndexFile, readers: Readers) -> FileRow:
        start = index_file.first_header()
        if job.previous is not None:
            source, row = job.previous
            start = index_file.first_header(*_read_entry(readers.open(source), row))
        target = locations.join(self.output, job.path)
        draft = outputs.draft_of(target, self.drafts)
        size = index_file.index_file_size(self.slots, self.max_index_num)
        with files.FileWriter(draft) as writer:
            header = index_file.build_index_file(
                _entry_chunks(job, readers),
                self.slots,
                self.max_index_num,
                writer.write_at,
                start=start,
                count_every_put=self.count_every_put,
            )
            writer.finish(size)
        made = self._read_back(job.path, draft, size, header)
        outputs.settle(draft, target)
        return made

    def _read_back(self, path: str, draft: str, size: int, written: index_file.IndexHeader) -> FileRow:
        digest, total = hashlib.sha256(), 0
        first_entry = index_file.entries_position(self.slots) + index_file.ENTRY_SIZE
        end = first_entry + index_file.ENTRY_SIZE * written.entries
        edges = [*range(0, first_entry, _READ_CHUNK), *range(first_entry, end, _READ_CHUNK), end]
        buffer = memoryview(bytearray(_READ_CHUNK))
        with files.RangeReader(draft) as reader:
            stored_size = reader.size
            for begin, stop in pairwise(edges):
                view = buffer[: stop - begin]
                reader.read_into(begin, view)
                digest.update(view)
                if begin == 0:
                    header = index_file.parse_header(view)
                if begin >= first_entry:
                    offsets = index_file.parse_entries(view)["phy_offset"]
                    total += sum_of_offsets(offsets)
        content = measured(digest, stored_size, end, stray_byte(draft, end))
        if header != written or (content.size, content.data_size) != (size, end):
            raise TotalsDisagree(
                "an index file differs from what was written", path=path, found=f"{header}, {content}",
                expected=f"{written}, data to {end} of {size}",
            )  # fmt: skip
        return FileRow(path, content, header.entries, total % (1 << 64))


def _read_entries(reader: files.RangeReader, row: int, buffer: memoryview) -> npt.NDArray[np.void]:
    """Returns as many staged rows from ``row`` on as fill the buffer, over its bytes."""
    reader.read_into(row * ROW.itemsize, buffer)
    return np.frombuffer(buffer, ROW)


def _read_entry(reader: files.RangeReader, row: int) -> tuple[int, int]:
    """Returns store time and commit-log offset of one staged entry."""
    rows = _read_entries(reader, row, memoryview(bytearray(ROW.itemsize)))
    return int(rows["store_timestamp"][0]), int(rows["offset"][0])


def staged_timestamp(source: str, row: int) -> int:
    """Returns the store time of one staged index entry."""
    with files.RangeReader(source) as reader:
        return _read_entry(reader, row)[0]


@dataclass(frozen=True)
class BuildFiles:
    """Makes files of both kinds in one go: whole index files, and batches of consume-queue files."""

    queues: BuildQueueFiles
    index: BuildIndexFiles

    def __call__(self, jobs: Iterator[PlannedIndexFile | Sequence[PlannedQueueFile]]) -> Iterator[pa.RecordBatch]:
        for job in jobs:
            if isinstance(job, PlannedIndexFile):
                yield from self.index(iter([job]))
            else:
                yield from self.queues(iter([job]))


def _entry_chunks(job: PlannedIndexFile, readers: Readers) -> Iterator[tuple[Int32s, Int64s, Int64s]]:
    """Yields the staged columns of a file piece by piece; each piece is gone when the next one is asked for."""
    buffer = memoryview(bytearray(_ENTRIES_AT_A_TIME * ROW.itemsize))
    for source, begin, count in zip(job.sources, job.begins, job.counts, strict=True):
        reader = readers.open(source)
        for row in range(begin, begin + count, _ENTRIES_AT_A_TIME):
            size = min(_ENTRIES_AT_A_TIME, begin + count - row)
            rows = _read_entries(reader, row, buffer[: size * ROW.itemsize])
            yield rows["key_hash"], rows["offset"], rows["store_timestamp"]
