"""The log of a DLedger group (``enableDLegerCommitLog``, 4.5 and later): entries and the committed index.

A member keeps entries in ``dledger-<selfId>/data``, in files named and sized like segments. Each entry holds one
record; its PHYSICALOFFSET, and the offset in queues and index, is that of the record, 48 bytes after the entry's.

Mirrors ``DLedgerEntry``, ``DLedgerEntryCoder``, ``DLedgerMmapFileStore#recover`` and ``MmapFileList#preAppend`` of
openmessaging/dledger 0.1 to 0.3.2, and ``DLedgerCommitLog`` of rocketmq-all-4.6.1 to 5.5.0.

FORMAT.md has the fields of an entry and of the blank that closes a file. A follower whose tail differs from its
leader's truncates it and continues there without zeroing, so entries of an older term can follow the end: index and
term tell.

``dledger-<selfId>/checkpoint`` (text, ``committedIndex=N``) has the last entry that a majority has, written every
three seconds and at shutdown. A broker dispatches up to there; later entries may be truncated.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.errors import RecordDefect
from storeformat.javacompat import parse_long
from storeformat.kernels import ENTRY_HEAD, ENTRY_MAGIC
from storeformat.log.chain_walk import BLOCK_SIZE, BlockWindow, search_certificate
from storeformat.log.segments import PLAIN, WRONG_BLANK, ChainEnd, EntryNumber, Framing, Segment, Verdict, judge_size
from storeformat.storage import files

HEAD_SIZE = 48
BLANK_MAGIC = -1
POS_POSITION = 24
MIN_ENTRY_SIZE = HEAD_SIZE + m.MIN_RECORD_SIZE

CHECKPOINT = "checkpoint"

_NUMBER = struct.Struct(">8xqq")
_MAGIC_AND_SIZE = struct.Struct(">ii")
_UNKNOWN = EntryNumber(-1, -1)
_COMMITTED = re.compile(r"\s*committedIndex\s*=\s*(-?[0-9]{1,19})\s*")


def _walk_entries(
    buffer: Bytes, start: int, stop: int, limit: int, buffer_offset: int, index: int, term: int, committed: int
) -> tuple[Int64s, int]:
    """Positions of consecutive DLedger entries from ``start``, and the position after the last.

    An entry at p < ``stop`` counts if its head has the position ``buffer_offset`` + p, its size agrees with its record
    and ends below ``limit``, its index follows and its term is no older, unless its index is at most ``committed``.
    ``index`` and ``term`` are those of the entry before the first; -1: unknown.
    """
    positions: list[int] = []
    unpack = ENTRY_HEAD.unpack_from
    view = memoryview(buffer.data)
    position = start
    stop = min(stop, limit - ENTRY_HEAD.size + 1)
    extra = ENTRY_HEAD.size - 4
    while position < stop:
        magic, size, own_index, own_term, place, body_length, total_size = unpack(view, position)
        if magic != ENTRY_MAGIC or size < extra + m.MIN_RECORD_SIZE or position + size > limit:
            break
        if place != buffer_offset + position or body_length != size - extra or total_size != body_length:
            break
        if own_index < 0 or (own_term < term and own_index > committed) or (index >= 0 and own_index != index + 1):
            break
        positions.append(position)
        index, term = own_index, own_term
        position += size
    return np.array(positions, dtype=np.int64), position


@dataclass(frozen=True)
class EntryFraming(Framing):
    """Records in DLedger entries. Entries up to ``committed_index`` are valid whatever their terms."""

    committed_index: int = -1
    head_size: ClassVar[int] = HEAD_SIZE
    certificate_size: ClassVar[int] = HEAD_SIZE + m.CERTIFICATE_SIZE
    judged_size: ClassVar[int] = ENTRY_HEAD.size
    allows_foreign_records: ClassVar[bool] = False

    def walk(
        self, buffer: Bytes, stop: int, limit: int, buffer_offset: int, last: EntryNumber | None
    ) -> tuple[Int64s, int]:
        positions: Int64s
        before = last or _UNKNOWN
        positions, reached = _walk_entries(
            buffer, 0, stop, limit, buffer_offset, before.index, before.term, self.committed_index
        )
        return positions, reached

    def judge(self, head: bytes, position: int, room: int, allowed: int, last: EntryNumber | None) -> Verdict:
        magic, size = _MAGIC_AND_SIZE.unpack_from(head)
        if magic == BLANK_MAGIC:
            return (ChainEnd.BLANK, RecordDefect.OK) if size == room else WRONG_BLANK
        if size == 0 and magic == 0:
            return ChainEnd.DEFECT, RecordDefect.UNWRITTEN
        if magic != ENTRY_MAGIC:
            return ChainEnd.DEFECT, RecordDefect.ILLEGAL_MAGIC
        verdict = judge_size(size, MIN_ENTRY_SIZE, room, allowed)
        if not isinstance(verdict, int):
            return verdict
        _, _, index, term, place, body_length, total_size = ENTRY_HEAD.unpack_from(head)
        if place != position or body_length != size - HEAD_SIZE or total_size != body_length or index < 0:
            return ChainEnd.DEFECT, RecordDefect.BAD_ENTRY
        if not self.follows(last, EntryNumber(index, term)):
            return ChainEnd.DEFECT, RecordDefect.ENTRY_OUT_OF_ORDER
        return size

    def blank_size(self, head: bytes) -> int:
        return int.from_bytes(head[4:8], "big", signed=True)

    def find(self, data: bytes | bytearray, data_offset: int, length: int, start: int, stop: int) -> int | None:
        begin = start
        while True:
            record = PLAIN.find(data, data_offset, length, begin + HEAD_SIZE, stop + HEAD_SIZE)
            if record is None:
                return None
            at = record - HEAD_SIZE - data_offset
            magic, size, index, _, place, body_length, total_size = ENTRY_HEAD.unpack_from(data, at)
            sizes_agree = size == body_length + HEAD_SIZE and body_length == total_size
            if magic == ENTRY_MAGIC and place == record - HEAD_SIZE and sizes_agree and index >= 0:
                return record - HEAD_SIZE
            begin = record - HEAD_SIZE + 1

    def number_at(self, buffer: Bytes, position: int) -> EntryNumber | None:
        return EntryNumber(*_NUMBER.unpack_from(memoryview(buffer.data), position))

    def follows(self, last: EntryNumber | None, first: EntryNumber | None, *, gap: bool = False) -> bool:
        if last is None or first is None:
            return True
        in_order = first.index > last.index if gap else first.index == last.index + 1
        return in_order and (first.term >= last.term or first.index <= self.committed_index)


ENTRIES = EntryFraming()


def framing_of(head: bytes, base: int) -> Framing | None:
    """Framing of a segment from its first bytes and its base offset; None if they do not tell."""
    if len(head) < HEAD_SIZE:
        return None
    magic, _ = _MAGIC_AND_SIZE.unpack_from(head)
    place = int.from_bytes(head[POS_POSITION : POS_POSITION + 8], "big", signed=True)
    if head[4:8] in (m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES, m.MAGIC_BLANK.to_bytes(4, "big", signed=True)):
        return PLAIN
    return ENTRIES if magic == ENTRY_MAGIC and place == base else None


def committed_index(checkpoint: str) -> int | None:
    """``committedIndex`` of a group's checkpoint file (-1: nothing is committed); None without a file or value."""
    if not files.size_of(checkpoint):
        return None
    lines = files.read_bytes(checkpoint).decode("utf-8", "replace").splitlines()
    found = (parse_long(line[1]) for line in map(_COMMITTED.fullmatch, lines) if line)
    return next((index for index in found if index is not None), None)


