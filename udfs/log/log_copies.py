"""Two copies of a log held against each other, inside a Spark task, and one made out of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.log.segments import Segment
from storeformat.storage import files

CHUNK = 8 << 20


@dataclass(frozen=True)
class SharedRange:
    """Bytes [begin, end) of the log that lie in a segment of one copy, and in the same one of another."""

    one: Segment
    other: Segment
    begin: int
    end: int


def first_difference(shared: SharedRange) -> int | None:
    """Returns the log offset of the first byte in which two copies of a range differ, None where they are the same."""
    with files.RangeReader(shared.one.path) as one, files.RangeReader(shared.other.path) as other:
        for at in range(shared.begin, shared.end, CHUNK):
            sides = ((one, shared.one), (other, shared.other))
            length = min(CHUNK, shared.end - at)
            left, right = (np.frombuffer(reader.read(at - copy.base, length), np.uint8) for reader, copy in sides)
            if (differs := left != right).any():
                return at + int(differs.argmax())
    return None


def compare_copies(ranges: Iterator[SharedRange]) -> Iterator[int | None]:
    """Yields, for each range that two copies share, where they first differ in it."""
    return map(first_difference, ranges)


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
            with files.RangeReader(source.path) as reader:
                for position in range(begin - source.base, end - source.base, CHUNK):
                    yield position, reader.read(position, min(CHUNK, end - source.base - position))


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
