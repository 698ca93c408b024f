"""Read on after damage: classify the rest of a segment as survivors and other ranges.

A survey reads from the break of a segment's chain to the segment's end, in log order, so that the result does not
depend on how the log was split. At a damaged record it asks, in this order:

1. Do the record's own bytes prove its length? Then only this record is lost, and the chain after it is proven.
2. Which is the next certified record that decodes without a defect, whose chain leads to a proven place (the end of
   the segment, a BLANK, the log's unwritten tail, a damaged record) or through free places of its queues, and that
   its neighbours do not contradict (``evidence``)? Proven bodies are not searched: they can hold copies of records.

Undecided chains are judged again at the end (``second_pass``). What remains is left out and reported: a missing message
can be reported, a wrong one cannot be taken back.

==============================================  ===========================================================
proof                                           what it proves
==============================================  ===========================================================
TOTALSIZE is the sum of the parts               the whole record (body, CRC or a name is damaged)
the body has its CRC at BODYLEN                 the body; and the end, if a record begins at an end that is named
BODYLEN and BODYCRC are 0                       the whole record, if one begins at the sum of the parts
the body has its CRC where TOTALSIZE puts it    the whole record (BODYLEN or SYSFLAG is damaged)
==============================================  ===========================================================

In a DLedger log entries are numbered without a gap and terms never fall: the next certified entry whose number goes on
from the last proven one survived; others are leftovers of an older log or copies in a body. An entry between two
survivors is one lost message.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.errors import RecordDefect
from storeformat.log.chain_walk import BlockWindow, ChainWalk, chain_from
from storeformat.log.dledger import BLANK_MAGIC, HEAD_SIZE, MIN_ENTRY_SIZE, EntryFraming
from storeformat.log.record_ref import RecordRef, first_record_ref
from storeformat.log.segments import ChainEnd, EntryNumber, Segment, find_records, judge_head
from storeformat.record.decode import DecodeRules, decode
from storeformat.salvage.evidence import Neighbours, SurvivorJudge
from storeformat.salvage.second_pass import find_survivors

SURVEY_BLOCK = 1 << 20  # bytes read at a time: many positions are checked, few bytes at each

_FIRST_BLOCK = 4 << 10  # bytes read to check for a record, few because every record may be damaged

MANY_ZEROS = 16  # this many zeros after a chain mean unwritten or lost pages

_MOST_GUESSES = 64
_BODY_LENGTH_POSITIONS = (84, 96, 108)  # after two short hosts, one long one, two
_MOST_BESIDE_BODY = m.MAX_HEAD_SIZE + 2 * (2 + (1 << 15))


class Finding(Enum):
    """Kind of a range without a survivor."""

    RECORD = "record"  # one of proven length; ``DeadRange.record`` is set if its head is sound
    BYTES = "bytes"  # at least one record was here
    UNFINISHED = "unfinished"  # the first bytes of one record, then zeros to the end of the data
    ZEROS = "zeros"  # to the end of the data: unwritten at the end of the log, lost pages before it
    BLANK = "blank"  # a damaged BLANK and the rest of the segment: no message was here
    STALE = "stale"  # whole records of an older log
    AMBIGUOUS = "ambiguous"  # whole records: messages, or copies in a lost message's body


@dataclass(frozen=True)
class DeadRange:
    """Bytes [begin, end) in which no record survived."""

    begin: int
    end: int
    finding: Finding
    defect: RecordDefect
    record: RecordRef | None = None


@dataclass(frozen=True)
class Broken:
    """The rest of ``segment`` from ``start``, where ``defect`` says why no record begins, up to ``limit``."""

    segment: Segment
    start: int
    defect: RecordDefect
    limit: int
    neighbours: Neighbours = field(default_factory=Neighbours)
    last_entry: EntryNumber | None = None  # the last proven DLedger entry before


@dataclass(frozen=True)
class Survey:
    """Tiles of the range as log offsets: surviving chains, records kept despite their body CRC, a BLANK, and gaps."""

    broken: Broken
    pieces: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]
    blank: tuple[int, int] | None
    gaps: tuple[DeadRange, ...]


def survey(window: BlockWindow, broken: Broken, rules: DecodeRules, *, keep_crc_failures: bool = False) -> Survey:
    """Find the survivors after a break of the chain."""
    surveyor = _EntrySurveyor if isinstance(broken.segment.framing, EntryFraming) else _RecordSurveyor
    return surveyor(window, broken, rules, keep_crc_failures).run()


@dataclass
class _Piece:
    """A chain [start, end) that is or may be accepted, and why it stopped."""

    start: int
    end: int
    ended: ChainEnd
    defect: RecordDefect


class _Surveyor:
    def __init__(self, window: BlockWindow, broken: Broken, rules: DecodeRules, keep_crc_failures: bool) -> None:
        self._window, self._rules, self._keep = window, rules, keep_crc_failures
        self._broken, self._segment, self._limit = broken, broken.segment, broken.limit
        self._pieces: list[tuple[int, int]] = []
        self._kept: list[tuple[int, int]] = []
        self._gaps: list[DeadRange] = []

    def _read(self, start: int, stop: int, block_size: int = SURVEY_BLOCK) -> ChainWalk:
        return chain_from(self._window, start, self._rules, stop=stop, limit=self._limit, block_size=block_size)


class _RecordSurveyor(_Surveyor):
    def __init__(self, window: BlockWindow, broken: Broken, rules: DecodeRules, keep_crc_failures: bool) -> None:
        super().__init__(window, broken, rules, keep_crc_failures)
        self._ahead = window.another()
        self._judge = SurvivorJudge(broken.neighbours)
        self._seen: list[Int64s] = []  # record offsets of rejected chains, by block: each chain is judged once
        self._doubtful: list[tuple[int, int]] = []  # rejected chains of sound records, or their beginnings

    def run(self) -> Survey:
        piece = _Piece(self._broken.start, self._broken.start, ChainEnd.DEFECT, self._broken.defect)
        while piece.ended == ChainEnd.DEFECT and piece.end < self._limit:
            following = self._following(piece.end, piece.defect)
            if following is None:
                break
            piece = following
            if piece.end > piece.start:
                self._pieces.append((piece.start, piece.end))
        blank = (piece.end, self._segment.end) if piece.ended == ChainEnd.BLANK else None
        near, start = self._broken.neighbours, self._broken.start
        end = self._limit if blank is None else blank[0]
        found = find_survivors(self._read, near, start, end, self._pieces, self._doubtful)
        pieces = sorted([*self._pieces, *found])
        if blank is None and found:
            walk = self._chain(pieces[-1][0]).finish()
            if (walk.position, walk.ended) == (pieces[-1][1], ChainEnd.BLANK):
                blank = (walk.position, self._segment.end)
        named = [*found, *([] if blank is None else [blank])]
        return Survey(self._broken, tuple(pieces), tuple(self._kept), blank, tuple(_carved(self._gaps, named)))

    def _following(self, position: int, defect: RecordDefect) -> _Piece | None:
        """The next piece of the log after the damaged place."""
        if defect == RecordDefect.UNWRITTEN and self._window.is_zero(position, self._limit, SURVEY_BLOCK):
            self._lose(position, self._limit, Finding.ZEROS, defect)
            return None
        frame = self._frame(position)
        if frame.size is not None and self._window.certifies_inside(
            position + max(frame.body_end, 1), position + frame.size, self._limit
        ):
            # Topic and properties hold no record: this one ends before it.
            frame = replace(frame, size=None, body_end=0 if frame.sizes_alone else frame.body_end)
        record = self._damaged_record(position, frame.size) if frame.size is not None and frame.certified else None
        if record is not None and self._judge.is_of_an_older_life(record.store_timestamp):
            frame, record = Frame(None, 0), None  # from a page of an older log, which may end anywhere in this record
        if frame.size is not None and not self._leads_into_another_life(position + frame.size):
            end = position + frame.size
            if not (self._keep and defect == RecordDefect.BODY_CRC and self._keeps(position, end)):
                self._lose(position, end, Finding.RECORD, defect, record)
            return self._walk(end)
        return self._search(position, defect, frame)

    def _frame(self, position: int) -> Frame:
        window, room = self._window, self._limit - position
        window.load(position, min(room, m.MAX_HEAD_SIZE))
        head = window.bytes[: m.MAX_HEAD_SIZE].tobytes()
        needed = claimed_size(head, min(room, m.MAX_RECORD_SIZE))
        window.load(position, needed)
        data = window.bytes[:needed]  # the other window reads what follows
        return judge_frame(data, position, self._segment.end - position, lambda size: self._follower(position + size))

    def _follower(self, position: int) -> Follower:
        if position >= self._limit:
            return Follower.NOTHING if position == self._limit else Follower.NONE
        length = min(self._limit - position, m.CERTIFICATE_SIZE)
        self._ahead.load(position, length)
        if self._ahead.find_certificate(position, position + 1) is not None:
            return Follower.RECORD
        if length < m.BLANK_SIZE:
            return Follower.NONE
        head = self._ahead.bytes[: m.BLANK_SIZE].tobytes()
        verdict = judge_head(head, self._segment.end - position, self._limit - position)
        if verdict == (ChainEnd.BLANK, RecordDefect.OK):
            return Follower.RECORD
        if verdict == (ChainEnd.DEFECT, RecordDefect.UNWRITTEN) and self._ahead.is_zero(
            position, self._limit, SURVEY_BLOCK
        ):
            return Follower.NOTHING
        return Follower.NONE

    def _leads_into_another_life(self, position: int) -> bool:
        """True if the record there is off in time by more than a clock jump."""
        self._window.load(position, min(m.MAX_HEAD_SIZE, self._limit - position))
        if self._window.find_certificate(position, position + 1) is None:
            return False
        block = next(iter(self._chain(position, _FIRST_BLOCK)), None)
        return block is not None and not self._judge.may_be_of_this_life(block)

    def _keeps(self, position: int, end: int) -> bool:
        """Keep the record at [position, end) if only its body CRC is wrong."""
        self._window.load(position, end - position)
        block, fault = decode(self._window.bytes, position, _FIRST, replace(self._rules, check_crc=False))
        if fault is not None or block.foreign.any():
            return False
        self._kept.append((position, end))
        self._judge.learn(block)
        return True

    def _damaged_record(self, position: int, size: int) -> RecordRef | None:
        self._window.load(position, size)
        block, fault = decode(self._window.bytes, position, _FIRST, DecodeRules(check_crc=False, properties=()))
        return first_record_ref(block) if fault is None else None

    def _walk(self, start: int) -> _Piece:
        walk = self._chain(start, _FIRST_BLOCK)
        if next(iter(walk), None) is not None:
            walk = self._chain(start)
            for block in walk:
                self._judge.learn(block)
        return _Piece(start, walk.position, walk.ended, walk.defect)

    def _chain(self, start: int, block_size: int = SURVEY_BLOCK) -> ChainWalk:
        return self._read(start, self._limit, block_size)

    def _search(self, position: int, defect: RecordDefect, frame: Frame) -> _Piece | None:
        """The next piece that its neighbours do not contradict; all before it is lost."""
        known_room = self._judge.room
        strict_below = position if frame.body_end else position + max(frame.hints, default=0)
        rejected: list[DeadRange] = []
        self._seen.clear()
        for found in self._certificates(position + max(frame.body_end, 1)):
            self._judge.room = known_room + found - position
            piece = self._try(found, strict_below)
            if isinstance(piece, _Piece):
                if piece.start > found:
                    self._doubtful.append((found, piece.start))
                self._lose_around(position, piece.start, defect, rejected)
                return piece
            rejected.append(piece)
            if piece.finding == Finding.AMBIGUOUS or self._judge.is_in_doubt:
                self._doubtful.append((piece.begin, piece.end))
        self._lose_rest(position, defect, frame, rejected)
        return None

    def _certificates(self, begin: int) -> Iterator[int]:
        """Certified positions from ``begin`` on, except in chains already seen. The window may move in between."""
        for at in range(begin, self._limit, SURVEY_BLOCK):
            stop = min(at + SURVEY_BLOCK, self._limit)
            length = min(stop + m.CERTIFICATE_SIZE, self._limit) - at
            self._window.load(at, length)
            places = self._unseen(find_records(self._window.bytes[:length], at, at, stop))
            while places.size:
                yield int(places[0])
                places = self._unseen(places[1:])

    def _unseen(self, places: Int64s) -> Int64s:
        """Positions not in a chain already seen; forgets chains that end before them."""
        if places.size:
            self._seen = [offsets for offsets in self._seen if offsets[-1] >= places[0]]
        for offsets in self._seen:
            if places.size and offsets[0] <= places[-1]:
                places = places[offsets[np.searchsorted(offsets[:-1], places)] != places]
        return places

    def _try(self, found: int, strict_below: int) -> _Piece | DeadRange:
        walk = self._chain(found)
        trial: SurvivorJudge | None = None
        start, older = found, True
        room = self._judge.room
        for block in walk:
            self._seen.append(block.offsets)
            if trial is not None:
                trial.learn(block)
                continue
            older = older and self._judge.is_older(block)
            self._judge.room = room + int(block.offsets[0]) - found
            hit = self._judge.first_survivor(block, strict_below)
            if hit is not None:
                start = int(block.offsets[hit])
                self._judge.room = room + start - found
                trial = self._judge.copy()
                trial.learn(block.take(slice(hit, None)))
        end = max(walk.position, found + 1)
        if trial is None:
            return DeadRange(found, end, Finding.STALE if older else Finding.AMBIGUOUS, RecordDefect.OK)
        is_meant = walk.ended != ChainEnd.DEFECT or self._is_meant(walk.position, walk.defect)
        if (not is_meant and not trial.fits) or (walk.ended == ChainEnd.DEFECT and trial.contradicts):
            return DeadRange(found, end, Finding.AMBIGUOUS, RecordDefect.OK)
        self._judge = trial
        return _Piece(start, walk.position, walk.ended, walk.defect)

    def _is_meant(self, position: int, defect: RecordDefect) -> bool:
        """True if a chain with this defect ended at a former record or at the end of the data."""
        if defect == RecordDefect.UNWRITTEN:
            return self._window.is_zero(position, min(position + MANY_ZEROS, self._limit), SURVEY_BLOCK)
        frame = self._frame(position)
        if frame.size is not None or frame.body_end or frame.hints or frame.is_blank:
            return True
        head = self._head(position)
        return _has_magic(head) or _int(head, m.PHYSICAL_OFFSET_POSITION, 8) == position

    def _head(self, position: int) -> bytes:
        self._window.load(position, min(m.CERTIFICATE_SIZE, self._limit - position))
        return self._window.bytes[: m.CERTIFICATE_SIZE].tobytes()

    def _lose(
        self, begin: int, end: int, finding: Finding, defect: RecordDefect, record: RecordRef | None = None
    ) -> None:
        self._gaps.append(DeadRange(begin, end, finding, defect, record))
        if finding == Finding.RECORD:
            self._judge.room += end - begin

    def _lose_around(self, begin: int, end: int, defect: RecordDefect, rejected: list[DeadRange]) -> None:
        """Report [begin, end) as lost, and undecided ranges in it as ambiguous."""
        for gap in rejected:
            if gap.finding == Finding.AMBIGUOUS and begin < gap.end and gap.begin < end:
                first, last = max(begin, gap.begin), min(end, gap.end)
                if first > begin:
                    self._lose(begin, first, Finding.BYTES, defect)
                self._lose(first, last, Finding.AMBIGUOUS, defect)
                begin = last
        if begin < end:
            self._lose(begin, end, Finding.BYTES, defect)

    def _lose_rest(self, position: int, defect: RecordDefect, frame: Frame, rejected: list[DeadRange]) -> None:
        """Everything up to the limit is lost or was never written."""
        if frame.is_blank:
            self._lose(position, self._limit, Finding.BLANK, defect)
            return
        zeros = zeros_from(self._window, position, self._limit)
        first = min(rejected[0].begin, zeros) if rejected else zeros
        if first > position:
            is_unfinished = first == zeros and self._is_unfinished(position, zeros)
            self._lose(position, first, Finding.UNFINISHED if is_unfinished else Finding.BYTES, defect)
        if zeros > first:
            stale = all(gap.finding == Finding.STALE for gap in rejected)
            self._lose(first, zeros, Finding.STALE if stale else Finding.AMBIGUOUS, defect)
        if zeros < self._limit:
            self._lose(zeros, self._limit, Finding.ZEROS, defect)

    def _is_unfinished(self, position: int, zeros: int) -> bool:
        """True if the bytes before the zeros begin a longer record, as after a broker's crash."""
        written, head = zeros - position, self._head(position)
        if written <= m.MAGIC_POSITION + 4:
            return self._limit == self._segment.end
        size = _int(head, 0, 4)
        is_own = written < m.CERTIFICATE_SIZE or _int(head, m.PHYSICAL_OFFSET_POSITION, 8) == position
        fits = max(written, m.MIN_RECORD_SIZE - 1) < size <= self._segment.end - position
        if not (self._limit == self._segment.end and _has_magic(head) and is_own and fits):
            return False
        self._window.load(position, size)
        end = parts_end(self._window.bytes[:size])
        return end is None or end > written  # else the record is complete, and its size is damaged