@dataclass(frozen=True)
class Committed:
    """How far a log is committed: up to ``end`` (None: all of it); ``note`` is for the user. ``missing_from``: where
    the entries break off before the last committed one, so that messages are lost.
    """

    end: int | None = None
    note: str = ""
    missing_from: int | None = None


def committed_end(segments: Sequence[Segment], index: int) -> Committed:
    """Where the last committed entry, ``index``, ends; None if no entry follows it. If it is damaged or lost, the log
    is known to be committed up to the next certified one.
    """
    entries = [segment for segment in segments if isinstance(segment.framing, EntryFraming)]
    after, number_after = None, -1
    for segment in reversed(entries):
        first = _first_entry(segment, may_be_unwritten=after is None and segment != entries[0])
        if first is not None and first[1].index <= index:
            break
        if first is not None:
            after, number_after = first[0], first[1].index
    else:
        if after is None:
            return Committed()
        if after == entries[0].base or index < 0:
            return Committed(entries[0].base, f"no entry of this log is committed (committedIndex={index})")
        note = f"entry {index} is committed, but the log has none before number {number_after}"
        return Committed(after, f"{note}; {_not_known(after, index)}", entries[0].base)
    start, first_number = first
    walked, end = _walk(segment, start, first_number, index)
    if walked < index - first_number.index + 1:
        if segment == entries[-1] and _is_closed(segment, end):
            return Committed()  # its member has gone on to the next file since the files were listed
        note = f"entry {index} is committed, but the entries end after number {first_number.index + walked - 1}"
        later = (
            _end_after_break(other, max(end, other.base), index) for other in entries if other.base >= segment.base
        )
        last = next((found for found in later if found is not None), None)
        return Committed(last, note if last is None else f"{note}; {_not_known(last, index)}", end)
    if not _goes_on(entries, segment, end):
        return Committed()
    return Committed(end, _not_known(end, index))


