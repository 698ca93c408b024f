"""Files of a store against the staged runs of its log, inside a Spark task: the counterpart of ``build``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Bools, Int64s, LogExtent, Structs
from storeformat.index.index_check import IndexCheck, IndexComparison, IndexFileComparer, Rows
from storeformat.index.index_file import ROW
from storeformat.log.chain_walk import BlockWindow
from storeformat.log.segments import Segment, segment_with
from storeformat.message import SCHEDULE_TOPIC
from storeformat.queues import consume_queue, consume_queue_ext
from storeformat.queues.batch_consume_queue import UNIT as BATCH_UNIT
from storeformat.queues.queue_check import Finding, UnitComparison, compare_units
from storeformat.record.decode import DecodeRules, decode
from storeformat.record.dispatch import DispatchRules, tags_codes
from storeformat.storage import files, locations
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, QueueDirectory
from udfs.files.build import PlannedQueueFile, staged_units
from udfs.log.staged_files import Readers

_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class ComparedQueueFile:
    """Result for one file; ``size`` is None if it is missing. ``first_expected``, ``last_expected``: commit-log offsets
    of its first and last unit by the log, -1 for none.
    """

    file: PlannedQueueFile
    size: int | None
    units: UnitComparison
    first_expected: int
    last_expected: int


@dataclass(frozen=True)
class CompareQueueFiles:
    """Compares queue files in batches; files that the log does not make have no slices, those before the queue's first
    only pre-blanks. ``staged``: path, number, and range of commit-log offsets of the units of each split.
    ``dispatched``: log offset that the broker must have come to (None: the end).
    """

    root: str
    file_size: int
    segments: tuple[Segment, ...]
    decode_rules: DecodeRules
    log: LogExtent
    staged: tuple[tuple[str, int, int, int], ...] = ()
    dispatched: int | None = None

    def __call__(self, batches: Iterator[Iterable[PlannedQueueFile]]) -> Iterator[ComparedQueueFile]:
        with Readers() as readers:
            for batch in batches:
                for file in batch:
                    yield self._compare(file, readers)

    def _compare(self, file: PlannedQueueFile, readers: Readers) -> ComparedQueueFile:
        path = locations.join(self.root, file.path)
        size = files.size_of(path)
        kind = BATCH_UNIT if file.directory == BATCH_CONSUME_QUEUE else consume_queue.UNIT
        own = range(file.pre_blanks, file.pre_blanks + file.slices.rows)
        found = np.zeros(max(own.stop, 1), kind)
        if size == self.file_size:
            found = self._read(path, len(found), kind)
        expected = np.zeros(len(found), kind)
        if kind == consume_queue.UNIT:
            expected[: own.start] = np.frombuffer(consume_queue.PRE_BLANK, kind)
        expected[own.start : own.stop] = np.concatenate([np.zeros(0, kind), *staged_units(file, readers, kind)])
        ends = expected["phy_offset"][[own[0], own[-1]]].tolist() if own else (-1, -1)
        if size and size != self.file_size:
            wrong = Finding("wrong_size", expected="the length of all others", found=size)
            return ComparedQueueFile(file, size, UnitComparison((wrong,)), *ends)
        fillers = np.zeros(len(found), bool)
        fillers[own.start : own.stop] = np.repeat(file.slices.table["filler"], file.slices.table["count"])
        other_codes = self._accept_tags_codes(file, expected, found, readers)
        compared = compare_units(
            expected, found, own, fillers, self.log,
            lambda units: self._are_records(units, readers), self.dispatched,
        )  # fmt: skip
        compared.counts.update(other_codes)
        return ComparedQueueFile(file, size, compared, *ends)

    def _read(self, path: str, at_least: int, kind: np.dtype[np.void]) -> Structs:
        """The units of a file up to the last that is not zero, and ``at_least`` so many; holes are not read."""
        content, end = bytearray(self.file_size), files.data_end(path, self.file_size)
        with files.RangeReader(path) as reader:
            reader.read_into(0, memoryview(content)[:end])
        tail = np.frombuffer(content, np.uint8)[at_least * kind.itemsize : end]
        more = int(np.flatnonzero(tail)[-1]) // kind.itemsize + 1 if tail.any() else 0
        return np.frombuffer(content, kind, at_least + more)

    def _accept_tags_codes(
        self, file: PlannedQueueFile, expected: Structs, found: Structs, readers: Readers
    ) -> Counter[str]:
        """Expect what a broker may write instead of a tags code: an address in consumequeue_ext; for a delivery time,
        that of another ``messageDelayLevel`` (whole seconds), or the tags' hash (recovery of 4.9.2 to 4.9.8).
        """
        codes, wanted = found["tags_code"].astype(np.int64), expected["tags_code"].astype(np.int64)
        same = (found["phy_offset"] == expected["phy_offset"]) & (found["size"] == expected["size"])
        same[: file.pre_blanks] = False
        other = np.flatnonzero(same & (codes != wanted))
        addresses = other[consume_queue_ext.is_address(codes[other])]
        accepted = {"ext": self._found_in_ext(file, addresses, codes, wanted, readers)}
        if file.queue[0] == SCHEDULE_TOPIC:
            times = other[wanted[other] > _INT32_MAX]
            accepted["delays"] = times[(codes[times] > _INT32_MAX) & ((codes - wanted)[times] % 1000 == 0)]
            hashes = times[codes[times] == codes[times].astype(np.int32)]
            real = np.array([self._tags_hash(expected[place], readers) for place in hashes.tolist()], np.int64)
            accepted["delivery_hashes"] = hashes[real == codes[hashes]]
        for places in accepted.values():
            expected["tags_code"][places] = codes[places]
        return Counter({name: len(places) for name, places in accepted.items()})

    def _found_in_ext(
        self, file: PlannedQueueFile, places: Int64s, codes: Int64s, wanted: Int64s, readers: Readers
    ) -> Int64s:
        """Places whose address leads to a unit of consumequeue_ext with the wanted tags code."""
        if not len(places):
            return places
        topic, queue = file.queue[0], str(file.queue[1])
        directory = QueueDirectory(topic, queue, locations.join(self.root, CONSUME_QUEUE_EXT, topic, queue))
        offsets, agrees = consume_queue_ext.unit_offsets(codes[places]), np.zeros(len(places), bool)
        for entry in directory.files():
            positions = offsets - int(entry.name)
            if ((positions >= 0) & (positions < entry.size)).any():
                content = np.frombuffer(readers.open(entry.path).read(0, entry.size), np.uint8)
                heads = consume_queue_ext.parse_unit_heads(content, positions)
                whole = heads["size"] == heads["bit_map_size"] + consume_queue_ext.UNIT_SIZE
                agrees |= whole & (heads["tags_code"] == wanted[places])
        return places[agrees]

    def _tags_hash(self, unit: np.void, readers: Readers) -> int:
        offset, size = int(unit["phy_offset"]), int(unit["size"])
        segment = segment_with(self.segments, offset)
        window = BlockWindow(readers.open(segment.path), segment)
        window.load(offset, size)
        block, _ = decode(window.bytes, offset, np.zeros(1, np.int64), self.decode_rules)
        return int(tags_codes(block, DispatchRules(delay_millis=()))[0])

    def _are_records(self, units: Structs, readers: Readers) -> Bools:
        """Which units are equal to a staged one in offset and size: the log has that record."""
        known = np.zeros(len(units), bool)
        for path, count, begin, end in self.staged:
            inside = np.flatnonzero((units["phy_offset"] >= begin) & (units["phy_offset"] < end))
            if len(inside):
                staged = readers.rows(path, units.dtype, 0, count)
                known[inside] = np.isin(_offsets_and_sizes(units[inside], begin), _offsets_and_sizes(staged, begin))
        return known


def _offsets_and_sizes(units: Structs, begin: int) -> Int64s:
    return np.asarray((units["phy_offset"].astype(np.int64) - begin) << 32 | units["size"])


@dataclass(frozen=True)
class CompareIndexFiles:
    """Compares index files with the staged entries; ``sizes``: maxHashSlotNum and maxIndexNum."""

    root: str
    sizes: tuple[int, int]
    sources: tuple[tuple[str, int], ...]
    log: LogExtent

    def rows(self, readers: Readers) -> Rows:
        return Rows(self.sources, lambda path, begin, count: readers.rows(path, ROW, begin, count))

    def __call__(self, checks: Iterator[IndexCheck]) -> Iterator[IndexComparison]:
        for check in checks:
            with Readers() as readers, files.RangeReader(locations.join(self.root, check.path)) as reader:
                yield IndexFileComparer(reader.read, self.sizes, self.rows(readers), self.log, check).compare()