def _carved(gaps: Sequence[DeadRange], pieces: Sequence[tuple[int, int]]) -> Iterator[DeadRange]:
    for gap in gaps:
        begin = gap.begin
        for first, last in sorted(piece for piece in pieces if gap.begin < piece[1] and piece[0] < gap.end):
            if begin < first:
                yield replace(gap, begin=begin, end=first)
            begin = last
        if begin < gap.end:
            yield replace(gap, begin=begin)


def zeros_from(window: BlockWindow, begin: int, end: int) -> int:
    """Start of the zeros at the end of [begin, end)."""
    while end > begin:
        start = max(begin, end - SURVEY_BLOCK)
        window.load(start, end - start)
        used = np.flatnonzero(window.bytes[: end - start])
        if used.size:
            return start + int(used[-1]) + 1
        end = start
    return begin


_FIRST = np.zeros(1, np.int64)


class _EntrySurveyor(_Surveyor):
    def run(self) -> Survey:
        self._last = self._broken.last_entry
        position, defect, ended = self._broken.start, self._broken.defect, ChainEnd.DEFECT
        while ended == ChainEnd.DEFECT and position < self._limit:
            follows = self._segment.framing.follows
            found = self._certified(position + 1)
            survivor = next((item for item in found if follows(self._last, item[1], gap=True)), None)
            if survivor is None:
                position, ended = self._lose_rest(position, defect)
                break
            begin, number = survivor
            self._lose(position, begin, defect, number)
            walk = self._read(begin, self._limit).finish()
            if walk.position > begin:
                self._pieces.append((begin, walk.position))
            self._last = walk.last or EntryNumber(number.index - 1, number.term)
            position, ended, defect = walk.position, walk.ended, walk.defect
        blank = (position, self._segment.end) if ended == ChainEnd.BLANK else None
        return Survey(self._broken, tuple(self._pieces), tuple(self._kept), blank, tuple(self._gaps))

    def _certified(self, begin: int) -> Iterator[tuple[int, EntryNumber]]:
        framing = self._segment.framing
        for at in range(begin, self._limit, SURVEY_BLOCK):
            stop = min(at + SURVEY_BLOCK, self._limit)
            self._window.load(at, min(stop + framing.certificate_size, self._limit) - at)
            place = self._window.find_certificate(at, stop)
            while place is not None:
                number = framing.number_at(self._window.bytes, place - at)
                if number is not None:
                    yield place, number
                place = self._window.find_certificate(place + 1, stop)

    def _lose(self, begin: int, end: int, defect: RecordDefect, following: EntryNumber) -> None:
        """One message is lost if one number is missing between two survivors, else an unknown number."""
        if self._last is not None and following.index == self._last.index + 2:
            self._lose_one(begin, end, defect)
        else:
            self._gaps.append(DeadRange(begin, end, Finding.BYTES, defect))

    def _lose_one(self, begin: int, end: int, defect: RecordDefect) -> None:
        """Keeps the message if only its body CRC is wrong."""
        record = self._damaged_record(begin, end)
        if self._keep and defect == RecordDefect.BODY_CRC and record is not None:
            self._kept.append((begin, end))
        else:
            self._gaps.append(DeadRange(begin, end, Finding.RECORD, defect, record))

    def _damaged_record(self, begin: int, end: int) -> RecordRef | None:
        if end - begin < MIN_ENTRY_SIZE:
            return None
        self._window.load(begin, end - begin)
        data = self._window.bytes
        if _int(data[: HEAD_SIZE + 4].tobytes(), HEAD_SIZE, 4) != end - begin - HEAD_SIZE:
            return None
        block, fault = decode(data, begin, np.array([HEAD_SIZE], np.int64), DecodeRules(check_crc=False))
        return first_record_ref(block) if fault is None else None

    def _lose_rest(self, position: int, defect: RecordDefect) -> tuple[int, ChainEnd]:
        """The rest up to the limit or a sound BLANK is lost or was never written. Returns that end."""
        zeros = zeros_from(self._window, position, self._limit)
        if zeros > position:
            magic, size = self._magic_and_size(position)
            if magic == BLANK_MAGIC or size == self._segment.end - position:
                self._gaps.append(DeadRange(position, self._limit, Finding.BLANK, defect))
                return self._limit, ChainEnd.DEFECT
            blank = self._closing_blank(position, zeros)
            zeros = self._lose_tail(position, zeros if blank is None else blank, size, defect)
            if blank is not None:
                return blank, ChainEnd.BLANK
        if zeros < self._limit:
            self._gaps.append(DeadRange(zeros, self._limit, Finding.ZEROS, defect))
        return self._limit, ChainEnd.DEFECT

    def _closing_blank(self, begin: int, zeros: int) -> int | None:
        """A BLANK's size may end in zeros, and zeros follow it."""
        for at in range(max(begin, zeros - m.BLANK_SIZE), min(zeros, self._limit - m.BLANK_SIZE + 1)):
            if self._magic_and_size(at) == (BLANK_MAGIC, self._segment.end - at):
                return at
        return None

    def _magic_and_size(self, position: int) -> tuple[int, int]:
        self._window.load(position, min(m.BLANK_SIZE, self._limit - position))
        head = self._window.bytes[: m.BLANK_SIZE].tobytes()
        return _int(head, 0, 4), _int(head, 4, 4)

    def _lose_tail(self, position: int, zeros: int, size: int, defect: RecordDefect) -> int:
        """The bytes before the zeros are a message, leftovers, or just bytes. Returns their end."""
        stale = next(self._certified(position), None)
        if stale is not None and stale[0] == position and self._segment.framing.follows(self._last, stale[1]):
            end = min(position + size, self._limit)
            self._lose_one(position, end, defect)
            stale, position, zeros = next(self._certified(end), None), end, max(zeros, end)
        first = zeros if stale is None else min(stale[0], zeros)
        if first > position:
            self._gaps.append(DeadRange(position, first, Finding.BYTES, defect))
        if zeros > first:
            self._gaps.append(DeadRange(first, zeros, Finding.STALE, defect))
        return zeros


