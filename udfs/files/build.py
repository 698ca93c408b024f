"""Staged runs -> consume-queue, ext and index files, inside a Spark task.

Each task makes whole files, so no two tasks touch one file and the bytes do not depend on the task: it writes a draft,
reads it back, then renames it. Run again, or twice, it writes the same bytes to the same name. Rows of files are Arrow
columns, because there may be a hundred thousand: path and 60 bytes each, where objects take a kilobyte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from storeformat.arrays import Int32s, Int64s, Structs, sum_of_offsets
from storeformat.errors import TotalsDisagree
from storeformat.index import index_file
from storeformat.index.index_file import ENTRY_SIZE, ROW, IndexHeader, entries_position
from storeformat.javacompat import decode_java_utf8
from storeformat.log.segments import Segment, segment_with
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files, locations
from storeformat.storage.durable import Content, measured, read_back_whole, stray_byte
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, file_name
from storeformat.store.settings import BATCH_SIZE, ENTRIES, EXT_SIZE, SLOTS, Settings
from udfs.log.staged_files import Readers, Slices
from udfs.log.staged_runs import TIME, times_path

Piece = bytes | bytearray | memoryview

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("data_size", pa.int64(), nullable=False),
        pa.field("sha256", pa.binary(32), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("offset_sum", pa.uint64(), nullable=False),
    ]
)
Row = dict[str, Any]
"""One written file by the names of ``SCHEMA``: its content, units or entries, and their offset sum modulo 2**64."""


def file_row(path: str, content: Content, totals: Totals | None = None) -> Row:
    count, offset_sum = (totals.count, totals.offset_sum) if totals else (0, 0)
    return {"path": path, **vars(content), "count": count, "offset_sum": offset_sum}


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    """Rows as columns of ``SCHEMA``."""
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def rows_of(table: pa.Table) -> Iterator[Row]:
    for batch in table.to_batches(max_chunksize=1024):
        yield from batch.to_pylist()


@dataclass(frozen=True)
class Totals:
    """Units or entries of a file, their offset sum modulo 2**64, and modification time (milliseconds), if needed."""

    count: int = 0
    offset_sum: int = 0
    modified: int | None = None


def stored_size(root: str, data_size: int, size: int) -> int:
    """Length on storage: objects have no holes and end with their data; ``publish`` extends copies of them."""
    return size if locations.is_local(root) else data_size


@dataclass(frozen=True)
class OutputDirectory:
    """Output files below ``root``, with drafts in ``drafts``."""

    root: str
    drafts: str

    def make(
        self, path: str, write: Callable[[files.FileWriter], None], read_back: Callable[[str], tuple[Content, Totals]]
    ) -> Row:
        """Write a draft, check it with ``read_back``, and rename it; both get the draft's path."""
        target = locations.join(self.root, path)
        draft = files.draft_of(target, self.drafts)
        with files.FileWriter(draft) as writer:
            write(writer)
        content, tally = read_back(draft)
        if tally.modified is not None:
            files.set_modified(draft, tally.modified)
        files.settle(draft, target)
        return file_row(path, content, tally)

    def make_of(
        self, path: str, pieces: Iterable[Piece], size: int, tally: Callable[[memoryview], Totals], *, what: str
    ) -> Row:
        """Make a file of ``size`` bytes from pieces; ``tally`` gets their bytes as read back."""
        used = 0

        def write(writer: files.FileWriter) -> None:
            nonlocal used
            for piece in pieces:
                writer.write(piece)
                used += len(piece)
            writer.finish(stored_size(self.root, used, size))

        def read_back(draft: str) -> tuple[Content, Totals]:
            length, named = stored_size(self.root, used, size), locations.join(self.root, path)
            stored, content = read_back_whole(draft, used, length, path=named, what=what)
            return replace(content, size=size), tally(stored)

        return self.make(path, write, read_back)


_READ_CHUNK = ENTRY_SIZE * (1 << 16)


@dataclass(frozen=True)
class PlannedQueueFile:
    """One file of a queue, named by the byte offset ``base``: ``pre_blanks``, then the units of the slices.
    ``closed``: another file of the queue follows.
    """

    directory: str
    queue: tuple[str, int]
    base: int
    slices: Slices
    pre_blanks: int = 0
    closed: bool = False

    @property
    def path(self) -> str:
        return _path(self.directory, self.queue, self.base)


def _path(directory: str, queue: tuple[str, int], base: int) -> str:
    return locations.join(directory, queue[0], str(queue[1]), file_name(base))


