"""Segments and framing: which bytes of the log are records.

A record exists if the sizes from its segment's first byte lead to it; that is how ``CommitLog#recoverNormally`` and
``DefaultMessageStore.ReputMessageService#doReput`` read. A certificate (magic at +4, the record's own PHYSICALOFFSET at
+28) is necessary but not sufficient: old records with the right offset can lie behind a BLANK or behind the true end,
and a body can hold a copy of a record.

So a segment is read in *splits*. A split owns the records whose first byte lies in it and finds its first one by
certificate; each reports where its chain began and where it ended, and ``follow_chain`` walks these reports from each
segment's first byte. A split whose guess was wrong is read again from the start that the chain proves. The result is
the sequential one, for every split size. What lies between one record and the next, and what certifies one, is the
affair of the segment's ``Framing``: in the log of a DLedger group records lie in entries.

=============  ================================================================
segment name   20 decimal digits: the log offset of its first byte
BLANK          TOTALSIZE = rest of the segment, magic 0xCBD43194; closes a segment
unwritten      zeros from the log's end to the end of the last written segment
=============  ================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.kernels import PADDING
from storeformat.log.framing import PLAIN, WRONG_BLANK, ChainEnd, EntryNumber, Framing, Verdict
from storeformat.record.decode import DecodeRules, Fault, RecordBlock, decode
from storeformat.storage.files import RangeReader

BLOCK_SIZE = 4 << 20
"""Bytes read and decoded at a time."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the commit log: ``base`` is the log offset of its first byte, ``size`` its length."""

    path: str
    base: int
    size: int
    framing: Framing = PLAIN

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True, slots=True)
class Split:
    """The part [start, stop) of a segment: it owns the records that begin there.

    Data ends at ``limit`` (the segment's end, or where the log is cut by ``--until-offset``). ``first_record`` is where
    the chain is known to stand, None if that is still to be found.
    """

    number: int
    segment: Segment
    start: int
    stop: int
    limit: int
    first_record: int | None = None


def plan_splits(
    segments: Sequence[Segment], split_size: int, until: int | None = None, begin: int | None = None
) -> list[Split]:
    """Returns the splits of all segments in [begin, until), in log order; ``split_size`` may be smaller than a record.

    ``begin`` must be a place to which the sizes are known to lead: where a record begins, or the log ends.
    """
    splits: list[Split] = []
    for segment in segments:
        limit = segment.end if until is None else min(segment.end, until)
        known = segment.base if begin is None else max(segment.base, begin)
        for start in range(known, limit, split_size):
            stop = min(start + split_size, limit)
            first = start if start == known else None
            splits.append(Split(len(splits), segment, start, stop, limit, first))
    return splits


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
        """Returns whether all bytes of [begin, end) are zero; they are loaded block by block, up to the first other."""
        for at in range(begin, end, block_size):
            length = min(block_size, end - at)
            self.load(at, length)
            if self.bytes[:length].any():
                return False
        return True

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
class Search:
    """What lies in a range: the first certified record, if any, and whether all bytes before it (or all at all) are
    zero.
    """

    first: int | None
    all_zero: bool


def search_certificate(window: BlockWindow, start: int, stop: int, limit: int, block_size: int = BLOCK_SIZE) -> Search:
    """Looks for the first certified record that begins in [start, stop); its head may reach up to ``limit``."""
    all_zero = True
    at = start
    while at < stop:
        length = min(block_size + window.framing.certificate_size, limit - at)
        window.load(at, length)
        # Most of what is searched is the unwritten end of a log; to see that it is zero takes a tenth of a search.
        found = window.find_certificate(at, stop) if window.bytes[:length].any() else None
        seen = (stop if found is None else found) - at
        all_zero = all_zero and not window.bytes[: min(length, seen)].any()
        if found is not None:
            return Search(found, all_zero)
        at += block_size
    return Search(None, all_zero)


class ChainWalk:
    """Iterates over the decoded blocks of a chain that begins at ``position`` and belongs to ``split``.

    When the iteration is over, ``position`` is where the next link would begin, ``ended`` says why it stopped, and
    ``defect`` why the bytes there are no record if that was the reason; ``first`` and ``last`` are the numbers of the
    first and the last link, where links have numbers.
    """

    def __init__(
        self, window: BlockWindow, split: Split, position: int, rules: DecodeRules, block_size: int = BLOCK_SIZE
    ) -> None:
        self._window = window
        self._split = split
        self._rules = rules
        self._block_size = block_size
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
            block, fault = decode(buffer, base, links + framing.head_size, self._rules)
            ghost = self._no_ghost(block)
            if ghost is not None:
                block, fault = block.head(ghost), Fault(ghost, RecordDefect.FOREIGN_OFFSET)
            if len(block):
                self.first = self.first or framing.number_at(buffer, int(links[0]))
                self.last = framing.number_at(buffer, int(links[len(block) - 1]))
                yield block
            self.position = base + (reached if fault is None else int(links[fault.row]))
            if self.position >= split.stop:
                return
            if ghost is not None:
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

    def finish(self) -> ChainWalk:
        """Walks to the end, for what is known then: the records are checked and dropped."""
        for _ in self:
            pass
        return self

    def _no_ghost(self, block: RecordBlock) -> int | None:
        """Returns the first record of another place that is not one of those a broker leaves and steps over.

        Those follow a record, so a segment that begins with one was renamed or moved. And they were written whole: one
        in which a certified record begins, its body aside, is a damaged one, or a copy, whose size leads astray.
        """
        rows = np.flatnonzero(~block.genuine)
        if not rows.size:
            return None
        if not self._split.segment.framing.has_ghosts:
            return int(rows[0])
        if self._rules.as_broker:
            return None
        if not rows[0] and block.offsets[0] == self._split.segment.base:
            return 0
        body_ends = block.buffer_offset + block.heads.body_start + block.heads.body_length
        ends = block.offsets + block.heads.total_size
        for row in rows.tolist():
            if self._window.certifies_inside(int(body_ends[row]), int(ends[row]), self._split.limit):
                return row
        return None

    def _judge_head(self) -> Verdict:
        """Returns why there is no link at ``position``, or the size of the link whose head is there."""
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
    """Returns the walk of the chain from a place of the window's segment to which the sizes are known to lead.

    Links are taken that begin below ``stop``, and nothing is read behind ``limit``: by default the segment's end.
    """
    segment = window.segment
    stop, limit = (segment.end if end is None else end for end in (stop, limit))
    return ChainWalk(window, Split(0, segment, start, stop, limit, start), start, rules, block_size)