class Follower(IntEnum):
    """What begins at the claimed end of a record."""

    NONE = 0  # nothing that can follow a record
    NOTHING = 1  # the end of the data, or only zeros up to there
    RECORD = 2  # a certified record or a BLANK


@dataclass(frozen=True)
class Frame:
    """What the bytes prove at a place where a record must begin; sizes are relative to it.

    ``size``: the record's, None if not proven. ``body_end``: minimum extent of the record (0: nothing proven).
    ``hints``: sizes that only one field claims. ``certified``: magic and own offset are right. ``is_blank``: more
    likely a BLANK with one damaged field. ``sizes_alone``: the body's CRC is wrong, so the body depends on the size.
    """

    size: int | None
    body_end: int
    hints: tuple[int, ...] = ()
    certified: bool = False
    is_blank: bool = False
    sizes_alone: bool = False


def claimed_size(head: bytes, room: int) -> int:
    """Bytes that ``judge_frame`` needs of a record with this head, at most ``room``."""
    most = m.MAX_HEAD_SIZE
    size = _int(head, 0, 4)
    if size <= room:
        most = max(most, size)
    for at in _BODY_LENGTH_POSITIONS:
        length = _int(head, at, 4)
        if length <= room:
            most = max(most, length + _MOST_BESIDE_BODY)
    return min(most, room)