@dataclass(frozen=True)
class PlannedQueueFiles:
    """Files of one kind of queue as a table: rows of ``FILE``, whose keys are number into ``topics`` << 32 | queue id.
    Slices may have a column ``ext_number``: the number in consumequeue_ext of their first unit, whose address replaces
    the tags code; -1 for none.
    """

    directory: str
    topics: tuple[bytes, ...]
    files: Structs
    slices: Slices

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[PlannedQueueFile]:
        for (key, base, pre_blanks, _, closed), (begin, end) in zip(
            self.files.tolist(), pairwise(self._edges().tolist()), strict=True
        ):
            yield PlannedQueueFile(self.directory, self._queue(key), base, self.slices[begin:end], pre_blanks, closed)

    def paths(self) -> Iterator[str]:
        for key, base in self.files[["key", "base"]].tolist():
            yield _path(self.directory, self._queue(key), base)

    def _queue(self, key: int) -> tuple[str, int]:
        return decode_java_utf8(self.topics[key >> 32]), key & 0xFFFFFFFF

    def _edges(self) -> Int64s:
        return np.append(0, np.cumsum(self.files["slices"], dtype=np.int64))

    def counts(self) -> Int64s:
        """Units of each file, with fillers, without pre-blanks."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.add.reduceat(self.slices.table["count"], self._edges()[:-1], dtype=np.int64)

    def batches(self, most_files: int, units: int) -> list[PlannedQueueFiles]:
        """Parts of at most ``most_files`` files and ``units`` units, or of one file."""
        begins, room = [0], units
        for number, count in enumerate(self.counts().tolist()):
            if number > begins[-1] and (count > room or number - begins[-1] == most_files):
                begins.append(number)
                room = units
            room -= count
        edges = self._edges()
        return [self._part(begin, end, edges) for begin, end in pairwise([*begins, len(self)]) if begin < end]

    def _part(self, begin: int, end: int, edges: Int64s) -> PlannedQueueFiles:
        files = self.files[begin:end].copy()
        topics, numbers = np.unique(files["key"] >> 32, return_inverse=True)
        files["key"] = numbers << 32 | files["key"] & 0xFFFFFFFF
        names = tuple(self.topics[topic] for topic in topics.tolist())
        return PlannedQueueFiles(self.directory, names, files, self.slices[edges[begin] : edges[end]])


@dataclass(frozen=True, slots=True)
class PlannedIndexFile:
    """One index file to make; ``previous`` is source and row of the previous file's last entry."""

    path: str
    slices: Slices
    previous: tuple[str, int] | None


def queue_file_sizes(settings: Settings) -> dict[str, int]:
    """Size of the files of each kind of queue."""
    return {
        CONSUME_QUEUE: settings.queue_file_size,
        BATCH_CONSUME_QUEUE: settings.number(BATCH_SIZE),
        CONSUME_QUEUE_EXT: settings.number(EXT_SIZE),
    }