def _not_known(offset: int, index: int) -> str:
    return f"entries from offset {offset} on are not known to be committed (committedIndex={index})"


def _first_entry(segment: Segment, *, may_be_unwritten: bool) -> tuple[int, EntryNumber] | None:
    """The first certified entry if the head is damaged. In a segment that may be unwritten, zeros end the search."""
    head = files.read_range(segment.path, 0, min(HEAD_SIZE, segment.size)).ljust(HEAD_SIZE, b"\0")
    magic, _ = _MAGIC_AND_SIZE.unpack_from(head)
    if magic == ENTRY_MAGIC:
        return segment.base, EntryNumber(*_NUMBER.unpack_from(head))
    return None if may_be_unwritten and not any(head) else _next_entry(segment, segment.base)


def _next_entry(segment: Segment, start: int) -> tuple[int, EntryNumber] | None:
    with files.RangeReader(segment.path) as reader:
        found = search_certificate(BlockWindow(reader, segment), start, segment.end, segment.end).first
        if found is None:
            return None
        return found, EntryNumber(*_NUMBER.unpack_from(reader.read(found - segment.base, HEAD_SIZE)))


def _end_after_break(segment: Segment, start: int, index: int) -> int | None:
    """Where the entry with ``index`` ends after a break at ``start``, or the first certified later one begins."""
    while (found := _next_entry(segment, start)) is not None:
        start, number = found
        beyond = number.index > index
        walked, end = _walk(segment, start, number, number.index + 1 if beyond else index)
        if beyond and (walked == 2 or _next_entry(segment, end) is None):
            return start  # else nothing goes on from it: its number is damaged
        if not beyond and walked == index - number.index + 1:
            return end
        start = max(end, start + 1)
    return None


def _walk(segment: Segment, start: int, first: EntryNumber, index: int) -> tuple[int, int]:
    """Number of consecutive entries from ``first`` to at most ``index``, and where the last of them ends."""
    count, framing = index - first.index + 1, EntryFraming(index)
    last: EntryNumber | None = EntryNumber(first.index - 1, first.term)
    done, position, want = 0, start, BLOCK_SIZE
    with files.RangeReader(segment.path) as reader:
        window = BlockWindow(reader, segment)
        while done < count and position < segment.end:
            length = min(want, segment.end - position)
            window.load(position, length)
            found, reached = framing.walk(window.bytes, length, length, position, last)
            if done + len(found) > count:
                reached = int(found[count - done])
            done = min(done + len(found), count)
            if not len(found):
                if length == segment.end - position or want >= m.MAX_RECORD_SIZE:
                    break
                want *= 2
            else:
                last = framing.number_at(window.bytes, int(found[-1]))
            position += reached
    return done, position


def _goes_on(entries: Sequence[Segment], segment: Segment, end: int) -> bool:
    while _is_closed(segment, end):
        following = next((other for other in entries if other.base == segment.end), None)
        if following is None:
            return False
        segment, end = following, following.base
    return any(_head(segment, end))


def _is_closed(segment: Segment, end: int) -> bool:
    return end == segment.end or _MAGIC_AND_SIZE.unpack_from(_head(segment, end))[0] == BLANK_MAGIC


def _head(segment: Segment, offset: int) -> bytes:
    head = files.read_range(segment.path, offset - segment.base, min(m.BLANK_SIZE, segment.end - offset))
    return head.ljust(m.BLANK_SIZE, b"\0")