@dataclass(frozen=True, slots=True)
class Sight:
    """What one certified record says of its time and place; enough to tell a survivor from a leftover of an older
    log.
    """

    offset: int
    store_timestamp: int
    topic: bytes
    queue_id: int
    queue_offset: int
    queued: bool = True
    """Whether it takes a place in its queue: prepared and rolled back messages do not."""


def sight_at(block: RecordBlock, row: int) -> Sight:
    """Returns what one record of a block says of itself."""
    heads = block.heads
    kind = int(heads.sys_flag[row]) & m.TRANSACTION_MASK
    return Sight(
        offset=int(block.offsets[row]),
        store_timestamp=int(heads.store_timestamp[row]),
        topic=block.topics[block.topic_codes[row]],
        queue_id=int(heads.queue_id[row]),
        queue_offset=int(heads.queue_offset[row]),
        queued=kind in (m.TRANSACTION_NONE, m.TRANSACTION_COMMIT),
    )


def sight_of(block: RecordBlock) -> Sight | None:
    """Returns the sight of the first genuine record of a block."""
    rows = np.flatnonzero(block.genuine)
    return sight_at(block, int(rows[0])) if rows.size else None


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What one split found: the chain from ``start`` to ``end``.

    ``start`` is None if no record was certified in the split; then ``end`` is the split's start. ``rest_is_zero``
    speaks of the bytes from ``end`` to the split's stop.
    ``plausible`` says that the bytes at a defect carry a record's magic or their own offset: something was meant to be
    there. ``first_number`` and ``last_number`` are those of its links, where they have any.
    """

    split: Split
    start: int | None
    end: int
    ended: ChainEnd
    defect: RecordDefect = RecordDefect.OK
    rest_is_zero: bool = True
    plausible: bool = False
    first_number: EntryNumber | None = None
    last_number: EntryNumber | None = None


@dataclass(frozen=True)
class Break:
    """A place where the chain of a segment ended before the segment did."""

    segment: Segment
    offset: int
    defect: RecordDefect
    report: ChainReport


@dataclass(frozen=True)
class Chain:
    """The proven chain: reports that count, splits to be read again from a known start, and where segments broke off.

    ``blanks`` holds the [begin, end) of the BLANKs, ``end`` is where the next record would be appended.
    """

    reports: list[ChainReport]
    rescans: list[Split]
    breaks: list[Break]
    blanks: list[tuple[int, int]]
    end: int


def follow_chain(segments: Sequence[Segment], splits: Sequence[Split], reports: Sequence[ChainReport]) -> Chain:
    """Returns what the sizes prove from each segment's first split on. ``reports[i]`` belongs to ``splits[i]``.

    If ``rescans`` is not empty, read those splits again, put the new reports in place and call again: each call proves
    at least one more split of every segment that was not done.
    """
    accepted: list[ChainReport] = []
    rescans: list[Split] = []
    breaks: list[Break] = []
    blanks: list[tuple[int, int]] = []
    by_segment: dict[int, list[int]] = {segment.base: [] for segment in segments}
    for index, split in enumerate(splits):
        by_segment[split.segment.base].append(index)
    end = splits[0].start if splits else segments[0].base if segments else 0
    number: EntryNumber | None = None
    for segment in segments:
        own = by_segment[segment.base]
        position = known = splits[own[0]].start if own else segment.base
        for index in own:
            split, report = splits[index], reports[index]
            if position >= split.stop:
                continue
            if report.start != position:
                rescans.append(replace(split, first_record=position))
                break
            if not segment.framing.follows(number, report.first_number, gap=bool(breaks)):
                breaks.append(Break(segment, position, RecordDefect.ENTRY_OUT_OF_ORDER, report))
                break
            number = report.last_number or number
            accepted.append(report)
            position = report.end
            if report.ended == ChainEnd.BLANK:
                blanks.append((position, segment.end))
                position = segment.end
            if report.ended == ChainEnd.DEFECT:
                breaks.append(Break(segment, position, report.defect, report))
            if report.ended != ChainEnd.STOP:
                break
        if position > known:
            end = position
    return Chain(accepted, rescans, breaks, blanks, end)