def judge_frame(data: Bytes, offset: int, rest: int, follower: Callable[[int], Follower]) -> Frame:
    """Judge the damaged record that begins with ``data[0]`` at log offset ``offset``. ``data``: as ``claimed_size``
    asks. ``rest``: bytes left in the segment. ``follower(size)``: what follows a record of that size.
    """
    room = len(data)
    head = data[: m.MAX_HEAD_SIZE].tobytes()
    size, magic = _int(head, 0, 4), _int(head, m.MAGIC_POSITION, 4)
    if room < m.MIN_RECORD_SIZE:
        return Frame(None, 0)
    known_magic = magic in (m.MAGIC_V1, m.MAGIC_V2)
    certified = known_magic and _int(head, m.PHYSICAL_OFFSET_POSITION, 8) == offset
    if magic == m.MAGIC_BLANK or (size == rest and not certified):  # every record leaves 8 bytes after it
        return Frame(None, 0, is_blank=True)
    crc = int.from_bytes(head[m.BODY_CRC_POSITION : m.BODY_CRC_POSITION + 4], "big")
    said = size if m.MIN_RECORD_SIZE <= size <= room else None
    widths = {m.MAGIC_V1: (1,), m.MAGIC_V2: (2,)}.get(magic, (1, 2))
    sums: list[int] = []
    body_end = 0
    for width in widths:
        body_at, length, total = _sum_of_parts(data, head, room, width)
        if total is not None and total == said:
            checked = _crc(data, body_at, length) == crc
            body_end = body_at + length if certified or checked else 0
            return Frame(said, body_end, certified=certified, sizes_alone=not checked)
        if total is not None:
            sums.append(total)
        if 0 < length <= room - body_at - width - 2 and _crc(data, body_at, length) == crc:
            body_end = max(body_end, body_at + length)
    followed = {end: follower(end) for end in (said, *sums) if end is not None and end >= body_end}
    if certified and not crc and not length and total is not None and followed.get(total) == Follower.RECORD:
        return Frame(total, body_at, certified=True)
    certain = sorted(end for end, what in followed.items() if what == Follower.RECORD)
    if body_end:  # only topic and properties follow, which hold no records: take the nearer of two ends
        return Frame(certain[0] if certain else None, body_end, tuple(certain), certified)
    if said is not None and followed[said] and any(_body_fits(data, crc, said, width) for width in widths):
        return Frame(said, said, certified=certified)
    return Frame(None, 0, tuple(certain), certified)


