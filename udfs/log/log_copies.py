"""Compare two copies of a log in a Spark task, and make one from several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.log.segments import Segment
from storeformat.storage import files

CHUNK = 8 << 20

ByteRange = tuple[int, int]


@dataclass(frozen=True)
class SharedRange:
    """Bytes [begin, end) of the log in the same segment of two copies."""

    one: Segment
    other: Segment
    begin: int
    end: int


def first_difference(shared: SharedRange) -> int | None:
    """Log offset of the first differing byte in two copies of a range."""
    with files.RangeReader(shared.one.path) as one, files.RangeReader(shared.other.path) as other:
        for at in range(shared.begin, shared.end, CHUNK):
            sides = ((one, shared.one), (other, shared.other))
            length = min(CHUNK, shared.end - at)
            left, right = (np.frombuffer(reader.read(at - copy.base, length), np.uint8) for reader, copy in sides)
            if (differs := left != right).any():
                return at + int(differs.argmax())
    return None


def compare_copies(ranges: Iterator[SharedRange]) -> Iterator[int | None]:
    """``first_difference`` of each range."""
    return map(first_difference, ranges)


@dataclass(frozen=True)
class MadeSegment:
    """A segment to make from ``own``'s file and ranges of other copies; zeros elsewhere."""

    own: Segment
    path: str
    taken: tuple[tuple[int, int, Segment], ...] = ()


def parts_of(made: MadeSegment) -> Iterator[tuple[int, bytes]]:
    """Positions and bytes of a segment to make."""
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
            with files.RangeReader(source.path) as reader:
                for position in range(begin - source.base, end - source.base, CHUNK):
                    yield position, reader.read(position, min(CHUNK, end - source.base - position))


def make_segment(made: MadeSegment) -> None:
    """Write a segment to ``made.path``, a new file."""
    with files.FileWriter(made.path) as writer:
        for position, data in parts_of(made):
            writer.write_at(position, data)
        writer.finish(made.own.size)


def ranges_by_segment(ranges: Sequence[ByteRange], segment: Segment) -> list[ByteRange]:
    """Clip ranges to a segment."""
    cut = [(max(begin, segment.base), min(end, segment.end)) for begin, end in ranges]
    return [(begin, end) for begin, end in cut if begin < end]


def joined(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Sort ranges, merge those that touch or overlap, and drop empty ones."""
    found: list[ByteRange] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def common(one: Sequence[ByteRange], other: Sequence[ByteRange]) -> list[ByteRange]:
    """Bytes in both."""
    return without(one, without(one, other))


def without(ranges: Sequence[ByteRange], taken: Sequence[ByteRange]) -> list[ByteRange]:
    """Bytes of ``ranges`` that are not in ``taken``."""
    found: list[ByteRange] = []
    at = 0
    for first, end in ranges:
        begin = first
        while at < len(taken) and taken[at][1] <= begin:
            at += 1
        number = at
        while number < len(taken) and taken[number][0] < end:
            if begin < taken[number][0]:
                found.append((begin, taken[number][0]))
            begin = max(begin, taken[number][1])
            number += 1
        if begin < end:
            found.append((begin, end))
    return found
