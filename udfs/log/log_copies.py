"""Two copies of a log held against each other, inside a Spark task, and one made out of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Bytes
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment
from storeformat.record.decode import HEADS_ONLY, DecodeRules, decode, rows_with_property_crc
from storeformat.storage import files

CHUNK = 8 << 20
_FIRST = np.zeros(1, np.int64)


@dataclass(frozen=True)
class SharedRange:
    """Bytes [begin, end) of the log that lie in a segment of one copy, and in the same one of another."""

    one: Segment
    other: Segment
    begin: int
    end: int


@dataclass(frozen=True)
class Difference:
    """Where two copies differ in bytes that are sound in both: the log offset of the first byte where nothing shows
    which is right, None if there is none, and the records [begin, end) that are wrong in the one or in the other.
    """

    offset: int | None = None
    wrong_in_one: tuple[tuple[int, int], ...] = ()
    wrong_in_other: tuple[tuple[int, int], ...] = ()


def difference(shared: SharedRange) -> Difference:
    """Returns how two copies differ in a range that they share."""
    wrong: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
    with files.RangeReader(shared.one.path) as one, files.RangeReader(shared.other.path) as other:
        records = _records(one, shared)
        judged = shared.begin
        for at in range(shared.begin, shared.end, CHUNK):
            length = min(CHUNK, shared.end - at)
            sides = ((one, shared.one), (other, shared.other))
            left, right = (np.frombuffer(reader.read(at - copy.base, length), np.uint8) for reader, copy in sides)
            for offset in (at + np.flatnonzero(left != right)).tolist():
                if offset < judged:
                    continue
                begin, end = next((item for item in records if item[1] > offset), (offset, offset))
                which = _wrong_copy(begin, end - begin, *(_record(*side, begin, end - begin) for side in sides))
                if which is None:
                    return Difference(offset, tuple(wrong[0]), tuple(wrong[1]))
                wrong[which].append((begin, end))
                judged = end
    return Difference(None, tuple(wrong[0]), tuple(wrong[1]))


def _records(reader: files.RangeReader, shared: SharedRange) -> Iterator[tuple[int, int]]:
    """Yields the records of a range, which begins with one."""
    for block in chain_from(BlockWindow(reader, shared.one), shared.begin, HEADS_ONLY, stop=shared.end):
        yield from zip(block.offsets.tolist(), (block.offsets + block.heads.total_size).tolist(), strict=True)


def _wrong_copy(offset: int, size: int, one: Bytes, other: Bytes) -> int | None:
    """Returns which of two copies of a record is wrong, None where nothing shows it.

    Damage of the last bytes of a record takes away the property CRC that would show it. Two masters after a split write
    other heads, too: so where heads and bodies are the same and one copy alone has that CRC, it is right.
    """
    head = decode(one, offset, _FIRST, HEADS_ONLY)[0]
    if not len(head) or head.heads.total_size[0] != size:
        return None
    reach = int(head.heads.body_start[0] + head.heads.body_length[0])
    if not np.array_equal(one[:reach], other[:reach]):
        return None
    proven = [_has_property_crc(data, offset) for data in (one, other)]
    return None if proven[0] == proven[1] else proven.index(False)


def _has_property_crc(record: Bytes, offset: int) -> bool:
    block, fault = decode(record, offset, _FIRST, DecodeRules())
    return fault is None and rows_with_property_crc(block).size > 0


def _record(reader: files.RangeReader, segment: Segment, offset: int, size: int) -> Bytes:
    """Returns the bytes of a record and the padding that kernels need."""
    window = BlockWindow(reader, segment)
    window.load(offset, size)
    return window.bytes


def compare_copies(ranges: Iterator[SharedRange]) -> Iterator[Difference]:
    """Yields, for each range that two copies share, how they differ in it."""
    return map(difference, ranges)


@dataclass(frozen=True)
class MadeSegment:
    """A segment to be made: all of ``own`` that its file holds, with some ranges taken from the same segment of other
    copies; zeros where none has bytes.
    """

    own: Segment
    path: str
    taken: tuple[tuple[int, int, Segment], ...] = ()


def parts_of(made: MadeSegment) -> Iterator[tuple[int, bytes]]:
    """Yields the bytes of a segment to be made, with their positions in it."""
    own = made.own
    held = own.end - own.missing
    at = own.base
    parts: list[tuple[int, int, Segment]] = []
    for begin, end, source in made.taken:
        parts += [(at, min(begin, held), own), (begin, end, source)]
        at = end
    parts.append((at, held, own))
    for begin, end, source in parts:
        if begin < end:
            yield from _chunks(begin, end, source)


def _chunks(begin: int, end: int, source: Segment) -> Iterator[tuple[int, bytes]]:
    with files.RangeReader(source.path) as reader:
        for at in range(begin, end, CHUNK):
            yield at - source.base, reader.read(at - source.base, min(CHUNK, end - at))


def make_segment(made: MadeSegment) -> None:
    """Writes a segment to ``made.path``; raises WriteFailed if a file is there, MissingInput if a copy has shrunk."""
    with files.FileWriter(made.path) as writer:
        for position, data in parts_of(made):
            writer.write_at(position, data)
        writer.finish(made.own.size)


def ranges_by_segment(ranges: Sequence[tuple[int, int]], segment: Segment) -> list[tuple[int, int]]:
    """Returns the parts of ranges that lie in a segment."""
    cut = [(max(begin, segment.base), min(end, segment.end)) for begin, end in ranges]
    return [(begin, end) for begin, end in cut if begin < end]