def parts_end(data: Bytes) -> int | None:
    """End of the record's parts by their lengths; None if outside ``data``."""
    head = data[: m.MAX_HEAD_SIZE].tobytes()
    return _sum_of_parts(data, head, len(data), 2 if _int(head, m.MAGIC_POSITION, 4) == m.MAGIC_V2 else 1)[2]


def _has_magic(head: bytes) -> bool:
    return head[m.MAGIC_POSITION : m.MAGIC_POSITION + 4] in (m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES)


def _int(head: bytes, position: int, size: int) -> int:
    return int.from_bytes(head[position : position + size], "big", signed=True)


def _crc(data: Bytes, start: int, length: int) -> int:
    return zlib.crc32(data[start : start + length].data) & m.CRC_MASK


def _sum_of_parts(data: Bytes, head: bytes, room: int, width: int) -> tuple[int, int, int | None]:
    """Start and length of the body, and the sum of the parts (None if larger than ``room``)."""
    body_at = m.body_position(_int(head, m.SYS_FLAG_POSITION, 4))
    length = max(_int(head, body_at - 4, 4), 0)
    at = body_at + length
    if at + width + 2 > room:
        return body_at, length, None
    topic = _int(data[at : at + width].tobytes(), 0, width)
    at += width + topic
    if topic < 0 or at + 2 > room:
        return body_at, length, None
    at += 2 + max(_int(data[at : at + 2].tobytes(), 0, 2), 0)
    return body_at, length, at if at <= room else None


