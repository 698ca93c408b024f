"""Walk the chain of records: TOTALSIZE leads from one to the next; decode and check each.

The segment's ``Framing`` handles the bytes between records (DLedger entries). Mirrors
``CommitLog#recoverNormally`` and ``DefaultMessageStore.ReputMessageService#doReput``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.errors import RecordDefect
from storeformat.kernels import PADDING
from storeformat.log.segments import WRONG_BLANK, ChainEnd, EntryNumber, Framing, Segment, Split, Verdict
from storeformat.record.decode import DecodeRules, Fault, RecordBlock, decode
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


TakeRecords = Callable[[Bytes, Int64s, int], int]
"""Number of leading records taken, from a buffer, record positions in it and the offset of its first byte."""


class ChainWalk:
    """Decoded blocks of a chain that begins at ``position`` in ``split``, and afterwards where and why it ended.
    ``take`` may take sound records from the front of each block; these are not decoded and not in the blocks.
    """

    def __init__(
        self,
        window: BlockWindow,
        split: Split,
        position: int,
        rules: DecodeRules,
        block_size: int = BLOCK_SIZE,
        take: TakeRecords | None = None,
    ) -> None:
        self._window = window
        self._split = split
        self._rules = rules
        self._block_size = block_size
        self._take = take
        self.position = position
        self.ended = ChainEnd.STOP
        self.defect = RecordDefect.OK
        self.first: EntryNumber | None = None
        self.last: EntryNumber | None = None

    def __iter__(self) -> Iterator[RecordBlock]:
        split, window, framing = self._split, self._window, self._split.segment.framing
        want = self._block_size
        while self.position < split.stop:
            base = self.position
            length = min(want, split.limit - base)
            window.load(base, length)
            buffer = window.bytes
            links, reached = framing.walk(buffer, min(split.stop - base, length), length, base, self.last)
            foreign, fault = None, None
            if self._take is not None:
                taken = self._take(buffer, links + framing.head_size, base)
                self._pass(buffer, links[:taken])
                links = links[taken:]
            if len(links):
                block, fault = decode(buffer, base, links + framing.head_size, self._rules)
                foreign = self._damaged_foreign_record(block)
                if foreign is not None:
                    block, fault = block.head(foreign), Fault(foreign, RecordDefect.FOREIGN_OFFSET)
                self._pass(buffer, links[: len(block)])
                if len(block):
                    yield block
            self.position = base + (reached if fault is None else int(links[fault.row]))
            if self.position >= split.stop:
                return
            if foreign is not None:
                self.ended, self.defect = ChainEnd.DEFECT, RecordDefect.FOREIGN_OFFSET
                return
            verdict = self._judge_head()
            if isinstance(verdict, int) and fault is None:
                want = max(self._block_size, verdict)
                continue
            if not isinstance(verdict, int):
                self.ended, self.defect = verdict
            elif fault is not None:
                self.ended, self.defect = ChainEnd.DEFECT, fault.defect
            return

    def _pass(self, buffer: Bytes, links: Int64s) -> None:
        if len(links):
            framing = self._split.segment.framing
            self.first = self.first or framing.number_at(buffer, int(links[0]))
            self.last = framing.number_at(buffer, int(links[-1]))

    def finish(self) -> ChainWalk:
        """Walk to the end, dropping the records."""
        for _ in self:
            pass
        return self

    def _damaged_foreign_record(self, block: RecordBlock) -> int | None:
        """A broker leaves foreign records only after a record and complete: a segment that begins with one was renamed
        or moved, and if a certified record begins inside one (outside its body), its size is damaged or it is a copy.
        """
        rows = np.flatnonzero(block.foreign)
        if not rows.size:
            return None
        if not self._split.segment.framing.allows_foreign_records:
            return int(rows[0])
        if self._rules.as_broker:
            return None
        if not rows[0] and block.offsets[0] == self._split.segment.base:
            return 0
        body_ends = block.buffer_offset + block.heads.body_start + block.heads.body_length
        ends = block.offsets + block.heads.total_size
        inside, limit = self._window.certifies_inside, self._split.limit
        return next((row for row in rows.tolist() if inside(int(body_ends[row]), int(ends[row]), limit)), None)

    def _judge_head(self) -> Verdict:
        split, window, framing = self._split, self._window, self._split.segment.framing
        allowed = split.limit - self.position
        at = self.position - window.offset
        if at + min(framing.judged_size, allowed) > window.length:
            window.load(self.position, min(framing.judged_size, allowed))
            at = 0
        if allowed < m.BLANK_SIZE:
            cut = split.limit < split.segment.end
            return (ChainEnd.CUT, RecordDefect.OK) if cut else (ChainEnd.DEFECT, RecordDefect.TRUNCATED)
        head = window.bytes[at : at + framing.judged_size].tobytes()
        room = split.segment.end - self.position
        verdict = framing.judge(head, self.position, room, allowed, self.last)
        if self._rules.as_broker and verdict == WRONG_BLANK and framing.blank_size(head) < room:
            return ChainEnd.BLANK, RecordDefect.OK
        return verdict


def chain_from(
    window: BlockWindow,
    start: int,
    rules: DecodeRules,
    *,
    stop: int | None = None,
    limit: int | None = None,
    block_size: int = BLOCK_SIZE,
) -> ChainWalk:
    """Walk links below ``stop`` from a proven record position; nothing after ``limit`` is read."""
    segment = window.segment
    stop, limit = (segment.end if end is None else end for end in (stop, limit))
    return ChainWalk(window, Split(0, segment, start, stop, limit, start), start, rules, block_size)
