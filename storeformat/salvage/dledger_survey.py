"""Survivors after damage in a DLedger log; ``survey`` is for a log without entries.

Entries are numbered without a gap and terms never fall: the next certified entry whose number goes on from the last
proven one survived; others are leftovers of an older log or copies in a body. An entry between two survivors is one
lost message.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.dledger import BLANK_MAGIC, HEAD_SIZE, MIN_ENTRY_SIZE
from storeformat.log.framing import ChainEnd, EntryNumber
from storeformat.log.record_ref import RecordRef, first_record_ref
from storeformat.record.decode import DecodeRules, decode
from storeformat.salvage.findings import Broken, DeadRange, Finding, Survey
from storeformat.salvage.survey import SURVEY_BLOCK, zeros_from

_WITHOUT_CRC = DecodeRules(check_crc=False)


def survey_entries(
    window: BlockWindow, broken: Broken, rules: DecodeRules, *, keep_crc_failures: bool = False
) -> Survey:
    """Find the survivors after a break of a chain of entries."""
    return _EntrySurveyor(window, broken, rules, keep_crc_failures).run()


class _EntrySurveyor:
    def __init__(self, window: BlockWindow, broken: Broken, rules: DecodeRules, keep_crc_failures: bool) -> None:
        self._keep = keep_crc_failures
        self._window, self._rules, self._broken = window, rules, broken
        self._segment, self._limit = broken.segment, broken.limit
        self._last = broken.last_entry
        self._pieces: list[tuple[int, int]] = []
        self._kept: list[tuple[int, int]] = []
        self._gaps: list[DeadRange] = []

    def run(self) -> Survey:
        position, defect = self._broken.start, self._broken.defect
        ended = ChainEnd.DEFECT
        while ended == ChainEnd.DEFECT and position < self._limit:
            follows = self._segment.framing.follows
            found = self._certified(position + 1)
            survivor = next((item for item in found if follows(self._last, item[1], gap=True)), None)
            if survivor is None:
                position, ended = self._lose_rest(position, defect)
                break
            begin, number = survivor
            self._lose(position, begin, defect, number)
            walk = chain_from(self._window, begin, self._rules, stop=self._limit, limit=self._limit).finish()
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
        if int.from_bytes(data[HEAD_SIZE : HEAD_SIZE + 4].tobytes(), "big", signed=True) != end - begin - HEAD_SIZE:
            return None
        block, fault = decode(data, begin, np.array([HEAD_SIZE], np.int64), _WITHOUT_CRC)
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
        return int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:], "big", signed=True)

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