def _body_fits(data: Bytes, crc: int, size: int, width: int) -> bool:
    """True if a body length and host sizes exist for which a record of this size has a body with this CRC."""
    guesses = 0
    for hosts in {m.HOST_V4 + m.HOST_V4, m.HOST_V4 + m.HOST_V6, m.HOST_V6 + m.HOST_V6}:
        body_at = m.FIXED_HEAD + hosts
        for length in _possible_lengths(data, body_at, size, width):
            guesses += 1
            if length and _crc(data, body_at, length) == crc:
                return True
            if guesses >= _MOST_GUESSES:
                return False
    return False


def _possible_lengths(data: Bytes, body_at: int, size: int, width: int) -> Iterator[int]:
    """Body lengths for which topic and properties end exactly at ``size``."""
    at = np.arange(body_at, size - width - 1)
    topic = data[at].astype(np.int64)
    if width == 2:
        topic = (topic << 8) | data[at + 1]
    properties = at + width + topic
    inside = (topic < (1 << (8 * width - 1))) & (properties + 2 <= size)
    at, properties = at[inside], properties[inside]
    length = (data[properties].astype(np.int64) << 8) | data[properties + 1]
    length[length >= 1 << 15] = 0
    yield from (at[properties + 2 + length == size] - body_at).tolist()