@dataclass(frozen=True)
class BuildFiles:
    """Makes index files, and batches of queue files of all kinds. ``stamped_from``: segments for the modification times
    of consume queues (time search up to 5.1.0); ``count_every_put``: hashSlotCount of brokers before 4.7.1.
    """

    output: OutputDirectory
    settings: Settings
    stamped_from: tuple[Segment, ...] = ()
    count_every_put: bool = False

    def __call__(self, planned: Iterator[PlannedIndexFile | Iterable[PlannedQueueFile]]) -> Iterator[pa.RecordBatch]:
        for item in planned:
            with Readers() as readers:
                if isinstance(item, PlannedIndexFile):
                    yield batch_of([self._build_index_file(item, readers)])
                else:
                    yield batch_of(self._build_queue_file(file, readers) for file in item)

    def _build_queue_file(self, file: PlannedQueueFile, readers: Readers) -> Row:
        return self.output.make_of(
            file.path,
            self._pieces(file, readers),
            queue_file_sizes(self.settings)[file.directory],
            lambda stored: self._tally(stored, file, readers),
            what=f"a {file.directory} file",
        )

    def _pieces(self, file: PlannedQueueFile, readers: Readers) -> Iterator[Piece]:
        if file.directory == CONSUME_QUEUE_EXT:
            units = _ext_units(file, readers)
        elif file.directory == BATCH_CONSUME_QUEUE:
            units = staged_units(file, readers, batch_consume_queue.UNIT)
        else:
            yield consume_queue.PRE_BLANK * file.pre_blanks
            units = self._with_addresses(file, staged_units(file, readers, consume_queue.UNIT))
        for piece in units:
            yield piece.view(np.uint8).data
        if file.directory == CONSUME_QUEUE_EXT and file.closed:
            yield consume_queue_ext.END_MARK

    def _with_addresses(self, file: PlannedQueueFile, pieces: Iterator[Structs]) -> Iterator[Structs]:
        """Replace tags codes by addresses; the copies of a filler share one."""
        table = file.slices.table
        if "ext_number" not in (table.dtype.names or ()):
            yield from pieces
            return
        for units, row in zip(pieces, table, strict=True):
            if row["ext_number"] >= 0:
                count = 1 if row["filler"] else len(units)
                first, size = int(row["ext_number"]), self.settings.number(EXT_SIZE)
                units["tags_code"] = consume_queue_ext.addresses(first, count, size)
            yield units

    def _tally(self, stored: memoryview, file: PlannedQueueFile, readers: Readers) -> Totals:
        if file.directory == CONSUME_QUEUE_EXT:
            return Totals(consume_queue_ext.written_units(stored))
        kind = batch_consume_queue if file.directory == BATCH_CONSUME_QUEUE else consume_queue
        units = kind.parse_units(stored)
        own = units[file.pre_blanks : kind.written_units(units)]
        modified = None
        if kind is consume_queue:
            if bool(consume_queue.is_pre_blank(own).any()):
                raise TotalsDisagree(
                    "a consume-queue file holds a pre-blank unit after its first message", path=file.path
                )
            if self.stamped_from:
                offset = int(own["phy_offset"][-1])
                segment = segment_with(self.stamped_from, offset)
                modified = store_timestamp_at(readers.open(segment.path), offset - segment.base)
        return Totals(len(own), sum_of_offsets(own["phy_offset"]), modified)

    def _build_index_file(self, file: PlannedIndexFile, readers: Readers) -> Row:
        start = index_file.first_header()
        if file.previous is not None:
            entry = readers.rows(file.previous[0], ROW, file.previous[1], 1)[0]
            start = index_file.first_header(int(entry["store_timestamp"]), int(entry["offset"]))
        slots, size = self.settings.number(SLOTS), self.settings.index_file_size
        header, end = start, 0

        def write(writer: files.FileWriter) -> None:
            nonlocal header, end
            chunks, most, every = (
                _entry_chunks(file.slices, readers),
                self.settings.number(ENTRIES),
                self.count_every_put,
            )
            header = index_file.build_index_file(
                chunks, slots, most, writer.write_at, start=start, count_every_put=every
            )
            end = entries_position(slots) + ENTRY_SIZE * (1 + header.entries)
            writer.finish(stored_size(self.output.root, end, size))

        return self.output.make(file.path, write, lambda draft: self._read_back(file.path, draft, header, end))

    def _read_back(self, path: str, draft: str, written: IndexHeader, end: int) -> tuple[Content, Totals]:
        digest, total = hashlib.sha256(), 0
        size, first_entry = self.settings.index_file_size, entries_position(self.settings.number(SLOTS)) + ENTRY_SIZE
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


def staged_units(file: PlannedQueueFile, readers: Readers, kind: np.dtype[np.void]) -> Iterator[Structs]:
    """Units of a consume-queue file, rows of ``kind``, slice by slice, writable. Lost messages get copies of a
    neighbour's unit: a filler must be valid or recovery ends the queue, and no pre-blank, or consumers skip messages.
    """
    for (path, begin, count), filler in zip(file.slices, file.slices.table["filler"].tolist(), strict=True):
        units = readers.rows(path, kind, begin, 1 if filler else count)
        yield np.repeat(units, count) if filler else units


def _ext_units(file: PlannedQueueFile, readers: Readers) -> Iterator[Structs]:
    for source, begin, count in file.slices.steps(1 << 16):
        units = readers.rows(source, consume_queue.UNIT, begin, count)
        times = readers.rows(times_path(source), TIME, begin, count)
        yield consume_queue_ext.pack_units(units["tags_code"], times)


def _entry_chunks(slices: Slices, readers: Readers) -> Iterator[tuple[Int32s, Int64s, Int64s]]:
    """Staged columns of a file in pieces; each is overwritten by the next."""
    buffer = bytearray(index_file.ENTRIES_AT_ONCE * ROW.itemsize)
    for source, begin, count in slices.steps(index_file.ENTRIES_AT_ONCE):
        rows = readers.rows(source, ROW, begin, count, buffer)
        yield rows["key_hash"], rows["offset"], rows["store_timestamp"]


def staged_timestamp(source: str, row: int) -> int:
    """Store time (milliseconds) of one staged index entry."""
    with Readers() as readers:
        return int(readers.rows(source, ROW, row, 1)["store_timestamp"][0])
