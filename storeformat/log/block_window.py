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

BLOCK_SIZE = 4 << 20  # bytes read and decoded at a time


class BlockWindow:
    """One padded buffer over a segment file, reused for every block because fresh memory is slow."""

    def __init__(self, reader: RangeReader, segment: Segment) -> None:
        self._reader = reader
        self.segment = segment
        self._data = bytearray(0)
        self.offset = 0
        self.length = 0

    def another(self) -> BlockWindow:
        return BlockWindow(self._reader, self.segment)

    def load(self, offset: int, length: int) -> None:
        """Load ``length`` bytes of the log from ``offset``."""
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
        """First log offset in [start, stop) whose loaded head certifies a record."""
        return self.segment.framing.find(self._data, self.offset, self.length, start, stop)

    def is_zero(self, begin: int, end: int, block_size: int = BLOCK_SIZE) -> bool:
        """True if all bytes of [begin, end) are zero. Loads block by block, skipping holes."""
        at = begin
        while at < end:
            length = min(block_size, end - at)
            self.load(at, length)
            if self.bytes[:length].any():
                return False
            at = self.next_data(at + length)
        return True

    def next_data(self, offset: int) -> int:
        """First log offset from ``offset`` on that is not in a known hole of the file."""
        return self.segment.base + self._reader.next_data(offset - self.segment.base)

    @property
    def framing(self) -> Framing:
        return self.segment.framing

    def certifies_inside(self, start: int, stop: int, limit: int) -> bool:
        """True if a certified record begins in [start, stop), its head below ``limit``. Keeps the window."""
        reach = min(stop + m.CERTIFICATE_SIZE - 1, limit)
        if self.offset <= start and reach <= self.offset + self.length:
            return self.find_certificate(start, stop) is not None
        other = self.another()
        other.load(start, reach - start)
        return other.find_certificate(start, stop) is not None


@dataclass(frozen=True)
class CertificateSearch:
    """The first certified record in a range, and whether all bytes before it are zero."""

    first: int | None
    all_zero: bool


def certificates(window: BlockWindow, start: int, stop: int, limit: int) -> Iterator[int]:
    """Yield every certified record that begins in [start, stop), reading each block once."""
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
    """Find the first certified record that begins in [start, stop); its head may reach up to ``limit``."""
    all_zero = True
    at = start
    while at < stop:
        length = min(block_size + window.framing.certificate_size, limit - at)
        window.load(at, length)
        # Mostly the unwritten end of a log is searched; the zero check takes a tenth of a search.
        if not window.bytes[:length].any():
            # A hole may begin with the zeros of a record's head that continues after it.
            at = max(at + block_size, window.next_data(at + block_size) - window.framing.certificate_size)
            continue
        found = window.find_certificate(at, stop)
        seen = (stop if found is None else found) - at
        all_zero = all_zero and not window.bytes[: min(length, seen)].any()
        if found is not None:
            return CertificateSearch(found, all_zero)
        at += block_size
    return CertificateSearch(None, all_zero)
