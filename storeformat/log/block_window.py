"""A segment read block by block into one buffer, and the search for the next certified record in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from storeformat import message as m
from storeformat.kernels import PADDING
from storeformat.log.framing import Framing
from storeformat.log.segments import Segment
from storeformat.storage.files import RangeReader

BLOCK_SIZE = 4 << 20
"""Bytes read and decoded at a time."""


class BlockWindow:
    """One reused, padded buffer over a segment file. Fresh memory is dear; a task reads every block into the same
    bytes.
    """

    def __init__(self, reader: RangeReader, segment: Segment) -> None:
        self._reader = reader
        self.segment = segment
        self._data = bytearray(0)
        self.offset = 0
        self.length = 0

    def another(self) -> BlockWindow:
        """Returns a second window over the same file."""
        return BlockWindow(self._reader, self.segment)

    def load(self, offset: int, length: int) -> None:
        """Makes the window hold ``length`` bytes of the log from ``offset``."""
        if len(self._data) < length + PADDING:
            self._data = bytearray(length + PADDING)
        with memoryview(self._data) as view:
            self._reader.read_into(offset - self.segment.base, view[:length])
            view[length : length + PADDING] = bytes(PADDING)
        self.offset, self.length = offset, length

    @property
    def bytes(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """The loaded bytes and their padding."""
        return np.frombuffer(self._data, np.uint8, self.length + PADDING)

    def find_certificate(self, start: int, stop: int) -> int | None:
        """Returns the first log offset p in [start, stop) whose head is loaded and certifies a record at p."""
        return self.segment.framing.find(self._data, self.offset, self.length, start, stop)

    def is_zero(self, begin: int, end: int, block_size: int = BLOCK_SIZE) -> bool:
        """Returns whether all bytes of [begin, end) are zero; they are loaded block by block, up to the first other,
        but for holes.
        """
        at = begin
        while at < end:
            length = min(block_size, end - at)
            self.load(at, length)
            if self.bytes[:length].any():
                return False
            at = self.next_data(at + length)
        return True

    def next_data(self, offset: int) -> int:
        """Returns the first log offset from ``offset`` on that is in no hole of the file, as far as that is known."""
        return self.segment.base + self._reader.next_data(offset - self.segment.base)

    @property
    def framing(self) -> Framing:
        """How records lie in the segment."""
        return self.segment.framing

    def certifies_inside(self, start: int, stop: int, limit: int) -> bool:
        """Returns whether a certified record begins in [start, stop), its head below ``limit``; the window stays."""
        reach = min(stop + m.CERTIFICATE_SIZE - 1, limit)
        if self.offset <= start and reach <= self.offset + self.length:
            return self.find_certificate(start, stop) is not None
        other = self.another()
        other.load(start, reach - start)
        return other.find_certificate(start, stop) is not None


@dataclass(frozen=True)
class CertificateSearch:
    """What lies in a range: the first certified record, if any, and whether all bytes before it (or all at all) are
    zero.
    """

    first: int | None
    all_zero: bool


def certificates(window: BlockWindow, start: int, stop: int, limit: int) -> Iterator[int]:
    """Yield every certified record that begins in [start, stop); a block is read once, whatever is in it."""
    at = start
    while (found := search_certificate(window, at, stop, limit).first) is not None:
        seen = min(stop, window.offset + window.length - window.framing.certificate_size + 1)
        while found is not None:
            yield found
            at = found + 1
            found = window.find_certificate(at, seen)
        at = max(at, seen)


def search_certificate(
    window: BlockWindow, start: int, stop: int, limit: int, block_size: int = BLOCK_SIZE
) -> CertificateSearch:
    """Looks for the first certified record that begins in [start, stop); its head may reach up to ``limit``."""
    all_zero = True
    at = start
    while at < stop:
        length = min(block_size + window.framing.certificate_size, limit - at)
        window.load(at, length)
        # Most of what is searched is the unwritten end of a log; to see that it is zero takes a tenth of a search.
        if not window.bytes[:length].any():
            # A hole may begin with the zeros of a record's head, whose rest comes after it.
            at = max(at + block_size, window.next_data(at + block_size) - window.framing.certificate_size)
            continue
        found = window.find_certificate(at, stop)
        seen = (stop if found is None else found) - at
        all_zero = all_zero and not window.bytes[: min(length, seen)].any()
        if found is not None:
            return CertificateSearch(found, all_zero)
        at += block_size
    return CertificateSearch(None, all_zero)
